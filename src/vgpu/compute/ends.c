/* SPDX-License-Identifier: Apache-2.0 */
/* Captures, and what ends: streams, graphs, functions, contexts. Threading: as compute.h says. */
#include "vgpu/compute/stream.h"

#define RELAXED memory_order_relaxed

void alq_compute_capture_begin(struct alq_compute *c, CUstream stream)
{
    struct alq_compute_stream *st =
        alq_stream_at(c, alq_stream_key(c, alq_stream_canonical(stream), 0));
    if (!st || !alq_stream_try_lock(st))
        return;
    if (st->is_open && alq_measure_enter(&c->measure)) {
        alq_stream_end_batch(c, st, stream, 0, NULL);
        alq_measure_leave(&c->measure);
    }
    alq_stream_unlock(st);
}

void alq_compute_capture_began(struct alq_compute *c, CUstream stream, CUresult rc)
{
    if (rc != CUDA_SUCCESS)
        return;
    for (uint32_t i = 0; i < ALQ_CAPTURES; i++) {
        uint64_t expect = 0;
        if (__atomic_compare_exchange_n(&c->capturing[i], &expect,
                                        (uint64_t)(uintptr_t)alq_stream_canonical(stream), false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            break;
    }
    atomic_fetch_add_explicit(&c->captures, 1, memory_order_seq_cst);
}

/* The capture of a stream is over; `found` when it was in the list. */
static bool uncapture(struct alq_compute *c, CUstream stream)
{
    for (uint32_t i = 0; i < ALQ_CAPTURES; i++) {
        uint64_t expect = (uint64_t)(uintptr_t)alq_stream_canonical(stream);
        if (__atomic_compare_exchange_n(&c->capturing[i], &expect, 0, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return true;
    }
    return false;
}

static void one_capture_less(struct alq_compute *c)
{
    uint32_t n = atomic_load_explicit(&c->captures, RELAXED);
    while (n && !atomic_compare_exchange_weak_explicit(&c->captures, &n, n - 1, RELAXED, RELAXED))
        continue;
}

void alq_compute_capture_ended(struct alq_compute *c, CUstream stream, CUresult rc)
{
    /* Asked in vain: the capture goes on. Every other answer, an invalidated capture too, ends it.
     */
    if (rc == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD || rc == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ||
        rc == CUDA_ERROR_ILLEGAL_STATE || rc == CUDA_ERROR_INVALID_VALUE ||
        rc == CUDA_ERROR_INVALID_HANDLE)
        return;
    uncapture(c, stream);
    one_capture_less(c);
}

void alq_compute_stream_gone(struct alq_compute *c, CUstream stream)
{
    if (alq_stream_is_default(stream))
        return;
    if (uncapture(c, stream))
        one_capture_less(c);
    struct alq_compute_stream *st = alq_stream_at(c, alq_stream_key(c, stream, 0));
    if (st)
        alq_stream_end(c, st);
}

void alq_compute_graph_gone(struct alq_compute *c, CUgraphExec exec)
{
    alq_estimate_forget_graph(&c->estimates, exec);
}

void alq_compute_functions_gone(struct alq_compute *c)
{
    alq_estimates_doubt(&c->estimates);
}

void alq_compute_context_made(struct alq_compute *c, CUcontext context)
{
    static_assert(ALQ_CONTEXTS < 255, "index of a context");
    if (!context || !alq_measure_spin_enter(c))
        return;
    uint32_t known = 0;
    bool is_new = true;
    for (uint32_t i = 0; i < ALQ_CONTEXTS; i++) {
        known += c->measure.contexts[i].handle != NULL;
        is_new = is_new && c->measure.contexts[i].handle != context;
    }
    if (is_new)
        alq_measure_context(c, context);
    /* Never lowered: once there were two, whose a default stream is is asked for good. */
    if (known + is_new > atomic_load_explicit(&c->context_count, RELAXED))
        atomic_store_explicit(&c->context_count, known + is_new, RELAXED);
    alq_measure_leave(&c->measure);
}

void alq_compute_context_gone(struct alq_compute *c, CUcontext context)
{
    if (!context)
        return;
    for (uint32_t i = 0; i < ALQ_STREAMS; i++) {
        uint64_t key = __atomic_load_n(&c->streams[i].key, __ATOMIC_ACQUIRE);
        if (key > 2 /* a stream, not a free place */ && c->streams[i].context_handle == context)
            alq_stream_end(c, &c->streams[i]);
    }
    if (alq_measure_spin_enter(c)) {
        alq_measure_context_gone(c, context, true);
        alq_measure_leave(&c->measure);
    }
}
