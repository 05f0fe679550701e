/* SPDX-License-Identifier: Apache-2.0 */
/* Exposition text, see text.h. Formats: Prometheus text 0.0.4 and OpenMetrics 1.0.0. */
#include "daemon/monitor/text.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 32
#define NS_PER_S 1000000000u
#define FIRST_BYTES 4096u

static const char *const type_names[] = {
    [ALQ_METRIC_COUNTER] = "counter",
    [ALQ_METRIC_GAUGE] = "gauge",
    [ALQ_METRIC_HISTOGRAM] = "histogram",
};

/* Room for n more bytes, or NULL. */
static char *room(struct alq_metrics_text *t, size_t n)
{
    if (t->is_failed)
        return NULL;
    if (t->size - t->len < n) {
        size_t size = t->size ? t->size : FIRST_BYTES;
        while (size - t->len < n)
            size *= 2;
        char *data = realloc(t->data, size);
        if (!data) {
            t->is_failed = 1;
            return NULL;
        }
        t->data = data;
        t->size = size;
    }
    return t->data + t->len;
}

static void put(struct alq_metrics_text *t, const char *bytes, size_t n)
{
    char *to = room(t, n);
    if (!to)
        return;
    memcpy(to, bytes, n);
    t->len += n;
}

static void put_text(struct alq_metrics_text *t, const char *text)
{
    put(t, text, strlen(text));
}

/* Decimal digits that end at end; returns where they begin. */
static char *digits_before(char *end, uint64_t value)
{
    do {
        *--end = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return end;
}

static void put_number(struct alq_metrics_text *t, uint64_t value)
{
    char buf[NUMBER_BYTES], *end = buf + sizeof(buf);
    *--end = '\n';
    const char *begin = digits_before(end, value);
    put(t, begin, (size_t)(buf + sizeof(buf) - begin));
}

/* Nanoseconds as seconds, without needless zeros. */
static void put_seconds(struct alq_metrics_text *t, uint64_t ns)
{
    char buf[NUMBER_BYTES], *end = buf + sizeof(buf);
    uint64_t fraction = ns % NS_PER_S;
    *--end = '\n';
    if (fraction) {
        unsigned places = 9;
        for (; fraction % 10 == 0; places--)
            fraction /= 10;
        for (; places; places--, fraction /= 10)
            *--end = (char)('0' + fraction % 10);
        *--end = '.';
    }
    const char *begin = digits_before(end, ns / NS_PER_S);
    put(t, begin, (size_t)(buf + sizeof(buf) - begin));
}

/* A counter's family has no _total in OpenMetrics; its samples have. */
static void put_family(struct alq_metrics_text *t, const char *what)
{
    size_t n = strlen(t->row->name);
    if (t->format == ALQ_METRICS_OPENMETRICS && t->row->type == ALQ_METRIC_COUNTER)
        n -= strlen("_total");
    put_text(t, what);
    put(t, t->row->name, n);
}

void alq_metrics_header(struct alq_metrics_text *t, const struct alq_metric_row *row)
{
    t->row = row;
    put_family(t, "# HELP ");
    put_text(t, " ");
    put_text(t, row->help);
    put_family(t, "\n# TYPE ");
    put_text(t, " ");
    put_text(t, type_names[row->type]);
    put_text(t, "\n");
}

static void put_name(struct alq_metrics_text *t, const char *suffix, const char *labels,
                     const char *extra)
{
    int has_labels = labels && *labels, has_extra = extra && *extra;
    put_text(t, t->row->name);
    put_text(t, suffix);
    if (has_labels || has_extra) {
        put_text(t, "{");
        if (has_labels)
            put_text(t, labels);
        if (has_labels && has_extra)
            put_text(t, ",");
        if (has_extra)
            put_text(t, extra);
        put_text(t, "}");
    }
    put_text(t, " ");
}

void alq_metrics_u64(struct alq_metrics_text *t, const char *labels, const char *extra,
                     uint64_t value)
{
    put_name(t, "", labels, extra);
    put_number(t, value);
}

void alq_metrics_i64(struct alq_metrics_text *t, const char *labels, const char *extra,
                     int64_t value)
{
    put_name(t, "", labels, extra);
    if (value < 0)
        put_text(t, "-");
    put_number(t, value < 0 ? -(uint64_t)value : (uint64_t)value);
}

void alq_metrics_seconds(struct alq_metrics_text *t, const char *labels, const char *extra,
                         uint64_t ns)
{
    put_name(t, "", labels, extra);
    put_seconds(t, ns);
}

void alq_metrics_part(struct alq_metrics_text *t, const char *suffix, const char *labels,
                      const char *le, uint64_t value)
{
    char bound[NUMBER_BYTES] = "";
    if (le)
        alq_metrics_label(bound, sizeof(bound), "le", le);
    put_name(t, suffix, labels, bound);
    put_number(t, value);
}

void alq_metrics_part_seconds(struct alq_metrics_text *t, const char *suffix, const char *labels,
                              uint64_t ns)
{
    put_name(t, suffix, labels, NULL);
    put_seconds(t, ns);
}

void alq_metrics_end(struct alq_metrics_text *t)
{
    if (t->format == ALQ_METRICS_OPENMETRICS)
        put_text(t, "# EOF\n");
}

int alq_metrics_label(char *labels, size_t size, const char *name, const char *value)
{
    const size_t before = strlen(labels);
    size_t at = before;
    /* Each step leaves room for the closing quote and the NUL. */
    const size_t name_len = strlen(name);
    if (at + 1 + name_len + 2 + 2 > size)
        return -1;
    if (at)
        labels[at++] = ',';
    memcpy(labels + at, name, name_len);
    at += name_len;
    labels[at++] = '=';
    labels[at++] = '"';
    for (; *value; value++) {
        if (at + 4 > size) {
            labels[before] = '\0';
            return -1;
        }
        if (*value == '\\' || *value == '"' || *value == '\n')
            labels[at++] = '\\';
        labels[at++] = *value == '\n' ? 'n' : *value;
    }
    labels[at++] = '"';
    labels[at] = '\0';
    return 0;
}
