/* SPDX-License-Identifier: Apache-2.0 */
/* The program that a simulated process of a cell runs: it launches all it can, or part of its
 * share. */
#ifndef ALQ_BENCH_ACCURACY_PROGRAM_H
#define ALQ_BENCH_ACCURACY_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

struct program {
    uint64_t kernel_ns; /* give or take two percent; 0: the heavy-tailed mix */
    uint32_t blocks;
    uint32_t streams; /* by turns */
    bool is_graph;
    bool has_steps;
    uint32_t demand_ppm; /* of the GPU, by itself, in steps of 10 ms; 0: all it can get */
};

/* For world_process_new; arg is a struct program that lives as long. */
void program_run(void *arg);

#endif
