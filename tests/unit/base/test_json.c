/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing, dotted paths and strict keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

static json_t *parsed(const char *text)
{
    json_t *value = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_json_parse(text, strlen(text), "test", &value, &err) != 0)
        fail_msg("%s", err.text);
    return value;
}

static void parse_good_text_gives_the_value(void **state)
{
    (void)state;
    alq_auto_json json_t *v = parsed(" {\"a\": [1, 2]} \n");
    assert_int_equal(json_array_size(alq_json_at(v, "a")), 2);
    alq_auto_json json_t *s = parsed("\"alone\"");
    assert_string_equal(json_string_value(s), "alone");
}

static void parse_reads_len_bytes_only(void **state)
{
    (void)state;
    json_t *v = NULL;
    assert_int_equal(alq_json_parse("[1]garbage", 3, "test", &v, NULL), 0);
    json_decref(v);
}

static void parse_bad_text_names_source_and_place(void **state)
{
    (void)state;
    static const char *const rows[] = {"",        "{",    "{\"a\":1,\"a\":2}", "[1] x",
                                       "{'a':1}", "[1,]", "\"\xff\"",          "\"\\u0000\"",
                                       "[1e999]", "nul"};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        json_t *v = NULL;
        struct alq_err err = ALQ_ERR_INIT;
        if (alq_json_parse(rows[i], strlen(rows[i]), "claim default/x", &v, &err) != ALQ_EPROTO)
            fail_msg("%s was taken", rows[i]);
        assert_null(v);
        assert_int_equal(strncmp(err.text, "claim default/x is not valid JSON: line ", 40), 0);
    }
}

static void parse_too_deep_is_an_error_not_a_crash(void **state)
{
    (void)state;
    static char deep[200000];
    memset(deep, '[', sizeof(deep));
    json_t *v = NULL;
    assert_int_equal(alq_json_parse(deep, sizeof(deep), "deep", &v, NULL), ALQ_EPROTO);
}

static void at_walks_objects_and_stops_at_anything_else(void **state)
{
    (void)state;
    alq_auto_json json_t *v = parsed("{\"a\":{\"b\":{\"c\":\"x\"},\"n\":null,\"l\":[1]},\"\":1}");
    assert_string_equal(json_string_value(alq_json_at(v, "a.b.c")), "x");
    assert_ptr_equal(alq_json_at(v, ""), v);
    assert_true(json_is_null(alq_json_at(v, "a.n")));
    assert_null(alq_json_at(v, "a.x"));
    assert_null(alq_json_at(v, "a.x.y"));
    assert_null(alq_json_at(v, "a.b.c.d"));
    assert_null(alq_json_at(v, "a.l.0"));
    assert_null(alq_json_at(v, "a.n.x"));
    assert_null(alq_json_at(v, "ab"));
    assert_null(alq_json_at(NULL, "a"));
}

static void str_of_a_string_is_its_text_else_null(void **state)
{
    (void)state;
    alq_auto_json json_t *v = parsed("{\"s\":\"x\",\"n\":1}");
    assert_string_equal(alq_json_str(v, "s"), "x");
    assert_null(alq_json_str(v, "n"));
    assert_null(alq_json_str(v, "none"));
}

static void need_says_missing_or_wrong_type(void **state)
{
    (void)state;
    alq_auto_json json_t *v = parsed("{\"m\":{\"s\":\"x\",\"l\":[],\"n\":null}}");
    const char *text = NULL;
    json_t *array = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_json_need_str(v, "m.s", &text, &err), 0);
    assert_string_equal(text, "x");
    assert_int_equal(alq_json_need_array(v, "m.l", &array, &err), 0);
    assert_true(json_is_array(array));
    assert_int_equal(err.code, ALQ_OK);

    text = NULL;
    array = NULL;
    assert_int_equal(alq_json_need_str(v, "m.none", &text, &err), ALQ_EPROTO);
    assert_string_equal(err.text, "field m.none is missing");
    assert_int_equal(alq_json_need_str(v, "m.l", &text, &err), ALQ_EPROTO);
    assert_string_equal(err.text, "field m.l is not a string");
    assert_int_equal(alq_json_need_array(v, "m.n", &array, &err), ALQ_EPROTO);
    assert_string_equal(err.text, "field m.n is not a list");
    assert_null(text);
    assert_null(array);
}

static void only_keys_names_the_unknown_one(void **state)
{
    (void)state;
    static const char *const keys[] = {"limit", "wait", NULL};
    static const char *const none[] = {NULL};
    alq_auto_json json_t *good = parsed("{\"wait\":1}");
    alq_auto_json json_t *bad = parsed("{\"wait\":1,\"limits\":2}");
    alq_auto_json json_t *list = parsed("[]");
    alq_auto_json json_t *empty = parsed("{}");
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_json_only_keys(good, keys, "memory", &err), 0);
    assert_int_equal(alq_json_only_keys(empty, none, "memory", &err), 0);
    assert_int_equal(err.code, ALQ_OK);
    assert_int_equal(alq_json_only_keys(bad, keys, "memory", &err), ALQ_EINVAL);
    assert_string_equal(err.text, "memory has an unknown field \"limits\"");
    assert_int_equal(alq_json_only_keys(list, keys, "memory", &err), ALQ_EINVAL);
    assert_string_equal(err.text, "memory is not an object");
    assert_int_equal(alq_json_only_keys(NULL, keys, "memory", &err), ALQ_EINVAL);
}

static void int_out_of_bounds_or_of_another_type_is_named(void **state)
{
    (void)state;
    static const char *const bad[] = {"-3", "8", "1.0", "\"1\"", "null", "true", "[1]"};
    struct alq_err err = ALQ_ERR_INIT;
    json_int_t number = 77;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        alq_auto_json json_t *v = parsed(bad[i]);
        assert_int_equal(alq_json_int(v, "a pid", -2, 7, &number, &err), ALQ_EPROTO);
        assert_string_equal(err.text, "a pid is missing or out of range");
        assert_int_equal(number, 77);
    }
    assert_int_equal(alq_json_int(NULL, "a pid", -2, 7, &number, &err), ALQ_EPROTO);
    for (json_int_t edge = -2; edge <= 7; edge += 9) {
        alq_auto_json json_t *v = json_integer(edge);
        assert_int_equal(alq_json_int(v, "a pid", -2, 7, &number, NULL), 0);
        assert_int_equal(number, edge);
    }
}

static void dump_is_compact_and_sorted(void **state)
{
    (void)state;
    alq_auto_json json_t *v = parsed("{\"b\": 1, \"a\": [true, \"x\"]}");
    alq_auto_free char *text = alq_json_dump(v);
    assert_string_equal(text, "{\"a\":[true,\"x\"],\"b\":1}");
    alq_auto_free char *scalar = alq_json_dump(alq_json_at(v, "b"));
    assert_string_equal(scalar, "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_good_text_gives_the_value),
        cmocka_unit_test(parse_reads_len_bytes_only),
        cmocka_unit_test(parse_bad_text_names_source_and_place),
        cmocka_unit_test(parse_too_deep_is_an_error_not_a_crash),
        cmocka_unit_test(at_walks_objects_and_stops_at_anything_else),
        cmocka_unit_test(str_of_a_string_is_its_text_else_null),
        cmocka_unit_test(need_says_missing_or_wrong_type),
        cmocka_unit_test(only_keys_names_the_unknown_one),
        cmocka_unit_test(int_out_of_bounds_or_of_another_type_is_named),
        cmocka_unit_test(dump_is_compact_and_sorted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
