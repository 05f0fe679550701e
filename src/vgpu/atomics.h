/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 16-byte compare-and-swap that the ledger stands on, written out so that neither libatomic nor
 * a newer instruction set is needed (every x86-64 that carries a GPU has cmpxchg16b; aarch64 uses
 * the exclusive pair), the processor's pause, and a futex lock for the threads of one process. A
 * lock lies on a page that a fork wipes, so a child finds it free.
 */
#ifndef ALQ_VGPU_ATOMICS_H
#define ALQ_VGPU_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "aliquot/share.h"
#include "vgpu/sys.h"

/* Sequentially consistent. False when *pair was not {value, tag} of expect; expect is left as it
 * was. */
static inline bool alq_pair_cas(struct alq_pair *pair, struct alq_pair expect,
                                struct alq_pair desired)
{
#if defined(__x86_64__)
    bool ok;
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(ok), "+m"(*pair), "+a"(expect.value), "+d"(expect.tag)
                     : "b"(desired.value), "c"(desired.tag)
                     : "memory");
    return ok;
#elif defined(__aarch64__)
    uint64_t value, tag;
    uint32_t failed;
    do {
        __asm__ volatile("ldaxp %0, %1, %2" : "=&r"(value), "=&r"(tag) : "Q"(*pair) : "memory");
        if (value != expect.value || tag != expect.tag) {
            /* Written back, so that what was read is known to be one value and not two halves. */
            __asm__ volatile("stlxp %w0, %2, %3, %1"
                             : "=&r"(failed), "=Q"(*pair)
                             : "r"(value), "r"(tag)
                             : "memory");
            if (!failed)
                return false;
            continue;
        }
        __asm__ volatile("stlxp %w0, %2, %3, %1"
                         : "=&r"(failed), "=Q"(*pair)
                         : "r"(desired.value), "r"(desired.tag)
                         : "memory");
    } while (failed);
    return true;
#else
#error "no 16-byte compare-and-swap for this architecture"
#endif
}

/*
 * Two acquire loads, tag first. The halves may come from different moments: what a caller does with
 * the pair must be right for the tag alone and for the value alone, or be confirmed by
 * alq_pair_cas.
 */
static inline struct alq_pair alq_pair_load(const struct alq_pair *pair)
{
    struct alq_pair out;
    out.tag = __atomic_load_n(&pair->tag, __ATOMIC_ACQUIRE);
    out.value = __atomic_load_n(&pair->value, __ATOMIC_ACQUIRE);
    return out;
}

static inline void alq_pause(void)
{
#if defined(__x86_64__)
    __asm__ volatile("pause");
#else
    __asm__ volatile("yield");
#endif
}

/* 0 free, 1 held, 2 held and somebody may sleep. */
struct alq_lock {
    _Atomic uint32_t word;
};

void alq_lock_slow(struct alq_lock *lock);

static inline void alq_lock_take(struct alq_lock *lock)
{
    uint32_t expect = 0;
    if (!atomic_compare_exchange_strong_explicit(&lock->word, &expect, 1, memory_order_acquire,
                                                 memory_order_relaxed))
        alq_lock_slow(lock);
}

static inline void alq_lock_drop(struct alq_lock *lock)
{
    if (atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)
        alq_sys_futex(&lock->word, ALQ_FUTEX_WAKE | ALQ_FUTEX_PRIVATE, 1, NULL, 0);
}

#endif
