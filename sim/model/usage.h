/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Busy time: the total, and how much of it fell into each of the last periods of 1/6 s, NVML's
 * sample period. Periods are counted from the clock's zero. Pure functions.
 */
#ifndef SIM_MODEL_USAGE_H
#define SIM_MODEL_USAGE_H

#include <stdint.h>

#define SIM_PERIOD_NS 166666667ull
#define SIM_PERIODS 64u /* kept: 10 s */

struct sim_usage {
    uint64_t busy_ns;
    uint64_t period;          /* the newest with busy time */
    uint64_t period_end_ns;   /* 0 before the first */
    uint64_t in[SIM_PERIODS]; /* by period % SIM_PERIODS; those after period - SIM_PERIODS */
};

/* Busy from one time to another; not before what was added last. */
void sim_usage_add(struct sim_usage *usage, uint64_t from_ns, uint64_t to_ns);

/* Busy nanoseconds in that period; 0 of one that is not kept. */
uint64_t sim_usage_of(const struct sim_usage *usage, uint64_t period);

/* Percent of a period, rounded to a whole number. */
static inline uint32_t sim_usage_percent(uint64_t busy_ns)
{
    uint64_t pct = (busy_ns * 100 + SIM_PERIOD_NS / 2) / SIM_PERIOD_NS;

    return pct > 100 ? 100 : (uint32_t)pct;
}

/* The last period that is over at that time. */
static inline uint64_t sim_usage_last_period(uint64_t now_ns)
{
    return now_ns < SIM_PERIOD_NS ? 0 : now_ns / SIM_PERIOD_NS - 1;
}

#endif
