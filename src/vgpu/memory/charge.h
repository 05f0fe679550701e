/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserving device memory with the shares of a device, and giving it back: the ledger, over all
 * shares, with a look for dead processes before a refusal. Shares are charged in order of their id,
 * the rest to the next; what is given back comes off the last first, so no allocation needs to know
 * which share paid. No driver call here, no lock held on return. Any thread.
 */
#ifndef ALQ_VGPU_MEMORY_CHARGE_H
#define ALQ_VGPU_MEMORY_CHARGE_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/core.h"

/* What the driver rounds an allocation up to; the rest of the last granule is overhead. */
#define ALQ_GRANULE_BYTES 512u

static inline uint64_t alq_slack(uint64_t bytes)
{
    return -bytes & (ALQ_GRANULE_BYTES - 1);
}

/* Reserves both, or nothing: false when they do not fit (counted as a refusal) or the process has
 * no slot. */
bool alq_charge(struct alq_dev *dev, uint64_t counted_bytes, uint64_t overhead_bytes);

void alq_uncharge(struct alq_dev *dev, uint64_t counted_bytes, uint64_t overhead_bytes);

/* Contexts that this process has on the device, for display. */
void alq_charge_contexts(struct alq_dev *dev, int change);

struct alq_room {
    uint64_t limit_bytes; /* UINT64_MAX: memory is not limited */
    uint64_t held_bytes;  /* counted + overhead of all processes */
    uint64_t free_bytes;  /* limit - held - correction, never below 0 */
};

/* For views: reaps first, needs no slot. */
void alq_room_of(struct alq_share *const *shares, uint32_t count, struct alq_room *out);

/* After a successful allocation: looks for dead processes if nobody did for half a second. */
void alq_charge_tend(struct alq_dev *dev);

#endif
