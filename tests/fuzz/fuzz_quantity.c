/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantities under any bytes. What must hold: what is written reads back as the same value and the
 * same text; the value agrees with floating point to its precision; a quantity is a size with the
 * same bytes; an error leaves the result alone.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"
#include "require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(struct alq_quantity q, int as_binary)
{
    char text[ALQ_QUANTITY_TEXT_BYTES];
    char again[ALQ_QUANTITY_TEXT_BYTES];
    struct alq_quantity back;
    alq_quantity_format(q, as_binary, text);
    REQUIRE(alq_quantity_parse(text, strlen(text), &back, NULL) == 0);
    REQUIRE(alq_quantity_cmp(q, back) == 0);
    alq_quantity_format(back, as_binary, again);
    REQUIRE(strcmp(text, again) == 0);
}

static double multiplier(const char *suffix)
{
    static const char prefixes[] = "kMGTPE";
    const char *prefix = strchr(prefixes, *suffix == 'K' ? 'k' : *suffix);
    if (!*suffix)
        return 1;
    if (suffix[0] && suffix[1] == 'i')
        return pow(1024, (double)(prefix - prefixes + 1));
    if (*suffix == 'n' || *suffix == 'u' || *suffix == 'm')
        return *suffix == 'n' ? 1e-9 : *suffix == 'u' ? 1e-6 : 1e-3;
    return pow(1000, (double)(prefix - prefixes + 1));
}

/* strtod knows exponents itself; the letters are ours. */
static void check_against_double(const char *text, struct alq_quantity q)
{
    char *end;
    double want = strtod(text, &end) * multiplier(end);
    double got = (double)q.nano * 1e-9;
    REQUIRE(fabs(got - want) <= fabs(want) * 1e-12 + 1.000001e-9);
}

static void check_as_bytes(const char *text, struct alq_quantity q)
{
    uint64_t units = 7;
    uint64_t bytes = 7;
    int rc = alq_quantity_to_u64(q, &units, NULL);
    REQUIRE(alq_bytes_parse(text, 0, &bytes, NULL) == rc);
    REQUIRE(units == bytes && (rc == 0 || bytes == 7));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct alq_quantity q = {42};
    struct alq_err err = ALQ_ERR_INIT;
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';

    int rc = alq_quantity_parse((const char *)data, size, &q, &err);
    if (rc == 0) {
        REQUIRE(err.code == ALQ_OK && strlen(text) == size);
        check_round_trip(q, 0);
        check_round_trip(q, 1);
        check_against_double(text, q);
        check_as_bytes(text, q);
    } else {
        REQUIRE(rc == err.code && (rc == ALQ_EINVAL || rc == ALQ_ERANGE));
        REQUIRE(q.nano == 42 && err.text[0] && !strchr(err.text, '\n'));
    }
    for (int is_hami = 0; is_hami < 2; is_hami++) {
        uint64_t bytes = 42;
        if (alq_bytes_parse(text, is_hami, &bytes, NULL) != 0)
            REQUIRE(bytes == 42);
        else if (bytes == 0)
            REQUIRE(!strpbrk(text, "123456789") || strpbrk(text, "eE"));
    }
    free(text);
    return 0;
}
