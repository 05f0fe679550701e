/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of /metrics: counting, both formats, content negotiation, and the table against docs.
 * The registry is the process's, so each test uses metrics of its own or clears them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/monitor/metrics.h"

static char *page(enum alq_metrics_format format)
{
    size_t len = 0;
    char *text = alq_metrics_render(format, &len);
    assert_non_null(text);
    text = realloc(text, len + 1);
    text[len] = '\0';
    return text;
}

static void assert_has(enum alq_metrics_format format, const char *line)
{
    alq_auto_free char *text = page(format);
    if (!strstr(text, line))
        fail_msg("no %s in %s", line, text);
}

static void add_twice_sums_in_one_series(void **state)
{
    (void)state;
    alq_metric_add(ALQ_METRIC_API_REQUESTS, 2, "get", "200");
    alq_metric_add(ALQ_METRIC_API_REQUESTS, 3, "get", "200");
    alq_metric_add(ALQ_METRIC_API_REQUESTS, 1, "get", "404");
    assert_has(ALQ_METRICS_PROMETHEUS, "aliquot_api_requests_total{verb=\"get\",code=\"200\"} 5\n"
                                       "aliquot_api_requests_total{verb=\"get\",code=\"404\"} 1\n");
    alq_metric_clear(ALQ_METRIC_API_REQUESTS);
}

static void set_negative_value_is_shown(void **state)
{
    (void)state;
    alq_metric_set(ALQ_METRIC_GPUS, -3, NULL, NULL);
    assert_has(ALQ_METRICS_PROMETHEUS, "aliquot_gpus -3\n");
    alq_metric_clear(ALQ_METRIC_GPUS);
}

static void render_uncounted_metric_without_labels_is_zero(void **state)
{
    (void)state;
    assert_has(ALQ_METRICS_PROMETHEUS, "# TYPE aliquot_prepared_claims gauge\n"
                                       "aliquot_prepared_claims 0\n");
}

static void observe_latencies_cumulates_buckets(void **state)
{
    (void)state;
    const int64_t ms = 1000000;
    alq_metric_observe(ALQ_METRIC_API_REQUEST_DURATION, ms, "get", NULL); /* a bound is inside */
    alq_metric_observe(ALQ_METRIC_API_REQUEST_DURATION, 30 * ms, "get", NULL);
    alq_metric_observe(ALQ_METRIC_API_REQUEST_DURATION, 100000 * ms, "get", NULL);
    assert_has(ALQ_METRICS_PROMETHEUS,
               "aliquot_api_request_duration_seconds_bucket{verb=\"get\",le=\"0.0005\"} 0\n"
               "aliquot_api_request_duration_seconds_bucket{verb=\"get\",le=\"0.001\"} 1\n");
    assert_has(ALQ_METRICS_PROMETHEUS,
               "aliquot_api_request_duration_seconds_bucket{verb=\"get\",le=\"60.0\"} 2\n"
               "aliquot_api_request_duration_seconds_bucket{verb=\"get\",le=\"+Inf\"} 3\n"
               "aliquot_api_request_duration_seconds_sum{verb=\"get\"} 100.031\n"
               "aliquot_api_request_duration_seconds_count{verb=\"get\"} 3\n");
    alq_metric_clear(ALQ_METRIC_API_REQUEST_DURATION);
}

static void add_label_values_without_end_counts_the_rest_under_other(void **state)
{
    (void)state;
    char kind[24];
    for (int i = 0; i < 1000; i++) {
        snprintf(kind, sizeof(kind), "kind-%d", i);
        alq_metric_add(ALQ_METRIC_ERRORS, 1, kind, NULL);
    }
    assert_has(ALQ_METRICS_PROMETHEUS, "aliquot_errors_total{kind=\"kind-63\"} 1\n"
                                       "aliquot_errors_total{kind=\"other\"} 936\n");
    alq_metric_clear(ALQ_METRIC_ERRORS);
}

static void render_openmetrics_names_family_without_total_and_ends(void **state)
{
    (void)state;
    alq_auto_free char *text = page(ALQ_METRICS_OPENMETRICS);
    alq_metric_add(ALQ_METRIC_EVENTS, 7, "posted", NULL);
    assert_has(ALQ_METRICS_OPENMETRICS, "# TYPE aliquot_events counter\n"
                                        "aliquot_events_total{result=\"posted\"} 7\n");
    assert_string_equal(text + strlen(text) - 6, "# EOF\n");
    alq_metric_clear(ALQ_METRIC_EVENTS);
}

static void label_special_characters_are_escaped(void **state)
{
    (void)state;
    char labels[64] = "";
    assert_int_equal(alq_metrics_label(labels, sizeof(labels), "a", "x\"y\\z\n"), 0);
    assert_int_equal(alq_metrics_label(labels, sizeof(labels), "b", ""), 0);
    assert_string_equal(labels, "a=\"x\\\"y\\\\z\\n\",b=\"\"");
}

static void label_without_room_leaves_labels_unchanged(void **state)
{
    (void)state;
    for (size_t size = 6; size < 14; size++) {
        alq_auto_free char *labels = strdup("a=\"b\"");
        labels = realloc(labels, size); /* a byte too far is seen by the sanitizer */
        assert_int_equal(alq_metrics_label(labels, size, "c", "\"\"\""), -1);
        assert_string_equal(labels, "a=\"b\"");
    }
}

static void accept_header_chooses_the_format(void **state)
{
    static const struct {
        const char *accept;
        enum alq_metrics_format format;
    } rows[] = {
        {NULL, ALQ_METRICS_PROMETHEUS},
        {"", ALQ_METRICS_PROMETHEUS},
        {"*/*", ALQ_METRICS_PROMETHEUS},
        {"text/plain", ALQ_METRICS_PROMETHEUS},
        {"application/openmetrics-text", ALQ_METRICS_OPENMETRICS},
        {"Application/OpenMetrics-Text; version=1.0.0", ALQ_METRICS_OPENMETRICS},
        {"application/openmetrics-text;q=0", ALQ_METRICS_PROMETHEUS},
        {"application/openmetrics-text; q=0.2, text/plain; q=0.5", ALQ_METRICS_PROMETHEUS},
        {"application/openmetrics-text-x", ALQ_METRICS_PROMETHEUS},
        /* Prometheus 2 and 3 */
        {"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;"
         "q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
         ALQ_METRICS_OPENMETRICS},
        {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
         "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,"
         "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
         ALQ_METRICS_OPENMETRICS},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (alq_metrics_accept(rows[i].accept) != rows[i].format)
            fail_msg("%s", rows[i].accept ? rows[i].accept : "(none)");
}

/* ---- the table and docs/metrics.md ------------------------------------------------------------
 */

static void rows_keep_the_naming_rules(void **state)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    (void)state;
    for (int i = 0; i < ALQ_METRIC_COUNT; i++) {
        const struct alq_metric_row *row = &alq_metric_rows[i];
        const char *end = row->name + strlen(row->name) - strlen("_total");
        int is_total = !strcmp(end, "_total");
        if (strncmp(row->name, row->scope < ALQ_SCOPE_HAMI_GPU ? "aliquot_" : "hami_", 5) != 0 ||
            is_total != !strcmp(types[row->type], "counter"))
            fail_msg("%s", row->name);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(row->name, alq_metric_rows[j].name);
        assert_null(strpbrk(row->help, "\n\\|"));
    }
}

static void docs_list_exactly_the_rows(void **state)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    alq_auto_free char *docs = NULL;
    size_t len, listed = 0;
    (void)state;
    assert_int_equal(alq_file_read(ALQ_DOCS_DIR "/metrics.md", 1 << 20, &docs, &len, NULL), 0);
    for (int i = 0; i < ALQ_METRIC_COUNT; i++) {
        const struct alq_metric_row *row = &alq_metric_rows[i];
        char labels[256] = "", line[1024];
        for (const char *at = row->labels; *at;) {
            size_t n = strcspn(at, ",");
            snprintf(labels + strlen(labels), sizeof(labels) - strlen(labels), "%s%.*s",
                     *labels ? ", " : "", (int)n, at);
            at += n + (at[n] == ',');
        }
        snprintf(line, sizeof(line), "\n| `%s` | %s | %s | %s |\n", row->name, types[row->type],
                 labels, row->help);
        if (!strstr(docs, line))
            fail_msg("docs/metrics.md has no line%s", line);
    }
    for (const char *at = docs; (at = strstr(at, "\n| `")); at++)
        listed++;
    assert_int_equal(listed, ALQ_METRIC_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(add_twice_sums_in_one_series),
        cmocka_unit_test(set_negative_value_is_shown),
        cmocka_unit_test(render_uncounted_metric_without_labels_is_zero),
        cmocka_unit_test(observe_latencies_cumulates_buckets),
        cmocka_unit_test(add_label_values_without_end_counts_the_rest_under_other),
        cmocka_unit_test(render_openmetrics_names_family_without_total_and_ends),
        cmocka_unit_test(label_special_characters_are_escaped),
        cmocka_unit_test(label_without_room_leaves_labels_unchanged),
        cmocka_unit_test(accept_header_chooses_the_format),
        cmocka_unit_test(rows_keep_the_naming_rules),
        cmocka_unit_test(docs_list_exactly_the_rows),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
