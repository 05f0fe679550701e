/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and the first form of time: a kernel starts when its stream, and the device, is free, and
 * ends a known time later. One device runs one kernel at a time, of whatever process; free_at_ns in
 * the node's memory is the end of its queue. No thread runs anything; waiting is sleeping until a
 * known time. Within a process a device's timeline is written under its time lock.
 */
#include "cuda/driver.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define SPIN_NS 60000ull /* a sleeper is woken this much early, and spins the rest */

static _Atomic unsigned long long last_id = 1;

void wait_until(uint64_t time_ns)
{
    uint64_t now = now_ns();

    while (now < time_ns) {
        if (time_ns - now > SPIN_NS) {
            uint64_t wake = time_ns - SPIN_NS;
            struct timespec at = {(time_t)(wake / 1000000000u), (long)(wake % 1000000000u)};

            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
        } else {
            sched_yield();
        }
        now = now_ns();
    }
}

void stream_open(struct CUstream_st *s, struct CUctx_st *context, unsigned int flags, int priority)
{
    memset(s, 0, sizeof(*s));
    s->context = context;
    s->flags = flags;
    s->priority = priority;
    s->id = atomic_fetch_add(&last_id, 1);
    s->magic = MAGIC_STREAM;
}

static struct CUstream_st *stream_new(struct CUctx_st *context, unsigned int flags, int priority)
{
    struct CUstream_st *s = malloc(sizeof(*s));

    if (s) {
        stream_open(s, context, flags, priority);
        pthread_mutex_lock(&driver_lock);
        s->next = context->streams;
        context->streams = s;
        pthread_mutex_unlock(&driver_lock);
    }
    return s;
}

void stream_free_all(struct CUctx_st *context)
{
    for (struct CUstream_st *s = context->streams; s; s = s->next) {
        s->magic = MAGIC_DEAD;
        free(s->queue_end);
        s->queue_end = NULL;
    }
    context->streams = NULL;
    free(context->legacy.queue_end);
    context->legacy.queue_end = NULL;
}

/* This thread's default stream of a context, made when first used. */
static CUresult per_thread(struct CUctx_st *context, struct CUstream_st **stream)
{
    struct CUstream_st **slot = &thread_state.per_thread[context->device->ordinal];

    if (!*slot || (*slot)->magic != MAGIC_STREAM || (*slot)->context != context) {
        *slot = stream_new(context, CU_STREAM_DEFAULT, 0);
        NEED(*slot, CUDA_ERROR_OUT_OF_MEMORY);
        (*slot)->is_per_thread = true;
    }
    *stream = *slot;
    return CUDA_SUCCESS;
}

CUresult stream_get(CUstream handle, struct CUctx_st *context, struct CUstream_st **stream)
{
    if (!handle || handle == CU_STREAM_LEGACY) {
        *stream = &context->legacy;
        return CUDA_SUCCESS;
    }
    if (handle == CU_STREAM_PER_THREAD)
        return per_thread(context, stream);
    NEED(handle->magic == MAGIC_STREAM, CUDA_ERROR_INVALID_HANDLE);
    *stream = handle;
    return CUDA_SUCCESS;
}

/* The stream and, for a default one, the current context; a created stream brings its own. */
static CUresult stream_of(CUstream handle, struct CUstream_st **stream)
{
    struct CUctx_st *c = NULL;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        TRY(current(&c));
    return stream_get(handle, c, stream);
}

static bool is_blocking(const struct CUstream_st *s)
{
    return !s->is_legacy && !(s->flags & CU_STREAM_NON_BLOCKING);
}

uint64_t stream_ready_ns(struct CUstream_st *s, uint64_t now)
{
    uint64_t ready = atomic_load_explicit(&s->end_ns, memory_order_relaxed), other = 0;

    if (s->is_legacy)
        other = atomic_load_explicit(&s->context->blocking_end_ns, memory_order_relaxed);
    else if (is_blocking(s))
        other = atomic_load_explicit(&s->context->legacy.end_ns, memory_order_relaxed);
    ready = ready > other ? ready : other;
    return ready > now ? ready : now;
}

void stream_push(struct CUstream_st *s, uint64_t end_ns)
{
    raise_to(&s->end_ns, end_ns);
    if (is_blocking(s))
        raise_to(&s->context->blocking_end_ns, end_ns);
    raise_to(&s->context->all_end_ns, end_ns);
}

void stream_add(struct CUstream_st *s, uint64_t duration_ns)
{
    struct device *d = s->context->device;

    pthread_mutex_lock(&d->time_lock);
    stream_push(s, stream_ready_ns(s, now_ns()) + duration_ns);
    pthread_mutex_unlock(&d->time_lock);
}

/* Takes the device for duration_ns, no earlier than ready; the end. */
static uint64_t device_take(struct device *d, uint64_t ready, uint64_t duration_ns)
{
    _Atomic uint64_t *free_at = &d->shared->free_at_ns;
    uint64_t seen = atomic_load_explicit(free_at, memory_order_relaxed), start;

    do
        start = ready > seen ? ready : seen;
    while (!atomic_compare_exchange_weak_explicit(free_at, &seen, start + duration_ns,
                                                  memory_order_relaxed, memory_order_relaxed));
    sim_timeline_add(d->timeline, start, start + duration_ns);
    return start + duration_ns;
}

void stream_launch(struct CUstream_st *s, uint64_t duration_ns, uint32_t kernels)
{
    struct device *d = s->context->device;
    uint64_t now, end, *slot = NULL;

    pthread_mutex_lock(&d->time_lock);
    if (!s->queue_end)
        s->queue_end = calloc(QUEUE_DEPTH, sizeof(*s->queue_end));
    now = now_ns();
    /* Without memory for the queue it has no bound: nothing else depends on it. */
    while (s->queue_end && *(slot = &s->queue_end[s->submitted % QUEUE_DEPTH]) > now) {
        uint64_t oldest = *slot;

        pthread_mutex_unlock(&d->time_lock);
        wait_until(oldest);
        pthread_mutex_lock(&d->time_lock);
        now = now_ns();
    }
    end = device_take(d, stream_ready_ns(s, now), duration_ns);
    atomic_store_explicit(&d->timeline->launches,
                          atomic_load_explicit(&d->timeline->launches, memory_order_relaxed) +
                              kernels,
                          memory_order_relaxed);
    if (slot) {
        *slot = end;
        s->submitted++;
    }
    stream_push(s, end);
    pthread_mutex_unlock(&d->time_lock);
}

/* Entry points */

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(stream && !(flags & ~(unsigned int)CU_STREAM_NON_BLOCKING), CUDA_ERROR_INVALID_VALUE);
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    *stream = stream_new(c, flags, priority);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    struct CUstream_st **at;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD &&
             stream->magic == MAGIC_STREAM && !stream->is_legacy && !stream->is_per_thread,
         CUDA_ERROR_INVALID_HANDLE);
    capture_abandon(stream);
    /* Work that was given to it still runs to its end: all_end_ns of the context has it. */
    pthread_mutex_lock(&driver_lock);
    for (at = &stream->context->streams; *at && *at != stream; at = &(*at)->next)
        ;
    if (*at)
        *at = stream->next;
    stream->magic = MAGIC_DEAD;
    free(stream->queue_end);
    stream->queue_end = NULL;
    pthread_mutex_unlock(&driver_lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

/* Calls that look at a stream's progress may not be made while it captures, and end the capture. */
static CUresult not_capturing(struct CUstream_st *s)
{
    if (atomic_load_explicit(&s->capture, memory_order_relaxed)) {
        capture_invalidate(s);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (s->is_legacy && capture_implicit(s->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    TRY(not_capturing(s));
    wait_until(stream_ready_ns(s, 0));
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    TRY(not_capturing(s));
    return stream_ready_ns(s, 0) > now_ns() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    NEED(priority, CUDA_ERROR_INVALID_VALUE);
    *priority = s->priority;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    NEED(flags, CUDA_ERROR_INVALID_VALUE);
    *flags = s->flags;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    NEED(id, CUDA_ERROR_INVALID_VALUE);
    *id = s->id;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    NEED(context, CUDA_ERROR_INVALID_VALUE);
    *context = s->context;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    NEED(device, CUDA_ERROR_INVALID_VALUE);
    *device = s->context->device->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    struct CUstream_st *s;
    uint64_t at;

    TRY(stream_of(stream, &s));
    NEED(event && event->magic == MAGIC_EVENT, CUDA_ERROR_INVALID_HANDLE);
    NEED(!(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    if (atomic_load(&s->capture) || atomic_load(&event->capture))
        return capture_event_wait(s, event);
    at = atomic_load_explicit(&event->time_ns, memory_order_acquire);
    if (at) {
        pthread_mutex_lock(&s->context->device->time_lock);
        stream_push(s, at);
        pthread_mutex_unlock(&s->context->device->time_lock);
    }
    return CUDA_SUCCESS;
}
