/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of the lender, see lender.h. A step is a job over the shares of the GPUs that have a
 * borrower. */
#define ALQ_LOG_MODULE "monitor"
#include "daemon/monitor/lender.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/monitor/usage.h"
#include "daemon/prepare/control.h"

struct step_share {
    char id[ALQ_SHARE_ID_BYTES];
    char gpu_uuid[ALQ_UUID_BYTES];
    struct alq_lend lend;
};

struct step {
    struct alq_job job; /* first */
    struct alq_lender *lender;
    const char *run_dir;
    int64_t now_ns;
    uint32_t count;
    struct step_share shares[];
};

struct alq_lender {
    struct alq_clock clock;
    struct alq_work *work;
    struct alq_shares *shares;
    struct alq_timer *timer;
    int is_set;  /* the timer is */
    int is_busy; /* a step is on a worker */
};

/* ---- on a worker ------------------------------------------------------------------------------
 */

/* Gate and counters lie side by side. */
struct figures {
    struct alq_gate gate;
    struct alq_counters counters;
};
static_assert(offsetof(struct alq_usage_section, counters) ==
                  offsetof(struct alq_usage_section, gate) + sizeof(struct alq_gate),
              "read at once");

static void observe(const struct step *step, struct step_share *s)
{
    struct figures f;
    const off_t at = ALQ_USAGE_HEADER_BYTES + offsetof(struct alq_usage_section, gate);
    alq_auto_close int fd = alq_usage_open(step->run_dir, s->id, "usage", O_RDONLY);
    if (fd < 0 || pread(fd, &f, sizeof(f), at) != (ssize_t)sizeof(f))
        memset(&f, 0, sizeof(f)); /* not there yet, or cut off: it has no work */
    const struct alq_lend_figures now = {
        .tat_ns = f.gate.tat_ns,
        .launches = f.counters.launches,
        .charged_ns = f.counters.charged_ns,
        .throttled_ns = f.counters.throttled_ns,
    };
    alq_lend_observe(&s->lend, &now, step->now_ns);
}

static void write_loan(const struct step *step, const struct step_share *s)
{
    struct alq_err err = ALQ_ERR_INIT;
    uint32_t pct = s->lend.borrowed_pct ? s->lend.cores_pct + s->lend.borrowed_pct : 0;
    alq_auto_close int fd = alq_usage_open(step->run_dir, s->id, "control", O_RDWR);
    if (fd < 0)
        return;
    if (alq_control_lend(fd, pct, (uint64_t)(step->now_ns + ALQ_LENDER_RUNS_NS), s->id, &err))
        alq_warn(ALQ_LOG_KV({"share", s->id}), "loan: %s", err.text);
}

/* The shares are in order of their GPU. */
static void run(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    struct alq_lend **all = calloc(step->count, sizeof(struct alq_lend *));
    if (!all)
        return;
    for (uint32_t i = 0; i < step->count; i++) {
        observe(step, &step->shares[i]);
        all[i] = &step->shares[i].lend;
    }
    for (uint32_t from = 0, to; from < step->count; from = to) {
        for (to = from + 1; to < step->count; to++)
            if (strcmp(step->shares[to].gpu_uuid, step->shares[from].gpu_uuid) != 0)
                break;
        alq_lend_divide(all + from, to - from, step->now_ns);
    }
    for (uint32_t i = 0; i < step->count; i++) {
        const struct alq_lend *l = &step->shares[i].lend;
        /* One of 0 percent is told that somebody lends, also when he lends nothing. */
        if (l->is_borrower && (alq_lend_is_active(l, step->now_ns) || l->cores_pct == 0))
            write_loan(step, &step->shares[i]);
    }
    free(all);
}

/* ---- on the loop ------------------------------------------------------------------------------
 */

static int has_borrower(const struct alq_lender *lender, const char *gpu_uuid)
{
    for (size_t i = 0; i < lender->shares->count; i++) {
        const struct alq_watched *w = lender->shares->all[i];
        if (w->lend.is_borrower && !strcmp(w->gpu_uuid, gpu_uuid))
            return 1;
    }
    return 0;
}

static int by_gpu(const void *a, const void *b)
{
    const struct step_share *x = a, *y = b;
    int order = strcmp(x->gpu_uuid, y->gpu_uuid);
    return order ? order : strcmp(x->id, y->id);
}

static void set_timer(struct alq_lender *lender, int64_t at_ns)
{
    lender->is_set = at_ns != ALQ_NEVER;
    lender->clock.timer_set(lender->timer, at_ns);
}

static void done(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    struct alq_lender *lender = step->lender;
    int64_t pause_ns = ALQ_LENDER_IDLE_NS;
    lender->is_busy = 0;
    for (uint32_t i = 0; i < step->count; i++) {
        const struct step_share *s = &step->shares[i];
        struct alq_watched *w = alq_shares_find(lender->shares, s->id);
        if (!w || strcmp(w->gpu_uuid, s->gpu_uuid) != 0)
            continue;
        w->lend.last = s->lend.last;
        w->lend.seen_ns = s->lend.seen_ns;
        w->lend.active_ns = s->lend.active_ns;
        w->lend.hungry_ns = s->lend.hungry_ns;
        w->lend.used_mpct = s->lend.used_mpct;
        w->lend.kept_pct = s->lend.kept_pct;
        w->lend.borrowed_pct = s->lend.borrowed_pct;
        if (w->lend.is_borrower && alq_lend_is_active(&w->lend, step->now_ns))
            pause_ns = ALQ_LENDER_STEP_NS;
    }
    set_timer(lender, step->now_ns + pause_ns);
    free(step);
}

static void begin(void *arg)
{
    struct alq_lender *lender = arg;
    const struct alq_shares *shares = lender->shares;
    struct step *step = calloc(1, sizeof(*step) + shares->count * sizeof(step->shares[0]));
    lender->is_set = 0;
    if (!step) { /* nothing is lent meanwhile */
        set_timer(lender, lender->clock.now_ns(lender->clock.arg) + ALQ_LENDER_IDLE_NS);
        return;
    }
    for (size_t i = 0; i < shares->count; i++) {
        const struct alq_watched *w = shares->all[i];
        if (!has_borrower(lender, w->gpu_uuid))
            continue;
        struct step_share *s = &step->shares[step->count++];
        memcpy(s->id, w->id, sizeof(s->id));
        memcpy(s->gpu_uuid, w->gpu_uuid, sizeof(s->gpu_uuid));
        s->lend = w->lend;
    }
    if (!step->count) {
        free(step);
        return;
    }
    qsort(step->shares, step->count, sizeof(step->shares[0]), by_gpu);
    step->lender = lender;
    step->run_dir = shares->cfg->run_dir;
    step->now_ns = lender->clock.now_ns(lender->clock.arg);
    step->job.run = run;
    step->job.done = done;
    lender->is_busy = 1;
    alq_work_submit(lender->work, &step->job);
}

void alq_lender_look(struct alq_lender *lender)
{
    if (!lender->is_set && !lender->is_busy)
        begin(lender);
}

struct alq_lender *alq_lender_new(struct alq_clock clock, struct alq_work *work,
                                  struct alq_shares *shares)
{
    struct alq_lender *lender = calloc(1, sizeof(*lender));
    if (!lender)
        return NULL;
    lender->clock = clock;
    lender->work = work;
    lender->shares = shares;
    lender->timer = clock.timer_new(clock.arg, begin, lender);
    if (!lender->timer) {
        free(lender);
        return NULL;
    }
    return lender;
}

void alq_lender_free(struct alq_lender *lender)
{
    if (!lender)
        return;
    lender->clock.timer_free(lender->timer);
    free(lender);
}
