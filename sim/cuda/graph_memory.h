/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of graphs. An allocation node has a piece: an address in a block, which is a run of
 * addresses of one graph. Blocks get physical memory at a launch or an upload (they are bound), and
 * keep it, for later launches, until another graph needs it or the program trims. A block can lose
 * it while no piece of it is live and what ran on it is over, or stands before the taker in its
 * stream: so graphs of one stream share memory, and graphs of two that run at once do not.
 *
 * graph_memory.c has pieces and nodes, graph_pool.c blocks and what they are bound to. All is under
 * graph_lock, which is taken before a device's memory lock.
 */
#ifndef SIM_CUDA_GRAPH_MEMORY_H
#define SIM_CUDA_GRAPH_MEMORY_H

#include "cuda/graph.h"
#include "cuda/memory.h"

/* An operation of a stream, after which memory is no longer in use. */
struct graph_use {
    uint64_t number; /* 0: none */
    uint32_t index;
    unsigned long long stream;
};

struct graph_block {
    struct graph_pool *pool;
    CUdeviceptr address;
    uint64_t bytes, filled;
    uint64_t graph;              /* id of the graph whose pieces fill it */
    struct graph_memory *pieces; /* linked through `next` */
    unsigned int live;           /* of them */
    bool is_bound;
    bool is_instantiated; /* its graph is; then it stays bound while nobody else needs it */
    bool is_starting;     /* a launch is taking it */
    struct graph_use last;
};

/* One piece; allocation and free nodes, of graphs and executable graphs, refer to it. It is live
 * from the launch of an allocation to that of a free, or to a free of the program's. */
struct graph_memory {
    struct graph_block *block;
    struct graph_memory *next;
    CUdeviceptr address;
    uint64_t bytes;
    unsigned int references;
    bool is_live;
    bool will_live; /* scratch of a launch */
};

extern pthread_mutex_t graph_lock;

/* A block's place for a piece of that size of the graph's; *address is where. */
CUresult block_take(struct device *device, uint64_t graph, uint64_t bytes,
                    struct graph_block **block, CUdeviceptr *address);
/* A block without pieces goes, when nothing runs on it any more. */
void block_settle(struct graph_block *block);
/* Physical memory for all of the blocks, for work on that stream. CUDA_ERROR_OUT_OF_MEMORY, and
 * nothing bound that was not, when it does not fit; the lock is let go while waiting for graphs
 * that run in other streams. */
CUresult blocks_bind(struct graph_block **blocks, size_t count, const struct CUstream_st *stream);
/* The block around an address, or NULL. */
struct graph_block *block_around(CUdeviceptr address);
/* Where the block's bytes lie in the host's memory; notes that they are written. */
char *block_host(struct graph_block *block, bool is_write);
/* The device of a block. */
struct device *block_device(const struct graph_block *block);

#endif
