/* SPDX-License-Identifier: Apache-2.0 */
/* The table of streams and their batches. Threading: as stream.h says. */
#include "vgpu/compute/stream.h"

#define KEY_FREE 0ull
#define KEY_GONE 1ull
#define KEY_MAKING 2ull
#define PROBES 8u
#define LOCK_TURNS 2000

#define RELAXED memory_order_relaxed

bool alq_stream_lock(struct alq_compute *c, struct alq_compute_stream *st)
{
    for (int i = 0; i < LOCK_TURNS; i++) {
        if (alq_stream_try_lock(st))
            return true;
        c->driver.relax();
    }
    return false;
}

bool alq_measure_spin_enter(struct alq_compute *c)
{
    for (int i = 0; i < LOCK_TURNS; i++) {
        if (alq_measure_enter(&c->measure))
            return true;
        c->driver.relax();
    }
    return false;
}

uint64_t alq_stream_key(struct alq_compute *c, CUstream stream, uintptr_t thread)
{
    uint64_t key = (uint64_t)(uintptr_t)stream * 0x9e3779b97f4a7c15ull;
    if (alq_stream_is_default(stream)) {
        CUcontext current = NULL;
        if (stream == CU_STREAM_PER_THREAD)
            key ^= (uint64_t)thread * 0xc2b2ae3d27d4eb4full;
        if (atomic_load_explicit(&c->context_count, RELAXED) > 1 &&
            c->driver.context_current(&current) == CUDA_SUCCESS)
            key ^= (uint64_t)(uintptr_t)current * 0xd6e8feb86659fd93ull;
    }
    return key | 1ull << 63;
}

struct alq_compute_stream *alq_stream_at(struct alq_compute *c, uint64_t key)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        struct alq_compute_stream *st = &c->streams[((key >> 40) + i) % ALQ_STREAMS];
        uint64_t at = __atomic_load_n(&st->key, __ATOMIC_ACQUIRE);
        if (at == key)
            return st;
        if (at == KEY_FREE)
            break;
    }
    return NULL;
}

struct alq_compute_stream *alq_stream_make(struct alq_compute *c, uint64_t key, CUstream stream,
                                           uint32_t device)
{
    for (uint32_t i = 0; i < PROBES; i++) {
        struct alq_compute_stream *st = &c->streams[((key >> 40) + i) % ALQ_STREAMS];
        uint64_t at = __atomic_load_n(&st->key, __ATOMIC_ACQUIRE);
        if (at == key)
            return st;
        if ((at != KEY_FREE && at != KEY_GONE) ||
            !__atomic_compare_exchange_n(&st->key, &at, KEY_MAKING, false, __ATOMIC_ACQUIRE,
                                         __ATOMIC_RELAXED))
            continue;
        CUcontext current = NULL;
        uint32_t index = ALQ_CONTEXTS;
        if (c->driver.context_current(&current) != CUDA_SUCCESS)
            current = NULL;
        alq_compute_context_made(c, current);
        if (current && alq_measure_spin_enter(c)) {
            index = alq_measure_context(c, current);
            alq_measure_leave(&c->measure);
        }
        st->device = (uint8_t)device;
        st->context = (uint8_t)index;
        st->context_handle = current;
        __atomic_store_n(&st->stream, alq_stream_is_default(stream) ? NULL : stream,
                         __ATOMIC_RELAXED);
        st->is_open = st->is_unknown = st->is_plural = st->is_wide = st->is_gapped =
            st->is_joining = st->is_timing = st->is_mixed = false;
        st->from = st->last = ALQ_NO_EVENT;
        st->launches = st->batch_launches = 0;
        st->work_ns = st->charged_ns = 0;
        st->entry = NULL;
        __atomic_store_n(&st->key, key, __ATOMIC_RELEASE);
        atomic_fetch_add_explicit(&c->stream_count, 1, RELAXED);
        return st;
    }
    return NULL;
}

void alq_stream_drop_batch(struct alq_compute *c, struct alq_compute_stream *st)
{
    alq_measure_drop(c, st->from);
    st->from = ALQ_NO_EVENT;
    st->is_open = st->is_timing = false;
    st->work_ns = st->charged_ns = 0;
    st->is_unknown = st->is_plural = st->is_wide = st->is_gapped = false;
}

void alq_stream_end_batch(struct alq_compute *c, struct alq_compute_stream *st, CUstream stream,
                          uint8_t share, struct alq_estimate *entry)
{
    struct alq_compute_device *dev = &c->devices[st->device];
    uint16_t to =
        alq_measure_has_room(dev) ? alq_measure_record(c, dev, st->context, stream) : ALQ_NO_EVENT;
    alq_measure_drop(c, st->last);
    st->last = to;
    if (!to) {
        if (entry)
            __atomic_store_n(&entry->probing, 0, __ATOMIC_RELAXED);
        alq_stream_drop_batch(c, st);
        return;
    }
    struct alq_batch batch = {
        .is_single = entry != NULL,
        .is_after_gap = st->is_after_gap,
        .moment = st->moment,
        .is_wide = st->is_wide,
        .is_joining = st->is_joining,
        .is_gapped = st->is_gapped,
        .is_unknown = st->is_unknown,
        .is_plural = st->is_plural,
        .launches = st->batch_launches,
        .share = share,
        .from = st->from,
        .to = to,
        .issued_ns = st->issued_ns,
        .work_ns = st->work_ns,
        .charged_ns = st->charged_ns,
        .entry = entry ? entry : st->entry,
    };
    alq_measure_hold(c, to);
    alq_measure_push(c, dev, &batch);
    st->from = ALQ_NO_EVENT;
    st->is_open = st->is_timing = false;
    st->is_unknown = st->is_plural = st->is_wide = st->is_gapped = false;
    st->work_ns = st->charged_ns = 0;
    st->batch_launches = 0;
    st->entry = NULL;
}

/* Locks a stream with an open batch that may be ended from this thread, now. */
static bool lock_open(struct alq_compute *c, const struct alq_compute_device *dev,
                      struct alq_compute_stream *st, bool is_own)
{
    if (!alq_stream_try_lock(st))
        return false;
    /* Nobody gives the place up, or takes it, while the lock is held. */
    if (__atomic_load_n(&st->key, __ATOMIC_ACQUIRE) > KEY_MAKING &&
        &c->devices[st->device] == dev && st->is_open && !st->is_timing &&
        (is_own || (__atomic_load_n(&st->stream, __ATOMIC_RELAXED) && !st->is_joining)))
        return true;
    alq_stream_unlock(st);
    return false;
}

void alq_stream_end_all(struct alq_compute *c, struct alq_compute_device *dev,
                        struct alq_compute_stream *own, CUstream own_handle, uint8_t share)
{
    struct alq_compute_stream *open[ALQ_OPEN_STREAMS];
    uint32_t count = 0, others = atomic_load_explicit(&c->stream_count, RELAXED);
    if (!alq_measure_enter(&c->measure))
        return;
    int64_t pays_ns = dev->budget_ns > 0 ? dev->budget_ns : 0;
    if (own) {
        others--;
        if (lock_open(c, dev, own, true))
            open[count++] = own;
    }
    for (uint32_t i = 0; i < ALQ_STREAMS && others && count < ALQ_OPEN_STREAMS; i++) {
        struct alq_compute_stream *st = &c->streams[i];
        if (st == own || __atomic_load_n(&st->key, __ATOMIC_ACQUIRE) <= KEY_MAKING)
            continue;
        others--;
        if (!lock_open(c, dev, st, false))
            continue;
        uint32_t at = count++;
        for (; at > 0 && open[at - 1]->issued_ns > st->issued_ns; at--)
            open[at] = open[at - 1];
        open[at] = st;
    }
    for (uint32_t i = 0; i < count; i++)
        pays_ns += (int64_t)open[i]->work_ns;
    const bool is_paid =
        pays_ns >= (int64_t)count * (count > 1 ? ALQ_CALL_COST_NS : 3 * ALQ_CALL_COST_NS);
    for (uint32_t i = 0; i < count; i++) {
        CUstream stream =
            open[i] == own ? own_handle : __atomic_load_n(&open[i]->stream, __ATOMIC_RELAXED);
        if (is_paid && stream) /* which may be about to end */
            alq_stream_end_batch(c, open[i], stream, share, NULL);
        alq_stream_unlock(open[i]);
    }
    atomic_store_explicit(&dev->open_streams, count, RELAXED);
    alq_measure_leave(&c->measure);
}

/* Whoever holds the lock may be about to put an event into the stream, so it is waited for; in vain
 * only where that thread had no processor all the while. */
static bool lock_to_end(struct alq_compute *c, struct alq_compute_stream *st)
{
    uint64_t now = c->driver.now_ns(), until = now + ALQ_OWN_WAIT_NS;
    const uint32_t word = 0;
    __atomic_store_n(&st->stream, NULL, __ATOMIC_RELAXED);
    while (!alq_stream_lock(c, st)) {
        if (now >= until)
            return false;
        c->driver.wait_until(&word, 0, now + ALQ_OWN_WAIT_NS / 20);
        now = c->driver.now_ns();
    }
    return true;
}

void alq_stream_end(struct alq_compute *c, struct alq_compute_stream *st)
{
    if (!lock_to_end(c, st))
        return;
    if (alq_measure_spin_enter(c)) {
        if (st->is_open || st->is_timing)
            alq_stream_drop_batch(c, st);
        alq_measure_drop(c, st->last);
        alq_measure_leave(&c->measure);
    }
    uint64_t launches = st->launches;
    uint8_t device = st->device;
    st->is_open = st->is_timing = false;
    st->from = st->last = ALQ_NO_EVENT;
    st->launches = 0;
    __atomic_store_n(&st->key, KEY_GONE, __ATOMIC_RELEASE);
    atomic_fetch_sub_explicit(&c->stream_count, 1, RELAXED);
    alq_stream_unlock(st);
    if (launches)
        alq_compute_count(c, &c->devices[device], launches, 0);
}
