/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC session, fed with what real kubelets sent (tests/conformance/kubelet) and with a client
 * on nghttp2 that can also misbehave. Time is a number.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "daemon/grpc/session.h"
#include "grpc_peer.h"

/* ---- a service --------------------------------------------------------------------------------
 */

struct service {
    unsigned calls;
    struct alq_grpc_call *kept[STREAMS];
    unsigned kept_count;
    unsigned cancelled;
    int64_t deadline_ns;
};

static void echo(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    ((struct service *)arg)->calls++;
    alq_grpc_reply(call, message, len);
}

static void refuse(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    (void)arg;
    (void)message;
    (void)len;
    alq_grpc_fail(call, ALQ_GRPC_UNAVAILABLE, "50%% off\n\xc3\xa9");
}

static void on_cancel(void *arg)
{
    ((struct service *)arg)->cancelled++;
}

static void keep(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    (void)message;
    (void)len;
    struct service *s = arg;
    s->deadline_ns = alq_grpc_call_deadline_ns(call);
    s->kept[s->kept_count++] = call;
    alq_grpc_on_cancel(call, on_cancel, s);
}

static struct service service;
static const struct alq_grpc_method methods[] = {{"/test.Service/Echo", echo, &service},
                                                 {"/test.Service/Refuse", refuse, &service},
                                                 {"/test.Service/Keep", keep, &service},
                                                 {NULL, NULL, NULL}};
static const uint8_t hello[] = {0, 0, 0, 0, 5, 'h', 'e', 'l', 'l', 'o'};
static const uint8_t empty[] = {0, 0, 0, 0, 0};
#define HELLO                                                                                      \
    {                                                                                              \
        hello, sizeof(hello), 0                                                                    \
    }

static int setup(void **state)
{
    static struct peer peer;
    memset(&service, 0, sizeof(service));
    peer_open(&peer, methods, 0);
    *state = &peer;
    return 0;
}

static int teardown(void **state)
{
    peer_close(*state);
    return 0;
}

static void assert_refused(struct peer *p, struct request r, const char *status, const char *text)
{
    const struct answer *a = &p->answers[peer_ask(p, &r)];
    assert_string_equal(a->http_status, "200");
    assert_string_equal(a->grpc_status, status);
    assert_non_null(strstr(a->grpc_message, text));
    assert_int_equal(a->header_frames, 1);
    assert_int_equal(a->len, 0);
    assert_true(a->is_closed);
    assert_int_equal(service.calls, 0);
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void reply_of_one_message_has_headers_data_and_trailers(void **state)
{
    struct peer *p = *state;
    struct request r = {.path = "/test.Service/Echo", .upload = HELLO};
    const struct answer *a = &p->answers[peer_ask(p, &r)];
    assert_string_equal(a->http_status, "200");
    assert_string_equal(a->content_type, "application/grpc");
    assert_string_equal(a->grpc_status, "0");
    assert_int_equal(a->header_frames, 2);
    assert_int_equal(a->len, sizeof(hello));
    assert_memory_equal(a->data, hello, sizeof(hello));
    assert_true(a->is_closed);
    assert_int_equal(a->error, NGHTTP2_NO_ERROR);
}

static void reply_of_an_empty_message_is_a_prefix(void **state)
{
    struct peer *p = *state;
    struct request r = {.path = "/test.Service/Echo", .upload = {empty, sizeof(empty), 0}};
    const struct answer *a = &p->answers[peer_ask(p, &r)];
    assert_int_equal(a->len, sizeof(empty));
    assert_string_equal(a->grpc_status, "0");
}

static void fail_encodes_its_message(void **state)
{
    struct peer *p = *state;
    struct request r = {.path = "/test.Service/Refuse", .upload = HELLO};
    const struct answer *a = &p->answers[peer_ask(p, &r)];
    assert_string_equal(a->grpc_status, "14");
    assert_string_equal(a->grpc_message, "50%25 off%0A%C3%A9");
}

static void request_for_nothing_known_is_unimplemented(void **state)
{
    struct peer *p = *state;
    assert_refused(p, (struct request){.path = "/test.Service/No", .upload = HELLO}, "12",
                   "unknown method No for service test.Service");
    assert_refused(p, (struct request){.path = "/test.Serv/Echo", .upload = HELLO}, "12",
                   "unknown service test.Serv");
    assert_refused(p, (struct request){.path = "/nothing", .upload = HELLO}, "12",
                   "malformed method name");
}

static void request_that_is_not_grpc_gets_an_http_status(void **state)
{
    struct peer *p = *state;
    struct request get = {.path = "/test.Service/Echo", .method = "GET"};
    assert_string_equal(p->answers[peer_ask(p, &get)].http_status, "405");
    struct request json = {
        .path = "/test.Service/Echo", .content_type = "application/json", .upload = HELLO};
    assert_string_equal(p->answers[peer_ask(p, &json)].http_status, "415");
    struct request near = {
        .path = "/test.Service/Echo", .content_type = "application/grpcx", .upload = HELLO};
    assert_string_equal(p->answers[peer_ask(p, &near)].http_status, "415");
    struct request proto = {
        .path = "/test.Service/Echo", .content_type = "application/grpc+proto", .upload = HELLO};
    assert_string_equal(p->answers[peer_ask(p, &proto)].grpc_status, "0");
}

static void request_with_a_bad_body_is_an_internal_error(void **state)
{
    struct peer *p = *state;
    static const uint8_t packed[] = {1, 0, 0, 0, 1, 'x'};
    static const uint8_t two[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t torn[] = {0, 0, 0, 0, 9, 'x'};
    static const uint8_t half[] = {0, 0, 0};
    const char *path = "/test.Service/Echo";
    assert_refused(p, (struct request){.path = path}, "13", "without a message");
    assert_refused(p, (struct request){.path = path, .upload = {half, sizeof(half), 0}}, "13",
                   "without a message");
    assert_refused(p, (struct request){.path = path, .upload = {packed, sizeof(packed), 0}}, "13",
                   "compressed");
    assert_refused(p, (struct request){.path = path, .upload = {two, sizeof(two), 0}}, "13",
                   "more than one");
    assert_refused(p, (struct request){.path = path, .upload = {torn, sizeof(torn), 0}}, "13",
                   "within its message");
}

static void request_with_a_bad_header_is_refused(void **state)
{
    struct peer *p = *state;
    static char large[15 * 1024], larger[17 * 1024];
    memset(large, 'x', sizeof(large) - 1);
    memset(larger, 'x', sizeof(larger) - 1);
    const char *path = "/test.Service/Echo";
    assert_refused(p, (struct request){.path = path, .timeout = "1x", .upload = HELLO}, "13",
                   "grpc-timeout");
    assert_refused(p, (struct request){.path = path, .encoding = "gzip", .upload = HELLO}, "12",
                   "grpc-encoding");
    assert_refused(p, (struct request){.path = path, .extra = larger, .upload = HELLO}, "8",
                   "headers above");
    struct request fits = {.path = path, .extra = large, .upload = HELLO};
    assert_string_equal(p->answers[peer_ask(p, &fits)].grpc_status, "0");
}

static void message_above_the_limit_is_refused_by_its_length(void **state)
{
    struct peer *p = *state;
    static const uint8_t huge[] = {0, 0, 0x40, 0, 1, 'x'};
    /* The answer and a reset come although the client has not finished. */
    assert_refused(
        p, (struct request){.path = "/test.Service/Echo", .upload = {huge, sizeof(huge), 1}}, "8",
        "larger than max");
}

static void message_of_the_limit_comes_back_through_flow_control(void **state)
{
    struct peer *p = *state;
    size_t len = 5 + ALQ_GRPC_MESSAGE_MAX_BYTES;
    uint8_t *data = calloc(1, len);
    assert_non_null(data);
    data[2] = 0x40; /* 4 MiB, big endian */
    data[len - 1] = 0x5a;
    struct request r = {.path = "/test.Service/Echo", .upload = {data, len, 0}};
    const struct answer *a = &p->answers[peer_ask(p, &r)];
    assert_string_equal(a->grpc_status, "0");
    assert_int_equal(a->len, len);
    assert_memory_equal(a->data, data, len);
    free(data);
}

static void replies_may_come_late_and_out_of_order(void **state)
{
    struct peer *p = *state;
    struct request r1 = {.path = "/test.Service/Keep", .upload = HELLO}, r2 = r1;
    int32_t first = peer_ask(p, &r1), second = peer_ask(p, &r2);
    assert_int_equal(alq_grpc_session_open_calls(p->server), 2);
    alq_grpc_reply(service.kept[1], (const uint8_t *)"2", 1);
    peer_pump(p);
    assert_string_equal(p->answers[second].grpc_status, "0");
    assert_string_equal(p->answers[first].grpc_status, "");
    alq_grpc_fail(service.kept[0], ALQ_GRPC_INTERNAL, "no");
    peer_pump(p);
    assert_string_equal(p->answers[first].grpc_status, "13");
    assert_int_equal(alq_grpc_session_open_calls(p->server), 0);
    assert_int_equal(service.cancelled, 0);
}

static void stream_of_messages_ends_with_trailers(void **state)
{
    struct peer *p = *state;
    struct request r = {.path = "/test.Service/Keep", .upload = HELLO};
    const struct answer *a = &p->answers[peer_ask(p, &r)];
    for (uint8_t i = 0; i < 3; i++) {
        assert_int_equal(alq_grpc_send(service.kept[0], &i, 1), 0);
        peer_pump(p);
        assert_int_equal(a->len, 6 * (i + 1u));
        assert_false(a->is_closed);
    }
    alq_grpc_finish(service.kept[0]);
    peer_pump(p);
    assert_string_equal(a->grpc_status, "0");
    assert_true(a->is_closed);
}

static void stream_that_fails_midway_says_so_in_its_trailers(void **state)
{
    struct peer *p = *state;
    struct request r = {.path = "/test.Service/Keep", .upload = HELLO};
    const struct answer *a = &p->answers[peer_ask(p, &r)];
    assert_int_equal(alq_grpc_send(service.kept[0], hello, 1), 0);
    alq_grpc_fail(service.kept[0], ALQ_GRPC_UNAVAILABLE, "going");
    peer_pump(p);
    assert_int_equal(a->len, 6);
    assert_string_equal(a->grpc_status, "14");
    assert_string_equal(a->grpc_message, "going");
}

static void reset_by_the_peer_cancels_the_call(void **state)
{
    struct peer *p = *state;
    struct request r = {.path = "/test.Service/Keep", .upload = HELLO};
    int32_t id = peer_ask(p, &r);
    nghttp2_submit_rst_stream(p->h2, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
    peer_pump(p);
    assert_int_equal(service.cancelled, 1);
    assert_int_equal(alq_grpc_session_open_calls(p->server), 0);
}

static void lost_connection_cancels_its_calls(void **state)
{
    struct peer *p = *state;
    struct request r1 = {.path = "/test.Service/Keep", .upload = HELLO}, r2 = r1;
    peer_ask(p, &r1);
    peer_ask(p, &r2);
    alq_grpc_session_free(p->server);
    p->server = NULL;
    assert_int_equal(service.cancelled, 2);
}

static void deadline_ends_the_call(void **state)
{
    struct peer *p = *state;
    struct request r = {.path = "/test.Service/Keep", .timeout = "1500m", .upload = HELLO};
    const struct answer *a = &p->answers[peer_ask(p, &r)];
    int64_t at = p->now_ns + 1500000000;
    assert_int_equal(service.deadline_ns, at);
    assert_int_equal(alq_grpc_session_deadline_ns(p->server), at);
    alq_grpc_session_expire(p->server, at - 1);
    assert_int_equal(service.cancelled, 0);
    alq_grpc_session_expire(p->server, at);
    peer_pump(p);
    assert_int_equal(service.cancelled, 1);
    assert_string_equal(a->grpc_status, "4");
    assert_int_equal(alq_grpc_session_deadline_ns(p->server), INT64_MAX);
}

static void shutdown_lets_open_calls_end(void **state)
{
    struct peer *p = *state;
    struct request r = {.path = "/test.Service/Keep", .upload = HELLO};
    int32_t id = peer_ask(p, &r);
    alq_grpc_session_shutdown(p->server);
    peer_pump(p);
    assert_true(p->is_goaway);
    assert_false(alq_grpc_session_is_over(p->server));
    alq_grpc_reply(service.kept[0], NULL, 0);
    peer_pump(p);
    assert_string_equal(p->answers[id].grpc_status, "0");
    assert_true(alq_grpc_session_is_over(p->server));
}

static void bytes_that_are_not_http2_end_the_session(void **state)
{
    struct peer *p = *state;
    static const char text[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_int_equal(
        alq_grpc_session_feed(p->server, (const uint8_t *)text, sizeof(text) - 1, p->now_ns), -1);
}

static void flood_of_resets_ends_the_session(void **state)
{
    /* Straight frames: a client library would count its own streams. HEADERS in literal HPACK. */
    (void)state;
    struct alq_grpc_session *s = alq_grpc_session_new(methods, NULL, NULL);
    const uint8_t *out;
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    assert_int_equal(alq_grpc_session_feed(s, (const uint8_t *)preface, sizeof(preface) - 1, 0), 0);
    int rc = 0;
    uint32_t n = 0;
    for (; n < 2000 && !rc && !alq_grpc_session_is_over(s); n++) {
        uint8_t id = (uint8_t)(2 * n + 1), high = (uint8_t)((2 * n + 1) >> 8);
        /* POST http / */
        const uint8_t frames[] = {0, 0, 3, 1, 4, 0, 0,    high, id, 0x83, 0x86, 0x84, 0,
                                  0, 4, 3, 0, 0, 0, high, id,   0,  0,    0,    8};
        rc = alq_grpc_session_feed(s, frames, sizeof(frames), 0);
        while (alq_grpc_session_take(s, &out) > 0)
            ;
    }
    assert_true(n > 100 && n < 2000);
    alq_grpc_session_free(s);
}

static void timeout_parse_takes_what_grpc_allows(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ns;
    } cases[] = {{"1S", SECOND},
                 {"999972u", 999972000},
                 {"44999921u", 44999921000},
                 {"5m", 5000000},
                 {"0n", 0},
                 {"2M", 120 * SECOND},
                 {"1H", 3600 * SECOND},
                 {"99999999H", INT64_MAX / 2},
                 {"", -1},
                 {"S", -1},
                 {"1", -1},
                 {"1s", -1},
                 {"-1S", -1},
                 {"123456789S", -1},
                 {"1 S", -1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t want = cases[i].ns;
        int64_t ns = alq_grpc_timeout_parse(cases[i].text, strlen(cases[i].text));
        if (!strcmp(cases[i].text, "99999999H"))
            assert_true(ns > 0);
        else if (ns != want)
            fail_msg("\"%s\" gives %lld", cases[i].text, (long long)ns);
    }
}

static void message_encode_cuts_between_escapes(void **state)
{
    (void)state;
    char out[8];
    alq_grpc_message_encode("ab\ncd", out, sizeof(out));
    assert_string_equal(out, "ab%0Acd");
    alq_grpc_message_encode("abcde\nf", out, sizeof(out));
    assert_string_equal(out, "abcde");
}

/* ---- recorded kubelets ------------------------------------------------------------------------
 */

struct recorded {
    json_t *want; /* requests in order */
    size_t seen;
};

static void check_recorded(void *arg, struct alq_grpc_call *call, const uint8_t *message,
                           size_t len)
{
    struct recorded *r = arg;
    const json_t *want = json_array_get(r->want, r->seen++);
    assert_non_null(want);
    const char *hex = json_string_value(json_object_get(want, "message"));
    assert_int_equal(strlen(hex), 2 * len);
    for (size_t i = 0; i < len; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        assert_int_equal(message[i], byte);
    }
    const char *timeout = json_string_value(json_object_get(want, "timeout"));
    assert_int_equal(alq_grpc_call_deadline_ns(call),
                     timeout ? alq_grpc_timeout_parse(timeout, strlen(timeout)) : INT64_MAX);
    alq_grpc_reply(call, NULL, 0);
}

static void replay(const char *name, size_t chunk)
{
    char path[512];
    char *data = NULL, *text = NULL;
    size_t len = 0, text_len = 0;
    struct recorded r = {0};
    snprintf(path, sizeof(path), ALQ_CONFORMANCE_DIR "/kubelet/%s.bin", name);
    assert_int_equal(alq_file_read(path, 1 << 20, &data, &len, NULL), 0);
    snprintf(path, sizeof(path), ALQ_CONFORMANCE_DIR "/kubelet/%s.json", name);
    assert_int_equal(alq_file_read(path, 1 << 20, &text, &text_len, NULL), 0);
    assert_int_equal(alq_json_parse(text, text_len, name, &r.want, NULL), 0);
#define DRA "/k8s.io.kubelet.pkg.apis.dra."
    const struct alq_grpc_method table[] = {
        {"/pluginregistration.Registration/GetInfo", check_recorded, &r},
        {"/pluginregistration.Registration/NotifyRegistrationStatus", check_recorded, &r},
        {DRA "v1.DRAPlugin/NodePrepareResources", check_recorded, &r},
        {DRA "v1.DRAPlugin/NodeUnprepareResources", check_recorded, &r},
        {DRA "v1beta1.DRAPlugin/NodePrepareResources", check_recorded, &r},
        {DRA "v1beta1.DRAPlugin/NodeUnprepareResources", check_recorded, &r},
        {"/v1alpha1.DRAResourceHealth/NodeWatchResources", check_recorded, &r},
        {NULL, NULL, NULL}};
    struct alq_grpc_session *s = alq_grpc_session_new(table, NULL, NULL);
    const uint8_t *out;
    while (alq_grpc_session_take(s, &out) > 0)
        ;
    for (size_t at = 0; at < len; at += chunk) {
        size_t n = len - at < chunk ? len - at : chunk;
        assert_int_equal(alq_grpc_session_feed(s, (uint8_t *)data + at, n, 0), 0);
        while (alq_grpc_session_take(s, &out) > 0)
            ;
    }
    assert_int_equal(r.seen, json_array_size(r.want));
    assert_int_equal(alq_grpc_session_open_calls(s), 0);
    alq_grpc_session_free(s);
    json_decref(r.want);
    free(data);
    free(text);
}

static void recorded_kubelets_are_understood_in_any_pieces(void **state)
{
    (void)state;
    unsigned count = 0;
    DIR *dir = opendir(ALQ_CONFORMANCE_DIR "/kubelet");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[256];
        snprintf(name, sizeof(name), "%s", entry->d_name);
        char *suffix = strstr(name, ".bin");
        if (!suffix)
            continue;
        *suffix = '\0';
        replay(name, 1);
        replay(name, 7);
        replay(name, 1 << 20);
        count++;
    }
    closedir(dir);
    assert_true(count >= 12);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(reply_of_one_message_has_headers_data_and_trailers),
        T(reply_of_an_empty_message_is_a_prefix),
        T(fail_encodes_its_message),
        T(request_for_nothing_known_is_unimplemented),
        T(request_that_is_not_grpc_gets_an_http_status),
        T(request_with_a_bad_body_is_an_internal_error),
        T(request_with_a_bad_header_is_refused),
        T(message_above_the_limit_is_refused_by_its_length),
        T(message_of_the_limit_comes_back_through_flow_control),
        T(replies_may_come_late_and_out_of_order),
        T(stream_of_messages_ends_with_trailers),
        T(stream_that_fails_midway_says_so_in_its_trailers),
        T(reset_by_the_peer_cancels_the_call),
        T(lost_connection_cancels_its_calls),
        T(deadline_ends_the_call),
        T(shutdown_lets_open_calls_end),
        T(bytes_that_are_not_http2_end_the_session),
        cmocka_unit_test(flood_of_resets_ends_the_session),
        cmocka_unit_test(timeout_parse_takes_what_grpc_allows),
        cmocka_unit_test(message_encode_cuts_between_escapes),
        cmocka_unit_test(recorded_kubelets_are_understood_in_any_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
