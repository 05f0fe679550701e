/* SPDX-License-Identifier: Apache-2.0 */
/* The correction of memory, see correct.h. Pure. */
#include "daemon/monitor/correct.h"

static int64_t less(uint64_t a, uint64_t b)
{
    return a >= b ? (int64_t)(a - b) : -(int64_t)(b - a);
}

/* INT64_MAX before there were enough readings. */
static int64_t add_high(struct alq_overhead_highs *highs, int64_t bytes)
{
    highs->bytes[highs->count++ % ALQ_REST_ROUNDS] = bytes;
    if (highs->count < ALQ_REST_ROUNDS)
        return INT64_MAX;
    for (uint32_t i = 0; i < ALQ_REST_ROUNDS; i++)
        bytes = highs->bytes[i] > bytes ? highs->bytes[i] : bytes;
    return bytes;
}

int64_t alq_correct_overhead(struct alq_overhead_highs *highs, int64_t in_force_bytes,
                             uint64_t physical_bytes, const struct alq_held *before,
                             const struct alq_held *after)
{
    const int64_t one = less(physical_bytes, before->counted_bytes + before->overhead_bytes);
    const int64_t other = less(physical_bytes, after->counted_bytes + after->overhead_bytes);
    const int64_t low = one < other ? one : other;
    const int64_t high = add_high(highs, one < other ? other : one);
    const int64_t floor = -(int64_t)after->overhead_bytes;
    int64_t bytes = in_force_bytes < low ? low : in_force_bytes > high ? high : in_force_bytes;
    return bytes < floor ? floor : bytes;
}
