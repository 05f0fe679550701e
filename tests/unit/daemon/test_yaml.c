/* SPDX-License-Identifier: Apache-2.0 */
/* The YAML reader: values by the core schema, and what a hostile or mistaken file gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/yaml.h"

static void parse_gives_json_by_the_core_schema(void **state)
{
    static const char *const rows[][2] = {
        {"a: 1", "{\"a\":1}"},
        {"a: -7", "{\"a\":-7}"},
        {"a: 1.5", "{\"a\":1.5}"},
        {"a: 010", "{\"a\":\"010\"}"},
        {"a: 99999999999999999999", "{\"a\":\"99999999999999999999\"}"},
        {"a: 4Gi", "{\"a\":\"4Gi\"}"},
        {"a: 1.2.3", "{\"a\":\"1.2.3\"}"},
        {"a: '1'", "{\"a\":\"1\"}"},
        {"a: true\nb: no", "{\"a\":true,\"b\":\"no\"}"},
        {"a: ~\nb:\nc: ''", "{\"a\":null,\"b\":null,\"c\":\"\"}"},
        {"a: [1, {b: c}]", "{\"a\":[1,{\"b\":\"c\"}]}"},
        {"a: &x [1]\nb: *x", "{\"a\":[1],\"b\":[1]}"},
        {"a: |\n  one\n  two\n", "{\"a\":\"one\\ntwo\\n\"}"},
        {"", "{}"},
        {"# nothing\n", "{}"},
        {"{\"a\": [1]}", "{\"a\":[1]}"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_json json_t *value = NULL;
        if (alq_yaml_parse(rows[i][0], strlen(rows[i][0]), "test", &value, &err))
            fail_msg("%s: %s", rows[i][0], err.text);
        alq_auto_free char *text = alq_json_dump(value);
        assert_string_equal(text, rows[i][1]);
    }
}

static void parse_of_a_mistake_names_its_place(void **state)
{
    static const char *const rows[][2] = {
        {"a: 1\na: 2\n", "test: line 2 column 1: the key stands twice"},
        {"a: [", "test: line"},
        {"a: 1\n--- \nb: 2\n", "more than one document"},
        {"[a]: 1\n", "a key must be a plain word"},
        {"a: *none\n", "test: line"},
        {"a: \"\\0\"\n", "a value holds a NUL"},
        {"\"a\\0b\": 1\n", "a key holds a NUL"},
        {"a: \xff\n", "test: "},
        {"a: &x [*x]\n", "nested too deeply"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        json_t *value = NULL;
        if (alq_yaml_parse(rows[i][0], strlen(rows[i][0]), "test", &value, &err) != ALQ_EINVAL)
            fail_msg("%s was taken", rows[i][0]);
        assert_null(value);
        if (!strstr(err.text, rows[i][1]))
            fail_msg("%s: %s", rows[i][0], err.text);
    }
}

/* Nine lines that stand for a thousand million values. */
static void parse_of_nested_aliases_is_bounded(void **state)
{
    char text[2048] = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
    size_t used = strlen(text);
    struct alq_err err = ALQ_ERR_INIT;
    json_t *value = NULL;
    (void)state;
    for (int i = 1; i < 9; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "a%d: &a%d [*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d,*a%d]\n",
                                 i, i, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1, i - 1,
                                 i - 1, i - 1);
    assert_int_equal(alq_yaml_parse(text, used, "test", &value, &err), ALQ_EINVAL);
    assert_non_null(strstr(err.text, "too many values"));
    assert_null(value);
}

static void parse_of_deep_nesting_is_bounded(void **state)
{
    static char text[4000];
    struct alq_err err = ALQ_ERR_INIT;
    json_t *value = NULL;
    (void)state;
    memset(text, '[', 40);
    memset(text + 40, ']', 40);
    assert_int_equal(alq_yaml_parse(text, 80, "test", &value, &err), ALQ_EINVAL);
    memset(text, '[', sizeof(text));
    assert_int_equal(alq_yaml_parse(text, sizeof(text), "test", &value, &err), ALQ_EINVAL);
    assert_null(value);
}

/* A mebibyte, as a file may have, of what libyaml itself would work on for hours. */
static void parse_of_a_large_file_takes_no_time(void **state)
{
    enum { BYTES = 1024 * 1024 };
    static const char *const rows[][2] = {{"[", "nested too deeply"},
                                          {"- ", "nested too deeply"},
                                          {"? ", "nested too deeply"},
                                          {"- &a 1\n", "too many anchors"}};
    (void)state;
    char *text = malloc(BYTES);
    assert_non_null(text);
    alarm(60);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        json_t *value = NULL;
        for (size_t at = 0, n = strlen(rows[i][0]); at < BYTES; at++)
            text[at] = rows[i][0][at % n];
        assert_int_equal(alq_yaml_parse(text, BYTES, "test", &value, &err), ALQ_EINVAL);
        if (!strstr(err.text, rows[i][1]))
            fail_msg("%s: %s", rows[i][0], err.text);
    }
    alarm(0);
    free(text);
}

static void parse_of_a_stream_gives_its_documents(void **state)
{
    static const char *const rows[][2] = {
        {"a: 1\n---\nb: 2\n", "[{\"a\":1},{\"b\":2}]"},
        {"---\n# nothing\n---\na: 1\n---\n---\n", "[{\"a\":1}]"},
        {"a: 1\n...\n---\n- 2\n", "[{\"a\":1},[2]]"},
        {"{\"a\": 1}", "[{\"a\":1}]"},
        {"", "[]"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_json json_t *value = NULL;
        if (alq_yaml_parse_all(rows[i][0], strlen(rows[i][0]), "test", &value, &err))
            fail_msg("%s: %s", rows[i][0], err.text);
        alq_auto_free char *text = alq_json_dump(value);
        assert_string_equal(text, rows[i][1]);
    }
}

static void parse_of_a_stream_with_a_mistake_names_its_place(void **state)
{
    struct alq_err err = ALQ_ERR_INIT;
    json_t *value = NULL;
    (void)state;
    assert_int_equal(alq_yaml_parse_all("a: 1\n---\nb: [\n", 14, "test", &value, &err), ALQ_EINVAL);
    assert_null(value);
    assert_non_null(strstr(err.text, "line"));
}

/* Each within its limit, all together not. */
static void parse_of_a_stream_of_aliases_is_bounded(void **state)
{
    static const char one[] =
        "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
        "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c]\n---\n";
    char text[20 * sizeof(one)] = "";
    struct alq_err err = ALQ_ERR_INIT;
    json_t *value = NULL;
    (void)state;
    for (int i = 0; i < 20; i++)
        strcat(text, one);
    assert_int_equal(alq_yaml_parse_all(text, strlen(text), "test", &value, &err), ALQ_EINVAL);
    assert_non_null(strstr(err.text, "too many values"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_gives_json_by_the_core_schema),
        cmocka_unit_test(parse_of_a_mistake_names_its_place),
        cmocka_unit_test(parse_of_nested_aliases_is_bounded),
        cmocka_unit_test(parse_of_deep_nesting_is_bounded),
        cmocka_unit_test(parse_of_a_large_file_takes_no_time),
        cmocka_unit_test(parse_of_a_stream_gives_its_documents),
        cmocka_unit_test(parse_of_a_stream_with_a_mistake_names_its_place),
        cmocka_unit_test(parse_of_a_stream_of_aliases_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
