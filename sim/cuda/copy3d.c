/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies with a shape: two and three dimensions, arrays at either side, between contexts. Each is
 * brought into the form of CUDA_MEMCPY3D, checked against what it touches, and run as copy.c's are.
 */
#include <string.h>

#include "cuda/array.h"

/* One side of a shaped copy. */
struct side {
    CUmemorytype type;
    uint64_t address;
    CUarray array;
    size_t x, y, z, pitch, height;
};

/* Of the side: where its first byte lies, the steps to the next row and slice, and whether that is
 * on a device. */
static CUresult resolve(const struct side *s, const CUDA_MEMCPY3D *p, bool is_write, void **host,
                        size_t *pitch, size_t *slice, bool *on_device)
{
    size_t height, offset, span, tail;

    if (s->type == CU_MEMORYTYPE_ARRAY) {
        const struct CUarray_st *a = s->array;

        TRY(array_check(s->array));
        NEED(!a->planes[0], CUDA_ERROR_INVALID_VALUE); /* its planes are copied, one by one */
        NEED(s->x % a->element_bytes == 0 && p->WidthInBytes % a->element_bytes == 0 &&
                 s->x <= a->shape.Width * a->element_bytes &&
                 p->WidthInBytes <= a->shape.Width * a->element_bytes - s->x && s->y <= a->rows &&
                 p->Height <= a->rows - s->y && s->z <= a->slices && p->Depth <= a->slices - s->z,
             CUDA_ERROR_INVALID_VALUE);
        *pitch = a->pitch_bytes;
        *slice = a->slice_bytes;
        offset = s->z * a->slice_bytes + s->y * a->pitch_bytes + s->x;
        span = (p->Depth - 1) * a->slice_bytes + (p->Height - 1) * a->pitch_bytes + p->WidthInBytes;
        return copy_side(a->address + offset, span, true, is_write, host, on_device);
    }
    NEED(s->type == CU_MEMORYTYPE_HOST || s->type == CU_MEMORYTYPE_DEVICE ||
             s->type == CU_MEMORYTYPE_UNIFIED,
         CUDA_ERROR_INVALID_VALUE);
    *pitch = s->pitch ? s->pitch : s->x + p->WidthInBytes;
    height = s->height ? s->height : s->y + p->Height;
    NEED(s->x <= *pitch && p->WidthInBytes <= *pitch - s->x &&
             (p->Depth == 1 || (s->y <= height && p->Height <= height - s->y)),
         CUDA_ERROR_INVALID_VALUE);
    NEED(!__builtin_mul_overflow(*pitch, height, slice) &&
             !__builtin_mul_overflow(*slice, p->Depth - 1, &span) &&
             !__builtin_mul_overflow(*pitch, p->Height - 1, &tail) &&
             !__builtin_add_overflow(span, tail, &span) &&
             !__builtin_add_overflow(span, p->WidthInBytes, &span) &&
             !__builtin_mul_overflow(*slice, s->z, &offset) &&
             !__builtin_mul_overflow(*pitch, s->y, &tail) &&
             !__builtin_add_overflow(offset, tail, &offset) &&
             !__builtin_add_overflow(offset, s->x, &offset),
         CUDA_ERROR_INVALID_VALUE);
    if (s->type == CU_MEMORYTYPE_HOST) {
        NEED(s->address, CUDA_ERROR_INVALID_VALUE);
        *host = (void *)(uintptr_t)(s->address + offset);
        *on_device = false;
        return CUDA_SUCCESS;
    }
    return copy_side(s->address + offset, span, s->type == CU_MEMORYTYPE_DEVICE, is_write, host,
                     on_device);
}

CUresult copy_describe(const CUDA_MEMCPY3D *p, struct copy *copy)
{
    bool to_device, from_device;
    void *source;
    const struct side to = {p->dstMemoryType,
                            p->dstMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)p->dstHost
                                                                   : p->dstDevice,
                            p->dstArray,
                            p->dstXInBytes,
                            p->dstY,
                            p->dstZ,
                            p->dstPitch,
                            p->dstHeight};
    const struct side from = {
        p->srcMemoryType,
        p->srcMemoryType == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)p->srcHost : p->srcDevice,
        p->srcArray,
        p->srcXInBytes,
        p->srcY,
        p->srcZ,
        p->srcPitch,
        p->srcHeight};

    *copy = (struct copy){0};
    NEED(!p->srcLOD && !p->dstLOD, CUDA_ERROR_INVALID_VALUE);
    if (!p->WidthInBytes || !p->Height || !p->Depth)
        return CUDA_SUCCESS;
    copy->width = p->WidthInBytes;
    copy->rows = p->Height;
    copy->slices = p->Depth;
    TRY(resolve(&to, p, true, &copy->to, &copy->to_pitch, &copy->to_slice, &to_device));
    TRY(resolve(&from, p, false, &source, &copy->from_pitch, &copy->from_slice, &from_device));
    copy->from = source;
    copy->kind = to_device && from_device ? COPY_DEVICE : COPY_HOST;
    return CUDA_SUCCESS;
}

static CUresult shaped(const CUDA_MEMCPY3D *p, CUstream stream, bool is_async)
{
    struct copy copy;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(p, CUDA_ERROR_INVALID_VALUE);
    TRY(copy_describe(p, &copy));
    copy.shape = p;
    return copy.rows ? copy_submit(&copy, stream, is_async) : CUDA_SUCCESS;
}

static CUresult plane(const CUDA_MEMCPY2D *p, CUstream stream, bool is_async)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(p, CUDA_ERROR_INVALID_VALUE);
    return shaped(
        &(CUDA_MEMCPY3D){
            .srcXInBytes = p->srcXInBytes,
            .srcY = p->srcY,
            .srcMemoryType = p->srcMemoryType,
            .srcHost = p->srcHost,
            .srcDevice = p->srcDevice,
            .srcArray = p->srcArray,
            .srcPitch = p->srcPitch,
            .dstXInBytes = p->dstXInBytes,
            .dstY = p->dstY,
            .dstMemoryType = p->dstMemoryType,
            .dstHost = p->dstHost,
            .dstDevice = p->dstDevice,
            .dstArray = p->dstArray,
            .dstPitch = p->dstPitch,
            .WidthInBytes = p->WidthInBytes,
            .Height = p->Height,
            .Depth = 1,
        },
        stream, is_async);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *p)
{
    return plane(p, NULL, false);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *p)
{
    return plane(p, NULL, false);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *p, CUstream stream)
{
    return plane(p, stream, true);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D *p)
{
    return shaped(p, NULL, false);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *p, CUstream stream)
{
    return shaped(p, stream, true);
}

/* The two contexts say where the sides lie; addresses and arrays say so themselves. */
static CUresult peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool is_async)
{
    CUDA_MEMCPY3D plain;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(p, CUDA_ERROR_INVALID_VALUE);
    TRY(context_check(p->srcContext));
    TRY(context_check(p->dstContext));
    static_assert(sizeof(plain) == sizeof(*p) && offsetof(CUDA_MEMCPY3D, reserved1) ==
                                                     offsetof(CUDA_MEMCPY3D_PEER, dstContext),
                  "the same but for the contexts");
    memcpy(&plain, p, sizeof(plain));
    return shaped(&plain, stream, is_async);
}

CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *p)
{
    return peer(p, NULL, false);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *p, CUstream stream)
{
    return peer(p, stream, true);
}

/* Bytes at an offset of a one-dimensional array, to or from an address or another array. */
static CUresult line(CUarray to_array, uint64_t to, size_t to_offset, CUarray from_array,
                     uint64_t from, size_t from_offset, bool is_host, size_t bytes, CUstream stream,
                     bool is_async)
{
    CUmemorytype other = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    if (to_array || !to)
        TRY(array_check(to_array));
    if (from_array || !from)
        TRY(array_check(from_array));
    NEED((!to_array || (to_array->rows == 1 && to_array->slices == 1)) &&
             (!from_array || (from_array->rows == 1 && from_array->slices == 1)),
         CUDA_ERROR_INVALID_VALUE);
    return shaped(
        &(CUDA_MEMCPY3D){
            .srcXInBytes = from_offset,
            .srcMemoryType = from_array ? CU_MEMORYTYPE_ARRAY : other,
            .srcHost = (const void *)(uintptr_t)from,
            .srcDevice = from,
            .srcArray = from_array,
            .dstXInBytes = to_offset,
            .dstMemoryType = to_array ? CU_MEMORYTYPE_ARRAY : other,
            .dstHost = (void *)(uintptr_t)to,
            .dstDevice = to,
            .dstArray = to_array,
            .WidthInBytes = bytes,
            .Height = 1,
            .Depth = 1,
        },
        stream, is_async);
}

CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t bytes)
{
    return line(to, 0, to_offset, from, 0, from_offset, false, bytes, NULL, false);
}

CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes)
{
    NEED(to, CUDA_ERROR_INVALID_VALUE);
    return line(NULL, to, 0, from, 0, offset, false, bytes, NULL, false);
}

CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes)
{
    NEED(from, CUDA_ERROR_INVALID_VALUE);
    return line(to, 0, offset, NULL, from, 0, false, bytes, NULL, false);
}

CUresult cuMemcpyAtoHAsync_v2(void *to, CUarray from, size_t offset, size_t bytes, CUstream stream)
{
    NEED(to, CUDA_ERROR_INVALID_VALUE);
    return line(NULL, (uintptr_t)to, 0, from, 0, offset, true, bytes, stream, true);
}

CUresult cuMemcpyAtoH_v2(void *to, CUarray from, size_t offset, size_t bytes)
{
    NEED(to, CUDA_ERROR_INVALID_VALUE);
    return line(NULL, (uintptr_t)to, 0, from, 0, offset, true, bytes, NULL, false);
}

CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void *from, size_t bytes,
                              CUstream stream)
{
    NEED(from, CUDA_ERROR_INVALID_VALUE);
    return line(to, 0, offset, NULL, (uintptr_t)from, 0, true, bytes, stream, true);
}

CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void *from, size_t bytes)
{
    NEED(from, CUDA_ERROR_INVALID_VALUE);
    return line(to, 0, offset, NULL, (uintptr_t)from, 0, true, bytes, NULL, false);
}
