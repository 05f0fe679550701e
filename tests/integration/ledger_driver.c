/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 of so few instructions that ledger_steps.c can walk through all of them: one
 * device, one context, and memory that is only a number. */
#include "aliquot/cuda_abi.h"

#define CONTEXT ((CUcontext)(uintptr_t)0x1000)

static CUcontext current;
static CUdeviceptr next = 1 << 20;

CUresult cuInit(unsigned int flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

/* GPU-11111111-2222-3333-4444-555555555555 */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    static const char bytes[16] =
        "\x11\x11\x11\x11\x22\x22\x33\x33\x44\x44\x55\x55\x55\x55\x55\x55";
    (void)device;
    for (int i = 0; i < 16; i++)
        uuid->bytes[i] = bytes[i];
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device)
{
    (void)flags, (void)device;
    *out = current = CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
    *out = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    *out = next;
    next += bytes;
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr at)
{
    (void)at;
    return CUDA_SUCCESS;
}
