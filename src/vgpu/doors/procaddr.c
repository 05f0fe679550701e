/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuGetProcAddress: the driver answers first, with version and flags as given. An answer that is
 * the address of an entry point we hook is exchanged for our wrapper of exactly that entry point,
 * so its ABI and its default stream are the driver's choice; any other answer, none and every error
 * pass as they are. cuInit, the door of limits, is here too.
 */
#include "vgpu/doors/doors.h"
#include "vgpu/doors/known.h"
#include "vgpu/driver.h"

static void *handed_out(const char *symbol, void *address)
{
    void *wrapped = alq_door_wrap(address);
    if (wrapped == address)
        alq_door_passed(symbol);
    return wrapped;
}

ALQ_HOOK CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
    if (!alq_real(ALQ_CU_cuGetProcAddress))
        return alq_absent(ALQ_CU_cuGetProcAddress);
    CUresult result = ALQ_CALL(cuGetProcAddress, symbol, pfn, version, flags);
    if (result == CUDA_SUCCESS && pfn && *pfn && alq_core_is_on())
        *pfn = handed_out(symbol, *pfn);
    return result;
}

ALQ_HOOK CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                                      CUdriverProcAddressQueryResult *status)
{
    if (!alq_real(ALQ_CU_cuGetProcAddress_v2))
        return alq_absent(ALQ_CU_cuGetProcAddress_v2);
    CUresult result = ALQ_CALL(cuGetProcAddress_v2, symbol, pfn, version, flags, status);
    if (result == CUDA_SUCCESS && pfn && *pfn && alq_core_is_on())
        *pfn = handed_out(symbol, *pfn);
    return result;
}

ALQ_HOOK CUresult cuInit(unsigned int flags)
{
    if (!alq_real(ALQ_CU_cuInit))
        return CUDA_ERROR_NO_DEVICE;
    CUresult refused = alq_core_admit();
    return refused != CUDA_SUCCESS ? refused : ALQ_CALL(cuInit, flags);
}
