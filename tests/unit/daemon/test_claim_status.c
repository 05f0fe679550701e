/* SPDX-License-Identifier: Apache-2.0 */
/* status.devices of claims: what is written, when it is not, and what becomes of refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "daemon/findings.h"
#include "daemon/kube/claim_devices.h"
#include "daemon/kube/claim_status.h"
#include "kube_world.h"

#define PATH                                                                                       \
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/one/status"                        \
    "?fieldManager=aliquotd&force=true"
#define MINUTE (60 * SECOND)

static struct alq_claim_status *status;
static char name[] = "one", pool[] = "node-a";
static struct alq_share_spec shares[2];
static struct alq_claim_spec claim;

static int start(void **state)
{
    (void)state;
    kube_start();
    shares[0] = (struct alq_share_spec){.gpu_uuid = "GPU-1",
                                        .gpu_minor = 3,
                                        .memory_bytes = 4ull << 30,
                                        .cores_pct = 30,
                                        .device = "hami-gpu-3",
                                        .share_uuid = "6f8e3c1a"};
    shares[1] = shares[0];
    claim = (struct alq_claim_spec){.uid = "uid-1",
                                    .namespace_ = "default",
                                    .name = name,
                                    .pool = pool,
                                    .share_count = 1,
                                    .shares = shares};
    status = alq_claim_status_new(&kube.cfg, NULL, &kube.clock, NULL);
    return status ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    alq_claim_status_free(status);
    kube_end();
    return 0;
}

/* The claim as the server has it after the open request. */
static void stored(char *text, size_t size)
{
    char *dump = alq_json_dump(kube.open.body);
    snprintf(text, size, "%s", dump);
    free(dump);
}

static void answer_as_stored(void)
{
    char text[4096];
    stored(text, sizeof(text));
    kube_answer(200, text);
}

static json_t *told(void)
{
    struct alq_findings *findings = alq_findings_new(NULL);
    assert_int_equal(alq_findings_register(findings, alq_claim_status_tell, status), 0);
    json_t *all = alq_findings_collect(findings);
    alq_findings_free(findings);
    return all;
}

static void assert_told(const char *id)
{
    alq_auto_json json_t *all = told();
    assert_int_equal(json_array_size(all), id ? 1 : 0);
    if (id)
        assert_string_equal(alq_json_str(json_array_get(all, 0), "id"), id);
}

static void set_writes_key_condition_and_data(void **state)
{
    (void)state;
    alq_claim_status_set(status, &claim, NULL);
    const struct kube_request *r = kube_expect("PATCH", PATH);
    assert_string_equal(r->content_type, "application/apply-patch+yaml");
    assert_string_equal(alq_json_str(r->body, "metadata.uid"), "uid-1");
    const json_t *d = json_array_get(alq_json_at(r->body, "status.devices"), 0);
    assert_string_equal(alq_json_str(d, "driver"), ALQ_DRIVER_NAME_DEFAULT);
    assert_string_equal(alq_json_str(d, "pool"), "node-a");
    assert_string_equal(alq_json_str(d, "device"), "hami-gpu-3");
    assert_string_equal(alq_json_str(d, "shareID"), "6f8e3c1a");
    assert_string_equal(alq_json_str(d, "data.uuid"), "GPU-1");
    assert_int_equal(json_integer_value(alq_json_at(d, "data.minor")), 3);
    assert_int_equal(json_integer_value(alq_json_at(d, "data.memoryBytes")), 4ll << 30);
    assert_int_equal(json_integer_value(alq_json_at(d, "data.cores")), 30);
    const json_t *c = json_array_get(json_object_get(d, "conditions"), 0);
    assert_string_equal(alq_json_str(c, "type"), "Ready");
    assert_string_equal(alq_json_str(c, "status"), "True");
    assert_string_equal(alq_json_str(c, "reason"), "Prepared");
    assert_int_equal(strlen(alq_json_str(c, "lastTransitionTime")), 20);
    answer_as_stored();
    assert_told(NULL);
}

static void set_of_what_the_object_says_writes_nothing(void **state)
{
    char text[4096];
    (void)state;
    alq_claim_status_set(status, &claim, NULL);
    stored(text, sizeof(text));
    kube_answer(200, text);
    alq_auto_json json_t *object = NULL;
    assert_int_equal(alq_json_parse(text, strlen(text), "object", &object, NULL), 0);
    alq_claim_status_set(status, &claim, object);
    assert_null(kube.open.cb);
    shares[0].cores_pct = 40;
    alq_claim_status_set(status, &claim, object);
    kube_expect("PATCH", PATH);
    answer_as_stored();
}

static void set_for_admin_access_names_no_limits(void **state)
{
    (void)state;
    shares[0].is_admin = 1;
    shares[0].share_uuid[0] = '\0';
    alq_claim_status_set(status, &claim, NULL);
    const json_t *d = json_array_get(alq_json_at(kube.open.body, "status.devices"), 0);
    assert_null(alq_json_at(d, "data.memoryBytes"));
    assert_null(alq_json_at(d, "data.cores"));
    assert_null(json_object_get(d, "shareID"));
    answer_as_stored();
}

static void set_with_one_key_twice_writes_it_once(void **state)
{
    (void)state;
    claim.share_count = 2;
    alq_claim_status_set(status, &claim, NULL);
    assert_int_equal(json_array_size(alq_json_at(kube.open.body, "status.devices")), 1);
    answer_as_stored();
    snprintf(shares[1].share_uuid, sizeof(shares[1].share_uuid), "other");
    alq_claim_status_set(status, &claim, NULL);
    assert_int_equal(json_array_size(alq_json_at(kube.open.body, "status.devices")), 2);
    answer_as_stored();
}

static void set_of_many_claims_writes_one_at_a_time(void **state)
{
    (void)state;
    for (int i = 0; i < 110; i++) {
        snprintf(claim.uid, sizeof(claim.uid), "uid-%d", i);
        alq_claim_status_set(status, &claim, NULL);
    }
    for (int i = 0; i < 110; i++)
        answer_as_stored();
    assert_int_equal(kube.asked, 110);
}

static void set_again_before_it_is_written_writes_the_newer_alone(void **state)
{
    (void)state;
    alq_claim_status_set(status, &claim, NULL);
    shares[0].cores_pct = 50;
    alq_claim_status_set(status, &claim, NULL);
    assert_int_equal(kube.cancelled, 1);
    const json_t *d = json_array_get(alq_json_at(kube.open.body, "status.devices"), 0);
    assert_int_equal(json_integer_value(alq_json_at(d, "data.cores")), 50);
    answer_as_stored();
    assert_null(kube.open.cb);
}

static void set_gpus(unsigned count, enum alq_fault_effect effect)
{
    static struct alq_gpu gpus[2] = {{.uuid = "GPU-0"}, {.uuid = "GPU-1"}};
    const struct alq_gpu_list list = {gpus, count};
    gpus[1].faults[ALQ_FAULT_XID] = (struct alq_fault){.effect = effect, .reason = "XID 79"};
    alq_claim_status_set_gpus(status, &list);
    alq_claim_status_gpus_changed(status, &claim);
}

static void assert_ready(const char *ready, const char *reason, const char *message)
{
    const struct kube_request *r = kube_expect("PATCH", PATH);
    const json_t *d = json_array_get(alq_json_at(r->body, "status.devices"), 0);
    const json_t *c = json_array_get(json_object_get(d, "conditions"), 0);
    assert_string_equal(alq_json_str(c, "status"), ready);
    assert_string_equal(alq_json_str(c, "reason"), reason);
    assert_non_null(strstr(alq_json_str(c, "message"), message));
    answer_as_stored();
    assert_null(kube.open.cb);
}

static void gpus_changed_writes_each_change_of_the_claims_own_once(void **state)
{
    (void)state;
    set_gpus(2, ALQ_FAULT_NONE);
    assert_null(kube.open.cb); /* the first reading is no change */
    set_gpus(2, ALQ_FAULT_NOTICE);
    assert_null(kube.open.cb);
    set_gpus(2, ALQ_FAULT_UNFIT);
    assert_ready("False", "GPUUnhealthy", "XID 79");
    set_gpus(2, ALQ_FAULT_UNFIT);
    assert_null(kube.open.cb);
    set_gpus(1, ALQ_FAULT_NONE);
    assert_ready("False", "GPUGone", "GPU-1");
    set_gpus(2, ALQ_FAULT_NONE);
    assert_ready("True", "Prepared", "30 cores");
    snprintf(shares[0].gpu_uuid, sizeof(shares[0].gpu_uuid), "GPU-0");
    set_gpus(2, ALQ_FAULT_UNFIT); /* of another GPU */
    assert_null(kube.open.cb);
}

static void gpus_changed_and_back_before_it_is_written_leaves_the_last_word(void **state)
{
    (void)state;
    set_gpus(2, ALQ_FAULT_NONE);
    set_gpus(2, ALQ_FAULT_UNFIT);
    kube_answer(503, NULL);
    set_gpus(2, ALQ_FAULT_NONE);
    kube_pass(2 * MINUTE);
    assert_ready("True", "Prepared", "");
}

static void set_before_the_first_reading_leaves_what_is_said_of_the_gpus(void **state)
{
    char text[4096];
    (void)state;
    set_gpus(2, ALQ_FAULT_UNFIT);
    alq_claim_status_set(status, &claim, NULL);
    stored(text, sizeof(text));
    kube_answer(200, text);
    alq_claim_status_free(status); /* the daemon starts again */
    status = alq_claim_status_new(&kube.cfg, NULL, &kube.clock, NULL);
    alq_auto_json json_t *object = NULL;
    assert_int_equal(alq_json_parse(text, strlen(text), "object", &object, NULL), 0);
    alq_claim_status_set(status, &claim, object);
    assert_null(kube.open.cb);
    set_gpus(2, ALQ_FAULT_NONE); /* recovered meanwhile */
    alq_claim_status_set(status, &claim, object);
    assert_ready("True", "Prepared", "");
}

static void forget_of_a_claim_that_waits_cancels_it_and_goes_on(void **state)
{
    (void)state;
    alq_claim_status_set(status, &claim, NULL);
    snprintf(claim.uid, sizeof(claim.uid), "uid-2");
    alq_claim_status_set(status, &claim, NULL);
    alq_claim_status_forget(status, "uid-1");
    kube_expect("PATCH", PATH);
    assert_string_equal(alq_json_str(kube.open.body, "metadata.uid"), "uid-2");
    alq_claim_status_forget(status, "unknown");
    answer_as_stored();
}

static void answer_without_the_right_is_one_finding_and_no_storm(void **state)
{
    /* as 1.36 says it, and as 1.34 does */
    static const char *const granular =
        "{\"message\": \"m\", \"details\": {\"causes\": [{\"reason\": \"FieldValueForbidden\", "
        "\"field\": \"status.devices\"}]}}";
    static const int codes[] = {422, 403};
    (void)state;
    for (int i = 0; i < 2; i++) {
        unsigned before = kube.asked;
        alq_claim_status_set(status, &claim, NULL);
        kube_answer(codes[i], i ? NULL : granular);
        assert_told("claims.status-forbidden");
        for (int n = 0; n < 50; n++)
            alq_claim_status_set(status, &claim, NULL);
        kube_pass(59 * MINUTE);
        alq_claim_status_set(status, &claim, NULL);
        assert_int_equal(kube.asked, before + 1);
        kube_pass(2 * MINUTE);
    }
    alq_claim_status_set(status, &claim, NULL);
    answer_as_stored();
    assert_told(NULL);
}

static void answer_without_the_field_is_one_finding_and_no_storm(void **state)
{
    (void)state;
    alq_claim_status_set(status, &claim, NULL);
    kube_answer(200, "{\"status\": {}}");
    assert_told("claims.status-dropped");
    alq_claim_status_set(status, &claim, NULL);
    assert_null(kube.open.cb);
}

static void answer_that_the_claim_has_changed_drops_it(void **state)
{
    static const int codes[] = {404, 422, 400};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        alq_claim_status_set(status, &claim, NULL);
        kube_answer(codes[i], "{\"message\": \"m\"}");
        kube_pass(60 * MINUTE);
        assert_null(kube.open.cb);
        assert_told(NULL);
    }
}

static void answer_of_a_server_in_trouble_is_waited_out(void **state)
{
    static const int codes[] = {0, 409, 429, 500, 503, 401};
    (void)state;
    alq_claim_status_set(status, &claim, NULL);
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        kube_answer(codes[i], NULL);
        assert_null(kube.open.cb);
        kube_pass(2 * MINUTE);
        kube_expect("PATCH", PATH);
    }
    answer_as_stored();
    for (int i = 0; i < 40; i++) { /* an hour of trouble costs little */
        if (i == 0)
            alq_claim_status_set(status, &claim, NULL);
        if (kube.open.cb)
            kube_answer(503, NULL);
        kube_pass(90 * SECOND);
    }
    assert_in_range(kube.asked, 30, 60);
    answer_as_stored();
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(set_writes_key_condition_and_data),
        TEST(set_of_what_the_object_says_writes_nothing),
        TEST(set_for_admin_access_names_no_limits),
        TEST(set_with_one_key_twice_writes_it_once),
        TEST(set_of_many_claims_writes_one_at_a_time),
        TEST(set_again_before_it_is_written_writes_the_newer_alone),
        TEST(gpus_changed_writes_each_change_of_the_claims_own_once),
        TEST(gpus_changed_and_back_before_it_is_written_leaves_the_last_word),
        TEST(set_before_the_first_reading_leaves_what_is_said_of_the_gpus),
        TEST(forget_of_a_claim_that_waits_cancels_it_and_goes_on),
        TEST(answer_without_the_right_is_one_finding_and_no_storm),
        TEST(answer_without_the_field_is_one_finding_and_no_storm),
        TEST(answer_that_the_claim_has_changed_drops_it),
        TEST(answer_of_a_server_in_trouble_is_waited_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
