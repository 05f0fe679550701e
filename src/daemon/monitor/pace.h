/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a share's compute gate is kept in step with NVML where others are on its GPU. The library
 * measures also the turns of others there, or charges what it thinks its work takes; NVML tells
 * what the GPU did, in whole percents of some tenths of a second. A clock that is set by another
 * is corrected in rate and in phase, and so is this one:
 *
 *   rate   charged time counts as time_correction_ppm of itself: NVML's time over what was charged,
 *          both summed over the last seconds
 *   phase  what is left between the two sums is given back, or asked for, by and by: so the error
 *          does not add up, however the rate changes
 *
 * Pure functions.
 */
#ifndef ALQ_DAEMON_MONITOR_PACE_H
#define ALQ_DAEMON_MONITOR_PACE_H

#include <stdint.h>

/* What is known of a share. Zero to begin with. */
struct alq_pace {
    int64_t read_ns;                                  /* when charged_ns was read; 0: never */
    uint64_t read_charged_ns, end_charged_ns;         /* then, and at the end of the last window */
    uint64_t wall_ns, nvml_ns, others_ns, charged_ns; /* sums, fading over seconds */
    int64_t error_ns;    /* charged too much, with the corrections so far; GPU time */
    uint64_t unshown_ns; /* of windows: the share does something, and NVML shows nothing of it */
    uint64_t rest_ns;    /* of windows: nothing much was charged for so long */
    uint32_t ppm;        /* in force; 0: none was ever */
};

/* What happened since the last time. */
struct alq_pace_window {
    int64_t now_ns;      /* when charged_ns was read */
    uint64_t charged_ns; /* by the library, ever */
    int64_t end_ns;      /* of the time that NVML's figures are of, no later than now; 0: there are
                            none since the last time */
    uint64_t wall_ns;    /* its length; 0: they are of no use, what was charged until then is left
                            out */
    uint64_t nvml_ns;    /* of it, a kernel of the share ran */
    uint64_t others_ns;  /* likewise of all others on the GPU */
    uint32_t limit_pct;  /* of the share, at present */
};

struct alq_pace_order {
    uint32_t ppm;      /* to be in force */
    int64_t credit_ns; /* given back; negative: asked for. GPU time */
    int is_contended;  /* others are there: time is corrected */
};

/*
 * A share that is alone is not corrected. Nor is one that went on being charged for
 * ALQ_PACE_UNSHOWN_NS while NVML showed nothing of it, until it does or the share rests for as
 * long: NVML may not be able to, as of clients of MPS. Before that, a window in which NVML shows
 * nothing of a share, while the others do not explain what was charged, is left out: the share is
 * missing there.
 */
void alq_pace(struct alq_pace *pace, const struct alq_pace_window *window,
              struct alq_pace_order *out);

#define ALQ_PACE_MEMORY_NS 2000000000u
#define ALQ_PACE_UNSHOWN_NS 3000000000
#define ALQ_PACE_MIN_PPM 50000u
#define ALQ_PACE_STEP_PPM 10000u /* differences below it are not followed */

#endif
