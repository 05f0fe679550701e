/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of a context. What a context costs includes the defaults; a larger stack, heap or printf
 * buffer is device memory taken when the limit is set, and given back when it is lowered.
 */
#include <string.h>

#include "cuda/context.h"

#define STACK_DEFAULT_BYTES 1024u
#define STACK_MAX_BYTES (512u << 10) /* local memory of a thread */
#define STACK_UNIT 16u
#define PRINTF_DEFAULT_BYTES (1u << 20)
#define HEAP_DEFAULT_BYTES (8u << 20)
#define SYNC_DEPTH_DEFAULT 2
#define SYNC_DEPTH_MAX 24
#define LAUNCHES_DEFAULT 2048
#define L2_FETCH_MAX_BYTES 128

void limits_open(struct CUctx_st *c)
{
    memset(c->limits, 0, sizeof(c->limits));
    c->limits[CU_LIMIT_STACK_SIZE] = STACK_DEFAULT_BYTES;
    c->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = PRINTF_DEFAULT_BYTES;
    c->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = HEAP_DEFAULT_BYTES;
    c->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = SYNC_DEPTH_DEFAULT;
    c->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = LAUNCHES_DEFAULT;
    c->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = L2_FETCH_MAX_BYTES;
    c->limit_bytes = 0;
}

static uint64_t above(size_t value, size_t included)
{
    return value > included ? value - included : 0;
}

/* Device memory beyond what every context costs. */
static bool cost(const struct device *d, const size_t *limits, uint64_t *bytes)
{
    uint64_t threads = (uint64_t)d->sm.threads * d->info.sms, stack;

    stack = above(limits[CU_LIMIT_STACK_SIZE], STACK_DEFAULT_BYTES) * threads;
    if (__builtin_add_overflow(
            stack, above(limits[CU_LIMIT_PRINTF_FIFO_SIZE], PRINTF_DEFAULT_BYTES), bytes) ||
        __builtin_add_overflow(*bytes, above(limits[CU_LIMIT_MALLOC_HEAP_SIZE], HEAP_DEFAULT_BYTES),
                               bytes) ||
        *bytes > d->info.total_bytes)
        return false;
    *bytes = sim_round_bytes(*bytes);
    return true;
}

static CUresult charge(struct CUctx_st *c, uint64_t bytes)
{
    struct device *d = c->device;
    bool fits = true;

    pthread_mutex_lock(&d->memory_lock);
    if (bytes > c->limit_bytes)
        fits = sim_charge(&d->ledger, bytes - c->limit_bytes, SIM_CHARGE_CONTEXT);
    else if (bytes < c->limit_bytes)
        sim_uncharge(&d->ledger, c->limit_bytes - bytes, SIM_CHARGE_CONTEXT);
    if (fits)
        c->limit_bytes = bytes;
    pthread_mutex_unlock(&d->memory_lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void limits_close(struct CUctx_st *c)
{
    charge(c, 0);
}

/* The value as the device takes it, or an error. */
static CUresult adjust(const struct device *d, CUlimit limit, size_t *value)
{
    int most;

    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        NEED(*value <= STACK_MAX_BYTES, CUDA_ERROR_INVALID_VALUE);
        *value = (*value + STACK_UNIT - 1) / STACK_UNIT * STACK_UNIT;
        return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_MALLOC_HEAP_SIZE:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
        NEED(*value <= SYNC_DEPTH_MAX, CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY: /* a hint */
        NEED(*value <= L2_FETCH_MAX_BYTES, CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
        TRY(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
                                 d->ordinal));
        if (*value > (size_t)most)
            *value = (size_t)most;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(value, CUDA_ERROR_INVALID_VALUE);
    NEED((int)limit >= 0 && limit < CU_LIMIT_SHMEM_SIZE, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = c->root->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    size_t limits[CU_LIMIT_MAX];
    struct CUctx_st *c;
    uint64_t bytes;
    CUresult rc;

    TRY(current(&c));
    TRY(adjust(c->device, limit, &value));
    c = c->root;
    pthread_mutex_lock(&driver_lock);
    memcpy(limits, c->limits, sizeof(limits));
    limits[limit] = value;
    rc = cost(c->device, limits, &bytes) ? charge(c, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (rc == CUDA_SUCCESS)
        c->limits[limit] = value;
    pthread_mutex_unlock(&driver_lock);
    return rc;
}
