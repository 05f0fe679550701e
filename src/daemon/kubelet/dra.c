/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DRAPlugin in both versions, see dra.h. A batch lives until its last claim has ended, also when
 * the call is gone. Replies are packed from protobuf-c structs that borrow everything. Loop thread
 * only.
 */
#include "daemon/kubelet/dra.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "base/utf8.h"
#include "daemon/cdi/cdi.h"
#include "daemon/monitor/metrics.h"
#include "daemon/prepare/prepare.h"
#include "daemon/state/claim_spec.h"
#include "dra.pb-c.h"

#define ALQ_LOG_MODULE "dra"

#define CLAIMS_MAX 1024u /* of one call; the kubelet sends those of one pod */
/* What decoding one request may allocate: 4 MiB of empty claims would otherwise cost 200. */
#define DECODE_MAX_BYTES (32u * 1024 * 1024)

struct service {
    struct alq_dra *dra;
    int has_share_id; /* v1 only */
};

enum mode { MODE_WAIT, MODE_SERVE, MODE_REFUSE };

TAILQ_HEAD(batch_queue, batch);

struct alq_dra {
    const struct alq_config *cfg;
    void (*on_stray)(void *arg);
    void *arg;
    enum mode mode;
    char why[256];               /* MODE_REFUSE */
    struct alq_prepare *prepare; /* MODE_SERVE */
    struct batch_queue waiting, working;
    uint64_t calls;
    struct service v1, v1beta1;
    struct alq_grpc_method methods[5];
};

struct item {
    struct batch *batch;
    struct alq_claim_id id;
    struct alq_claim_spec *claim; /* prepared; NULL for Unprepare or an error */
    char *error;                  /* NULL: success */
};

struct batch {
    TAILQ_ENTRY(batch) link; /* in dra->waiting or dra->working */
    const struct service *service;
    struct alq_grpc_call *call; /* NULL: the caller has gone */
    int is_prepare;
    int64_t came_ns;
    int is_working;
    size_t count;
    size_t missing; /* ends to come, one more while the batch is being started */
    struct item items[];
};

/* ---- memory -------------------------------------------------------------------------
 */

static void *budget_alloc(void *arg, size_t size)
{
    size_t *left = arg;
    if (size > *left)
        return NULL;
    *left -= size;
    return malloc(size);
}

static void budget_free(void *arg, void *p)
{
    (void)arg;
    free(p);
}

/* ---- replies ----------------------------------------------------------------------------------
 */

static char none[] = "";

/* Borrowing view of one prepared claim; ids and devices are the caller's arrays, one per share. */
static void fill_devices(const struct service *service, struct item *item,
                         Alq__Dra__Device *devices, Alq__Dra__Device **pointers,
                         char (*ids)[ALQ_CDI_ID_BYTES], char **texts)
{
    for (uint32_t i = 0; i < item->claim->share_count; i++) {
        struct alq_share_spec *s = &item->claim->shares[i];
        alq_cdi_id(service->dra->cfg, s->share_id, ids[i]);
        texts[2 * i] = s->request;
        texts[2 * i + 1] = ids[i];
        alq__dra__device__init(&devices[i]);
        devices[i].request_names = &texts[2 * i];
        devices[i].n_request_names = 1;
        devices[i].pool_name = item->claim->pool;
        devices[i].device_name = s->device;
        devices[i].cdi_device_ids = &texts[2 * i + 1];
        devices[i].n_cdi_device_ids = 1;
        devices[i].share_id = service->has_share_id ? s->share_uuid : none;
        pointers[i] = &devices[i];
    }
}

struct prepared {
    Alq__Dra__NodePrepareResourcesResponse__ClaimsEntry entry;
    Alq__Dra__NodePrepareResourceResponse response;
    uint32_t first; /* of its devices */
};

static int pack_prepare(struct batch *b, uint8_t **out, size_t *len)
{
    Alq__Dra__NodePrepareResourcesResponse message =
        ALQ__DRA__NODE_PREPARE_RESOURCES_RESPONSE__INIT;
    uint32_t total = 0;
    for (size_t i = 0; i < b->count; i++)
        total += b->items[i].claim ? b->items[i].claim->share_count : 0;
    alq_auto_free struct prepared *claims = calloc(b->count + 1, sizeof(*claims));
    alq_auto_free Alq__Dra__NodePrepareResourcesResponse__ClaimsEntry **entries =
        calloc(b->count + 1, sizeof(*entries));
    alq_auto_free Alq__Dra__Device *devices = calloc(total + 1, sizeof(*devices));
    alq_auto_free Alq__Dra__Device **pointers = calloc(total + 1, sizeof(*pointers));
    alq_auto_free char(*ids)[ALQ_CDI_ID_BYTES] = calloc(total + 1, sizeof(*ids));
    alq_auto_free char **texts = calloc(2 * ((size_t)total + 1), sizeof(*texts));
    if (!claims || !entries || !devices || !pointers || !ids || !texts)
        return -1;
    uint32_t used = 0;
    for (size_t i = 0; i < b->count; i++) {
        struct item *item = &b->items[i];
        struct prepared *c = &claims[i];
        alq__dra__node_prepare_resources_response__claims_entry__init(&c->entry);
        alq__dra__node_prepare_resource_response__init(&c->response);
        c->entry.key = item->id.uid;
        c->entry.value = &c->response;
        if (item->error)
            c->response.error = item->error;
        if (item->claim) {
            fill_devices(b->service, item, devices + used, pointers + used, ids + used,
                         texts + 2 * (size_t)used);
            c->response.devices = pointers + used;
            c->response.n_devices = item->claim->share_count;
            used += item->claim->share_count;
        }
        entries[i] = &c->entry;
    }
    message.claims = entries;
    message.n_claims = b->count;
    *out = malloc(alq__dra__node_prepare_resources_response__get_packed_size(&message) + 1);
    if (!*out)
        return -1;
    *len = alq__dra__node_prepare_resources_response__pack(&message, *out);
    return 0;
}

static int pack_unprepare(struct batch *b, uint8_t **out, size_t *len)
{
    Alq__Dra__NodeUnprepareResourcesResponse message =
        ALQ__DRA__NODE_UNPREPARE_RESOURCES_RESPONSE__INIT;
    alq_auto_free Alq__Dra__NodeUnprepareResourcesResponse__ClaimsEntry *claims =
        calloc(b->count + 1, sizeof(*claims));
    alq_auto_free Alq__Dra__NodeUnprepareResourcesResponse__ClaimsEntry **entries =
        calloc(b->count + 1, sizeof(*entries));
    alq_auto_free Alq__Dra__NodeUnprepareResourceResponse *responses =
        calloc(b->count + 1, sizeof(*responses));
    if (!claims || !entries || !responses)
        return -1;
    for (size_t i = 0; i < b->count; i++) {
        alq__dra__node_unprepare_resources_response__claims_entry__init(&claims[i]);
        alq__dra__node_unprepare_resource_response__init(&responses[i]);
        claims[i].key = b->items[i].id.uid;
        claims[i].value = &responses[i];
        if (b->items[i].error)
            responses[i].error = b->items[i].error;
        entries[i] = &claims[i];
    }
    message.claims = entries;
    message.n_claims = b->count;
    *out = malloc(alq__dra__node_unprepare_resources_response__get_packed_size(&message) + 1);
    if (!*out)
        return -1;
    *len = alq__dra__node_unprepare_resources_response__pack(&message, *out);
    return 0;
}

/* ---- batches ----------------------------------------------------------------------------------
 */

static void batch_free(struct batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        alq_claim_spec_free(b->items[i].claim);
        free(b->items[i].error);
    }
    free(b);
}

static void batch_put(struct batch *b)
{
    if (--b->missing)
        return;
    TAILQ_REMOVE(&b->service->dra->working, b, link);
    if (b->call) {
        alq_auto_free uint8_t *message = NULL;
        size_t len = 0;
        int rc =
            b->is_prepare ? pack_prepare(b, &message, &len) : pack_unprepare(b, &message, &len);
        if (rc)
            alq_grpc_fail(b->call, ALQ_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        else
            alq_grpc_reply(b->call, message, len);
    }
    batch_free(b);
}

static void count(const struct batch *b, const struct alq_err *err)
{
    const char *method = b->is_prepare ? "prepare" : "unprepare";
    const char *kind = err ? alq_err_name(err->code) : "ok";
    alq_metric_add(ALQ_METRIC_REQUESTS, 1, method, kind);
    alq_metric_observe(ALQ_METRIC_REQUEST_DURATION, alq_now_ns() - b->came_ns, method, NULL);
    if (err)
        alq_metric_add(ALQ_METRIC_ERRORS, 1, kind, NULL);
}

static void on_item(void *arg, const struct alq_claim_spec *claim, const struct alq_err *err)
{
    static const char no_memory[] = "out of memory";
    struct item *item = arg;
    count(item->batch, err);
    if (!err && item->batch->is_prepare && !(item->claim = alq_claim_spec_dup(claim)))
        item->error = strdup(no_memory);
    if (err && (item->error = strdup(err->text)))
        alq_utf8_clean(item->error);
    batch_put(item->batch);
}

static void on_cancel(void *arg)
{
    struct batch *b = arg;
    b->call = NULL;
    if (b->is_working)
        return;
    TAILQ_REMOVE(&b->service->dra->waiting, b, link);
    batch_free(b);
}

/* Ends the call, not the batch. */
static void batch_fail(struct batch *b, const char *why)
{
    struct alq_grpc_call *call = b->call;
    b->call = NULL;
    if (!call)
        return;
    alq_grpc_on_cancel(call, NULL, NULL);
    alq_grpc_fail(call, ALQ_GRPC_UNAVAILABLE, "%s", why);
}

static void batch_run(struct batch *b)
{
    struct alq_dra *dra = b->service->dra;
    int64_t deadline_ns = alq_grpc_call_deadline_ns(b->call);
    b->is_working = 1;
    TAILQ_INSERT_TAIL(&dra->working, b, link);
    b->missing = b->count + 1;
    for (size_t i = 0; i < b->count; i++) {
        struct item *item = &b->items[i];
        if (b->is_prepare)
            alq_prepare_claim(dra->prepare, &item->id, deadline_ns, on_item, item);
        else
            alq_unprepare_claim(dra->prepare, &item->id, on_item, item);
    }
    batch_put(b);
}

static struct batch *batch_new(const struct service *service, struct alq_grpc_call *call,
                               int is_prepare, Alq__Dra__Claim *const *claims, size_t count)
{
    struct batch *b = calloc(1, sizeof(*b) + count * sizeof(b->items[0]));
    if (!b)
        return NULL;
    b->service = service;
    b->call = call;
    b->is_prepare = is_prepare;
    b->came_ns = alq_now_ns();
    for (size_t i = 0; i < count; i++) {
        struct item *item = &b->items[b->count];
        size_t known = 0;
        /* What is cut here is too long to be a name, and will not be found. */
        snprintf(item->id.uid, sizeof(item->id.uid), "%s", claims[i]->uid);
        alq_utf8_clean(item->id.uid);
        while (known < b->count && strcmp(b->items[known].id.uid, item->id.uid) != 0)
            known++;
        if (known < b->count)
            continue; /* the reply is a map by UID: once is enough */
        item->batch = b;
        snprintf(item->id.namespace_, sizeof(item->id.namespace_), "%s", claims[i]->namespace_);
        snprintf(item->id.name, sizeof(item->id.name), "%s", claims[i]->name);
        b->count++;
    }
    return b;
}

static void start(const struct service *service, struct alq_grpc_call *call, int is_prepare,
                  const uint8_t *message, size_t len)
{
    struct alq_dra *dra = service->dra;
    dra->calls++;
    if (dra->mode == MODE_REFUSE && dra->on_stray)
        dra->on_stray(dra->arg);
    if (dra->mode == MODE_REFUSE) {
        alq_grpc_fail(call, ALQ_GRPC_UNAVAILABLE, "%s", dra->why);
        return;
    }
    size_t left = DECODE_MAX_BYTES;
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &left};
    /* Both requests are the same list of claims. */
    Alq__Dra__NodePrepareResourcesRequest *request =
        alq__dra__node_prepare_resources_request__unpack(&allocator, len, message);
    if (!request) {
        alq_grpc_fail(call, ALQ_GRPC_INTERNAL, "request cannot be decoded");
        return;
    }
    struct batch *b = NULL;
    if (request->n_claims > CLAIMS_MAX)
        alq_grpc_fail(call, ALQ_GRPC_INVALID_ARGUMENT, "%zu claims; at most %u are taken",
                      request->n_claims, CLAIMS_MAX);
    else if (!(b = batch_new(service, call, is_prepare, request->claims, request->n_claims)))
        alq_grpc_fail(call, ALQ_GRPC_RESOURCE_EXHAUSTED, "out of memory");
    alq__dra__node_prepare_resources_request__free_unpacked(request, &allocator);
    if (!b)
        return;
    alq_grpc_on_cancel(call, on_cancel, b);
    if (dra->mode == MODE_SERVE)
        batch_run(b);
    else
        TAILQ_INSERT_TAIL(&dra->waiting, b, link);
}

static void node_prepare(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    start(arg, call, 1, message, len);
}

static void node_unprepare(void *arg, struct alq_grpc_call *call, const uint8_t *message,
                           size_t len)
{
    start(arg, call, 0, message, len);
}

/* ---- what becomes of calls --------------------------------------------------------------------
 */

void alq_dra_wait(struct alq_dra *dra)
{
    dra->mode = MODE_WAIT;
    dra->prepare = NULL;
}

void alq_dra_serve(struct alq_dra *dra, struct alq_prepare *prepare)
{
    dra->mode = MODE_SERVE;
    dra->prepare = prepare;
    for (struct batch *b; (b = TAILQ_FIRST(&dra->waiting));) {
        TAILQ_REMOVE(&dra->waiting, b, link);
        batch_run(b);
    }
}

void alq_dra_refuse(struct alq_dra *dra, const char *why)
{
    dra->mode = MODE_REFUSE;
    dra->prepare = NULL;
    snprintf(dra->why, sizeof(dra->why), "%s", why);
    for (struct batch *b; (b = TAILQ_FIRST(&dra->waiting));) {
        TAILQ_REMOVE(&dra->waiting, b, link);
        batch_fail(b, why);
        batch_free(b);
    }
}

void alq_dra_give_up(struct alq_dra *dra, const char *why)
{
    struct batch *b;
    TAILQ_FOREACH(b, &dra->working, link)
    batch_fail(b, why);
}

static unsigned queue_length(const struct batch_queue *queue)
{
    unsigned n = 0;
    const struct batch *b;
    TAILQ_FOREACH(b, queue, link)
    n++;
    return n;
}

unsigned alq_dra_waiting(const struct alq_dra *dra)
{
    return queue_length(&dra->waiting);
}

unsigned alq_dra_working(const struct alq_dra *dra)
{
    return queue_length(&dra->working);
}

uint64_t alq_dra_calls(const struct alq_dra *dra)
{
    return dra->calls;
}

/* ---- life -------------------------------------------------------------------------------------
 */

struct alq_dra *alq_dra_new(const struct alq_config *cfg, void (*on_stray)(void *arg), void *arg,
                            struct alq_err *err)
{
    struct alq_dra *dra = calloc(1, sizeof(*dra));
    if (!dra) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    dra->cfg = cfg;
    dra->on_stray = on_stray;
    dra->arg = arg;
    TAILQ_INIT(&dra->waiting);
    TAILQ_INIT(&dra->working);
    dra->v1 = (struct service){dra, 1};
    dra->v1beta1 = (struct service){dra, 0};
#define PATH(version, method) "/k8s.io.kubelet.pkg.apis.dra." version ".DRAPlugin/" method
    const struct alq_grpc_method methods[] = {
        {PATH("v1", "NodePrepareResources"), node_prepare, &dra->v1},
        {PATH("v1", "NodeUnprepareResources"), node_unprepare, &dra->v1},
        {PATH("v1beta1", "NodePrepareResources"), node_prepare, &dra->v1beta1},
        {PATH("v1beta1", "NodeUnprepareResources"), node_unprepare, &dra->v1beta1},
        {NULL, NULL, NULL}};
    memcpy(dra->methods, methods, sizeof(methods));
    alq_metric_add(ALQ_METRIC_REQUESTS, 0, "prepare", "ok");
    alq_metric_add(ALQ_METRIC_REQUESTS, 0, "unprepare", "ok");
    return dra;
}

void alq_dra_free(struct alq_dra *dra)
{
    free(dra);
}

const struct alq_grpc_method *alq_dra_methods(const struct alq_dra *dra)
{
    return dra->methods;
}
