/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers of fills, copies within a device and decompression, which run on the SMs: each passes
 * the gate as a launch does, estimated by kind and size. Copies to and from the host, and between
 * devices, are the copy engines' and pass by. Where a call does not say what its addresses are, the
 * driver is asked. Any thread.
 */
#include "vgpu/gated.h"

/* What estimates are kept by. */
#define FILL ((const void *)1)
#define COPY ((const void *)2)
#define DECOMPRESS ((const void *)3)

static CUresult work(struct alq_gated *gated, const void *what, uint64_t bytes, CUstream stream)
{
    gated->compute = NULL;
    return bytes ? alq_gated_before(gated, what, ALQ_ESTIMATE_MEMORY, alq_size_class(bytes), stream,
                                    false)
                 : CUDA_SUCCESS;
}

static bool is_device(CUdeviceptr address)
{
    CUmemorytype type = CU_MEMORYTYPE_HOST;
    return ALQ_HAS(cuPointerGetAttribute) &&
           ALQ_CALL(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
               CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}

/* Two device addresses; 0: an array's. Where the driver does not tell they are taken for one
 * device's. */
static bool is_one_device(CUdeviceptr to, CUdeviceptr from)
{
    int first = 0, second = 0;
    if (alq_dev_is_only() || !to || !from || !ALQ_HAS(cuPointerGetAttribute))
        return true;
    return ALQ_CALL(cuPointerGetAttribute, &first, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, to) !=
               CUDA_SUCCESS ||
           ALQ_CALL(cuPointerGetAttribute, &second, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, from) !=
               CUDA_SUCCESS ||
           first == second;
}

/* One end of a copy. */
struct end {
    CUmemorytype type;
    CUdeviceptr address; /* of DEVICE and UNIFIED */
};

static bool is_within(struct end to, struct end from)
{
    const struct end *ends[] = {&to, &from};
    for (int i = 0; i < 2; i++)
        if (ends[i]->type == CU_MEMORYTYPE_HOST ||
            (ends[i]->type == CU_MEMORYTYPE_UNIFIED && !is_device(ends[i]->address)))
            return false;
    return is_one_device(to.type == CU_MEMORYTYPE_ARRAY ? 0 : to.address,
                         from.type == CU_MEMORYTYPE_ARRAY ? 0 : from.address);
}

/* False: nobody asks, or reads, what is copied. What cannot be told is, so that `work` gives the
 * error. */
static bool is_gated(void)
{
    struct alq_dev *dev = NULL;
    struct alq_compute *compute;
    if (alq_dev_find_current(&dev) != CUDA_SUCCESS)
        return true;
    compute = dev ? alq_submit_begin() : NULL;
    return compute && alq_compute_is_limited(compute, dev->index);
}

static CUresult copy(struct alq_gated *gated, struct end to, struct end from, uint64_t bytes,
                     CUstream stream)
{
    return work(gated, COPY, bytes && is_gated() && is_within(to, from) ? bytes : 0, stream);
}

#define DEVICE(address) ((struct end){CU_MEMORYTYPE_DEVICE, (address)})
#define UNIFIED(address) ((struct end){CU_MEMORYTYPE_UNIFIED, (address)})
#define ARRAY ((struct end){CU_MEMORYTYPE_ARRAY, 0})

/* ---- fills --------------------------------------------------------------------------------- */

#define FILLS(name, params, args, bytes)                                                           \
    ALQ_GATED(name, params, ALQ_ARGS(args), work(&gated, FILL, bytes, NULL))
#define FILLS_PTDS(name, params, args, bytes)                                                      \
    ALQ_GATED(name, params, ALQ_ARGS(args), work(&gated, FILL, bytes, CU_STREAM_PER_THREAD))
#define FILLS_ASYNC(name, params, args, bytes)                                                     \
    ALQ_GATED(name, params, ALQ_ARGS(args), work(&gated, FILL, bytes, stream))
#define FILLS_PTSZ(name, params, args, bytes)                                                      \
    ALQ_GATED(name, params, ALQ_ARGS(args), work(&gated, FILL, bytes, alq_per_thread(stream)))

#define ROW(type, address, count) (address to, type value, count n)
#define ROW_ASYNC(type) (CUdeviceptr to, type value, size_t n, CUstream stream)
#define MEMSET(bits, type)                                                                         \
    FILLS(cuMemsetD##bits, ROW(type, CUdeviceptr_v1, unsigned int), ALQ_ARGS(to, value, n),        \
          alq_product(n, sizeof(value)))                                                           \
    FILLS(cuMemsetD##bits##_v2, ROW(type, CUdeviceptr, size_t), ALQ_ARGS(to, value, n),            \
          alq_product(n, sizeof(value)))                                                           \
    FILLS_PTDS(cuMemsetD##bits##_v2_ptds, ROW(type, CUdeviceptr, size_t), ALQ_ARGS(to, value, n),  \
               alq_product(n, sizeof(value)))                                                      \
    FILLS_ASYNC(cuMemsetD##bits##Async, ROW_ASYNC(type), ALQ_ARGS(to, value, n, stream),           \
                alq_product(n, sizeof(value)))                                                     \
    FILLS_PTSZ(cuMemsetD##bits##Async_ptsz, ROW_ASYNC(type), ALQ_ARGS(to, value, n, stream),       \
               alq_product(n, sizeof(value)))

#define AREA_V1(type)                                                                              \
    (CUdeviceptr_v1 to, unsigned int pitch, type value, unsigned int width, unsigned int height)
#define AREA(type) (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height)
#define AREA_ASYNC(type)                                                                           \
    (CUdeviceptr to, size_t pitch, type value, size_t width, size_t height, CUstream stream)
#define AREA_BYTES alq_product(alq_product(width, height), sizeof(value))
#define MEMSET_2D(bits, type)                                                                      \
    FILLS(cuMemsetD2D##bits, AREA_V1(type), ALQ_ARGS(to, pitch, value, width, height), AREA_BYTES) \
    FILLS(cuMemsetD2D##bits##_v2, AREA(type), ALQ_ARGS(to, pitch, value, width, height),           \
          AREA_BYTES)                                                                              \
    FILLS_PTDS(cuMemsetD2D##bits##_v2_ptds, AREA(type), ALQ_ARGS(to, pitch, value, width, height), \
               AREA_BYTES)                                                                         \
    FILLS_ASYNC(cuMemsetD2D##bits##Async, AREA_ASYNC(type),                                        \
                ALQ_ARGS(to, pitch, value, width, height, stream), AREA_BYTES)                     \
    FILLS_PTSZ(cuMemsetD2D##bits##Async_ptsz, AREA_ASYNC(type),                                    \
               ALQ_ARGS(to, pitch, value, width, height, stream), AREA_BYTES)

MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned int)
MEMSET_2D(8, unsigned char)
MEMSET_2D(16, unsigned short)
MEMSET_2D(32, unsigned int)

/* ---- copies of a row ----------------------------------------------------------------------- */

#define COPIES(name, params, args, to, from, bytes, stream)                                        \
    ALQ_GATED(name, ALQ_ARGS(params), ALQ_ARGS(args), copy(&gated, to, from, bytes, stream))

#define LINEAR(address, count) (address to, address from, count n)
#define LINEAR_ASYNC(address, count) (address to, address from, count n, CUstream stream)
COPIES(cuMemcpy, LINEAR(CUdeviceptr, size_t), ALQ_ARGS(to, from, n), UNIFIED(to), UNIFIED(from), n,
       NULL)
COPIES(cuMemcpy_ptds, LINEAR(CUdeviceptr, size_t), ALQ_ARGS(to, from, n), UNIFIED(to),
       UNIFIED(from), n, CU_STREAM_PER_THREAD)
COPIES(cuMemcpyAsync, LINEAR_ASYNC(CUdeviceptr, size_t), ALQ_ARGS(to, from, n, stream), UNIFIED(to),
       UNIFIED(from), n, stream)
COPIES(cuMemcpyAsync_ptsz, LINEAR_ASYNC(CUdeviceptr, size_t), ALQ_ARGS(to, from, n, stream),
       UNIFIED(to), UNIFIED(from), n, alq_per_thread(stream))
COPIES(cuMemcpyDtoD, LINEAR(CUdeviceptr_v1, unsigned int), ALQ_ARGS(to, from, n), DEVICE(to),
       DEVICE(from), n, NULL)
COPIES(cuMemcpyDtoD_v2, LINEAR(CUdeviceptr, size_t), ALQ_ARGS(to, from, n), DEVICE(to),
       DEVICE(from), n, NULL)
COPIES(cuMemcpyDtoD_v2_ptds, LINEAR(CUdeviceptr, size_t), ALQ_ARGS(to, from, n), DEVICE(to),
       DEVICE(from), n, CU_STREAM_PER_THREAD)
COPIES(cuMemcpyDtoDAsync, LINEAR_ASYNC(CUdeviceptr_v1, unsigned int), ALQ_ARGS(to, from, n, stream),
       DEVICE(to), DEVICE(from), n, stream)
COPIES(cuMemcpyDtoDAsync_v2, LINEAR_ASYNC(CUdeviceptr, size_t), ALQ_ARGS(to, from, n, stream),
       DEVICE(to), DEVICE(from), n, stream)
COPIES(cuMemcpyDtoDAsync_v2_ptsz, LINEAR_ASYNC(CUdeviceptr, size_t), ALQ_ARGS(to, from, n, stream),
       DEVICE(to), DEVICE(from), n, alq_per_thread(stream))

#define A_TO_A(count) (CUarray to, count to_at, CUarray from, count from_at, count n)
#define A_TO_D(address, count) (address to, CUarray from, count from_at, count n)
#define D_TO_A(address, count) (CUarray to, count to_at, address from, count n)
COPIES(cuMemcpyAtoA, A_TO_A(unsigned int), ALQ_ARGS(to, to_at, from, from_at, n), ARRAY, ARRAY, n,
       NULL)
COPIES(cuMemcpyAtoA_v2, A_TO_A(size_t), ALQ_ARGS(to, to_at, from, from_at, n), ARRAY, ARRAY, n,
       NULL)
COPIES(cuMemcpyAtoA_v2_ptds, A_TO_A(size_t), ALQ_ARGS(to, to_at, from, from_at, n), ARRAY, ARRAY, n,
       CU_STREAM_PER_THREAD)
COPIES(cuMemcpyAtoD, A_TO_D(CUdeviceptr_v1, unsigned int), ALQ_ARGS(to, from, from_at, n),
       DEVICE(to), ARRAY, n, NULL)
COPIES(cuMemcpyAtoD_v2, A_TO_D(CUdeviceptr, size_t), ALQ_ARGS(to, from, from_at, n), DEVICE(to),
       ARRAY, n, NULL)
COPIES(cuMemcpyAtoD_v2_ptds, A_TO_D(CUdeviceptr, size_t), ALQ_ARGS(to, from, from_at, n),
       DEVICE(to), ARRAY, n, CU_STREAM_PER_THREAD)
COPIES(cuMemcpyDtoA, D_TO_A(CUdeviceptr_v1, unsigned int), ALQ_ARGS(to, to_at, from, n), ARRAY,
       DEVICE(from), n, NULL)
COPIES(cuMemcpyDtoA_v2, D_TO_A(CUdeviceptr, size_t), ALQ_ARGS(to, to_at, from, n), ARRAY,
       DEVICE(from), n, NULL)
COPIES(cuMemcpyDtoA_v2_ptds, D_TO_A(CUdeviceptr, size_t), ALQ_ARGS(to, to_at, from, n), ARRAY,
       DEVICE(from), n, CU_STREAM_PER_THREAD)

/* ---- copies of areas and boxes ------------------------------------------------------------- */

#define TO_OF(p) ((struct end){(p)->dstMemoryType, (p)->dstDevice})
#define FROM_OF(p) ((struct end){(p)->srcMemoryType, (p)->srcDevice})
#define AREA_OF(p) alq_product((p)->WidthInBytes, (p)->Height)
#define BOX_OF(p) alq_product(AREA_OF(p), (p)->Depth)
#define SHAPED(gated, p, bytes_of, stream)                                                         \
    ((p) ? copy(gated, TO_OF(p), FROM_OF(p), bytes_of(p), stream) : work(gated, COPY, 0, stream))

#define COPIES_SHAPE(name, shape, bytes_of, stream)                                                \
    ALQ_GATED(name, (const shape *p), ALQ_ARGS(p), SHAPED(&gated, p, bytes_of, stream))
#define COPIES_SHAPE_ASYNC(name, shape, bytes_of, on)                                              \
    ALQ_GATED(name, (const shape *p, CUstream stream), ALQ_ARGS(p, stream),                        \
              SHAPED(&gated, p, bytes_of, on))

COPIES_SHAPE(cuMemcpy2D, CUDA_MEMCPY2D_v1, AREA_OF, NULL)
COPIES_SHAPE(cuMemcpy2DUnaligned, CUDA_MEMCPY2D_v1, AREA_OF, NULL)
COPIES_SHAPE_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D_v1, AREA_OF, stream)
COPIES_SHAPE(cuMemcpy2D_v2, CUDA_MEMCPY2D, AREA_OF, NULL)
COPIES_SHAPE(cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, AREA_OF, CU_STREAM_PER_THREAD)
COPIES_SHAPE(cuMemcpy2DUnaligned_v2, CUDA_MEMCPY2D, AREA_OF, NULL)
COPIES_SHAPE(cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, AREA_OF, CU_STREAM_PER_THREAD)
COPIES_SHAPE_ASYNC(cuMemcpy2DAsync_v2, CUDA_MEMCPY2D, AREA_OF, stream)
COPIES_SHAPE_ASYNC(cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, AREA_OF, alq_per_thread(stream))
COPIES_SHAPE(cuMemcpy3D, CUDA_MEMCPY3D_v1, BOX_OF, NULL)
COPIES_SHAPE_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D_v1, BOX_OF, stream)
COPIES_SHAPE(cuMemcpy3D_v2, CUDA_MEMCPY3D, BOX_OF, NULL)
COPIES_SHAPE(cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, BOX_OF, CU_STREAM_PER_THREAD)
COPIES_SHAPE_ASYNC(cuMemcpy3DAsync_v2, CUDA_MEMCPY3D, BOX_OF, stream)
COPIES_SHAPE_ASYNC(cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, BOX_OF, alq_per_thread(stream))

/* ---- between contexts: within a device where both are one ---------------------------------- */

#define PEER (CUdeviceptr to, CUcontext to_in, CUdeviceptr from, CUcontext from_in, size_t n)
#define PEER_ASYNC                                                                                 \
    (CUdeviceptr to, CUcontext to_in, CUdeviceptr from, CUcontext from_in, size_t n,               \
     CUstream stream)
#define PEER_BYTES (to_in == from_in ? n : 0)
#define COPIES_PEER(name, params, args, stream)                                                    \
    ALQ_GATED(name, ALQ_ARGS(params), ALQ_ARGS(args), work(&gated, COPY, PEER_BYTES, stream))
COPIES_PEER(cuMemcpyPeer, PEER, ALQ_ARGS(to, to_in, from, from_in, n), NULL)
COPIES_PEER(cuMemcpyPeer_ptds, PEER, ALQ_ARGS(to, to_in, from, from_in, n), CU_STREAM_PER_THREAD)
COPIES_PEER(cuMemcpyPeerAsync, PEER_ASYNC, ALQ_ARGS(to, to_in, from, from_in, n, stream), stream)
COPIES_PEER(cuMemcpyPeerAsync_ptsz, PEER_ASYNC, ALQ_ARGS(to, to_in, from, from_in, n, stream),
            alq_per_thread(stream))

#define PEER_BOX_OF(p) ((p)->dstContext == (p)->srcContext ? BOX_OF(p) : 0)
COPIES_SHAPE(cuMemcpy3DPeer, CUDA_MEMCPY3D_PEER, PEER_BOX_OF, NULL)
COPIES_SHAPE(cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, PEER_BOX_OF, CU_STREAM_PER_THREAD)
COPIES_SHAPE_ASYNC(cuMemcpy3DPeerAsync, CUDA_MEMCPY3D_PEER, PEER_BOX_OF, stream)
COPIES_SHAPE_ASYNC(cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, PEER_BOX_OF,
                   alq_per_thread(stream))

/* ---- batches: one piece of work, as large as all that is within the device ------------------ */

static uint64_t batch_bytes(const CUdeviceptr *to, const CUdeviceptr *from, const size_t *sizes,
                            size_t count)
{
    uint64_t bytes = 0;
    if (!is_gated())
        return 0;
    for (size_t i = 0; to && from && sizes && i < count; i++)
        if (is_within(UNIFIED(to[i]), UNIFIED(from[i])))
            bytes = alq_sum(bytes, sizes[i]);
    return bytes;
}

static struct end end_of(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ? ARRAY : UNIFIED(operand->op.ptr.ptr);
}

/* Extents are in elements whose size is an array's: taken for 1 byte, which costs no more than
 * a class of estimates that is shared with smaller copies. */
static uint64_t boxes_bytes(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count)
{
    uint64_t bytes = 0;
    if (!is_gated())
        return 0;
    for (size_t i = 0; list && i < count; i++)
        if (is_within(end_of(&list[i].dst), end_of(&list[i].src)))
            bytes =
                alq_sum(bytes, alq_product(alq_product(list[i].extent.width, list[i].extent.height),
                                           list[i].extent.depth));
    return bytes;
}

static uint64_t unpacked_bytes(const CUmemDecompressParams *list, size_t count)
{
    uint64_t bytes = 0;
    if (!is_gated())
        return 0;
    for (size_t i = 0; list && i < count; i++)
        bytes = alq_sum(bytes, list[i].dstNumBytes ? list[i].dstNumBytes : list[i].srcNumBytes);
    return bytes;
}

#define BATCH                                                                                      \
    (CUdeviceptr * to, CUdeviceptr * from, size_t * sizes, size_t count,                           \
     CUmemcpyAttributes * attrs, size_t * indices, size_t attr_count, size_t * failed,             \
     CUstream stream)
#define BATCH_ARGS ALQ_ARGS(to, from, sizes, count, attrs, indices, attr_count, failed, stream)
#define BATCH_V2                                                                                   \
    (CUdeviceptr * to, CUdeviceptr * from, size_t * sizes, size_t count,                           \
     CUmemcpyAttributes * attrs, size_t * indices, size_t attr_count, CUstream stream)
#define BATCH_V2_ARGS ALQ_ARGS(to, from, sizes, count, attrs, indices, attr_count, stream)
#define COPIES_BATCH(name, params, args, bytes, stream)                                            \
    ALQ_GATED(name, ALQ_ARGS(params), ALQ_ARGS(args), work(&gated, COPY, bytes, stream))
COPIES_BATCH(cuMemcpyBatchAsync, BATCH, BATCH_ARGS, batch_bytes(to, from, sizes, count), stream)
COPIES_BATCH(cuMemcpyBatchAsync_ptsz, BATCH, BATCH_ARGS, batch_bytes(to, from, sizes, count),
             alq_per_thread(stream))
COPIES_BATCH(cuMemcpyBatchAsync_v2, BATCH_V2, BATCH_V2_ARGS, batch_bytes(to, from, sizes, count),
             stream)
COPIES_BATCH(cuMemcpyBatchAsync_v2_ptsz, BATCH_V2, BATCH_V2_ARGS,
             batch_bytes(to, from, sizes, count), alq_per_thread(stream))

#define BOXES                                                                                      \
    (size_t count, CUDA_MEMCPY3D_BATCH_OP * list, size_t * failed, unsigned long long flags,       \
     CUstream stream)
#define BOXES_V2                                                                                   \
    (size_t count, CUDA_MEMCPY3D_BATCH_OP * list, unsigned long long flags, CUstream stream)
COPIES_BATCH(cuMemcpy3DBatchAsync, BOXES, ALQ_ARGS(count, list, failed, flags, stream),
             boxes_bytes(list, count), stream)
COPIES_BATCH(cuMemcpy3DBatchAsync_ptsz, BOXES, ALQ_ARGS(count, list, failed, flags, stream),
             boxes_bytes(list, count), alq_per_thread(stream))
COPIES_BATCH(cuMemcpy3DBatchAsync_v2, BOXES_V2, ALQ_ARGS(count, list, flags, stream),
             boxes_bytes(list, count), stream)
COPIES_BATCH(cuMemcpy3DBatchAsync_v2_ptsz, BOXES_V2, ALQ_ARGS(count, list, flags, stream),
             boxes_bytes(list, count), alq_per_thread(stream))

#define UNPACK                                                                                     \
    (CUmemDecompressParams * list, size_t count, unsigned int flags, size_t *failed,               \
     CUstream stream)
#define UNPACK_ARGS ALQ_ARGS(list, count, flags, failed, stream)
ALQ_GATED(cuMemBatchDecompressAsync, UNPACK, UNPACK_ARGS,
          work(&gated, DECOMPRESS, unpacked_bytes(list, count), stream))
ALQ_GATED(cuMemBatchDecompressAsync_ptsz, UNPACK, UNPACK_ARGS,
          work(&gated, DECOMPRESS, unpacked_bytes(list, count), alq_per_thread(stream)))
