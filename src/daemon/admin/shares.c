/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs, claims and shares as JSON, see shares.h. Loop thread only.
 */
#include "daemon/admin/shares.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/quantity.h"
#include "daemon/claim_log.h"
#include "daemon/monitor/monitor.h"
#include "daemon/monitor/view.h"
#include "daemon/prepare/prepare.h"
#include "daemon/state/claim_spec.h"

#define SHARES_PATH "/v1/shares/"

static const char *const policies[] = {"Hard", "Burst", "None"};

static struct alq_prepare *need_state(struct alq_http_call *call,
                                      const struct alq_admin_sources *from)
{
    struct alq_prepare *prepare = alq_node_prepare(from->node);
    if (!prepare)
        alq_http_fail(call, 503, "this instance has not got the node's state (%s)",
                      "another one has it, or it is being opened");
    return prepare;
}

/* ---- GPUs -------------------------------------------------------------------------------------
 */

struct promises {
    const char *uuid;
    uint64_t memory_bytes, cores_pct, shares;
};

static void add_promises(void *arg, const struct alq_claim_spec *claim, int is_prepared,
                         unsigned removals_failed)
{
    (void)is_prepared;
    (void)removals_failed;
    struct promises *sum = arg;
    for (uint32_t i = 0; i < claim->share_count; i++) {
        const struct alq_share_spec *s = &claim->shares[i];
        if (s->is_admin || strcmp(s->gpu_uuid, sum->uuid) != 0)
            continue;
        sum->memory_bytes += s->memory_bytes;
        sum->cores_pct += s->cores_pct;
        sum->shares++;
    }
}

static json_t *gpu_json(const struct alq_gpu *gpu, const struct alq_admin_sources *from,
                        const struct alq_prepare *prepare)
{
    const struct alq_fault *fault = alq_gpu_fault(gpu);
    struct promises sum = {.uuid = gpu->uuid};
    alq_prepare_each_state(prepare, add_promises, &sum);
    json_t *out =
        json_pack("{s:s, s:s, s:i, s:s, s:s, s:s, s:I, s:I, s:{s:I, s:I, s:I}, s:s*}", "device",
                  gpu->name, "uuid", gpu->uuid, "minor", (int)gpu->minor, "product",
                  gpu->product_name, "pciBusID", gpu->pci_bus_id, "driverVersion",
                  gpu->driver_version_raw, "memoryTotalBytes", (json_int_t)gpu->memory_total_bytes,
                  "memoryPromisableBytes", (json_int_t)gpu->memory_promisable_bytes, "promised",
                  "memoryBytes", (json_int_t)sum.memory_bytes, "cores", (json_int_t)sum.cores_pct,
                  "shares", (json_int_t)sum.shares, "fault", fault ? fault->reason : NULL);
    if (out && from->monitor)
        alq_monitor_add_load(from->monitor, gpu->uuid, out);
    return out;
}

static void on_gpus(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    (void)request;
    const struct alq_admin_sources *from = arg;
    const struct alq_prepare *prepare = need_state(call, from);
    if (!prepare)
        return;
    if (from->monitor)
        alq_monitor_look(from->monitor);
    struct alq_err why = ALQ_ERR_INIT;
    const struct alq_gpu_list *gpus = alq_prepare_gpus(prepare, &why);
    json_t *list = json_array();
    for (size_t i = 0; i < gpus->count; i++)
        json_array_append_new(list, gpu_json(&gpus->gpus[i], from, prepare));
    alq_admin_answer(call, 200,
                     json_pack("{s:o, s:s*}", "gpus", list, "error", why.code ? why.text : NULL));
}

/* ---- claims and shares ------------------------------------------------------------------------
 */

static json_t *limits_json(uint64_t memory_bytes, uint32_t cores_pct)
{
    return json_pack("{s:I, s:i}", "memoryBytes", (json_int_t)memory_bytes, "cores",
                     (int)cores_pct);
}

static json_t *share_json(const struct alq_admin_sources *from, const struct alq_claim_spec *claim,
                          const struct alq_share_spec *s)
{
    int is_enforced = alq_share_is_enforced(alq_node_config(from->node), s);
    json_t *share =
        json_pack("{s:s, s:{s:s, s:s, s:s}, s:s, s:s, s:s, s:b, s:b, s:o, s:o, s:b, s:s, s:i}",
                  "id", s->share_id, "claim", "namespace", claim->namespace_, "name", claim->name,
                  "uid", claim->uid, "request", s->request, "device", s->device, "gpu", s->gpu_uuid,
                  "adminAccess", s->is_admin, "enforced", is_enforced, "allocated",
                  limits_json(s->memory_bytes, s->cores_pct), "limits",
                  limits_json(alq_share_memory_in_force(s), alq_share_cores_in_force(s)), "changed",
                  s->limit.is_set, "policy",
                  policies[s->tuning.policy <= ALQ_POLICY_NONE ? s->tuning.policy : 0], "priority",
                  (int)s->tuning.priority);
    if (!share || !from->monitor)
        return share;
    alq_monitor_add_users(from->monitor, s->share_id, share);
    json_t *usage = alq_monitor_usage_json(from->monitor, s->share_id);
    if (usage)
        json_object_set_new(share, "usage", usage);
    return share;
}

struct listing {
    const struct alq_admin_sources *from;
    json_t *list;
    const char *only; /* a share's id; NULL: all */
};

static void list_shares(void *arg, const struct alq_claim_spec *claim, int is_prepared,
                        unsigned removals_failed)
{
    (void)is_prepared;
    (void)removals_failed;
    struct listing *l = arg;
    for (uint32_t i = 0; i < claim->share_count; i++)
        if (!l->only || !strcmp(l->only, claim->shares[i].share_id))
            json_array_append_new(l->list, share_json(l->from, claim, &claim->shares[i]));
}

static void list_claims(void *arg, const struct alq_claim_spec *claim, int is_prepared,
                        unsigned removals_failed)
{
    struct listing *l = arg;
    json_t *ids = json_array();
    for (uint32_t i = 0; i < claim->share_count; i++)
        json_array_append_new(ids, json_string(claim->shares[i].share_id));
    json_array_append_new(l->list, json_pack("{s:s, s:s, s:s, s:b, s:i, s:o}", "namespace",
                                             claim->namespace_, "name", claim->name, "uid",
                                             claim->uid, "prepared", is_prepared, "removalsFailed",
                                             (int)removals_failed, "shares", ids));
}

static void answer_list(struct alq_http_call *call, const struct alq_admin_sources *from,
                        const char *key,
                        void (*each)(void *arg, const struct alq_claim_spec *claim, int is_prepared,
                                     unsigned removals_failed))
{
    const struct alq_prepare *prepare = need_state(call, from);
    if (!prepare)
        return;
    struct listing l = {.from = from, .list = json_array()};
    alq_prepare_each_state(prepare, each, &l);
    alq_admin_answer(call, 200, json_pack("{s:o}", key, l.list));
}

static void on_claims(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    (void)request;
    answer_list(call, arg, "claims", list_claims);
}

static void on_shares(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    (void)request;
    answer_list(call, arg, "shares", list_shares);
}

static void on_processes(void *arg, struct alq_http_call *call,
                         const struct alq_http_request *request)
{
    (void)request;
    const struct alq_admin_sources *from = arg;
    if (!need_state(call, from))
        return;
    json_t *list = from->monitor ? alq_monitor_processes_json(from->monitor) : json_array();
    alq_admin_answer(call, 200, json_pack("{s:o}", "processes", list));
}

static void add_waiting(void *arg, const struct alq_claim_id *id, const json_t *object,
                        const char *waits_for, int64_t waited_ns)
{
    alq_claim_log_add_waiting(arg, id, object, waits_for, waited_ns);
}

static void on_history(void *arg, struct alq_http_call *call,
                       const struct alq_http_request *request)
{
    (void)request;
    const struct alq_admin_sources *from = arg;
    const struct alq_prepare *prepare = alq_node_prepare(from->node);
    json_t *claims = alq_claim_log_json(alq_node_claim_log(from->node));
    if (prepare && claims)
        alq_prepare_each_open(prepare, add_waiting, claims);
    alq_admin_answer(call, 200, json_pack("{s:o}", "claims", claims));
}

/* ---- one share --------------------------------------------------------------------------------
 */

static void answer_share(struct alq_http_call *call, const struct alq_admin_sources *from,
                         const char *id)
{
    const struct alq_prepare *prepare = need_state(call, from);
    if (!prepare)
        return;
    struct listing l = {.from = from, .list = json_array(), .only = id};
    alq_prepare_each_state(prepare, list_shares, &l);
    json_t *share = json_incref(json_array_get(l.list, 0));
    json_decref(l.list);
    if (share)
        alq_admin_answer(call, 200, share);
    else
        alq_http_fail(call, 404, "there is no share %.80s", id);
}

/* A quantity as text ("4Gi"), or bytes as a number. */
static int take_memory(const json_t *value, uint64_t *bytes, struct alq_err *err)
{
    int rc = 0;
    if (json_is_string(value))
        rc = alq_bytes_parse(json_string_value(value), 0, bytes, err);
    else if (json_is_integer(value) && json_integer_value(value) >= 0)
        *bytes = (uint64_t)json_integer_value(value);
    else
        rc = alq_err_set(err, ALQ_EINVAL, "neither a quantity nor a number of bytes");
    return rc ? alq_err_wrap(err, "memory") : 0;
}

/* {"memory": ..., "cores": ...}; null: as allocated. */
static int take_change(const struct alq_http_request *request, struct alq_limit_change *change,
                       struct alq_err *err)
{
    static const char *const keys[] = {"memory", "cores", NULL};
    alq_auto_json json_t *root = NULL;
    int rc = alq_json_parse(request->body, request->body_bytes, "the request", &root, err);
    if (rc)
        return rc;
    if (json_is_null(root)) {
        change->is_reset = 1;
        return 0;
    }
    if (!json_is_object(root) || !json_object_size(root))
        return alq_err_set(err, ALQ_EINVAL, "the request is no object with memory or cores");
    rc = alq_json_only_keys(root, keys, "the request", err);
    const json_t *memory = json_object_get(root, "memory"), *cores = json_object_get(root, "cores");
    change->has_memory = memory != NULL;
    change->has_cores = cores != NULL;
    if (!rc && memory)
        rc = take_memory(memory, &change->memory_bytes, err);
    if (!rc && cores) {
        if (!json_is_integer(cores) || json_integer_value(cores) < 0 ||
            json_integer_value(cores) > ALQ_CORES_ALL)
            return alq_err_set(err, ALQ_EINVAL, "cores: no whole number from 0 to %u",
                               ALQ_CORES_ALL);
        change->cores_pct = (uint32_t)json_integer_value(cores);
    }
    return rc;
}

struct change {
    struct alq_http_call *call;
    const struct alq_admin_sources *from;
    char id[ALQ_SHARE_ID_BYTES];
};

static void on_changed(void *arg, const struct alq_claim_spec *claim, const struct alq_err *err)
{
    (void)claim;
    struct change *c = arg;
    if (err)
        alq_http_fail(c->call, alq_admin_status(err->code), "%s", err->text);
    else
        answer_share(c->call, c->from, c->id);
    free(c);
}

static void on_share(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    const struct alq_admin_sources *from = arg;
    const char *id = request->path + strlen(SHARES_PATH);
    if (!strcmp(request->method, "GET")) {
        answer_share(call, from, id);
        return;
    }
    struct alq_limit_change change = {0};
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_prepare *prepare = need_state(call, from);
    if (!prepare)
        return;
    if (take_change(request, &change, &err)) {
        alq_http_fail(call, alq_admin_status(err.code), "%s", err.text);
        return;
    }
    struct change *c = calloc(1, sizeof(*c));
    if (!c) {
        alq_http_fail(call, 500, "out of memory");
        return;
    }
    c->call = call;
    c->from = from;
    snprintf(c->id, sizeof(c->id), "%s", id);
    alq_limit_share(prepare, id, &change, on_changed, c);
}

/* ---- findings ---------------------------------------------------------------------------------
 */

static void tell_claim(void *arg, const struct alq_claim_spec *claim, int is_prepared,
                       unsigned removals_failed)
{
    (void)is_prepared;
    if (removals_failed)
        alq_findings_add(arg, "claims.removal", ALQ_FINDING_ERROR,
                         "see the log for the file; it is tried again by itself",
                         "the files of claim %s/%s could not be removed, %u times",
                         claim->namespace_, claim->name, removals_failed);
}

static void tell_findings(void *arg, struct alq_findings *f)
{
    const struct alq_prepare *prepare =
        alq_node_prepare(((const struct alq_admin_sources *)arg)->node);
    if (prepare)
        alq_prepare_each_state(prepare, tell_claim, f);
}

int alq_admin_add_shares(struct alq_admin *admin, struct alq_admin_sources *from)
{
    struct alq_http *http = alq_admin_http(admin);
    int rc = alq_http_handle(http, ALQ_HTTP_ADMIN, "GET", "/v1/gpus", on_gpus, from);
    rc |= alq_http_handle(http, ALQ_HTTP_ADMIN, "GET", "/v1/claims", on_claims, from);
    rc |= alq_http_handle(http, ALQ_HTTP_ADMIN, "GET", "/v1/history", on_history, from);
    rc |= alq_http_handle(http, ALQ_HTTP_ADMIN, "GET", "/v1/shares", on_shares, from);
    rc |= alq_http_handle(http, ALQ_HTTP_ADMIN, "GET", "/v1/processes", on_processes, from);
    rc |= alq_http_handle(http, ALQ_HTTP_ADMIN, "GET PUT PATCH", SHARES_PATH, on_share, from);
    return rc | alq_findings_register(alq_admin_findings(admin), tell_findings, from);
}
