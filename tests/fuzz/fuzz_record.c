/* SPDX-License-Identifier: Apache-2.0 */
/* Records: what decodes must encode to the same bytes. Input with a valid header is made half the
 * time, else nothing would get past the checksum. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/state/claim_spec.h"
#include "daemon/state/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t crc32c(const uint8_t *data, size_t len)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < len; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1)));
    }
    return ~crc;
}

static void check(const char *text, size_t len)
{
    struct alq_record record, again;
    struct alq_err err = ALQ_ERR_INIT;
    char *out = NULL;
    size_t out_len = 0;
    int rc = alq_record_decode(text, len, &record, &err);
    if (rc != err.code)
        abort();
    if (rc)
        return;
    if (!alq_claim_uid_is_valid(record.claim.uid) ||
        alq_record_encode(&record, &out, &out_len, NULL) ||
        alq_record_decode(out, out_len, &again, NULL) ||
        !alq_claim_spec_equal(&record.claim, &again.claim))
        abort();
    alq_record_fini(&again);
    alq_record_fini(&record);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check((const char *)data, size);
    char *text = malloc(size + 80);
    if (!text)
        return 0;
    int n = snprintf(text, 80, "aliquot-record %d %08x %zu\n", ALQ_RECORD_VERSION,
                     crc32c(data, size), size);
    memcpy(text + n, data, size);
    text[(size_t)n + size] = '\n';
    check(text, (size_t)n + size + 1);
    free(text);
    return 0;
}
