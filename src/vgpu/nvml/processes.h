/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of a GPU's shares as the calling process may see them: those of its own PID
 * namespace that have a context. Read from the slots, the dead ones emptied first. Any thread.
 */
#ifndef ALQ_VGPU_NVML_PROCESSES_H
#define ALQ_VGPU_NVML_PROCESSES_H

#include <stdint.h>

#include "vgpu/nvml/device.h"

struct alq_nvml_process {
    uint32_t pid;
    uint32_t busy_pct;      /* its GPU time, over all shares of the GPU */
    uint64_t counted_bytes; /* likewise */
};

/* A walk over them; _next is false at the end. */
struct alq_nvml_walk {
    uint64_t namespace;
    uint32_t slot;
};
void alq_nvml_walk_begin(const struct alq_nvml_shares *s, struct alq_nvml_walk *out);
bool alq_nvml_walk_next(const struct alq_nvml_shares *s, struct alq_nvml_walk *walk,
                        struct alq_nvml_process *out);

/* How many there are. */
uint32_t alq_nvml_process_count(const struct alq_nvml_shares *s);

#endif
