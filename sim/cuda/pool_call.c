/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry points of memory pools, and of allocation in stream order. A device has a pool of its own,
 * made when first asked for, under driver_lock.
 */
#include "cuda/pool.h"

/* The device's own pool of that slot, made when first asked for. */
static CUresult own_pool(struct device *d, struct CUmemPoolHandle_st **slot,
                         struct CUmemPoolHandle_st **pool)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->ordinal}};
    CUresult rc = CUDA_SUCCESS;

    pthread_mutex_lock(&driver_lock);
    if (!*slot) {
        rc = pool_open(d, &props, NULL, 0, slot);
        if (rc == CUDA_SUCCESS)
            (*slot)->is_default = true;
    }
    *pool = *slot;
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

static CUresult current_pool(struct device *d, struct CUmemPoolHandle_st **pool)
{
    *pool = d->pool_current;
    return *pool ? CUDA_SUCCESS : own_pool(d, &d->pool, pool);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(pool, CUDA_ERROR_INVALID_VALUE);
    return own_pool(d, &d->pool, pool);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(pool, CUDA_ERROR_INVALID_VALUE);
    return current_pool(d, pool);
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    struct device *d;

    TRY(device_get(dev, &d));
    TRY(pool_check(pool));
    NEED(pool->device == d && !pool->is_imported, CUDA_ERROR_INVALID_VALUE);
    d->pool_current = pool;
    return CUDA_SUCCESS;
}

static CUresult location_device(const CUmemLocation *location, CUmemAllocationType type,
                                CUdevice *dev)
{
    NEED(location, CUDA_ERROR_INVALID_VALUE);
    NEED(type == CU_MEM_ALLOCATION_TYPE_PINNED && location->type == CU_MEM_LOCATION_TYPE_DEVICE,
         CUDA_ERROR_NOT_SUPPORTED);
    *dev = location->id;
    return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location,
                                CUmemAllocationType type)
{
    CUdevice dev;

    TRY(location_device(location, type, &dev));
    return cuDeviceGetDefaultMemPool(pool, dev);
}

CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)
{
    CUdevice dev;

    TRY(location_device(location, type, &dev));
    return cuDeviceGetMemPool(pool, dev);
}

CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUdevice dev;

    TRY(location_device(location, type, &dev));
    return cuDeviceSetMemPool(dev, pool);
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    struct device *d;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(pool && props && props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED,
         CUDA_ERROR_INVALID_VALUE);
    NEED(props->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
             props->handleTypes <= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
         CUDA_ERROR_NOT_SUPPORTED);
    TRY(device_get(props->location.id, &d));
    return pool_open(d, props, NULL, 0, pool);
}

CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    TRY(pool_check(pool));
    NEED(!pool->is_default, CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < driver_device_count; i++) {
        if (driver_devices[i].pool_current == pool)
            driver_devices[i].pool_current = NULL; /* the default one again */
    }
    pool_close(pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    TRY(pool_check(pool));
    pool_trim(pool, keep);
    return CUDA_SUCCESS;
}

static uint64_t *figure(struct CUmemPoolHandle_st *p, CUmemPool_attribute attribute)
{
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &p->release_threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &p->reserved_bytes;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &p->reserved_high_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &p->used_bytes;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &p->used_high_bytes;
    default:
        return NULL;
    }
}

static bool is_reuse(CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
           attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    TRY(pool_check(pool));
    NEED(value, CUDA_ERROR_INVALID_VALUE);
    if (is_reuse(attribute)) {
        *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return CUDA_SUCCESS;
    }
    NEED(figure(pool, attribute), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&pool_lock);
    *(cuuint64_t *)value = *figure(pool, attribute);
    pthread_mutex_unlock(&pool_lock);
    return CUDA_SUCCESS;
}

/* High watermarks can be set to 0 alone, which makes them what is current. */
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    TRY(pool_check(pool));
    NEED(value, CUDA_ERROR_INVALID_VALUE);
    if (is_reuse(attribute)) {
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        pool->release_threshold = *(cuuint64_t *)value;
        return CUDA_SUCCESS;
    }
    NEED((attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH ||
          attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) &&
             *(cuuint64_t *)value == 0,
         CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&pool_lock);
    *figure(pool, attribute) = *figure(pool, (CUmemPool_attribute)(attribute - 1));
    pthread_mutex_unlock(&pool_lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *desc, size_t count)
{
    struct device *d;

    TRY(pool_check(pool));
    NEED(desc && count, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        NEED(desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
                 (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                  desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                  desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
             CUDA_ERROR_INVALID_VALUE);
        TRY(device_get(desc[i].location.id, &d));
        /* A pool's own device reaches it whatever happens. */
        NEED(d != pool->device || desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
             CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t i = 0; i < count; i++)
        pool->access[desc[i].location.id] = (uint8_t)desc[i].flags;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location)
{
    struct device *d;

    TRY(pool_check(pool));
    NEED(flags && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE,
         CUDA_ERROR_INVALID_VALUE);
    TRY(device_get(location->id, &d));
    *flags = (CUmemAccess_flags)pool->access[location->id];
    return CUDA_SUCCESS;
}

/* Allocation in stream order */

static CUresult alloc(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    struct CUctx_st *c;
    struct CUstream_st *s;

    TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    NEED(address && bytes, CUDA_ERROR_INVALID_VALUE);
    if (!pool)
        TRY(current_pool(c->device, &pool));
    TRY(pool_check(pool));
    NEED(!pool->is_imported, CUDA_ERROR_INVALID_VALUE);
    if (atomic_load(&s->capture))
        return capture_alloc(s, &pool->props, bytes, address);
    return pool_take(pool, bytes, s, address);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    NEED(pool, CUDA_ERROR_INVALID_VALUE);
    return alloc(address, bytes, pool, stream);
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    return alloc(address, bytes, NULL, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    struct CUctx_st *c;
    struct CUstream_st *s;
    struct place place;

    TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    NEED(address, CUDA_ERROR_INVALID_VALUE);
    if (atomic_load(&s->capture))
        return capture_free(s, address);
    memory_find(address, &place);
    if (place.kind == PLACE_GRAPH)
        return graph_memory_free(address, s);
    if (place.kind == PLACE_POOL)
        return pool_give(address, s);
    /* Memory of cuMemAlloc, too, once the stream has got there. */
    TRY(stream_wait(s));
    return memory_free(address);
}
