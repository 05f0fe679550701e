/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a share's control file by the protocol of aliquot/share.h: the copy that is not in force,
 * then the sequence, then a wake. Prepare has the limits and the monitor the corrections, on
 * different workers, so all publications of the process take turns. Blocking; any thread.
 */
#ifndef ALQ_DAEMON_PREPARE_CONTROL_H
#define ALQ_DAEMON_PREPARE_CONTROL_H

#include "aliquot/share.h"
#include "base/err.h"

/* Of time, by NVML. */
struct alq_time_correction {
    uint32_t ppm;      /* of what is charged */
    int64_t credit_ns; /* GPU time given back; negative: asked for */
    int is_contended;  /* others are on the GPU */
    uint64_t until_ns; /* CLOCK_MONOTONIC; ppm and is_contended hold to this time */
};

/* Publishes limits where they differ from those in force; the corrections in force stay. fd is open
 * for reading and writing, what names the file in errors. ALQ_EIO. */
int alq_control_publish(int fd, const struct alq_control_values *limits, const char *what,
                        struct alq_err *err);

/* Likewise the correction of overhead, added to what the ledger holds; all else stays. ALQ_EPROTO:
 * not a control file of ours. */
int alq_control_correct(int fd, int64_t overhead_bytes, const char *what, struct alq_err *err);

/* Likewise the correction of time; the credit is added to what was given before. */
int alq_control_pace(int fd, const struct alq_time_correction *correction, const char *what,
                     struct alq_err *err);

/*
 * Lends pct of the GPU in place of the share's limit until until_ns (CLOCK_MONOTONIC); 0: nothing,
 * and the share knows that somebody lends. Who waits is woken where pct is another than before.
 * Errors as alq_control_correct.
 */
int alq_control_lend(int fd, uint32_t pct, uint64_t until_ns, const char *what,
                     struct alq_err *err);

#endif
