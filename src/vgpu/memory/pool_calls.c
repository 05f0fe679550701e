/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers of the entry points of memory pools (pool.h). An allocation or a free that is captured
 * into a graph charges nothing now (graph.c). A pool of another process is its maker's to pay for,
 * and so is what is imported from it.
 */
#include "vgpu/memory/alloc.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/graph.h"
#include "vgpu/memory/pool.h"

static bool is_capturing(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return ALQ_HAS(cuStreamIsCapturing) &&
           ALQ_CALL(cuStreamIsCapturing, stream, &status) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

static CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* The pool that is current on the stream's device. */
static CUresult find_current(CUstream stream, struct alq_pool **out)
{
    struct alq_dev *dev;
    CUmemoryPool pool;

    *out = NULL;
    CUresult result = alq_context_find_dev_of_stream(stream, &dev);
    if (!dev || !ALQ_HAS(cuDeviceGetMemPool))
        return result;
    result = ALQ_CALL(cuDeviceGetMemPool, &pool, dev->ordinal);
    return result == CUDA_SUCCESS ? alq_pool_find(pool, out) : result;
}

static bool remember(const struct alq_pool_call *call, const struct alq_dev *dev, CUdeviceptr ptr)
{
    struct alq_entry_value old, value = {.counted_bytes = call->bytes,
                                         .overhead_bytes = alq_pool_number(call->pool),
                                         .device = (uint8_t)dev->index,
                                         .kind = ALQ_KIND_POOL};
    /* There only where a graph has freed it. */
    if (alq_table_take(ptr, ALQ_KIND_POOL, &old))
        alq_freed(CUDA_SUCCESS, ptr, &old);
    return alq_table_put(ptr, &value);
}

static CUresult undo(const struct alq_pool_call *call, CUdeviceptr ptr, CUstream stream)
{
    if (ALQ_HAS(cuMemFreeAsync))
        ALQ_CALL(cuMemFreeAsync, ptr, stream);
    alq_pool_freed(alq_pool_number(call->pool), call->bytes);
    alq_pool_settle(call->pool);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult allocated(CUresult result, const struct alq_pool_call *call, struct alq_dev *dev,
                          const CUdeviceptr *out, CUstream stream)
{
    struct alq_entry_value gone;

    if (result != CUDA_SUCCESS) {
        alq_pool_end(call, false);
        return result;
    }
    bool is_known = remember(call, dev, *out), fits = alq_pool_end(call, true);
    if (is_known && fits) {
        alq_charge_tend(dev);
        return result;
    }
    if (is_known)
        alq_table_take(*out, ALQ_KIND_POOL, &gone);
    return undo(call, *out, stream);
}

#define ALLOC_ASYNC(name, params, args, find_it, of_stream)                                        \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct alq_pool_call call;                                                                 \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, args);                                                           \
        if (alq_core_mode() == ALQ_MODE_BROKEN)                                                    \
            return CUDA_ERROR_NOT_PERMITTED;                                                       \
        struct alq_here here = alq_context_here();                                                 \
        if (here.error != CUDA_SUCCESS)                                                            \
            return here.error;                                                                     \
        if (!out || bytes == 0 || !alq_dev_at(0))                                                  \
            return ALQ_CALL(name, args);                                                           \
        if (is_capturing(of_stream)) {                                                             \
            CUresult captured = ALQ_CALL(name, args);                                              \
            alq_graph_grown(here.dev);                                                             \
            return captured;                                                                       \
        }                                                                                          \
        struct alq_pool *found;                                                                    \
        CUresult result = find_it;                                                                 \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        if (!found)                                                                                \
            return ALQ_CALL(name, args);                                                           \
        if (!alq_pool_begin(found, bytes, &call))                                                  \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        return allocated(ALQ_CALL(name, args), &call, alq_pool_dev(found), out, of_stream);        \
    }

ALLOC_ASYNC(cuMemAllocAsync, (CUdeviceptr * out, size_t bytes, CUstream stream),
            ARGS(out, bytes, stream), find_current(stream, &found), stream)
ALLOC_ASYNC(cuMemAllocAsync_ptsz, (CUdeviceptr * out, size_t bytes, CUstream stream),
            ARGS(out, bytes, stream), find_current(stream, &found), per_thread(stream))
ALLOC_ASYNC(cuMemAllocFromPoolAsync,
            (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream),
            ARGS(out, bytes, pool, stream), alq_pool_find(pool, &found), stream)
ALLOC_ASYNC(cuMemAllocFromPoolAsync_ptsz,
            (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream),
            ARGS(out, bytes, pool, stream), alq_pool_find(pool, &found), per_thread(stream))

ALQ_FREE(cuMemFreeAsync, ALQ_KIND_POOL, (CUdeviceptr handle, CUstream stream), ARGS(handle, stream),
         is_capturing(stream))
ALQ_FREE(cuMemFreeAsync_ptsz, ALQ_KIND_POOL, (CUdeviceptr handle, CUstream stream),
         ARGS(handle, stream), is_capturing(per_thread(stream)))

/* ---- pools ----------------------------------------------------------------------------------- */

ALQ_HOOK CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
    if (!ALQ_HAS(cuMemPoolCreate))
        return alq_absent(ALQ_CU_cuMemPoolCreate);
    CUresult result = ALQ_CALL(cuMemPoolCreate, pool, props);
    if (result != CUDA_SUCCESS || !alq_core_is_on() ||
        props->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return result;
    alq_core_renew();
    struct alq_dev *dev = alq_dev_of(props->location.id);
    if (!dev || alq_pool_learn(*pool, dev))
        return result;
    if (ALQ_HAS(cuMemPoolDestroy))
        ALQ_CALL(cuMemPoolDestroy, *pool);
    return CUDA_ERROR_OUT_OF_MEMORY; /* one that cannot be followed */
}

ALQ_HOOK CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle,
                                                     CUmemAllocationHandleType type,
                                                     unsigned long long flags)
{
    if (!ALQ_HAS(cuMemPoolImportFromShareableHandle))
        return alq_absent(ALQ_CU_cuMemPoolImportFromShareableHandle);
    CUresult result = ALQ_CALL(cuMemPoolImportFromShareableHandle, pool, handle, type, flags);
    if (result == CUDA_SUCCESS && alq_core_is_on()) {
        alq_core_renew();
        alq_pool_learn(*pool, NULL);
    }
    return result;
}

ALQ_HOOK CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool,
                                         CUmemPoolPtrExportData *data)
{
    if (!ALQ_HAS(cuMemPoolImportPointer))
        return alq_absent(ALQ_CU_cuMemPoolImportPointer);
    CUresult result = ALQ_CALL(cuMemPoolImportPointer, out, pool, data);
    if (result == CUDA_SUCCESS && alq_core_is_on()) {
        alq_core_renew();
        struct alq_pool *found = alq_pool_known(pool);
        if (found && !alq_pool_dev(found))
            alq_pool_pointed(found, *out);
    }
    return result;
}

ALQ_HOOK CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool,
                                                   CUmemAllocationHandleType type,
                                                   unsigned long long flags)
{
    if (!ALQ_HAS(cuMemPoolExportToShareableHandle))
        return alq_absent(ALQ_CU_cuMemPoolExportToShareableHandle);
    CUresult result = ALQ_CALL(cuMemPoolExportToShareableHandle, out, pool, type, flags);
    if (result == CUDA_SUCCESS && alq_core_is_on()) {
        alq_core_renew();
        struct alq_pool *found = alq_pool_known(pool);
        if (found)
            alq_pool_exported(found);
    }
    return result;
}

ALQ_HOOK CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    if (!ALQ_HAS(cuMemPoolDestroy))
        return alq_absent(ALQ_CU_cuMemPoolDestroy);
    if (!alq_core_is_on())
        return ALQ_CALL(cuMemPoolDestroy, pool);
    alq_core_renew();
    struct alq_pool *found = alq_pool_known(pool);
    if (!found)
        return ALQ_CALL(cuMemPoolDestroy, pool);
    alq_pool_close_begin(found);
    CUresult result = ALQ_CALL(cuMemPoolDestroy, pool);
    alq_pool_close_end(found, result == CUDA_SUCCESS);
    return result;
}

ALQ_HOOK CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    if (!ALQ_HAS(cuMemPoolTrimTo))
        return alq_absent(ALQ_CU_cuMemPoolTrimTo);
    CUresult result = ALQ_CALL(cuMemPoolTrimTo, pool, keep_bytes);
    if (result == CUDA_SUCCESS && alq_core_is_on()) {
        alq_core_renew();
        alq_pool_settle(alq_pool_known(pool));
    }
    return result;
}
