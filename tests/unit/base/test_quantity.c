/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantities against what Kubernetes API servers 1.34.9 and 1.36.2 stored for the same text,
 * against the grammar of resource.Quantity, and at the edges of the range.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/quantity.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct alq_quantity parsed(const char *text)
{
    struct alq_quantity q;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_quantity_parse(text, strlen(text), &q, &err) != 0)
        fail_msg("%s: %s", text, err.text);
    return q;
}

static int parse_code(const char *text, size_t len)
{
    struct alq_quantity q = {42};
    struct alq_err err = ALQ_ERR_INIT;
    int rc = alq_quantity_parse(text, len, &q, &err);
    assert_int_equal(rc, err.code);
    if (rc < 0) {
        assert_true(q.nano == 42);
        assert_true(err.text[0] != '\0');
    }
    return rc;
}

static uint64_t units(const char *text)
{
    uint64_t u = 0;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_quantity_to_u64(parsed(text), &u, &err) != 0)
        fail_msg("%s: %s", text, err.text);
    return u;
}

/* Sent, and what the servers stored; those that stay in exponent form are compared by value alone.
 */
static void parse_and_format_agree_with_recorded_servers(void **state)
{
    (void)state;
    static const struct {
        const char *sent, *stored;
        int as_binary;
    } rows[] = {
        {"16384Mi", "16Gi", 1},
        {"143771Mi", "143771Mi", 1},
        {"1024Ki", "1Mi", 1},
        {"0.5Gi", "512Mi", 1},
        {"4294967296", "4294967296", 0},
        {"1000m", "1", 0},
        {"100k", "100k", 0},
        {"1.5G", "1500M", 0},
        {"1500M", "1500M", 0},
        {"2048", "2048", 0},
        {"2000", "2k", 0},
        {"1000000Ki", "1000000Ki", 1},
        {"0", "0", 0},
        {"1048576", "1048576", 0},
        {"-1", "-1", 0},
        {"0.1", "100m", 0},
        {"1n", "1n", 0},
        {"1Ei", "1Ei", 1},
        {"1Mi", "1Mi", 1},
        {"100", "100", 0},
        {"1e3", "1k", 0},
        {"1E3", "1k", 0},
        {"1e9", "1G", 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char buf[ALQ_QUANTITY_TEXT_BYTES];
        alq_quantity_format(parsed(rows[i].sent), rows[i].as_binary, buf);
        assert_string_equal(buf, rows[i].stored);
        assert_int_equal(alq_quantity_cmp(parsed(rows[i].sent), parsed(rows[i].stored)), 0);
    }
}

static void parse_every_suffix_scales(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t want;
    } rows[] = {
        {"7", 7},
        {"7k", 7000},
        {"7M", 7000000},
        {"7G", 7000000000},
        {"7T", 7000000000000},
        {"7P", 7000000000000000},
        {"7E", 7000000000000000000},
        {"7Ki", UINT64_C(7) << 10},
        {"7Mi", UINT64_C(7) << 20},
        {"7Gi", UINT64_C(7) << 30},
        {"7Ti", UINT64_C(7) << 40},
        {"7Pi", UINT64_C(7) << 50},
        {"7Ei", UINT64_C(7) << 60},
        {"7000m", 7},
        {"7000000u", 7},
        {"7000000000n", 7},
        {"7e0", 7},
        {"7e3", 7000},
        {"7E3", 7000},
        {"7e+3", 7000},
        {"7000e-3", 7},
        {"0.007e6", 7000},
        {"700000000000000000000000000000e-29", 7},
        {"0.00000000000000000000000000007e29", 7},
        {"+7", 7},
        {"007", 7},
        {"7.", 7},
        {".5k", 500},
        {"7.G", 7000000000},
        {"1.5Gi", UINT64_C(3) << 29},
        {"0.000000000931322574615478515625Gi", 1},
        {"-0", 0},
        {"0e999999999999999999999", 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (units(rows[i].text) != rows[i].want)
            fail_msg("%s is not %ju", rows[i].text, (uintmax_t)rows[i].want);
    }
}

static void parse_what_is_not_a_quantity_is_invalid(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",    " ",   "Ki",        ".",       "+",      "-",     "e3",    "--1",   "+-1",
        "1 ",  " 1",  "1.1.1",     "1.1.M",   "1+1.0M", "0.1mi", "0.1am", "aoeu",  ".5i",
        "1i",  "1e",  "1e+",       "-3.01e-", "1ki",    "1K",    "1Kib",  "4GiB",  "4GB",
        "1mi", "1g",  "1Gii",      "1GG",     "1e3Mi",  "1e3.5", "0x10",  "1_000", "1,5",
        "NaN", "Inf", "1\xc2\xb5", "5ee3",    "5e3e",   "1e 3",  "1Eie",  "1ni",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (parse_code(rows[i], strlen(rows[i])) != ALQ_EINVAL)
            fail_msg("\"%s\" was taken", rows[i]);
    }
    assert_int_equal(parse_code("1\0", 2), ALQ_EINVAL);
    assert_int_equal(parse_code("1\0Gi", 4), ALQ_EINVAL);
}

static void parse_uses_len_not_the_terminator(void **state)
{
    (void)state;
    struct alq_quantity q;
    assert_int_equal(alq_quantity_parse("4Gi and more", 3, &q, NULL), 0);
    assert_int_equal(alq_quantity_cmp(q, parsed("4Gi")), 0);
    assert_int_equal(alq_quantity_parse("4Gi", 1, &q, NULL), 0);
    assert_int_equal(alq_quantity_cmp(q, parsed("4")), 0);
}

static void parse_finer_than_nano_rounds_away_from_zero(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t nano;
    } rows[] = {
        {"0.1n", 1},
        {"1.0n", 1},
        {"1.1n", 2},
        {"0.0000000001", 1},
        {"-0.0000000001", -1},
        {"1.00000000000000000000000000000000001u", 1001},
        {"0.9999999999", 1000000000},
        {"-1.1n", -2},
        {"1e-30", 1},
        {"1e-999999999999999999999", 1},
        {"0.0000000001Ki", 103}, /* 102.4 nano */
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (parsed(rows[i].text).nano != rows[i].nano)
            fail_msg("%s is not %jd nano", rows[i].text, (intmax_t)rows[i].nano);
    }
}

static void parse_at_the_edge_of_the_range_is_exact(void **state)
{
    (void)state;
    static const char *const fits[] = {
        "9223372036854775807",           "-9223372036854775807",  "9223372036854775807000m",
        "9223372036854775806.999999999", "7.99999999999999999Ei", "8191.99999999999999Pi",
        "9.223372036854775807E",         "9223372036854775807e0", "0000000000000000000000000000001",
    };
    static const char *const large[] = {
        "9223372036854775808",
        "-9223372036854775808",
        "9223372036854775807.000000001",
        "9223372036854775807.0000000000000000001",
        "8Ei",
        "8192Pi",
        "9.223372036854775808E",
        "10E",
        "1e19",
        "1e400",
        "1e999999999999999999999",
        "99999999999999999999999999999999999999999999",
        "99999999999999999999999999999999999999999999Ei",
        "340282366920938463463374607431768211456",
        "18446744073709551617",
        "340282366920938463463374607431768211457Ki",
    };
    for (size_t i = 0; i < COUNT(fits); i++)
        parsed(fits[i]);
    for (size_t i = 0; i < COUNT(large); i++) {
        if (parse_code(large[i], strlen(large[i])) != ALQ_ERANGE)
            fail_msg("%s was taken", large[i]);
    }
    assert_int_equal(units("9223372036854775807"), INT64_MAX);
}

static void parse_error_shows_the_text_printably(void **state)
{
    (void)state;
    struct alq_quantity q;
    struct alq_err err = ALQ_ERR_INIT;
    alq_quantity_parse("4GiB", 4, &q, &err);
    assert_non_null(strstr(err.text, "\"4GiB\" is not a quantity"));
    alq_quantity_parse("4\nG\x1b", 4, &q, &err);
    assert_non_null(strstr(err.text, "\"4?G?\""));
    char longest[1000];
    memset(longest, 'z', sizeof(longest));
    alq_quantity_parse(longest, sizeof(longest), &q, &err);
    assert_non_null(strstr(err.text, "zzz...\""));
}

static void cmp_orders_by_value_not_by_form(void **state)
{
    (void)state;
    assert_int_equal(alq_quantity_cmp(parsed("1Gi"), parsed("1G")), 1);
    assert_int_equal(alq_quantity_cmp(parsed("1024Mi"), parsed("1Gi")), 0);
    assert_int_equal(alq_quantity_cmp(parsed("-1"), parsed("1n")), -1);
    assert_int_equal(alq_quantity_cmp(parsed("-2"), parsed("-1")), -1);
    assert_int_equal(alq_quantity_cmp(parsed("1e3"), parsed("1k")), 0);
}

static void to_u64_rounds_fractions_up(void **state)
{
    (void)state;
    assert_int_equal(units("0.1"), 1);
    assert_int_equal(units("1n"), 1);
    assert_int_equal(units("1.000000001"), 2);
    assert_int_equal(units("100m"), 1);
    assert_int_equal(units("1e-30"), 1);
    uint64_t u = 7;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_quantity_to_u64(parsed("-1n"), &u, &err), ALQ_ERANGE);
    assert_non_null(strstr(err.text, "-1n is negative"));
    assert_int_equal(u, 7);
}

static void from_u64_takes_the_whole_range(void **state)
{
    (void)state;
    uint64_t u = 0;
    assert_int_equal(alq_quantity_to_u64(alq_quantity_from_u64(UINT64_MAX), &u, NULL), 0);
    assert_true(u == UINT64_MAX);
    struct alq_quantity above = {alq_quantity_from_u64(UINT64_MAX).nano + 1};
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_quantity_to_u64(above, &u, &err), ALQ_ERANGE);
}

static void format_picks_the_largest_whole_suffix(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int as_binary;
        const char *want;
    } rows[] = {
        {"1023", 1, "1023"},
        {"1024", 1, "1Ki"},
        {"-1024", 1, "-1Ki"},
        {"1025", 1, "1025"},
        {"1.5Gi", 1, "1536Mi"},
        {"1024.5", 1, "1024500m"},
        {"7Ei", 1, "7Ei"},
        {"1000", 1, "1k"},
        {"123456789n", 0, "123456789n"},
        {"1000000n", 0, "1m"},
        {"10k", 0, "10k"},
        {"9E", 0, "9E"},
        {"-1500m", 0, "-1500m"},
        {"4Gi", 0, "4294967296"},
        {"9223372036854775806.999999999", 0, "9223372036854775806999999999n"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char buf[ALQ_QUANTITY_TEXT_BYTES];
        alq_quantity_format(parsed(rows[i].text), rows[i].as_binary, buf);
        assert_string_equal(buf, rows[i].want);
    }
}

static void format_of_any_value_fits_its_buffer(void **state)
{
    (void)state;
    const __int128 max = (__int128)((~(unsigned __int128)0) >> 1);
    char buf[ALQ_QUANTITY_TEXT_BYTES];
    for (int as_binary = 0; as_binary < 2; as_binary++) {
        alq_quantity_format((struct alq_quantity){max}, as_binary, buf);
        assert_string_equal(buf, "170141183460469231731687303715884105727n");
        alq_quantity_format((struct alq_quantity){-max - 1}, as_binary, buf);
        assert_string_equal(buf, "-170141183460469231731687303715884105728n");
    }
}

static void bytes_check(int is_hami, const char *text, uint64_t want)
{
    uint64_t bytes = 0;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_bytes_parse(text, is_hami, &bytes, &err) != 0)
        fail_msg("\"%s\": %s", text, err.text);
    if (bytes != want)
        fail_msg("\"%s\" gives %ju, not %ju", text, (uintmax_t)bytes, (uintmax_t)want);
}

static void bytes_parse_hami_reads_every_prefix_in_1024s(void **state)
{
    (void)state;
    static const uint64_t gib = UINT64_C(1) << 30;
    static const char *const one_gib[] = {
        "1g",     "1G",          "1024m", "1024M", "1048576k", "1048576K", "1073741824",
        "1Gi",    "1GiB",        "1gb",   "1GB",   " 1g ",     "1 GiB",    "1024Mi",
        "1024mi", "1073741824B", "01g",   "1.0g",  "+1g",
    };
    for (size_t i = 0; i < COUNT(one_gib); i++)
        bytes_check(1, one_gib[i], gib);
    bytes_check(1, "1.5G", gib + gib / 2);
    bytes_check(1, "4096m", 4 * gib);
    bytes_check(1, "16Gi", 16 * gib);
    bytes_check(1, "10GB", 10 * gib);
    bytes_check(1, "1t", 1024 * gib);
    bytes_check(1, "1e9", 1000000000);
    bytes_check(1, "0", 0);
    bytes_check(1, "0g", 0);
}

static void bytes_parse_plain_keeps_kubernetes_units(void **state)
{
    (void)state;
    bytes_check(0, "4Gi", UINT64_C(4) << 30);
    bytes_check(0, "4GiB", UINT64_C(4) << 30);
    bytes_check(0, "4gib", UINT64_C(4) << 30);
    bytes_check(0, "1.5G", 1500000000);
    bytes_check(0, "1.5GB", 1500000000);
    bytes_check(0, "1k", 1000);
    bytes_check(0, "1K", 1000);
    bytes_check(0, "1kb", 1000);
    bytes_check(0, "1KiB", 1024);
    bytes_check(0, "4096m", 5); /* 4.096 bytes to Kubernetes */
    bytes_check(0, "1e3", 1000);
    bytes_check(0, "512B", 512);
}

/* HAMi-core turns each of these into "no limit" or into a few bytes. */
static void bytes_parse_unreadable_is_an_error_not_zero(void **state)
{
    (void)state;
    static const char *const rows[] = {"",      " ",    "abc",   "g",   "0x10g", "1gg",
                                       "1gi b", "1ibg", "1.5.g", "1bb", "1bib",  "4 4g",
                                       "-",     "1g;",  "1e",    "10%", "1ig"};
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (int is_hami = 0; is_hami < 2; is_hami++) {
            uint64_t bytes = 42;
            struct alq_err err = ALQ_ERR_INIT;
            if (alq_bytes_parse(rows[i], is_hami, &bytes, &err) != ALQ_EINVAL)
                fail_msg("\"%s\" was taken", rows[i]);
            assert_int_equal(bytes, 42);
            assert_non_null(strstr(err.text, "is not a size"));
        }
    }
    uint64_t bytes;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_bytes_parse("4g", 0, &bytes, &err), ALQ_EINVAL);
    assert_int_equal(alq_bytes_parse("1n", 1, &bytes, &err), ALQ_EINVAL);
}

static void bytes_parse_too_large_or_negative_is_out_of_range(void **state)
{
    (void)state;
    static const char *const rows[] = {"20000000000g", "-1", "-1g", "8Ei", "1e30", "8EiB"};
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t bytes = 42;
        struct alq_err err = ALQ_ERR_INIT;
        if (alq_bytes_parse(rows[i], 1, &bytes, &err) != ALQ_ERANGE)
            fail_msg("\"%s\" was taken", rows[i]);
        assert_int_equal(bytes, 42);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_and_format_agree_with_recorded_servers),
        cmocka_unit_test(parse_every_suffix_scales),
        cmocka_unit_test(parse_what_is_not_a_quantity_is_invalid),
        cmocka_unit_test(parse_uses_len_not_the_terminator),
        cmocka_unit_test(parse_finer_than_nano_rounds_away_from_zero),
        cmocka_unit_test(parse_at_the_edge_of_the_range_is_exact),
        cmocka_unit_test(parse_error_shows_the_text_printably),
        cmocka_unit_test(cmp_orders_by_value_not_by_form),
        cmocka_unit_test(to_u64_rounds_fractions_up),
        cmocka_unit_test(from_u64_takes_the_whole_range),
        cmocka_unit_test(format_picks_the_largest_whole_suffix),
        cmocka_unit_test(format_of_any_value_fits_its_buffer),
        cmocka_unit_test(bytes_parse_hami_reads_every_prefix_in_1024s),
        cmocka_unit_test(bytes_parse_plain_keeps_kubernetes_units),
        cmocka_unit_test(bytes_parse_unreadable_is_an_error_not_zero),
        cmocka_unit_test(bytes_parse_too_large_or_negative_is_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
