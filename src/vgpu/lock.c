/* SPDX-License-Identifier: Apache-2.0 */
/* The contended half of the lock in atomics.h: a short spin, then a private futex. */
#include "vgpu/atomics.h"

void alq_lock_slow(struct alq_lock *lock)
{
    for (int i = 0; i < 100; i++) {
        uint32_t expect = 0;
        alq_pause();
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(&lock->word, &expect, 1, memory_order_acquire,
                                                    memory_order_relaxed))
            return;
    }
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
        alq_sys_futex(&lock->word, ALQ_FUTEX_WAIT | ALQ_FUTEX_PRIVATE, 2, NULL, 0);
}
