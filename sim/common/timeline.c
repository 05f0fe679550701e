/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Span ring of timeline.h. All fields are relaxed atomics between two fences of the sequence lock;
 * a reader gives up waiting after some retries, since the writer may have died inside.
 */
#include "common/timeline.h"

#include <stddef.h>

#define READ_RETRIES 1000

static uint64_t get(_Atomic uint64_t *field)
{
    return atomic_load_explicit(field, memory_order_relaxed);
}

static void set(_Atomic uint64_t *field, uint64_t value)
{
    atomic_store_explicit(field, value, memory_order_relaxed);
}

void sim_timeline_add(struct sim_timeline *t, uint64_t start_ns, uint64_t end_ns)
{
    uint64_t count = get(&t->count);
    uint32_t lock = atomic_load_explicit(&t->lock, memory_order_relaxed);
    struct sim_span *last = count ? &t->span[(count - 1) % SIM_SPANS] : NULL;

    atomic_store_explicit(&t->lock, lock + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    if (last) {
        uint64_t from = get(&last->start_ns), to = get(&last->end_ns), busy = get(&last->busy_ns);

        if ((start_ns == to && busy == to - from) || end_ns - from <= SIM_SPAN_NS) {
            set(&last->end_ns, end_ns);
            set(&last->busy_ns, busy + (end_ns - start_ns));
            goto out;
        }
    }
    struct sim_span *next = &t->span[count % SIM_SPANS];
    uint64_t before = last ? get(&last->cumulative_ns) + get(&last->busy_ns) : 0;

    set(&next->start_ns, start_ns);
    set(&next->end_ns, end_ns);
    set(&next->busy_ns, end_ns - start_ns);
    set(&next->cumulative_ns, before);
    set(&t->count, count + 1);
out:
    atomic_store_explicit(&t->lock, lock + 2, memory_order_release);
}

static uint64_t busy_now(struct sim_timeline *t, uint64_t t_ns)
{
    uint64_t count = get(&t->count), kept = count < SIM_SPANS ? count : SIM_SPANS, before = 0;

    for (uint64_t i = 0; i < kept; i++) {
        struct sim_span *s = &t->span[(count - 1 - i) % SIM_SPANS];
        uint64_t from = get(&s->start_ns), to = get(&s->end_ns), busy = get(&s->busy_ns);

        before = get(&s->cumulative_ns);
        if (t_ns <= from)
            continue;
        if (to <= from || busy > to - from)
            return before;
        if (t_ns >= to)
            return before + busy;
        if (busy == to - from)
            return before + (t_ns - from);
        return before + (uint64_t)((unsigned __int128)busy * (t_ns - from) / (to - from));
    }
    return before;
}

uint64_t sim_timeline_busy(struct sim_timeline *t, uint64_t t_ns)
{
    uint64_t busy = 0;

    for (int i = 0; i < READ_RETRIES; i++) {
        uint32_t lock = atomic_load_explicit(&t->lock, memory_order_acquire);

        busy = busy_now(t, t_ns);
        atomic_thread_fence(memory_order_acquire);
        if (!(lock & 1) && lock == atomic_load_explicit(&t->lock, memory_order_relaxed))
            break;
    }
    return busy;
}

uint64_t sim_timeline_tail(struct sim_timeline *t, uint64_t end_ns, uint64_t now_ns)
{
    uint64_t count = get(&t->count), kept = count < SIM_SPANS ? count : SIM_SPANS, at = end_ns;

    for (uint64_t i = 0; i < kept; i++) {
        struct sim_span *s = &t->span[(count - 1 - i) % SIM_SPANS];

        if (get(&s->end_ns) != at || get(&s->start_ns) > at)
            break;
        at = get(&s->start_ns);
        if (at <= now_ns)
            return now_ns;
    }
    return at;
}
