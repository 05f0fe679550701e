/* SPDX-License-Identifier: Apache-2.0 */
/* Events: what is sent, how often, and what becomes of what cannot be sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "daemon/kube/event_object.h"
#include "daemon/kube/events.h"
#include "kube_world.h"

#define EVENTS "/apis/events.k8s.io/v1/namespaces/default/events"
#define MINUTE (60 * SECOND)

static struct alq_events *events;

static int start(void **state)
{
    (void)state;
    kube_start();
    events = alq_events_new(&kube.cfg, NULL, &kube.clock, NULL);
    return events ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    alq_events_free(events);
    kube_end();
    return 0;
}

static void post_about(unsigned claim, const char *note)
{
    char name[32], uid[32];
    snprintf(name, sizeof(name), "claim-%u", claim);
    snprintf(uid, sizeof(uid), "uid-%u", claim);
    const struct alq_event event = {ALQ_EVENT_WARNING, "PrepareFailed", "Prepare", note};
    alq_events_claim(events, &event, "default", name, uid);
}

static void post(const char *note)
{
    post_about(1, note);
}

static const char *body_text(const char *path)
{
    const char *text = alq_json_str(kube.open.body, path);
    return text ? text : "(none)";
}

static void post_about_a_claim_creates_an_event_with_all_that_the_server_wants(void **state)
{
    (void)state;
    post("no room");
    kube_expect("POST", EVENTS);
    assert_string_equal(kube.open.path, EVENTS);
    assert_string_equal(body_text("kind"), "Event");
    assert_string_equal(body_text("apiVersion"), "events.k8s.io/v1");
    assert_string_equal(body_text("metadata.namespace"), "default");
    assert_memory_equal(body_text("metadata.name"), "claim-1.", 8);
    assert_int_equal(strlen(body_text("metadata.name")), 8 + 16);
    assert_string_equal(body_text("reportingController"), "aliquot.dev/aliquotd");
    assert_string_equal(body_text("reportingInstance"), "node-a");
    assert_string_equal(body_text("action"), "Prepare");
    assert_string_equal(body_text("reason"), "PrepareFailed");
    assert_string_equal(body_text("type"), "Warning");
    assert_string_equal(body_text("note"), "no room");
    assert_string_equal(body_text("regarding.kind"), "ResourceClaim");
    assert_string_equal(body_text("regarding.namespace"), "default");
    assert_string_equal(body_text("regarding.uid"), "uid-1");
    assert_int_equal(strlen(body_text("eventTime")), strlen("2026-01-01T00:00:00.000000Z"));
    assert_null(json_object_get(kube.open.body, "series"));
    kube_answer(201, "{}");
    assert_int_equal(alq_events_stats(events).posted, 1);
}

static void post_about_the_node_goes_to_namespace_default_without_naming_it(void **state)
{
    (void)state;
    const struct alq_event event = {ALQ_EVENT_NORMAL, "Reason", "Action", "text"};
    alq_events_node(events, &event);
    kube_expect("POST", EVENTS);
    assert_string_equal(body_text("regarding.kind"), "Node");
    assert_string_equal(body_text("regarding.uid"), "node-a");
    assert_null(alq_json_at(kube.open.body, "regarding.namespace"));
    kube_answer(201, "{}");
}

static void post_of_the_same_again_is_one_event_with_a_series(void **state)
{
    (void)state;
    post("no room");
    kube_answer(201, "{}");
    for (int i = 0; i < 5; i++)
        post("no room");
    assert_null(kube.open.cb);
    kube_pass(11 * SECOND);
    const struct kube_request *r = kube_expect("PATCH", EVENTS "/claim-1.");
    assert_string_equal(r->content_type, "application/merge-patch+json");
    assert_int_equal(json_integer_value(alq_json_at(r->body, "series.count")), 6);
    assert_int_equal(strlen(body_text("series.lastObservedTime")), 27);
    kube_answer(200, "{}");
    kube_pass(60 * MINUTE);
    assert_null(kube.open.cb);
}

static void post_of_the_same_for_an_hour_is_told_ever_more_seldom(void **state)
{
    (void)state;
    for (int i = 0; i < 3600 / 5; i++) {
        post("no room");
        if (kube.open.cb)
            kube_answer(200, "{}");
        kube_pass(5 * SECOND);
    }
    if (kube.open.cb)
        kube_answer(200, "{}");
    assert_in_range(kube.asked, 6, 13);
}

static void post_with_another_note_is_a_new_event_after_the_pause(void **state)
{
    (void)state;
    post("held by a");
    kube_answer(201, "{}");
    post("held by b");
    post("held by c");
    assert_null(kube.open.cb);
    kube_pass(11 * SECOND);
    kube_expect("POST", EVENTS);
    assert_string_equal(body_text("note"), "held by c");
    kube_answer(201, "{}");
}

static void post_while_being_sent_is_not_lost(void **state)
{
    (void)state;
    post("one");
    post("two");
    assert_string_equal(body_text("note"), "one");
    kube_answer(201, "{}");
    kube_pass(11 * SECOND);
    kube_expect("POST", EVENTS);
    assert_string_equal(body_text("note"), "two");
    post("two");
    kube_answer(201, "{}");
    kube_pass(21 * SECOND);
    kube_expect("PATCH", EVENTS);
    kube_answer(200, "{}");
}

static void post_about_a_claim_and_its_pods_asks_who_they_are(void **state)
{
    (void)state;
    const struct alq_event event = {ALQ_EVENT_WARNING, "GPUUnhealthy", "Watch", "XID 79"};
    alq_events_claim_and_pods(events, &event, "team", "c", "u1");
    kube_expect("POST", "/namespaces/team/events");
    kube_answer(201, "{}");
    kube_expect("GET", "/resourceclaims/team/c");
    kube_answer(200, "{\"metadata\": {\"uid\": \"u1\"}, \"status\": {\"reservedFor\": ["
                     "{\"resource\": \"pods\", \"name\": \"p1\", \"uid\": \"x1\"},"
                     "{\"resource\": \"other\", \"name\": \"o\", \"uid\": \"x2\"}, 7,"
                     "{\"resource\": \"pods\", \"name\": \"p2\", \"uid\": \"x3\"}]}}");
    for (int i = 0; i < 2; i++) {
        kube_expect("POST", "/namespaces/team/events");
        assert_string_equal(body_text("regarding.kind"), "Pod");
        assert_string_equal(body_text("regarding.apiVersion"), "v1");
        assert_string_equal(body_text("regarding.uid"), i ? "x3" : "x1");
        kube_answer(201, "{}");
    }
    kube_pass(60 * MINUTE);
    assert_null(kube.open.cb);
}

static void post_to_the_pods_of_a_claim_of_another_uid_tells_nobody(void **state)
{
    (void)state;
    const struct alq_event event = {ALQ_EVENT_WARNING, "R", "A", "n"};
    alq_events_claim_and_pods(events, &event, "team", "c", "u1");
    kube_answer(201, "{}");
    kube_answer(200, "{\"metadata\": {\"uid\": \"u2\"}, \"status\": {\"reservedFor\": ["
                     "{\"resource\": \"pods\", \"name\": \"p1\", \"uid\": \"x1\"}]}}");
    assert_null(kube.open.cb);
}

static void answer_that_was_lost_makes_no_second_event(void **state)
{
    char name[64];
    (void)state;
    post("one");
    snprintf(name, sizeof(name), "%s", body_text("metadata.name"));
    kube_answer(0, NULL);
    assert_null(kube.open.cb);
    kube_pass(3 * SECOND);
    kube_expect("POST", EVENTS);
    assert_string_equal(body_text("metadata.name"), name);
    kube_answer(409, "{\"reason\": \"AlreadyExists\"}");
    kube_pass(60 * MINUTE);
    assert_null(kube.open.cb);
    assert_int_equal(alq_events_stats(events).posted, 1);
}

static void answer_of_a_busy_server_is_waited_out_as_it_asks(void **state)
{
    (void)state;
    post("one");
    kube.retry_after_ms = 30000;
    kube_answer(429, NULL);
    kube_pass(29 * SECOND);
    assert_null(kube.open.cb);
    kube_pass(2 * SECOND);
    kube_expect("POST", EVENTS);
    kube_answer(201, "{}");
}

static void answer_that_never_comes_ends_the_event_and_not_the_queue(void **state)
{
    (void)state;
    post("one");
    for (int i = 0; i < 200; i++) {
        if (kube.open.cb)
            kube_answer(503, NULL);
        kube_pass(10 * SECOND);
    }
    assert_null(kube.open.cb);
    assert_in_range(kube.asked, 5, 30); /* the back-off is one minute at most */
    assert_int_equal(alq_events_stats(events).dropped, 1);
    post_about(2, "later");
    kube_pass(61 * SECOND);
    kube_expect("POST", EVENTS);
    kube_answer(201, "{}");
}

static void answer_forbidden_stops_all_for_ten_minutes(void **state)
{
    (void)state;
    post_about(1, "a");
    post_about(2, "b");
    kube_answer(403, "{\"reason\": \"Forbidden\", \"message\": \"no\"}");
    assert_null(kube.open.cb);
    assert_true(alq_events_stats(events).is_forbidden);
    post_about(3, "c");
    kube_pass(9 * MINUTE);
    assert_null(kube.open.cb);
    kube_pass(2 * MINUTE);
    kube_expect("POST", EVENTS);
    kube_answer(201, "{}");
    assert_false(alq_events_stats(events).is_forbidden);
    assert_int_equal(alq_events_stats(events).dropped, 2);
}

static void answer_of_a_namespace_that_is_going_drops_that_event_alone(void **state)
{
    (void)state;
    post_about(1, "a");
    post_about(2, "b");
    kube_answer(403, "{\"details\": {\"causes\": [{\"reason\": \"NamespaceTerminating\"}]}}");
    kube_expect("POST", EVENTS);
    assert_string_equal(body_text("note"), "b");
    assert_false(alq_events_stats(events).is_forbidden);
    kube_answer(201, "{}");
}

static void answer_that_refuses_drops_that_event_alone(void **state)
{
    (void)state;
    post_about(1, "a");
    post_about(2, "b");
    kube_answer(422, "{\"message\": \"eventTime: Required value\"}");
    kube_expect("POST", EVENTS);
    assert_string_equal(body_text("note"), "b");
    kube_answer(201, "{}");
    kube_pass(60 * MINUTE);
    assert_null(kube.open.cb);
}

static void answer_that_the_event_is_gone_makes_it_anew(void **state)
{
    (void)state;
    post("one");
    kube_answer(201, "{}");
    post("one");
    kube_pass(11 * SECOND);
    kube_expect("PATCH", EVENTS);
    kube_answer(404, "{}");
    kube_expect("POST", EVENTS);
    assert_int_equal(json_integer_value(alq_json_at(kube.open.body, "series.count")), 2);
    kube_answer(201, "{}");
}

static void post_of_many_at_once_is_bounded_in_number_and_in_rate(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 500; i++)
        post_about(i, "one");
    while (kube.open.cb)
        kube_answer(201, "{}");
    assert_int_equal(kube.asked, 20);
    for (unsigned i = 0; i < 60; i++) {
        kube_pass(MINUTE);
        while (kube.open.cb)
            kube_answer(201, "{}");
    }
    struct alq_events_stats stats = alq_events_stats(events);
    assert_in_range(kube.asked, 100, 128);
    assert_int_equal(stats.posted, kube.asked);
    assert_int_equal(stats.posted + stats.dropped, 500);
}

static void post_of_odd_bytes_is_sent_as_text_within_the_limits(void **state)
{
    char note[3000], name[300];
    (void)state;
    memset(note, 'n', sizeof(note) - 1);
    note[sizeof(note) - 1] = '\0';
    note[5] = (char)0xff;
    memset(name, 'c', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    name[ALQ_EVENT_NAME_BYTES - 19] = '.';
    const struct alq_event event = {ALQ_EVENT_WARNING, "R", "A", note};
    alq_events_claim(events, &event, "default", name, "uid");
    kube_expect("POST", EVENTS);
    assert_in_range(strlen(body_text("note")), 1000, 1024);
    assert_int_equal(body_text("note")[5], '?');
    assert_in_range(strlen(body_text("metadata.name")), 200, 253);
    assert_null(strstr(body_text("metadata.name"), ".."));
    kube_answer(201, "{}");
}

static void post_without_a_queue_does_nothing(void **state)
{
    (void)state;
    const struct alq_event event = {ALQ_EVENT_WARNING, "R", "A", "n"};
    alq_events_claim(NULL, &event, "d", "c", "u");
    alq_events_claim_and_pods(NULL, &event, "d", "c", "u");
    alq_events_node(NULL, &event);
    assert_int_equal(alq_events_stats(NULL).posted, 0);
}

static void free_with_a_call_in_flight_cancels_it(void **state)
{
    (void)state;
    post("one");
    alq_events_free(events);
    events = NULL;
    assert_int_equal(kube.cancelled, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(post_about_a_claim_creates_an_event_with_all_that_the_server_wants),
        TEST(post_about_the_node_goes_to_namespace_default_without_naming_it),
        TEST(post_of_the_same_again_is_one_event_with_a_series),
        TEST(post_of_the_same_for_an_hour_is_told_ever_more_seldom),
        TEST(post_with_another_note_is_a_new_event_after_the_pause),
        TEST(post_while_being_sent_is_not_lost),
        TEST(post_about_a_claim_and_its_pods_asks_who_they_are),
        TEST(post_to_the_pods_of_a_claim_of_another_uid_tells_nobody),
        TEST(answer_that_was_lost_makes_no_second_event),
        TEST(answer_of_a_busy_server_is_waited_out_as_it_asks),
        TEST(answer_that_never_comes_ends_the_event_and_not_the_queue),
        TEST(answer_forbidden_stops_all_for_ten_minutes),
        TEST(answer_of_a_namespace_that_is_going_drops_that_event_alone),
        TEST(answer_that_refuses_drops_that_event_alone),
        TEST(answer_that_the_event_is_gone_makes_it_anew),
        TEST(post_of_many_at_once_is_bounded_in_number_and_in_rate),
        TEST(post_of_odd_bytes_is_sent_as_text_within_the_limits),
        TEST(post_without_a_queue_does_nothing),
        TEST(free_with_a_call_in_flight_cancels_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
