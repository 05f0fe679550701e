/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-locked host memory: allocated here or registered by the program. A table sorted by address,
 * under a lock of its own. The same address serves the device (unified addressing).
 */
#ifndef SIM_CUDA_HOST_H
#define SIM_CUDA_HOST_H

#include <stdbool.h>
#include <stdint.h>

struct host_range {
    uint64_t base, bytes;
    unsigned int flags;
    bool is_registered;
    uint32_t device; /* ordinal of the context it was made in */
    void *context;   /* likewise; may be gone */
};

/* A copy of the range that holds the address; false when none does. */
bool host_find(uint64_t address, struct host_range *range);

#endif
