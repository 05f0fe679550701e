/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contexts that this process has met: which device each is on and what was charged for it, and
 * a small number that table entries carry, so that what ends with a context is given back with it.
 * Up to 255 at a time; allocations in further ones are counted but not followed to the context's
 * end. Any thread; lock_context, never over a driver call.
 */
#ifndef ALQ_VGPU_CONTEXT_H
#define ALQ_VGPU_CONTEXT_H

#include <stdint.h>

#include "vgpu/core.h"

/* The calling thread's current context: its number (0: none, or not followed) and its device (NULL:
 * none, or no share). error: the driver did not tell, and what would be limited must not go on. */
struct alq_here {
    struct alq_dev *dev;
    uint16_t context;
    CUresult error;
};

struct alq_here alq_context_here(void);

/* The device of a stream's context; for the default streams, and where the driver does not tell, of
 * the current one. Errors and NULL as alq_dev_find_current. */
CUresult alq_context_find_dev_of_stream(CUstream stream, struct alq_dev **dev);

/* What the driver has taken in the context on top of what making one costs: charged till its end,
 * beyond the limit where it must. */
void alq_context_grown(struct alq_here here, uint64_t bytes);

/* Calls with each context known now. */
void alq_context_each(void (*with)(CUcontext context, void *data), void *data);

/* Drops all of them. For a fork child. */
void alq_context_forget(void);

#endif
