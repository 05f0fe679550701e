/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers of the virtual memory API's entry points: physical memory is charged as a piece
 * (piece.h), to the device of its location, never to the current one; host locations are not
 * charged. Booked after the driver's answer.
 */
#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/piece.h"
#include "vgpu/memory/pool.h"

static CUresult forget(CUmemGenericAllocationHandle handle)
{
    if (ALQ_HAS(cuMemRelease))
        ALQ_CALL(cuMemRelease, handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

ALQ_HOOK CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                              const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct alq_dev *dev = NULL;

    if (!ALQ_HAS(cuMemCreate))
        return alq_absent(ALQ_CU_cuMemCreate);
    if (!alq_core_is_on())
        return ALQ_CALL(cuMemCreate, handle, bytes, prop, flags);
    if (alq_core_mode() == ALQ_MODE_BROKEN)
        return CUDA_ERROR_NOT_PERMITTED;
    alq_core_renew();
    if (prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        CUresult result = alq_dev_find(prop->location.id, &dev);
        if (result != CUDA_SUCCESS)
            return result;
    }
    if (dev && !alq_admit(dev, ALQ_FAMILY_PHYSICAL, bytes, 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ALQ_CALL(cuMemCreate, handle, bytes, prop, flags);
    if (!dev)
        return result;
    if (result == CUDA_SUCCESS && alq_piece_new(*handle, dev, bytes)) {
        alq_charge_tend(dev);
        return result;
    }
    if (result == CUDA_SUCCESS)
        result = forget(*handle);
    alq_uncharge(dev, bytes, 0);
    return result;
}

ALQ_HOOK CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct alq_parting part;

    if (!ALQ_HAS(cuMemRelease))
        return alq_absent(ALQ_CU_cuMemRelease);
    if (!alq_core_is_on())
        return ALQ_CALL(cuMemRelease, handle);
    alq_core_renew();
    struct alq_piece_release release = alq_piece_release(handle);
    if (!release.number)
        return ALQ_CALL(cuMemRelease, handle);
    alq_part_begin(&part);
    CUresult result = ALQ_CALL(cuMemRelease, handle);
    alq_piece_released(handle, &release, result == CUDA_SUCCESS, &part);
    alq_part_end(&part);
    return result;
}

ALQ_HOOK CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    if (!ALQ_HAS(cuMemRetainAllocationHandle))
        return alq_absent(ALQ_CU_cuMemRetainAllocationHandle);
    CUresult result = ALQ_CALL(cuMemRetainAllocationHandle, handle, address);
    if (result == CUDA_SUCCESS && alq_core_is_on()) {
        alq_core_renew();
        alq_piece_retained_at(*handle, (uintptr_t)address);
    }
    return result;
}

ALQ_HOOK CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    if (!ALQ_HAS(cuMemMap))
        return alq_absent(ALQ_CU_cuMemMap);
    CUresult result = ALQ_CALL(cuMemMap, ptr, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS && alq_core_is_on()) {
        alq_core_renew();
        if (!alq_piece_mapped(ptr, bytes, handle)) {
            if (ALQ_HAS(cuMemUnmap))
                ALQ_CALL(cuMemUnmap, ptr, bytes);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return result;
}

/* Mappings are taken out before the driver's call: after it, another thread may have mapped at the
 * same address. */
ALQ_HOOK CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
    struct alq_piece_unmap *unmap;
    struct alq_parting part;

    if (!ALQ_HAS(cuMemUnmap))
        return alq_absent(ALQ_CU_cuMemUnmap);
    if (!alq_core_is_on())
        return ALQ_CALL(cuMemUnmap, ptr, bytes);
    alq_core_renew();
    if (!alq_piece_unmap(ptr, bytes, &unmap))
        return CUDA_ERROR_OUT_OF_MEMORY;
    alq_part_begin(&part);
    CUresult result = ALQ_CALL(cuMemUnmap, ptr, bytes);
    alq_piece_unmapped(unmap, result == CUDA_SUCCESS, &part);
    alq_part_end(&part);
    return result;
}

/* ---- between processes ----------------------------------------------------------------------- */

ALQ_HOOK CUresult cuMemExportToShareableHandle(void *os_handle, CUmemGenericAllocationHandle handle,
                                               CUmemAllocationHandleType type,
                                               unsigned long long flags)
{
    if (!ALQ_HAS(cuMemExportToShareableHandle))
        return alq_absent(ALQ_CU_cuMemExportToShareableHandle);
    CUresult result = ALQ_CALL(cuMemExportToShareableHandle, os_handle, handle, type, flags);
    if (result == CUDA_SUCCESS && alq_core_is_on()) {
        alq_core_renew();
        alq_piece_exported(handle);
    }
    return result;
}

/* The device of imported memory; NULL where the driver does not tell, as of multicast objects. */
static struct alq_dev *device_of(CUmemGenericAllocationHandle handle)
{
    CUmemAllocationProp prop = {.location = {CU_MEM_LOCATION_TYPE_INVALID, 0}};

    return ALQ_HAS(cuMemGetAllocationPropertiesFromHandle) &&
                   ALQ_CALL(cuMemGetAllocationPropertiesFromHandle, &prop, handle) ==
                       CUDA_SUCCESS &&
                   prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE
               ? alq_dev_of(prop.location.id)
               : NULL;
}

/* Memory of another process is its maker's. What this process made itself may come back under the
 * handle that it has, or under another, as if it were another's. */
ALQ_HOOK CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                 void *os_handle, CUmemAllocationHandleType type)
{
    if (!ALQ_HAS(cuMemImportFromShareableHandle))
        return alq_absent(ALQ_CU_cuMemImportFromShareableHandle);
    CUresult result = ALQ_CALL(cuMemImportFromShareableHandle, handle, os_handle, type);
    if (result != CUDA_SUCCESS || alq_core_mode() != ALQ_MODE_LIMITED)
        return result;
    alq_core_renew();
    if (alq_piece_retained(*handle) || alq_piece_imported(*handle, device_of(*handle)))
        return result;
    return forget(*handle);
}
