/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This process at the compute gate: the one struct alq_compute of the library, tied to the driver,
 * the clock and the shares of core.h. Made at the first launch under a share, anew in a fork child.
 * Any thread.
 */
#ifndef ALQ_VGPU_SUBMIT_H
#define ALQ_VGPU_SUBMIT_H

#include "vgpu/compute/compute.h"
#include "vgpu/core.h"

/* NULL: nothing was launched under a share yet. */
struct alq_compute *alq_submit_now(void);

/* Makes it when need be. NULL: no share in force, or the driver lacks what measuring takes. */
struct alq_compute *alq_submit_begin(void);

#endif
