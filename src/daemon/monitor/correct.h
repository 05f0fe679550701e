/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The correction of memory that the monitor writes into `control`, reckoned from what NVML and the
 * library say of a share. Pure functions.
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

#endif
