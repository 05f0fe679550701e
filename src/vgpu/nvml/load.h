/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How busy a share keeps its GPU, in percent of the GPU: what the compute gate has booked for the
 * last quarter of a second of wall time (NVML's own figure is of a sixth to a whole second). Nobody
 * samples; whoever asks reads the shared slots. Any thread, no driver call.
 */
#ifndef ALQ_VGPU_NVML_LOAD_H
#define ALQ_VGPU_NVML_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "aliquot/share.h"
#include "vgpu/nvml/device.h"

/* Work is booked when it has been read back: up to so much later than it ran. */
#define ALQ_LOAD_LAG_SLOTS 25u
#define ALQ_LOAD_SLOTS (ALQ_COVER_SLOTS - 1 - ALQ_LOAD_LAG_SLOTS)

/* GPU time booked in the ALQ_LOAD_SLOTS slots that end ALQ_LOAD_LAG_SLOTS before now. Pure. */
uint64_t alq_load_booked_ns(const struct alq_cover *cover, uint64_t now_ns);

/* GPU time of one process in the turn under way and the one before, in percent of it. Pure. */
uint32_t alq_load_process_pct(const struct alq_slot *slot, uint64_t now_ns);

/* Of all shares of a GPU, 0..100. False: one of them does not limit compute, so nothing is measured
 * and the driver's own answer stands. */
bool alq_load_pct(const struct alq_nvml_shares *s, uint32_t *pct);

#endif
