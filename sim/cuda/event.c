/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events. A record is an operation of its stream; when it is reached, simgpud writes its number and
 * the time into the event's cell of this process's memory.
 */
#include "cuda/pool.h"

#include <stdlib.h>

/* Cells, under driver_lock. A cell's records are counted on from one event to the next. */
static uint64_t last_record[SIM_EVENTS];
static uint32_t free_cells[SIM_EVENTS], free_count, fresh;

static bool cell_take(uint32_t *cell)
{
    if (free_count)
        *cell = free_cells[--free_count];
    else if (fresh < SIM_EVENTS)
        *cell = fresh++;
    else
        return false;
    return true;
}

static void cell_put(struct CUevent_st *e)
{
    uint64_t record = atomic_load_explicit(&e->record, memory_order_relaxed);

    if (record)
        last_record[e->cell] = record;
    free_cells[free_count++] = e->cell;
}

void event_free_all(struct CUctx_st *context)
{
    for (struct CUevent_st *e = context->events, *after; e; e = after) {
        after = e->next;
        e->magic = MAGIC_DEAD;
        cell_put(e);
        event_share_put(e->share);
        bury(e);
    }
    context->events = NULL;
}

CUresult event_new(struct CUctx_st *c, unsigned int flags, struct event_share *share,
                   CUevent *event)
{
    struct CUevent_st *e = calloc(1, sizeof(*e));

    NEED(e, CUDA_ERROR_OUT_OF_MEMORY);
    e->flags = flags;
    e->context = c;
    e->share = share;
    pthread_mutex_lock(&driver_lock);
    if (!cell_take(&e->cell)) {
        pthread_mutex_unlock(&driver_lock);
        free(e);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    e->first_record = last_record[e->cell];
    e->next = c->events;
    c->events = e;
    pthread_mutex_unlock(&driver_lock);
    e->magic = MAGIC_EVENT;
    *event = e;
    return CUDA_SUCCESS;
}

/* Events of several processes have no time. */
CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    struct event_share *share = NULL;
    struct CUctx_st *c;
    CUresult rc;

    TRY(current(&c));
    NEED(event && !(flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    NEED(!(flags & CU_EVENT_INTERPROCESS) || flags & CU_EVENT_DISABLE_TIMING,
         CUDA_ERROR_INVALID_VALUE);
    if (flags & CU_EVENT_INTERPROCESS)
        TRY(event_share_make(c->device, &share));
    rc = event_new(c, flags, share, event);
    if (rc != CUDA_SUCCESS)
        event_share_put(share);
    return rc;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    struct event_share *share = NULL;
    struct CUevent_st **at;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(event && event->magic == MAGIC_EVENT, CUDA_ERROR_INVALID_HANDLE);
    pthread_mutex_lock(&driver_lock);
    for (at = &event->context->events; *at && *at != event; at = &(*at)->next)
        ;
    if (*at) {
        *at = event->next;
        event->magic = MAGIC_DEAD;
        cell_put(event);
        share = event->share;
        bury(event);
    }
    pthread_mutex_unlock(&driver_lock);
    event_share_put(share);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}

/* Two threads that record one event at once make two records; the later one is looked at. */
CUresult event_push(struct CUevent_st *e, struct CUstream_st *s)
{
    uint64_t record = atomic_load_explicit(&e->record, memory_order_relaxed), number;

    record = (record ? record : e->first_record) + 1;
    TRY(context_fault(s->context));
    TRY(queue_push(s, (struct sim_op){.kind = SIM_OP_EVENT, .target = e->cell, .value = record},
                   &number, NULL));
    atomic_store_explicit(&e->stream, atomic_load_explicit(&s->index, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&e->number, number, memory_order_relaxed);
    atomic_store_explicit(&e->earliest_ns,
                          atomic_load_explicit(&s->earliest_ns, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&e->record, record, memory_order_release);
    return e->share ? event_share_record(e->share, s) : CUDA_SUCCESS;
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
        return capture_event_record(s, event, flags & CU_EVENT_RECORD_EXTERNAL);
    if (s->is_legacy && capture_implicit(c))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    atomic_store_explicit(&event->capture, NULL, memory_order_relaxed);
    return event_push(event, s);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return cuEventRecordWithFlags(event, stream, 0);
}

/* CUDA_SUCCESS when the event can be looked at: without a record nothing is to come. */
static CUresult check(CUevent event)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(event && event->magic == MAGIC_EVENT, CUDA_ERROR_INVALID_HANDLE);
    NEED(!atomic_load_explicit(&event->capture, memory_order_relaxed), CUDA_ERROR_CAPTURED_EVENT);
    return context_fault(event->context);
}

/* The time of the last record, if it was reached and simgpud said so. */
static bool is_reached(CUevent event, uint64_t *time_ns)
{
    const struct sim_event_cell *cell = &driver_connection.client->queue.event[event->cell];
    uint64_t record = atomic_load_explicit(&event->record, memory_order_acquire);

    *time_ns = 0;
    if (!record)
        return true;
    if (atomic_load_explicit(&cell->record, memory_order_acquire) < record)
        return false;
    *time_ns = atomic_load_explicit(&cell->time_ns, memory_order_relaxed);
    return true;
}

CUresult cuEventQuery(CUevent event)
{
    uint64_t at;

    TRY(check(event));
    if (event->share ? event_share_is_reached(event->share) : is_reached(event, &at))
        return CUDA_SUCCESS;
    TRY(queue_look(atomic_load_explicit(&event->earliest_ns, memory_order_relaxed)));
    return CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
    uint64_t at;

    TRY(check(event));
    if (event->share)
        TRY(event_share_synchronise(event->share, event->context));
    else if (!is_reached(event, &at))
        TRY(queue_wait(atomic_load_explicit(&event->stream, memory_order_relaxed),
                       atomic_load_explicit(&event->number, memory_order_relaxed),
                       atomic_load_explicit(&event->earliest_ns, memory_order_relaxed),
                       event->context));
    pool_synchronised();
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    uint64_t from, to;

    NEED(ms, CUDA_ERROR_INVALID_VALUE);
    TRY(check(start));
    TRY(check(end));
    NEED(atomic_load(&start->record) && atomic_load(&end->record) &&
             !((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING),
         CUDA_ERROR_INVALID_HANDLE);
    if (!is_reached(start, &from) || !is_reached(end, &to)) {
        TRY(queue_look(atomic_load_explicit(&end->earliest_ns, memory_order_relaxed)));
        return CUDA_ERROR_NOT_READY;
    }
    *ms = (float)((double)(int64_t)(to - from) / 1e6);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime(ms, start, end);
}
