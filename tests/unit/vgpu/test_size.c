/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts of HAMi-core's environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "vgpu/size.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

static void size_of_every_common_form_is_read(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"4Gi", 4 * GIB},
        {"4GiB", 4 * GIB},
        {"4gib", 4 * GIB},
        {"4G", 4 * GIB},
        {"4g", 4 * GIB},
        {"4GB", 4 * GIB},
        {"4096m", 4 * GIB},
        {"4096Mi", 4 * GIB},
        {"4096MiB", 4 * GIB},
        {"4194304k", 4 * GIB},
        {"4294967296", 4 * GIB},
        {"4294967296B", 4 * GIB},
        {" 4 Gi ", 4 * GIB},
        {"3000m\n", 3000 * MIB},
        {"1.5G", GIB + GIB / 2},
        {"0.5Gi", GIB / 2},
        {".5Gi", GIB / 2},
        {"1e9", 1000000000},
        {"1.5e3", 1500},
        {"25e-1Ki", 2560},
        {"2E3", 2000},
        {"1T", 1024 * GIB},
        {"1Ki", KIB},
        {"010g", 10 * GIB},
        {"+1g", GIB},
        {"0", 0},
        {"0m", 0},
        {"", 0},
        {"  ", 0},
        {"1.0000000001k", 1024},
        {"0.0000000000000000001P", 0},
        {"8388608T", 1ull << 63},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 12345;
        if (!alq_size_read(cases[i].text, &bytes) || bytes != cases[i].bytes)
            fail_msg("%s: %llu", cases[i].text, (unsigned long long)bytes);
    }
}

static void size_that_cannot_be_read_is_an_error_and_changes_nothing(void **state)
{
    static const char *const cases[] = {
        "abc",
        "g",
        "-1",
        "-1g",
        "4 Gi x",
        "4Gx",
        "4GG",
        "0x10g",
        "1.2.3",
        "4,5G",
        "unlimited",
        ".",
        "e9",
        "1e99",
        "20000000000g",
        "18446744073709551616",
        "9223372036854775809",
        "8388609T",
        "10%",
        "4iB",
        "--4",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 12345;
        if (alq_size_read(cases[i], &bytes) || bytes != 12345)
            fail_msg("%s was read as %llu", cases[i], (unsigned long long)bytes);
    }
}

static void percent_is_read_and_cut_at_100(void **state)
{
    uint32_t percent;
    (void)state;
    assert_true(alq_percent_read("30", &percent));
    assert_int_equal(percent, 30);
    assert_true(alq_percent_read(" 30% ", &percent));
    assert_int_equal(percent, 30);
    assert_true(alq_percent_read("250", &percent));
    assert_int_equal(percent, 100);
    assert_true(alq_percent_read("0", &percent));
    assert_int_equal(percent, 0);
}

static void percent_that_cannot_be_read_is_an_error(void **state)
{
    static const char *const cases[] = {"-1", "30x", "3 0", "50k", "thirty", "1.5", "%"};
    uint32_t percent = 7;
    (void)state;
    for (size_t i = 0; i + 1 < sizeof(cases) / sizeof(cases[0]); i++)
        if (alq_percent_read(cases[i], &percent) || percent != 7)
            fail_msg("%s was read", cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_of_every_common_form_is_read),
        cmocka_unit_test(size_that_cannot_be_read_is_an_error_and_changes_nothing),
        cmocka_unit_test(percent_is_read_and_cut_at_100),
        cmocka_unit_test(percent_that_cannot_be_read_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
