/* SPDX-License-Identifier: Apache-2.0 */
/* The watch stream's parser on recorded and on broken streams. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "conformance.h"
#include "daemon/kube/watch.h"

struct seen {
    size_t count;
    enum alq_watch_type types[64];
    char versions[64][32];
    int is_expired;
};

static void see(void *arg, const struct alq_watch_event *event)
{
    struct seen *s = arg;
    assert_true(s->count < 64);
    s->types[s->count] = event->type;
    snprintf(s->versions[s->count], sizeof(s->versions[0]), "%s",
             event->resource_version ? event->resource_version : "");
    s->is_expired |= event->is_expired;
    s->count++;
}

static void feed_whole(struct seen *s, const char *text, size_t len, size_t step)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_watch *w = alq_watch_new(1 << 20, see, s);
    for (size_t at = 0; at < len; at += step)
        assert_int_equal(alq_watch_feed(w, text + at, len - at < step ? len - at : step, &err), 0);
    alq_watch_end(w);
    alq_watch_free(w);
}

static void feed_recorded_life_in_any_pieces_gives_all_events(void **state)
{
    static const size_t steps[] = {1, 2, 7, 1000, 4096, 1u << 20};
    (void)state;
    size_t len;
    char *text = conformance_text("slices/watch-life-1.34.jsonl", &len);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct seen s = {0};
        feed_whole(&s, text, len, steps[i]);
        assert_int_equal(s.count, 15);
        assert_int_equal(s.types[0], ALQ_WATCH_ADDED);
        assert_int_equal(s.types[3], ALQ_WATCH_MODIFIED);
        assert_int_equal(s.types[9], ALQ_WATCH_DELETED);
        assert_int_equal(s.types[14], ALQ_WATCH_BOOKMARK);
        assert_string_equal(s.versions[0], "413");
        assert_string_equal(s.versions[14], "485");
    }
    free(text);
}

static void feed_recorded_410_is_expired(void **state)
{
    (void)state;
    size_t len;
    struct seen s = {0};
    char *text = conformance_text("slices/watch-expired-1.36.jsonl", &len);
    feed_whole(&s, text, len, len);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.types[0], ALQ_WATCH_ERROR);
    assert_true(s.is_expired);
    free(text);
}

static void end_without_last_newline_delivers_the_event(void **state)
{
    static const char text[] =
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}";
    (void)state;
    struct seen s = {0};
    feed_whole(&s, text, sizeof(text) - 1, 10);
    assert_int_equal(s.count, 1);
    assert_string_equal(s.versions[0], "7");
}

static void end_within_an_event_drops_it_and_starts_afresh(void **state)
{
    static const char text[] =
        "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n";
    (void)state;
    struct seen s = {0};
    struct alq_watch *w = alq_watch_new(1 << 20, see, &s);
    assert_int_equal(alq_watch_feed(w, text, 20, NULL), 0);
    alq_watch_end(w);
    assert_int_equal(s.count, 0);
    assert_int_equal(alq_watch_feed(w, text, sizeof(text) - 1, NULL), 0);
    assert_int_equal(s.count, 1);
    alq_watch_free(w);
}

static void feed_bad_line_is_an_error_after_the_good_ones(void **state)
{
    static const char *const bad[] = {
        "nonsense",
        "{}",
        "[]",
        "{\"type\":\"NEW\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}",
        "{\"type\":\"ADDED\"}",
        "{\"type\":\"ADDED\",\"object\":[]}",
        "{\"type\":\"ADDED\",\"object\":{}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":7}}}",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"\"}}}",
        "{\"type\":\"ADDED\",\"type\":\"ADDED\",\"object\":{}}",
    };
    static const char good[] =
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\r\n\n";
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct seen s = {0};
        struct alq_err err = ALQ_ERR_INIT;
        char text[512];
        struct alq_watch *w = alq_watch_new(1 << 20, see, &s);
        int n = snprintf(text, sizeof(text), "%s%s\n%s", good, bad[i], good);
        if (alq_watch_feed(w, text, (size_t)n, &err) != ALQ_EPROTO)
            fail_msg("%s was taken", bad[i]);
        assert_int_equal(s.count, 1);
        assert_int_equal(alq_watch_feed(w, good, sizeof(good) - 1, NULL), ALQ_EPROTO);
        assert_int_equal(s.count, 1);
        alq_watch_free(w);
    }
}

static void feed_line_above_the_bound_is_refused(void **state)
{
    (void)state;
    static char junk[3000];
    memset(junk, ' ', sizeof(junk));
    struct seen s = {0};
    for (size_t step = 100; step <= 3000; step += 2900) {
        struct alq_watch *w = alq_watch_new(2000, see, &s);
        int rc = 0;
        for (size_t at = 0; at + step <= sizeof(junk) && !rc; at += step)
            rc = alq_watch_feed(w, junk, step, NULL);
        assert_int_equal(rc, ALQ_ERANGE);
        alq_watch_free(w);
    }
    junk[2999] = '\n';
    struct alq_watch *w = alq_watch_new(2000, see, &s);
    assert_int_equal(alq_watch_feed(w, junk, sizeof(junk), NULL), ALQ_ERANGE);
    alq_watch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(feed_recorded_life_in_any_pieces_gives_all_events),
        cmocka_unit_test(feed_recorded_410_is_expired),
        cmocka_unit_test(end_without_last_newline_delivers_the_event),
        cmocka_unit_test(end_within_an_event_drops_it_and_starts_afresh),
        cmocka_unit_test(feed_bad_line_is_an_error_after_the_good_ones),
        cmocka_unit_test(feed_line_above_the_bound_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
