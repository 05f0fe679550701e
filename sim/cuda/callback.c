/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads of callback.h. Each serves one stream's items in order and ends when there is none
 * left, so that a function that waits holds up its own stream only. The lock is held while an item
 * becomes an operation of its stream, for both must be in the same order; never while one runs.
 */
#include "cuda/callback.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define POLL_FIRST_NS 20000L
#define POLL_LAST_NS 2000000L

struct item {
    struct item *next;
    uint32_t index; /* its operation */
    uint64_t number;
    void (*effect)(void *what); /* one of these three */
    bool (*is_over)(void *what);
    CUhostFn function;
    CUstreamCallback callback;
    void *data;
    CUstream stream;
    const struct CUctx_st *context;
    char what[];
};

/* The items of one stream, by its index. */
struct line {
    struct line *next;
    uint32_t index;
    struct item *first, **last;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct line *lines;
static _Atomic uint64_t pending;

void callback_run(CUhostFn function, void *data)
{
    bool was = thread_state.is_callback;

    thread_state.is_callback = true;
    function(data);
    thread_state.is_callback = was;
}

/* Sleeps between looks, longer and longer. */
static void poll_until_over(const struct item *i)
{
    struct timespec pause = {0, POLL_FIRST_NS};

    while (!i->is_over((void *)i->what)) {
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < POLL_LAST_NS)
            pause.tv_nsec *= 2;
    }
}

static void run(struct item *i)
{
    bool is_alive = stream_host_begin(i->index, i->number);

    if (i->callback) {
        CUresult status = is_alive ? context_fault(i->context) : CUDA_ERROR_DEVICE_UNAVAILABLE;

        thread_state.is_callback = true;
        i->callback(i->stream, status, i->data);
        thread_state.is_callback = false;
    } else if (is_alive && i->function) {
        callback_run(i->function, i->data);
    } else if (is_alive && i->effect) {
        i->effect(i->what);
    } else if (is_alive && i->is_over) {
        poll_until_over(i);
    }
    stream_host_end(i->index, i->number);
}

/* Takes the line off when there is nothing more in it. */
static struct item *take(struct line *l)
{
    struct item *i;

    pthread_mutex_lock(&lock);
    i = l->first;
    if (i) {
        l->first = i->next;
        if (!l->first)
            l->last = &l->first;
    } else {
        struct line **at = &lines;

        while (*at != l)
            at = &(*at)->next;
        *at = l->next;
    }
    pthread_mutex_unlock(&lock);
    return i;
}

static void *serve(void *arg)
{
    struct line *l = arg;
    struct item *i;

    while ((i = take(l))) {
        run(i);
        atomic_fetch_sub(&pending, 1);
        free(i);
    }
    free(l);
    return NULL;
}

/* Signals are the program's threads' to handle. */
static bool start(struct line *l)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    bool is_started;

    if (pthread_attr_init(&attr) != 0)
        return false;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    is_started = pthread_create(&thread, &attr, serve, l) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return is_started;
}

static struct line *line_of(uint32_t index)
{
    struct line *l;

    for (l = lines; l && l->index != index; l = l->next)
        ;
    return l;
}

/* The item's operation is in the stream: somebody must run it. */
static CUresult enqueue(struct item *i)
{
    struct line *l = line_of(i->index);
    bool is_new = !l;

    if (is_new) {
        l = calloc(1, sizeof(*l));
        NEED(l, CUDA_ERROR_OUT_OF_MEMORY);
        l->index = i->index;
        l->last = &l->first;
        l->next = lines;
        lines = l;
    }
    *l->last = i;
    l->last = &i->next;
    if (is_new && !start(l)) {
        lines = l->next;
        free(l);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Takes over the item. */
static CUresult push(struct CUstream_st *s, struct item *i, uint32_t blocks)
{
    CUresult rc;

    NEED(i, CUDA_ERROR_OUT_OF_MEMORY);
    atomic_fetch_add(&pending, 1);
    pthread_mutex_lock(&lock);
    rc = i->is_over && blocks ? stream_spin(s, blocks, &i->index, &i->number)
                              : stream_host(s, &i->index, &i->number);
    if (rc == CUDA_SUCCESS) {
        uint32_t index = i->index;
        uint64_t number = i->number;

        rc = enqueue(i);
        if (rc != CUDA_SUCCESS) /* nobody will: let the stream go on */
            stream_host_end(index, number);
    }
    pthread_mutex_unlock(&lock);
    if (rc != CUDA_SUCCESS) {
        atomic_fetch_sub(&pending, 1);
        free(i);
    }
    return rc;
}

static struct item *item_new(const void *what, size_t bytes)
{
    struct item *i = calloc(1, sizeof(*i) + bytes);

    if (i && bytes)
        memcpy(i->what, what, bytes);
    return i;
}

CUresult callback_push(struct CUstream_st *stream, CUhostFn function, void *data)
{
    struct item *i = item_new(NULL, 0);

    NEED(i, CUDA_ERROR_OUT_OF_MEMORY);
    i->function = function;
    i->data = data;
    return push(stream, i, 0);
}

CUresult effect_queue(struct CUstream_st *stream, void (*effect)(void *what), const void *what,
                      size_t bytes)
{
    struct item *i = item_new(what, bytes);

    NEED(i, CUDA_ERROR_OUT_OF_MEMORY);
    i->effect = effect;
    return push(stream, i, 0);
}

bool effect_is_due(void)
{
    return atomic_load_explicit(&pending, memory_order_acquire) != 0;
}

CUresult effect_push(struct CUstream_st *stream, void (*effect)(void *what), const void *what,
                     size_t bytes)
{
    if (effect_is_due())
        return effect_queue(stream, effect, what, bytes);
    effect((void *)(uintptr_t)what);
    return CUDA_SUCCESS;
}

CUresult spin_push(struct CUstream_st *stream, uint32_t blocks, bool (*is_over)(void *what),
                   const void *what, size_t bytes)
{
    struct item *i = item_new(what, bytes);

    NEED(i, CUDA_ERROR_OUT_OF_MEMORY);
    i->is_over = is_over;
    return push(stream, i, blocks);
}

/* Entry points */

static CUresult stream_meant(CUstream handle, struct CUstream_st **stream)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(!thread_state.is_callback, CUDA_ERROR_NOT_PERMITTED);
    return stream_of(handle, stream);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    struct CUstream_st *s;

    TRY(stream_meant(stream, &s));
    NEED(function, CUDA_ERROR_INVALID_VALUE);
    if (atomic_load_explicit(&s->capture, memory_order_relaxed))
        return capture_host(s, function, data);
    if (s->is_legacy && capture_implicit(s->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return callback_push(s, function, data);
}

/* The older form is told how the stream fared, and cannot be captured. */
CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data,
                             unsigned int flags)
{
    struct CUstream_st *s;
    struct item *i;

    TRY(stream_meant(stream, &s));
    NEED(callback && !flags, CUDA_ERROR_INVALID_VALUE);
    if (atomic_load_explicit(&s->capture, memory_order_relaxed)) {
        capture_invalidate(s);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (s->is_legacy && capture_implicit(s->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    i = item_new(NULL, 0);
    NEED(i, CUDA_ERROR_OUT_OF_MEMORY);
    i->callback = callback;
    i->data = data;
    i->stream = stream;
    i->context = s->context;
    return push(s, i, 0);
}
