/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of graphs: what allocation nodes ask for becomes physical when an executable graph is
 * uploaded or launched, and is then the device's (pool.h). So a launch reserves what the graph's
 * nodes ask for and the device's graph memory has no room for, and is settled by what the driver
 * has reserved. Any thread.
 */
#ifndef ALQ_VGPU_MEMORY_GRAPH_H
#define ALQ_VGPU_MEMORY_GRAPH_H

#include <stdatomic.h>

#include "vgpu/memory/pool.h"

extern _Atomic uint32_t alq_graph_trims; /* how often unused graph memory was given back */
extern _Atomic uint32_t alq_graph_count; /* executable graphs with memory, one for each device */

struct alq_graph_launch {
    struct alq_pool_call call[ALQ_DEVICES_MAX]; /* pool NULL: nothing there */
};

/* Around a launch or an upload, while alq_graph_count is not 0. begin: CUDA_ERROR_OUT_OF_MEMORY is
 * the answer to the program. */
CUresult alq_graph_begin(CUgraphExec exec, struct alq_graph_launch *launch);
void alq_graph_end(CUgraphExec exec, const struct alq_graph_launch *launch, CUresult result);

/* After an executable graph is gone. */
void alq_graph_gone(CUgraphExec exec);

/* After what may have made the graph memory of a device (NULL: of all) grow or shrink. */
void alq_graph_grown(struct alq_dev *dev);

#endif
