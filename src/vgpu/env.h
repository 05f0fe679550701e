/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HAMi-core's environment, for containers without a share directory. Reads the environment block it
 * is given and nothing else.
 */
#ifndef ALQ_VGPU_ENV_H
#define ALQ_VGPU_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "aliquot/share.h"

#define ALQ_ENV_DEVICES 16u

struct alq_env {
    /* By NVML's order in the container, the last for every device beyond; 0: no limit. */
    uint64_t memory_bytes[ALQ_ENV_DEVICES + 1];
    uint32_t compute_pct[ALQ_ENV_DEVICES + 1];
    uint32_t policy; /* enum alq_policy */
    uint32_t priority;
    uint64_t context_bytes; /* ALIQUOT_CONTEXT_BYTES, 0 when unset */
    uint32_t log_level;
    const char *usage_path; /* CUDA_DEVICE_MEMORY_SHARED_CACHE or its default */
    const char *share_root; /* ALIQUOT_SHARE_ROOT, NULL when unset */
    const char *visible;    /* CUDA_VISIBLE_DEVICES, NULL when unset */
    const char *bad_name;   /* the first variable that could not be read, NULL: all could */
    const char *bad_value;
    uint32_t bad_name_len;
    bool bad_index;     /* its index is what is wrong */
    bool has_limits;    /* any device has one */
    bool is_uniform;    /* every device has the same */
    bool is_first_only; /* no device but the first has one */
};

/* environ: "NAME=value" strings, NULL at the end; may be NULL. The result points into it. */
void alq_env_read(char *const *environ, struct alq_env *out);

#endif
