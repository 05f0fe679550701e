/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a cell and says how well its limit was held. */
#ifndef ALQ_BENCH_ACCURACY_RUN_H
#define ALQ_BENCH_ACCURACY_RUN_H

#include "cells.h"

/* Percentages are of wall time; negative: not judged in this cell. */
struct result {
    double target_pct; /* the limit, or what the share would get without one if that is less */
    double mean_pct;   /* after the first second */
    double error_pct;  /* points; against the whole of target_pct or, where the limit changes, the
                          worst of its times */
    double sd_1s_pct;  /* of the windows of a second around their mean */
    double settle_ms;  /* from the start, or the worst change of a limit, until windows of half a
                          second stay within 5 points */
    double lost_pct;   /* alone: what the share got less than the target, of the target */
    double drift_pct;  /* mean of the last tenth less that of the first */
    uint64_t kernels;
    uint64_t measured_ns;
};

void run_cell(const struct cell *cell, struct result *out);

#endif
