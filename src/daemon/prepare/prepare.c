/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims and their operations, see prepare.h. A claim has a queue; only its head runs. The head
 * goes through steps, each of which waits for one thing: the API server, the first reading of the
 * GPUs, room on a GPU, a worker. Loop thread only; workers see copies.
 *
 *   prepare:    get -> (gpus) -> admit -> (room -> look up holders -> admit) -> work -> end
 *   unprepare:  work -> end
 *   rebuild:    work -> get -> end, or -> work (take away) -> end when the claim is gone
 */
#include "daemon/prepare/prepare.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/prepare/room.h"
#include "daemon/state/claim_spec.h"
#include "daemon/work.h"

#define ALQ_LOG_MODULE "prepare"

#define NS_PER_MS 1000000ll
#define DEADLINE_DEFAULT_MS 40000 /* for a caller who named none */
#define GET_MS 20000
#define GPUS_WAIT_MS 10000
#define LOOKUP_MS 3000
#define ANSWER_MS 1000 /* kept for the answer itself */
#define CANCELLED "cancelled by a later NodeUnprepareResources"
#define BUCKETS 1024u /* a power of two */

enum kind { KIND_PREPARE, KIND_UNPREPARE, KIND_REBUILD };

enum step {
    STEP_TURN,   /* another operation of the claim is the head */
    STEP_GET,    /* the API server has been asked for the claim */
    STEP_GPUS,   /* no reading of the GPUs yet */
    STEP_ROOM,   /* others hold what is needed */
    STEP_LOOKUP, /* the holders' claims are being looked up */
    STEP_WORK,   /* a worker makes or removes files */
};

struct claim;

struct operation {
    struct alq_job job;             /* first: jobs are operations */
    TAILQ_ENTRY(operation) link;    /* in claim->operations */
    TAILQ_ENTRY(operation) waiting; /* in prepare->waiting, STEP_GPUS and STEP_ROOM */
    struct alq_prepare *prepare;
    struct claim *claim;
    enum kind kind;
    enum step step;
    struct alq_claim_id id;
    int64_t deadline_ns;
    int64_t started_ns;
    int64_t asked_ns; /* when the API server was asked */
    int64_t api_ns;   /* how long its answer took */
    alq_prepare_cb cb;
    void *arg;
    void *call;          /* STEP_GET */
    struct event *timer; /* STEP_GPUS, STEP_ROOM */
    json_t *object;      /* the claim as the API server gave it */
    unsigned lookups;    /* STEP_LOOKUP: answers that are missing */
    int has_looked_up;
    int has_gone;                /* a holder turned out to be gone: its room will be free */
    uint64_t generation;         /* of the last retry_waiting that saw it */
    int is_cancelled;            /* STEP_WORK: an Unprepare has come */
    int is_removal;              /* the job takes away */
    int has_record;              /* the job repairs what is there already */
    struct alq_claim_spec *spec; /* what the job makes; the worker's while STEP_WORK */
    struct alq_err job_err;
};

struct claim {
    LIST_ENTRY(claim) bucket;
    LIST_ENTRY(claim) link; /* of all */
    char uid[64];
    TAILQ_HEAD(operations, operation) operations;
    struct alq_claim_spec *spec; /* promised: counted against the GPUs; NULL: nothing */
    int is_completed;            /* its files were made in this boot */
    int needs_rebuild;
};

/* One holder being looked up for an operation that found no room. */
struct lookup {
    LIST_ENTRY(lookup) link;
    struct operation *for_op;
    struct alq_claim_id id;
    void *call;
};

LIST_HEAD(claim_list, claim);

struct alq_prepare {
    const struct alq_config *cfg;
    struct event_base *base;
    struct alq_work *work;
    struct alq_files *files;
    struct alq_claim_source source;
    char boot_id[ALQ_BOOT_ID_BYTES];
    struct claim_list buckets[BUCKETS];
    struct claim_list claims;
    unsigned claim_count;
    TAILQ_HEAD(wait_queue, operation) waiting;
    LIST_HEAD(lookup_list, lookup) lookups;
    struct alq_gpu_list gpus;
    int has_reading;
    struct alq_err no_gpus; /* code set: why there is no reading */
    uint64_t generation;
    int is_ending;
};

static void run_next(struct claim *claim);
static void admit(struct operation *op);
static void retry_waiting(struct alq_prepare *p, enum step step);

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* ---- claims -----------------------------------------------------------------------------------
 */

static struct claim_list *bucket_of(struct alq_prepare *p, const char *uid)
{
    uint32_t hash = 2166136261u;
    for (const char *c = uid; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return &p->buckets[hash & (BUCKETS - 1)];
}

static struct claim *claim_find(struct alq_prepare *p, const char *uid)
{
    struct claim *claim;
    LIST_FOREACH(claim, bucket_of(p, uid), bucket)
    if (!strcmp(claim->uid, uid))
        return claim;
    return NULL;
}

static struct claim *claim_get(struct alq_prepare *p, const char *uid)
{
    struct claim *claim = claim_find(p, uid);
    if (claim || !(claim = calloc(1, sizeof(*claim))))
        return claim;
    snprintf(claim->uid, sizeof(claim->uid), "%s", uid);
    TAILQ_INIT(&claim->operations);
    LIST_INSERT_HEAD(bucket_of(p, uid), claim, bucket);
    LIST_INSERT_HEAD(&p->claims, claim, link);
    p->claim_count++;
    return claim;
}

static void claim_free(struct alq_prepare *p, struct claim *claim)
{
    LIST_REMOVE(claim, bucket);
    LIST_REMOVE(claim, link);
    p->claim_count--;
    alq_claim_spec_free(claim->spec);
    free(claim);
}

static void forget_spec(struct claim *claim)
{
    alq_claim_spec_free(alq_steal(&claim->spec));
    claim->is_completed = claim->needs_rebuild = 0;
}

unsigned alq_prepare_count(const struct alq_prepare *prepare)
{
    unsigned n = 0;
    const struct claim *claim;
    LIST_FOREACH(claim, &prepare->claims, link)
    n += claim->spec != NULL;
    return n;
}

/* ---- ends of operations -----------------------------------------------------------------------
 */

static void leave_step(struct operation *op)
{
    struct alq_prepare *p = op->prepare;
    if (op->call)
        p->source.cancel(alq_steal(&op->call));
    if (op->timer)
        event_free(alq_steal(&op->timer));
    if (op->step == STEP_GPUS || op->step == STEP_ROOM)
        TAILQ_REMOVE(&p->waiting, op, waiting);
    for (struct lookup *l = LIST_FIRST(&p->lookups), *next; l; l = next) {
        next = LIST_NEXT(l, link);
        if (l->for_op != op)
            continue;
        p->source.cancel(l->call);
        LIST_REMOVE(l, link);
        free(l);
    }
    op->lookups = 0;
    op->step = STEP_TURN;
}

static void log_end(const struct operation *op, const struct alq_err *err)
{
    static const char *const names[] = {"prepare", "unprepare", "rebuild"};
    char claim[sizeof(op->id.namespace_) + sizeof(op->id.name)], took[24], api[24];
    snprintf(claim, sizeof(claim), "%s/%s", op->id.namespace_, op->id.name);
    snprintf(took, sizeof(took), "%" PRId64, (now_ns() - op->started_ns) / 1000);
    snprintf(api, sizeof(api), "%" PRId64, op->api_ns / 1000);
    const struct alq_log_kv kv[] = {{"claim", claim},
                                    {"uid", op->id.uid},
                                    {"took_us", took},
                                    {"api_us", op->api_ns ? api : NULL},
                                    {NULL, NULL}};
    if (err)
        alq_warn(kv, "%s failed: %s", names[op->kind], err->text);
    else if (op->kind == KIND_REBUILD)
        alq_debug(kv, "rebuilt");
    else
        alq_info(kv, "%sd", names[op->kind]);
}

/* Answers, takes the operation out and lets the claim's next one run. */
static void end(struct operation *op, const struct alq_err *err)
{
    struct alq_prepare *p = op->prepare;
    struct claim *claim = op->claim;
    leave_step(op);
    int was_head = op == TAILQ_FIRST(&claim->operations);
    TAILQ_REMOVE(&claim->operations, op, link);
    log_end(op, err);
    if (op->cb)
        op->cb(op->arg, err ? NULL : claim->spec, err);
    json_decref(op->object);
    alq_claim_spec_free(op->spec);
    free(op);
    if (!was_head || p->is_ending)
        return;
    if (!TAILQ_EMPTY(&claim->operations))
        run_next(claim);
    else if (!claim->spec)
        claim_free(p, claim);
}

static void fail(struct operation *op, struct alq_err *err)
{
    alq_err_wrap(err, "claim %s/%s", op->id.namespace_, op->id.name);
    end(op, err);
}

/* ---- work -------------------------------------------------------------------------------------
 */

static void work_run(struct alq_job *job)
{
    struct operation *op = (struct operation *)job;
    if (op->is_removal)
        alq_files_unprepare(op->prepare->files, op->id.uid, &op->job_err);
    else
        alq_files_prepare(op->prepare->files, op->spec, op->has_record, &op->job_err);
}

static void get_claim(struct operation *op);

static void work_done(struct alq_job *job)
{
    struct operation *op = (struct operation *)job;
    struct alq_prepare *p = op->prepare;
    struct claim *claim = op->claim;
    int has_failed = op->job_err.code != 0;
    op->step = STEP_TURN;
    if (op->is_removal) {
        if (!has_failed)
            forget_spec(claim);
    } else if (has_failed && !op->has_record) {
        forget_spec(claim); /* rolled back by the worker */
    } else {
        claim->is_completed = 1;
        claim->needs_rebuild = has_failed;
    }
    int has_freed = !claim->spec;
    struct alq_err err = op->job_err;
    memset(&op->job_err, 0, sizeof(op->job_err));
    if (!has_failed && op->is_cancelled)
        alq_err_set(&err, ALQ_ECANCELED, CANCELLED);
    if (op->kind == KIND_REBUILD && !op->is_removal && TAILQ_NEXT(op, link) == NULL) {
        if (has_failed)
            alq_warn(ALQ_LOG_KV({"uid", op->id.uid}), "not rebuilt, tried again later: %s",
                     err.text);
        get_claim(op);
    } else if (err.code) {
        fail(op, &err);
    } else {
        end(op, NULL);
    }
    if (has_freed)
        retry_waiting(p, STEP_ROOM);
}

static void submit(struct operation *op, int is_removal)
{
    op->step = STEP_WORK;
    op->is_removal = is_removal;
    op->job.run = work_run;
    op->job.done = work_done;
    alq_work_submit(op->prepare->work, &op->job);
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

static void on_wait_over(evutil_socket_t fd, short what, void *arg);

static int64_t time_left_ms(const struct operation *op)
{
    return (op->deadline_ns - now_ns()) / NS_PER_MS - ANSWER_MS;
}

static void wait_for(struct operation *op, enum step step, int64_t ms)
{
    struct alq_prepare *p = op->prepare;
    struct timeval tv = {.tv_sec = ms > 0 ? ms / 1000 : 0,
                         .tv_usec = ms > 0 ? ms % 1000 * 1000 : 0};
    op->timer = evtimer_new(p->base, on_wait_over, op);
    if (!op->timer || event_add(op->timer, &tv)) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_err_set(&err, ALQ_ENOMEM, "out of memory");
        fail(op, &err);
        return;
    }
    op->step = step;
    TAILQ_INSERT_TAIL(&p->waiting, op, waiting);
}

static void retry_waiting(struct alq_prepare *p, enum step step)
{
    /* Each is looked at once, in order of arrival: one that still has to wait is put back behind
     * those that were looked at before it. */
    uint64_t generation = ++p->generation;
    struct operation *op;
    for (int is_found = 1; is_found;) {
        is_found = 0;
        TAILQ_FOREACH(op, &p->waiting, waiting)
        {
            if (op->step != step || op->generation == generation)
                continue;
            op->generation = generation;
            leave_step(op);
            admit(op);
            is_found = 1;
            break; /* the list may have changed altogether */
        }
    }
}

/* ---- room -------------------------------------------------------------------------------------
 */

static int shares_gpu(const struct alq_claim_spec *a, const struct alq_claim_spec *b)
{
    for (uint32_t i = 0; i < a->share_count; i++)
        for (uint32_t j = 0; j < b->share_count; j++)
            if (!a->shares[i].is_admin && !b->shares[j].is_admin &&
                !strcmp(a->shares[i].gpu_uuid, b->shares[j].gpu_uuid))
                return 1;
    return 0;
}

/* Whether the API server says that this very claim is no more. A server that cannot be reached, or
 * will not say, says nothing. */
static int is_gone(const struct alq_claim_id *id, int status, const json_t *body)
{
    if (status == 404)
        return 1;
    if (status < 200 || status >= 300)
        return 0;
    const char *uid = json_string_value(json_object_get(json_object_get(body, "metadata"), "uid"));
    return uid && strcmp(uid, id->uid) != 0;
}

static void on_holder(void *arg, int status, json_t *body, const struct alq_err *err)
{
    (void)err;
    struct lookup *l = arg;
    struct operation *op = l->for_op;
    LIST_REMOVE(l, link);
    if (is_gone(&l->id, status, body)) {
        alq_warn(ALQ_LOG_KV({"uid", l->id.uid}),
                 "claim %s/%s is gone without an unprepare: its share is taken back",
                 l->id.namespace_, l->id.name);
        op->has_gone = 1;
        alq_unprepare_claim(op->prepare, &l->id, NULL, NULL);
    }
    free(l);
    if (--op->lookups == 0)
        admit(op);
}

static void id_of(const struct alq_claim_spec *spec, struct alq_claim_id *id)
{
    snprintf(id->uid, sizeof(id->uid), "%s", spec->uid);
    snprintf(id->namespace_, sizeof(id->namespace_), "%s", spec->namespace_);
    snprintf(id->name, sizeof(id->name), "%s", spec->name);
}

static void look_up_holders(struct operation *op)
{
    struct alq_prepare *p = op->prepare;
    struct claim *holder;
    op->has_looked_up = 1;
    op->step = STEP_LOOKUP;
    LIST_FOREACH(holder, &p->claims, link)
    {
        if (holder == op->claim || !holder->spec || !TAILQ_EMPTY(&holder->operations) ||
            !shares_gpu(holder->spec, op->spec))
            continue;
        struct lookup *l = calloc(1, sizeof(*l));
        if (!l)
            break;
        l->for_op = op;
        id_of(holder->spec, &l->id);
        l->call = p->source.get(p->source.arg, l->id.namespace_, l->id.name, LOOKUP_MS, on_holder,
                                l, NULL);
        if (!l->call) {
            free(l);
            break;
        }
        LIST_INSERT_HEAD(&p->lookups, l, link);
        op->lookups++;
    }
    if (!op->lookups)
        admit(op);
}

/* ALQ_EBUSY when others hold what the operation's spec asks. */
static int check_room(struct operation *op, struct alq_err *err)
{
    struct alq_prepare *p = op->prepare;
    size_t count = 0;
    alq_auto_free const struct alq_claim_spec **holders =
        calloc(p->claim_count + 1, sizeof(const struct alq_claim_spec *));
    if (!holders)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    struct claim *claim;
    LIST_FOREACH(claim, &p->claims, link)
    if (claim->spec)
        holders[count++] = claim->spec;
    return alq_room_check(op->spec, holders, count, NULL, err);
}

static void on_wait_over(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct operation *op = arg;
    enum step step = op->step;
    leave_step(op);
    if (step == STEP_ROOM && !op->has_looked_up) {
        look_up_holders(op);
    } else if (step == STEP_ROOM) {
        op->has_gone = 0;
        admit(op);
    } else {
        struct alq_err err = ALQ_ERR_INIT;
        alq_err_set(&err, ALQ_EAGAIN, "the GPUs of this node are not known yet; tried again soon");
        fail(op, &err);
    }
}

/* ---- prepare ----------------------------------------------------------------------------------
 */

/* The spec of what the claim is promised, from its object and the GPUs as they are now. */
static int read_allocation(struct operation *op, struct alq_err *err)
{
    struct alq_prepare *p = op->prepare;
    if (p->no_gpus.code)
        return alq_err_set(err, ALQ_EAGAIN, "no GPUs on this node: %s", p->no_gpus.text);
    alq_claim_spec_free(alq_steal(&op->spec));
    return alq_allocation_read(op->object, &op->id, p->cfg->driver_name, p->cfg->node_name,
                               &p->gpus, &op->spec, err);
}

static void admit(struct operation *op)
{
    struct alq_prepare *p = op->prepare;
    struct claim *claim = op->claim;
    struct alq_err err = ALQ_ERR_INIT;
    if (!p->has_reading) {
        int64_t left = time_left_ms(op);
        wait_for(op, STEP_GPUS, left < GPUS_WAIT_MS ? left : GPUS_WAIT_MS);
        return;
    }
    int rc = read_allocation(op, &err);
    if (!rc)
        rc = check_room(op, &err);
    if (rc == ALQ_EBUSY) {
        int64_t left = time_left_ms(op);
        if (!op->has_looked_up && left > LOOKUP_MS) {
            wait_for(op, STEP_ROOM, left - LOOKUP_MS);
            return;
        }
        if (!op->has_looked_up) {
            look_up_holders(op);
            return;
        }
        if (op->has_gone && left > 0) {
            wait_for(op, STEP_ROOM, left);
            return;
        }
    }
    struct alq_claim_spec *promise = rc ? NULL : alq_claim_spec_dup(op->spec);
    if (!rc && !promise)
        rc = alq_err_set(&err, ALQ_ENOMEM, "out of memory");
    if (rc) {
        fail(op, &err);
        return;
    }
    op->has_record =
        claim->is_completed && claim->spec && alq_claim_spec_equal(claim->spec, op->spec);
    forget_spec(claim);
    claim->spec = promise;
    submit(op, 0);
}

static void on_claim(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct operation *op = arg;
    op->call = NULL;
    op->api_ns = now_ns() - op->asked_ns;
    op->step = STEP_TURN;
    if (op->kind == KIND_REBUILD) {
        if (!is_gone(&op->id, status, body)) {
            end(op, NULL);
            return;
        }
        alq_warn(ALQ_LOG_KV({"uid", op->id.uid}),
                 "claim %s/%s is gone since the last run: its files are taken away",
                 op->id.namespace_, op->id.name);
        submit(op, 1);
        return;
    }
    if (err) {
        struct alq_err why = *err;
        if (status == 404)
            alq_err_set(&why, ALQ_ENOENT, "does not exist (any more)");
        else
            alq_err_wrap(&why, "asking the API server for it");
        fail(op, &why);
        return;
    }
    op->object = json_incref(body);
    admit(op);
}

static void get_claim(struct operation *op)
{
    struct alq_prepare *p = op->prepare;
    struct alq_err err = ALQ_ERR_INIT;
    int64_t ms = op->deadline_ns == INT64_MAX ? GET_MS : time_left_ms(op);
    op->step = STEP_GET;
    op->asked_ns = now_ns();
    if (ms <= 0)
        alq_err_set(&err, ALQ_ETIMEDOUT, "the kubelet's deadline has passed");
    else
        op->call = p->source.get(p->source.arg, op->id.namespace_, op->id.name,
                                 (long)(ms < GET_MS ? ms : GET_MS), on_claim, op, &err);
    if (op->call)
        return;
    op->step = STEP_TURN;
    fail(op, &err);
}

static void run_rebuild(struct operation *op)
{
    struct claim *claim = op->claim;
    if (!claim->spec) {
        end(op, NULL);
        return;
    }
    if (!claim->is_completed) {
        get_claim(op);
        return;
    }
    op->has_record = 1;
    op->spec = alq_claim_spec_dup(claim->spec);
    if (op->spec) {
        submit(op, 0);
        return;
    }
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, ALQ_ENOMEM, "out of memory");
    fail(op, &err);
}

static void run_next(struct claim *claim)
{
    struct operation *op = TAILQ_FIRST(&claim->operations);
    switch (op->kind) {
    case KIND_PREPARE:
        get_claim(op);
        break;
    case KIND_UNPREPARE:
        submit(op, 1);
        break;
    case KIND_REBUILD:
        run_rebuild(op);
        break;
    }
}

/* Puts an operation at the end of its claim's queue; NULL when out of memory. */
static struct operation *enqueue(struct alq_prepare *p, enum kind kind,
                                 const struct alq_claim_id *id, int64_t deadline_ns,
                                 alq_prepare_cb cb, void *arg)
{
    struct claim *claim = claim_get(p, id->uid);
    struct operation *op = claim ? calloc(1, sizeof(*op)) : NULL;
    if (!op) {
        if (claim && !claim->spec && TAILQ_EMPTY(&claim->operations))
            claim_free(p, claim);
        return NULL;
    }
    op->prepare = p;
    op->claim = claim;
    op->kind = kind;
    op->id = *id;
    op->deadline_ns = deadline_ns;
    op->started_ns = now_ns();
    op->cb = cb;
    op->arg = arg;
    TAILQ_INSERT_TAIL(&claim->operations, op, link);
    return op;
}

static int check_id(const struct alq_claim_id *id, struct alq_err *err)
{
    if (!alq_claim_uid_is_valid(id->uid))
        return alq_err_set(err, ALQ_EINVAL, "claim uid \"%s\" is not one", id->uid);
    return 0;
}

void alq_prepare_claim(struct alq_prepare *p, const struct alq_claim_id *id, int64_t deadline_ns,
                       alq_prepare_cb cb, void *arg)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct operation *op = NULL;
    if (deadline_ns == INT64_MAX)
        deadline_ns = now_ns() + DEADLINE_DEFAULT_MS * NS_PER_MS;
    if (!check_id(id, &err) && (!id->namespace_[0] || !id->name[0]))
        alq_err_set(&err, ALQ_EINVAL, "claim %s: namespace or name is empty", id->uid);
    if (!err.code && !(op = enqueue(p, KIND_PREPARE, id, deadline_ns, cb, arg)))
        alq_err_set(&err, ALQ_ENOMEM, "claim %s: out of memory", id->uid);
    if (err.code)
        cb(arg, NULL, &err);
    else if (op == TAILQ_FIRST(&op->claim->operations))
        run_next(op->claim);
}

static void cancel_prepare(struct operation *op)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (op->step == STEP_WORK) {
        op->is_cancelled = 1; /* the files go with the Unprepare that follows */
        return;
    }
    alq_err_set(&err, ALQ_ECANCELED, CANCELLED);
    fail(op, &err);
}

void alq_unprepare_claim(struct alq_prepare *p, const struct alq_claim_id *id, alq_prepare_cb cb,
                         void *arg)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct operation *op = NULL;
    if (!check_id(id, &err) && !(op = enqueue(p, KIND_UNPREPARE, id, INT64_MAX, cb, arg)))
        alq_err_set(&err, ALQ_ENOMEM, "claim %s: out of memory", id->uid);
    if (err.code) {
        if (cb)
            cb(arg, NULL, &err);
        return;
    }
    struct claim *claim = op->claim;
    struct operation *head = TAILQ_FIRST(&claim->operations);
    if (op == head) {
        run_next(claim);
        return;
    }
    /* The head last: its end lets the next one run. */
    for (struct operation *o = TAILQ_NEXT(head, link), *next; o != op; o = next) {
        next = TAILQ_NEXT(o, link);
        if (o->kind == KIND_PREPARE)
            cancel_prepare(o);
    }
    if (head->kind == KIND_PREPARE)
        cancel_prepare(head);
}

/* ---- start, GPUs, end -------------------------------------------------------------------------
 */

static void rebuild(struct alq_prepare *p, struct claim *claim)
{
    struct alq_claim_id id = {0};
    id_of(claim->spec, &id);
    struct operation *op = enqueue(p, KIND_REBUILD, &id, INT64_MAX, NULL, NULL);
    if (op && op == TAILQ_FIRST(&claim->operations))
        run_next(claim);
}

int alq_prepare_adopt(struct alq_prepare *p, struct alq_record *record, struct alq_err *err)
{
    if (record->state == ALQ_RECORD_STARTED) {
        struct alq_err why = ALQ_ERR_INIT;
        if (alq_files_unprepare(p->files, record->claim.uid, &why))
            alq_error(ALQ_LOG_KV({"uid", record->claim.uid}),
                      "claim %s/%s was not prepared to the end and cannot be rolled back: %s",
                      record->claim.namespace_, record->claim.name, why.text);
        else
            alq_info(ALQ_LOG_KV({"uid", record->claim.uid}),
                     "claim %s/%s was not prepared to the end: rolled back",
                     record->claim.namespace_, record->claim.name);
        return 0; /* what stays is tried again by the next Prepare or Unprepare */
    }
    struct claim *claim = claim_get(p, record->claim.uid);
    if (!claim)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    alq_claim_spec_free(claim->spec);
    claim->spec = alq_claim_spec_dup(&record->claim);
    if (!claim->spec) {
        claim_free(p, claim);
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    claim->is_completed = !strcmp(record->boot_id, p->boot_id);
    return 0;
}

static int is_kept(void *arg, const char *uid)
{
    const struct claim *claim = claim_find(arg, uid);
    return claim && claim->is_completed;
}

void alq_prepare_start(struct alq_prepare *p)
{
    alq_files_sweep(p->files, is_kept, p);
    for (struct claim *claim = LIST_FIRST(&p->claims), *next; claim; claim = next) {
        next = LIST_NEXT(claim, link);
        if (claim->spec)
            rebuild(p, claim);
    }
}

/* Takes over where the claim's GPUs are now; whether that has changed. */
static int refresh_minors(const struct alq_prepare *p, struct alq_claim_spec *spec)
{
    int is_changed = 0;
    for (uint32_t i = 0; i < spec->share_count; i++) {
        for (size_t g = 0; g < p->gpus.count; g++) {
            struct alq_share_spec *s = &spec->shares[i];
            const struct alq_gpu *gpu = &p->gpus.gpus[g];
            if (strcmp(s->gpu_uuid, gpu->uuid) != 0 || s->gpu_minor == gpu->minor)
                continue;
            s->gpu_minor = gpu->minor;
            is_changed = 1;
        }
    }
    return is_changed;
}

void alq_prepare_set_gpus(struct alq_prepare *p, const struct alq_gpu_list *list,
                          const struct alq_err *err)
{
    struct alq_gpu *copy = calloc(list->count + 1, sizeof(*copy));
    if (!copy) {
        alq_error(NULL, "out of memory for the list of GPUs; the last one stays");
        return;
    }
    if (list->count)
        memcpy(copy, list->gpus, list->count * sizeof(*copy));
    free(p->gpus.gpus);
    p->gpus = (struct alq_gpu_list){copy, list->count};
    p->has_reading = 1;
    if (err)
        p->no_gpus = *err;
    else
        memset(&p->no_gpus, 0, sizeof(p->no_gpus));
    for (struct claim *claim = LIST_FIRST(&p->claims), *next; claim && !err; claim = next) {
        next = LIST_NEXT(claim, link);
        if (!claim->spec || !claim->is_completed)
            continue;
        if (refresh_minors(p, claim->spec) || claim->needs_rebuild)
            rebuild(p, claim);
    }
    retry_waiting(p, STEP_GPUS);
}

struct alq_prepare *alq_prepare_new(const struct alq_config *cfg, struct event_base *base,
                                    struct alq_work *work, struct alq_files *files,
                                    const struct alq_claim_source *source, const char *boot_id,
                                    struct alq_err *err)
{
    struct alq_prepare *p = calloc(1, sizeof(*p));
    if (!p) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    p->cfg = cfg;
    p->base = base;
    p->work = work;
    p->files = files;
    p->source = *source;
    snprintf(p->boot_id, sizeof(p->boot_id), "%s", boot_id);
    TAILQ_INIT(&p->waiting);
    return p;
}

void alq_prepare_free(struct alq_prepare *p)
{
    if (!p)
        return;
    p->is_ending = 1;
    for (struct claim *claim; (claim = LIST_FIRST(&p->claims));) {
        for (struct operation *op; (op = TAILQ_FIRST(&claim->operations));) {
            struct alq_err err = ALQ_ERR_INIT;
            alq_err_set(&err, ALQ_ECANCELED, "aliquotd is ending");
            fail(op, &err);
        }
        claim_free(p, claim);
    }
    free(p->gpus.gpus);
    free(p);
}
