/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's figures for /metrics. metrics.def has one row per metric; who has something to count
 * calls alq_metric_add and friends with the row's id, and who knows the figures of many things
 * (shares, GPUs) registers a collector for the rows of his scope. Any thread may count; the rest is
 * the loop's. Nothing here blocks or fails: without memory a new series is not shown.
 *
 * Counting takes a mutex that is held for some comparisons and allocates only for a series (a
 * combination of label values) not seen before. A metric keeps 64 series; what comes after those is
 * counted under "other".
 */
#ifndef ALQ_DAEMON_MONITOR_METRICS_H
#define ALQ_DAEMON_MONITOR_METRICS_H

#include <stddef.h>
#include <stdint.h>

enum alq_metric_type { ALQ_METRIC_COUNTER, ALQ_METRIC_GAUGE, ALQ_METRIC_HISTOGRAM };

enum alq_metric_scope {
    ALQ_SCOPE_DAEMON,
    ALQ_SCOPE_GPU,
    ALQ_SCOPE_SHARE,
    ALQ_SCOPE_HAMI_GPU, /* names that HAMi's vGPUmonitor has, with --hami-metrics */
    ALQ_SCOPE_HAMI_SHARE,
    ALQ_SCOPE_COUNT
};

/* ALQ_METRIC_<ID OF THE ROW> */
enum alq_metric_id {
#define ROW(id, type, scope, name, labels, help) ALQ_METRIC_##id,
#include "daemon/monitor/metrics.def"
#undef ROW
    ALQ_METRIC_COUNT
};

struct alq_metric_row {
    enum alq_metric_type type;
    enum alq_metric_scope scope;
    const char *name, *labels, *help;
};
extern const struct alq_metric_row alq_metric_rows[ALQ_METRIC_COUNT];

/* v0 and v1: values of the row's labels in its order, NULL where it has fewer. They are copied. */
void alq_metric_add(enum alq_metric_id id, uint64_t n, const char *v0, const char *v1);
void alq_metric_set(enum alq_metric_id id, int64_t value, const char *v0, const char *v1);
void alq_metric_observe(enum alq_metric_id id, int64_t ns, const char *v0, const char *v1);

/* Forgets the series of a metric whose label values are a state of now (aliquot_library_info). */
void alq_metric_clear(enum alq_metric_id id);

/* ---- rendering */

enum alq_metrics_format { ALQ_METRICS_PROMETHEUS, ALQ_METRICS_OPENMETRICS };

/* The format that an Accept header (NULL: none) prefers, and its Content-Type. */
enum alq_metrics_format alq_metrics_accept(const char *accept);
const char *alq_metrics_content_type(enum alq_metrics_format format);

struct alq_metrics_text;

/* Writes the samples of one row; called in the order of the rows, for each of its scope. */
typedef void (*alq_metrics_collector)(void *arg, enum alq_metric_id id,
                                      struct alq_metrics_text *text);
/* One a scope; NULL takes it away. */
void alq_metrics_collect(enum alq_metric_scope scope, alq_metrics_collector collector, void *arg);

/* For collectors. labels: `name="value",...` without braces, made by alq_metrics_label once and
 * kept as long as the thing lives, since a scrape writes them some thousand times. extra: more of
 * the same, or NULL. */
void alq_metrics_u64(struct alq_metrics_text *text, const char *labels, const char *extra,
                     uint64_t value);
void alq_metrics_i64(struct alq_metrics_text *text, const char *labels, const char *extra,
                     int64_t value);
void alq_metrics_seconds(struct alq_metrics_text *text, const char *labels, const char *extra,
                         uint64_t ns);

/* Appends `name="value"`, escaped, after a comma where labels holds something. -1: no room; labels
 * is unchanged. */
int alq_metrics_label(char *labels, size_t size, const char *name, const char *value);

/* The whole page, malloc'ed; NULL when out of memory. */
char *alq_metrics_render(enum alq_metrics_format format, size_t *len);

#endif
