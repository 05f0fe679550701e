/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cells of the accuracy matrix: a pairwise cover of the factors (every two values of two
 * factors meet in some cell), made by a deterministic greedy program, and cells with names of their
 * own that are known to be hard. Pure.
 */
#ifndef ALQ_BENCH_ACCURACY_CELLS_H
#define ALQ_BENCH_ACCURACY_CELLS_H

#include <stdbool.h>
#include <stdint.h>

enum cell_kind {
    CELL_STEADY,  /* one limit, all the time */
    CELL_CHANGES, /* the node changes the limit every four seconds */
    CELL_RESTARTS /* a process of the share is killed and started anew every 700 ms */
};

enum cell_neighbours { CELL_ALONE, CELL_UNLIMITED, CELL_LIMITED };

struct cell {
    char name[64];
    enum cell_kind kind;
    uint32_t sms;
    uint64_t kernel_ns; /* 0: a heavy-tailed mix of 5 us to 5 ms */
    bool is_large;      /* grid of four times the SMs, else of a quarter of them */
    bool is_graph;
    bool has_steps; /* waits for its work after each 10 ms of it; else it never waits */
    uint32_t streams;
    uint32_t processes;
    uint32_t limit_pct;
    uint32_t demand_pct; /* asks for so much of its limit by itself; 0: for all it can get */
    enum cell_neighbours neighbours;
    uint32_t neighbour_count;
    uint32_t neighbour_pct; /* limit of each; 0: what the limit leaves, in equal parts */
    uint64_t measured_ns;   /* at least; 0: the matrix's 10 s */
};

#define CELLS_MAX 256u

/* Returns how many. cover: which of the many covers there are, 1 is the matrix's; the named cells
 * are in each. */
uint32_t cells_make(struct cell cells[CELLS_MAX], uint32_t cover);

#endif
