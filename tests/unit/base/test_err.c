/* SPDX-License-Identifier: Apache-2.0 */
/* Error texts: codes, wrapping, cutting, and what a NULL error does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/err.h"

static void set_formats_text_and_returns_code(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_err_set(&err, ALQ_ENOENT, "claim %s is gone", "a/b"), ALQ_ENOENT);
    assert_int_equal(err.code, ALQ_ENOENT);
    assert_string_equal(err.text, "claim a/b is gone");
}

static void set_without_err_returns_code(void **state)
{
    (void)state;
    assert_int_equal(alq_err_set(NULL, ALQ_EBUSY, "x"), ALQ_EBUSY);
    assert_int_equal(alq_err_errno(NULL, ENOENT, "x"), ALQ_ENOENT);
    assert_true(alq_err_wrap(NULL, "x") < 0);
}

static void set_with_own_text_as_argument_keeps_it(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, ALQ_EIO, "disk is gone");
    alq_err_set(&err, ALQ_EAGAIN, "later: %s", err.text);
    assert_string_equal(err.text, "later: disk is gone");
    assert_int_equal(err.code, ALQ_EAGAIN);
}

static void set_text_too_long_ends_in_dots(void **state)
{
    (void)state;
    char text[2 * ALQ_ERR_TEXT_BYTES];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, ALQ_EIO, "%s", text);
    assert_int_equal(strlen(err.text), ALQ_ERR_TEXT_BYTES - 1);
    assert_string_equal(err.text + ALQ_ERR_TEXT_BYTES - 4, "...");
}

static void set_text_that_just_fits_is_not_cut(void **state)
{
    (void)state;
    char text[ALQ_ERR_TEXT_BYTES];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, ALQ_EIO, "%s", text);
    assert_string_equal(err.text, text);
}

static void set_cut_inside_a_character_drops_it(void **state)
{
    (void)state;
    char text[2 * ALQ_ERR_TEXT_BYTES] =
        "x"; /* so that the cut falls inside one of the two-byte characters */
    for (size_t i = 1; i + 2 < sizeof(text); i += 2)
        memcpy(text + i, "\xc3\xa9", 3);
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, ALQ_EIO, "%s", text);
    size_t len = strlen(err.text);
    assert_string_equal(err.text + len - 3, "...");
    assert_int_equal((unsigned char)err.text[len - 4], 0xa9);
    alq_err_set(&err, ALQ_EIO, "x%s", text);
    len = strlen(err.text);
    assert_int_equal((unsigned char)err.text[len - 4], 0xa9);
}

static void set_text_is_utf8_whatever_it_quotes(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, ALQ_EINVAL, "\"%.2s\" \xff", "x\xc3\xa9");
    assert_string_equal(err.text, "\"x?\" ?");
}

static void set_text_with_newlines_becomes_one_line(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, ALQ_EPROTO, "a\nb\tc");
    assert_string_equal(err.text, "a b c");
}

static void errno_maps_to_code_and_appends_reason(void **state)
{
    (void)state;
    static const struct {
        int errnum, code;
    } rows[] = {{ENOENT, ALQ_ENOENT}, {EEXIST, ALQ_EEXIST}, {EACCES, ALQ_EACCES},
                {EPERM, ALQ_EACCES},  {ENOMEM, ALQ_ENOMEM}, {ENOSPC, ALQ_EIO},
                {EMFILE, ALQ_EAGAIN}, {ENFILE, ALQ_EAGAIN}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        assert_int_equal(alq_err_errno(&err, rows[i].errnum, "cannot open %s", "/x"), rows[i].code);
        assert_int_equal(strncmp(err.text, "cannot open /x: ", 16), 0);
        assert_string_equal(err.text + 16, strerror(rows[i].errnum));
    }
}

static void errno_with_a_long_text_keeps_the_reason(void **state)
{
    (void)state;
    char path[2 * ALQ_ERR_TEXT_BYTES];
    memset(path, 'p', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_errno(&err, ENOSPC, "cannot write %s", path);
    assert_non_null(strstr(err.text, "ppp...: No space left on device"));
    assert_true(strlen(err.text) < ALQ_ERR_TEXT_BYTES);
}

static void wrap_puts_context_in_front_and_keeps_code(void **state)
{
    (void)state;
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, ALQ_ERANGE, "too large");
    assert_int_equal(alq_err_wrap(&err, "claim %s", "uid-1"), ALQ_ERANGE);
    assert_string_equal(err.text, "claim uid-1: too large");
    assert_int_equal(alq_err_wrap(&err, "prepare (was: %s)", err.text), ALQ_ERANGE);
    assert_string_equal(err.text, "prepare (was: claim uid-1: too large): claim uid-1: too large");
}

static void name_of_every_code_is_its_own(void **state)
{
    (void)state;
    for (int code = ALQ_ENOTSUP; code <= ALQ_OK; code++) {
        assert_string_not_equal(alq_err_name(code), "unknown");
        for (int other = ALQ_ENOTSUP; other < code; other++)
            assert_string_not_equal(alq_err_name(code), alq_err_name(other));
    }
    assert_string_equal(alq_err_name(-1000), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_formats_text_and_returns_code),
        cmocka_unit_test(set_without_err_returns_code),
        cmocka_unit_test(set_with_own_text_as_argument_keeps_it),
        cmocka_unit_test(set_text_too_long_ends_in_dots),
        cmocka_unit_test(set_text_that_just_fits_is_not_cut),
        cmocka_unit_test(set_cut_inside_a_character_drops_it),
        cmocka_unit_test(set_text_is_utf8_whatever_it_quotes),
        cmocka_unit_test(set_text_with_newlines_becomes_one_line),
        cmocka_unit_test(errno_maps_to_code_and_appends_reason),
        cmocka_unit_test(errno_with_a_long_text_keeps_the_reason),
        cmocka_unit_test(wrap_puts_context_in_front_and_keeps_code),
        cmocka_unit_test(name_of_every_code_is_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
