/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the simulator reads from a module in PTX text: its kernels (.entry) with the sizes of their
 * parameters, and its global variables. Everything else is skipped. No state; allocates the result.
 */
#ifndef SIM_COMMON_PTX_H
#define SIM_COMMON_PTX_H

#include <stddef.h>
#include <stdint.h>

#define SIM_PTX_PARAMS 64u

struct sim_ptx_kernel {
    char *name;
    uint32_t param_count;
    uint32_t param_bytes[SIM_PTX_PARAMS];
    uint32_t param_offset[SIM_PTX_PARAMS]; /* in the parameter buffer, aligned as declared */
};

struct sim_ptx_global {
    char *name;
    uint64_t bytes;
};

struct sim_ptx {
    uint32_t kernel_count, global_count;
    struct sim_ptx_kernel *kernels;
    struct sim_ptx_global *globals;
};

/* Whether the text (NUL-terminated) claims to be PTX: it has a .version directive. */
int sim_ptx_is(const char *text);

/* 0, -EINVAL for a declaration that cannot be read, -ENOMEM. On failure *ptx is empty. */
int sim_ptx_parse(const char *text, struct sim_ptx *ptx);

void sim_ptx_free(struct sim_ptx *ptx);

#endif
