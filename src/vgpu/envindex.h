/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which _<i> of HAMi-core's variables a GPU has: its place in NVML's order in the container,
 * matched by UUID, so that neither CUDA_VISIBLE_DEVICES nor CUDA_DEVICE_ORDER can exchange limits.
 * NVML is asked only where the answer matters; it is opened for that where the program has not (and
 * then stays loaded).
 */
#ifndef ALQ_VGPU_ENVINDEX_H
#define ALQ_VGPU_ENVINDEX_H

#include <stdint.h>

#include "vgpu/env.h"

/*
 * cuda_count: devices that CUDA shows. Where NVML cannot be had although it matters, the variables
 * are first changed in place to the smallest limits that any device has, and a line says so.
 */
uint32_t alq_env_index(struct alq_env *env, const char *uuid, uint32_t cuda_count);

#endif
