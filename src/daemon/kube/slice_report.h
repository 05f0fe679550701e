/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people are told of the published slices: each trouble once in the log, as an event of the
 * node, as a metric, and as a finding while it lasts. Loop thread only.
 */
#ifndef ALQ_DAEMON_KUBE_SLICE_REPORT_H
#define ALQ_DAEMON_KUBE_SLICE_REPORT_H

#include <jansson.h>

#include "base/err.h"
#include "base/log.h"

struct alq_events;
struct alq_findings;

/* Zero but for events (NULL: none are posted). */
struct alq_slice_report {
    struct alq_events *events;
    int is_refused;                     /* the last write was, as invalid */
    int is_contested;                   /* somebody else changes the slices all the time */
    char left_out[ALQ_ERR_TEXT_BYTES];  /* why a device is not offered; "" none */
    char dropped[300];                  /* fields that the server does not keep; "" none */
    char complaint[ALQ_ERR_TEXT_BYTES]; /* logged last, so that a lasting trouble is one line */
};

/* Logs unless it was the last complaint, but for numbers in it. */
void alq_slice_complain(struct alq_slice_report *report, enum alq_log_level level,
                        const char *text);

/* The server stored devices otherwise than they were sent. */
void alq_slice_report_dropped(struct alq_slice_report *report, const json_t *sent,
                              const json_t *stored);

/* err code 0: all devices are offered. */
void alq_slice_report_left_out(struct alq_slice_report *report, const struct alq_err *err);

/* A slice is not valid, as the server says, or our own check. */
void alq_slice_report_refused(struct alq_slice_report *report, const struct alq_err *err);

/* Slices are changed as fast as they are corrected, or (0) no longer. */
void alq_slice_report_contested(struct alq_slice_report *report, int is_contested);

void alq_slice_report_tell(const struct alq_slice_report *report, int is_missing,
                           struct alq_findings *findings);

#endif
