/* SPDX-License-Identifier: Apache-2.0 */
/* A libcuda.so.1 with sparse arrays, which the simulator has not: ledger_driver.c's, and physical
 * memory that is only a number. It takes whatever it is given. */
#include "ledger_driver.c" /* NOLINT(bugprone-suspicious-include) */

static unsigned long long next_handle = 1;
static unsigned long next_array = 1 << 16;

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    (void)bytes, (void)prop, (void)flags;
    *handle = next_handle++;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    (void)handle;
    return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    (void)desc;
    *array = (CUarray)next_array++;
    return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray array)
{
    (void)array;
    return CUDA_SUCCESS;
}

/* A list of more than 64 is refused, so that a test can have a failure. */
CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    (void)list, (void)stream;
    return count > 64 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
