/* SPDX-License-Identifier: Apache-2.0 */
/* The measurements of run.h, on a world of its own for each cell. */
#include "run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "program.h"
#include "world.h"

#define TICK_NS (50 * MS)
#define TICKS_PER_S (SEC / TICK_NS)
#define WINDOW_TICKS 10u /* of settling */
#define SETTLED_PCT 5.0
#define SKIPPED_TICKS TICKS_PER_S
#define LEAST_NS (10 * SEC)
#define LEAST_KERNELS 200u
#define MOST_NS (1200 * SEC)    /* unless the cell asks for more */
#define SHORT_NS (5 * MS)       /* kernels up to this are judged by the second */
#define FREE_NS (3 * SEC)       /* how long a share without a limit is watched, */
#define FREE_LONG_NS (20 * SEC) /* with longer kernels */
#define CHANGE_NS (4 * SEC)
#define RESTART_NS (700 * MS)
#define PROCESSES_MAX 16u

static const uint32_t changes[] = {50, 10, 90, 30, 5, 75};

struct scene {
    struct world_share *share;
    struct program own, neighbour;
    struct world_process *processes[PROCESSES_MAX];
    double *busy; /* percent of each tick */
    uint32_t ticks, room;
    uint64_t kernels_before; /* of processes that were killed */
};

static uint32_t neighbour_limit(const struct cell *cell)
{
    if (cell->neighbours == CELL_UNLIMITED)
        return 0;
    return cell->neighbour_pct ? cell->neighbour_pct
                               : (100 - cell->limit_pct) / cell->neighbour_count;
}

static void open_scene(const struct cell *cell, uint32_t limit_pct, struct scene *s)
{
    uint32_t blocks = cell->is_large ? 4 * cell->sms : cell->sms / 4;
    *s = (struct scene){
        .own = {.kernel_ns = cell->kernel_ns,
                .blocks = blocks,
                .streams = cell->streams,
                .is_graph = cell->is_graph,
                .has_steps = cell->has_steps,
                .demand_ppm = cell->limit_pct * cell->demand_pct * 100},
        .neighbour = {.kernel_ns = MS, .blocks = 4 * cell->sms, .streams = 1},
    };
    world_open(cell->sms);
    s->share = world_share_new(limit_pct);
    for (uint32_t i = 0; i < cell->processes; i++)
        s->processes[i] = world_process_new(s->share, program_run, &s->own);
    for (uint32_t i = 0; i < cell->neighbour_count; i++)
        world_process_new(world_share_new(neighbour_limit(cell)), program_run, &s->neighbour);
}

static void close_scene(struct scene *s)
{
    world_close();
    free(s->busy);
}

static void tick(struct scene *s)
{
    uint64_t before = world_share_busy_ns(s->share);
    if (s->ticks == s->room) {
        s->room = s->room ? 2 * s->room : 1024;
        s->busy = realloc(s->busy, s->room * sizeof(*s->busy));
        if (!s->busy) {
            fputs("accuracy: out of memory\n", stderr);
            exit(1);
        }
    }
    world_run_until(world_now() + TICK_NS);
    s->busy[s->ticks++] =
        100.0 * (double)(world_share_busy_ns(s->share) - before) / (double)TICK_NS;
}

static double mean(const double *v, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += v[i];
    return n ? sum / n : 0;
}

static double sd_1s(const double *v, uint32_t n)
{
    double all = mean(v, n / TICKS_PER_S * TICKS_PER_S), sum = 0;
    uint32_t seconds = n / TICKS_PER_S;
    for (uint32_t i = 0; i < seconds; i++) {
        double d = mean(v + i * TICKS_PER_S, TICKS_PER_S) - all;
        sum += d * d;
    }
    return seconds ? sqrt(sum / seconds) : 0;
}

/* Until windows stay near the target; n ticks if they never do. */
static double settle_ms(const double *v, uint32_t n, double target)
{
    uint32_t settled = n;
    for (uint32_t i = n < WINDOW_TICKS ? 0 : n - WINDOW_TICKS + 1; i-- > 0;) {
        if (fabs(mean(v + i, WINDOW_TICKS) - target) > SETTLED_PCT)
            break;
        settled = i;
    }
    return (double)settled * (double)TICK_NS / (double)MS;
}

static uint64_t kernels_of(const struct cell *cell, const struct scene *s)
{
    uint64_t sum = s->kernels_before;
    for (uint32_t i = 0; i < cell->processes; i++)
        sum += world_process_kernels(s->processes[i]);
    return sum;
}

/* What the share gets of the GPU when nothing limits it, beside the same neighbours. */
static double free_pct(const struct cell *cell)
{
    struct scene s;
    open_scene(cell, 0, &s);
    world_run_until(world_now() + SEC);
    uint64_t span = cell->kernel_ns > SHORT_NS ? FREE_LONG_NS : FREE_NS;
    uint64_t before = world_share_busy_ns(s.share);
    world_run_until(world_now() + span);
    double pct = 100.0 * (double)(world_share_busy_ns(s.share) - before) / (double)span;
    close_scene(&s);
    return pct;
}

static bool is_short(const struct cell *cell)
{
    return cell->kernel_ns <= SHORT_NS;
}

static void restart(const struct cell *cell, struct scene *s, uint32_t turn)
{
    struct world_process **p = &s->processes[turn % cell->processes];
    s->kernels_before += world_process_kernels(*p);
    world_process_kill(*p);
    *p = world_process_new(s->share, program_run, &s->own);
}

static void run_steady(const struct cell *cell, struct result *out)
{
    struct scene s;
    uint64_t least_ns = cell->measured_ns ? cell->measured_ns : LEAST_NS;
    uint64_t kernels = 0;
    double target = free_pct(cell);
    if (target > cell->limit_pct)
        target = cell->limit_pct;
    open_scene(cell, cell->limit_pct, &s);
    uint64_t begin = world_now(), next_restart = begin + RESTART_NS;
    for (uint32_t turn = 0;;) {
        tick(&s);
        if (s.ticks == SKIPPED_TICKS)
            kernels = kernels_of(cell, &s);
        if (cell->kind == CELL_RESTARTS && world_now() >= next_restart) {
            restart(cell, &s, turn++);
            next_restart += RESTART_NS;
        }
        uint64_t ran = world_now() - begin;
        if (ran >= SEC + least_ns &&
            (cell->demand_pct || ran >= MOST_NS || kernels_of(cell, &s) - kernels >= LEAST_KERNELS))
            break;
    }
    const double *v = s.busy + SKIPPED_TICKS;
    uint32_t n = s.ticks - (uint32_t)SKIPPED_TICKS;
    out->target_pct = target;
    out->mean_pct = mean(v, n);
    out->error_pct = out->mean_pct - target;
    out->kernels = kernels_of(cell, &s) - kernels;
    out->measured_ns = n * TICK_NS;
    if (is_short(cell)) {
        out->sd_1s_pct = sd_1s(v, n);
        out->settle_ms = settle_ms(s.busy, s.ticks, target);
        if (cell->neighbours == CELL_ALONE)
            out->lost_pct = out->mean_pct < target ? 100 * (target - out->mean_pct) / target : 0;
    }
    out->drift_pct = mean(v + n - n / 10, n / 10) - mean(v, n / 10);
    close_scene(&s);
}

static void run_changes(const struct cell *cell, struct result *out)
{
    struct scene s;
    const uint32_t phases = sizeof(changes) / sizeof(changes[0]);
    out->error_pct = out->sd_1s_pct = out->settle_ms = 0;
    open_scene(cell, changes[0], &s);
    for (uint32_t i = 0; i < phases; i++) {
        uint32_t first = s.ticks;
        uint64_t until = world_now() + CHANGE_NS;
        if (i)
            world_share_limit(s.share, changes[i]);
        while (world_now() < until)
            tick(&s);
        const double *v = s.busy + first;
        uint32_t n = s.ticks - first;
        double got = mean(v + TICKS_PER_S, n - (uint32_t)TICKS_PER_S);
        double settle = settle_ms(v, n, changes[i]);
        if (fabs(got - changes[i]) >= fabs(out->error_pct)) {
            out->error_pct = got - changes[i];
            out->target_pct = changes[i];
            out->mean_pct = got;
        }
        if (settle > out->settle_ms)
            out->settle_ms = settle;
        double sd = sd_1s(v + TICKS_PER_S, n - (uint32_t)TICKS_PER_S);
        if (sd > out->sd_1s_pct)
            out->sd_1s_pct = sd;
    }
    out->kernels = kernels_of(cell, &s);
    out->measured_ns = s.ticks * TICK_NS;
    close_scene(&s);
}

void run_cell(const struct cell *cell, struct result *out)
{
    *out = (struct result){.sd_1s_pct = -1, .settle_ms = -1, .lost_pct = -1};
    if (cell->kind == CELL_CHANGES)
        run_changes(cell, out);
    else
        run_steady(cell, out);
}
