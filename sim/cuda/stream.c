/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: what is given to them goes into the process's queue (queue.c); whether it is done is
 * what simgpud published. Waiting for a context, or for what its legacy stream waits for, is
 * waiting for a mark behind that work.
 */
#include "cuda/pool.h"

#include <stdlib.h>
#include <string.h>

static _Atomic unsigned long long last_id = 1;

void stream_open(struct CUstream_st *s, struct CUctx_st *context, unsigned int flags, int priority)
{
    memset(s, 0, sizeof(*s));
    s->context = context;
    s->flags = flags;
    s->priority = priority;
    s->id = atomic_fetch_add(&last_id, 1);
    atomic_init(&s->index, STREAM_UNUSED);
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
        queue_close(s);
    }
    context->streams = NULL;
    queue_close(&context->legacy);
    queue_close(&context->control);
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

CUresult stream_of(CUstream handle, struct CUstream_st **stream)
{
    struct CUctx_st *c = NULL;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        TRY(current(&c));
    return stream_get(handle, c, stream);
}

/* Giving work */

static uint64_t bounded(uint64_t duration_ns)
{
    return duration_ns < SIM_DURATION_MAX_NS ? duration_ns : SIM_DURATION_MAX_NS;
}

static CUresult push(struct CUstream_st *s, struct sim_op op, uint64_t *number)
{
    TRY(context_fault(s->context));
    return queue_push(s, op, number, NULL);
}

CUresult stream_kernel(struct CUstream_st *s, uint64_t duration_ns, uint32_t blocks)
{
    return push(
        s, (struct sim_op){.kind = SIM_OP_KERNEL, .value = bounded(duration_ns), .blocks = blocks},
        NULL);
}

CUresult stream_fill(struct CUstream_st *s, uint64_t duration_ns)
{
    return push(s,
                (struct sim_op){.kind = SIM_OP_KERNEL,
                                .value = bounded(duration_ns),
                                .blocks = UINT32_MAX,
                                .flags = SIM_OP_UNCOUNTED},
                NULL);
}

CUresult stream_copy(struct CUstream_st *s, uint64_t duration_ns)
{
    return push(s, (struct sim_op){.kind = SIM_OP_COPY, .value = bounded(duration_ns)}, NULL);
}

CUresult stream_mark(struct CUstream_st *s)
{
    return push(s, (struct sim_op){.kind = SIM_OP_MARK}, NULL);
}

CUresult stream_depend(struct CUstream_st *s, uint32_t index, uint64_t number)
{
    if (queue_is_done(index, number))
        return CUDA_SUCCESS;
    return push(s, (struct sim_op){.kind = SIM_OP_WAIT, .target = index, .value = number}, NULL);
}

/* A mark before it, so that its turn can be waited for. */
static CUresult push_signalled(struct CUstream_st *s, struct sim_op op, uint32_t *index,
                               uint64_t *number)
{
    TRY(push(s, (struct sim_op){.kind = SIM_OP_MARK}, NULL));
    TRY(push(s, op, number));
    *index = atomic_load_explicit(&s->index, memory_order_relaxed);
    return CUDA_SUCCESS;
}

CUresult stream_host(struct CUstream_st *s, uint32_t *index, uint64_t *number)
{
    return push_signalled(s, (struct sim_op){.kind = SIM_OP_HOST}, index, number);
}

CUresult stream_spin(struct CUstream_st *s, uint32_t blocks, uint32_t *index, uint64_t *number)
{
    return push_signalled(
        s, (struct sim_op){.kind = SIM_OP_KERNEL, .blocks = blocks, .flags = SIM_OP_SIGNALLED},
        index, number);
}

bool stream_host_begin(uint32_t index, uint64_t number)
{
    return queue_wait(index, number - 1, 0, NULL) == CUDA_SUCCESS;
}

void stream_host_end(uint32_t index, uint64_t number)
{
    queue_signal(index, number);
}

/* Waiting */

bool stream_is_done(struct CUstream_st *s)
{
    uint32_t index = atomic_load_explicit(&s->index, memory_order_acquire);

    return index == STREAM_UNUSED ||
           queue_is_done(index, atomic_load_explicit(&s->pushed, memory_order_relaxed));
}

/* Whether all work of the context's streams, or of those that synchronise with the legacy one, is
 * known to be done. */
static bool are_done(struct CUctx_st *c, bool is_all)
{
    bool done = atomic_load_explicit(&c->left_seq, memory_order_relaxed) <=
                    atomic_load_explicit(&c->waited_seq, memory_order_relaxed) &&
                stream_is_done(&c->legacy);

    pthread_mutex_lock(&driver_lock);
    for (struct CUstream_st *s = c->streams; s && done; s = s->next)
        done = (!is_all && s->flags & CU_STREAM_NON_BLOCKING) || stream_is_done(s);
    pthread_mutex_unlock(&driver_lock);
    return done;
}

/* Waits for a mark behind the context's work so far. */
static CUresult wait_for_mark(struct CUctx_st *c, uint8_t flags, uint64_t *seq)
{
    uint64_t number;

    TRY(queue_push(&c->control, (struct sim_op){.kind = SIM_OP_MARK, .flags = flags}, &number,
                   seq));
    return queue_wait(atomic_load_explicit(&c->control.index, memory_order_relaxed), number, 0, c);
}

CUresult context_wait(struct CUctx_st *c)
{
    uint64_t last = atomic_load_explicit(&c->last_seq, memory_order_relaxed), seq;

    TRY(context_fault(c));
    if (last <= atomic_load_explicit(&c->waited_seq, memory_order_relaxed))
        return CUDA_SUCCESS;
    if (are_done(c, true))
        seq = last;
    else
        TRY(wait_for_mark(c, SIM_OP_AFTER_ALL, &seq));
    atomic_store_explicit(&c->waited_seq, seq, memory_order_relaxed);
    return CUDA_SUCCESS;
}

CUresult stream_wait(struct CUstream_st *s)
{
    if (stream_is_done(s))
        return context_fault(s->context);
    return queue_wait(atomic_load_explicit(&s->index, memory_order_relaxed),
                      atomic_load_explicit(&s->pushed, memory_order_relaxed),
                      atomic_load_explicit(&s->earliest_ns, memory_order_relaxed), s->context);
}

/* What a program sees of a stream: the legacy one has the blocking ones' work too. */
static bool is_finished(struct CUstream_st *s)
{
    return s->is_legacy ? are_done(s->context, false) : stream_is_done(s);
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
    /* Work that was given to it still runs to its end. */
    pthread_mutex_lock(&driver_lock);
    for (at = &stream->context->streams; *at && *at != stream; at = &(*at)->next)
        ;
    if (*at)
        *at = stream->next;
    stream->magic = MAGIC_DEAD;
    pthread_mutex_unlock(&driver_lock);
    if (!stream_is_done(stream))
        atomic_store(&stream->context->left_seq, atomic_load(&stream->context->last_seq));
    queue_close(stream);
    bury(stream);
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
    if (!s->is_legacy)
        TRY(stream_wait(s));
    else if (is_finished(s))
        TRY(context_fault(s->context));
    else
        TRY(wait_for_mark(s->context, SIM_OP_AFTER_BLOCKING, NULL));
    pool_synchronised();
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    struct CUstream_st *s;

    TRY(stream_of(stream, &s));
    TRY(not_capturing(s));
    TRY(context_fault(s->context));
    if (is_finished(s))
        return CUDA_SUCCESS;
    TRY(queue_look(atomic_load_explicit(&s->earliest_ns, memory_order_relaxed)));
    return CUDA_ERROR_NOT_READY;
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

    TRY(stream_of(stream, &s));
    NEED(event && event->magic == MAGIC_EVENT, CUDA_ERROR_INVALID_HANDLE);
    NEED(!(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    if (atomic_load(&s->capture) || atomic_load(&event->capture))
        return capture_event_wait(s, event, flags & CU_EVENT_WAIT_EXTERNAL);
    if (event->share)
        return event_share_wait(event->share, s);
    if (!atomic_load_explicit(&event->record, memory_order_acquire))
        return CUDA_SUCCESS;
    return stream_depend(s, atomic_load_explicit(&event->stream, memory_order_relaxed),
                         atomic_load_explicit(&event->number, memory_order_relaxed));
}
