/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations from their turn to their end, see machine.h. Every way out of a step goes through
 * leave_step, so that no call, timer or place in line outlives it. Loop thread only but for
 * work_run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/prepare/machine.h"
#include "daemon/state/claim_spec.h"

#define ALQ_LOG_MODULE "prepare"

#define GET_MS 20000
#define CANCELLED "cancelled by a later NodeUnprepareResources"
#define NAME_SHOWN 80 /* bytes of a claim's name in an error: the cause needs the rest */

int64_t alq_prepare_now_ns(const struct alq_prepare *p)
{
    return p->clock.now_ns(p->clock.arg);
}

void alq_prepare_wake_by(struct alq_prepare *p, int64_t at_ns)
{
    if (at_ns >= p->alarm_ns)
        return;
    p->alarm_ns = at_ns;
    p->clock.timer_set(p->timer, at_ns);
}

/* ---- ends -------------------------------------------------------------------------------------
 */

static void run_next(struct alq_claim *claim);

static void leave_step(struct alq_operation *op)
{
    if (op->call)
        op->prepare->source.cancel(alq_steal(&op->call));
    op->wake_ns = ALQ_NEVER;
    op->step = ALQ_STEP_TURN;
}

static void log_end(const struct alq_operation *op, const struct alq_err *err)
{
    static const char *const names[] = {"prepare", "unprepare", "rebuild", "limit"};
    char claim[sizeof(op->id.namespace_) + sizeof(op->id.name)], took[24], api[24];
    int64_t took_ns = alq_prepare_now_ns(op->prepare) - op->started_ns;
    snprintf(claim, sizeof(claim), "%s/%s", op->id.namespace_, op->id.name);
    snprintf(took, sizeof(took), "%" PRId64, took_ns / 1000);
    snprintf(api, sizeof(api), "%" PRId64, op->api_ns / 1000);
    const struct alq_log_kv kv[] = {{"claim", claim},
                                    {"uid", op->id.uid},
                                    {"took_us", took},
                                    {"api_us", op->api_ns ? api : NULL},
                                    {NULL, NULL}};
    if (err)
        alq_warn(kv, "%s failed: %s", names[op->kind], err->text);
    else if (op->kind == ALQ_REBUILD)
        alq_debug(kv, "rebuilt");
    else if (op->kind == ALQ_LIMIT)
        alq_debug(kv, "limited");
    else
        alq_info(kv, "%sd", names[op->kind]);
}

static void tell_watcher(const struct alq_operation *op, const struct alq_err *err)
{
    const struct alq_prepare_watcher *w = &op->prepare->watcher;
    const char *uid = alq_json_str(op->object, "metadata.uid");
    if (err && err->code != ALQ_ECANCELED && w->failed)
        w->failed(w->arg, &op->id, op->object, err);
    if (!uid || strcmp(uid, op->id.uid) != 0)
        return; /* nobody to tell it to */
    if (!err && w->prepared)
        w->prepared(w->arg, op->claim->spec, op->object);
    else if (err && err->code != ALQ_ECANCELED && w->refused)
        w->refused(w->arg, &op->id, err);
}

static void end(struct alq_operation *op, const struct alq_err *err)
{
    struct alq_prepare *p = op->prepare;
    struct alq_claim *claim = op->claim;
    if (op->is_in_line || op->has_room) { /* who came later may have waited for it alone */
        p->is_line_shorter = 1;
        alq_prepare_wake_by(p, alq_prepare_now_ns(p));
    }
    leave_step(op);
    int was_head = op == TAILQ_FIRST(&claim->operations);
    TAILQ_REMOVE(&claim->operations, op, link);
    if (op == p->cursor)
        p->cursor = TAILQ_NEXT(op, open);
    if (op->kind == ALQ_PREPARE)
        TAILQ_REMOVE(&p->open, op, open);
    log_end(op, err);
    if (op->cb)
        op->cb(op->arg, err ? NULL : claim->spec, err);
    if (op->kind == ALQ_PREPARE && !p->is_ending)
        tell_watcher(op, err);
    json_decref(op->object);
    alq_claim_spec_free(op->spec);
    alq_claim_spec_free(op->before);
    free(op);
    if (!was_head || p->is_ending)
        return;
    if (!TAILQ_EMPTY(&claim->operations))
        run_next(claim);
    else if (!claim->spec)
        alq_claims_drop(&p->claims, claim);
}

void alq_steps_fail(struct alq_operation *op, struct alq_err *err)
{
    const char *name = op->id.name;
    size_t n = strlen(name);
    if (n <= NAME_SHOWN)
        alq_err_wrap(err, "claim %s/%s", op->id.namespace_, name);
    else
        alq_err_wrap(err, "claim %s/%.*s...%s", op->id.namespace_, NAME_SHOWN / 2, name,
                     name + n - NAME_SHOWN / 2);
    end(op, err);
}

static void fail_with(struct alq_operation *op, int code, const char *text)
{
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, code, "%s", text);
    alq_steps_fail(op, &err);
}

/* ---- work -------------------------------------------------------------------------------------
 */

static void work_run(struct alq_job *job)
{
    struct alq_operation *op = (struct alq_operation *)job;
    if (op->kind == ALQ_LIMIT)
        alq_files_limit(op->prepare->files, op->spec, op->before, &op->job_err);
    else if (op->is_removal)
        alq_files_unprepare(op->prepare->files, op->id.uid, &op->job_err);
    else
        alq_files_prepare(op->prepare->files, op->spec, op->has_record, &op->job_err);
}

static void limit_done(struct alq_operation *op)
{
    struct alq_err err = op->job_err;
    alq_limit_done(op);
    if (err.code)
        alq_steps_fail(op, &err);
    else
        end(op, NULL);
}

static void work_done(struct alq_job *job)
{
    struct alq_operation *op = (struct alq_operation *)job;
    if (op->kind == ALQ_LIMIT) {
        limit_done(op);
        return;
    }
    struct alq_prepare *p = op->prepare;
    struct alq_claim *claim = op->claim;
    struct alq_err err = op->job_err;
    int has_failed = err.code != 0;
    int is_rebuild = op->kind == ALQ_REBUILD;
    /* A worker that fails has rolled back, unless containers may run. */
    int is_rolled_back = has_failed && !op->has_record && !alq_files_is_found(p->files, op->id.uid);
    if (op->is_removal ? !has_failed : is_rolled_back) {
        alq_promise_end(p, claim);
        if (p->watcher.unprepared)
            p->watcher.unprepared(p->watcher.arg, op->id.uid);
    } else if (!op->is_removal && (!has_failed || op->has_record)) {
        claim->is_completed = 1;
        claim->needs_rebuild = has_failed;
    }
    if (op->is_removal && has_failed && claim->spec)
        alq_holder_remove_again(p, claim);
    int has_freed = !claim->spec;
    if (is_rebuild && has_failed)
        alq_warn(ALQ_LOG_KV({"uid", op->id.uid}), "not rebuilt, tried again later: %s", err.text);
    if (is_rebuild && claim->spec)
        alq_lookups_ask(&p->lookups, claim);
    if (op->is_cancelled)
        fail_with(op, ALQ_ECANCELED, CANCELLED);
    else if (has_failed && !is_rebuild)
        alq_steps_fail(op, &err);
    else
        end(op, NULL);
    if (has_freed)
        alq_steps_retry(p);
}

void alq_steps_work(struct alq_operation *op, int is_removal)
{
    op->step = ALQ_STEP_WORK;
    op->wake_ns = ALQ_NEVER; /* a worker is not interrupted */
    op->is_removal = is_removal;
    op->job.run = work_run;
    op->job.done = work_done;
    alq_work_submit(op->prepare->work, &op->job);
}

/* ---- get --------------------------------------------------------------------------------------
 */

static void on_object(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct alq_operation *op = arg;
    op->call = NULL;
    op->answered_ns = alq_prepare_now_ns(op->prepare);
    op->api_ns += op->answered_ns - op->asked_ns;
    leave_step(op);
    if (err) {
        struct alq_err why = *err;
        if (status == 404)
            alq_err_set(&why, ALQ_ENOENT, "does not exist (any more): %s", err->text);
        else
            alq_err_wrap(&why, "asking the API server for it");
        alq_steps_fail(op, &why);
        return;
    }
    json_decref(op->object);
    op->object = json_incref(body);
    alq_admit(op);
}

void alq_steps_get(struct alq_operation *op)
{
    struct alq_prepare *p = op->prepare;
    struct alq_err err = ALQ_ERR_INIT;
    op->asked_ns = alq_prepare_now_ns(p);
    int64_t left_ms = (op->refuse_ns - op->asked_ns) / ALQ_NS_PER_MS;
    op->step = ALQ_STEP_GET;
    op->wake_ns = ALQ_NEVER; /* the call has its own deadline */
    if (left_ms <= 0)
        alq_err_set(&err, ALQ_ETIMEDOUT, "the kubelet's deadline has passed");
    else
        op->call = p->source.get(p->source.arg, op->id.namespace_, op->id.name,
                                 (long)(left_ms < GET_MS ? left_ms : GET_MS), on_object, op, &err);
    if (!op->call)
        alq_steps_fail(op, &err);
}

/* ---- turns ------------------------------------------------------------------------------------
 */

static void run_rebuild(struct alq_operation *op)
{
    struct alq_claim *claim = op->claim;
    if (!claim->spec || !claim->is_completed) {
        end(op, NULL);
        return;
    }
    op->has_record = 1;
    op->spec = alq_claim_spec_dup(claim->spec);
    if (op->spec)
        alq_steps_work(op, 0);
    else
        fail_with(op, ALQ_ENOMEM, "out of memory");
}

static void run_next(struct alq_claim *claim)
{
    struct alq_operation *op = TAILQ_FIRST(&claim->operations);
    switch (op->kind) {
    case ALQ_PREPARE:
        alq_steps_get(op);
        break;
    case ALQ_UNPREPARE:
        alq_steps_work(op, 1);
        break;
    case ALQ_REBUILD:
        run_rebuild(op);
        break;
    case ALQ_LIMIT:
        alq_limit_run(op);
        break;
    }
}

struct alq_operation *alq_steps_new(struct alq_prepare *p, enum alq_operation_kind kind,
                                    const struct alq_claim_id *id, int64_t deadline_ns,
                                    alq_prepare_cb cb, void *arg, struct alq_err *err)
{
    struct alq_claim *claim = alq_claims_get(&p->claims, id->uid);
    struct alq_operation *op = claim ? calloc(1, sizeof(*op)) : NULL;
    if (!op) {
        if (claim && !claim->spec && TAILQ_EMPTY(&claim->operations))
            alq_claims_drop(&p->claims, claim);
        alq_err_set(err, ALQ_ENOMEM, "claim %s: out of memory", id->uid);
        return NULL;
    }
    op->prepare = p;
    op->claim = claim;
    op->kind = kind;
    op->id = *id;
    op->arrival = ++p->arrivals;
    op->started_ns = alq_prepare_now_ns(p);
    op->refuse_ns = op->wake_ns = ALQ_NEVER;
    op->cb = cb;
    op->arg = arg;
    TAILQ_INSERT_TAIL(&claim->operations, op, link);
    if (kind == ALQ_PREPARE) {
        TAILQ_INSERT_TAIL(&p->open, op, open);
        op->refuse_ns = op->wake_ns = deadline_ns - ALQ_ANSWER_NS;
        alq_prepare_wake_by(p, op->wake_ns);
    }
    return op;
}

void alq_steps_begin(struct alq_operation *op)
{
    if (op == TAILQ_FIRST(&op->claim->operations))
        run_next(op->claim);
}

struct alq_operation *alq_steps_start(struct alq_prepare *p, enum alq_operation_kind kind,
                                      const struct alq_claim_id *id, int64_t deadline_ns,
                                      alq_prepare_cb cb, void *arg, struct alq_err *err)
{
    struct alq_operation *op = alq_steps_new(p, kind, id, deadline_ns, cb, arg, err);
    if (op)
        alq_steps_begin(op);
    return op;
}

static void cancel(struct alq_operation *op)
{
    if (op->step == ALQ_STEP_WORK)
        op->is_cancelled = 1; /* the files go with the Unprepare that follows */
    else
        fail_with(op, ALQ_ECANCELED, CANCELLED);
}

void alq_steps_cancel_before(struct alq_operation *unprepare)
{
    struct alq_operation *head = TAILQ_FIRST(&unprepare->claim->operations), *next;
    if (head == unprepare)
        return;
    /* The head last: its end lets the next one run. */
    for (struct alq_operation *op = TAILQ_NEXT(head, link); op != unprepare; op = next) {
        next = TAILQ_NEXT(op, link);
        if (op->kind == ALQ_PREPARE)
            cancel(op);
    }
    if (head->kind == ALQ_PREPARE)
        cancel(head);
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

void alq_steps_wait(struct alq_operation *op, enum alq_step step, int64_t wake_ns)
{
    op->step = step;
    op->wake_ns = wake_ns;
    alq_prepare_wake_by(op->prepare, wake_ns);
}

/* Walks over p->open; whatever is done to one of them may end it and others. */
static struct alq_operation *walk_next(struct alq_prepare *p)
{
    struct alq_operation *op = p->cursor;
    if (op)
        p->cursor = TAILQ_NEXT(op, open);
    return op;
}

void alq_steps_retry(struct alq_prepare *p)
{
    struct alq_operation *op;
    p->is_line_shorter = 0;
    for (p->cursor = TAILQ_FIRST(&p->open); (op = walk_next(p));) {
        if (op->step != ALQ_STEP_ROOM && (op->step != ALQ_STEP_GPUS || !p->has_reading))
            continue;
        leave_step(op);
        alq_admit(op);
    }
}

static void wake(struct alq_operation *op)
{
    enum alq_step step = op->step;
    if (step == ALQ_STEP_ROOM) {
        alq_admit_on_time(op);
        return;
    }
    fail_with(op, ALQ_EAGAIN,
              step == ALQ_STEP_GPUS
                  ? "the GPUs of this node are not known yet; tried again soon"
                  : "an earlier call for this claim has not ended yet; tried again soon");
}

void alq_steps_on_time(void *prepare)
{
    struct alq_prepare *p = prepare;
    struct alq_operation *op;
    int64_t now_ns = alq_prepare_now_ns(p);
    p->alarm_ns = ALQ_NEVER;
    for (p->cursor = TAILQ_FIRST(&p->open); (op = walk_next(p));)
        if (op->wake_ns <= now_ns)
            wake(op);
    if (p->is_line_shorter)
        alq_steps_retry(p);
    TAILQ_FOREACH(op, &p->open, open)
    alq_prepare_wake_by(p, op->wake_ns);
    alq_prepare_wake_by(p, alq_holders_take_back(p));
}
