/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of streams, and events of all of a context's streams.
 */
#include <stdlib.h>

#include "cuda/context.h"

CUresult cuStreamGetAttribute(CUstream stream, CUstreamAttrID id, CUstreamAttrValue *value)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    NEED(value, CUDA_ERROR_INVALID_VALUE);
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        value->accessPolicyWindow = s->access_window;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value->syncPolicy = s->sync_policy ? s->sync_policy : CU_SYNC_POLICY_AUTO;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value->priority = s->priority;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        value->memSyncDomain = s->sync_domain;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        value->memSyncDomainMap = s->sync_domain_map;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult set_window(struct CUstream_st *s, const CUaccessPolicyWindow *w)
{
    int most;

    TRY(cuDeviceGetAttribute(&most, CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE,
                             s->context->device->ordinal));
    NEED(w->num_bytes <= (size_t)most && w->hitRatio >= 0 && w->hitRatio <= 1 &&
             (int)w->hitProp >= 0 && w->hitProp <= CU_ACCESS_PROPERTY_PERSISTING &&
             (int)w->missProp >= 0 && w->missProp < CU_ACCESS_PROPERTY_PERSISTING,
         CUDA_ERROR_INVALID_VALUE);
    s->access_window = *w;
    return CUDA_SUCCESS;
}

/* They are kept; none changes when something happens. A stream's priority is fixed at creation. */
CUresult cuStreamSetAttribute(CUstream stream, CUstreamAttrID id, const CUstreamAttrValue *value)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    NEED(value, CUDA_ERROR_INVALID_VALUE);
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return set_window(s, &value->accessPolicyWindow);
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        NEED(value->syncPolicy >= CU_SYNC_POLICY_AUTO &&
                 value->syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC,
             CUDA_ERROR_INVALID_VALUE);
        s->sync_policy = value->syncPolicy;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        return value->priority == s->priority ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        NEED((int)value->memSyncDomain >= 0 &&
                 value->memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE,
             CUDA_ERROR_INVALID_VALUE);
        s->sync_domain = value->memSyncDomain;
        return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        s->sync_domain_map = value->memSyncDomainMap;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuStreamCopyAttributes(CUstream to, CUstream from)
{
    struct CUstream_st *t, *f;

    TRY(stream_of(to, &t));
    TRY(stream_of(from, &f));
    NEED(t->context->root == f->context->root, CUDA_ERROR_INVALID_CONTEXT);
    t->access_window = f->access_window;
    t->sync_policy = f->sync_policy;
    t->sync_domain = f->sync_domain;
    t->sync_domain_map = f->sync_domain_map;
    return CUDA_SUCCESS;
}

/* Contexts and events */

/* The streams that the context has now, its legacy one first; the caller's to free. */
static struct CUstream_st **streams_of(struct CUctx_st *c, size_t *count)
{
    struct CUstream_st **list;
    size_t n = 1;

    pthread_mutex_lock(&driver_lock);
    for (struct CUstream_st *s = c->streams; s; s = s->next)
        n++;
    list = calloc(n, sizeof(struct CUstream_st *));
    *count = 0;
    if (list) {
        list[(*count)++] = &c->legacy;
        for (struct CUstream_st *s = c->streams; s; s = s->next)
            list[(*count)++] = s;
    }
    pthread_mutex_unlock(&driver_lock);
    return list;
}

static CUresult event_check(const struct CUctx_st *c, CUevent event)
{
    NEED(event && event->magic == MAGIC_EVENT && event->context->device == c->device,
         CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

/* The event happens when all that the context was given so far is done. */
CUresult context_record(struct CUctx_st *c, CUevent event)
{
    struct CUstream_st **list;
    CUresult rc = CUDA_SUCCESS;
    size_t count;

    TRY(event_check(c, event));
    NEED(!capture_implicit(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    list = streams_of(c, &count);
    NEED(list, CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; rc == CUDA_SUCCESS && i < count; i++) {
        uint32_t index = atomic_load(&list[i]->index);

        if (index != STREAM_UNUSED)
            rc = stream_depend(&c->control, index, atomic_load(&list[i]->pushed));
    }
    free(list);
    atomic_store(&event->capture, NULL);
    return rc == CUDA_SUCCESS ? event_push(event, &c->control) : rc;
}

/* What the streams that the context has now are given from here on waits for the event. */
CUresult context_await(struct CUctx_st *c, CUevent event)
{
    struct CUstream_st **list;
    CUresult rc = CUDA_SUCCESS;
    size_t count;

    TRY(event_check(c, event));
    if (!atomic_load(&event->record))
        return CUDA_SUCCESS;
    list = streams_of(c, &count);
    NEED(list, CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; rc == CUDA_SUCCESS && i < count; i++)
        rc = stream_depend(list[i], atomic_load(&event->stream), atomic_load(&event->number));
    free(list);
    return rc;
}

CUresult cuCtxRecordEvent(CUcontext context, CUevent event)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    TRY(context_check(context));
    return context_record(context, event);
}

CUresult cuCtxWaitEvent(CUcontext context, CUevent event)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    TRY(context_check(context));
    return context_await(context, event);
}
