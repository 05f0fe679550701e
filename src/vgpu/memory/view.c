/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program is told of memory through CUDA: total = the limit to the byte (the card's, where
 * that is less), free = what the limit leaves, or what the driver has free where that is less. The
 * driver is asked first; its errors pass.
 */
#include <stdbool.h>

#include "vgpu/arith.h"
#include "vgpu/context.h"
#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/export.h"
#include "vgpu/memory/pool.h"

/* The room of the current device's shares; false: the driver's answer stands. */
static bool room_now(CUresult result, struct alq_room *room)
{
    if (result != CUDA_SUCCESS || !alq_core_is_on())
        return false;
    alq_core_renew();
    alq_pool_synced();
    struct alq_dev *dev = alq_dev_current();
    if (dev)
        alq_export_settle(dev);
    if (dev)
        alq_room_of(dev->share, dev->share_count, room);
    return dev != NULL;
}

ALQ_HOOK CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    struct alq_room room;

    if (!ALQ_HAS(cuMemGetInfo_v2))
        return alq_absent(ALQ_CU_cuMemGetInfo_v2);
    CUresult result = ALQ_CALL(cuMemGetInfo_v2, free_bytes, total_bytes);
    if (!room_now(result, &room))
        return result;
    if (free_bytes)
        *free_bytes = alq_min(*free_bytes, room.free_bytes);
    if (total_bytes)
        *total_bytes = alq_min(*total_bytes, room.limit_bytes);
    return result;
}

ALQ_HOOK CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    struct alq_room room;

    if (!ALQ_HAS(cuMemGetInfo))
        return alq_absent(ALQ_CU_cuMemGetInfo);
    CUresult result = ALQ_CALL(cuMemGetInfo, free_bytes, total_bytes);
    if (!room_now(result, &room))
        return result;
    if (free_bytes)
        *free_bytes = (unsigned int)alq_min(*free_bytes, room.free_bytes);
    if (total_bytes)
        *total_bytes = (unsigned int)alq_min(*total_bytes, room.limit_bytes);
    return result;
}

ALQ_HOOK CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    if (!ALQ_HAS(cuDeviceTotalMem_v2))
        return alq_absent(ALQ_CU_cuDeviceTotalMem_v2);
    CUresult result = ALQ_CALL(cuDeviceTotalMem_v2, bytes, device);
    struct alq_dev *dev = result == CUDA_SUCCESS && alq_core_is_on() ? alq_dev_of(device) : NULL;
    if (dev && bytes)
        *bytes = alq_min(*bytes, alq_dev_limit_bytes(dev));
    return result;
}

ALQ_HOOK CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    if (!ALQ_HAS(cuDeviceTotalMem))
        return alq_absent(ALQ_CU_cuDeviceTotalMem);
    CUresult result = ALQ_CALL(cuDeviceTotalMem, bytes, device);
    struct alq_dev *dev = result == CUDA_SUCCESS && alq_core_is_on() ? alq_dev_of(device) : NULL;
    if (dev && bytes)
        *bytes = (unsigned int)alq_min(*bytes, alq_dev_limit_bytes(dev));
    return result;
}
