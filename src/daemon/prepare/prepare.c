/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of the claims' state machine, see prepare.h: calls become operations (steps.c),
 * records become promises, a reading of the GPUs moves what waits. Loop thread only.
 */
#include "daemon/prepare/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "daemon/prepare/machine.h"
#include "daemon/state/claim_spec.h"

#define ALQ_LOG_MODULE "prepare"

#define DEADLINE_DEFAULT_NS (40000 * ALQ_NS_PER_MS) /* for a caller who named none */

unsigned alq_prepare_count(const struct alq_prepare *prepare)
{
    unsigned n = 0;
    const struct alq_claim *claim;
    LIST_FOREACH(claim, &prepare->claims.all, link)
    n += claim->spec != NULL;
    return n;
}

void alq_prepare_each(const struct alq_prepare *prepare,
                      void (*see)(void *arg, const struct alq_claim_spec *claim), void *arg)
{
    const struct alq_claim *claim;
    LIST_FOREACH(claim, &prepare->claims.all, link)
    {
        if (claim->spec)
            see(arg, claim->spec);
    }
}

void alq_prepare_on_change(struct alq_prepare *prepare, void (*on_change)(void *arg), void *arg)
{
    prepare->on_change = on_change;
    prepare->change_arg = arg;
}

void alq_prepare_changed(struct alq_prepare *p)
{
    if (p->on_change)
        p->on_change(p->change_arg);
}

void alq_prepare_each_state(const struct alq_prepare *prepare,
                            void (*each)(void *arg, const struct alq_claim_spec *claim,
                                         int is_prepared, unsigned removals_failed),
                            void *arg)
{
    const struct alq_claim *claim;
    LIST_FOREACH(claim, &prepare->claims.all, link)
    if (claim->spec)
        each(arg, claim->spec, claim->is_completed, claim->removals_failed);
}

void alq_prepare_each_open(const struct alq_prepare *p,
                           void (*each)(void *arg, const struct alq_claim_id *id,
                                        const json_t *object, const char *waits_for,
                                        int64_t waited_ns),
                           void *arg)
{
    static const char *const steps[] = {
        [ALQ_STEP_TURN] = "an earlier call about the same claim",
        [ALQ_STEP_GET] = "the API server's answer",
        [ALQ_STEP_GPUS] = "the first reading of the GPUs",
        [ALQ_STEP_ROOM] = "room: other claims still hold what it is to have",
        [ALQ_STEP_WORK] = "its files to be written",
    };
    const struct alq_operation *op;
    TAILQ_FOREACH(op, &p->open, open)
    each(arg, &op->id, op->object, steps[op->step], alq_prepare_now_ns(p) - op->started_ns);
}

/* ---- calls ------------------------------------------------------------------------------------
 */

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
    if (deadline_ns == ALQ_NEVER)
        deadline_ns = alq_prepare_now_ns(p) + DEADLINE_DEFAULT_NS;
    if (!check_id(id, &err) && (!id->namespace_[0] || !id->name[0]))
        alq_err_set(&err, ALQ_EINVAL, "claim %s: namespace or name is empty", id->uid);
    if (err.code || !alq_steps_start(p, ALQ_PREPARE, id, deadline_ns, cb, arg, &err))
        cb(arg, NULL, &err);
}

void alq_unprepare_claim(struct alq_prepare *p, const struct alq_claim_id *id, alq_prepare_cb cb,
                         void *arg)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_operation *op =
        check_id(id, &err) ? NULL : alq_steps_start(p, ALQ_UNPREPARE, id, ALQ_NEVER, cb, arg, &err);
    if (op)
        alq_steps_cancel_before(op);
    else if (cb)
        cb(arg, NULL, &err);
}

/* ---- start ------------------------------------------------------------------------------------
 */

static void rebuild(struct alq_prepare *p, struct alq_claim *claim)
{
    struct alq_claim_id id = {0};
    struct alq_err err = ALQ_ERR_INIT;
    alq_claim_id_of(claim->spec, &id);
    if (!alq_steps_start(p, ALQ_REBUILD, &id, ALQ_NEVER, NULL, NULL, &err))
        alq_error(ALQ_LOG_KV({"uid", id.uid}), "not rebuilt: %s", err.text);
}

void alq_prepare_watch(struct alq_prepare *p, const struct alq_prepare_watcher *watcher)
{
    p->watcher = *watcher;
}

static void roll_back(struct alq_prepare *p, const struct alq_claim_spec *spec)
{
    const struct alq_log_kv kv[] = {{"uid", spec->uid}, {NULL, NULL}};
    struct alq_err err = ALQ_ERR_INIT, why = ALQ_ERR_INIT;
    int has_failed = alq_files_unprepare(p->files, spec->uid, &why) != 0;
    alq_err_set(&err, ALQ_ECANCELED,
                "claim %s/%s: aliquotd ended while it was being prepared; %s%s", spec->namespace_,
                spec->name,
                has_failed ? "it cannot be rolled back: " : "rolled back, to be prepared anew",
                has_failed ? why.text : "");
    if (has_failed)
        alq_error(kv, "%s", err.text);
    else
        alq_info(kv, "%s", err.text);
    struct alq_rolled_back *r = calloc(1, sizeof(*r));
    if (!r)
        return; /* nobody but the log is told */
    alq_claim_id_of(spec, &r->id);
    r->why = err;
    SLIST_INSERT_HEAD(&p->rolled_back, r, link);
}

int alq_prepare_adopt(struct alq_prepare *p, struct alq_record *record, struct alq_err *err)
{
    if (record->state == ALQ_RECORD_STARTED) {
        roll_back(p, &record->claim);
        return 0; /* what stays is tried again by the next Prepare or Unprepare */
    }
    struct alq_claim *claim = alq_claims_get(&p->claims, record->claim.uid);
    if (!claim)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    alq_claim_forget(claim);
    claim->spec = alq_claim_spec_dup(&record->claim);
    if (!claim->spec) {
        alq_claims_drop(&p->claims, claim);
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    claim->is_completed = !strcmp(record->boot_id, p->boot_id);
    return 0;
}

static int is_kept(void *arg, const char *uid)
{
    const struct alq_prepare *p = arg;
    const struct alq_claim *claim = alq_claims_find(&p->claims, uid);
    return claim && claim->is_completed;
}

/* A claim without a record whose containers may run: its promise counts until an Unprepare. */
static void on_found(void *arg, const struct alq_claim_spec *found)
{
    struct alq_prepare *p = arg;
    struct alq_claim *claim = alq_claims_get(&p->claims, found->uid);
    if (!claim || claim->spec)
        return;
    claim->spec = alq_claim_spec_dup(found);
    if (!claim->spec)
        alq_claims_drop(&p->claims, claim);
}

void alq_prepare_sweep(struct alq_prepare *p)
{
    const struct alq_files_sweeper sweeper = {is_kept, on_found, p};
    alq_files_sweep(p->files, &sweeper);
}

static void tell_rolled_back(struct alq_prepare *p, int is_told)
{
    for (struct alq_rolled_back *r; (r = SLIST_FIRST(&p->rolled_back));) {
        SLIST_REMOVE_HEAD(&p->rolled_back, link);
        if (is_told && p->watcher.refused)
            p->watcher.refused(p->watcher.arg, &r->id, &r->why);
        if (is_told && p->watcher.failed)
            p->watcher.failed(p->watcher.arg, &r->id, NULL, &r->why);
        free(r);
    }
}

void alq_prepare_start(struct alq_prepare *p)
{
    tell_rolled_back(p, 1);
    for (struct alq_claim *claim = LIST_FIRST(&p->claims.all), *next; claim; claim = next) {
        next = LIST_NEXT(claim, link);
        if (claim->is_completed)
            rebuild(p, claim); /* and then looked up */
        else
            alq_lookups_ask(&p->lookups, claim);
    }
}

/* ---- GPUs -------------------------------------------------------------------------------------
 */

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

static int has_share_of(const struct alq_claim_spec *spec, const char *gpu_uuid)
{
    for (uint32_t i = 0; i < spec->share_count; i++)
        if (!strcmp(spec->shares[i].gpu_uuid, gpu_uuid))
            return 1;
    return 0;
}

void alq_prepare_each_on(const struct alq_prepare *p, const char *gpu_uuid,
                         void (*each)(void *arg, const struct alq_claim_spec *claim), void *arg)
{
    const struct alq_claim *claim;
    LIST_FOREACH(claim, &p->claims.all, link)
    if (claim->spec && claim->is_completed && has_share_of(claim->spec, gpu_uuid))
        each(arg, claim->spec);
}

static int has_gpu(const struct alq_gpu_list *list, const char *uuid)
{
    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->gpus[i].uuid, uuid))
            return 1;
    return 0;
}

/* Whether a share before number i has the same GPU. */
static int is_of_earlier(const struct alq_claim_spec *spec, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (!strcmp(spec->shares[k].gpu_uuid, spec->shares[i].gpu_uuid))
            return 1;
    return 0;
}

static void tell_lost(const struct alq_prepare *p, struct alq_claim *claim)
{
    for (uint32_t i = 0; i < claim->spec->share_count; i++) {
        const uint32_t bit = UINT32_C(1) << i, had = claim->gone;
        const struct alq_share_spec *share = &claim->spec->shares[i];
        if (has_gpu(&p->gpus, share->gpu_uuid)) {
            claim->gone &= ~bit;
            continue;
        }
        claim->gone |= bit;
        if (!(had & bit) && p->watcher.lost && !is_of_earlier(claim->spec, i))
            p->watcher.lost(p->watcher.arg, claim->spec, share);
    }
}

/* With the first reading it is known how the claims fare that are there already. */
static void look_again(struct alq_prepare *p, struct alq_claim *claim)
{
    claim->lookup.answered_ns = 0;
    alq_lookups_ask(&p->lookups, claim);
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
    int is_first = !err && !p->has_gpus;
    p->has_gpus |= !err;
    free(p->gpus.gpus);
    p->gpus = (struct alq_gpu_list){copy, list->count};
    p->has_reading = 1;
    if (err)
        p->no_gpus = *err;
    else
        memset(&p->no_gpus, 0, sizeof(p->no_gpus));
    for (struct alq_claim *claim = LIST_FIRST(&p->claims.all), *next; claim && !err; claim = next) {
        next = LIST_NEXT(claim, link);
        if (!claim->spec || !claim->is_completed)
            continue;
        tell_lost(p, claim); /* without a reading nothing is known to be gone */
        if (is_first)
            look_again(p, claim);
        if (refresh_minors(p, claim->spec) || claim->needs_rebuild)
            rebuild(p, claim);
    }
    alq_steps_retry(p);
}

const struct alq_gpu_list *alq_prepare_gpus(const struct alq_prepare *p, struct alq_err *why)
{
    if (!p->has_reading)
        alq_err_set(why, ALQ_EAGAIN, "the GPUs have not been read yet");
    else if (p->no_gpus.code)
        *why = p->no_gpus;
    return &p->gpus;
}

/* ---- life -------------------------------------------------------------------------------------
 */

struct alq_prepare *alq_prepare_new(const struct alq_config *cfg, const struct alq_clock *clock,
                                    struct alq_work *work, struct alq_files *files,
                                    const struct alq_claim_source *source, const char *boot_id,
                                    struct alq_err *err)
{
    struct alq_prepare *p = calloc(1, sizeof(*p));
    if (p)
        p->timer = clock->timer_new(clock->arg, alq_steps_on_time, p);
    if (!p || !p->timer) {
        free(p);
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    p->cfg = cfg;
    p->clock = *clock;
    p->alarm_ns = ALQ_NEVER;
    p->work = work;
    p->files = files;
    p->source = *source;
    snprintf(p->boot_id, sizeof(p->boot_id), "%s", boot_id);
    TAILQ_INIT(&p->open);
    SLIST_INIT(&p->rolled_back);
    alq_lookups_init(&p->lookups, &p->source, &p->clock, alq_holder_on_answer, p);
    return p;
}

void alq_prepare_free(struct alq_prepare *p)
{
    if (!p)
        return;
    p->is_ending = 1;
    tell_rolled_back(p, 0);
    alq_lookups_fini(&p->lookups);
    for (struct alq_claim *claim; (claim = LIST_FIRST(&p->claims.all));) {
        for (struct alq_operation *op; (op = TAILQ_FIRST(&claim->operations));) {
            struct alq_err err = ALQ_ERR_INIT;
            alq_err_set(&err, ALQ_ECANCELED, "aliquotd is ending");
            alq_steps_fail(op, &err);
        }
        alq_promise_end(p, claim);
        alq_claims_drop(&p->claims, claim);
    }
    p->clock.timer_free(p->timer);
    free(p->gpus.gpus);
    free(p);
}
