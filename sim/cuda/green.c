/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Green contexts as far as stream creation: parts of a device's SMs, and streams that belong to
 * them. Memory and modules are the primary context's, which a green context keeps alive. Nothing
 * here makes a kernel of such a stream stay on the part's SMs.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/context.h"

/* What a CUdevResource says in the bytes that only the driver reads. */
struct part {
    uint32_t magic, device;
    uint32_t first, count; /* SMs */
    uint32_t is_split;     /* comes from a split: not to be split again */
};

struct CUdevResourceDesc_st {
    uint32_t magic;
    struct part part;
};

struct CUgreenCtx_st {
    uint32_t magic;
    struct CUgreenCtx_st *next;
    struct device *device;
    struct part part;
    unsigned long long id;
    struct CUctx_st context; /* its form as a CUcontext */
};

static struct CUgreenCtx_st *greens;            /* those that live, under driver_lock */
static unsigned long long last_id = 1ull << 32; /* apart from those of contexts */

unsigned long long green_id(const struct CUgreenCtx_st *green)
{
    return green->id;
}

static CUresult green_check(CUgreenCtx green)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    return green && green->magic == MAGIC_GREEN ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* Resources */

/* Smallest part, and its granularity, by compute capability (documentation of
 * cuDevSmResourceSplitByCount). */
static void granularity(const struct device *d, bool is_loose, uint32_t *least, uint32_t *step)
{
    uint32_t major = d->info.cc_major;

    *least = major >= 9 ? 8 : major == 8 ? 4 : major == 7 ? 2 : 1;
    *step = major >= 9 ? 8 : major >= 7 ? 2 : 1;
    if (is_loose && major >= 9)
        *least = *step = 2;
}

static void resource_fill(CUdevResource *r, const struct part *part)
{
    uint32_t least, step;

    memset(r, 0, sizeof(*r));
    if (!part->count)
        return; /* of no type */
    granularity(&driver_devices[part->device], false, &least, &step);
    r->type = CU_DEV_RESOURCE_TYPE_SM;
    r->sm.smCount = part->count;
    r->sm.minSmPartitionSize = least;
    r->sm.smCoscheduledAlignment = step;
    memcpy(r->_internal_padding, part, sizeof(*part));
}

static CUresult resource_read(const CUdevResource *r, struct part *part)
{
    NEED(r, CUDA_ERROR_INVALID_VALUE);
    NEED(r->type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    memcpy(part, r->_internal_padding, sizeof(*part));
    NEED(part->magic == MAGIC_RESOURCE && part->device < (uint32_t)driver_device_count &&
             part->count == r->sm.smCount &&
             (uint64_t)part->first + part->count <= driver_devices[part->device].info.sms,
         CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult resource_give(CUdevResource *resource, CUdevResourceType type,
                              const struct part *part)
{
    NEED(resource, CUDA_ERROR_INVALID_VALUE);
    NEED(type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
    resource_fill(resource, part);
    return CUDA_SUCCESS;
}

static struct part whole(const struct device *d)
{
    return (struct part){MAGIC_RESOURCE, (uint32_t)d->ordinal, 0, d->info.sms, false};
}

CUresult cuDeviceGetDevResource(CUdevice dev, CUdevResource *resource, CUdevResourceType type)
{
    struct device *d;
    struct part part;

    TRY(device_get(dev, &d));
    part = whole(d);
    return resource_give(resource, type, &part);
}

CUresult cuCtxGetDevResource(CUcontext context, CUdevResource *resource, CUdevResourceType type)
{
    struct part part;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    TRY(context_check(context));
    part = context->green ? context->green->part : whole(context->device);
    return resource_give(resource, type, &part);
}

CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource *resource, CUdevResourceType type)
{
    TRY(green_check(green));
    return resource_give(resource, type, &green->part);
}

CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups,
                                     const CUdevResource *input, CUdevResource *remaining,
                                     unsigned int flags, unsigned int min_count)
{
    const unsigned int known = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING |
                               CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    struct part all, rest;
    uint32_t least, step, each, most;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(groups && !(flags & ~known), CUDA_ERROR_INVALID_VALUE);
    TRY(resource_read(input, &all));
    NEED(!all.is_split, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    NEED(min_count <= all.count, CUDA_ERROR_INVALID_VALUE);
    granularity(&driver_devices[all.device],
                flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING, &least, &step);
    each = min_count > least ? min_count : least;
    each = (each + step - 1) / step * step;
    most = all.count / each;
    NEED(most, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    if (!result || *groups > most)
        *groups = most;
    rest = all;
    rest.first += *groups * each;
    rest.count -= *groups * each;
    rest.is_split = true;
    for (unsigned int i = 0; result && i < *groups; i++) {
        const struct part one = {MAGIC_RESOURCE, all.device, all.first + i * each, each, true};

        resource_fill(&result[i], &one);
    }
    if (remaining)
        resource_fill(remaining, &rest);
    return CUDA_SUCCESS;
}

/* Several resources of a split become one part when they are side by side. Descriptions live until
 * the process ends: there is no call that would free one. */
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *desc, CUdevResource *resources,
                                   unsigned int count)
{
    struct CUdevResourceDesc_st *made;
    struct part all, next;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(desc && resources && count, CUDA_ERROR_INVALID_VALUE);
    TRY(resource_read(&resources[0], &all));
    for (unsigned int i = 1; i < count; i++) {
        TRY(resource_read(&resources[i], &next));
        NEED(next.device == all.device && next.first == all.first + all.count,
             CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
        all.count += next.count;
    }
    made = calloc(1, sizeof(*made));
    NEED(made, CUDA_ERROR_OUT_OF_MEMORY);
    made->magic = MAGIC_RESOURCE;
    made->part = all;
    made->part.is_split = false;
    *desc = made;
    return CUDA_SUCCESS;
}

/* Green contexts */

static void form_open(struct CUctx_st *c, struct CUgreenCtx_st *green, struct CUctx_st *primary)
{
    c->magic = MAGIC_CONTEXT;
    c->id = primary->id;
    c->device = green->device;
    c->root = primary;
    c->epoch = primary->epoch;
    c->green = green;
    c->flags = primary->flags;
    c->api_version = primary->api_version;
    stream_open(&c->legacy, c, 0, 0);
    c->legacy.is_legacy = true;
    stream_open(&c->control, c, CU_STREAM_NON_BLOCKING, 0);
}

CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice dev,
                          unsigned int flags)
{
    struct CUctx_st *primary;
    struct CUgreenCtx_st *g;
    struct device *d;
    CUresult rc;

    TRY(device_get(dev, &d));
    NEED(green && flags == CU_GREEN_CTX_DEFAULT_STREAM, CUDA_ERROR_INVALID_VALUE);
    NEED(desc && desc->magic == MAGIC_RESOURCE && desc->part.device == (uint32_t)d->ordinal,
         CUDA_ERROR_INVALID_VALUE);
    g = calloc(1, sizeof(*g));
    NEED(g, CUDA_ERROR_OUT_OF_MEMORY);
    rc = primary_retain(d, &primary);
    if (rc != CUDA_SUCCESS) {
        free(g);
        return rc;
    }
    g->device = d;
    g->part = desc->part;
    form_open(&g->context, g, primary);
    pthread_mutex_lock(&driver_lock);
    g->id = ++last_id;
    g->next = greens;
    greens = g;
    pthread_mutex_unlock(&driver_lock);
    g->magic = MAGIC_GREEN;
    *green = g;
    return CUDA_SUCCESS;
}

/* Off the list, and what was made in it is gone. Under driver_lock. */
static void green_drop(struct CUgreenCtx_st *green)
{
    struct CUgreenCtx_st **at = &greens;

    while (*at && *at != green)
        at = &(*at)->next;
    if (*at)
        *at = green->next;
    stream_free_all(&green->context);
    event_free_all(&green->context);
    green->context.magic = MAGIC_DEAD;
    green->magic = MAGIC_DEAD;
}

void green_free_all(struct device *device)
{
    for (struct CUgreenCtx_st *g = greens, *after; g; g = after) {
        after = g->next;
        if (g->device != device)
            continue;
        green_drop(g);
        device->primary->references--; /* the green context's own */
    }
}

CUresult green_wait_all(struct device *device)
{
    CUresult rc = CUDA_SUCCESS;

    /* One after the other: what is waited for stays where it is, also when it is destroyed. */
    for (unsigned long long done = 0; rc == CUDA_SUCCESS;) {
        struct CUgreenCtx_st *next = NULL;

        pthread_mutex_lock(&driver_lock);
        for (struct CUgreenCtx_st *g = greens; g; g = g->next) {
            if (g->device == device && g->id > done && (!next || g->id < next->id))
                next = g;
        }
        pthread_mutex_unlock(&driver_lock);
        if (!next)
            break;
        done = next->id;
        rc = context_wait(&next->context);
    }
    return rc;
}

CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event)
{
    TRY(green_check(green));
    return context_record(&green->context, event);
}

CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event)
{
    TRY(green_check(green));
    return context_await(&green->context, event);
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    CUresult rc;

    TRY(green_check(green));
    (void)context_wait(&green->context);
    pthread_mutex_lock(&driver_lock);
    rc = green_check(green);
    if (rc == CUDA_SUCCESS)
        green_drop(green);
    pthread_mutex_unlock(&driver_lock);
    return rc == CUDA_SUCCESS ? primary_release(green->device) : rc;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    TRY(green_check(green));
    NEED(context, CUDA_ERROR_INVALID_VALUE);
    *context = &green->context;
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxGetId(CUgreenCtx green, unsigned long long *id)
{
    TRY(green_check(green));
    NEED(id, CUDA_ERROR_INVALID_VALUE);
    *id = green->id;
    return CUDA_SUCCESS;
}

/* Streams of green contexts never wait for the legacy stream, and must say so. */
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags,
                                int priority)
{
    CUresult rc;

    TRY(green_check(green));
    NEED(stream && flags == CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    TRY(cuCtxPushCurrent_v2(&green->context));
    rc = cuStreamCreateWithPriority(stream, flags, priority);
    cuCtxPopCurrent_v2(NULL);
    return rc;
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *green)
{
    struct CUstream_st *s;
    struct CUctx_st *c = NULL;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(green, CUDA_ERROR_INVALID_VALUE);
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    *green = s->context->green;
    return CUDA_SUCCESS;
}

/* One of the two is the stream's, the other NULL. */
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context, CUgreenCtx *green)
{
    NEED(context && green, CUDA_ERROR_INVALID_VALUE);
    TRY(cuStreamGetGreenCtx(stream, green));
    *context = NULL;
    return *green ? CUDA_SUCCESS : cuStreamGetCtx(stream, context);
}
