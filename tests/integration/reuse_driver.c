/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 that gives out again what was freed last, and calls back between the end of an
 * allocation and its answer to cuMemFree: as if another thread came in there. */
#include "aliquot/cuda_abi.h"

#define cuMemAlloc_v2 ledger_alloc /* of the driver below, which never gives an address twice */
#define cuMemFree_v2 ledger_free
#include "ledger_driver.c" /* NOLINT(bugprone-suspicious-include) */
#undef cuMemAlloc_v2
#undef cuMemFree_v2

static CUdeviceptr freed;
void (*reuse_between)(void); /* once */

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    if (!freed)
        return ledger_alloc(out, bytes);
    *out = freed;
    freed = 0;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr at)
{
    void (*between)(void) = reuse_between;

    if (at == 0xbad)
        return CUDA_ERROR_INVALID_VALUE;
    freed = at;
    reuse_between = 0;
    if (between)
        between();
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr at)
{
    (void)handle, (void)at;
    return CUDA_SUCCESS;
}
