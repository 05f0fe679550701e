/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: the primary one of each device, created ones, and each thread's stack of them. A
 * context costs device memory for as long as it lives (contextBytes of the device file); everything
 * made in it goes with it. The list of contexts is under driver_lock.
 */
#include "cuda/driver.h"

#include <stdlib.h>
#include <string.h>

#define CONTEXT_FLAGS 0xffu
#define SCHED_FLAGS 0x07u

static struct CUctx_st *contexts; /* all that live, primary ones too */
static uint32_t last_id;

CUresult context_check(CUcontext context)
{
    NEED(context, CUDA_ERROR_INVALID_CONTEXT);
    if (context->magic == MAGIC_CONTEXT)
        return CUDA_SUCCESS;
    return context->magic == MAGIC_DEAD ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                        : CUDA_ERROR_INVALID_CONTEXT;
}

struct CUctx_st *context_by_id(uint32_t id)
{
    struct CUctx_st *c;

    pthread_mutex_lock(&driver_lock);
    for (c = contexts; c && c->id != id; c = c->next)
        ;
    pthread_mutex_unlock(&driver_lock);
    return c;
}

static CUresult charge_context(struct device *d, bool is_back)
{
    bool fits = true;

    pthread_mutex_lock(&d->memory_lock);
    if (is_back) {
        sim_uncharge(&d->ledger, d->info.context_bytes, SIM_CHARGE_CONTEXT);
        atomic_fetch_sub(&d->ledger.account->context_count, 1);
    } else {
        fits = sim_charge(&d->ledger, d->info.context_bytes, SIM_CHARGE_CONTEXT);
        if (fits)
            atomic_fetch_add(&d->ledger.account->context_count, 1);
    }
    pthread_mutex_unlock(&d->memory_lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Fills a zeroed or dead context. */
static void context_open(struct CUctx_st *c, struct device *d, unsigned int flags, bool is_primary,
                         unsigned int api_version)
{
    memset(c, 0, sizeof(*c));
    c->id = ++last_id;
    c->device = d;
    c->flags = flags;
    c->is_primary = is_primary;
    c->api_version = api_version;
    c->limits[CU_LIMIT_STACK_SIZE] = 1024;
    c->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    c->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    c->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
    c->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    c->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 128;
    stream_open(&c->legacy, c, 0, 0);
    c->legacy.is_legacy = true;
    c->next = contexts;
    contexts = c;
    c->magic = MAGIC_CONTEXT;
}

static CUresult context_make(struct device *d, unsigned int flags, bool is_primary,
                             unsigned int api_version, struct CUctx_st **out)
{
    struct CUctx_st *c;

    NEED(!sim_connection_lost(&driver_connection), CUDA_ERROR_DEVICE_UNAVAILABLE);
    if (!d->memory.base)
        NEED(va_open(&d->memory, d->info.total_bytes, false) == 0, CUDA_ERROR_OUT_OF_MEMORY);
    if (!d->managed.base)
        NEED(va_open(&d->managed, d->info.total_bytes, true) == 0, CUDA_ERROR_OUT_OF_MEMORY);
    /* The primary context is the same object every time; others are new ones and dead ones stay. */
    c = is_primary && d->primary ? d->primary : malloc(sizeof(*c));
    NEED(c, CUDA_ERROR_OUT_OF_MEMORY);
    if (charge_context(d, false) != CUDA_SUCCESS) {
        if (c != d->primary)
            free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    context_open(c, d, flags, is_primary, api_version);
    *out = c;
    return CUDA_SUCCESS;
}

static void context_drop(struct CUctx_st *c)
{
    struct CUctx_st **at = &contexts;

    module_free_all(c);
    memory_free_owned(c);
    stream_free_all(c);
    event_free_all(c);
    charge_context(c->device, true);
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    c->magic = MAGIC_DEAD;
}

/* Primary contexts */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice dev)
{
    struct device *d;
    CUresult rc = CUDA_SUCCESS;

    TRY(device_get(dev, &d));
    NEED(context, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    if (!d->primary || d->primary->magic != MAGIC_CONTEXT)
        rc = context_make(d, d->primary_flags, true, 3020, &d->primary);
    if (rc == CUDA_SUCCESS) {
        d->primary->references++;
        *context = d->primary;
    }
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

static CUresult primary_release(CUdevice dev, bool is_reset)
{
    struct device *d;
    CUresult rc = CUDA_SUCCESS;

    TRY(device_get(dev, &d));
    if (d->primary && (is_reset || d->primary->references == 1))
        wait_until(atomic_load(&d->primary->all_end_ns));
    pthread_mutex_lock(&driver_lock);
    if (!d->primary || d->primary->magic != MAGIC_CONTEXT) {
        rc = is_reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    } else if (is_reset || --d->primary->references == 0) {
        context_drop(d->primary);
    }
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    return primary_release(dev, false);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return primary_release(dev, false);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    return primary_release(dev, true);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    return primary_release(dev, true);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(!(flags & ~CONTEXT_FLAGS), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    d->primary_flags = flags;
    if (d->primary && d->primary->magic == MAGIC_CONTEXT)
        d->primary->flags = flags;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(flags && active, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    *flags = d->primary_flags;
    *active = d->primary && d->primary->magic == MAGIC_CONTEXT;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

/* Created contexts */

static CUresult push(struct CUctx_st *c)
{
    struct thread *t = &thread_state;

    NEED(t->depth < STACK_MAX, CUDA_ERROR_OUT_OF_MEMORY);
    t->stack[t->depth++] = c;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *context, unsigned int flags, CUdevice dev, unsigned int version)
{
    struct device *d;
    CUresult rc;

    TRY(device_get(dev, &d));
    NEED(context && !(flags & ~CONTEXT_FLAGS), CUDA_ERROR_INVALID_VALUE);
    NEED(thread_state.depth < STACK_MAX, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&driver_lock);
    rc = context_make(d, flags, false, version, context);
    pthread_mutex_unlock(&driver_lock);
    return rc == CUDA_SUCCESS ? push(*context) : rc;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice dev)
{
    return create(context, flags, dev, 3020);
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice dev)
{
    return create(context, flags, dev, 3010);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count,
                        unsigned int flags, CUdevice dev)
{
    NEED(count >= 0 && (params != NULL) == (count != 0), CUDA_ERROR_INVALID_VALUE);
    NEED(!count, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY); /* needs MPS */
    return create(context, flags, dev, 3020);
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
                        CUdevice dev)
{
    NEED(!params || !params->numExecAffinityParams, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    NEED(!params || !params->cigParams, CUDA_ERROR_NOT_SUPPORTED);
    return create(context, flags, dev, 3020);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    struct thread *t = &thread_state;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    TRY(context_check(context));
    wait_until(atomic_load(&context->all_end_ns));
    pthread_mutex_lock(&driver_lock);
    rc = context_check(context);
    if (rc == CUDA_SUCCESS && context->is_primary)
        rc = CUDA_ERROR_INVALID_CONTEXT;
    if (rc == CUDA_SUCCESS)
        context_drop(context);
    pthread_mutex_unlock(&driver_lock);
    /* It leaves this thread's stack when it is on top; other threads find it destroyed. */
    if (rc == CUDA_SUCCESS && t->depth && t->stack[t->depth - 1] == context)
        t->depth--;
    return rc;
}

CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    TRY(context_check(context));
    return push(context);
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    struct thread *t = &thread_state;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(t->depth, CUDA_ERROR_INVALID_CONTEXT);
    t->depth--;
    if (context)
        *context = t->stack[t->depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    struct thread *t = &thread_state;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    if (!context) {
        if (t->depth)
            t->depth--;
        return CUDA_SUCCESS;
    }
    TRY(context_check(context));
    if (!t->depth)
        return push(context);
    t->stack[t->depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    struct thread *t = &thread_state;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(context, CUDA_ERROR_INVALID_VALUE);
    *context = t->depth ? t->stack[t->depth - 1] : NULL;
    return CUDA_SUCCESS;
}

/* The context meant: the one given, or the current one. */
static CUresult meant(CUcontext given, struct CUctx_st **context)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    if (!given)
        return current(context);
    *context = given;
    return context_check(given);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    struct CUctx_st *c;

    TRY(meant(context, &c));
    NEED(device, CUDA_ERROR_INVALID_VALUE);
    *device = c->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    return cuCtxGetDevice_v2(device, NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
    struct CUctx_st *c;

    TRY(meant(context, &c));
    TRY(capture_unsafe());
    wait_until(atomic_load(&c->all_end_ns));
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    return cuCtxSynchronize_v2(NULL);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(flags, CUDA_ERROR_INVALID_VALUE);
    *flags = c->flags;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(!(flags & ~CONTEXT_FLAGS), CUDA_ERROR_INVALID_VALUE);
    c->flags = (c->flags & SCHED_FLAGS) | (flags & ~SCHED_FLAGS);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    struct CUctx_st *c;

    TRY(meant(context, &c));
    NEED(id, CUDA_ERROR_INVALID_VALUE);
    *id = c->id;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
    struct CUctx_st *c;

    TRY(meant(context, &c));
    NEED(version, CUDA_ERROR_INVALID_VALUE);
    *version = c->api_version;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(value, CUDA_ERROR_INVALID_VALUE);
    NEED(limit < CU_LIMIT_SHMEM_SIZE, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = c->limits[limit];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(limit < CU_LIMIT_SHMEM_SIZE, CUDA_ERROR_UNSUPPORTED_LIMIT);
    c->limits[limit] = value;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    struct CUctx_st *c;

    TRY(current(&c));
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *config)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(config, CUDA_ERROR_INVALID_VALUE);
    *config = c->cache;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct CUctx_st *c;

    TRY(current(&c));
    c->cache = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(config, CUDA_ERROR_INVALID_VALUE);
    *config = c->shared_config;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    struct CUctx_st *c;

    TRY(current(&c));
    c->shared_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    struct CUctx_st *c;

    return current(&c);
}
