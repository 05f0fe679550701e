/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of the pacer, see pacer.h. A step is: what was charged (worker), what ran (NVML's child),
 * corrections (worker).
 */
#define ALQ_LOG_MODULE "monitor"
#include "daemon/monitor/pacer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/monitor/pace.h"
#include "daemon/monitor/usage.h"
#include "daemon/prepare/control.h"

#define MOVING_NS                                                                                  \
    (1000 * ALQ_NS_PER_MS) /* so long after its last charge a share is asked about                 \
                            */
#define WINDOW_MAX_NS                                                                              \
    (1000 * ALQ_NS_PER_MS) /* a longer one holds a rest, of which NVML has no samples */
#define GPUS_MAX 128u

struct paced {
    char id[ALQ_SHARE_ID_BYTES];
    char gpu_uuid[ALQ_UUID_BYTES];
    uint32_t limit_pct;
    uint64_t charged_ns;
    int64_t moved_ns; /* when that changed last */
    struct alq_pace pace;
    int is_corrected;                   /* something may be in force */
    struct alq_time_correction written; /* the last */
    int has_failed; /* its control file could not be written, and the log has it */
    /* the step's own */
    int is_read;
    int has_order;
    struct alq_pace_order order;
};

struct step {
    struct alq_job job; /* first */
    struct alq_pacer *pacer;
    int64_t read_ns;  /* when the usage files were read */
    int64_t until_ns; /* how long what is written holds */
    uint32_t count;
    struct paced shares[]; /* in order of their ids */
};

struct alq_pacer {
    struct alq_pacer_parts parts;
    struct alq_timer *timer;
    int is_set;        /* the timer is */
    struct step *now;  /* owned; the one under way */
    struct step *last; /* owned; the one before it */
};

static int64_t now_ns(const struct alq_pacer *p)
{
    return p->parts.clock.now_ns(p->parts.clock.arg);
}

/* ---- on a worker ------------------------------------------------------------------------------
 */

static const char *run_dir_of(const struct step *step)
{
    return step->pacer->parts.shares->cfg->run_dir;
}

static void run_read(struct alq_job *job)
{
    const off_t at = ALQ_USAGE_HEADER_BYTES + offsetof(struct alq_usage_section, counters) +
                     offsetof(struct alq_counters, charged_ns);
    struct step *step = (struct step *)job;
    for (uint32_t i = 0; i < step->count; i++) {
        struct paced *s = &step->shares[i];
        uint64_t charged_ns;
        alq_auto_close int fd = alq_usage_open(run_dir_of(step), s->id, "usage", O_RDONLY);
        s->is_read = fd >= 0 &&
                     pread(fd, &charged_ns, sizeof(charged_ns), at) == (ssize_t)sizeof(charged_ns);
        if (!s->is_read || charged_ns == s->charged_ns)
            continue;
        s->charged_ns = charged_ns;
        s->moved_ns = step->read_ns;
    }
}

/* Most shares of a busy GPU may do nothing: theirs is renewed when it is half over. */
static int is_in_force(const struct paced *s, const struct alq_time_correction *correction)
{
    return !correction->credit_ns && correction->ppm == s->written.ppm &&
           correction->is_contended == s->written.is_contended &&
           correction->until_ns - s->written.until_ns < ALQ_PACER_HOLDS_NS / 2;
}

static void run_write(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    for (uint32_t i = 0; i < step->count; i++) {
        struct paced *s = &step->shares[i];
        struct alq_err err = ALQ_ERR_INIT;
        const struct alq_time_correction correction = {
            .ppm = s->order.ppm,
            .credit_ns = s->order.credit_ns,
            .is_contended = s->order.is_contended,
            .until_ns = (uint64_t)step->until_ns,
        };
        if (!s->has_order || !(s->order.is_contended || s->is_corrected) ||
            is_in_force(s, &correction))
            continue;
        alq_auto_close int fd = alq_usage_open(run_dir_of(step), s->id, "control", O_RDWR);
        if (fd < 0)
            continue;
        const int has_failed = alq_control_pace(fd, &correction, s->id, &err) != 0;
        if (has_failed && !s->has_failed)
            alq_warn(ALQ_LOG_KV({"share", s->id}), "correction of time: %s", err.text);
        s->has_failed = has_failed;
        s->written = correction;
        s->is_corrected = s->order.is_contended;
    }
}

/* ---- whose is what ----------------------------------------------------------------------------
 */

/* A GPU with processes on it. */
struct place {
    const char *uuid;
    const char *first; /* the share of a process, "" outside all */
    int has_company;   /* processes of another share, or outside */
};

static struct place *place_of(struct place *places, uint32_t count, const char *uuid)
{
    for (uint32_t i = 0; i < count; i++)
        if (!strcmp(places[i].uuid, uuid))
            return &places[i];
    return NULL;
}

static uint32_t find_company(const struct alq_pacer *p, struct place places[GPUS_MAX])
{
    uint32_t of = 0, count = 0;
    const struct alq_round_process *all = p->parts.processes(p->parts.processes_arg, &of);
    for (uint32_t i = 0; i < of; i++) {
        struct place *at = place_of(places, count, all[i].gpu_uuid);
        if (at)
            at->has_company |= strcmp(at->first, all[i].share_id) != 0;
        else if (count < GPUS_MAX)
            places[count++] = (struct place){.uuid = all[i].gpu_uuid, .first = all[i].share_id};
    }
    return count;
}

static int by_id(const void *key, const void *element)
{
    return strcmp(key, ((const struct paced *)element)->id);
}

static struct paced *paced_of(struct step *step, const char *id)
{
    return bsearch(id, step->shares, step->count, sizeof(step->shares[0]), by_id);
}

/* Of those of the last round; NULL: it was not there. */
static const struct alq_round_process *known(const struct alq_round_process *all, uint32_t count,
                                             const char *uuid, uint32_t pid)
{
    for (uint32_t i = 0; i < count; i++)
        if (all[i].pid == pid && !strcmp(all[i].gpu_uuid, uuid))
            return &all[i];
    return NULL;
}

/* ---- on the loop ------------------------------------------------------------------------------
 */

static void set_timer(struct alq_pacer *p, int64_t at_ns)
{
    p->is_set = at_ns != ALQ_NEVER;
    p->parts.clock.timer_set(p->timer, at_ns);
}

static void end_step(struct alq_pacer *p, struct step *step)
{
    p->now = NULL;
    free(p->last);
    p->last = step;
    set_timer(p, step->read_ns + ALQ_PACER_STEP_NS);
}

static void on_written(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    end_step(step->pacer, step);
}

/* What ran on a GPU: all of it, and each share's. Returns whether all of it is known: a process
 * that began after the last round may be anybody's. */
static int sum_up(struct step *step, const struct alq_use_gpu *gpu, uint64_t *all_ns,
                  uint64_t *shares_ns)
{
    int is_known = 1;
    uint32_t count = 0;
    const struct alq_pacer_parts *parts = &step->pacer->parts;
    const struct alq_round_process *all = parts->processes(parts->processes_arg, &count);
    for (uint32_t i = 0; i < gpu->process_count; i++) {
        const struct alq_use_process *u = &gpu->processes[i];
        const struct alq_round_process *process = known(all, count, gpu->uuid, u->pid);
        const uint64_t ns = (uint64_t)gpu->window_ns / 100 * u->sm_pct;
        struct paced *s = process ? paced_of(step, process->share_id) : NULL;
        is_known = is_known && (process || !ns);
        *all_ns += ns;
        if (s)
            shares_ns[s - step->shares] += ns;
    }
    return is_known;
}

static void pace_gpu(struct step *step, const struct alq_use_gpu *gpu, int64_t at_ns)
{
    uint64_t all_ns = 0;
    alq_auto_free uint64_t *shares_ns = calloc(step->count, sizeof(*shares_ns));
    if (!shares_ns)
        return;
    const int is_known = sum_up(step, gpu, &all_ns, shares_ns);
    const int is_good = is_known && gpu->window_ns <= WINDOW_MAX_NS;
    /* 0: nothing is new. */
    const int64_t end_ns = gpu->window_ns ? at_ns - gpu->age_ns : 0;
    for (uint32_t i = 0; i < step->count; i++) {
        struct paced *s = &step->shares[i];
        if (!s->is_read || strcmp(s->gpu_uuid, gpu->uuid) != 0)
            continue;
        const struct alq_pace_window window = {
            .now_ns = step->read_ns,
            .charged_ns = s->charged_ns,
            .end_ns = end_ns < step->read_ns ? end_ns : step->read_ns,
            .wall_ns = is_good ? (uint64_t)gpu->window_ns : 0,
            .nvml_ns = shares_ns[i],
            .others_ns = all_ns > shares_ns[i] ? all_ns - shares_ns[i] : 0,
            .limit_pct = s->limit_pct,
        };
        alq_pace(&s->pace, &window, &s->order);
        s->has_order = 1;
    }
}

static void on_use(void *arg, struct alq_use *use)
{
    struct step *step = arg;
    const int64_t at_ns = now_ns(step->pacer);
    for (uint32_t i = 0; use && i < use->gpu_count; i++)
        pace_gpu(step, &use->gpus[i], at_ns);
    step->until_ns = at_ns + ALQ_PACER_HOLDS_NS;
    step->job.run = run_write;
    step->job.done = on_written;
    alq_work_submit(step->pacer->parts.work, &step->job);
}

static int is_moving(const struct step *step)
{
    for (uint32_t i = 0; i < step->count; i++)
        if (step->shares[i].moved_ns && step->read_ns - step->shares[i].moved_ns < MOVING_NS)
            return 1;
    return 0;
}

static void on_read(struct alq_job *job)
{
    struct step *step = (struct step *)job;
    struct alq_pacer *p = step->pacer;
    if (!is_moving(step) || p->parts.use(p->parts.use_arg, on_use, step))
        end_step(p, step);
}

/* Of a GPU with company, limited, and with a process. */
static int is_wanted(const struct alq_watched *w, struct place *places, uint32_t count)
{
    if (!w->lend.is_measured || !alq_watched_figures(w)->gpu_processes)
        return 0;
    const struct place *at = place_of(places, count, w->gpu_uuid);
    return at && at->has_company;
}

static void add(struct step *step, const struct alq_watched *w)
{
    struct paced *s = &step->shares[step->count++];
    const struct paced *had = step->pacer->last ? paced_of(step->pacer->last, w->id) : NULL;
    if (had && !strcmp(had->gpu_uuid, w->gpu_uuid))
        *s = *had;
    memcpy(s->id, w->id, sizeof(s->id));
    memcpy(s->gpu_uuid, w->gpu_uuid, sizeof(s->gpu_uuid));
    s->limit_pct = w->lend.cores_pct + w->lend.borrowed_pct;
    s->has_order = 0;
}

static void begin(void *arg)
{
    struct alq_pacer *p = arg;
    const struct alq_shares *shares = p->parts.shares;
    struct place places[GPUS_MAX];
    const uint32_t place_count = find_company(p, places);
    uint32_t wanted = 0;
    p->is_set = 0;
    for (size_t i = 0; i < shares->count; i++)
        wanted += (uint32_t)is_wanted(shares->all[i], places, place_count);
    struct step *step = wanted ? calloc(1, sizeof(*step) + wanted * sizeof(step->shares[0])) : NULL;
    if (!step) { /* nothing is corrected: what was ends by itself */
        free(p->last);
        p->last = NULL;
        return;
    }
    step->pacer = p;
    for (size_t i = 0; i < shares->count; i++)
        if (is_wanted(shares->all[i], places, place_count))
            add(step, shares->all[i]);
    step->read_ns = now_ns(p);
    step->job.run = run_read;
    step->job.done = on_read;
    p->now = step;
    alq_work_submit(p->parts.work, &step->job);
}

void alq_pacer_look(struct alq_pacer *p)
{
    if (!p->is_set && !p->now)
        begin(p);
}

struct alq_pacer *alq_pacer_new(const struct alq_pacer_parts *parts)
{
    struct alq_pacer *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->parts = *parts;
    p->timer = parts->clock.timer_new(parts->clock.arg, begin, p);
    if (!p->timer) {
        free(p);
        return NULL;
    }
    return p;
}

void alq_pacer_free(struct alq_pacer *p)
{
    if (!p)
        return;
    p->parts.clock.timer_free(p->timer);
    free(p->now); /* waits for NVML */
    free(p->last);
    free(p);
}
