/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills. They move bytes when they are called; the clock says when that would be done: a
 * copy to or from the host takes its stream's time at 25 GB/s (copy engine), a copy or fill within
 * the device takes kernel time at 1 TB/s. A synchronous call waits for the end.
 */
#include "cuda/memory.h"

#include <string.h>
#include <sys/mman.h>

#include "cuda/callback.h"
#include "cuda/host.h"

#define PAGE_BYTES 4096ull
#define CLEAR_MIN_BYTES (1ull << 16)
#define OVERHEAD_NS 2000ull
#define HOST_BYTES_PER_US 25000ull
#define DEVICE_BYTES_PER_US 1000000ull

uint64_t copy_duration_ns(const struct copy *copy)
{
    uint64_t bytes = copy->width * copy->rows * (copy->slices ? copy->slices : 1);
    uint64_t rate = copy->kind == COPY_HOST ? HOST_BYTES_PER_US : DEVICE_BYTES_PER_US;

    return OVERHEAD_NS + bytes * 1000 / rate;
}

static void fill_row(char *to, const struct copy *copy)
{
    if (copy->element == 1) {
        memset(to, (int)copy->value, copy->width);
        return;
    }
    for (size_t i = 0; i < copy->width; i += copy->element)
        memcpy(to + i, &copy->value, copy->element);
}

/* Zeroes that cover many pages give them back instead: they read as zero, and a program may well
 * clear more than this machine has. Only private memory of the windows comes here. */
static bool clear_pages(const struct copy *copy)
{
    uintptr_t from = (uintptr_t)copy->to, to = from + copy->width;
    uintptr_t first = (from + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1), last = to & ~(PAGE_BYTES - 1);

    if (copy->value || copy->is_host || copy->rows != 1 || copy->width < CLEAR_MIN_BYTES)
        return false;
    /* Device memory is a file's; managed memory is not, and says so. */
    if (madvise((void *)first, last - first, MADV_REMOVE) != 0 &&
        madvise((void *)first, last - first, MADV_DONTNEED) != 0)
        return false;
    memset((void *)from, 0, first - from);
    memset((void *)last, 0, to - last);
    return true;
}

static void run_slice(const struct copy *copy, char *to, const char *from)
{
    for (size_t row = 0; row < copy->rows; row++, to += copy->to_pitch) {
        if (copy->kind == COPY_FILL)
            fill_row(to, copy);
        else
            memmove(to, from + row * copy->from_pitch, copy->width);
    }
}

void copy_run(const struct copy *copy)
{
    char *to = copy->to;
    const char *from = copy->from;

    pthread_rwlock_rdlock(&memory_bytes_lock);
    if (copy->kind == COPY_FILL && clear_pages(copy)) {
        pthread_rwlock_unlock(&memory_bytes_lock);
        return;
    }
    for (size_t slice = 0; slice < (copy->slices ? copy->slices : 1); slice++)
        run_slice(copy, to + slice * copy->to_slice,
                  copy->kind == COPY_FILL ? NULL : from + slice * copy->from_slice);
    pthread_rwlock_unlock(&memory_bytes_lock);
}

static void run(void *what)
{
    copy_run(what);
}

static bool is_pageable(uint64_t address)
{
    struct host_range range;

    return !memory_device(address) && !host_find(address, &range);
}

/* Host memory that is not page-locked is the program's again when the call returns. */
static bool is_of_the_call(const struct copy *copy)
{
    const CUDA_MEMCPY3D *p = copy->shape;

    if (copy->kind != COPY_HOST)
        return false;
    if (!p)
        return is_pageable(copy->to_address) || is_pageable(copy->from_address);
    return (p->srcMemoryType == CU_MEMORYTYPE_HOST && is_pageable((uintptr_t)p->srcHost)) ||
           (p->dstMemoryType == CU_MEMORYTYPE_HOST && is_pageable((uintptr_t)p->dstHost)) ||
           (p->srcMemoryType == CU_MEMORYTYPE_UNIFIED && is_pageable(p->srcDevice)) ||
           (p->dstMemoryType == CU_MEMORYTYPE_UNIFIED && is_pageable(p->dstDevice));
}

/* Moves the bytes: now, or behind what the host has still to do. */
static CUresult move(struct CUstream_st *s, const struct copy *copy)
{
    if (!is_of_the_call(copy))
        return effect_push(s, run, copy, sizeof(*copy));
    if (effect_is_due())
        TRY(stream_wait(s));
    copy_run(copy);
    return CUDA_SUCCESS;
}

/* Gives the copy to a stream; a synchronous one is waited for. */
CUresult copy_submit(const struct copy *copy, CUstream stream, bool is_async)
{
    struct CUctx_st *c;
    struct CUstream_st *s;

    TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    if (atomic_load_explicit(&s->capture, memory_order_relaxed))
        return is_async ? capture_copy(s, copy) : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (s->is_legacy && capture_implicit(c))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    TRY(move(s, copy));
    if (copy->kind != COPY_HOST)
        return stream_fill(s, copy_duration_ns(copy));
    TRY(stream_copy(s, copy_duration_ns(copy)));
    return is_async ? CUDA_SUCCESS : stream_wait(s);
}

/* One side of a copy: device memory when it is, or is_device says it must be. */
CUresult copy_side(uint64_t address, size_t bytes, bool is_device, bool is_write, void **host,
                   bool *on_device)
{
    *on_device = memory_device(address) != NULL;
    NEED(address && (*on_device || !is_device), CUDA_ERROR_INVALID_VALUE);
    *host = *on_device ? memory_host(address, bytes, is_write) : (void *)(uintptr_t)address;
    return *host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

enum where { HOST, DEVICE, ANY };

static CUresult linear(uint64_t to, enum where to_place, uint64_t from, enum where from_place,
                       size_t bytes, CUstream stream, bool is_async)
{
    struct copy copy = {.width = bytes, .rows = 1, .to_address = to, .from_address = from};
    bool to_device, from_device;
    void *source;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    if (!bytes)
        return CUDA_SUCCESS;
    TRY(copy_side(to, bytes, to_place == DEVICE, true, &copy.to, &to_device));
    TRY(copy_side(from, bytes, from_place == DEVICE, false, &source, &from_device));
    copy.from = source;
    copy.kind = to_device && from_device ? COPY_DEVICE : COPY_HOST;
    return copy_submit(&copy, stream, is_async);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return linear(to, ANY, from, ANY, bytes, NULL, false);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return linear(to, ANY, from, ANY, bytes, stream, true);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return linear(to, DEVICE, (uint64_t)(uintptr_t)from, ANY, bytes, NULL, false);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return linear(to, DEVICE, (uint64_t)(uintptr_t)from, ANY, bytes, stream, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return linear((uint64_t)(uintptr_t)to, ANY, from, DEVICE, bytes, NULL, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return linear((uint64_t)(uintptr_t)to, ANY, from, DEVICE, bytes, stream, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return linear(to, DEVICE, from, DEVICE, bytes, NULL, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return linear(to, DEVICE, from, DEVICE, bytes, stream, true);
}

/* Peer copies: contexts of this process, whatever their device; addresses are unified. */
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes)
{
    TRY(context_check(to_context));
    TRY(context_check(from_context));
    return linear(to, DEVICE, from, DEVICE, bytes, NULL, false);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream)
{
    TRY(context_check(to_context));
    TRY(context_check(from_context));
    return linear(to, DEVICE, from, DEVICE, bytes, stream, true);
}

/* Fills */

/* Page-locked host memory is the device's to write, too. */
static bool is_pinned(uint64_t address, size_t bytes)
{
    struct host_range range;

    return host_find(address, &range) && bytes <= range.bytes - (address - range.base);
}

static CUresult fill(CUdeviceptr to, size_t pitch, uint64_t value, unsigned int element,
                     size_t width, size_t rows, CUstream stream, bool is_async)
{
    struct copy copy = {.kind = COPY_FILL,
                        .to_address = to,
                        .width = width * element,
                        .rows = rows,
                        .to_pitch = pitch,
                        .value = value,
                        .element = element};
    bool on_device;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    if (!width || !rows)
        return CUDA_SUCCESS;
    NEED(to % element == 0 && width <= SIZE_MAX / 8 && (rows == 1 || pitch >= copy.width) &&
             (!pitch || rows - 1 <= (SIZE_MAX / 2) / pitch),
         CUDA_ERROR_INVALID_VALUE);
    copy.is_host = is_pinned(to, (rows - 1) * pitch + copy.width);
    TRY(copy_side(to, (rows - 1) * pitch + copy.width, !copy.is_host, true, &copy.to, &on_device));
    if (pitch == copy.width) {
        copy.width *= rows;
        copy.rows = 1;
    }
    return copy_submit(&copy, stream, is_async);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n)
{
    return fill(to, 0, value, 1, n, 1, NULL, false);
}

CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n)
{
    return fill(to, 0, value, 2, n, 1, NULL, false);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t n)
{
    return fill(to, 0, value, 4, n, 1, NULL, false);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream stream)
{
    return fill(to, 0, value, 1, n, 1, stream, true);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n, CUstream stream)
{
    return fill(to, 0, value, 2, n, 1, stream, true);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream)
{
    return fill(to, 0, value, 4, n, 1, stream, true);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                         size_t rows)
{
    return fill(to, pitch, value, 1, width, rows, NULL, false);
}

CUresult cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                          size_t rows)
{
    return fill(to, pitch, value, 2, width, rows, NULL, false);
}

CUresult cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                          size_t rows)
{
    return fill(to, pitch, value, 4, width, rows, NULL, false);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                           size_t rows, CUstream stream)
{
    return fill(to, pitch, value, 1, width, rows, stream, true);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                            size_t rows, CUstream stream)
{
    return fill(to, pitch, value, 2, width, rows, stream, true);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                            size_t rows, CUstream stream)
{
    return fill(to, pitch, value, 4, width, rows, stream, true);
}
