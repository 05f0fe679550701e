/* SPDX-License-Identifier: Apache-2.0 */
/* One string out of an OCI state or config.json. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hook/oci.h"

static const char *const root_path[] = {"root", "path", NULL};

static void string_of_what_runtimes_write_is_found(void **state)
{
    static const struct {
        const char *text, *path;
    } cases[] = {
        {"{\"ociVersion\":\"1.0.2\",\"root\":{\"path\":\"rootfs\",\"readonly\":true},\"n\":[]}",
         "rootfs"},
        {" {\n\t\"root\" : { \"readonly\" : false , \"path\" : \"/a b\" } } \r\n", "/a b"},
        {"{\"mounts\":[{\"path\":\"no\"}],\"x\":{\"root\":{\"path\":\"no\"}},\"path\":\"no\","
         "\"root\":{\"path\":\"yes\"}}",
         "yes"},
        {"{\"n\":[-0,0.5,1e9,-1.25E-3,10,null,true,false],\"root\":{\"path\":\"y\"}}", "y"},
        {"{\"root\":{\"path\":\"\\u00e9\\u20ac\\ud83d\\ude00\\/\\\"\\\\\\n\"}}",
         "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80/\"\\\n"},
        {"{\"r\\u006fot\":{\"path\":\"escaped name\"}}", "escaped name"},
        {"{\"root\":{\"path\":\"\"}}", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[64] = "old";
        assert_int_equal(
            alq_oci_string(cases[i].text, strlen(cases[i].text), root_path, out, sizeof(out)), 0);
        assert_string_equal(out, cases[i].path);
    }
}

static void string_of_what_is_not_json_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "{\"root\":{\"path\":\"x\"}",
        "{\"root\":{\"path\":\"x\"}}}",
        "{\"root\":{\"path\":\"x\"},}",
        "{\"root\":{\"path\":\"x\",}}",
        "{\"root\":{\"path\":\"x}}",
        "{\"root\":{\"path\":\"x\"} \"a\":1}",
        "{root:{\"path\":\"x\"}}",
        "{\"a\":01,\"root\":{\"path\":\"x\"}}",
        "{\"a\":+1,\"root\":{\"path\":\"x\"}}",
        "{\"a\":.5,\"root\":{\"path\":\"x\"}}",
        "{\"a\":1.,\"root\":{\"path\":\"x\"}}",
        "{\"a\":1e,\"root\":{\"path\":\"x\"}}",
        "{\"a\":tru,\"root\":{\"path\":\"x\"}}",
        "{\"a\":[1 2],\"root\":{\"path\":\"x\"}}",
        "{\"a\":[1,],\"root\":{\"path\":\"x\"}}",
        "{\"a\":\"\\x\",\"root\":{\"path\":\"x\"}}",
        "{\"a\":\"\\u12g4\",\"root\":{\"path\":\"x\"}}",
        "{\"a\":\"\\ud800\",\"root\":{\"path\":\"x\"}}",
        "{\"a\":\"\\udc00\",\"root\":{\"path\":\"x\"}}",
        "{\"a\":\"\\ud800\\u0041\",\"root\":{\"path\":\"x\"}}",
        "{\"a\":\"\n\",\"root\":{\"path\":\"x\"}}",
        "{\"root\":{\"path\":}}",
        "{\"root\":{\"path\"}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        char out[64] = "old";
        if (alq_oci_string(texts[i], strlen(texts[i]), root_path, out, sizeof(out)) != -EBADMSG)
            fail_msg("taken: %s", texts[i]);
        assert_string_equal(out, "");
    }
}

static void string_of_json_without_it_says_what_is_wrong(void **state)
{
    static const struct {
        const char *text;
        int rc;
    } cases[] = {
        {"{}", -ENOENT},
        {"[]", -ENOENT},
        {"\"root\"", -ENOENT},
        {"{\"root\":{}}", -ENOENT},
        {"{\"root\":\"path\"}", -ENOENT},
        {"{\"root\":[{\"path\":\"x\"}]}", -ENOENT},
        {"{\"roo\":{\"path\":\"x\"},\"roots\":{\"path\":\"x\"}}", -ENOENT},
        {"{\"root\":{\"path\":1}}", -EINVAL},
        {"{\"root\":{\"path\":null}}", -EINVAL},
        {"{\"root\":{\"path\":{\"path\":\"x\"}}}", -EINVAL},
        {"{\"root\":{\"path\":\"a\",\"path\":\"b\"}}", -EINVAL},
        {"{\"root\":{\"path\":1,\"path\":\"b\"}}", -EINVAL},
        {"{\"root\":{\"path\":\"a\"},\"root\":{\"path\":\"b\"}}", -EINVAL},
        {"{\"root\":{\"path\":\"a\\u0000b\"}}", -EINVAL},
        {"{\"root\\u0000\":{\"path\":\"x\"}}", -ENOENT},
        {"{\"root\":{\"path\":\"12345678\"}}", -ENAMETOOLONG},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[8] = "old";
        int rc = alq_oci_string(cases[i].text, strlen(cases[i].text), root_path, out, sizeof(out));
        if (rc != cases[i].rc)
            fail_msg("%d instead of %d: %s", rc, cases[i].rc, cases[i].text);
        assert_string_equal(out, "");
    }
}

static void string_below_too_many_brackets_is_refused(void **state)
{
    char text[4 * ALQ_OCI_DEPTH_MAX], out[8];
    (void)state;
    for (int depth = ALQ_OCI_DEPTH_MAX - 1; depth <= ALQ_OCI_DEPTH_MAX; depth++) {
        int n = snprintf(text, sizeof(text), "{\"a\":%*s%*s,\"root\":{\"path\":\"x\"}}", depth, "",
                         depth, "");
        memset(text + 5, '[', (size_t)depth);
        memset(text + 5 + depth, ']', (size_t)depth);
        assert_int_equal(alq_oci_string(text, (size_t)n, root_path, out, sizeof(out)),
                         depth < ALQ_OCI_DEPTH_MAX ? 0 : -EBADMSG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(string_of_what_runtimes_write_is_found),
        cmocka_unit_test(string_of_what_is_not_json_is_refused),
        cmocka_unit_test(string_of_json_without_it_says_what_is_wrong),
        cmocka_unit_test(string_below_too_many_brackets_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
