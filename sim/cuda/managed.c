/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program says about its managed memory: advice, prefetches, attachment. It is kept for each
 * allocation as a whole and told back. A preferred location and a prefetch move the whole
 * allocation, which is then the host's or the device's. The table is under its own lock,
 * which may be taken under a device's memory lock.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"

#define DEVICE_CPU (-1)     /* CU_DEVICE_CPU */
#define DEVICE_INVALID (-2) /* CU_DEVICE_INVALID */

struct advice {
    uint64_t base; /* 0: free row */
    bool is_read_mostly;
    CUmemLocation preferred, prefetched; /* type INVALID: none */
    uint64_t accessed_by;                /* bit: device, 63: the host */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct advice *rows;
static size_t count;

/* Under the lock. The allocation's row, made when is_new; NULL without one. */
static struct advice *row_of(uint64_t base, bool is_new)
{
    struct advice *unused = NULL;

    for (size_t i = 0; i < count; i++) {
        if (rows[i].base == base)
            return &rows[i];
        if (!rows[i].base)
            unused = &rows[i];
    }
    if (!is_new)
        return NULL;
    if (!unused) {
        struct advice *more = realloc(rows, (count + 16) * sizeof(*rows));

        if (!more)
            return NULL;
        rows = more;
        memset(&rows[count], 0, 16 * sizeof(*rows));
        unused = &rows[count];
        count += 16;
    }
    *unused = (struct advice){.base = base};
    return unused;
}

void managed_forget(uint64_t base)
{
    struct advice *row;

    pthread_mutex_lock(&lock);
    row = row_of(base, false);
    if (row)
        row->base = 0;
    pthread_mutex_unlock(&lock);
}

/* The managed allocation around [address, address + bytes). */
static CUresult managed_base(CUdeviceptr address, size_t bytes, uint64_t *base)
{
    struct device *d;
    struct va_record *r = NULL;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    d = memory_device(address);
    NEED(d && va_contains(&d->managed, address), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&d->memory_lock);
    r = va_find(&d->managed, address, base);
    if (r && bytes > r->bytes - (address - *base))
        r = NULL;
    pthread_mutex_unlock(&d->memory_lock);
    return r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult location_check(const CUmemLocation *l)
{
    struct device *d;

    switch (l->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return device_get(l->id, &d);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return l->id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* The location that an old call's device number means. */
static CUmemLocation location_of(CUdevice dev)
{
    if (dev == DEVICE_CPU)
        return (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0};
    return (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, dev};
}

static uint64_t bit_of(const CUmemLocation *l)
{
    return l->type == CU_MEM_LOCATION_TYPE_DEVICE ? 1ull << l->id : 1ull << 63;
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation where)
{
    uint64_t base;
    struct advice *row;

    NEED(bytes && advice >= CU_MEM_ADVISE_SET_READ_MOSTLY &&
             advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY,
         CUDA_ERROR_INVALID_VALUE);
    TRY(managed_base(address, bytes, &base));
    if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice >= CU_MEM_ADVISE_SET_ACCESSED_BY)
        TRY(location_check(&where));
    pthread_mutex_lock(&lock);
    row = row_of(base, true);
    if (row) {
        if (advice <= CU_MEM_ADVISE_UNSET_READ_MOSTLY)
            row->is_read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        else if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
            row->preferred = where;
        else if (advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION)
            row->preferred = (CUmemLocation){0};
        else if (advice == CU_MEM_ADVISE_SET_ACCESSED_BY)
            row->accessed_by |= bit_of(&where);
        else
            row->accessed_by &= ~bit_of(&where);
    }
    pthread_mutex_unlock(&lock);
    if (row && advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION)
        managed_move(address, where.type != CU_MEM_LOCATION_TYPE_DEVICE);
    return row ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice dev)
{
    return cuMemAdvise_v2(address, bytes, advice, location_of(dev));
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation where,
                               unsigned int flags, CUstream stream)
{
    struct CUctx_st *c;
    struct CUstream_st *s;
    struct advice *row;
    uint64_t base;

    TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    NEED(bytes && !flags, CUDA_ERROR_INVALID_VALUE);
    TRY(managed_base(address, bytes, &base));
    TRY(location_check(&where));
    NEED(!atomic_load(&s->capture), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    pthread_mutex_lock(&lock);
    row = row_of(base, true);
    if (row)
        row->prefetched = where;
    pthread_mutex_unlock(&lock);
    NEED(row, CUDA_ERROR_OUT_OF_MEMORY);
    managed_move(address, where.type != CU_MEM_LOCATION_TYPE_DEVICE);
    return stream_copy(
        s, copy_duration_ns(&(struct copy){.kind = COPY_HOST, .width = bytes, .rows = 1}));
}

CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice dev, CUstream stream)
{
    return cuMemPrefetchAsync_v2(address, bytes, location_of(dev), 0, stream);
}

/* As the old attributes number a location. */
static int number_of(const CUmemLocation *l)
{
    return l->type == CU_MEM_LOCATION_TYPE_INVALID  ? DEVICE_INVALID
           : l->type == CU_MEM_LOCATION_TYPE_DEVICE ? l->id
                                                    : DEVICE_CPU;
}

static CUresult answer(void *data, size_t bytes, CUmem_range_attribute attribute,
                       const struct advice *row)
{
    int *out = data;
    size_t n = 0;

    NEED(bytes >= sizeof(int) && bytes % sizeof(int) == 0 &&
             (bytes == sizeof(int) || attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY),
         CUDA_ERROR_INVALID_VALUE);
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *out = row->is_read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *out = number_of(&row->preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        for (int i = 0; i < 64 && n < bytes / sizeof(int); i++) {
            if (row->accessed_by & 1ull << i)
                out[n++] = i == 63 ? DEVICE_CPU : i;
        }
        while (n < bytes / sizeof(int))
            out[n++] = DEVICE_INVALID;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *out = number_of(&row->prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *out = (int)row->preferred.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *out = row->preferred.id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *out = (int)row->prefetched.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *out = row->prefetched.id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemRangeGetAttributes(void **data, size_t *sizes, CUmem_range_attribute *attributes,
                                 size_t attribute_count, CUdeviceptr address, size_t bytes)
{
    struct advice row = {0}, *found;
    uint64_t base;

    NEED(data && sizes && attributes && attribute_count && bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(managed_base(address, bytes, &base));
    pthread_mutex_lock(&lock);
    found = row_of(base, false);
    if (found)
        row = *found;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < attribute_count; i++) {
        NEED(data[i], CUDA_ERROR_INVALID_VALUE);
        TRY(answer(data[i], sizes[i], attributes[i], &row));
    }
    return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttribute(void *data, size_t size, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t bytes)
{
    return cuMemRangeGetAttributes(&data, &size, &attribute, 1, address, bytes);
}

CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes,
                                unsigned int flags)
{
    struct CUctx_st *c;
    struct CUstream_st *s;
    uint64_t base;

    TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    NEED(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
             (flags == CU_MEM_ATTACH_SINGLE && !s->is_legacy),
         CUDA_ERROR_INVALID_VALUE);
    TRY(managed_base(address, bytes, &base));
    NEED(base == address, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}
