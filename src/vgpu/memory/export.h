/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory between processes. It is paid for by its maker, as long as the maker lives and has it;
 * and, when the maker has let it go or died, by the maker's slot still, while a living process of
 * the share has something open that was exported (`imports`; which piece it is, no driver tells).
 * Whether what the maker lets go is really gone, the driver's free figure around the call shows
 * where it can be read. Any thread; no lock over a driver call.
 */
#ifndef ALQ_VGPU_MEMORY_EXPORT_H
#define ALQ_VGPU_MEMORY_EXPORT_H

#include <stdatomic.h>

#include "vgpu/core.h"

/* This process has exported something: only then does letting go cost a look. */
extern _Atomic uint32_t alq_export_any;

static inline bool alq_export_is_any(void)
{
    return __builtin_expect(atomic_load_explicit(&alq_export_any, memory_order_relaxed) != 0, 0);
}

/* Bytes that this process holds on the device have been exported. */
void alq_export_add(struct alq_dev *dev, uint64_t bytes);

/* Something of other processes, or exported by this one, was opened (+1) or closed (-1); dev NULL:
 * on a device that nobody tells, so on all of them. */
void alq_export_opened(struct alq_dev *dev, int change);

/* Gives back what was let go and nobody of the share has open any more; true where there was some
 * on the device. */
bool alq_export_settle(struct alq_dev *dev);

/* What was let go and is charged still, for a process of the share has something open. */
uint64_t alq_export_left_bytes(const struct alq_dev *dev);

/* A call of the driver's that may let memory of this process go. */
struct alq_parting {
    struct alq_dev *dev; /* whose free figure was read before, NULL: none */
    size_t free_before;
    uint64_t plain_bytes[ALQ_DEVICES_MAX];    /* counted, gone for certain */
    uint64_t exported_bytes[ALQ_DEVICES_MAX]; /* others may have it */
};

void alq_part_begin(struct alq_parting *part);
/* After the driver has agreed, with the sums filled in: gives back, or keeps charged. */
void alq_part_end(struct alq_parting *part);

/* For a fork child. */
void alq_export_forget(void);

#endif
