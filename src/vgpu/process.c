/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/process.h"

struct alq_process_page *_Atomic alq_process_page_now;

static _Atomic uint32_t generation;

/* Used where no page can be mapped; not wiped. */
static struct alq_process_page spare;
static _Atomic uint32_t watched_pid; /* 0: the kernel wipes the page */

struct alq_process_page *alq_process_page_make(void)
{
    struct alq_process_page *expect = NULL, *page = alq_sys_anon(4096);

    if (!page || alq_sys_madvise(page, 4096, ALQ_MADV_WIPEONFORK) != 0)
        atomic_store_explicit(&watched_pid, alq_sys_getpid(), memory_order_relaxed);
    if (!page)
        page = &spare;
    atomic_store_explicit(&page->alive,
                          atomic_load_explicit(&watched_pid, memory_order_relaxed) ? 2 : 1,
                          memory_order_relaxed);
    if (atomic_compare_exchange_strong_explicit(&alq_process_page_now, &expect, page,
                                                memory_order_acq_rel, memory_order_acquire))
        return page;
    if (page != &spare)
        alq_sys_munmap(page, 4096);
    return expect;
}

bool alq_process_renew(void)
{
    struct alq_process_page *page = alq_process_page();
    uint32_t pid = atomic_load_explicit(&watched_pid, memory_order_relaxed);

    if (pid) {
        uint32_t now = alq_sys_getpid();
        if (now == pid)
            return false;
        atomic_store_explicit(&watched_pid, now, memory_order_relaxed);
        /* One thread runs in a fork child: nobody holds a lock that is still meant. */
        *page = (struct alq_process_page){.alive = 2};
    } else {
        uint32_t expect = 0;
        if (!atomic_compare_exchange_strong_explicit(&page->alive, &expect, 1, memory_order_acq_rel,
                                                     memory_order_relaxed))
            return false;
    }
    atomic_fetch_add_explicit(&generation, 1, memory_order_relaxed);
    return true;
}

uint32_t alq_process_generation(void)
{
    return atomic_load_explicit(&generation, memory_order_relaxed);
}
