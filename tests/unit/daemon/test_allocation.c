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
    return alq_allocation_read(object, id, DRIVER, "node-a", &list, NULL, claim, err);
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

/* ---- shapes -----------------------------------------------------------------------------------
 */

#define OF(driver, request, device, more)                                                          \
    "{\"driver\":\"" driver "\",\"request\":\"" request                                            \
    "\",\"pool\":\"node-a\",\"device\":\"" device "\"" more "}"
#define R(request, device, more) OF(DRIVER, request, device, more)
#define TAKES(cores, memory)                                                                       \
    ",\"consumedCapacity\":{\"cores\":\"" cores "\",\"memory\":\"" memory "\"}"
#define ADMIN ",\"adminAccess\":true"
#define NAME63 "n23456789012345678901234567890123456789012345678901234567890123"

/* Each result as "request@gpu cores memory-in-bytes [admin]; "; or the code and words of the error.
 */
struct shape {
    const char *results;
    const char *want;
    int code;
};

static const struct shape shapes[] = {
    /* several requests, several results of one GPU, of a request with count 2 */
    {R("a", "hami-gpu-0", TAKES("30", "4Gi")) "," R("b", "hami-gpu-1", TAKES("60", "8Gi")),
     "a@GPU-0 30 4294967296; b@GPU-1 60 8589934592; ", 0},
    {R("a", "hami-gpu-0", TAKES("30", "1Gi")) "," R("b", "hami-gpu-0", TAKES("60", "1Gi")),
     "a@GPU-0 30 1073741824; b@GPU-0 60 1073741824; ", 0},
    {R("a", "hami-gpu-0", TAKES("1", "1Mi")) "," R("a", "hami-gpu-1", TAKES("1", "1Mi")),
     "a@GPU-0 1 1048576; a@GPU-1 1 1048576; ", 0},
    /* subrequests go by the base name, of the longest names too */
    {R("main/small", "hami-gpu-0", TAKES("1", "1Mi")), "main@GPU-0 1 1048576; ", 0},
    {R(NAME63 "/" NAME63, "hami-gpu-0", TAKES("1", "1Mi")), NAME63 "@GPU-0 1 1048576; ", 0},
    {R(NAME63 "x/y", "hami-gpu-0", TAKES("1", "1Mi")), "too long", ALQ_EINVAL},
    /* other drivers' results are not ours, whatever they hold */
    {OF("net.example.com", "n", "eth0", TAKES("lots", "x")) "," R("a", "hami-gpu-0",
                                                                  TAKES("5", "1Mi")),
     "a@GPU-0 5 1048576; ", 0},
    {OF("net.example.com", "n", "eth0", ""),
     "no device of driver " DRIVER " in its allocation (but of net.example.com)", ALQ_EINVAL},
    {"", "no device of driver", ALQ_EINVAL},
    /* adminAccess is promised nothing, whatever it says it consumes */
    {R("mon", "hami-gpu-0", ADMIN TAKES("100", "143771Mi")), "mon@GPU-0 100 150754820096 admin; ",
     0},
    {R("mon", "hami-gpu-0", ADMIN), "mon@GPU-0 100 150754820096 admin; ", 0},
    {R("mon", "hami-gpu-0", ADMIN TAKES("1", "lots")), "mon@GPU-0 100 150754820096 admin; ", 0},
    {R("a", "hami-gpu-0", ",\"adminAccess\":false" TAKES("1", "1Mi")), "a@GPU-0 1 1048576; ", 0},
    /* what is not said is consumed whole: the gate is off, or the slice's default */
    {R("a", "hami-gpu-0", ""), "a@GPU-0 100 150754820096; ", 0},
    {R("a", "hami-gpu-0", ",\"consumedCapacity\":{}"), "a@GPU-0 100 150754820096; ", 0},
    {R("a", "hami-gpu-0", ",\"consumedCapacity\":{\"cores\":\"7\"}"), "a@GPU-0 7 150754820096; ",
     0},
    {R("a", "hami-gpu-0", ",\"consumedCapacity\":{\"memory\":\"1Mi\",\"shares\":\"1\"}"),
     "a@GPU-0 100 1048576; ", 0},
    {R("a", "hami-gpu-0", ",\"consumedCapacity\":\"4Gi\""), "not an object", ALQ_EINVAL},
    /* quantities in every form, rounded up to whole ones */
    {R("a", "hami-gpu-0", TAKES("0", "4294967296")), "a@GPU-0 0 4294967296; ", 0},
    {R("a", "hami-gpu-0", TAKES("1e1", "1.5G")), "a@GPU-0 10 1500000000; ", 0},
    {R("a", "hami-gpu-0", TAKES("500m", "0.5Gi")), "a@GPU-0 1 536870912; ", 0},
    {R("a", "hami-gpu-0", TAKES("99001m", "1e9")), "a@GPU-0 100 1000000000; ", 0},
    {R("a", "hami-gpu-0", TAKES("0.1k", "1048576k")), "a@GPU-0 100 1048576000; ", 0},
    {R("a", "hami-gpu-0", TAKES("+5", "1E-3")), "a@GPU-0 5 1; ", 0},
    {R("a", "hami-gpu-0", TAKES("5", "100m")), "a@GPU-0 5 1; ", 0},
    {R("a", "hami-gpu-0", TAKES("5", "4 Gi")), "4 Gi", ALQ_EINVAL},
    {R("a", "hami-gpu-0", TAKES("5", "4gi")), "4gi", ALQ_EINVAL},
    {R("a", "hami-gpu-0", TAKES("5", "")), "consumedCapacity.memory", ALQ_EINVAL},
    {R("a", "hami-gpu-0", TAKES("5", "0")), "0 bytes; ask for 1Mi", ALQ_EINVAL},
    {R("a", "hami-gpu-0", TAKES("5", "-4Gi")), "negative", ALQ_ERANGE},
    {R("a", "hami-gpu-0", TAKES("5", "16Ei")), "consumedCapacity.memory", 1},
    {R("a", "hami-gpu-0", TAKES("5", "1e300")), "consumedCapacity.memory", 1},
    {R("a", "hami-gpu-0", TAKES("5", "143772Mi")),
     "result 0, hami-gpu-0: consumedCapacity.memory: 143772Mi is more than the 143771Mi",
     ALQ_EINVAL},
    {R("a", "hami-gpu-0", TAKES("101", "1Mi")), "101 is more than the 100", ALQ_EINVAL},
    {R("a", "hami-gpu-0", TAKES("100001m", "1Mi")), "more than the 100", ALQ_EINVAL},
    /* one bad result spoils the claim; the error says which */
    {R("a", "hami-gpu-0", TAKES("1", "1Mi")) "," R("b", "hami-gpu-7", TAKES("1", "1Mi")),
     "result 1, hami-gpu-7: device hami-gpu-7 is not on this node (it has 2 GPUs)", ALQ_ENOENT},
};

static int read_results_of(const char *results, char *text, size_t size, struct alq_err *err)
{
    struct alq_claim_id id = {.uid = "u", .namespace_ = "ns", .name = "c"};
    struct alq_claim_spec *claim = NULL;
    json_t *object = NULL;
    char json[4096];
    snprintf(json, sizeof(json),
             "{\"metadata\":{\"uid\":\"u\"},\"status\":{\"allocation\":{\"devices\":{\"results\":["
             "%s]}}}}",
             results);
    assert_int_equal(alq_json_parse(json, strlen(json), "claim", &object, NULL), 0);
    int rc = read_claim(object, &id, &claim, err);
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; !rc && i < claim->share_count; i++) {
        const struct alq_share_spec *s = &claim->shares[i];
        assert_int_equal(s->index, i);
        used += (size_t)snprintf(text + used, size - used, "%s@%s %u %llu%s; ", s->request,
                                 s->gpu_uuid, s->cores_pct, (unsigned long long)s->memory_bytes,
                                 s->is_admin ? " admin" : "");
    }
    alq_claim_spec_free(claim);
    json_decref(object);
    return rc;
}

static void read_of_every_shape_gives_shares_or_a_clear_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        const struct shape *shape = &shapes[i];
        struct alq_err err = ALQ_ERR_INIT;
        char text[512];
        int rc = read_results_of(shape->results, text, sizeof(text), &err);
        int is_right =
            shape->code ? rc && strstr(err.text, shape->want) : !rc && !strcmp(text, shape->want);
        if (!is_right || (shape->code < 0 && rc != shape->code))
            fail_msg("%s\ngives %d \"%s%s\"\nand not %d \"%s\"", shape->results, rc, text, err.text,
                     shape->code, shape->want);
    }
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

static void resolve_wait_of_the_class_is_tuned_and_taken_back_by_the_claim(void **state)
{
    (void)state;
    struct alq_share_tuning t;
    static const char text[] =
        "[" ENTRY("FromClass", "", "d", ",\"memory\":{\"onExhausted\":\"Wait\"}") "," ENTRY(
            "FromClaim", "\"b\"", "d",
            ",\"memory\":{\"waitSeconds\":7}") "," ENTRY("FromClaim", "\"c\"", "d",
                                                         ",\"memory\":{\"onExhausted\":"
                                                         "\"Fail\"}") "]";
    assert_int_equal(resolve(text, "a", &t, NULL), 0);
    assert_int_equal(t.wait_s, 30);
    assert_int_equal(resolve(text, "b", &t, NULL), 0);
    assert_int_equal(t.wait_s, 7);
    assert_int_equal(resolve(text, "c", &t, NULL), 0);
    assert_int_equal(t.wait_s, 0);
}

#define SPILL(limit) ",\"memory\":{\"spillToHost\":{\"limit\":\"" limit "\"}}"

static void resolve_spill_of_the_class_is_tuned_and_taken_back_by_the_claim(void **state)
{
    (void)state;
    struct alq_share_tuning t;
    static const char text[] = "[" ENTRY("FromClass", "", "d", SPILL("8Gi")) "," ENTRY(
        "FromClaim", "\"b\"", "d", SPILL("500M")) "," ENTRY("FromClaim", "\"c\"", "d",
                                                            SPILL("0")) "]";
    assert_int_equal(resolve(text, "a", &t, NULL), 0);
    assert_int_equal(t.spill_bytes, 8ull << 30);
    assert_int_equal(resolve(text, "b", &t, NULL), 0);
    assert_int_equal(t.spill_bytes, 500000000);
    assert_int_equal(resolve(text, "c", &t, NULL), 0);
    assert_int_equal(t.spill_bytes, 0);
}

static void resolve_leaves_other_drivers_parameters_alone(void **state)
{
    (void)state;
    struct alq_share_tuning t;
    assert_int_equal(resolve("[" ENTRY("FromClaim", "", "other", ",\"what\":1") "]", "a", &t, NULL),
                     0);
    assert_int_equal(t.policy, 0);
}

static void resolve_of_several_of_one_source_lets_the_later_win(void **state)
{
    (void)state;
    struct alq_share_tuning t;
    static const char text[] =
        "[" ENTRY("FromClaim", "\"a\"", "d", ",\"compute\":{\"policy\":\"Burst\",\"priority\":1}") "," ENTRY(
            "FromClaim", "", "d",
            ",\"compute\":{\"policy\":\"Hard\"}") "," ENTRY("FromClaim", "\"b\",\"c/x\"", "d",
                                                            ",\"logLevel\":\"debug\"") "," ENTRY("F"
                                                                                                 "r"
                                                                                                 "o"
                                                                                                 "m"
                                                                                                 "C"
                                                                                                 "l"
                                                                                                 "a"
                                                                                                 "s"
                                                                                                 "s",
                                                                                                 "",
                                                                                                 "d",
                                                                                                 ","
                                                                                                 "\"co"
                                                                                                 "m"
                                                                                                 "p"
                                                                                                 "u"
                                                                                                 "t"
                                                                                                 "e"
                                                                                                 "\":{"
                                                                                                 "\"pol"
                                                                                                 "i"
                                                                                                 "c"
                                                                                                 "y"
                                                                                                 "\""
                                                                                                 ":"
                                                                                                 "\"No"
                                                                                                 "n"
                                                                                                 "e"
                                                                                                 "\"}"
                                                                                                 ","
                                                                                                 "\"lo"
                                                                                                 "g"
                                                                                                 "L"
                                                                                                 "e"
                                                                                                 "v"
                                                                                                 "e"
                                                                                                 "l"
                                                                                                 "\":"
                                                                                                 "\"war"
                                                                                                 "n"
                                                                                                 "\"") "]";
    static const struct {
        const char *request;
        uint32_t policy, priority, log_level;
    } wants[] = {{"a", ALQ_POLICY_HARD, 1, 2},   {"b", ALQ_POLICY_HARD, 0, 4},
                 {"b/y", ALQ_POLICY_HARD, 0, 4}, {"c/x", ALQ_POLICY_HARD, 0, 4},
                 {"c/y", ALQ_POLICY_HARD, 0, 2}, {"c", ALQ_POLICY_HARD, 0, 2},
                 {"ab", ALQ_POLICY_HARD, 0, 2}};
    for (size_t i = 0; i < sizeof(wants) / sizeof(wants[0]); i++) {
        assert_int_equal(resolve(text, wants[i].request, &t, NULL), 0);
        assert_int_equal(t.policy, wants[i].policy);
        assert_int_equal(t.priority, wants[i].priority);
        assert_int_equal(t.log_level, wants[i].log_level);
    }
}

static void resolve_refuses_whatever_it_does_not_know(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {",\"computer\":{}", "computer"},
        {",\"compute\":[]", "compute: not an object"},
        {",\"compute\":{\"policy\":\"hard\"}", "\"hard\" is none of Hard, Burst, None"},
        {",\"compute\":{\"policy\":1}", "compute.policy"},
        {",\"compute\":{\"polcy\":\"Hard\"}", "polcy"},
        {",\"compute\":{\"priority\":2}", "compute.priority: neither 0 nor 1"},
        {",\"compute\":{\"priority\":\"1\"}", "compute.priority"},
        {",\"compute\":{\"priority\":0.5}", "compute.priority"},
        {",\"memory\":{\"onExhausted\":\"Swap\"}", "\"Swap\" is none of Fail, Wait"},
        {",\"memory\":{\"waitSeconds\":5}", "only with memory.onExhausted: Wait"},
        {",\"memory\":{\"onExhausted\":\"Wait\",\"waitSeconds\":0}", "from 1 to 3600"},
        {",\"memory\":{\"waitSeconds\":-1}", "memory.waitSeconds"},
        {",\"memory\":{\"spillToHost\":\"1Gi\"}", "spillToHost: not an object"},
        {",\"memory\":{\"spillToHost\":{}}", "memory.spillToHost.limit: not a quantity"},
        {",\"memory\":{\"spillToHost\":{\"limit\":8}}", "memory.spillToHost.limit"},
        {",\"memory\":{\"spillToHost\":{\"limit\":\"8Gx\"}}", "memory.spillToHost.limit"},
        {",\"memory\":{\"spillToHost\":{\"limit\":\"-1\"}}", "memory.spillToHost.limit"},
        {",\"memory\":{\"spillToHost\":{\"limit\":\"8Ei\"}}", "memory.spillToHost.limit"},
        {",\"memory\":{\"spillToHost\":{\"limit\":\"1Gi\",\"max\":\"1\"}}", "max"},
        {",\"logLevel\":\"trace\"", "\"trace\" is none of error, warn, info, debug"},
        {",\"logLevel\":4", "logLevel"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        struct alq_share_tuning t;
        char text[512];
        snprintf(text, sizeof(text), "[" ENTRY("FromClass", "", "d", "%s") "]", bad[i][0]);
        int rc = resolve(text, "a", &t, &err);
        if ((rc != ALQ_EINVAL && rc != ALQ_ERANGE) || !strstr(err.text, bad[i][1]) ||
            !strstr(err.text, "configuration 0 of the device class"))
            fail_msg("%s: %d \"%s\" and not \"%s\"", bad[i][0], rc, err.text, bad[i][1]);
        assert_int_equal(t.policy + t.priority + t.log_level, 0);
    }
}

static void resolve_of_another_kind_or_version_names_the_one_that_is_known(void **state)
{
    (void)state;
    static const char *const parameters[] = {
        "{\"apiVersion\":\"resource.nvidia.com/v1beta1\",\"kind\":\"GpuConfig\"}",
        "{\"apiVersion\":\"config.aliquot.dev/v1\",\"kind\":\"ShareConfig\"}",
        "{\"apiVersion\":\"config.aliquot.dev/v1alpha1\",\"kind\":\"Shareconfig\"}",
        "{\"kind\":\"ShareConfig\"}", "{}"};
    for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        struct alq_share_tuning t;
        char text[512];
        snprintf(text, sizeof(text),
                 "[{\"source\":\"FromClaim\",\"opaque\":{\"driver\":\"d\",\"parameters\":%s}}]",
                 parameters[i]);
        assert_int_equal(resolve(text, "a", &t, &err), ALQ_EINVAL);
        assert_non_null(strstr(err.text, "only config.aliquot.dev/v1alpha1 ShareConfig is known"));
        assert_non_null(strstr(err.text, "of the claim"));
    }
}

static void resolve_of_an_entry_for_another_request_is_not_read(void **state)
{
    (void)state;
    struct alq_share_tuning t;
    struct alq_err err = ALQ_ERR_INIT;
    static const char text[] = "[" ENTRY("FromClaim", "\"other\"", "d", ",\"what\":1") "]";
    assert_int_equal(resolve(text, "a", &t, NULL), 0);
    assert_int_equal(resolve(text, "other/x", &t, &err), ALQ_EINVAL);
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
    static char names[8][32];
    static unsigned next;
    struct alq_claim_spec c = {.share_count = n, .shares = shares};
    snprintf(c.uid, sizeof(c.uid), "%s", uid);
    snprintf(c.namespace_, sizeof(c.namespace_), "ns");
    c.name = names[next++ % 8];
    snprintf(c.name, sizeof(names[0]), "claim-%s", uid);
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

static void room_refused_to_a_whole_gpu_says_so_and_lists_holders_in_order(void **state)
{
    (void)state;
    struct alq_share_spec held[] = {share("g", 10, 10, 0)}, asks[] = {share("g", 1024, 100, 0)};
    struct alq_claim_spec c1 = claim_of("1", held, 1), c2 = claim_of("2", held, 1),
                          c3 = claim_of("3", held, 1), asked = claim_of("a", asks, 1);
    const struct alq_room_holder holders[] = {{&c3, ""}, {&c1, ""}, {&c2, "deleted"}};
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_room_check(&asked, holders, 3, &err), ALQ_EBUSY);
    assert_string_equal(err.text,
                        "no room on hami-g: asked is the whole GPU, left are 994Mi and 70 cores; "
                        "held by ns/claim-2 (deleted), ns/claim-1, ns/claim-3; tried again until "
                        "they are unprepared");
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
        cmocka_unit_test(read_of_every_shape_gives_shares_or_a_clear_error),
        cmocka_unit_test(resolve_lays_the_claim_over_the_class_field_by_field),
        cmocka_unit_test(resolve_wait_of_the_class_is_tuned_and_taken_back_by_the_claim),
        cmocka_unit_test(resolve_spill_of_the_class_is_tuned_and_taken_back_by_the_claim),
        cmocka_unit_test(resolve_leaves_other_drivers_parameters_alone),
        cmocka_unit_test(resolve_of_several_of_one_source_lets_the_later_win),
        cmocka_unit_test(resolve_refuses_whatever_it_does_not_know),
        cmocka_unit_test(resolve_of_another_kind_or_version_names_the_one_that_is_known),
        cmocka_unit_test(resolve_of_an_entry_for_another_request_is_not_read),
        cmocka_unit_test(room_is_exact_to_the_byte_and_the_percent),
        cmocka_unit_test(room_refused_to_a_whole_gpu_says_so_and_lists_holders_in_order),
        cmocka_unit_test(room_counts_all_shares_of_a_gpu_and_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
