/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Busy time of usage.h. Almost every addition falls into the period of the last one.
 */
#include "model/usage.h"

/* Makes `period` the newest one, the periods skipped empty. */
static void move_to(struct sim_usage *u, uint64_t period)
{
    uint64_t first = u->period_end_ns ? u->period + 1 : 0;

    if (period >= SIM_PERIODS && first < period - SIM_PERIODS + 1)
        first = period - SIM_PERIODS + 1;
    for (uint64_t p = first; p <= period; p++)
        u->in[p % SIM_PERIODS] = 0;
    u->period = period;
    u->period_end_ns = (period + 1) * SIM_PERIOD_NS;
}

void sim_usage_add(struct sim_usage *u, uint64_t from_ns, uint64_t to_ns)
{
    u->busy_ns += to_ns - from_ns;
    while (to_ns > u->period_end_ns) {
        if (from_ns < u->period_end_ns) {
            u->in[u->period % SIM_PERIODS] += u->period_end_ns - from_ns;
            from_ns = u->period_end_ns;
        }
        move_to(u, from_ns / SIM_PERIOD_NS);
    }
    u->in[u->period % SIM_PERIODS] += to_ns - from_ns;
}

uint64_t sim_usage_of(const struct sim_usage *u, uint64_t period)
{
    if (!u->period_end_ns || period > u->period || u->period - period >= SIM_PERIODS)
        return 0;
    return u->in[period % SIM_PERIODS];
}
