/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: allocation, release, the figures of cuMemGetInfo, pools in their first form
 * (memory of a pool is taken and given back at once), and what a pointer is. Each device's windows
 * and account are under its memory lock.
 */
#include "cuda/driver.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/host.h"

#define PITCH_BYTES 512u

struct device *memory_device(CUdeviceptr address)
{
    for (int i = 0; i < driver_device_count; i++) {
        struct device *d = &driver_devices[i];

        if (va_contains(&d->memory, address) || va_contains(&d->managed, address))
            return d;
    }
    return NULL;
}

static struct va_window *window_of(struct device *d, CUdeviceptr address)
{
    return va_contains(&d->memory, address) ? &d->memory : &d->managed;
}

CUresult memory_alloc(struct CUctx_st *context, size_t bytes, enum va_kind kind, CUdeviceptr *out)
{
    struct device *d = context->device;
    struct va_window *w = kind == VA_MANAGED ? &d->managed : &d->memory;
    uint64_t physical = sim_round_bytes(bytes), address = 0;

    NEED(bytes && physical >= bytes, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&d->memory_lock);
    if (sim_charge(&d->ledger, physical, SIM_CHARGE_MEMORY)) {
        address = va_alloc(w, bytes, context->id, kind);
        if (!address)
            sim_uncharge(&d->ledger, physical, SIM_CHARGE_MEMORY);
    }
    pthread_mutex_unlock(&d->memory_lock);
    NEED(address, CUDA_ERROR_OUT_OF_MEMORY);
    *out = address;
    return CUDA_SUCCESS;
}

static bool is_of(const struct va_record *r, bool is_any_linear, enum va_kind kind)
{
    return is_any_linear ? r->kind == VA_DEVICE || r->kind == VA_MANAGED : r->kind == kind;
}

static CUresult give(CUdeviceptr address, bool is_any_linear, enum va_kind kind)
{
    struct device *d = memory_device(address);
    struct va_record *r;
    uint64_t base;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    NEED(d, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&d->memory_lock);
    r = va_find(window_of(d, address), address, &base);
    if (r && base == address && is_of(r, is_any_linear, kind)) {
        uint64_t physical = sim_round_bytes(r->bytes);

        if (r->kind == VA_MANAGED)
            managed_forget(base);
        va_free(window_of(d, address), address);
        sim_uncharge(&d->ledger, physical, SIM_CHARGE_MEMORY);
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&d->memory_lock);
    return rc;
}

CUresult memory_free(CUdeviceptr address)
{
    return give(address, true, VA_DEVICE);
}

CUresult memory_release(CUdeviceptr address, enum va_kind kind)
{
    return give(address, false, kind);
}

struct owned {
    struct device *device;
    struct va_window *window;
};

static void free_one(uint64_t base, struct va_record *record, void *arg)
{
    struct owned *o = arg;
    uint64_t physical = sim_round_bytes(record->bytes);

    if (record->kind == VA_MANAGED)
        managed_forget(base);
    va_free(o->window, base);
    sim_uncharge(&o->device->ledger, physical, SIM_CHARGE_MEMORY);
}

void memory_free_owned(struct CUctx_st *context)
{
    struct device *d = context->device;
    struct owned o = {d, &d->memory};

    pthread_mutex_lock(&d->memory_lock);
    va_each(&d->memory, context->id, free_one, &o);
    o.window = &d->managed;
    va_each(&d->managed, context->id, free_one, &o);
    pthread_mutex_unlock(&d->memory_lock);
}

void *memory_host(CUdeviceptr address, size_t bytes, bool is_write)
{
    struct device *d = memory_device(address);
    struct va_window *w;
    struct va_record *r;
    uint64_t base, host = 0;

    if (!d)
        return NULL;
    w = window_of(d, address);
    pthread_mutex_lock(&d->memory_lock);
    r = va_find(w, address, &base);
    if (r && bytes <= r->bytes - (address - base)) {
        r->touched |= is_write;
        host = address + w->alias;
    }
    pthread_mutex_unlock(&d->memory_lock);
    return (void *)(uintptr_t)host;
}

/* Entry points */

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(address, CUDA_ERROR_INVALID_VALUE);
    TRY(capture_unsafe());
    return memory_alloc(c, bytes, VA_DEVICE, address);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    struct CUctx_st *c;
    size_t row = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES, bytes;

    TRY(current(&c));
    NEED(address && pitch && width && height && (element == 4 || element == 8 || element == 16) &&
             row >= width,
         CUDA_ERROR_INVALID_VALUE);
    NEED(!__builtin_mul_overflow(row, height, &bytes), CUDA_ERROR_OUT_OF_MEMORY);
    TRY(capture_unsafe());
    TRY(memory_alloc(c, bytes, VA_DEVICE, address));
    *pitch = row;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(address && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST),
         CUDA_ERROR_INVALID_VALUE);
    TRY(capture_unsafe());
    return memory_alloc(c, bytes, VA_MANAGED, address);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    struct CUctx_st *c;

    TRY(current(&c));
    if (!address)
        return CUDA_SUCCESS;
    /* As on a card, memory is not taken away under running kernels. */
    TRY(context_wait(c));
    return memory_free(address);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    struct CUctx_st *c;
    uint64_t used, total;

    TRY(current(&c));
    NEED(free_bytes && total_bytes, CUDA_ERROR_INVALID_VALUE);
    used = sim_word_bytes(atomic_load(&c->device->shared->used));
    total = c->device->shared->capacity_bytes;
    *total_bytes = total;
    total = sim_usable_bytes(c->device->shared);
    *free_bytes = used < total ? total - used : 0;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    size_t f, t;

    NEED(free_bytes && total_bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(cuMemGetInfo_v2(&f, &t));
    *free_bytes = f > UINT32_MAX ? UINT32_MAX : (unsigned int)f;
    *total_bytes = t > UINT32_MAX ? UINT32_MAX : (unsigned int)t;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct CUctx_st *c;
    struct device *d;
    struct va_record *r;
    uint64_t at, size = 0;

    TRY(current(&c));
    d = memory_device(address);
    NEED(d, CUDA_ERROR_NOT_FOUND);
    pthread_mutex_lock(&d->memory_lock);
    r = va_find(window_of(d, address), address, &at);
    size = r ? r->bytes : 0;
    pthread_mutex_unlock(&d->memory_lock);
    NEED(size, CUDA_ERROR_NOT_FOUND);
    if (base)
        *base = at;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}

/* Pools */

static CUresult pool_of(struct device *d, struct CUmemPoolHandle_st **pool)
{
    pthread_mutex_lock(&driver_lock);
    if (!d->pool) {
        d->pool = calloc(1, sizeof(*d->pool));
        if (d->pool) {
            d->pool->magic = MAGIC_POOL;
            d->pool->device = d;
            d->pool->reuse[0] = d->pool->reuse[1] = d->pool->reuse[2] = 1;
        }
    }
    *pool = d->pool;
    pthread_mutex_unlock(&driver_lock);
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(pool, CUDA_ERROR_INVALID_VALUE);
    return pool_of(d, pool);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    return cuDeviceGetDefaultMemPool(pool, dev);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream)
{
    struct CUctx_st *c;
    struct CUstream_st *s;

    TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    NEED(address && bytes && pool && pool->magic == MAGIC_POOL, CUDA_ERROR_INVALID_VALUE);
    NEED(pool->device == c->device, CUDA_ERROR_NOT_SUPPORTED);
    NEED(!atomic_load(&s->capture), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    TRY(memory_alloc(c, bytes, VA_DEVICE, address));
    return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream)
{
    struct CUctx_st *c;
    struct CUmemPoolHandle_st *pool;

    TRY(current(&c));
    TRY(pool_of(c->device, &pool));
    return cuMemAllocFromPoolAsync(address, bytes, pool, stream);
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream)
{
    struct CUctx_st *c;
    struct CUstream_st *s;

    TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    NEED(!atomic_load(&s->capture), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return address ? memory_free(address) : CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    (void)keep; /* a pool of the first form keeps nothing */
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(pool && pool->magic == MAGIC_POOL, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(pool && pool->magic == MAGIC_POOL && value, CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *(int *)value = pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES];
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        *(cuuint64_t *)value = pool->release_threshold;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED; /* watermarks */
    }
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(pool && pool->magic == MAGIC_POOL && value, CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES] = *(int *)value;
        return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        pool->release_threshold = *(cuuint64_t *)value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}
