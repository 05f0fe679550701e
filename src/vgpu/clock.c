/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/clock.h"

#include <stdatomic.h>
#include <stddef.h>

#include "vgpu/elf.h"
#include "vgpu/sys.h"

#define CLOCK_REALTIME_ID 0
#define CLOCK_MONOTONIC_ID 1
#define CLOCK_MONOTONIC_COARSE_ID 6
#define CLOCK_BOOTTIME_ID 7

struct timespec64 {
    int64_t sec;
    int64_t nsec;
};

typedef int clock_fn(int id, struct timespec64 *out);

static int clock_by_syscall(int id, struct timespec64 *out)
{
    return (int)alq_syscall6(__NR_clock_gettime, id, (long)out, 0, 0, 0, 0);
}

/* NULL until the first use. Written with the same value by whoever comes first. */
static _Atomic(clock_fn *) chosen;

static __attribute__((noinline)) clock_fn *choose(void)
{
#if defined(__x86_64__)
    const char *name = "__vdso_clock_gettime";
#else
    const char *name = "__kernel_clock_gettime";
#endif
    struct alq_elf vdso;
    clock_fn *fn = NULL;
    if (alq_elf_find_vdso(&vdso))
        fn = (clock_fn *)alq_elf_symbol(&vdso, name);
    if (!fn)
        fn = clock_by_syscall;
    atomic_store_explicit(&chosen, fn, memory_order_release);
    return fn;
}

static inline uint64_t read_clock(int id)
{
    clock_fn *fn = atomic_load_explicit(&chosen, memory_order_acquire);
    struct timespec64 ts = {0, 0};
    if (__builtin_expect(!fn, 0))
        fn = choose();
    fn(id, &ts);
    return (uint64_t)ts.sec * 1000000000u + (uint64_t)ts.nsec;
}

uint64_t alq_clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC_ID);
}

uint64_t alq_clock_realtime_ns(void)
{
    return read_clock(CLOCK_REALTIME_ID);
}

uint64_t alq_clock_coarse_ns(void)
{
    return read_clock(CLOCK_MONOTONIC_COARSE_ID);
}

uint64_t alq_clock_boottime_ns(void)
{
    return read_clock(CLOCK_BOOTTIME_ID);
}
