/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC sessions fed with frames made by hand: what breaks HTTP/2 ends the connection with GOAWAY,
 * what breaks a call ends that call, and neither harms what else goes on. Time is a number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/grpc/session.h"

enum type {
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH,
    PING,
    GOAWAY,
    WINDOW,
    CONTINUATION
};

#define END_STREAM 1
#define ACK 1
#define END_HEADERS 4
#define PADDED 8
#define INITIAL_WINDOW 4

/* ---- frames to send ---------------------------------------------------------------------------
 */

struct bytes {
    uint8_t data[1 << 16];
    size_t len;
};

static void put(struct bytes *b, const void *data, size_t len)
{
    assert_true(b->len + len <= sizeof(b->data));
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
}

static void put_frame(struct bytes *b, unsigned type, unsigned flags, uint32_t stream,
                      const void *payload, size_t len)
{
    const uint8_t head[9] = {
        (uint8_t)(len >> 16),    (uint8_t)(len >> 8),    (uint8_t)len,
        (uint8_t)type,           (uint8_t)flags,         (uint8_t)(stream >> 24),
        (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
    put(b, head, sizeof(head));
    put(b, payload, len);
}

static void put_number(struct bytes *b, unsigned type, uint32_t stream, uint32_t number)
{
    const uint8_t payload[4] = {(uint8_t)(number >> 24), (uint8_t)(number >> 16),
                                (uint8_t)(number >> 8), (uint8_t)number};
    put_frame(b, type, 0, stream, payload, sizeof(payload));
}

static void put_setting(struct bytes *b, unsigned id, uint32_t value)
{
    const uint8_t payload[6] = {(uint8_t)(id >> 8),     (uint8_t)id,
                                (uint8_t)(value >> 24), (uint8_t)(value >> 16),
                                (uint8_t)(value >> 8),  (uint8_t)value};
    put_frame(b, SETTINGS, 0, 0, payload, sizeof(payload));
}

/* A header field as a literal without index or Huffman. */
static void put_field(struct bytes *b, const char *name, const char *value)
{
    const uint8_t lengths[2] = {(uint8_t)strlen(name), (uint8_t)strlen(value)};
    put(b, "\0", 1);
    put(b, &lengths[0], 1);
    put(b, name, lengths[0]);
    put(b, &lengths[1], 1);
    put(b, value, lengths[1]);
}

static void fields(struct bytes *b, const char *path)
{
    b->len = 0;
    put_field(b, ":method", "POST");
    put_field(b, ":scheme", "http");
    put_field(b, ":path", path);
    put_field(b, ":authority", "localhost");
    put_field(b, "content-type", "application/grpc");
    put_field(b, "te", "trailers");
}

static void put_headers(struct bytes *b, uint32_t stream, const char *path, unsigned flags)
{
    static struct bytes block;
    fields(&block, path);
    put_frame(b, HEADERS, END_HEADERS | flags, stream, block.data, block.len);
}

static const uint8_t hello[] = {0, 0, 0, 0, 5, 'h', 'e', 'l', 'l', 'o'};

static void put_call(struct bytes *b, uint32_t stream, const char *path)
{
    put_headers(b, stream, path, 0);
    put_frame(b, DATA, END_STREAM, stream, hello, sizeof(hello));
}

/* ---- what comes back --------------------------------------------------------------------------
 */

#define STREAMS 256

struct seen {
    unsigned data_bytes[STREAMS], headers[STREAMS], is_ended[STREAMS], resets[STREAMS];
    uint32_t reset_code[STREAMS];
    unsigned goaways, pings, settings;
    uint32_t goaway_code;
};

struct world {
    struct alq_grpc_session *session;
    struct bytes in;
    uint8_t *out;
    size_t out_len;
    struct seen seen;
    int rc;
    struct alq_grpc_call *kept[STREAMS];
    unsigned kept_count, cancelled, echoed;
};

static struct world world;

static uint32_t number(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void take_frame(struct seen *s, const uint8_t *frame, size_t len)
{
    uint32_t stream = number(frame + 5) & 0x7fffffff;
    assert_true(stream < STREAMS);
    switch ((enum type)frame[3]) {
    case DATA:
        s->data_bytes[stream] += (unsigned)len;
        s->is_ended[stream] |= frame[4] & END_STREAM;
        break;
    case HEADERS:
        s->headers[stream]++;
        s->is_ended[stream] |= frame[4] & END_STREAM;
        break;
    case RST_STREAM:
        s->resets[stream]++;
        s->reset_code[stream] = number(frame + 9);
        break;
    case GOAWAY:
        s->goaways++;
        s->goaway_code = number(frame + 13);
        break;
    case PING:
        s->pings++;
        break;
    case SETTINGS:
        s->settings++;
        break;
    case PRIORITY:
    case PUSH:
    case WINDOW:
    case CONTINUATION:
        break;
    }
}

/* Sends what was put and reads what the session answers. */
static void exchange(struct world *w)
{
    const uint8_t *data;
    ssize_t n;
    if (w->in.len && !w->rc)
        w->rc = alq_grpc_session_feed(w->session, w->in.data, w->in.len, 0);
    w->in.len = 0;
    while ((n = alq_grpc_session_take(w->session, &data)) > 0) {
        w->out = realloc(w->out, w->out_len + (size_t)n);
        assert_non_null(w->out);
        memcpy(w->out + w->out_len, data, (size_t)n);
        w->out_len += (size_t)n;
    }
    size_t at = 0;
    while (at + 9 <= w->out_len) {
        size_t len =
            (size_t)w->out[at] << 16 | (size_t)w->out[at + 1] << 8 | (size_t)w->out[at + 2];
        if (at + 9 + len > w->out_len)
            break;
        take_frame(&w->seen, w->out + at, len);
        at += 9 + len;
    }
    assert_int_equal(at, w->out_len); /* whole frames */
    w->out_len = 0;
}

static void echo(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    ((struct world *)arg)->echoed++;
    alq_grpc_reply(call, message, len);
}

static void big(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    (void)arg;
    (void)message;
    (void)len;
    static uint8_t reply[ALQ_GRPC_MESSAGE_MAX_BYTES];
    alq_grpc_reply(call, reply, sizeof(reply));
}

static void on_cancel(void *arg)
{
    ((struct world *)arg)->cancelled++;
}

static void keep(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    (void)message;
    (void)len;
    struct world *w = arg;
    w->kept[w->kept_count++] = call;
    alq_grpc_on_cancel(call, on_cancel, w);
}

static const struct alq_grpc_method methods[] = {
    {"/t.S/Echo", echo, &world}, {"/t.S/Big", big, &world}, {"/t.S/Keep", keep, &world}, {0}};

static void open_session(struct world *w, uint32_t window)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    alq_grpc_session_free(w->session);
    free(w->out);
    memset(w, 0, sizeof(*w));
    w->session = alq_grpc_session_new(methods, NULL, NULL);
    assert_non_null(w->session);
    put(&w->in, preface, sizeof(preface) - 1);
    if (window == UINT32_MAX)
        put_frame(&w->in, SETTINGS, 0, 0, NULL, 0);
    else
        put_setting(&w->in, INITIAL_WINDOW, window);
    exchange(w);
    assert_int_equal(w->rc, 0);
}

static int setup(void **state)
{
    open_session(&world, UINT32_MAX);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    alq_grpc_session_free(w->session);
    free(w->out);
    memset(w, 0, sizeof(*w));
    return 0;
}

static void assert_echo(struct world *w, uint32_t stream)
{
    unsigned before = w->echoed;
    put_call(&w->in, stream, "/t.S/Echo");
    exchange(w);
    assert_int_equal(w->rc, 0);
    assert_int_equal(w->echoed, before + 1);
    assert_int_equal(w->seen.data_bytes[stream], sizeof(hello));
    assert_int_equal(w->seen.headers[stream], 2);
    assert_true(w->seen.is_ended[stream]);
}

/* ---- connections that end ---------------------------------------------------------------------
 */

static const uint8_t zeros[32];

static void data_on_stream_0(struct bytes *b)
{
    put_frame(b, DATA, 0, 0, hello, 10);
}
static void data_on_idle_stream(struct bytes *b)
{
    put_frame(b, DATA, 0, 5, hello, 10);
}
static void headers_on_even_stream(struct bytes *b)
{
    put_headers(b, 2, "/t.S/Echo", 0);
}
static void headers_on_stream_0(struct bytes *b)
{
    put_headers(b, 0, "/t.S/Echo", 0);
}
static void settings_of_5_bytes(struct bytes *b)
{
    put_frame(b, SETTINGS, 0, 0, zeros, 5);
}
static void settings_on_a_stream(struct bytes *b)
{
    put_frame(b, SETTINGS, 0, 1, zeros, 6);
}
static void settings_ack_with_payload(struct bytes *b)
{
    put_frame(b, SETTINGS, ACK, 0, zeros, 6);
}
static void settings_window_beyond_2_31(struct bytes *b)
{
    put_setting(b, INITIAL_WINDOW, 1u << 31);
}
static void ping_of_7_bytes(struct bytes *b)
{
    put_frame(b, PING, 0, 0, zeros, 7);
}
static void ping_on_a_stream(struct bytes *b)
{
    put_frame(b, PING, 0, 1, zeros, 8);
}
static void reset_of_idle_stream(struct bytes *b)
{
    put_number(b, RST_STREAM, 7, 8);
}
static void reset_of_3_bytes(struct bytes *b)
{
    put_frame(b, RST_STREAM, 0, 1, zeros, 3);
}
static void window_update_of_0(struct bytes *b)
{
    put_number(b, WINDOW, 0, 0);
}
static void window_beyond_2_31(struct bytes *b)
{
    put_number(b, WINDOW, 0, 0x7fffffff);
    put_number(b, WINDOW, 0, 0x7fffffff);
}
static void continuation_of_nothing(struct bytes *b)
{
    put_frame(b, CONTINUATION, 4, 1, zeros, 3);
}
static void push_promise(struct bytes *b)
{
    put_frame(b, PUSH, END_HEADERS, 1, zeros, 8);
}
static void goaway_of_7_bytes(struct bytes *b)
{
    put_frame(b, GOAWAY, 0, 0, zeros, 7);
}
static void frame_above_16_kib(struct bytes *b)
{
    static uint8_t large[16385];
    put_headers(b, 1, "/t.S/Echo", 0);
    put_frame(b, DATA, 0, 1, large, sizeof(large));
}
static void padding_longer_than_the_frame(struct bytes *b)
{
    put_headers(b, 1, "/t.S/Echo", 0);
    put_frame(b, DATA, PADDED, 1, "\x20xxxx", 5);
}
static void hpack_index_of_nothing(struct bytes *b)
{
    put_frame(b, HEADERS, END_HEADERS, 1, "\xff\x7f", 2);
}
static void hpack_that_ends_within_a_string(struct bytes *b)
{
    put_frame(b, HEADERS, END_HEADERS, 1, "\0\x20xx", 4);
}
static void frames_between_headers_and_continuation(struct bytes *b)
{
    static struct bytes block;
    fields(&block, "/t.S/Echo");
    put_frame(b, HEADERS, 0, 1, block.data, 20);
    put_frame(b, PING, 0, 0, zeros, 8);
}
static void frame_that_breaks_http2_ends_the_connection(void **state)
{
    struct world *w = *state;
#define C(f)                                                                                       \
    {                                                                                              \
#f, f                                                                                      \
    }
    static const struct {
        const char *name;
        void (*put)(struct bytes *b);
    } cases[] = {C(data_on_stream_0),
                 C(data_on_idle_stream),
                 C(headers_on_even_stream),
                 C(headers_on_stream_0),
                 C(settings_of_5_bytes),
                 C(settings_on_a_stream),
                 C(settings_ack_with_payload),
                 C(settings_window_beyond_2_31),
                 C(ping_of_7_bytes),
                 C(ping_on_a_stream),
                 C(reset_of_idle_stream),
                 C(reset_of_3_bytes),
                 C(window_update_of_0),
                 C(window_beyond_2_31),
                 C(continuation_of_nothing),
                 C(push_promise),
                 C(goaway_of_7_bytes),
                 C(frame_above_16_kib),
                 C(padding_longer_than_the_frame),
                 C(hpack_index_of_nothing),
                 C(hpack_that_ends_within_a_string),
                 C(frames_between_headers_and_continuation)};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_session(w, UINT32_MAX);
        cases[i].put(&w->in);
        exchange(w);
        if (w->seen.goaways != 1 || !w->seen.goaway_code || !alq_grpc_session_is_over(w->session))
            fail_msg("%s: %u GOAWAYs with code %u", cases[i].name, w->seen.goaways,
                     w->seen.goaway_code);
    }
}

static void broken_connection_cancels_its_calls_once(void **state)
{
    struct world *w = *state;
    put_call(&w->in, 1, "/t.S/Keep");
    put_call(&w->in, 3, "/t.S/Keep");
    exchange(w);
    ping_of_7_bytes(&w->in);
    exchange(w);
    assert_int_equal(w->seen.goaways, 1);
    alq_grpc_session_free(w->session);
    w->session = NULL;
    assert_int_equal(w->cancelled, 2);
}

static void flood_without_end_ends_the_connection(void **state)
{
    struct world *w = *state;
    static struct bytes block;
    /* Pings whose answers are not read, and a header that goes on and on. */
    for (unsigned i = 0; i < 5000 && !w->rc; i++) {
        w->in.len = 0;
        put_frame(&w->in, PING, 0, 0, zeros, 8);
        w->rc = alq_grpc_session_feed(w->session, w->in.data, w->in.len, 0);
    }
    assert_true(w->rc < 0 || alq_grpc_session_is_over(w->session));
    open_session(w, UINT32_MAX);
    block.len = 0;
    for (int i = 0; i < 200; i++)
        put_field(&block, "x-more", "and more and more and more and more and more and more");
    put_frame(&w->in, HEADERS, 0, 1, block.data, block.len);
    for (unsigned i = 0; i < 1000 && !w->rc && !w->seen.goaways; i++) {
        put_frame(&w->in, CONTINUATION, 0, 1, block.data, block.len);
        exchange(w);
    }
    assert_true(w->rc < 0 || w->seen.goaways == 1);
}

/* ---- calls that end ---------------------------------------------------------------------------
 */

static void request_with_bad_fields_is_reset_alone(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *name, *value; /* added to a good request */
    } cases[] = {{"X-Upper", "x"},  {":method", "GET"}, {"connection", "close"},
                 {"te", "gzip"},    {":unknown", "x"},  {"content-length", "99999"},
                 {"bad name", "x"}, {"x-nul", "\x01"}};
    uint32_t stream = 1;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++, stream += 4) {
        static struct bytes block;
        fields(&block, "/t.S/Echo");
        put_field(&block, cases[i].name, cases[i].value);
        put_frame(&w->in, HEADERS, END_HEADERS, stream, block.data, block.len);
        put_frame(&w->in, DATA, END_STREAM, stream, hello, sizeof(hello));
        exchange(w);
        if (w->rc || w->echoed != i || !w->seen.resets[stream])
            fail_msg("%s: rc %d, %u calls, %u resets", cases[i].name, w->rc, w->echoed,
                     w->seen.resets[stream]);
        assert_echo(w, stream + 2);
    }
}

static void request_in_frames_of_a_byte_with_padding_and_trailers_is_taken(void **state)
{
    struct world *w = *state;
    static struct bytes block;
    fields(&block, "/t.S/Echo");
    put_frame(&w->in, HEADERS, 0, 1, block.data, 1);
    for (size_t i = 1; i < 7; i++)
        put_frame(&w->in, CONTINUATION, 0, 1, block.data + i, 1);
    put_frame(&w->in, CONTINUATION, END_HEADERS, 1, block.data + 7, block.len - 7);
    for (size_t i = 0; i < sizeof(hello); i++) {
        const uint8_t padded[4] = {2, hello[i], 0, 0};
        put_frame(&w->in, DATA, PADDED, 1, padded, sizeof(padded));
        put_frame(&w->in, DATA, 0, 1, NULL, 0);
    }
    exchange(w);
    assert_int_equal(w->echoed, 0);
    block.len = 0;
    put_field(&block, "x-trailer", "done");
    put_frame(&w->in, HEADERS, END_HEADERS | END_STREAM, 1, block.data, block.len);
    exchange(w);
    assert_int_equal(w->echoed, 1);
    assert_true(w->seen.is_ended[1]);
}

static void unknown_frames_and_settings_are_passed_over(void **state)
{
    struct world *w = *state;
    put_frame(&w->in, 0x42, 0xff, 1, zeros, 20);
    put_setting(&w->in, 0x4242, 7);
    put_frame(&w->in, PRIORITY, 0, 3, zeros, 5);
    exchange(w);
    assert_echo(w, 5);
}

static void calls_beyond_100_at_once_are_refused_to_come_again(void **state)
{
    struct world *w = *state;
    for (uint32_t i = 0; i < 101; i++)
        put_call(&w->in, 2 * i + 1, "/t.S/Keep");
    exchange(w);
    assert_int_equal(w->kept_count, 100);
    assert_int_equal(w->seen.resets[201], 1);
    assert_int_equal(w->seen.reset_code[201], 7); /* REFUSED_STREAM: safe to try again */
    alq_grpc_reply(w->kept[50], hello, 5);
    exchange(w);
    assert_true(w->seen.is_ended[101]);
    assert_echo(w, 203);
}

static void reset_before_the_request_is_whole_never_reaches_the_handler(void **state)
{
    struct world *w = *state;
    put_headers(&w->in, 1, "/t.S/Echo", 0);
    put_frame(&w->in, DATA, 0, 1, hello, 7);
    put_number(&w->in, RST_STREAM, 1, 8);
    exchange(w);
    assert_int_equal(w->echoed, 0);
    assert_echo(w, 3);
}

/* ---- flow control, pings, goodbyes ------------------------------------------------------------
 */

static void reply_waits_for_a_window_of_a_byte_at_a_time(void **state)
{
    struct world *w = *state;
    open_session(w, 0);
    put_call(&w->in, 1, "/t.S/Echo");
    exchange(w);
    assert_int_equal(w->seen.headers[1], 1);
    for (unsigned i = 0; i < sizeof(hello); i++) {
        assert_int_equal(w->seen.data_bytes[1], i);
        assert_false(w->seen.is_ended[1]);
        put_number(&w->in, WINDOW, 1, 1);
        exchange(w);
    }
    assert_int_equal(w->seen.data_bytes[1], sizeof(hello));
    assert_int_equal(w->seen.headers[1], 2);
    assert_true(w->seen.is_ended[1]);
}

static void huge_reply_that_is_not_read_holds_up_nobody(void **state)
{
    struct world *w = *state;
    put_call(&w->in, 1, "/t.S/Big");
    exchange(w);
    unsigned sent = w->seen.data_bytes[1];
    assert_int_equal(sent, 65535); /* the connection's window too */
    put_frame(&w->in, PING, 0, 0, zeros, 8);
    put_call(&w->in, 3, "/t.S/Keep");
    exchange(w);
    assert_int_equal(w->seen.pings, 1);
    assert_int_equal(w->kept_count, 1);
    alq_grpc_fail(w->kept[0], ALQ_GRPC_UNAVAILABLE, "no window is needed for this");
    exchange(w);
    assert_true(w->seen.is_ended[3]);
    /* A window that shrinks below what is out already. */
    put_setting(&w->in, INITIAL_WINDOW, 10);
    put_number(&w->in, WINDOW, 0, 1 << 20);
    put_number(&w->in, WINDOW, 1, 65525);
    exchange(w);
    assert_int_equal(w->seen.data_bytes[1], sent);
    put_number(&w->in, WINDOW, 1, 100);
    exchange(w);
    assert_int_equal(w->seen.data_bytes[1], sent + 100);
    put_number(&w->in, RST_STREAM, 1, 8);
    exchange(w);
    assert_echo(w, 5);
}

static void goaway_of_the_peer_lets_its_open_calls_end(void **state)
{
    struct world *w = *state;
    put_call(&w->in, 1, "/t.S/Keep");
    exchange(w);
    put_frame(&w->in, GOAWAY, 0, 0, zeros, 8);
    exchange(w);
    assert_false(alq_grpc_session_is_over(w->session));
    alq_grpc_reply(w->kept[0], hello, 5);
    exchange(w);
    assert_true(w->seen.is_ended[1]);
    assert_int_equal(w->seen.data_bytes[1], 10);
    assert_true(alq_grpc_session_is_over(w->session));
}

static void shutdown_takes_no_new_call_and_answers_the_open_ones(void **state)
{
    struct world *w = *state;
    put_call(&w->in, 1, "/t.S/Keep");
    exchange(w);
    alq_grpc_session_shutdown(w->session);
    exchange(w);
    assert_int_equal(w->seen.goaways, 1);
    assert_int_equal(w->seen.goaway_code, 0);
    put_call(&w->in, 3, "/t.S/Echo");
    exchange(w);
    assert_int_equal(w->echoed, 0);
    alq_grpc_reply(w->kept[0], hello, 5);
    exchange(w);
    assert_true(w->seen.is_ended[1]);
    assert_true(alq_grpc_session_is_over(w->session));
}

static void deadline_of_0_ends_the_call_at_once(void **state)
{
    struct world *w = *state;
    static struct bytes block;
    fields(&block, "/t.S/Keep");
    put_field(&block, "grpc-timeout", "0n");
    put_frame(&w->in, HEADERS, END_HEADERS, 1, block.data, block.len);
    put_frame(&w->in, DATA, END_STREAM, 1, hello, sizeof(hello));
    exchange(w);
    assert_int_equal(alq_grpc_session_deadline_ns(w->session), 0);
    alq_grpc_session_expire(w->session, 0);
    exchange(w);
    assert_true(w->seen.is_ended[1]);
    assert_int_equal(w->cancelled, w->kept_count);
    assert_int_equal(alq_grpc_session_open_calls(w->session), 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(frame_that_breaks_http2_ends_the_connection),
        T(broken_connection_cancels_its_calls_once),
        T(flood_without_end_ends_the_connection),
        T(request_with_bad_fields_is_reset_alone),
        T(request_in_frames_of_a_byte_with_padding_and_trailers_is_taken),
        T(unknown_frames_and_settings_are_passed_over),
        T(calls_beyond_100_at_once_are_refused_to_come_again),
        T(reset_before_the_request_is_whole_never_reaches_the_handler),
        T(reply_waits_for_a_window_of_a_byte_at_a_time),
        T(huge_reply_that_is_not_read_holds_up_nobody),
        T(goaway_of_the_peer_lets_its_open_calls_end),
        T(shutdown_takes_no_new_call_and_answers_the_open_ones),
        T(deadline_of_0_ends_the_call_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
