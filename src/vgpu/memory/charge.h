/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserving device memory with the shares of a device, and giving it back: the ledger, over all
 * shares, with a look for dead processes before a refusal. Shares are charged in order of their id,
 * the rest to the next; what is given back comes off the last first, so no allocation needs to know
 * which share paid. Each share keeps two books: of the device's memory, and of memory on the host
 * that stands for it (spill.h). No driver call here, no lock held on return. Any thread.
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

/* Reserves both, or nothing: false when they do not fit or the process has no slot. The program is
 * refused by alq_admit (pool.h), which tries more. */
bool alq_charge(struct alq_dev *dev, uint64_t counted_bytes, uint64_t overhead_bytes);

/* More is held than the limit lets in now. */
bool alq_charge_is_over(const struct alq_dev *dev);

/* Counts a refusal, and says it in a line. */
void alq_charge_refused(struct alq_dev *dev, enum alq_family family, uint64_t counted_bytes,
                        uint64_t overhead_bytes);

/* How long the device's shares let an allocation wait for other processes; 0 where those could not
 * make room for it, neither on the device nor (spill_bytes not 0) on the host, for the process
 * itself holds too much. left_bytes of that others have open, and can let go. */
uint64_t alq_charge_wait_ns(const struct alq_dev *dev, uint64_t bytes, uint64_t spill_bytes,
                            uint64_t left_bytes);

/* The same by the spill limits of the device's shares; false for 0 bytes, too. */
bool alq_charge_host(struct alq_dev *dev, uint64_t bytes);
void alq_uncharge_host(struct alq_dev *dev, uint64_t bytes);

/* What the driver has taken already: charged beyond the limit where it must, so that the next
 * admission fails. */
void alq_charge_taken(struct alq_dev *dev, uint64_t counted_bytes, uint64_t overhead_bytes);

/* Shows so much more as counted, and less as overhead (negative: the other way); what is held
 * stays.
 */
void alq_charge_move(struct alq_dev *dev, int64_t bytes);

void alq_uncharge(struct alq_dev *dev, uint64_t counted_bytes, uint64_t overhead_bytes);

/* Of what this process holds on the device, so much may be open in other processes; and so many
 * exported pieces are open in this one (export.h). */
void alq_charge_exported(struct alq_dev *dev, int64_t bytes);
void alq_charge_imports(struct alq_dev *dev, int change);

/* A living process of the device's shares, this one too, has such a piece open. */
bool alq_charge_has_imports(const struct alq_dev *dev);

/* For a fork child. */
void alq_charge_forget(void);

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
