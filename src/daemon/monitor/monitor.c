/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the monitor does what, see monitor.h. A round is: ledgers of busy shares (worker), NVML
 * (child), everything (worker), result. An NVML that does not answer within a second is not waited
 * for: the round goes on without.
 */
#define ALQ_LOG_MODULE "monitor"
#include "daemon/monitor/monitor.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "daemon/admin/http.h"
#include "daemon/monitor/state.h"
#include "daemon/prepare/prepare.h"

#define ROUND_NS (1000 * ALQ_NS_PER_MS)
#define USERS_WAIT_MAX_NS                                                                          \
    (60 * ROUND_NS)                         /* containers come soon after a Prepare, or much later \
                                             */
#define CLOCK_STEP_NS (100 * ALQ_NS_PER_MS) /* a smaller change of the wall clock is jitter */

static int64_t now_ns(const struct alq_monitor *m)
{
    return m->parts.clock.now_ns(m->parts.clock.arg);
}

static void set_timer(struct alq_monitor *m, int64_t at_ns)
{
    m->parts.clock.timer_set(m->timer, at_ns);
}

void alq_monitor_refresh(struct alq_monitor *m)
{
    if (!m->is_stale)
        return;
    if (alq_shares_sync(&m->shares, m->prepare))
        alq_error(NULL, "out of memory: some shares have no figures");
    m->is_stale = 0;
    m->users_ns = now_ns(m) + ROUND_NS;
    m->users_wait_ns = ROUND_NS;
    alq_lender_look(m->lender);
}

/* ---- a round ----------------------------------------------------------------------------------
 */

static void pause(struct alq_monitor *m, int64_t until_ns)
{
    alq_monitor_refresh(m);
    m->step = m->shares.count ? ALQ_MONITOR_PAUSE : ALQ_MONITOR_IDLE;
    set_timer(m, m->shares.count ? until_ns : ALQ_NEVER);
}

static void install(struct alq_monitor *m, struct alq_round *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        struct alq_watched *w = alq_shares_find(&m->shares, r->shares[i].id);
        if (w && !strcmp(w->gpu_uuid, r->shares[i].gpu_uuid))
            alq_watched_set(w, &r->shares[i].f);
    }
    if (r->has_sample) {
        free(m->loads);
        m->loads = r->gpus;
        m->load_count = r->gpu_count;
        r->gpus = NULL;
        free(m->processes);
        m->processes = r->processes;
        m->process_count = r->process_count;
        r->processes = NULL;
        alq_pacer_look(m->pacer);
    }
}

static void ask_users(struct alq_monitor *m)
{
    const int64_t now = now_ns(m);
    if (!m->prepare || !m->shares.count || now < m->users_ns)
        return;
    m->parts.ask_users(m->parts.users_arg);
    m->users_ns = now + m->users_wait_ns;
    m->users_wait_ns *= 2;
    if (m->users_wait_ns > USERS_WAIT_MAX_NS)
        m->users_wait_ns = USERS_WAIT_MAX_NS;
}

static void on_round(struct alq_job *job)
{
    struct alq_round *r = (struct alq_round *)job;
    struct alq_monitor *m = r->arg;
    m->round = NULL;
    alq_monitor_note(m, r);
    install(m, r);
    alq_round_free(r);
    pause(m, m->last_ns + ROUND_NS);
    ask_users(m);
}

static void run_round(struct alq_job *job)
{
    alq_round_run((struct alq_round *)job);
}

static void finish(struct alq_monitor *m)
{
    m->step = ALQ_MONITOR_ROUND;
    set_timer(m, ALQ_NEVER);
    m->round->job.run = run_round;
    m->round->job.done = on_round;
    alq_work_submit(m->parts.work, &m->round->job);
}

static void on_sample(void *arg, struct alq_sample *sample)
{
    struct alq_monitor *m = arg;
    if (m->step != ALQ_MONITOR_SAMPLE)
        return; /* too late */
    if (sample) {
        m->round->sample = *sample;
        m->round->has_sample = 1;
        *sample = (struct alq_sample){0};
    }
    finish(m);
}

static void on_before(struct alq_job *job)
{
    struct alq_monitor *m = ((struct alq_round *)job)->arg;
    m->step = ALQ_MONITOR_SAMPLE;
    set_timer(m, now_ns(m) + ROUND_NS);
    if (m->parts.sample(m->parts.sample_arg, on_sample, m))
        finish(m);
}

static void run_before(struct alq_job *job)
{
    alq_round_before((struct alq_round *)job);
}

static void begin(struct alq_monitor *m)
{
    alq_monitor_refresh(m);
    struct alq_round *r = alq_round_new((uint32_t)m->shares.count);
    if (!r) {
        alq_error(NULL, "out of memory for a round over %zu shares", m->shares.count);
        pause(m, now_ns(m) + ROUND_NS);
        return;
    }
    for (size_t i = 0; i < m->shares.count; i++) {
        const struct alq_watched *w = m->shares.all[i];
        struct alq_round_share *s = &r->shares[i];
        memcpy(s->id, w->id, sizeof(s->id));
        memcpy(s->gpu_uuid, w->gpu_uuid, sizeof(s->gpu_uuid));
        s->is_enforced = alq_watched_is_enforced(&m->shares, w);
        s->is_exclusive = !s->is_enforced && !w->share->is_admin;
        alq_watched_get(w, &s->f);
    }
    r->arg = m;
    r->files = &m->files;
    r->begun_ns = now_ns(m);
    r->last_ns = m->last_ns ? m->last_ns : r->begun_ns;
    m->last_ns = r->begun_ns;
    m->round = r;
    m->step = ALQ_MONITOR_BEFORE;
    set_timer(m, ALQ_NEVER);
    r->job.run = run_before;
    r->job.done = on_before;
    alq_work_submit(m->parts.work, &r->job);
}

static void on_time(void *arg)
{
    struct alq_monitor *m = arg;
    if (m->step == ALQ_MONITOR_PAUSE)
        begin(m);
    else if (m->step == ALQ_MONITOR_SAMPLE)
        finish(m);
}

/* There may be something new, and no round is due by itself. */
void alq_monitor_look(struct alq_monitor *m)
{
    if (m->step == ALQ_MONITOR_IDLE && (!m->last_ns || now_ns(m) - m->last_ns >= ROUND_NS))
        begin(m);
}

/* ---- the node ---------------------------------------------------------------------------------
 */

static void on_change(void *arg)
{
    struct alq_monitor *m = arg;
    m->is_stale = 1;
    if (m->step == ALQ_MONITOR_IDLE) {
        m->step = ALQ_MONITOR_PAUSE;
        set_timer(m, now_ns(m) + ROUND_NS);
    }
}

void alq_monitor_open(struct alq_monitor *m, struct alq_prepare *prepare)
{
    m->prepare = prepare;
    alq_prepare_on_change(prepare, on_change, m);
    on_change(m);
}

void alq_monitor_close(struct alq_monitor *m)
{
    if (m->prepare)
        alq_prepare_on_change(m->prepare, NULL, NULL);
    m->prepare = NULL;
    alq_shares_clear(&m->shares);
    if (m->step == ALQ_MONITOR_SAMPLE) {
        alq_round_free(m->round);
        m->round = NULL;
    }
    if (m->step == ALQ_MONITOR_SAMPLE || m->step == ALQ_MONITOR_PAUSE) {
        m->step = ALQ_MONITOR_IDLE;
        set_timer(m, ALQ_NEVER);
    }
}

void alq_monitor_set_gpus(struct alq_monitor *m, const struct alq_gpu_list *list)
{
    struct alq_gpu *gpus = calloc(list->count + 1, sizeof(*gpus));
    if (!gpus) {
        alq_error(NULL, "out of memory for %zu GPUs; the last list stays", list->count);
        return;
    }
    if (list->count)
        memcpy(gpus, list->gpus, list->count * sizeof(*gpus));
    free(m->gpus.gpus);
    m->gpus = (struct alq_gpu_list){gpus, list->count};
    alq_metric_set(ALQ_METRIC_GPUS, (int64_t)list->count, NULL, NULL);
    alq_monitor_look(m);
}

void alq_monitor_set_users(struct alq_monitor *m, const struct alq_share_user *users, size_t count)
{
    alq_shares_set_users(&m->shares, users, count);
}

/* ---- /metrics ---------------------------------------------------------------------------------
 */

static void read_wall_clock(struct alq_monitor *m)
{
    struct timespec boot, unix_;
    clock_gettime(CLOCK_BOOTTIME, &boot);
    clock_gettime(CLOCK_REALTIME, &unix_);
    int64_t ns =
        (int64_t)(unix_.tv_sec - boot.tv_sec) * 1000 * ALQ_NS_PER_MS + unix_.tv_nsec - boot.tv_nsec;
    m->boot_ns = (int64_t)boot.tv_sec * 1000 * ALQ_NS_PER_MS + boot.tv_nsec;
    if (llabs(ns - m->boot_to_unix_ns) > CLOCK_STEP_NS)
        m->boot_to_unix_ns = ns;
}

static void on_metrics(void *arg, struct alq_http_call *call,
                       const struct alq_http_request *request)
{
    struct alq_monitor *m = arg;
    enum alq_metrics_format format = alq_metrics_accept(request->accept);
    size_t len = 0;
    alq_monitor_refresh(m);
    read_wall_clock(m);
    if (m->prepare)
        alq_metric_set(ALQ_METRIC_PREPARED_CLAIMS, alq_prepare_count(m->prepare), NULL, NULL);
    char *page = alq_shares_label(&m->shares) ? NULL : alq_metrics_render(format, &len);
    alq_shares_unlabel(&m->shares);
    alq_http_answer(call, 200, alq_metrics_content_type(format), page, len);
    alq_monitor_look(m);
}

int alq_monitor_serve(struct alq_monitor *m, struct alq_http *http)
{
    return alq_http_handle(http, ALQ_HTTP_TCP | ALQ_HTTP_ADMIN, "GET", "/metrics", on_metrics, m);
}

/* ---- life -------------------------------------------------------------------------------------
 */

static const struct alq_round_process *processes(void *arg, uint32_t *count)
{
    const struct alq_monitor *m = arg;
    *count = m->process_count;
    return m->processes;
}

static struct alq_pacer *new_pacer(struct alq_monitor *m)
{
    const struct alq_pacer_parts parts = {.clock = m->parts.clock,
                                          .work = m->parts.work,
                                          .shares = &m->shares,
                                          .processes = processes,
                                          .processes_arg = m,
                                          .use = m->parts.use,
                                          .use_arg = m->parts.use_arg};
    return alq_pacer_new(&parts);
}

struct alq_monitor *alq_monitor_new(const struct alq_monitor_parts *parts, struct alq_err *err)
{
    struct alq_monitor *m = calloc(1, sizeof(*m));
    if (m) {
        m->parts = *parts;
        m->shares.cfg = parts->cfg;
        m->files.run_dir = parts->cfg->run_dir;
        m->timer = parts->clock.timer_new(parts->clock.arg, on_time, m);
    }
    if (m && m->timer)
        m->lender = alq_lender_new(parts->clock, parts->work, &m->shares);
    if (m && m->lender)
        m->pacer = new_pacer(m);
    if (!m || !m->pacer) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        if (m) {
            alq_lender_free(m->lender);
            parts->clock.timer_free(m->timer);
        }
        free(m);
        return NULL;
    }
    alq_metric_set(ALQ_METRIC_BUILD, 1, ALQ_VERSION, NULL);
    alq_metrics_collect(ALQ_SCOPE_SHARE, alq_collect_share, m);
    alq_metrics_collect(ALQ_SCOPE_GPU, alq_collect_gpu, m);
    if (parts->cfg->is_hami_metrics) {
        alq_metrics_collect(ALQ_SCOPE_HAMI_SHARE, alq_collect_hami_share, m);
        alq_metrics_collect(ALQ_SCOPE_HAMI_GPU, alq_collect_hami_gpu, m);
    }
    return m;
}

void alq_monitor_free(struct alq_monitor *m)
{
    if (!m)
        return;
    alq_monitor_close(m);
    for (enum alq_metric_scope scope = 0; scope < ALQ_SCOPE_COUNT; scope++)
        alq_metrics_collect(scope, NULL, NULL);
    alq_pacer_free(m->pacer);
    alq_lender_free(m->lender);
    alq_mounts_free(m->files.mounts);
    m->parts.clock.timer_free(m->timer);
    free(m->gpus.gpus);
    free(m->loads);
    free(m->processes);
    free(m);
}
