/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix of cells.h. Pure. */
#include "cells.h"

#include <stdio.h>
#include <string.h>

enum factor {
    SMS,
    KERNEL,
    GRID,
    STREAMS,
    PROCESSES,
    LIMIT,
    LAUNCH,
    NEIGHBOURS,
    STEPS,
    FACTORS,
};
#define LEVELS 6u
#define TRIES 64u /* candidates for each cell of the cover */

static const uint32_t level_count[FACTORS] = {4, 6, 2, 4, 4, 6, 2, 4, 2};
static const uint32_t sms[] = {40, 108, 132, 188};
static const uint64_t kernel_ns[] = {5000, 50000, 500000, 5000000, 50000000, 0};
static const char *const kernel_name[] = {"5us", "50us", "500us", "5ms", "50ms", "mix"};
static const uint32_t powers[] = {1, 2, 4, 8};
static const uint32_t limits[] = {5, 10, 30, 50, 75, 90};
static const char *const neighbour_name[] = {"alone", "unlimited", "2-limited", "4-limited"};

static void name_cell(struct cell *c, const uint32_t *level)
{
    snprintf(c->name, sizeof(c->name), "%u%%-%s-%s-%s-%usm-%ux%u-%s%s", c->limit_pct,
             neighbour_name[level[NEIGHBOURS]], kernel_name[level[KERNEL]],
             c->is_large ? "large" : "small", c->sms, c->processes, c->streams,
             c->is_graph ? "graph" : "eager", c->has_steps ? "-steps" : "");
}

static struct cell cell_of(const uint32_t *level)
{
    static const uint32_t neighbour_counts[] = {0, 1, 2, 4};
    struct cell c = {
        .sms = sms[level[SMS]],
        .kernel_ns = kernel_ns[level[KERNEL]],
        .is_large = level[GRID] == 1,
        .streams = powers[level[STREAMS]],
        .processes = powers[level[PROCESSES]],
        .limit_pct = limits[level[LIMIT]],
        .is_graph = level[LAUNCH] == 1,
        .neighbours = level[NEIGHBOURS] == 0   ? CELL_ALONE
                      : level[NEIGHBOURS] == 1 ? CELL_UNLIMITED
                                               : CELL_LIMITED,
        .neighbour_count = neighbour_counts[level[NEIGHBOURS]],
        .has_steps = level[STEPS] == 1,
    };
    name_cell(&c, level);
    return c;
}

/* ---- pairwise cover ------------------------------------------------------------------------ */

static bool is_met[FACTORS][LEVELS][FACTORS][LEVELS];
static uint32_t lot;

static uint32_t draw(uint32_t below)
{
    lot = lot * 1664525u + 1013904223u;
    return (lot >> 16) % below;
}

static uint32_t count_new(const uint32_t *level)
{
    uint32_t n = 0;
    for (uint32_t a = 0; a < FACTORS; a++)
        for (uint32_t b = a + 1; b < FACTORS; b++)
            n += !is_met[a][level[a]][b][level[b]];
    return n;
}

static void meet(const uint32_t *level)
{
    for (uint32_t a = 0; a < FACTORS; a++)
        for (uint32_t b = a + 1; b < FACTORS; b++)
            is_met[a][level[a]][b][level[b]] = true;
}

/* Two values that have not met. */
static bool find_unmet(uint32_t *level)
{
    for (uint32_t a = 0; a < FACTORS; a++)
        for (uint32_t b = a + 1; b < FACTORS; b++)
            for (uint32_t i = 0; i < level_count[a]; i++)
                for (uint32_t j = 0; j < level_count[b]; j++)
                    if (!is_met[a][i][b][j]) {
                        for (uint32_t f = 0; f < FACTORS; f++)
                            level[f] = draw(level_count[f]);
                        level[a] = i;
                        level[b] = j;
                        return true;
                    }
    return false;
}

static uint32_t make_cover(struct cell *cells, uint32_t room)
{
    uint32_t n = 0, level[FACTORS], best[FACTORS];
    memset(is_met, 0, sizeof(is_met));
    for (; n < room && find_unmet(level); n++) {
        uint32_t most = 0;
        for (uint32_t i = 0; i < TRIES && find_unmet(level); i++) {
            uint32_t gain = count_new(level);
            if (gain > most) {
                most = gain;
                memcpy(best, level, sizeof(best));
            }
        }
        meet(best);
        cells[n] = cell_of(best);
    }
    return n;
}

/* ---- cells with names ---------------------------------------------------------------------- */

static const struct cell named[] = {
    /* Where the field's gates fail: large GPUs, long kernels, few percent. */
    {.name = "188sm-50%-1ms", .sms = 188, .kernel_ns = 1000000, .limit_pct = 50},
    {.name = "188sm-10%-3ms", .sms = 188, .kernel_ns = 3000000, .limit_pct = 10},
    {.name = "132sm-30%-20ms", .sms = 132, .kernel_ns = 20000000, .limit_pct = 30},
    {.name = "5%-50ms", .sms = 108, .kernel_ns = 50000000, .limit_pct = 5},
    {.name = "90%-5us-graph", .sms = 132, .kernel_ns = 5000, .limit_pct = 90, .is_graph = true},
    {.name = "30%-mix-8-processes", .sms = 132, .limit_pct = 30, .processes = 8, .streams = 8},
    {.name = "50%-small-8-streams",
     .sms = 132,
     .kernel_ns = 500000,
     .limit_pct = 50,
     .streams = 8,
     .has_steps = true},
    {.name = "10%-5ms-8-processes",
     .sms = 132,
     .kernel_ns = 5000000,
     .limit_pct = 10,
     .processes = 8,
     .is_large = true},
    /* Neighbours. */
    {.name = "share-30-beside-60",
     .sms = 132,
     .kernel_ns = 500000,
     .is_large = true,
     .limit_pct = 30,
     .neighbours = CELL_LIMITED,
     .neighbour_count = 1,
     .neighbour_pct = 60},
    {.name = "share-60-beside-30",
     .sms = 132,
     .kernel_ns = 500000,
     .is_large = true,
     .limit_pct = 60,
     .neighbours = CELL_LIMITED,
     .neighbour_count = 1,
     .neighbour_pct = 30},
    {.name = "share-30-beside-70",
     .sms = 132,
     .kernel_ns = 1000000,
     .is_large = true,
     .limit_pct = 30,
     .neighbours = CELL_LIMITED,
     .neighbour_count = 1,
     .neighbour_pct = 70},
    {.name = "30%-beside-unlimited",
     .sms = 132,
     .kernel_ns = 1000000,
     .is_large = true,
     .limit_pct = 30,
     .neighbours = CELL_UNLIMITED,
     .neighbour_count = 1},
    {.name = "30%-mix-beside-unlimited",
     .sms = 132,
     .limit_pct = 30,
     .neighbours = CELL_UNLIMITED,
     .neighbour_count = 1},
    /* Demand below the share. */
    {.name = "asks-10%-of-50%", .sms = 132, .kernel_ns = 500000, .limit_pct = 50, .demand_pct = 10},
    {.name = "asks-25%-of-50%", .sms = 132, .kernel_ns = 500000, .limit_pct = 50, .demand_pct = 25},
    {.name = "asks-80%-of-50%", .sms = 132, .kernel_ns = 500000, .limit_pct = 50, .demand_pct = 80},
    {.name = "asks-80%-of-10%-5us",
     .sms = 132,
     .kernel_ns = 5000,
     .limit_pct = 10,
     .demand_pct = 80},
    /* Over time. */
    {.name = "limit-changes-500us",
     .kind = CELL_CHANGES,
     .sms = 132,
     .kernel_ns = 500000,
     .limit_pct = 50},
    {.name = "limit-changes-5ms",
     .kind = CELL_CHANGES,
     .sms = 132,
     .kernel_ns = 5000000,
     .limit_pct = 50},
    {.name = "restarts-500us",
     .kind = CELL_RESTARTS,
     .sms = 132,
     .kernel_ns = 500000,
     .limit_pct = 30,
     .processes = 2},
    {.name = "restarts-5ms",
     .kind = CELL_RESTARTS,
     .sms = 132,
     .kernel_ns = 5000000,
     .limit_pct = 30,
     .processes = 2},
    {.name = "three-hours",
     .sms = 132,
     .kernel_ns = 1000000,
     .limit_pct = 30,
     .processes = 2,
     .measured_ns = 3ull * 3600 * 1000000000},
};

uint32_t cells_make(struct cell cells[CELLS_MAX], uint32_t cover)
{
    const uint32_t named_count = sizeof(named) / sizeof(named[0]);
    lot = cover;
    uint32_t n = make_cover(cells, CELLS_MAX - named_count);
    for (uint32_t i = 0; i < named_count; i++) {
        cells[n] = named[i];
        if (!cells[n].streams)
            cells[n].streams = 1;
        if (!cells[n].processes)
            cells[n].processes = 1;
        n++;
    }
    return n;
}
