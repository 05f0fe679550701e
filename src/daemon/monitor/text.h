/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of /metrics as it grows: headers, samples, numbers, labels. It has its own number
 * formatting, for a scrape writes thousands of samples and printf would be most of its cost. Pure;
 * a text that found no memory stays failed and swallows the rest.
 */
#ifndef ALQ_DAEMON_MONITOR_TEXT_H
#define ALQ_DAEMON_MONITOR_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/monitor/metrics.h"

struct alq_metrics_text {
    enum alq_metrics_format format;
    const struct alq_metric_row *row; /* whose samples are written */
    char *data;                       /* owned */
    size_t len, size;
    int is_failed; /* out of memory */
};

/* HELP and TYPE of the row; the samples that follow are its. */
void alq_metrics_header(struct alq_metrics_text *text, const struct alq_metric_row *row);

/* A sample whose name is the row's with a suffix ("_bucket"); le: the bucket's bound, or NULL. */
void alq_metrics_part(struct alq_metrics_text *text, const char *suffix, const char *labels,
                      const char *le, uint64_t value);
void alq_metrics_part_seconds(struct alq_metrics_text *text, const char *suffix, const char *labels,
                              uint64_t ns);

/* What comes after the last sample. */
void alq_metrics_end(struct alq_metrics_text *text);

#endif
