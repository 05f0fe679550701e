/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host does in stream order: the program's host functions, and effects of the driver's own
 * that must not come before them. Each is an operation of its stream; when its turn comes, a thread
 * of the driver's runs it. Such a thread exists for a stream while there is something to run, and
 * none before the first use.
 */
#ifndef SIM_CUDA_CALLBACK_H
#define SIM_CUDA_CALLBACK_H

#include "cuda/driver.h"

/* A host function of the program, which may not use CUDA. */
CUresult callback_push(struct CUstream_st *stream, CUhostFn function, void *data);

/* Runs it here and now, as such. */
void callback_run(CUhostFn function, void *data);

/*
 * What an operation does to memory: at once, unless something that the host still has to do stands
 * before it, in this stream or another; then in stream order. `bytes` of *what are copied.
 */
CUresult effect_push(struct CUstream_st *stream, void (*effect)(void *what), const void *what,
                     size_t bytes);

/* Whether the host has something to do that stands in some stream. */
bool effect_is_due(void);

/* The same, always in stream order. */
CUresult effect_queue(struct CUstream_st *stream, void (*effect)(void *what), const void *what,
                      size_t bytes);

/* A kernel that runs until is_over(what) is true, asked now and then. */
CUresult spin_push(struct CUstream_st *stream, uint32_t blocks, bool (*is_over)(void *what),
                   const void *what, size_t bytes);

/* memop.c */
CUresult memops_check(unsigned int count, const CUstreamBatchMemOpParams *ops);
CUresult memops_push(struct CUstream_st *stream, unsigned int count,
                     const CUstreamBatchMemOpParams *ops);

#endif
