/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims as real API servers gave them (tests/conformance/claims) and bent ones; the precedence of
 * ShareConfig; the overcommit guard.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "daemon/prepare/allocation.h"
#include "daemon/prepare/room.h"
#include "daemon/prepare/share_config.h"
#include "daemon/state/claim_spec.h"

#define DRIVER "hami-core-gpu.project-hami.io"
#define MIB (1024ull * 1024)
#define ALL (143771 * MIB)

static struct alq_gpu gpus[] = {
    {.uuid = "GPU-0", .name = "hami-gpu-0", .minor = 4, .memory_promisable_bytes = ALL},
    {.uuid = "GPU-1", .name = "hami-gpu-1", .minor = 7, .memory_promisable_bytes = ALL}};
static const struct alq_gpu_list list = {gpus, 2};

static json_t *recorded(const char *name, struct alq_claim_id *id)
{
    char path[512], *data = NULL;
    size_t len = 0;
    json_t *object = NULL;
    snprintf(path, sizeof(path), ALQ_CONFORMANCE_DIR "/claims/%s.json", name);
    assert_int_equal(alq_file_read(path, 1 << 20, &data, &len, NULL), 0);
    assert_int_equal(alq_json_parse(data, len, name, &object, NULL), 0);
    free(data);
    memset(id, 0, sizeof(*id));
    snprintf(id->uid, sizeof(id->uid), "%s", alq_json_str(object, "metadata.uid"));
    snprintf(id->namespace_, sizeof(id->namespace_), "default");
    snprintf(id->name, sizeof(id->name), "%s", alq_json_str(object, "metadata.name"));
    return object;
}

static int read_claim(const json_t *object, const struct alq_claim_id *id,
                      struct alq_claim_spec **claim, struct alq_err *err)
{
    return alq_allocation_read(object, id, DRIVER, "node-a", &list, claim, err);
}

struct want {
    const char *name;
    unsigned count;
    struct {
        const char *request;
        uint64_t memory_mib;
        uint32_t cores;
        int is_admin;
        uint32_t policy, priority;
    } shares[2];
};

static void read_of_recorded_claims_gives_their_shares(void **state)
{
    (void)state;
    static const struct want wants[] = {
        {"single-gpu-0", 1, {{"gpu", 4096, 30, 0, 0, 0}}},
        {"double-gpu-0", 2, {{"gpu-0", 4096, 30, 0, 0, 0}, {"gpu-1", 8192, 60, 0, 0, 0}}},
        {"two-shares-two-containers", 2, {{"a", 2048, 30, 0, 0, 0}, {"b", 1024, 20, 0, 0, 0}}},
        {"prioritized", 1, {{"gpu", 3072, 10, 0, 0, 0}}},
        {"opaque", 1, {{"gpu", 1024, 10, 0, ALQ_POLICY_BURST, 1}}},
        {"admin-access", 1, {{"mon", 143771, 100, 1, 0, 0}}},
        {"defaults", 1, {{"gpu", 143771, 100, 0, 0, 0}}},
        {"rounding", 1, {{"gpu", 954, 0, 0, 0, 0}}}};
    static const char *const versions[] = {"1.34", "1.36"};
    for (size_t w = 0; w < 2 * sizeof(wants) / sizeof(wants[0]); w++) {
        const struct want *want = &wants[w / 2];
        struct alq_claim_id id;
        struct alq_claim_spec *claim = NULL;
        char name[64], share_id[ALQ_SHARE_ID_BYTES];
        snprintf(name, sizeof(name), "%s-%s", versions[w % 2], want->name);
        json_t *object = recorded(name, &id);
        assert_int_equal(read_claim(object, &id, &claim, NULL), 0);
        assert_int_equal(claim->share_count, want->count);
        for (uint32_t i = 0; i < want->count; i++) {
            const struct alq_share_spec *s = &claim->shares[i];
            alq_share_id_format(id.uid, i, share_id);
            assert_string_equal(s->share_id, share_id);
            assert_string_equal(s->request, want->shares[i].request);
            assert_int_equal(s->memory_bytes, want->shares[i].memory_mib * MIB);
            assert_int_equal(s->cores_pct, want->shares[i].cores);
            assert_int_equal(s->is_admin, want->shares[i].is_admin);
            assert_int_equal(s->tuning.policy, want->shares[i].policy);
            assert_int_equal(s->tuning.priority, want->shares[i].priority);
            assert_int_equal(strlen(s->share_uuid), 36);
            const struct alq_gpu *gpu = !strcmp(s->device, "hami-gpu-0") ? &gpus[0] : &gpus[1];
            assert_string_equal(s->gpu_uuid, gpu->uuid);
            assert_int_equal(s->gpu_minor, gpu->minor);
        }
        alq_claim_spec_free(claim);
        json_decref(object);
    }
}

static json_t *result_of(json_t *object)
{
    return json_array_get(alq_json_at(object, "status.allocation.devices.results"), 0);
}

/* Reads single-gpu-0 with one thing changed. value NULL: the key is taken out. */
static void refused(const char *key, json_t *value, int code, const char *word)
{
    struct alq_claim_id id;
    struct alq_claim_spec *claim = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    json_t *object = recorded("1.36-single-gpu-0", &id), *result = result_of(object);
    if (value)
        json_object_set_new(result, key, value);
    else
        json_object_del(result, key);
    assert_int_equal(read_claim(object, &id, &claim, &err), code);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not name %s", err.text, word);
    assert_null(claim);
    json_decref(object);
}

static json_t *consumed(const char *memory, const char *cores)
{
    return json_pack("{s:s, s:s}", "memory", memory, "cores", cores);
}

static void read_of_a_bent_result_names_what_is_wrong(void **state)
{
    (void)state;
    refused("device", json_string("hami-gpu-9"), ALQ_ENOENT, "hami-gpu-9");
    refused("device", NULL, ALQ_EPROTO, "device");
    refused("request", json_integer(1), ALQ_EPROTO, "request");
    refused("pool", json_string("node-b"), ALQ_EINVAL, "node-b");
    refused("driver", json_string("gpu.nvidia.com"), ALQ_EINVAL, "gpu.nvidia.com");
    refused("consumedCapacity", consumed("4Gx", "1"), ALQ_EINVAL, "4Gx");
    refused("consumedCapacity", consumed("0", "1"), ALQ_EINVAL, "memory");
    refused("consumedCapacity", consumed("143772Mi", "1"), ALQ_EINVAL, "143772Mi");
    refused("consumedCapacity", consumed("1Gi", "101"), ALQ_EINVAL, "101");
    refused("consumedCapacity", consumed("1Gi", "-1"), ALQ_ERANGE, "cores");
    refused("consumedCapacity", json_pack("{s:i}", "memory", 5), ALQ_EINVAL, "memory");
}

static void read_without_consumed_capacity_gives_the_whole_device(void **state)
{
    (void)state;
    struct alq_claim_id id;
    struct alq_claim_spec *claim = NULL;
    json_t *object = recorded("1.36-single-gpu-0", &id), *result = result_of(object);
    json_object_del(result, "consumedCapacity");
    json_object_del(result, "shareID");
    assert_int_equal(read_claim(object, &id, &claim, NULL), 0);
    assert_int_equal(claim->shares[0].memory_bytes, ALL);
    assert_int_equal(claim->shares[0].cores_pct, 100);
    assert_string_equal(claim->shares[0].share_uuid, "");
    alq_claim_spec_free(claim);
    json_decref(object);
}

static void read_of_another_claim_of_the_name_says_replaced(void **state)
{
    (void)state;
    struct alq_claim_id id;
    struct alq_claim_spec *claim = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    json_t *object = recorded("1.36-single-gpu-0", &id);
    id.uid[0] ^= 1;
    assert_int_equal(read_claim(object, &id, &claim, &err), ALQ_EAGAIN);
    assert_non_null(strstr(err.text, "replaced"));
    json_decref(object);
}

static void read_of_an_unallocated_claim_says_so(void **state)
{
    (void)state;
    struct alq_claim_id id;
    struct alq_claim_spec *claim = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    json_t *object = recorded("1.36-single-gpu-0", &id);
    json_object_del(json_object_get(object, "status"), "allocation");
    assert_int_equal(read_claim(object, &id, &claim, &err), ALQ_EAGAIN);
    assert_non_null(strstr(err.text, "not allocated"));
    json_decref(object);
}

/* ---- ShareConfig ------------------------------------------------------------------------------
 */

static int resolve(const char *text, const char *request, struct alq_share_tuning *t,
                   struct alq_err *err)
{
    json_t *config = NULL;
    memset(t, 0, sizeof(*t));
    assert_int_equal(alq_json_parse(text, strlen(text), "config", &config, NULL), 0);
    int rc = alq_share_config_resolve(config, "d", request, t, err);
    json_decref(config);
    return rc;
}

#define ENTRY(source, requests, driver, fields)                                                    \
    "{\"source\":\"" source "\",\"requests\":[" requests "],\"opaque\":{\"driver\":\"" driver      \
    "\",\"parameters\":{\"apiVersion\":\"config.aliquot.dev/"                                      \
    "v1alpha1\",\"kind\":\"ShareConfig\"" fields "}}}"

static void resolve_lays_the_claim_over_the_class_field_by_field(void **state)
{
    (void)state;
    struct alq_share_tuning t;
    static const char text[] =
        "[" ENTRY("FromClaim", "\"a\"", "d", ",\"logLevel\":\"info\"") "," ENTRY(
            "FromClass", "", "d",
            ",\"compute\":{\"policy\":\"None\",\"priority\":1},"
            "\"logLevel\":\"error\"") "," ENTRY("FromClaim", "\"a/small\"", "d",
                                                ",\"compute\":{\"policy\":\"Burst\"}") "]";
    assert_int_equal(resolve(text, "b", &t, NULL), 0);
    assert_int_equal(t.policy, ALQ_POLICY_NONE);
    assert_int_equal(t.log_level, 1);
    assert_int_equal(resolve(text, "a/small", &t, NULL), 0);
    assert_int_equal(t.policy, ALQ_POLICY_BURST);
    assert_int_equal(t.priority, 1);
    assert_int_equal(t.log_level, 3);
    assert_int_equal(resolve(text, "a/large", &t, NULL), 0);
    assert_int_equal(t.policy, ALQ_POLICY_NONE);
    assert_int_equal(t.log_level, 3);
}

static void resolve_leaves_other_drivers_parameters_alone(void **state)
{
    (void)state;
    struct alq_share_tuning t;
    assert_int_equal(resolve("[" ENTRY("FromClaim", "", "other", ",\"what\":1") "]", "a", &t, NULL),
                     0);
    assert_int_equal(t.policy, 0);
}

static void resolve_of_unknown_fields_names_where_they_stand(void **state)
{
    (void)state;
    struct alq_share_tuning t;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(
        resolve("[" ENTRY("FromClass", "", "d", ",\"computer\":{}") "]", "a", &t, &err),
        ALQ_EINVAL);
    assert_non_null(strstr(err.text, "device class"));
    assert_non_null(strstr(err.text, "computer"));
}

/* ---- room -------------------------------------------------------------------------------------
 */

static struct alq_share_spec share(const char *gpu, uint64_t memory_mib, uint32_t cores,
                                   int is_admin)
{
    struct alq_share_spec s = {.memory_bytes = memory_mib * MIB,
                               .cores_pct = cores,
                               .is_admin = is_admin,
                               .gpu_memory_bytes = 1024 * MIB};
    snprintf(s.gpu_uuid, sizeof(s.gpu_uuid), "%s", gpu);
    snprintf(s.device, sizeof(s.device), "hami-%s", gpu);
    return s;
}

static struct alq_claim_spec claim_of(const char *uid, struct alq_share_spec *shares, uint32_t n)
{
    struct alq_claim_spec c = {.share_count = n, .shares = shares};
    snprintf(c.uid, sizeof(c.uid), "%s", uid);
    snprintf(c.namespace_, sizeof(c.namespace_), "ns");
    snprintf(c.name, sizeof(c.name), "claim-%s", uid);
    return c;
}

static void room_is_exact_to_the_byte_and_the_percent(void **state)
{
    (void)state;
    struct alq_share_spec held[] = {share("g", 1000, 60, 0)}, asks[] = {share("g", 24, 40, 0)};
    struct alq_claim_spec holder = claim_of("h", held, 1), asked = claim_of("a", asks, 1);
    const struct alq_room_holder holders[] = {{&holder, ""}};
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_room_check(&asked, holders, 1, NULL), 0);
    asks[0].memory_bytes++;
    assert_int_equal(alq_room_check(&asked, holders, 1, &err), ALQ_EBUSY);
    assert_non_null(strstr(err.text, "ns/claim-h"));
    assert_non_null(strstr(err.text, "24Mi"));
    asks[0].memory_bytes--;
    asks[0].cores_pct++;
    assert_int_equal(alq_room_check(&asked, holders, 1, NULL), ALQ_EBUSY);
}

static void room_counts_all_shares_of_a_gpu_and_no_others(void **state)
{
    (void)state;
    struct alq_share_spec asks[] = {share("g", 600, 50, 0), share("g", 424, 50, 0),
                                    share("other", 1024, 100, 0), share("g", 1024, 100, 1)};
    struct alq_claim_spec asked = claim_of("a", asks, 4);
    const struct alq_room_holder holders[] = {{&asked, ""}}; /* its own promise is no hindrance */
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_room_check(&asked, holders, 1, &err), 0);
    asks[1].memory_bytes++;
    assert_int_equal(alq_room_check(&asked, holders, 1, &err), ALQ_EBUSY);
    assert_non_null(strstr(err.text, "hami-g:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_of_recorded_claims_gives_their_shares),
        cmocka_unit_test(read_of_a_bent_result_names_what_is_wrong),
        cmocka_unit_test(read_without_consumed_capacity_gives_the_whole_device),
        cmocka_unit_test(read_of_another_claim_of_the_name_says_replaced),
        cmocka_unit_test(read_of_an_unallocated_claim_says_so),
        cmocka_unit_test(resolve_lays_the_claim_over_the_class_field_by_field),
        cmocka_unit_test(resolve_leaves_other_drivers_parameters_alone),
        cmocka_unit_test(resolve_of_unknown_fields_names_where_they_stand),
        cmocka_unit_test(room_is_exact_to_the_byte_and_the_percent),
        cmocka_unit_test(room_counts_all_shares_of_a_gpu_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
