/* SPDX-License-Identifier: Apache-2.0 */
/* The node of prepare_world.h. alq_files_* and alq_work_submit are those of this file: the linker
 * takes them before the library's. One thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "daemon/state/claim_spec.h"
#include "prepare_world.h"

#define DRIVER "hami-core-gpu.project-hami.io"
#define MIB (1024ull * 1024)
#define BOOT "this-boot"

struct world world;

static char driver_name[] = DRIVER, node_name[] = "node-a";
static struct alq_config cfg = {.driver_name = driver_name, .node_name = node_name};
static struct alq_gpu gpus[] = {
    {.uuid = "GPU-0", .name = "hami-gpu-0", .memory_promisable_bytes = WORLD_GPU_MIB * MIB},
    {.uuid = "GPU-1",
     .name = "hami-gpu-1",
     .minor = 1,
     .memory_promisable_bytes = WORLD_GPU_MIB * MIB}};

static unsigned number_of(const char *uid)
{
    return (unsigned)strtoul(uid + 1, NULL, 10);
}

static struct alq_claim_id id_of(unsigned n)
{
    struct alq_claim_id id = {.namespace_ = "ns"};
    snprintf(id.uid, sizeof(id.uid), "u%u", n);
    snprintf(id.name, sizeof(id.name), "c%u", n);
    return id;
}

/* ---- files and workers ------------------------------------------------------------------------
 */

int alq_files_prepare(struct alq_files *files, const struct alq_claim_spec *claim, int has_record,
                      struct alq_err *err)
{
    (void)files;
    struct world_files *f = &world.files[number_of(claim->uid)];
    if (world.is_failing) {
        if (!has_record)
            memset(f, 0, sizeof(*f));
        return alq_err_set(err, ALQ_EIO, "disk full");
    }
    assert_true(!has_record || f->is_made);
    *f = (struct world_files){.is_made = 1, .cores = alq_share_cores_in_force(&claim->shares[0])};
    return 0;
}

int alq_files_limit(struct alq_files *files, const struct alq_claim_spec *claim,
                    const struct alq_claim_spec *before, struct alq_err *err)
{
    (void)files;
    (void)before;
    if (world.is_failing)
        return alq_err_set(err, ALQ_EIO, "disk full");
    world.files[number_of(claim->uid)].cores = alq_share_cores_in_force(&claim->shares[0]);
    return 0;
}

int alq_files_is_found(const struct alq_files *files, const char *uid)
{
    (void)files;
    (void)uid;
    return 0;
}

int alq_files_unprepare(struct alq_files *files, const char *uid, struct alq_err *err)
{
    (void)files;
    if (world.is_failing)
        return alq_err_set(err, ALQ_EIO, "read-only");
    memset(&world.files[number_of(uid)], 0, sizeof(struct world_files));
    return 0;
}

void alq_files_sweep(struct alq_files *files, const struct alq_files_sweeper *sweeper)
{
    (void)files;
    for (unsigned n = 0; n < WORLD_CLAIMS; n++) {
        if (!world.files[n].is_made || sweeper->is_kept(sweeper->arg, id_of(n).uid))
            continue;
        memset(&world.files[n], 0, sizeof(world.files[n]));
        world.swept++;
    }
}

void alq_work_submit(struct alq_work *work, struct alq_job *job)
{
    (void)work;
    struct alq_operation *op = (struct alq_operation *)job;
    for (unsigned i = 0; i < world.job_count; i++)
        assert_ptr_not_equal(world.jobs[i]->claim, op->claim); /* one at a time per claim */
    assert_true(world.job_count < WORLD_CALLS);
    world.jobs[world.job_count++] = op;
}

void world_work(unsigned i, int fails)
{
    struct alq_job *job = &world.jobs[i]->job;
    memmove(&world.jobs[i], &world.jobs[i + 1], (world.job_count - i - 1) * sizeof(world.jobs[0]));
    world.job_count--;
    world.is_failing = fails;
    job->run(job);
    world.is_failing = 0;
    job->done(job);
}

/* ---- time -------------------------------------------------------------------------------------
 */

struct alq_timer {
    void (*cb)(void *arg);
    void *arg;
};

static struct alq_timer timer;

static int64_t now_ns(void *arg)
{
    (void)arg;
    return world.now_ns;
}

static struct alq_timer *timer_new(void *arg, void (*cb)(void *cb_arg), void *cb_arg)
{
    (void)arg;
    timer = (struct alq_timer){cb, cb_arg};
    world.timer_ns = ALQ_NEVER;
    return &timer;
}

static void timer_set(struct alq_timer *t, int64_t at_ns)
{
    (void)t;
    world.timer_ns = at_ns;
}

static void timer_free(struct alq_timer *t)
{
    (void)t;
}

static void take_get(unsigned i)
{
    memmove(&world.gets[i], &world.gets[i + 1], (world.get_count - i - 1) * sizeof(world.gets[0]));
    world.get_count--;
}

void world_advance(int64_t ns)
{
    int64_t end_ns = world.now_ns + ns;
    for (unsigned loops = 0;; loops++) {
        unsigned first = 0;
        int64_t next_ns = world.timer_ns;
        assert_true(loops < 10000);
        for (unsigned i = 0; i < world.get_count; i++)
            if (world.gets[i].timeout_ns < world.gets[first].timeout_ns)
                first = i;
        int is_get = world.get_count && world.gets[first].timeout_ns < next_ns;
        if (is_get)
            next_ns = world.gets[first].timeout_ns;
        if (next_ns > end_ns)
            break;
        if (next_ns > world.now_ns)
            world.now_ns = next_ns;
        if (is_get) {
            struct world_get get = world.gets[first];
            struct alq_err err = ALQ_ERR_INIT;
            alq_err_set(&err, ALQ_ETIMEDOUT, "no answer");
            take_get(first);
            get.cb(get.arg, 0, NULL, &err);
        } else {
            world.timer_ns = ALQ_NEVER;
            timer.cb(timer.arg);
        }
    }
    world.now_ns = end_ns;
}

/* ---- the API server ---------------------------------------------------------------------------
 */

static void *get(void *arg, const char *namespace_, const char *name, long timeout_ms,
                 void (*cb)(void *cb_arg, int status, json_t *body, const struct alq_err *err),
                 void *cb_arg, struct alq_err *err)
{
    (void)arg;
    (void)err;
    assert_string_equal(namespace_, "ns");
    assert_true(timeout_ms > 0 && world.get_count < WORLD_CALLS);
    world.gets[world.get_count++] = (struct world_get){number_of(name), ++world.get_numbers,
                                                       world.now_ns + timeout_ms * MS, cb, cb_arg};
    return (void *)(uintptr_t)world.get_numbers;
}

static void cancel(void *call)
{
    for (unsigned i = 0; i < world.get_count; i++) {
        if (world.gets[i].number != (uintptr_t)call)
            continue;
        take_get(i);
        return;
    }
    fail_msg("a call is cancelled that has ended");
}

static json_t *result_new(const struct world_object *o, unsigned gpu, unsigned cores,
                          unsigned memory_mib)
{
    json_t *result =
        json_pack("{s:s, s:s, s:s, s:s*, s:b}", "request", "gpu", "driver", DRIVER, "pool",
                  "node-a", "device", gpus[gpu].name, "adminAccess", o->is_admin);
    json_object_set_new(result, "shareID", json_sprintf("share-%u", o->share));
    if (memory_mib)
        json_object_set_new(result, "consumedCapacity",
                            json_pack("{s:o, s:o}", "cores", json_sprintf("%u", cores), "memory",
                                      json_sprintf("%uMi", memory_mib)));
    return result;
}

static json_t *object_new(unsigned n)
{
    const struct world_object *o = &world.objects[n];
    json_t *results = json_array();
    json_array_append_new(results, result_new(o, o->gpu, o->cores, o->memory_mib));
    if (o->also_mib)
        json_array_append_new(results, result_new(o, 1 - o->gpu, 0, o->also_mib));
    json_t *status = json_object();
    if (o->is_unallocated)
        json_decref(results);
    else
        json_object_set_new(status, "allocation",
                            json_pack("{s:{s:o}}", "devices", "results", results));
    if (!o->is_unreserved)
        json_object_set_new(status, "reservedFor", json_pack("[{s:s}]", "uid", "pod"));
    return json_pack("{s:{s:s, s:o, s:o}, s:o}", "metadata", "namespace", "ns", "name",
                     json_sprintf("c%u", n), "uid",
                     json_sprintf(o->is_replaced ? "new%u" : "u%u", n), "status", status);
}

void world_answer(unsigned i)
{
    struct world_get g = world.gets[i];
    const struct world_object *o = &world.objects[g.n];
    struct alq_err err = ALQ_ERR_INIT;
    json_t *body = NULL;
    int status = o->status ? o->status : o->exists ? 200 : 404;
    take_get(i);
    if (status == 200)
        body = object_new(g.n);
    else if (!o->status)
        body = json_pack("{s:s, s:s, s:{s:o}}", "kind", "Status", "reason", "NotFound", "details",
                         "name", json_sprintf("c%u", g.n));
    if (status != 200)
        alq_err_set(&err, status == 404 ? ALQ_ENOENT : ALQ_EAGAIN, "server says %d", status);
    g.cb(g.arg, status > 0 ? status : 0, body, err.code ? &err : NULL);
    json_decref(body);
}

/* ---- the kubelet ------------------------------------------------------------------------------
 */

static void on_end(void *arg, const struct alq_claim_spec *claim, const struct alq_err *err)
{
    struct world_call *call = arg;
    call->answers++;
    call->order = (int)++world.answered;
    call->answered_ns = world.now_ns;
    call->code = err ? err->code : 0;
    snprintf(call->text, sizeof(call->text), "%s", err ? err->text : "");
    if (!err && call->is_prepare) {
        assert_int_equal(number_of(claim->uid), call->n);
        call->cores = claim->shares[0].cores_pct;
        assert_true(world.files[call->n].is_made);
        assert_int_equal(world.files[call->n].cores, alq_share_cores_in_force(&claim->shares[0]));
    } else if (!err) {
        assert_null(claim);
        assert_false(world.files[call->n].is_made);
    }
}

static struct world_call *call_new(unsigned n, int is_prepare)
{
    assert_true(world.call_count < WORLD_CALLS);
    struct world_call *call = &world.calls[world.call_count++];
    *call = (struct world_call){.n = n, .is_prepare = is_prepare, .get = world.get_numbers + 1};
    return call;
}

struct world_call *world_prepare(unsigned n, int64_t deadline_in_ns)
{
    struct world_call *call = call_new(n, 1);
    struct alq_claim_id id = id_of(n);
    alq_prepare_claim(world.prepare, &id, world.now_ns + deadline_in_ns, on_end, call);
    return call;
}

struct world_call *world_unprepare(unsigned n)
{
    struct world_call *call = call_new(n, 0);
    struct alq_claim_id id = id_of(n);
    alq_unprepare_claim(world.prepare, &id, on_end, call);
    return call;
}

struct world_call *world_prepared(unsigned n)
{
    struct world_call *call = world_prepare(n, 45 * SECOND);
    world_settle();
    assert_int_equal(call->answers, 1);
    assert_string_equal(call->text, "");
    return call;
}

struct world_call *world_unprepared(unsigned n)
{
    struct world_call *call = world_unprepare(n);
    world_settle();
    assert_int_equal(call->answers, 1);
    assert_string_equal(call->text, "");
    return call;
}

void world_settle(void)
{
    while (world.get_count || world.job_count) {
        if (world.get_count)
            world_answer(0);
        else
            world_work(0, 0);
    }
}

/* ---- life -------------------------------------------------------------------------------------
 */

void world_set_gpus(unsigned count)
{
    const struct alq_gpu_list list = {gpus, count};
    alq_prepare_set_gpus(world.prepare, &list, NULL);
}

void world_start_blind(void)
{
    const struct alq_clock clock = {now_ns, timer_new, timer_set, timer_free, NULL};
    const struct alq_claim_source source = {get, cancel, NULL};
    memset(&world, 0, offsetof(struct world, calls));
    world.now_ns = 1000 * SECOND;
    alq_log_init(ALQ_LOG_ERROR, ALQ_LOG_TEXT, 2);
    for (unsigned n = 0; n < WORLD_CLAIMS; n++)
        world.objects[n] =
            (struct world_object){.exists = 1, .cores = 10, .memory_mib = 10, .share = n};
    world.prepare = alq_prepare_new(&cfg, &clock, NULL, NULL, &source, BOOT, NULL);
    assert_non_null(world.prepare);
}

void world_begin(void)
{
    alq_prepare_sweep(world.prepare);
    alq_prepare_start(world.prepare);
    world_set_gpus(2);
}

void world_start(void)
{
    world_start_blind();
    world_begin();
}

void world_adopt(unsigned n, int is_this_boot, enum alq_record_state state)
{
    const struct world_object *o = &world.objects[n];
    struct alq_share_spec share = {.gpu_memory_bytes = WORLD_GPU_MIB * MIB,
                                   .memory_bytes = o->memory_mib * MIB,
                                   .cores_pct = o->cores,
                                   .request = "gpu"};
    struct alq_claim_id id = id_of(n);
    char pool[] = "node-a";
    struct alq_record record = {
        .state = state,
        .claim = {.name = id.name, .pool = pool, .share_count = 1, .shares = &share}};
    snprintf(share.share_id, sizeof(share.share_id), "u%u-0", n);
    snprintf(share.gpu_uuid, sizeof(share.gpu_uuid), "%s", gpus[o->gpu].uuid);
    snprintf(share.device, sizeof(share.device), "%s", gpus[o->gpu].name);
    snprintf(share.share_uuid, sizeof(share.share_uuid), "share-%u", o->share);
    share.gpu_minor = gpus[o->gpu].minor;
    snprintf(record.boot_id, sizeof(record.boot_id), "%s", is_this_boot ? BOOT : "another");
    snprintf(record.claim.uid, sizeof(record.claim.uid), "%s", id.uid);
    snprintf(record.claim.namespace_, sizeof(record.claim.namespace_), "ns");
    world.files[n] = (struct world_files){.is_made = 1, .cores = o->cores};
    assert_int_equal(alq_prepare_adopt(world.prepare, &record, NULL), 0);
}

void world_stop(void)
{
    while (world.job_count)
        world_work(0, 0); /* as alq_work_free does */
    alq_prepare_free(world.prepare);
    assert_int_equal(world.get_count, 0);
    for (unsigned i = 0; i < world.call_count; i++)
        assert_int_equal(world.calls[i].answers, 1);
}

unsigned world_gets_of(unsigned n)
{
    unsigned count = 0;
    for (unsigned i = 0; i < world.get_count; i++)
        count += world.gets[i].n == n;
    return count;
}

static uint64_t promised(unsigned gpu, int is_cores)
{
    uint64_t sum = 0;
    const struct alq_claim *claim;
    LIST_FOREACH(claim, &world.prepare->claims.all, link)
    for (uint32_t i = 0; claim->spec && i < claim->spec->share_count; i++) {
        const struct alq_share_spec *s = &claim->spec->shares[i];
        if (!s->is_admin && !strcmp(s->gpu_uuid, gpus[gpu].uuid))
            sum += is_cores ? s->cores_pct : s->memory_bytes / MIB;
    }
    return sum;
}

unsigned world_cores(unsigned gpu)
{
    return (unsigned)promised(gpu, 1);
}

unsigned world_mib(unsigned gpu)
{
    return (unsigned)promised(gpu, 0);
}
