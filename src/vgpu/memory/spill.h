/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spillToHost: what cuMemAlloc and cuMemAllocPitch find no room for on the device lies in the
 * host's memory, where the device reaches it: managed memory that prefers the host. It is booked
 * apart, by a limit of its own (charge.h), and never moves to the device, whatever the program
 * advises. Any thread; no lock over a driver call.
 */
#ifndef ALQ_VGPU_MEMORY_SPILL_H
#define ALQ_VGPU_MEMORY_SPILL_H

#include "vgpu/memory/alloc.h"

/*
 * Serves a ticket whose place is the host: at an address of at most `highest`, remembered under it.
 * Anything but CUDA_SUCCESS is the answer to the program, with the ticket given back and *out
 * untouched.
 */
CUresult alq_spill_serve(const struct alq_ticket *t, uint64_t highest, CUdeviceptr *out);

/* Bytes of spilled allocations that the driver has freed. */
void alq_spill_give_back(struct alq_dev *dev, uint64_t bytes);

#endif
