/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What belongs to one process image: a page that a fork wipes (MADV_WIPEONFORK), with every private
 * lock of the library on it. A child so finds all locks free, whatever its parent's other threads
 * held, and learns from `alive` that it is new. Where the kernel cannot wipe (before 4.14), the pid
 * is compared instead.
 */
#ifndef ALQ_VGPU_PROCESS_H
#define ALQ_VGPU_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/atomics.h"

#define ALQ_TABLE_LOCKS 512u

struct alq_process_page {
    _Atomic uint32_t alive;       /* 1 while this is the image that filled it */
    struct alq_lock lock_core;    /* finding shares and devices, attaching */
    struct alq_lock lock_driver;  /* finding the driver */
    struct alq_lock lock_ledger;  /* this process's turn at its slots */
    struct alq_lock lock_context; /* contexts and modules known */
    struct alq_lock lock_vmm;     /* physical memory and its mappings */
    struct alq_lock lock_pool;    /* pools and graphs' memory */
    struct alq_lock lock_arena;   /* memory of the tables */
    struct alq_lock lock_compute; /* src/vgpu/compute */
    struct alq_lock lock_table[ALQ_TABLE_LOCKS];
};
static_assert(sizeof(struct alq_process_page) <= 4096, "one page");

extern struct alq_process_page *_Atomic alq_process_page_now;
struct alq_process_page *alq_process_page_make(void);

static inline struct alq_process_page *alq_process_page(void)
{
    struct alq_process_page *page =
        atomic_load_explicit(&alq_process_page_now, memory_order_acquire);
    return __builtin_expect(page != NULL, 1) ? page : alq_process_page_make();
}

bool alq_process_renew(void);

/* How many forks lie between the first image that asked and this one. */
uint32_t alq_process_generation(void);

/*
 * True once in each fork child, at its first call: what was known of slots, allocations and the
 * driver is the parent's. The caller then drops it (core.c).
 */
static inline bool alq_process_is_new(void)
{
    if (__builtin_expect(
            atomic_load_explicit(&alq_process_page()->alive, memory_order_relaxed) == 1, 1))
        return false;
    return alq_process_renew();
}

#endif
