/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a streaming multiprocessor of a compute capability has room for, and occupancy by the rules
 * of NVIDIA's occupancy calculator: how many blocks of a kernel fit an SM at once. Pure functions.
 */
#ifndef SIM_COMMON_SM_H
#define SIM_COMMON_SM_H

#include <stdint.h>

struct sim_sm {
    uint32_t threads, blocks;       /* resident at once */
    uint32_t registers;             /* 32-bit, also the most of one block */
    uint32_t shared_bytes;          /* all of it, with what the system takes */
    uint32_t shared_optin_bytes;    /* the most that one block may ask for */
    uint32_t shared_reserved_bytes; /* the system's of each block's */
    uint32_t cluster_blocks;        /* portable cluster size; 0: no clusters */
};

struct sim_kernel_need {
    uint32_t threads;      /* of a block */
    uint32_t registers;    /* of a thread */
    uint64_t shared_bytes; /* of a block, static and dynamic */
};

struct sim_sm sim_sm_of(uint32_t cc_major, uint32_t cc_minor);

/* Blocks of the kernel that one SM holds at once; 0 when not even one fits. */
uint32_t sim_blocks_per_sm(const struct sim_sm *sm, const struct sim_kernel_need *need);

/* The largest block that the register file allows, in threads, at most 1024. */
uint32_t sim_threads_by_registers(const struct sim_sm *sm, uint32_t registers);

/* Dynamic shared memory left for each block when `blocks` of them share an SM. */
uint64_t sim_shared_left(const struct sim_sm *sm, uint32_t blocks, uint64_t static_bytes);

#endif
