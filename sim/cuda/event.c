/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. Recording notes when all work of the stream so far will be done, which the first form of
 * time knows at once; querying compares that with the clock.
 */
#include "cuda/driver.h"

#include <stdlib.h>

void event_free_all(struct CUctx_st *context)
{
    for (struct CUevent_st *e = context->events; e; e = e->next)
        e->magic = MAGIC_DEAD;
    context->events = NULL;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    struct CUctx_st *c;
    struct CUevent_st *e;

    TRY(current(&c));
    NEED(event && !(flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    NEED(!(flags & CU_EVENT_INTERPROCESS), CUDA_ERROR_NOT_SUPPORTED);
    e = calloc(1, sizeof(*e));
    NEED(e, CUDA_ERROR_OUT_OF_MEMORY);
    e->flags = flags;
    e->context = c;
    pthread_mutex_lock(&driver_lock);
    e->next = c->events;
    c->events = e;
    pthread_mutex_unlock(&driver_lock);
    e->magic = MAGIC_EVENT;
    *event = e;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    struct CUevent_st **at;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(event && event->magic == MAGIC_EVENT, CUDA_ERROR_INVALID_HANDLE);
    pthread_mutex_lock(&driver_lock);
    for (at = &event->context->events; *at && *at != event; at = &(*at)->next)
        ;
    if (*at)
        *at = event->next;
    event->magic = MAGIC_DEAD;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    struct CUctx_st *c;
    struct CUstream_st *s;

    TRY(current(&c));
    TRY(stream_get(stream, c, &s));
    NEED(event && event->magic == MAGIC_EVENT, CUDA_ERROR_INVALID_HANDLE);
    NEED(!(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    NEED(event->context->device == s->context->device, CUDA_ERROR_INVALID_HANDLE);
    if (atomic_load_explicit(&s->capture, memory_order_relaxed))
        return capture_event_record(s, event);
    if (s->is_legacy && capture_implicit(c))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    atomic_store_explicit(&event->capture, NULL, memory_order_relaxed);
    atomic_store_explicit(&event->time_ns, stream_ready_ns(s, now_ns()), memory_order_release);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, 0);
}

/* When the event's work is done; 0 when it was never recorded. */
static CUresult time_of(CUevent event, uint64_t *time_ns)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(event && event->magic == MAGIC_EVENT, CUDA_ERROR_INVALID_HANDLE);
    NEED(!atomic_load_explicit(&event->capture, memory_order_relaxed), CUDA_ERROR_CAPTURED_EVENT);
    *time_ns = atomic_load_explicit(&event->time_ns, memory_order_acquire);
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
    uint64_t at;

    TRY(time_of(event, &at));
    return at && at > now_ns() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    uint64_t at;

    TRY(time_of(event, &at));
    wait_until(at);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    uint64_t from, to, now = now_ns();

    NEED(ms, CUDA_ERROR_INVALID_VALUE);
    TRY(time_of(start, &from));
    TRY(time_of(end, &to));
    NEED(from && to && !((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING),
         CUDA_ERROR_INVALID_HANDLE);
    NEED(from <= now && to <= now, CUDA_ERROR_NOT_READY);
    *ms = (float)((double)(int64_t)(to - from) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime(ms, start, end);
}
