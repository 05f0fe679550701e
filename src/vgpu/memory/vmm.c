/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Physical memory of the virtual memory API. It lives while a handle or a mapping of it does, so a
 * piece has a number of its own in the table (PHYSICAL), which handles and mappings point to, and
 * is given back when both counts are 0. Charged to the device of its location, never to the current
 * one; host locations are not charged. Booking under lock_vmm, after the driver's answer.
 */
#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/pool.h"
#include "vgpu/memory/table.h"
#include "vgpu/process.h"
#include "vgpu/sys.h"

/* PHYSICAL: counted_bytes = size, overhead_bytes = handle references | mappings << 16.
 * HANDLE:   counted_bytes = number of the piece.
 * MAPPING:  counted_bytes = number of the piece, overhead_bytes = size in pages of 4 KiB. */
#define ONE_HANDLE 1u
#define ONE_MAPPING 0x10000u

static uint64_t next_number = 1; /* under lock_vmm */
static uint64_t mapping_count;   /* under lock_vmm: MAPPING entries of this process */

/* Caller holds lock_vmm. Changes a count; at none left the piece is gone and its bytes are told. */
static uint64_t count(uint64_t number, int32_t change, struct alq_dev **dev)
{
    struct alq_entry_value piece;

    if (!alq_table_take(number, ALQ_KIND_PHYSICAL, &piece))
        return 0;
    piece.overhead_bytes += (uint32_t)change;
    if (piece.overhead_bytes) {
        alq_table_put(number, &piece); /* room was just made */
        return 0;
    }
    *dev = alq_dev_at(piece.device);
    return piece.counted_bytes;
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
    if (dev && !alq_admit(dev, bytes, 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ALQ_CALL(cuMemCreate, handle, bytes, prop, flags);
    if (!dev)
        return result;
    if (result == CUDA_SUCCESS) {
        struct alq_entry_value piece = {bytes, ONE_HANDLE, 0, (uint8_t)dev->index,
                                        ALQ_KIND_PHYSICAL};
        alq_lock_take(&alq_process_page()->lock_vmm);
        struct alq_entry_value alias = {next_number, 0, 0, (uint8_t)dev->index, ALQ_KIND_HANDLE},
                               gone;
        bool ok = alq_table_put(next_number, &piece);
        if (ok && !alq_table_put(*handle, &alias)) {
            alq_table_take(next_number, ALQ_KIND_PHYSICAL, &gone);
            ok = false;
        }
        next_number++;
        alq_lock_drop(&alq_process_page()->lock_vmm);
        if (ok) {
            alq_charge_tend(dev);
            return result;
        }
        if (ALQ_HAS(cuMemRelease))
            ALQ_CALL(cuMemRelease, *handle);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    alq_uncharge(dev, bytes, 0);
    return result;
}

ALQ_HOOK CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct alq_entry_value alias, piece;
    struct alq_dev *dev = NULL;
    uint64_t bytes = 0;

    if (!ALQ_HAS(cuMemRelease))
        return alq_absent(ALQ_CU_cuMemRelease);
    CUresult result;
    if (!alq_core_is_on())
        return ALQ_CALL(cuMemRelease, handle);
    alq_core_renew();
    /* Forgotten before the driver lets go: the number may come again at once. */
    alq_lock_take(&alq_process_page()->lock_vmm);
    bool is_ours = alq_table_get(handle, ALQ_KIND_HANDLE, &alias);
    bool is_last = is_ours && alq_table_get(alias.counted_bytes, ALQ_KIND_PHYSICAL, &piece) &&
                   (piece.overhead_bytes & 0xffff) == 1;
    if (is_last)
        alq_table_take(handle, ALQ_KIND_HANDLE, &alias);
    alq_lock_drop(&alq_process_page()->lock_vmm);

    result = ALQ_CALL(cuMemRelease, handle);
    if (!is_ours)
        return result;
    alq_lock_take(&alq_process_page()->lock_vmm);
    if (result == CUDA_SUCCESS)
        bytes = count(alias.counted_bytes, -(int32_t)ONE_HANDLE, &dev);
    else if (is_last)
        alq_table_put(handle, &alias);
    alq_lock_drop(&alq_process_page()->lock_vmm);
    if (bytes)
        alq_uncharge(dev, bytes, 0);
    return result;
}

ALQ_HOOK CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct alq_entry_value found;
    struct alq_dev *dev = NULL;

    if (!ALQ_HAS(cuMemRetainAllocationHandle))
        return alq_absent(ALQ_CU_cuMemRetainAllocationHandle);
    CUresult result = ALQ_CALL(cuMemRetainAllocationHandle, handle, address);
    if (result != CUDA_SUCCESS || !alq_core_is_on())
        return result;
    alq_core_renew();
    alq_lock_take(&alq_process_page()->lock_vmm);
    if (alq_table_get(*handle, ALQ_KIND_HANDLE, &found)) {
        count(found.counted_bytes, ONE_HANDLE, &dev);
    } else if (alq_table_get((uintptr_t)address, ALQ_KIND_MAPPING, &found)) {
        struct alq_entry_value alias = {found.counted_bytes, 0, 0, found.device, ALQ_KIND_HANDLE};
        if (alq_table_put(*handle, &alias))
            count(found.counted_bytes, ONE_HANDLE, &dev);
    }
    alq_lock_drop(&alq_process_page()->lock_vmm);
    return result;
}

ALQ_HOOK CUresult cuMemMap(CUdeviceptr ptr, size_t bytes, size_t offset,
                           CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct alq_entry_value alias;
    struct alq_dev *dev = NULL;

    if (!ALQ_HAS(cuMemMap))
        return alq_absent(ALQ_CU_cuMemMap);
    CUresult result = ALQ_CALL(cuMemMap, ptr, bytes, offset, handle, flags);
    if (result != CUDA_SUCCESS || !alq_core_is_on())
        return result;
    alq_core_renew();
    alq_lock_take(&alq_process_page()->lock_vmm);
    if (alq_table_get(handle, ALQ_KIND_HANDLE, &alias)) {
        struct alq_entry_value mapping = {alias.counted_bytes, (uint32_t)(bytes >> 12), 0,
                                          alias.device, ALQ_KIND_MAPPING};
        if (alq_table_put(ptr, &mapping)) {
            mapping_count++;
            count(alias.counted_bytes, ONE_MAPPING, &dev);
        }
    }
    alq_lock_drop(&alq_process_page()->lock_vmm);
    return result;
}

/* Memory of another process is its maker's, and nothing is booked. Memory of this one that comes
 * back to it has one more reference by the handle that it has. */
ALQ_HOOK CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                 void *os_handle, CUmemAllocationHandleType type)
{
    struct alq_entry_value alias;
    struct alq_dev *dev = NULL;

    if (!ALQ_HAS(cuMemImportFromShareableHandle))
        return alq_absent(ALQ_CU_cuMemImportFromShareableHandle);
    CUresult result = ALQ_CALL(cuMemImportFromShareableHandle, handle, os_handle, type);
    if (result != CUDA_SUCCESS || !alq_core_is_on())
        return result;
    alq_core_renew();
    alq_lock_take(&alq_process_page()->lock_vmm);
    if (alq_table_get(*handle, ALQ_KIND_HANDLE, &alias))
        count(alias.counted_bytes, ONE_HANDLE, &dev);
    alq_lock_drop(&alq_process_page()->lock_vmm);
    return result;
}

struct taken {
    CUdeviceptr at;
    struct alq_entry_value mapping;
};

#define TAKEN_FEW 16u

/* Takes the mappings of a range out of the table; as many as there is room for. */
static uint64_t take_mappings(CUdeviceptr ptr, size_t bytes, struct taken *out, uint64_t room)
{
    const uint64_t step = 65536; /* the smallest granularity of mappings; for what we did not map */
    uint64_t found = 0, advance;

    for (uint64_t done = 0; done < bytes && found < room; done += advance) {
        advance = step;
        if (!alq_table_take(ptr + done, ALQ_KIND_MAPPING, &out[found].mapping))
            continue;
        out[found].at = ptr + done;
        if (out[found].mapping.overhead_bytes)
            advance = (uint64_t)out[found].mapping.overhead_bytes << 12;
        found++;
    }
    mapping_count -= found;
    return found;
}

/* The driver has unmapped them, or not: then they are back. */
static void unmapped(CUresult result, const struct taken *taken, uint64_t found)
{
    for (uint64_t i = 0; i < found; i++) {
        struct alq_dev *dev = NULL;
        uint64_t gone = 0;
        alq_lock_take(&alq_process_page()->lock_vmm);
        if (result == CUDA_SUCCESS)
            gone = count(taken[i].mapping.counted_bytes, -(int32_t)ONE_MAPPING, &dev);
        else
            mapping_count += alq_table_put(taken[i].at, &taken[i].mapping);
        alq_lock_drop(&alq_process_page()->lock_vmm);
        if (gone)
            alq_uncharge(dev, gone, 0);
    }
}

/* Mappings are taken out before the driver's call: after it, another thread may have mapped at the
 * same address. */
ALQ_HOOK CUresult cuMemUnmap(CUdeviceptr ptr, size_t bytes)
{
    struct taken few[TAKEN_FEW], *taken = few;

    if (!ALQ_HAS(cuMemUnmap))
        return alq_absent(ALQ_CU_cuMemUnmap);
    if (!alq_core_is_on())
        return ALQ_CALL(cuMemUnmap, ptr, bytes);
    alq_core_renew();
    alq_lock_take(&alq_process_page()->lock_vmm);
    uint64_t room = mapping_count;
    if (room > TAKEN_FEW) {
        struct taken *many = alq_sys_anon(room * sizeof(struct taken));
        if (many)
            taken = many;
        else
            room = TAKEN_FEW;
    }
    uint64_t found = take_mappings(ptr, bytes, taken, room);
    alq_lock_drop(&alq_process_page()->lock_vmm);
    CUresult result = ALQ_CALL(cuMemUnmap, ptr, bytes);
    unmapped(result, taken, found);
    if (taken != few)
        alq_sys_munmap(taken, room * sizeof(struct taken));
    return result;
}
