/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers of what holds physical memory beside mappings (piece.h): multicast objects, which bind
 * it, and sparse arrays, which it is mapped into. Neither has memory of its own to count. An
 * unmapping in stream order counts from the call.
 */
#include "vgpu/driver.h"
#include "vgpu/memory/alloc.h"
#include "vgpu/memory/piece.h"

/* ---- multicast ------------------------------------------------------------------------------- */

ALQ_HOOK CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle,
                                    const CUmulticastObjectProp *prop)
{
    if (!ALQ_HAS(cuMulticastCreate))
        return alq_absent(ALQ_CU_cuMulticastCreate);
    if (alq_core_mode() == ALQ_MODE_BROKEN)
        return CUDA_ERROR_NOT_PERMITTED;
    CUresult result = ALQ_CALL(cuMulticastCreate, handle, prop);
    if (result != CUDA_SUCCESS || !alq_core_is_on())
        return result;
    alq_core_renew();
    if (alq_piece_new(*handle, NULL, 0))
        return result;
    if (ALQ_HAS(cuMemRelease))
        ALQ_CALL(cuMemRelease, *handle);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct alq_binding multicast_part(CUmemGenericAllocationHandle object, size_t offset,
                                         size_t bytes)
{
    return (struct alq_binding){
        .owner = alq_piece_number(object), .from = {offset, 0, 0}, .to = {offset + bytes, 0, 0}};
}

#define BIND(name, params, args, bound)                                                            \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, args);                                                           \
        alq_core_renew();                                                                          \
        if (!alq_bindings_reserve(1))                                                              \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        CUresult result = ALQ_CALL(name, args);                                                    \
        struct alq_binding to = multicast_part(object, offset, bytes);                             \
        if (result == CUDA_SUCCESS && to.owner)                                                    \
            bound;                                                                                 \
        alq_bindings_unreserve(1);                                                                 \
        return result;                                                                             \
    }

BIND(cuMulticastBindMem,
     (CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle memory,
      size_t memory_offset, size_t bytes, unsigned long long flags),
     ARGS(object, offset, memory, memory_offset, bytes, flags), alq_piece_bound(&to, memory))
BIND(cuMulticastBindAddr,
     (CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr address, size_t bytes,
      unsigned long long flags),
     ARGS(object, offset, address, bytes, flags), alq_piece_bound_at(&to, address))

ALQ_HOOK CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device,
                                    size_t offset, size_t bytes)
{
    struct alq_parting part;

    if (!ALQ_HAS(cuMulticastUnbind))
        return alq_absent(ALQ_CU_cuMulticastUnbind);
    if (!alq_core_is_on())
        return ALQ_CALL(cuMulticastUnbind, object, device, offset, bytes);
    alq_core_renew();
    alq_part_begin(&part);
    CUresult result = ALQ_CALL(cuMulticastUnbind, object, device, offset, bytes);
    struct alq_binding of = multicast_part(object, offset, bytes);
    struct alq_dev *dev = alq_dev_of(device);
    if (result == CUDA_SUCCESS && of.owner && dev)
        alq_bindings_end(&of, dev, &part);
    alq_part_end(&part);
    return result;
}

/* ---- sparse arrays --------------------------------------------------------------------------- */

#define MIPTAIL (1ull << 63)

static struct alq_binding tile_of(const CUarrayMapInfo *info)
{
    struct alq_binding tile = {.owner = info->resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY
                                            ? (uintptr_t)info->resource.mipmap
                                            : (uintptr_t)info->resource.array};

    if (info->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
        tile.where = MIPTAIL | info->subresource.miptail.layer;
        tile.from[0] = info->subresource.miptail.offset;
        tile.to[0] = tile.from[0] + info->subresource.miptail.size;
        return tile;
    }
    tile.where =
        (uint64_t)info->subresource.sparseLevel.level << 32 | info->subresource.sparseLevel.layer;
    tile.from[0] = info->subresource.sparseLevel.offsetX;
    tile.from[1] = info->subresource.sparseLevel.offsetY;
    tile.from[2] = info->subresource.sparseLevel.offsetZ;
    tile.to[0] = tile.from[0] + info->subresource.sparseLevel.extentWidth;
    tile.to[1] = tile.from[1] + info->subresource.sparseLevel.extentHeight;
    tile.to[2] = tile.from[2] + info->subresource.sparseLevel.extentDepth;
    return tile;
}

/* What was mapped there before is not any more. */
static void tile_changed(const CUarrayMapInfo *info, struct alq_parting *part)
{
    struct alq_binding tile = tile_of(info);

    alq_bindings_end(&tile, NULL, part);
    if (info->memOperationType == CU_MEM_OPERATION_TYPE_MAP)
        alq_piece_bound(&tile, info->memHandle.memHandle);
}

#define MAP_ARRAY(name)                                                                            \
    ALQ_HOOK CUresult name(CUarrayMapInfo *list, unsigned int count, CUstream stream)              \
    {                                                                                              \
        struct alq_parting part;                                                                   \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on() || !list || !alq_piece_any)                                          \
            return ALQ_CALL(name, list, count, stream);                                            \
        alq_core_renew();                                                                          \
        if (!alq_bindings_reserve(count))                                                          \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        alq_part_begin(&part);                                                                     \
        CUresult result = ALQ_CALL(name, list, count, stream);                                     \
        for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++)                         \
            tile_changed(&list[i], &part);                                                         \
        alq_bindings_unreserve(count);                                                             \
        alq_part_end(&part);                                                                       \
        return result;                                                                             \
    }

MAP_ARRAY(cuMemMapArrayAsync)
MAP_ARRAY(cuMemMapArrayAsync_ptsz)
