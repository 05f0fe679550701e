/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One GPU of sim/model and processes that use it, in one thread and in virtual time, so that every
 * run is the same. A process is a coroutine with a struct alq_compute of its own, as the library
 * has; processes of a share have its `control` and `usage` in common. Each driver call takes time,
 * waits end late as timers do, and once a second the daemon's own time correction is reckoned from
 * NVML's whole percents, by the daemon's code.
 */
#ifndef ALQ_BENCH_ACCURACY_WORLD_H
#define ALQ_BENCH_ACCURACY_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull

#define WORLD_STREAMS 8u /* of a process, numbered from 0 */

struct world_share;
struct world_process;

/* There is one world at a time. What is opened or made ends with it; failure ends the program. */
void world_open(uint32_t sms);
void world_close(void);

/* limit_pct 0: its processes run without the library. */
struct world_share *world_share_new(uint32_t limit_pct);

/* As the daemon changes a limit: published, and waiters woken. */
void world_share_limit(struct world_share *share, uint32_t limit_pct);

/* Time in which a kernel of the share was on the GPU; contexts have it one at a time, so that sums
 * are unions. */
uint64_t world_share_busy_ns(const struct world_share *share);

/* It runs program(arg) from now on, which never returns. */
struct world_process *world_process_new(struct world_share *share, void (*program)(void *),
                                        void *arg);

/* Killed now, with all that it has on the GPU. Not from within a program. */
void world_process_kill(struct world_process *process);

uint64_t world_process_kernels(const struct world_process *process);

void world_run_until(uint64_t time_ns);
uint64_t world_now(void);

/* For programs. */

/* One launch: a function's kernel, or with kernels > 1 a graph of so many. */
void world_launch(uint32_t stream, uintptr_t function, uint32_t kernels, uint64_t kernel_ns,
                  uint32_t blocks);
void world_sync(uint32_t stream);
void world_sleep_until(uint64_t time_ns);
uint32_t world_random(void); /* of the running process */

#endif
