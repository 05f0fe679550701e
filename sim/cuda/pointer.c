/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuPointerGetAttribute(s): what an address is.
 */
#include "cuda/driver.h"
#include "cuda/host.h"

/* What one address leads to. */
struct target {
    enum { NOTHING, DEVICE, HOST } what;
    struct device *device;
    struct va_record record;
    uint64_t base, bytes;
    void *context;
    bool is_managed;
};

static void look(CUdeviceptr address, struct target *t)
{
    struct device *d = memory_device(address);
    struct host_range range;

    *t = (struct target){.what = NOTHING};
    if (d) {
        bool is_managed = va_contains(&d->managed, address);
        struct va_record *r;

        pthread_mutex_lock(&d->memory_lock);
        r = va_find(is_managed ? &d->managed : &d->memory, address, &t->base);
        if (r) {
            t->what = DEVICE;
            t->record = *r;
            t->bytes = r->bytes;
            t->device = d;
            t->is_managed = is_managed;
        }
        pthread_mutex_unlock(&d->memory_lock);
    } else if (host_find(address, &range)) {
        t->what = HOST;
        t->base = range.base;
        t->bytes = range.bytes;
        t->device = &driver_devices[range.device];
        t->context = range.context;
    }
}

static CUresult answer(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                       const struct target *t)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data =
            t->what == DEVICE ? context_by_id(t->record.owner) : (CUcontext)t->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(CUmemorytype *)data = t->what == HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (t->what == DEVICE && !t->is_managed)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)(uintptr_t)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = t->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(int *)data = t->is_managed;
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
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = NULL;
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
    return CUDA_SUCCESS;
}
