/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: the primary one of each device, created ones, and each thread's stack of them. A
 * context costs device memory for as long as it lives (contextBytes of the device file); everything
 * made in it goes with it. The list of contexts is under driver_lock.
 */
#include "cuda/context.h"
#include "cuda/pool.h"

#include <stdlib.h>
#include <string.h>

#define SETTABLE_FLAGS (CU_CTX_COREDUMP_ENABLE | CU_CTX_USER_COREDUMP_ENABLE | CU_CTX_SYNC_MEMOPS)

static struct CUctx_st *contexts; /* all that live, primary ones too */
static uint32_t last_id;

/* At most one way of waiting, and nothing that does not exist. */
static bool are_flags(unsigned int flags)
{
    unsigned int waiting = flags & CU_CTX_SCHED_MASK;

    return !(flags & ~(unsigned int)CU_CTX_FLAGS_MASK) && !(waiting & (waiting - 1));
}

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
    c->epoch = atomic_load_explicit(&d->control->epoch, memory_order_acquire);
    c->is_primary = is_primary;
    c->api_version = api_version;
    c->root = c;
    c->references = is_primary ? 0 : 1;
    limits_open(c);
    stream_open(&c->legacy, c, 0, 0);
    c->legacy.is_legacy = true;
    stream_open(&c->control, c, CU_STREAM_NON_BLOCKING, 0);
    c->next = contexts;
    contexts = c;
    c->magic = MAGIC_CONTEXT;
}

static CUresult context_make(struct device *d, unsigned int flags, bool is_primary,
                             unsigned int api_version, struct CUctx_st **out)
{
    struct CUctx_st *c;

    NEED(!sim_connection_lost(&driver_connection) &&
             atomic_load_explicit(&d->control->condition, memory_order_acquire) == SIM_DEVICE_OK,
         CUDA_ERROR_DEVICE_UNAVAILABLE);
    TRY(memory_open(d));
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
    array_free_all(c);
    peer_forget(c);
    ipc_forget(c);
    memory_free_owned(c);
    stream_free_all(c);
    event_free_all(c);
    limits_close(c);
    charge_context(c->device, true);
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    c->magic = MAGIC_DEAD;
}

/* Primary contexts */

static bool is_active(const struct device *d)
{
    return d->primary && d->primary->magic == MAGIC_CONTEXT;
}

CUresult primary_retain(struct device *d, struct CUctx_st **context)
{
    unsigned int references;
    CUresult rc = CUDA_SUCCESS;

    pthread_mutex_lock(&driver_lock);
    references = d->primary ? d->primary->references : 0;
    if (!is_active(d))
        rc = context_make(d, d->primary_flags, true, 3020, &d->primary);
    if (rc == CUDA_SUCCESS) {
        /* Those from before a reset count on: each is still to be released. */
        d->primary->references = references + 1;
        *context = d->primary;
    }
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

static void primary_drop(struct device *d)
{
    unsigned int references = d->primary->references;

    green_free_all(d);
    context_drop(d->primary);
    d->primary->references = references;
}

CUresult primary_release(struct device *d)
{
    CUresult rc = CUDA_SUCCESS;

    if (is_active(d) && d->primary->references == 1)
        (void)context_wait(d->primary);
    pthread_mutex_lock(&driver_lock);
    if (!d->primary || !d->primary->references)
        rc = CUDA_ERROR_INVALID_CONTEXT;
    else if (--d->primary->references == 0 && is_active(d))
        primary_drop(d);
    pthread_mutex_unlock(&driver_lock);
    return rc;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(context, CUDA_ERROR_INVALID_VALUE);
    return primary_retain(d, context);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    return primary_release(d);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    return cuDevicePrimaryCtxRelease_v2(dev);
}

/* Ends the context whoever uses it; who retained it still releases it. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    if (is_active(d))
        (void)context_wait(d->primary);
    pthread_mutex_lock(&driver_lock);
    if (is_active(d))
        primary_drop(d);
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
    return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(are_flags(flags), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    d->primary_flags = flags;
    if (is_active(d))
        d->primary->flags = flags;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

/* The first form could not change an active context. */
CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(!is_active(d), CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
    return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(flags && active, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    *flags = d->primary_flags;
    *active = is_active(d);
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
    NEED(context && are_flags(flags), CUDA_ERROR_INVALID_VALUE);
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

static CUresult destroy(struct CUctx_st *context)
{
    struct thread *t = &thread_state;
    CUresult rc;

    (void)context_wait(context);
    pthread_mutex_lock(&driver_lock);
    rc = context_check(context);
    if (rc == CUDA_SUCCESS && (context->is_primary || context->green))
        rc = CUDA_ERROR_INVALID_CONTEXT;
    if (rc == CUDA_SUCCESS)
        context_drop(context);
    pthread_mutex_unlock(&driver_lock);
    /* It leaves this thread's stack when it is on top; other threads find it destroyed. */
    if (rc == CUDA_SUCCESS && t->depth && t->stack[t->depth - 1] == context)
        t->depth--;
    return rc;
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    TRY(context_check(context));
    return destroy(context);
}

CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

/* Counted use of the current context, of before CUDA 4 */

CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(context && !flags, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    c->references++;
    pthread_mutex_unlock(&driver_lock);
    *context = c;
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext context)
{
    struct CUctx_st *c;
    bool is_last;

    TRY(current(&c));
    NEED(context == c && !c->is_primary && !c->green, CUDA_ERROR_INVALID_CONTEXT);
    pthread_mutex_lock(&driver_lock);
    is_last = --c->references == 0;
    pthread_mutex_unlock(&driver_lock);
    return is_last ? destroy(c) : CUDA_SUCCESS;
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
    TRY(context_wait(c));
    if (c->is_primary)
        TRY(green_wait_all(c->device));
    pool_synchronised();
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
    NEED(are_flags(flags), CUDA_ERROR_INVALID_VALUE);
    c->flags = (c->flags & ~(unsigned int)SETTABLE_FLAGS) | (flags & SETTABLE_FLAGS);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext context, unsigned long long *id)
{
    struct CUctx_st *c;

    TRY(meant(context, &c));
    NEED(id, CUDA_ERROR_INVALID_VALUE);
    *id = c->green ? green_id(c->green) : c->id;
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

/* Contexts with a share of the SMs are MPS's, which is not there. */
CUresult cuCtxGetExecAffinity(CUexecAffinityParam *param, CUexecAffinityType type)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(param && (int)type >= 0 && type < CU_EXEC_AFFINITY_TYPE_MAX, CUDA_ERROR_INVALID_VALUE);
    return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(supported && (int)type >= 0 && type < CU_EXEC_AFFINITY_TYPE_MAX, CUDA_ERROR_INVALID_VALUE);
    *supported = 0;
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
    NEED((int)config >= 0 && config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE);
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
    NEED((int)config >= 0 && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE,
         CUDA_ERROR_INVALID_VALUE);
    c->shared_config = config;
    return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
    struct CUctx_st *c;

    return current(&c);
}
