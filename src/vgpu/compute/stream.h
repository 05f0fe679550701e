/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams of a process as the gate sees them, and the batch that each is filling. Inside
 * src/vgpu/compute. Fields of a stream are read and written under its try-lock, apart from the key
 * and what alq_stream_make sets once.
 */
#ifndef ALQ_VGPU_COMPUTE_STREAM_H
#define ALQ_VGPU_COMPUTE_STREAM_H

#include "vgpu/compute/compute.h"

static inline bool alq_stream_try_lock(struct alq_compute_stream *st)
{
    uint32_t expect = 0;
    return atomic_compare_exchange_strong_explicit(&st->lock, &expect, 1, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void alq_stream_unlock(struct alq_compute_stream *st)
{
    atomic_store_explicit(&st->lock, 0, memory_order_release);
}

static inline CUstream alq_stream_canonical(CUstream stream)
{
    return stream ? stream : CU_STREAM_LEGACY;
}

static inline bool alq_stream_is_default(CUstream stream)
{
    return (uintptr_t)stream <= (uintptr_t)CU_STREAM_PER_THREAD;
}

/* Spins for a lock that is held over a few instructions or a driver call of ours; false: it was not
 * to be had. */
bool alq_stream_lock(struct alq_compute *c, struct alq_compute_stream *st);
bool alq_measure_spin_enter(struct alq_compute *c);

/* What a stream is known by: its handle, with the context and the thread where these decide which
 * stream it is. */
uint64_t alq_stream_key(struct alq_compute *c, CUstream stream, uintptr_t thread);

struct alq_compute_stream *alq_stream_at(struct alq_compute *c, uint64_t key);

/* Takes a place for a stream of the current context. NULL when there is none near its home: it is
 * then charged by estimate alone. */
struct alq_compute_stream *alq_stream_make(struct alq_compute *c, uint64_t key, CUstream stream,
                                           uint32_t device);

/* With the stream's lock and the measuring lock: forgets the batch that is being filled, or ends it
 * here with an event and hands it to be read back. entry: it was this launch alone. */
void alq_stream_drop_batch(struct alq_compute *c, struct alq_compute_stream *st);
void alq_stream_end_batch(struct alq_compute *c, struct alq_compute_stream *st, CUstream stream,
                          uint8_t share, struct alq_estimate *entry);

/*
 * Before a wait at the gate: what was launched so far is measured without it, by ending the batches
 * of all streams of the device, if their work pays for it. In spans that held the wait, streams
 * that ran side by side would seem to have had room one after the other. `own` is the calling
 * thread's stream, or NULL where no event may be put into it. Other default streams are left alone
 * (an event in the legacy one is a barrier), and those where an event may not follow a launch.
 */
void alq_stream_end_all(struct alq_compute *c, struct alq_compute_device *dev,
                        struct alq_compute_stream *own, CUstream own_handle, uint8_t share);

/* Gives up the stream's place. */
void alq_stream_end(struct alq_compute *c, struct alq_compute_stream *st);

#endif
