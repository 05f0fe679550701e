/* SPDX-License-Identifier: Apache-2.0 */
/* What users of one machine ask for: documents of manifests, and the words of aliquot run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/names.h"
#include "daemon/standalone/want.h"
#include "daemon/state/claim_spec.h"

static struct alq_gpu gpus[] = {
    {.uuid = "GPU-5d1f0c5e-8a0b-4f0e-9b7a-6a1d3c2e4f50", .name = "hami-gpu-4", .index = 0},
    {.uuid = "GPU-5d1f0c5e-ffff-4a59-8d6e-0f9b5a7c1e22", .name = "hami-gpu-1", .index = 1},
};
static const struct alq_gpu_list list = {gpus, 2};
static char driver[] = "gpu.example.com";
static const struct alq_config cfg = {.driver_name = driver};

static json_t *json(const char *text)
{
    json_t *value = NULL;
    assert_int_equal(alq_json_parse(text, strlen(text), "test", &value, NULL), 0);
    return value;
}

static void kind_of_a_document_says_what_becomes_of_it(void **state)
{
    static const struct {
        const char *text;
        int rc;
        enum alq_want kind;
    } rows[] = {
        {"{\"kind\":\"ResourceClaim\",\"apiVersion\":\"resource.k8s.io/v1\"}", 0, ALQ_WANT_CLAIM},
        {"{\"kind\":\"ResourceClaim\",\"apiVersion\":\"resource.k8s.io/v1beta2\"}", 0,
         ALQ_WANT_CLAIM},
        {"{\"kind\":\"DeviceClass\",\"apiVersion\":\"resource.k8s.io/v1\"}", 0, ALQ_WANT_CLASS},
        {"{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}", 0, ALQ_WANT_NOTHING},
        {"{\"kind\":\"ResourceClaim\",\"apiVersion\":\"resource.k8s.io/v1beta1\"}", ALQ_EINVAL, 0},
        {"{\"kind\":\"ResourceClaim\"}", ALQ_EINVAL, 0},
        {"{\"kind\":1,\"apiVersion\":\"v1\"}", ALQ_EINVAL, 0},
        {"[]", ALQ_EINVAL, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        alq_auto_json json_t *document = json(rows[i].text);
        enum alq_want kind = ALQ_WANT_NOTHING;
        const char *why = NULL;
        struct alq_err err = ALQ_ERR_INIT;
        assert_int_equal(alq_want_kind(document, &kind, &why, &err), rows[i].rc);
        assert_int_equal(err.text[0] != '\0', rows[i].rc != 0);
        if (rows[i].rc)
            continue;
        assert_int_equal(kind, rows[i].kind);
        assert_int_equal(why != NULL, kind == ALQ_WANT_NOTHING);
    }
}

static void name_of_a_claim_is_a_subdomain(void **state)
{
    static const char *const good[] = {"a", "a-b.c9", "0"}, *const bad[] = {"",     "A",  "a_b",
                                                                            "-a",   "a-", "a..b",
                                                                            "a.-b", ".a", "a/b"};
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        alq_auto_json json_t *document = json_pack("{s:{s:s}}", "metadata", "name", good[i]);
        const char *name = NULL;
        assert_int_equal(alq_want_name(document, &name, NULL), 0);
        assert_string_equal(name, good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        alq_auto_json json_t *document = json_pack("{s:{s:s}}", "metadata", "name", bad[i]);
        const char *name = NULL;
        struct alq_err err = ALQ_ERR_INIT;
        assert_int_equal(alq_want_name(document, &name, &err), ALQ_EINVAL);
    }
}

static void names_of_requests_are_labels(void **state)
{
    static const char *const bad[] = {"", "a.b", "A", "gpu\033[31m", "-a", "a b", "\xc3\xa9"};
    const char *name = NULL;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_json json_t *direct =
            json_pack("{s:{s:s}, s:{s:{s:[{s:s}, {s:s}]}}}", "metadata", "name", "mine", "spec",
                      "devices", "requests", "name", "gpu-0", "name", bad[i]);
        alq_auto_json json_t *below =
            json_pack("{s:{s:s}, s:{s:{s:[{s:s, s:[{s:s}]}]}}}", "metadata", "name", "mine", "spec",
                      "devices", "requests", "name", "gpu", "firstAvailable", "name", bad[i]);
        assert_int_equal(alq_want_name(direct, &name, &err), ALQ_EINVAL);
        assert_non_null(strstr(err.text, "of a request"));
        assert_int_equal(alq_want_name(below, &name, NULL), ALQ_EINVAL);
    }
}

static void object_has_the_identity_that_it_is_given(void **state)
{
    static const struct alq_claim_id id = {"11111111-2222", "uid-7", "mine"};
    (void)state;
    alq_auto_json json_t *document =
        json("{\"metadata\":{\"name\":\"x\",\"uid\":\"forged\",\"namespace\":\"other\","
             "\"annotations\":{\"a\":\"b\"}},\"spec\":{\"devices\":{}},"
             "\"status\":{\"allocation\":{}}}");
    alq_auto_json json_t *object = alq_want_object(document, &id);
    assert_string_equal(alq_json_str(object, "metadata.uid"), id.uid);
    assert_string_equal(alq_json_str(object, "metadata.namespace"), "uid-7");
    assert_string_equal(alq_json_str(object, "metadata.name"), "mine");
    assert_string_equal(alq_json_str(object, "metadata.annotations.a"), "b");
    assert_null(json_object_get(object, "status"));
}

static void admin_access_is_found_in_any_request(void **state)
{
    (void)state;
    alq_auto_json json_t *yes = json("{\"spec\":{\"devices\":{\"requests\":[{\"exactly\":{}},"
                                     "{\"exactly\":{\"adminAccess\":true}}]}}}");
    alq_auto_json json_t *no = json("{\"spec\":{\"devices\":{\"requests\":[{\"exactly\":{}}]}}}");
    assert_true(alq_want_is_admin(yes));
    assert_false(alq_want_is_admin(no));
}

/* The requests' selectors and amounts, or the error. */
static void check_run(const char *body_text, int rc, const char *word)
{
    alq_auto_json json_t *body = json(body_text), *document = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_want_run(body, &cfg, &list, &document, &err) != rc)
        fail_msg("%s: %s", body_text, err.text);
    alq_auto_free char *text = rc ? strdup(err.text) : alq_json_dump(document);
    if (!strstr(text, word))
        fail_msg("%s: %s lacks %s", body_text, text, word);
}

static void run_of_words_is_a_claim_or_says_what_is_wrong(void **state)
{
    (void)state;
    check_run("{\"gpus\":[\"1\"],\"memory\":\"4Gi\",\"cores\":30}", 0,
              "uuid == 'GPU-5d1f0c5e-ffff-4a59-8d6e-0f9b5a7c1e22'");
    check_run("{\"gpus\":[\"hami-gpu-4\"],\"memory\":\"4294967296\"}", 0, "\"memory\":\"4Gi\"");
    check_run("{\"gpus\":[\"gpu-5D1F0C5E-8\"],\"cores\":0}", 0, "\"cores\":\"0\"");
    check_run("{\"gpus\":[\"0\",\"1\"],\"cores\":1}", 0, "\"name\":\"gpu-1\"");
    check_run("{\"memory\":\"1Mi\"}", 0, "\"name\":\"gpu\"");
    check_run("{\"gpus\":[\"2\"]}", ALQ_ENOENT, "this machine has number 0, 1");
    check_run("{\"gpus\":[\"\"]}", ALQ_ENOENT, "no GPU");
    check_run("{\"gpus\":[0]}", ALQ_ENOENT, "no GPU");
    check_run("{\"gpus\":[\"GPU-\"]}", ALQ_ENOENT, "no GPU");
    check_run("{\"gpus\":[\"GPU-5d1f0c5e-\"]}", ALQ_EINVAL, "more than one");
    check_run("{\"gpus\":\"0\"}", ALQ_EINVAL, "give");
    check_run("{\"memory\":4}", ALQ_EINVAL, "memory");
    check_run("{\"memory\":\"0\"}", ALQ_EINVAL, "1Mi or more");
    check_run("{\"memory\":\"much\"}", ALQ_EINVAL, "memory");
    check_run("{\"cores\":101}", ALQ_EINVAL, "cores");
    check_run("{\"cores\":\"1\"}", ALQ_EINVAL, "cores");
    check_run("{\"core\":1}", ALQ_EINVAL, "core");
    check_run("[]", ALQ_EINVAL, "give");
}

static void uid_is_one_and_another_each_time(void **state)
{
    char a[ALQ_UUID_TEXT_BYTES], b[ALQ_UUID_TEXT_BYTES];
    (void)state;
    assert_int_equal(alq_uuid_random(a), 0);
    assert_int_equal(alq_uuid_random(b), 0);
    assert_true(alq_claim_uid_is_valid(a));
    assert_int_equal(strlen(a), 36);
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kind_of_a_document_says_what_becomes_of_it),
        cmocka_unit_test(name_of_a_claim_is_a_subdomain),
        cmocka_unit_test(names_of_requests_are_labels),
        cmocka_unit_test(object_has_the_identity_that_it_is_given),
        cmocka_unit_test(admin_access_is_found_in_any_request),
        cmocka_unit_test(run_of_words_is_a_claim_or_says_what_is_wrong),
        cmocka_unit_test(uid_is_one_and_another_each_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
