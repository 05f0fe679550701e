/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry of the daemon's own series and the page as a whole, see metrics.h. Series live as
 * long as the process (alq_metric_clear excepted); one mutex guards them all.
 */
#include "daemon/monitor/metrics.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/monitor/text.h"

#define LABEL_TEXT_BYTES 160u
#define LABELS_MAX 2
#define SERIES_MAX 64u
#define OTHER "other"
#define RANGE_BYTES 256u

const struct alq_metric_row alq_metric_rows[ALQ_METRIC_COUNT] = {
#define ROW(id, type, scope, name, labels, help)                                                   \
    {ALQ_METRIC_##type, ALQ_SCOPE_##scope, name, labels, help},
#include "daemon/monitor/metrics.def"
#undef ROW
};

/* Of latencies: from a cached answer to the longest deadline of a kubelet. */
static const struct {
    int64_t ns;
    const char *text;
} buckets[] = {
    {500000, "0.0005"},  {1000000, "0.001"},    {2500000, "0.0025"},   {5000000, "0.005"},
    {10000000, "0.01"},  {25000000, "0.025"},   {50000000, "0.05"},    {100000000, "0.1"},
    {250000000, "0.25"}, {500000000, "0.5"},    {1000000000, "1.0"},   {2500000000, "2.5"},
    {5000000000, "5.0"}, {10000000000, "10.0"}, {30000000000, "30.0"}, {60000000000, "60.0"},
};
#define BUCKETS (sizeof(buckets) / sizeof(buckets[0]))

struct series {
    struct series *next;
    char *values[LABELS_MAX]; /* owned; NULL where the row has fewer labels */
    int64_t value;            /* of a histogram: observations */
    uint64_t sum_ns;
    uint64_t counts[]; /* a histogram's, not cumulated: BUCKETS */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct series *series[ALQ_METRIC_COUNT];
static struct {
    alq_metrics_collector collector;
    void *arg;
} scopes[ALQ_SCOPE_COUNT];

/* ---- counting ---------------------------------------------------------------------------------
 */

static int is_same(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static void series_free(struct series *s)
{
    for (int i = 0; s && i < LABELS_MAX; i++)
        free(s->values[i]);
    free(s);
}

static struct series *series_new(enum alq_metric_id id, const char *const values[LABELS_MAX])
{
    size_t counts = alq_metric_rows[id].type == ALQ_METRIC_HISTOGRAM ? BUCKETS : 0;
    struct series *s = calloc(1, sizeof(*s) + counts * sizeof(s->counts[0]));
    for (int i = 0; s && i < LABELS_MAX; i++) {
        if (values[i] && !(s->values[i] = strdup(values[i]))) {
            series_free(s);
            return NULL;
        }
    }
    return s;
}

/* Called with the lock. In order of first sight, so that a page differs from the last one only in
 * its numbers. */
static struct series *find(enum alq_metric_id id, const char *v0, const char *v1)
{
    const char *values[LABELS_MAX] = {v0, v1};
    struct series **at = &series[id];
    unsigned n = 0;
    for (; *at; at = &(*at)->next, n++)
        if (is_same((*at)->values[0], v0) && is_same((*at)->values[1], v1))
            return *at;
    if (n >= SERIES_MAX && v0 && strcmp(v0, OTHER) != 0)
        return find(id, OTHER, v1 ? OTHER : NULL);
    return *at = series_new(id, values);
}

void alq_metric_add(enum alq_metric_id id, uint64_t n, const char *v0, const char *v1)
{
    pthread_mutex_lock(&lock);
    struct series *s = find(id, v0, v1);
    if (s)
        s->value += (int64_t)n;
    pthread_mutex_unlock(&lock);
}

void alq_metric_set(enum alq_metric_id id, int64_t value, const char *v0, const char *v1)
{
    pthread_mutex_lock(&lock);
    struct series *s = find(id, v0, v1);
    if (s)
        s->value = value;
    pthread_mutex_unlock(&lock);
}

void alq_metric_observe(enum alq_metric_id id, int64_t ns, const char *v0, const char *v1)
{
    size_t i = 0;
    while (i < BUCKETS && ns > buckets[i].ns)
        i++;
    pthread_mutex_lock(&lock);
    struct series *s = find(id, v0, v1);
    if (s) {
        s->value++;
        s->sum_ns += ns > 0 ? (uint64_t)ns : 0;
        if (i < BUCKETS)
            s->counts[i]++;
    }
    pthread_mutex_unlock(&lock);
}

void alq_metric_clear(enum alq_metric_id id)
{
    pthread_mutex_lock(&lock);
    for (struct series *s; (s = series[id]);) {
        series[id] = s->next;
        series_free(s);
    }
    pthread_mutex_unlock(&lock);
}

/* ---- the page ---------------------------------------------------------------------------------
 */

static void label_text(const struct alq_metric_row *row, const struct series *s, char *text)
{
    const char *name = row->labels;
    text[0] = '\0';
    for (int i = 0; i < LABELS_MAX && *name; i++) {
        char one[LABEL_TEXT_BYTES];
        size_t n = strcspn(name, ",");
        memcpy(one, name, n);
        one[n] = '\0';
        alq_metrics_label(text, LABEL_TEXT_BYTES, one, s->values[i] ? s->values[i] : "");
        name += n + (name[n] == ',');
    }
}

static void render_histogram(struct alq_metrics_text *t, const struct series *s, const char *labels)
{
    uint64_t below = 0;
    for (size_t i = 0; i < BUCKETS; i++)
        alq_metrics_part(t, "_bucket", labels, buckets[i].text, below += s->counts[i]);
    alq_metrics_part(t, "_bucket", labels, "+Inf", (uint64_t)s->value);
    alq_metrics_part_seconds(t, "_sum", labels, s->sum_ns);
    alq_metrics_part(t, "_count", labels, NULL, (uint64_t)s->value);
}

static void render_series(struct alq_metrics_text *t, enum alq_metric_id id)
{
    const struct alq_metric_row *row = &alq_metric_rows[id];
    char labels[LABEL_TEXT_BYTES];
    /* A metric without labels has a value before anybody counted. */
    if (!series[id] && !*row->labels)
        find(id, NULL, NULL);
    for (const struct series *s = series[id]; s; s = s->next) {
        label_text(row, s, labels);
        if (row->type == ALQ_METRIC_HISTOGRAM)
            render_histogram(t, s, labels);
        else
            alq_metrics_i64(t, labels, NULL, s->value);
    }
}

void alq_metrics_collect(enum alq_metric_scope scope, alq_metrics_collector collector, void *arg)
{
    scopes[scope].collector = collector;
    scopes[scope].arg = arg;
}

char *alq_metrics_render(enum alq_metrics_format format, size_t *len)
{
    struct alq_metrics_text t = {.format = format};
    for (enum alq_metric_id id = 0; id < ALQ_METRIC_COUNT; id++) {
        const struct alq_metric_row *row = &alq_metric_rows[id];
        if (row->scope == ALQ_SCOPE_DAEMON) {
            alq_metrics_header(&t, row);
            pthread_mutex_lock(&lock);
            render_series(&t, id);
            pthread_mutex_unlock(&lock);
        } else if (scopes[row->scope].collector) {
            alq_metrics_header(&t, row);
            scopes[row->scope].collector(scopes[row->scope].arg, id, &t);
        }
    }
    alq_metrics_end(&t);
    if (t.is_failed) {
        free(t.data);
        return NULL;
    }
    *len = t.len;
    return t.data;
}

/* ---- content negotiation ----------------------------------------------------------------------
 */

/* The q of a media range; 1 when it has none. */
static double quality(const char *range, size_t len)
{
    char text[RANGE_BYTES];
    if (len >= sizeof(text))
        return 0;
    memcpy(text, range, len);
    text[len] = '\0';
    for (const char *at = strchr(text, ';'); at; at = strchr(at, ';')) {
        at += 1 + strspn(at + 1, " \t");
        if (!strncasecmp(at, "q=", 2))
            return strtod(at + 2, NULL);
    }
    return 1;
}

enum alq_metrics_format alq_metrics_accept(const char *accept)
{
    static const char open[] = "application/openmetrics-text", plain[] = "text/plain";
    double q_open = 0, q_plain = 0;
    for (const char *at = accept ? accept : ""; *at;) {
        at += strspn(at, " \t,");
        size_t len = strcspn(at, ",");
        size_t name = strcspn(at, ";, \t");
        double *q = NULL;
        if (name == sizeof(open) - 1 && !strncasecmp(at, open, name))
            q = &q_open;
        else if (name == sizeof(plain) - 1 && !strncasecmp(at, plain, name))
            q = &q_plain;
        if (q && quality(at, len) > *q)
            *q = quality(at, len);
        at += len;
    }
    return q_open > 0 && q_open >= q_plain ? ALQ_METRICS_OPENMETRICS : ALQ_METRICS_PROMETHEUS;
}

const char *alq_metrics_content_type(enum alq_metrics_format format)
{
    return format == ALQ_METRICS_OPENMETRICS
               ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
               : "text/plain; version=0.0.4; charset=utf-8";
}
