/* SPDX-License-Identifier: Apache-2.0 */
/* DNS names, UUIDs and times as text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/names.h"

static void dns_name_takes_what_rfc_1123_has(void **state)
{
    static const char *const labels[] = {"a", "0", "a-b", "a--b", "node-1"};
    static const char *const names[] = {"a.b", "a-b.c0.d", "1.2.3.4"};
    static const char *const wrong[] = {"",   "-",  "-a",   "a-",   "A",    "a_b", ".",
                                        ".a", "a.", "a..b", "a.-b", "a-.b", "a b", "\xc3\xa4"};
    (void)state;
    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        assert_true(alq_is_dns_name(labels[i], strlen(labels[i]), 0));
        assert_true(alq_is_dns_name(labels[i], strlen(labels[i]), 1));
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_false(alq_is_dns_name(names[i], strlen(names[i]), 0));
        assert_true(alq_is_dns_name(names[i], strlen(names[i]), 1));
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(alq_is_dns_name(wrong[i], strlen(wrong[i]), 1));
    assert_true(alq_is_dns_name("domain/name", strlen("domain"), 1));
}

static void uuid_is_of_version_4_and_another_each_time(void **state)
{
    char a[ALQ_UUID_TEXT_BYTES], b[ALQ_UUID_TEXT_BYTES];
    (void)state;
    assert_int_equal(alq_uuid_random(a), 0);
    assert_int_equal(alq_uuid_random(b), 0);
    assert_int_equal(strlen(a), 36);
    assert_int_equal(strspn(a, "0123456789abcdef-"), 36);
    for (size_t i = 0; i < 36; i++)
        assert_int_equal(a[i] == '-', i == 8 || i == 13 || i == 18 || i == 23);
    assert_int_equal(a[14], '4');
    assert_non_null(strchr("89ab", a[19]));
    assert_string_not_equal(a, b);
}

static void time_is_rfc_3339_in_utc(void **state)
{
    char text[ALQ_TIME_TEXT_BYTES];
    (void)state;
    assert_string_equal(alq_time_format(0, text), "1970-01-01T00:00:00Z");
    assert_string_equal(alq_time_format(1796034645, text), "2026-11-30T10:30:45Z");
    assert_string_equal(alq_time_format((time_t)INT64_MAX, text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dns_name_takes_what_rfc_1123_has),
        cmocka_unit_test(uuid_is_of_version_4_and_another_each_time),
        cmocka_unit_test(time_is_rfc_3339_in_utc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
