/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuPointerGetAttribute(s): what an address is.
 */
#include "cuda/host.h"
#include "cuda/pool.h"

/* What one address leads to. */
struct target {
    enum { NOTHING, DEVICE, HOST } what;
    struct place place;
    struct host_range range;
    struct device *device; /* whose it is, or that of the context it was made in */
    uint64_t base, bytes;
};

static void look(CUdeviceptr address, struct target *t)
{
    *t = (struct target){.what = NOTHING};
    memory_find(address, &t->place);
    if (t->place.kind != PLACE_NONE) {
        t->what = DEVICE;
        t->base = t->place.base;
        t->bytes = t->place.bytes;
        t->device = t->place.device ? t->place.device : &driver_devices[0];
    } else if (host_find(address, &t->range)) {
        t->what = HOST;
        t->base = t->range.base;
        t->bytes = t->range.bytes;
        t->device = &driver_devices[t->range.device];
    }
}

/* What may be exported of it, and how. */
static unsigned long long handle_types(const struct place *place)
{
    if (place->kind == PLACE_MAPPED && place->physical)
        return (unsigned long long)place->physical->prop.requestedHandleTypes;
    return place->kind == PLACE_POOL && place->pool->shared.id
               ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
               : CU_MEM_HANDLE_TYPE_NONE;
}

static CUresult answer(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                       const struct target *t)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data =
            t->what == DEVICE ? context_by_id(t->place.owner) : (CUcontext)t->range.context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)data =
            t->what == HOST || !t->place.device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (t->what == DEVICE && t->place.kind != PLACE_MANAGED && t->place.device)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)data = t->place.is_synchronous;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = t->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(int *)data = t->place.kind == PLACE_MANAGED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = t->device->ordinal;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = t->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = t->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(int *)data = t->place.kind == PLACE_LINEAR && t->place.of == VA_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = handle_types(&t->place);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(int *)data = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = t->place.pool;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        NEED(t->place.kind == PLACE_MAPPED, CUDA_ERROR_INVALID_VALUE);
        *(size_t *)data = t->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        NEED(t->place.kind == PLACE_MAPPED, CUDA_ERROR_INVALID_VALUE);
        *(CUdeviceptr *)data = t->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data =
            t->place.physical ? (uintptr_t)t->place.physical : t->base / GRANULE_BYTES;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct target t;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(data, CUDA_ERROR_INVALID_VALUE);
    look(address, &t);
    NEED(t.what != NOTHING, CUDA_ERROR_INVALID_VALUE);
    return answer(data, attribute, address, &t);
}

static size_t answer_bytes(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return sizeof(int);
    default:
        return sizeof(void *);
    }
}

/* An address unknown to CUDA is no error here: every answer is then zero. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address)
{
    struct target t;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(count && attributes && data, CUDA_ERROR_INVALID_VALUE);
    look(address, &t);
    for (unsigned int i = 0; i < count; i++) {
        NEED(data[i], CUDA_ERROR_INVALID_VALUE);
        if (t.what == NOTHING || answer(data[i], attributes[i], address, &t) != CUDA_SUCCESS) {
            __builtin_memset(data[i], 0, answer_bytes(attributes[i]));
            if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
                *(int *)data[i] = -2;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr address)
{
    struct target t;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(value && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    look(address, &t);
    NEED(t.what == DEVICE, CUDA_ERROR_INVALID_VALUE);
    memory_set_synchronous(address, *(const unsigned int *)value != 0);
    return CUDA_SUCCESS;
}

/* No file that other drivers understand comes out of here, and the device says so
 * (DMA_BUF_SUPPORTED is 0). */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr address, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    struct target t;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(handle && bytes && type == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD && flags <= 1,
         CUDA_ERROR_INVALID_VALUE);
    look(address, &t);
    NEED(t.what == DEVICE && bytes <= t.bytes - (address - t.base), CUDA_ERROR_INVALID_VALUE);
    return CUDA_ERROR_NOT_SUPPORTED;
}
