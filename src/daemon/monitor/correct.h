/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the monitor writes into `control`, reckoned from what NVML and the library say of a share.
 * Pure functions.
 */
#ifndef ALQ_DAEMON_MONITOR_CORRECT_H
#define ALQ_DAEMON_MONITOR_CORRECT_H

#include <stdint.h>

/* What the ledger of a share held at a moment. */
struct alq_held {
    uint64_t counted_bytes;
    uint64_t overhead_bytes; /* estimates of contexts and modules, slack */
};

/*
 * The signed correction of overhead: physical bytes (NVML, summed over the share's processes) less
 * the ledger. The ledger moves while NVML is being read, so it is read before and after, and what
 * both allow is a range. It raises the correction in force at once. A lower one is a different
 * matter: bytes of a call that is under way are in the ledger before the driver has taken them, and
 * still after it has let them go, so one reading may be too low by these, and a correction that
 * follows it lets others take what is not there. So the correction comes down to the highest of
 * the last ALQ_REST_ROUNDS readings only. It takes back estimates at most, never bytes that a
 * program asked for: these may be physical later.
 */
#define ALQ_REST_ROUNDS                                                                            \
    8u /* seconds; a call that lasts longer than that is in a stopped process                      \
        */

/* Zero to begin with. */
struct alq_overhead_highs {
    int64_t bytes[ALQ_REST_ROUNDS];
    uint32_t count;
};

int64_t alq_correct_overhead(struct alq_overhead_highs *highs, int64_t in_force_bytes,
                             uint64_t physical_bytes, const struct alq_held *before,
                             const struct alq_held *after);

/* Differences below it are not written. */
#define ALQ_CORRECTION_STEP_BYTES (64ll << 10)

/* What happened since the last time. */
struct alq_time_window {
    uint64_t wall_ns;
    uint64_t nvml_ns;    /* in which a kernel of the share ran, as NVML says */
    uint64_t others_ns;  /* likewise of all others on the GPU */
    uint64_t charged_ns; /* what the library measured */
};

/* Sums over the last seconds, older ones fading. Zero to begin with. */
struct alq_time_sums {
    uint64_t nvml_ns, charged_ns;
};

/*
 * The correction of time: NVML's time over the library's. Where processes of several shares take
 * turns on a GPU, the library measures also the turns of the others; so it is below one there, and
 * one where the share is alone. Whole percents are too coarse for a second, so both are summed over
 * some, and each second goes half the way down. Up it goes at once, by the last second alone where
 * that says more even with NVML's rounding: what is too low lets the share pass its limit. Where
 * NVML shows a percent now and then of a share that is charged for much, it falls; where NVML shows
 * nothing of it, it stays. A second in which NVML shows nothing of it and not enough of the others
 * to explain what was charged is left out: the sample lacks the share.
 */
uint32_t alq_correct_time(struct alq_time_sums *sums, uint32_t in_force_ppm,
                          const struct alq_time_window *window);

#define ALQ_TIME_CORRECTION_MIN_PPM 50000u
#define ALQ_TIME_CORRECTION_STEP_PPM 10000u /* differences below it are not written */

#endif
