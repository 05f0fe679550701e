/* SPDX-License-Identifier: Apache-2.0 */
/* From an NVML device to its shares, by UUID. Works without libcuda. Any thread. */
#ifndef ALQ_VGPU_NVML_DEVICE_H
#define ALQ_VGPU_NVML_DEVICE_H

#include <stdbool.h>

#include "vgpu/core.h"
#include "vgpu/memory/charge.h"

struct alq_nvml_shares {
    struct alq_share *share[ALQ_SHARES_MAX];
    uint32_t count;
};

/* False: the device has no share, or NVML does not say which it is. */
bool alq_nvml_shares_of(nvmlDevice_t device, struct alq_nvml_shares *out);

/* Their memory, once what this process can give back of it is given back, as cuMemGetInfo does. */
void alq_nvml_room(const struct alq_nvml_shares *s, struct alq_room *out);

/* What an entry point answers that the driver lacks: FUNCTION_NOT_FOUND, or UNINITIALIZED without a
 * driver. */
nvmlReturn_t alq_nvml_absent(uint32_t index);

#endif
