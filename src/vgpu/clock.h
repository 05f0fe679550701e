/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time, through the kernel's vDSO where it has one (about 20 ns, no system call), else by system
 * call. Nanoseconds. Any thread.
 */
#ifndef ALQ_VGPU_CLOCK_H
#define ALQ_VGPU_CLOCK_H

#include <stdint.h>

uint64_t alq_clock_ns(void);          /* CLOCK_MONOTONIC */
uint64_t alq_clock_realtime_ns(void); /* CLOCK_REALTIME: what NVML stamps samples with */
uint64_t alq_clock_coarse_ns(
    void); /* CLOCK_MONOTONIC_COARSE: behind by up to a tick (1 to 4 ms), about 5 ns */
uint64_t alq_clock_boottime_ns(
    void); /* CLOCK_BOOTTIME: what files carry, the same for every process of the node */

#endif
