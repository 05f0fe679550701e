/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files about contexts need of each other: limits, and green contexts.
 */
#ifndef SIM_CUDA_CONTEXT_H
#define SIM_CUDA_CONTEXT_H

#include "cuda/driver.h"

/* limit.c: defaults of a new context; gives back what limits of a closing one cost. */
void limits_open(struct CUctx_st *context);
void limits_close(struct CUctx_st *context);

/* stream_attribute.c: events of all of a context's streams. */
CUresult context_record(struct CUctx_st *context, CUevent event);
CUresult context_await(struct CUctx_st *context, CUevent event);

/* green.c. The green contexts of a device go with its primary one; under driver_lock. */
void green_free_all(struct device *device);
/* Until all that the device's green contexts were given so far is done. */
CUresult green_wait_all(struct device *device);
unsigned long long green_id(const struct CUgreenCtx_st *green);

#endif
