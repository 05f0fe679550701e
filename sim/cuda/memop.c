/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory operations of a stream: waits until a word has a value, and writes of one, in stream order
 * and seen by the host when they happen.
 */
#include <string.h>

#include "cuda/callback.h"
#include "cuda/graph.h"
#include "cuda/host.h"

#define MEMOPS_MAX 256u
#define WAIT_FLAGS_MAX CU_STREAM_WAIT_VALUE_NOR

struct wait {
    CUdeviceptr address;
    uint64_t value;
    unsigned int flags;
    bool is_wide;
};

/* The word, in device or page-locked memory; NULL when it is neither. */
static void *word_at(CUdeviceptr address, bool is_wide)
{
    size_t bytes = is_wide ? 8 : 4;
    struct host_range range;

    if (memory_device(address))
        return memory_host(address, bytes, true);
    if (host_find(address, &range) && bytes <= range.bytes - (address - range.base))
        return (void *)(uintptr_t)address;
    return NULL;
}

static bool is_waited(void *what)
{
    const struct wait *w = what;
    const void *word = word_at(w->address, w->is_wide);
    uint64_t value, difference;

    if (!word)
        return true; /* the memory is gone */
    value = w->is_wide ? __atomic_load_n((const uint64_t *)word, __ATOMIC_ACQUIRE)
                       : __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE);
    difference = value - w->value;
    switch (w->flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic */
        return w->is_wide ? (int64_t)difference >= 0 : (int32_t)difference >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return difference == 0;
    case CU_STREAM_WAIT_VALUE_AND:
        return (value & w->value) != 0;
    default:
        return w->is_wide ? ~(value | w->value) != 0 : (uint32_t) ~(value | w->value) != 0;
    }
}

static void write_word(void *what)
{
    const struct wait *w = what;
    void *word = word_at(w->address, w->is_wide);

    if (word && w->is_wide)
        __atomic_store_n((uint64_t *)word, w->value, __ATOMIC_RELEASE);
    else if (word)
        __atomic_store_n((uint32_t *)word, (uint32_t)w->value, __ATOMIC_RELEASE);
}

static CUresult op_check(const CUstreamBatchMemOpParams *op)
{
    bool is_wide = op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                   op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;

    switch (op->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        NEED(!(op->waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH), CUDA_ERROR_NOT_SUPPORTED);
        NEED(op->waitValue.flags <= WAIT_FLAGS_MAX, CUDA_ERROR_INVALID_VALUE);
        break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        NEED(op->writeValue.flags <= CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER,
             CUDA_ERROR_INVALID_VALUE);
        break;
    case CU_STREAM_MEM_OP_BARRIER:
        NEED(op->memoryBarrier.flags <= 1, CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    NEED(op->waitValue.address % (is_wide ? 8 : 4) == 0 && word_at(op->waitValue.address, is_wide),
         CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult memops_check(unsigned int count, const CUstreamBatchMemOpParams *ops)
{
    NEED(count && count <= MEMOPS_MAX && ops, CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < count; i++)
        TRY(op_check(&ops[i]));
    return CUDA_SUCCESS;
}

CUresult memops_push(struct CUstream_st *s, unsigned int count, const CUstreamBatchMemOpParams *ops)
{
    for (unsigned int i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams *op = &ops[i];
        struct wait w = {.address = op->waitValue.address, .flags = op->waitValue.flags};

        if (op->operation == CU_STREAM_MEM_OP_BARRIER)
            continue;
        w.is_wide = op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
                    op->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
        w.value = w.is_wide ? op->waitValue.value64 : op->waitValue.value;
        if (op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
            op->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            TRY(spin_push(s, 0, is_waited, &w, sizeof(w)));
        else
            TRY(effect_queue(s, write_word, &w, sizeof(w)));
    }
    return CUDA_SUCCESS;
}

/* Entry points */

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,
                               unsigned int flags)
{
    struct CUstream_st *s;
    struct CUctx_st *c;

    TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    NEED(!flags, CUDA_ERROR_INVALID_VALUE);
    TRY(memops_check(count, ops));
    if (atomic_load_explicit(&s->capture, memory_order_relaxed))
        return capture_memops(s, count, ops);
    if (s->is_legacy && capture_implicit(s->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return memops_push(s, count, ops);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *ops,
                            unsigned int flags)
{
    return cuStreamBatchMemOp_v2(stream, count, ops, flags);
}

static CUresult one(CUstream stream, CUstreamBatchMemOpType operation, CUdeviceptr address,
                    uint64_t value, unsigned int flags)
{
    CUstreamBatchMemOpParams op = {
        .waitValue = {
            .operation = operation, .address = address, .value64 = value, .flags = flags}};

    return cuStreamBatchMemOp_v2(stream, 1, &op, 0);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned int flags)
{
    return one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned int flags)
{
    return one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, address, value, flags);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned int flags)
{
    return one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned int flags)
{
    return one(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, address, value, flags);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned int flags)
{
    return one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned int flags)
{
    return one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, address, value, flags);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                 unsigned int flags)
{
    return one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned int flags)
{
    return one(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, address, value, flags);
}
