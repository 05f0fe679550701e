/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When a client's kernels ran on a device, past and (since ends are known at launch) to come. The
 * writer appends intervals in order; touching ones grow into one span, and intervals within a
 * millisecond share a span with the busy part counted, so that 2,048 spans always reach back well
 * over NVML's sample period. Readers use a sequence lock and never block the writer. Times are
 * CLOCK_MONOTONIC nanoseconds given by the caller. Pure functions over shared memory.
 */
#ifndef SIM_COMMON_TIMELINE_H
#define SIM_COMMON_TIMELINE_H

#include "common/layout.h"

/* Intervals that end within this of their span's start share it. */
#define SIM_SPAN_NS 1000000ull

/* Writer: kernels run from start to end; start is not before the end of the last interval. */
void sim_timeline_add(struct sim_timeline *timeline, uint64_t start_ns, uint64_t end_ns);

/* Busy nanoseconds up to time t, exact unless t lies inside a shared span (then in proportion) or
 * before the oldest span kept (then what was busy before that span). A dead writer's half-written
 * span counts as far as it makes sense. */
uint64_t sim_timeline_busy(struct sim_timeline *timeline, uint64_t t_ns);

/* Start of the unbroken queue that ends at end_ns (>= now), or end_ns if this client's queue ends
 * elsewhere: where the device becomes free when this client dies. */
uint64_t sim_timeline_tail(struct sim_timeline *timeline, uint64_t end_ns, uint64_t now_ns);

#endif
