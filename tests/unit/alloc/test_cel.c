/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CEL subset: what matches, what is an error when compiled and what is one when evaluated. Most
 * cases are rows of a table, run against one device.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc/cel.h"

static const char device_json[] =
    "{\"name\": \"gpu-0\", \"allowMultipleAllocations\": true,"
    " \"attributes\": {"
    "  \"type\": {\"string\": \"hami-gpu\"}, \"minor\": {\"int\": 1}, \"index\": {\"int\": -3}, "
    "\"ready\": {\"bool\": true},"
    "  \"driverVersion\": {\"version\": \"570.86.10\"}, \"pre\": {\"version\": \"1.2.3-rc.1+b5\"},"
    "  \"productName\": {\"string\": \"NVIDIA H200\"}, \"umlaut\": {\"string\": "
    "\"gr\xc3\xb6\xc3\x9f"
    "e\"},"
    "  \"other.example.com/zone\": {\"string\": \"z1\"}},"
    " \"capacity\": {\"cores\": {\"value\": \"100\"}, \"memory\": {\"value\": \"143771Mi\"},"
    "  \"other.example.com/half\": {\"value\": \"500m\"}}}";

#define A "device.attributes['gpu.example.com']"
#define C "device.capacity['gpu.example.com']"

static struct alq_cel_device *device;

static int set_up(void **state)
{
    struct alq_err err = ALQ_ERR_INIT;
    json_t *j = json_loads(device_json, 0, NULL);

    (void)state;
    if (alq_cel_device_new("gpu.example.com", j, &device, &err))
        return -1;
    json_decref(j);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    alq_cel_device_free(device);
    return 0;
}

/* The value, or the error's code; the text goes to text. */
static int run(const char *expression, bool *matches, char *text, size_t size)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_cel_program *p = NULL;
    int rc = alq_cel_compile(expression, strlen(expression), &p, &err);

    if (rc) {
        snprintf(text, size, "compile: %s", err.text);
        return rc;
    }
    rc = alq_cel_matches(p, device, matches, &err);
    snprintf(text, size, "run: %s", err.text);
    alq_cel_program_free(p);
    return rc;
}

static void check(const char *const *expressions, bool want)
{
    for (; *expressions; expressions++) {
        char text[ALQ_ERR_TEXT_BYTES + 16];
        bool matches = !want;
        int rc = run(*expressions, &matches, text, sizeof(text));
        if (rc || matches != want)
            fail_msg("%s: %s", *expressions, rc ? text : matches ? "matches" : "does not match");
    }
}

struct failing {
    const char *expression, *text;
};

static void check_errors(const struct failing *rows, const char *phase)
{
    for (; rows->expression; rows++) {
        char text[ALQ_ERR_TEXT_BYTES + 16] = "";
        bool matches = false;
        int rc = run(rows->expression, &matches, text, sizeof(text));
        if (!rc)
            fail_msg("%s: no error but %s", rows->expression, matches ? "a match" : "no match");
        if (!strstr(text, rows->text) || strncmp(text, phase, strlen(phase)))
            fail_msg("%s: \"%s\" is not a %s error with \"%s\"", rows->expression, text, phase,
                     rows->text);
    }
}

static void matches_true_expression_true(void **state)
{
    static const char *const rows[] = {
        "true",
        "device.driver == 'gpu.example.com'",
        "device.driver == \"gpu.example.com\" && " A ".type == 'hami-gpu'",
        "device.allowMultipleAllocations",
        A "['type'] == 'hami-gpu'",
        A ".minor == 1",
        A ".minor != 2",
        A ".index == -3",
        A ".minor in [0, 1]",
        A ".ready",
        "!(" A ".minor > 1)",
        A ".minor >= 1 && " A ".minor <= 1 && " A ".minor < 2",
        "device.attributes['other.example.com'].zone == 'z1'",
        "has(" A ".type)",
        "!has(" A ".absent)",
        "!has(device.attributes['no.such.domain'].absent)",
        "'type' in " A,
        "!('absent' in " A ")",
        "'gpu.example.com' in device.attributes",
        "!('no.such.domain' in device.attributes)",
        "has(" A ".absent) ? " A ".absent == 'x' : true",
        "size(device.attributes) == 2 && device.attributes.size() == 2",
        A ".size() == 8 && size(device.capacity) == 2",
        /* strings */
        A ".productName.startsWith('NVIDIA') && " A ".productName.endsWith('H200')",
        A ".productName.contains('A H')",
        A ".productName.lowerAscii() == 'nvidia h200' && 'a'.upperAscii() == 'A'",
        A ".umlaut.size() == 5",
        "'  a '.trim() == 'a'",
        "'a' + 'b' == 'ab' && 'a' < 'b' && 'ab' > 'a'",
        "string(12) == '12' && int('-12') == -12 && string(true) == 'true'",
        "'\\x41\\u00e9\\n\\101' == 'A\xc3\xa9\\nA' && r'\\n' == '\\\\n' && '''a'b''' == \"a'b\"",
        "\"\"\"a\nb\"\"\" == 'a\\nb'",
        /* numbers */
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 7 / 2 == 3 && -7 / 2 == -3 && -7 % 3 == -1 && 0x1F "
        "== 31",
        "-9223372036854775808 < 0 && - -1 == 1 && 1 - -1 == 2 && 10 - 4 - 3 == 3",
        /* quantities */
        C ".memory.isGreaterThan(quantity('100Gi'))",
        C ".memory.compareTo(quantity('143771Mi')) == 0 && " C
          ".memory == quantity('150754820096')",
        C ".cores.isInteger() && " C ".cores.asInteger() == 100 && " C ".cores.sign() == 1",
        "!device.capacity['other.example.com'].half.isInteger()",
        "quantity('1Gi').add(quantity('1Gi')) == quantity('2Gi') && quantity('3').sub(1) == "
        "quantity('2')",
        "quantity('1').add(1).isLessThan(quantity('2.1'))",
        "isQuantity('4Gi') && !isQuantity('4GiB') && 'memory' in " C,
        /* versions */
        A ".driverVersion.isGreaterThan(semver('550.0.0'))",
        A ".driverVersion.isLessThan(semver('570.86.11')) && " A ".driverVersion.major() == 570",
        A ".driverVersion.minor() == 86 && " A ".driverVersion.patch() == 10",
        A ".pre.isLessThan(semver('1.2.3')) && " A ".pre == semver('1.2.3-rc.1')",
        A ".pre.compareTo(semver('1.2.3-beta')) == 1",
        "semver('v1.2', true) == semver('1.2.0') && isSemver('1.2.3') && !isSemver('v1.2.3') && "
        "isSemver('v1', true)",
        /* errors are absorbed by the side that decides */
        "true || " A ".absent == 'x'",
        A ".absent == 'x' || true",
        "!(" A ".absent == 'x' && false)",
        "!(false && " A ".absent == 'x')",
        "1 / 0 == 1 || true || 1 / 0 == 2",
        /* values of different types are unequal */
        A ".type != 1 && !(" A ".minor == '1')",
        "!(" A ".type == null)",
        "[1, 2] == [1, 2] && [1, 'a'] != [1, 'b'] && [1, 2][1] == 2 && size([]) == 0 && [1, "
        "].size() == 1",
        "true ? true : false",
        "false ? false : true ? true : false",
        "true // a comment",
        NULL,
    };
    (void)state;
    check(rows, true);
}

static void matches_false_expression_false(void **state)
{
    static const char *const rows[] = {
        "false",
        A ".type == 'mig'",
        A ".minor > 1",
        A ".type == semver('1.0.0')",
        C ".memory.isLessThan(quantity('100Gi'))",
        A ".minor in []",
        "'x' in ['y', 'z']",
        "!true || false",
        "true && true && false && true",
        NULL,
    };
    (void)state;
    check(rows, false);
}

static void matches_re2_pattern_as_re2(void **state)
{
    static const char *const yes[] = {
        A ".productName.matches('H[12]00$')",
        A ".productName.matches('^NVIDIA\\\\s')",
        A ".productName.matches(r'(?i)nvidia h\\d{3}')",
        A ".productName.matches('(?P<maker>NVIDIA) (H200|B200)')",
        "matches(" A ".productName, 'H2')",
        "'a\\nb'.matches('^a$\\nb') == false && 'a\\nb'.matches('(?m)^b$')",
        "!'a\\n'.matches('a$')",
        "'a\\vb'.matches(r'a\\vb') && !'a\\vb'.matches(r'a\\sb') && 'a\\vb'.matches(r'a\\Sb')",
        "'a.b'.matches(r'a\\Q.\\Eb') && !'axb'.matches(r'a\\Q.\\Eb')",
        "'{'.matches('^{$') && 'a{,2}'.matches('^a{,2}$') && 'aa'.matches('^a{2}$')",
        "'['.matches('[[]') && ']'.matches('[]]') && 'x'.matches('[[:alpha:]]')",
        "'\xc3\xa9'.matches(r'^\\p{L}$') && '\xc3\xa9'.matches('^.$') && "
        "!'\xc3\xa9'.matches(r'^\\w$')",
        "'\xce\xb1'.matches(r'^\\p{Greek}$') && 'A'.matches(r'^\\x41$') && 'A'.matches(r'^\\101$')",
        "'ab'.matches('a*?b') && 'x'.matches('') && 'a'.matches('(?:a|b)') && 'a'.matches('a|')",
        "'H200'.matches('H' + '2')",
        NULL,
    };
    static const struct failing no[] = {
        {"'a'.matches('(')", "regular expression"},
        {"'aa'.matches(r'(a)\\1')", "backreferences"},
        {"'aa'.matches(r'(?P<x>a)(?P=x)')", "backreferences"},
        {"'a'.matches('a(?=b)')", "lookahead"},
        {"'a'.matches('(?<!a)b')", "lookahead and lookbehind"},
        {"'a'.matches('(?>a)')", "not part of RE2"},
        {"'a'.matches('a++')", "repetition of a repetition"},
        {"'a'.matches('a**')", "repetition of a repetition"},
        {"'a'.matches('a{1001}')", "above 1000"},
        {"'a'.matches(r'a\\Kb')", "not part of RE2"},
        {"'a'.matches(r'\\R')", "not part of RE2"},
        {"'a'.matches('(*UTF)a')", "VERBS"},
        {"'a'.matches('[a')", "missing closing ]"},
        {"'a'.matches('a\\\\')", "trailing backslash"},
        {"'a'.matches('(?x)a')", "not part of RE2"},
        {"'a'.matches('((((a{1000}){1000}){1000}){1000})')", "regular expression"},
        {NULL, NULL},
    };
    (void)state;
    check(yes, true);
    check_errors(no, "compile");
}

static void matches_backtracking_bomb_error(void **state)
{
    static const struct failing rows[] = {
        {"'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac'.matches('^(a|aa|a*)*(a|aa)*b$|^(a+)+d$'"
         ")",
         "too much work"},
        /* not absorbed: which side is looked at first would decide about the result */
        {"'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac'.matches('^(a|aa|a*)*(a|aa)*b$|^(a+)+d$')"
         " || true",
         "too much work"},
        {NULL, NULL},
    };
    (void)state;
    check_errors(rows, "run");
}

static void compile_not_cel_syntax_error(void **state)
{
    static const struct failing rows[] = {
        {"", "the expression ends where an expression is expected"},
        {"device.attributes[", "at 1:19 of"},
        {"true &&", "Syntax error"},
        {"(true", "')'"},
        {"true)", "the end of the expression"},
        {"true false", "the end of the expression"},
        {"'a", "not closed"},
        {"'''a'", "not closed"},
        {"'a\n'", "not closed on its line"},
        {"'\\q' == ''", "unknown escape"},
        {"'\\ud800' == ''", "not a Unicode character"},
        {"1 == 1a", "a letter follows a number"},
        {"a.b", "undeclared reference to 'a'"},
        {"#", "unexpected character"},
        {"true ? true", "':'"},
        {"for == 1", "reserved word"},
        {"has(true)", "invalid argument to has()"},
        {"1 = 1", "unexpected character"},
        {"0x == 1", "without digits"},
        {"true\n&& true\n && ?", "at 3:5 of"},
        {"'\xc3\xa9' == '' && ?", "at 1:14 of"},
        {NULL, NULL},
    };
    (void)state;
    check_errors(rows, "compile");
}

static void compile_wrong_type_error(void **state)
{
    static const struct failing rows[] = {
        {"1", "must evaluate to bool"},
        {"device", "must evaluate to bool"},
        {"device.driver", "not string"},
        {"device.absent == 1", "undefined field 'absent'"},
        {"device.driver == 1", "no matching overload"},
        {"device.driver.foo == 1", "does not support field selection"},
        {C ".memory > quantity('1Gi')", "use isGreaterThan"},
        {C ".memory == '1Gi'", "no matching overload"},
        {"!1", "no matching overload"},
        {"1 && true", "no matching overload"},
        {"true || 'x'", "no matching overload"},
        {"1 ? true : false", "no matching overload"},
        {"true ? 1 : 'x'", "no matching overload"},
        {"1 + 'a' == 1", "no matching overload"},
        {"'a' - 'b' == 'c'", "no matching overload"},
        {"1 in ['a']", "no matching overload"},
        {"1 in device.attributes", "no matching overload"},
        {"1 in 2", "no matching overload"},
        {"device.attributes[1].x == 1", "no matching overload"},
        {"[1]['a'] == 1", "no matching overload"},
        {"'a'.startsWith(1)", "'startsWith' applied to '(string, int)'"},
        {"'a'.startsWith('a', 'b')", "no matching overload"},
        {"startsWith('a', 'b')", "undeclared reference"},
        {"quantity(1) == quantity('1')", "no matching overload"},
        {"nothing(1)", "undeclared reference to 'nothing'"},
        {"semver('1.2.3') < semver('1.2.4')", "use isGreaterThan"},
        {NULL, NULL},
    };
    (void)state;
    check_errors(rows, "compile");
}

static void compile_outside_subset_not_supported(void **state)
{
    static const struct failing rows[] = {
        {"cel.bind(x, 1, x == 1)", "cel.bind is not supported"},
        {"[1].exists(x, x == 1)", "undeclared reference to 'x'"},
        {"[1].all(true, true)", "all() is not supported"},
        {"1.5 > 1", "floating-point"},
        {"1u == 1", "unsigned"},
        {"b'a' == 'a'", "bytes"},
        {"{'a': 1} == 1", "map literals"},
        {"device.?attributes == 1", "optional access"},
        {"device.attributes[?'a'] == 1", "optional access"},
        {"Foo{a: 1} == 1", "messages"},
        {"'a'.split('b') == []", "split() is not supported"},
        {"double(1) == 1", "double() is not supported"},
        {NULL, NULL},
    };
    (void)state;
    check_errors(rows, "compile");
    for (const struct failing *r = rows; r->expression; r++) {
        struct alq_err err = ALQ_ERR_INIT;
        struct alq_cel_program *p = NULL;
        int rc = alq_cel_compile(r->expression, strlen(r->expression), &p, &err);
        assert_true(rc == ALQ_ENOTSUP || strstr(err.text, "undeclared"));
    }
}

static void matches_runtime_error_named_with_place(void **state)
{
    static const struct failing rows[] = {
        {A ".absent == 'x'", "no such key: absent (at 1:"},
        {"device.attributes['no.such.domain'].type == 'x'", "no such key: type"},
        {C ".absent.isGreaterThan(quantity('1'))", "no such key: absent"},
        {A ".absent", "no such key: absent"},
        {"!(" A ".absent == 'x')", "no such key"},
        {"true && " A ".absent == 'x'", "no such key"},
        {A ".absent == 'x' || false", "no such key"},
        {A ".absent == 'x' || 1 / 0 == 1", "no such key"},
        {A ".minor", "CEL result of type int could not be converted to bool"},
        {A ".minor && true", "no such overload"},
        {A ".type < 1", "no such overload"},
        {A ".driverVersion == '570.86.10'", "no such overload"},
        {A ".driverVersion > semver('1.0.0')", "found no matching overload"},
        {A ".minor.startsWith('a')", "no such overload"},
        {"quantity('4GiB') == quantity('1')", "is not a quantity"},
        {"semver('1.2') == semver('1.2.0')", "is not a semantic version"},
        {"9223372036854775807 + 1 == 0", "integer overflow"},
        {"-9223372036854775808 - 1 == 0", "integer overflow"},
        {"9223372036854775807 * 2 == 0", "integer overflow"},
        {"-9223372036854775808 / -1 == 0", "integer overflow"},
        {"-(" A ".minor - 9223372036854775807 - 2) == 0", "integer overflow"},
        {"1 / 0 == 0", "division by zero"},
        {"1 % 0 == 0", "modulus by zero"},
        {"[1][1] == 1", "index out of bounds"},
        {"quantity('1.5').asInteger() == 1", "cannot convert"},
        {"int('9223372036854775808') == 1", "type conversion error"},
        {"int('') == 1", "type conversion error"},
        {NULL, NULL},
    };
    (void)state;
    for (const struct failing *r = rows; r->expression; r++) {
        struct failing one[2] = {*r, {NULL, NULL}};
        check_errors(one, strstr(r->text, "found no") ? "compile" : "run");
    }
}

static void compile_long_or_deep_expression_range_error(void **state)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_cel_program *p = NULL;
    static char text[ALQ_CEL_EXPRESSION_MAX_BYTES + 2];
    static const char *const openers[] = {
        "(", "[", "!", "-", "size(", "true ? true : ", "'' + ", "has(", "[[]]["};

    (void)state;
    memset(text, ' ', sizeof(text) - 1);
    memcpy(text, "true", 4);
    assert_int_equal(alq_cel_compile(text, sizeof(text) - 1, &p, &err), ALQ_ERANGE);
    assert_int_equal(alq_cel_compile(text, sizeof(text) - 2, &p, &err), 0);
    alq_cel_program_free(p);
    for (size_t i = 0; i < sizeof(openers) / sizeof(openers[0]); i++) {
        size_t n = strlen(openers[i]), count = (size_t)ALQ_CEL_EXPRESSION_MAX_BYTES / n;
        for (size_t k = 0; k < count; k++)
            memcpy(text + k * n, openers[i], n);
        assert_int_equal(alq_cel_compile(text, count * n, &p, &err), ALQ_ERANGE);
    }
    /* a long chain of && is no nesting */
    size_t used = (size_t)sprintf(text, "true");
    while (used < ALQ_CEL_EXPRESSION_MAX_BYTES - 10)
        used += (size_t)sprintf(text + used, " && true");
    assert_int_equal(alq_cel_compile(text, used, &p, &err), 0);
    alq_cel_program_free(p);
}

/* No server stores an attribute this long; it makes limits reachable within the length of an
 * expression. */
static struct alq_cel_device *device_with_long_attribute(void)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_cel_device *d = NULL;
    static char text[100001];

    memset(text, 'a', sizeof(text) - 1);
    json_t *j = json_pack("{s:{s:{s:s}}}", "attributes", "long", "string", text);
    assert_int_equal(alq_cel_device_new("d", j, &d, &err), 0);
    json_decref(j);
    return d;
}

static void matches_costly_expression_range_error(void **state)
{
    struct alq_cel_device *d = device_with_long_attribute();
    static char text[ALQ_CEL_EXPRESSION_MAX_BYTES];
    static const char *const rows[][2] = {
        {"true || ", "' + '')"},  /* not reached */
        {"false || ", "' + '')"}, /* over the limit */
    };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct alq_err err = ALQ_ERR_INIT;
        struct alq_cel_program *p = NULL;
        bool matches = false;
        size_t used = (size_t)sprintf(text, "%sdevice.attributes['d'].long.matches('", rows[i][0]);
        memset(text + used, 'b', 1000);
        used += 1000;
        used += (size_t)sprintf(text + used, "%s", rows[i][1]);
        assert_int_equal(alq_cel_compile(text, used, &p, &err), 0);
        assert_int_equal(alq_cel_matches(p, d, &matches, &err), i ? ALQ_ERANGE : 0);
        assert_true(i ? strstr(err.text, "cost limit") != NULL : matches);
        alq_cel_program_free(p);
    }
    alq_cel_device_free(d);
}

static void matches_memory_hungry_expression_range_error(void **state)
{
    static const char expression[] =
        "device.attributes['d'].long + device.attributes['d'].long + '' == '' || true";
    struct alq_cel_device *d = device_with_long_attribute();
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_cel_program *p = NULL;
    bool matches = false;

    (void)state;
    assert_int_equal(alq_cel_compile(expression, strlen(expression), &p, &err), 0);
    assert_int_equal(alq_cel_matches(p, d, &matches, &err), ALQ_ERANGE);
    assert_non_null(strstr(err.text, "bytes"));
    alq_cel_program_free(p);
    alq_cel_device_free(d);
}

static void compile_not_utf8_error(void **state)
{
    static const char *const rows[] = {"'\xff' == ''", "'\xc0\x80' == ''", "'\xed\xa0\x80' == ''",
                                       "'\xe2\x82' == ''", "'\xf4\x90\x80\x80' == ''"};
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_cel_program *p = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(alq_cel_compile(rows[i], strlen(rows[i]), &p, &err), ALQ_EINVAL);
    assert_int_equal(alq_cel_compile("true\0", 5, &p, &err), ALQ_EINVAL);
}

static void device_new_malformed_value_error_names_it(void **state)
{
    static const struct failing rows[] = {
        {"{\"attributes\": {\"v\": {\"version\": \"1.2\"}}}", "attribute v"},
        {"{\"attributes\": {\"v\": {}}}", "attribute v: unsupported attribute value"},
        {"{\"attributes\": {\"v\": {\"strings\": [\"a\"]}}}",
         "attribute v: unsupported attribute value"},
        {"{\"capacity\": {\"m\": {\"value\": \"4GiB\"}}}", "capacity m"},
        {"{\"capacity\": {\"m\": {}}}", "capacity m: value is missing"},
        {NULL, NULL},
    };
    (void)state;
    for (const struct failing *r = rows; r->expression; r++) {
        struct alq_err err = ALQ_ERR_INIT;
        struct alq_cel_device *d = NULL;
        json_t *j = json_loads(r->expression, 0, NULL);
        assert_non_null(j);
        assert_int_equal(alq_cel_device_new("d", j, &d, &err), ALQ_EPROTO);
        assert_non_null(strstr(err.text, r->text));
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_true_expression_true),
        cmocka_unit_test(matches_false_expression_false),
        cmocka_unit_test(matches_re2_pattern_as_re2),
        cmocka_unit_test(matches_backtracking_bomb_error),
        cmocka_unit_test(compile_not_cel_syntax_error),
        cmocka_unit_test(compile_wrong_type_error),
        cmocka_unit_test(compile_outside_subset_not_supported),
        cmocka_unit_test(matches_runtime_error_named_with_place),
        cmocka_unit_test(compile_long_or_deep_expression_range_error),
        cmocka_unit_test(matches_costly_expression_range_error),
        cmocka_unit_test(matches_memory_hungry_expression_range_error),
        cmocka_unit_test(compile_not_utf8_error),
        cmocka_unit_test(device_new_malformed_value_error_names_it),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
