/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of a local claim, see life.h. A file is written before and removed before prepare/ is
 * asked: a claim without a file is not there, and prepare/ takes back what has no claim.
 */
#include "daemon/standalone/life.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/clock.h"
#include "daemon/prepare/prepare.h"
#include "daemon/prepare/share_dir.h"
#include "daemon/standalone/access.h"
#include "daemon/state/claim_spec.h"
#include "daemon/work.h"

#define ALQ_LOG_MODULE "standalone"

#define PREPARE_MS 8000 /* the tool waits for ten seconds */
#define OVER_MS 500     /* until it is looked again whether somebody uses what is over */
#define RESUME_MS 1000u /* until a failed Prepare is tried again; doubles, to 64 s */

struct step {
    struct alq_job job; /* first */
    struct alq_standalone *of;
    struct alq_local *local;
    char uid[64];
    char *text; /* to be written; NULL: the file goes */
    int is_checked;
    int is_in_use;
    int process_fd;
    struct alq_err err;
    alq_life_cb cb;
    void *arg;
};

static struct step *step_new(struct alq_standalone *s, struct alq_local *local, alq_life_cb cb,
                             void *arg)
{
    struct step *step = calloc(1, sizeof(*step));
    if (!step)
        return NULL;
    step->of = s;
    step->local = local;
    step->process_fd = -1;
    memcpy(step->uid, local->id.uid, sizeof(step->uid));
    step->cb = cb;
    step->arg = arg;
    return step;
}

static void step_end(struct step *step, const struct alq_claim_spec *spec,
                     const struct alq_err *err)
{
    if (step->cb)
        step->cb(step->arg, step->local, spec, err);
    if (step->process_fd >= 0)
        close(step->process_fd);
    free(step->text);
    free(step);
}

static int64_t deadline_ns(const struct alq_standalone *s)
{
    const struct alq_clock clock = alq_clock_real(s->parts.base);
    return clock.now_ns(clock.arg) + PREPARE_MS * ALQ_NS_PER_MS;
}

/* ---- processes --------------------------------------------------------------------------------
 */

static void arm(struct alq_local *local, unsigned ms)
{
    const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(local->again, &tv);
}

static void on_over_ended(void *arg, struct alq_local *local, const struct alq_claim_spec *spec,
                          const struct alq_err *err)
{
    (void)arg;
    (void)spec;
    if (err)
        arm(local, OVER_MS);
}

static void end_over(struct alq_local *local)
{
    if (local->is_busy)
        arm(local, OVER_MS);
    else
        alq_life_end(local->of, local, on_over_ended, NULL);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct alq_local *local = arg;
    if (local->is_over)
        end_over(local);
    else if (!local->is_prepared && !local->is_busy)
        alq_life_resume(local->of, local);
}

static void on_exit_of_process(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct alq_local *local = arg;
    event_del(local->exit);
    local->is_over = 1;
    end_over(local);
}

static int make_timer(struct alq_standalone *s, struct alq_local *local)
{
    local->of = s;
    if (!local->again)
        local->again = evtimer_new(s->parts.base, on_again, local);
    return local->again ? 0 : -1;
}

/* Takes fd. */
static int watch(struct alq_standalone *s, struct alq_local *local, int fd)
{
    local->exit = event_new(s->parts.base, fd, EV_READ | EV_PERSIST, on_exit_of_process, local);
    if (local->exit && !event_add(local->exit, NULL))
        return 0;
    if (local->exit)
        event_free(alq_steal(&local->exit));
    close(fd);
    return -1;
}

/* ---- access -----------------------------------------------------------------------------------
 */

static int let_user_in(const struct alq_standalone *s, const struct alq_local *local,
                       const struct alq_claim_spec *spec, struct alq_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && local->owner && i < spec->share_count; i++) {
        if (!alq_share_is_enforced(s->parts.cfg, &spec->shares[i]))
            continue;
        alq_auto_free char *dir =
            alq_str_printf("%s/shares/%s", s->parts.cfg->run_dir, spec->shares[i].share_id);
        rc = dir ? alq_access_grant(dir, local->owner, err)
                 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    return rc;
}

/* ---- begin ------------------------------------------------------------------------------------
 */

static void remove_run(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    alq_local_remove(step->of->parts.cfg, step->uid, NULL);
}

static void remove_done(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    step_end(step, NULL, &step->err);
}

/* It was not to be had: nothing of it stays. */
static void begin_failed(struct step *step, const struct alq_err *err, int is_written)
{
    struct alq_standalone *s = step->of;
    step->err = *err;
    alq_locals_drop(&s->locals, alq_steal(&step->local));
    if (!is_written || !s->prepare) {
        step_end(step, NULL, &step->err);
        return;
    }
    step->job = (struct alq_job){.run = remove_run, .done = remove_done};
    alq_work_submit(s->parts.work, &step->job);
}

static void on_begun(void *arg, const struct alq_claim_spec *spec, const struct alq_err *err)
{
    struct step *step = arg;
    struct alq_local *local = step->local;
    struct alq_err why = ALQ_ERR_INIT;
    if (err) {
        begin_failed(step, err, 1);
        return;
    }
    if (let_user_in(step->of, local, spec, &why))
        alq_warn(ALQ_LOG_KV({"uid", local->id.uid}), "its user cannot use it: %s", why.text);
    local->is_busy = 0;
    local->is_prepared = 1;
    if (step->process_fd >= 0 && watch(step->of, local, alq_steal_fd(&step->process_fd))) {
        local->is_over = 1;
        arm(local, OVER_MS);
    }
    step_end(step, spec, NULL);
}

static void write_run(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    alq_local_write(step->of->parts.cfg, step->uid, step->text, &step->err);
}

static void write_done(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    struct alq_standalone *s = step->of;
    struct alq_err err = step->err;
    if (!err.code && !s->prepare)
        alq_err_set(&err, ALQ_ECANCELED, "aliquotd is ending");
    if (err.code)
        begin_failed(step, &err, 0);
    else
        alq_prepare_claim(s->prepare, &step->local->id, deadline_ns(s), on_begun, step);
}

void alq_life_begin(struct alq_standalone *s, struct alq_local *local, int process_fd,
                    alq_life_cb cb, void *arg)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct step *step = step_new(s, local, cb, arg);
    if (step)
        step->process_fd = process_fd;
    if (!step || !(step->text = alq_local_text(local)) || make_timer(s, local)) {
        alq_err_set(&err, ALQ_ENOMEM, "out of memory");
        if (step) {
            begin_failed(step, &err, 0);
            return;
        }
        if (process_fd >= 0)
            close(process_fd);
        alq_locals_drop(&s->locals, local);
        cb(arg, NULL, NULL, &err);
        return;
    }
    local->is_busy = 1;
    step->job = (struct alq_job){.run = write_run, .done = write_done};
    alq_work_submit(s->parts.work, &step->job);
}

/* ---- end --------------------------------------------------------------------------------------
 */

static void on_ended(void *arg, const struct alq_claim_spec *spec, const struct alq_err *err)
{
    (void)spec;
    struct step *step = arg;
    struct alq_standalone *s = step->of;
    /* What could not be removed is prepare's to remove again; the claim is over. */
    step->err = err ? *err : (struct alq_err)ALQ_ERR_INIT;
    alq_locals_drop(&s->locals, alq_steal(&step->local));
    step_end(step, NULL, NULL);
}

static void end_run(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    const struct alq_config *cfg = step->of->parts.cfg;
    for (uint32_t i = 0; i < ALQ_CLAIM_RESULTS_MAX && !step->is_in_use; i++) {
        char id[ALQ_SHARE_ID_BYTES];
        alq_share_id_format(step->uid, i, id);
        step->is_in_use = alq_share_dir_is_in_use(cfg, id);
    }
    if (!step->is_in_use)
        alq_local_remove(cfg, step->uid, &step->err);
}

static void end_done(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    struct alq_standalone *s = step->of;
    struct alq_local *local = step->local;
    if (step->is_in_use)
        alq_err_set(&step->err, ALQ_EBUSY,
                    "claim %.80s is in use: end the programs that use the GPU by it first",
                    local->id.name);
    else if (!step->err.code && !s->prepare)
        alq_err_set(&step->err, ALQ_ECANCELED, "aliquotd is ending");
    if (step->err.code) {
        local->is_busy = 0;
        step_end(step, NULL, &step->err);
        return;
    }
    alq_unprepare_claim(s->prepare, &local->id, on_ended, step);
}

void alq_life_end(struct alq_standalone *s, struct alq_local *local, alq_life_cb cb, void *arg)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct step *step = local->is_busy ? NULL : step_new(s, local, cb, arg);
    if (!step) {
        alq_err_set(
            &err, local->is_busy ? ALQ_EBUSY : ALQ_ENOMEM, "claim %.80s: %s", local->id.name,
            local->is_busy ? "something else is being done with it; try again" : "out of memory");
        cb(arg, local, NULL, &err);
        return;
    }
    local->is_busy = 1;
    step->job = (struct alq_job){.run = end_run, .done = end_done};
    alq_work_submit(s->parts.work, &step->job);
}

/* ---- after a start ----------------------------------------------------------------------------
 */

static void on_resumed(void *arg, const struct alq_claim_spec *spec, const struct alq_err *err)
{
    struct alq_local *local = arg;
    struct alq_err why = ALQ_ERR_INIT;
    local->is_busy = 0;
    local->is_prepared = !err;
    if (!err && let_user_in(local->of, local, spec, &why))
        alq_warn(ALQ_LOG_KV({"uid", local->id.uid}), "its user cannot use it: %s", why.text);
    if (!err || !local->of->prepare)
        return;
    arm(local, RESUME_MS << (local->failures < 6 ? local->failures : 6));
    local->failures++;
}

void alq_life_resume(struct alq_standalone *s, struct alq_local *local)
{
    if (make_timer(s, local)) {
        alq_error(ALQ_LOG_KV({"uid", local->id.uid}), "out of memory: this claim is not served");
        return;
    }
    if (local->process.pid && !local->exit) {
        int fd = alq_process_again(&local->process);
        local->is_over = fd < 0 || watch(s, local, fd);
    }
    if (local->is_over) {
        end_over(local);
        return;
    }
    local->is_busy = 1;
    alq_prepare_claim(s->prepare, &local->id, deadline_ns(s), on_resumed, local);
}
