/* SPDX-License-Identifier: Apache-2.0 */
/* Corrections, see correct.h. Pure. */
#include "daemon/monitor/correct.h"

#include "aliquot/share.h"

#define FADE_NUM 3u /* of the old sums, three quarters stay: a memory of four seconds */
#define FADE_DEN 4u
#define SIGNIFICANT_PCT 3u /* of a window; below it NVML's whole percents tell nothing */

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

static uint64_t fade(uint64_t sum)
{
    return sum / FADE_DEN * FADE_NUM;
}

static uint32_t half_way(uint32_t from, uint32_t to)
{
    uint32_t there = from < to ? to - from : from - to;
    if (there < 2 * ALQ_TIME_CORRECTION_STEP_PPM)
        return to; /* half of it would never be written */
    return from < to ? from + there / 2 : from - there / 2;
}

static uint64_t ratio_ppm(uint64_t nvml_ns, uint64_t charged_ns)
{
    return nvml_ns / (charged_ns / ALQ_TIME_CORRECTION_ONE + 1);
}

/* Is the ratio of the last second above that of the sums, by more than NVML's rounding? Then what
 * was measured before was measured otherwise. */
static int is_risen(const struct alq_time_sums *sums, const struct alq_time_window *w)
{
    const uint64_t rounding_ns = w->wall_ns / 100;
    return w->nvml_ns > rounding_ns && w->charged_ns > w->wall_ns / 100 * SIGNIFICANT_PCT &&
           ratio_ppm(w->nvml_ns - rounding_ns, w->charged_ns) >
               ratio_ppm(sums->nvml_ns, sums->charged_ns);
}

/* As NVML shows the share. */
static uint64_t shown_ppm(const struct alq_time_sums *sums, uint32_t in_force_ppm,
                          uint64_t least_ns)
{
    /* Nothing at all may mean that NVML cannot tell, as of clients of MPS. */
    if (sums->charged_ns < least_ns || sums->nvml_ns == 0)
        return in_force_ppm;
    if (sums->nvml_ns >= least_ns)
        return ratio_ppm(sums->nvml_ns, sums->charged_ns);
    /* All that whole percents tell: it was no more than this. A share that is charged for others'
     * turns until hardly anything is left to it gets out of there so. */
    uint64_t ppm = ratio_ppm(sums->nvml_ns + least_ns, sums->charged_ns);
    return ppm < in_force_ppm ? ppm : in_force_ppm;
}

/* NVML shows nothing of the share, and the turns of the others do not explain what was charged. */
static int is_missing(const struct alq_time_window *w, uint64_t least_ns)
{
    return !w->nvml_ns && w->others_ns && w->charged_ns > w->others_ns + least_ns;
}

uint32_t alq_correct_time(struct alq_time_sums *sums, uint32_t in_force_ppm,
                          const struct alq_time_window *w)
{
    const uint64_t least_ns = w->wall_ns / 100 * SIGNIFICANT_PCT;
    uint64_t ppm = ALQ_TIME_CORRECTION_ONE;
    if (!in_force_ppm)
        in_force_ppm = ALQ_TIME_CORRECTION_ONE;
    if (is_missing(w, least_ns))
        return in_force_ppm;
    sums->nvml_ns = fade(sums->nvml_ns) + w->nvml_ns;
    sums->charged_ns = fade(sums->charged_ns) + w->charged_ns;
    if (w->others_ns) {
        if (is_risen(sums, w))
            *sums = (struct alq_time_sums){w->nvml_ns, w->charged_ns};
        ppm = shown_ppm(sums, in_force_ppm, least_ns);
    }
    if (ppm > ALQ_TIME_CORRECTION_ONE)
        ppm = ALQ_TIME_CORRECTION_ONE;
    if (ppm < ALQ_TIME_CORRECTION_MIN_PPM)
        ppm = ALQ_TIME_CORRECTION_MIN_PPM;
    return ppm > in_force_ppm ? (uint32_t)ppm : half_way(in_force_ppm, (uint32_t)ppm);
}
