/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools between processes: a pool's memory is one shared object, a pointer a place in it. The
 * process that imports has the same memory at addresses of its own and allocates nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/pool.h"

struct pointer_data {
    uint64_t id, offset, bytes; /* of the pool's object */
};

static_assert(sizeof(struct pointer_data) <= sizeof(CUmemPoolPtrExportData), "fits");

CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool,
                                          CUmemAllocationHandleType type, unsigned long long flags)
{
    TRY(pool_check(pool));
    NEED(out && !flags && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && pool->shared.id &&
             !pool->is_imported,
         CUDA_ERROR_INVALID_VALUE);
    return shared_token(&pool->shared, out);
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *os_handle,
                                            CUmemAllocationHandleType type,
                                            unsigned long long flags)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    struct sim_object_answer what;
    struct shared shared;
    struct device *d;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(pool && !flags, CUDA_ERROR_INVALID_VALUE);
    NEED(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    rc = shared_join((int)(intptr_t)os_handle, 0, &what, &shared);
    NEED(rc == CUDA_SUCCESS, rc == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : rc);
    d = shared_device(&what);
    if (what.kind == OBJECT_POOL && d) {
        props.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, d->ordinal};
        rc = pool_open(d, &props, &shared, what.file_bytes, pool);
    } else {
        rc = d ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_DEVICE;
    }
    if (rc != CUDA_SUCCESS)
        shared_drop(&shared);
    return rc;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
    struct place place;
    struct pointer_data data;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(out, CUDA_ERROR_INVALID_VALUE);
    memory_find(address, &place);
    NEED(place.kind == PLACE_POOL && place.base == address && place.pool->shared.id &&
             !place.pool->is_imported,
         CUDA_ERROR_INVALID_VALUE);
    data = (struct pointer_data){place.pool->shared.id, address - place.pool->window.base,
                                 place.bytes};
    memset(out, 0, sizeof(*out));
    memcpy(out, &data, sizeof(data));
    return CUDA_SUCCESS;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *in)
{
    struct pointer_data data;
    CUresult rc = CUDA_SUCCESS;

    TRY(pool_check(pool));
    NEED(address && in && pool->is_imported, CUDA_ERROR_INVALID_VALUE);
    memcpy(&data, in, sizeof(data));
    NEED(data.id == pool->shared.id && data.bytes && data.offset < pool->window.bytes &&
             data.bytes <= pool->window.bytes - data.offset,
         CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&pool_lock);
    if (pool->import_count == pool->import_room) {
        size_t room = pool->import_room ? pool->import_room * 2 : 16;
        struct pool_import *more = realloc(pool->imports, room * sizeof(*more));

        if (more) {
            pool->imports = more;
            pool->import_room = room;
        } else {
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (rc == CUDA_SUCCESS) {
        *address = pool->window.base + data.offset;
        pool->imports[pool->import_count++] = (struct pool_import){*address, data.bytes};
        pool->live++;
    }
    pthread_mutex_unlock(&pool_lock);
    return rc;
}
