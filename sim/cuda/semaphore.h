/* SPDX-License-Identifier: Apache-2.0 */
/*
 * External semaphores for the driver's own files: operations in stream order, of a call or a node.
 */
#ifndef SIM_CUDA_SEMAPHORE_H
#define SIM_CUDA_SEMAPHORE_H

#include "cuda/driver.h"

CUresult semaphores_check(const CUexternalSemaphore *semaphores, const void *params,
                          unsigned int count);
/* CUDA_ERROR_INVALID_VALUE for a timeline's value that is reached already. */
CUresult semaphores_signal(struct CUstream_st *stream, const CUexternalSemaphore *semaphores,
                           const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned int count);
CUresult semaphores_wait(struct CUstream_st *stream, const CUexternalSemaphore *semaphores,
                         const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count);

#endif
