/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC client against peers that answer well, badly or not at all: each is a string of bytes
 * written into its socket, in one thread with the loop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/grpc/client.h"
#include "daemon/grpc/session.h"

#define LONG_MS 60000 /* no test takes so long: only what the peer does ends the call */
#define CHUNK 16384u

/* Frames by RFC 9113: length, type, flags, stream; header blocks in HPACK's literal forms. */
#define FRAME(len, type, flags, stream) "\0\0" len type flags "\0\0\0" stream
#define SETTINGS FRAME("\0", "\4", "\0", "\0")
#define STATUS_200 "\x88"
#define GRPC_TYPE                                                                                  \
    "\x0f\x10\x10"                                                                                 \
    "application/grpc"
#define HEADERS FRAME("\x14", "\1", "\4", "\1") STATUS_200 GRPC_TYPE
#define TRAILERS_OK                                                                                \
    FRAME("\x0f", "\1", "\5", "\1")                                                                \
    "\0\x0b"                                                                                       \
    "grpc-status"                                                                                  \
    "\1"                                                                                           \
    "0"
#define BYTES(text) text, sizeof(text) - 1

static struct world {
    struct event_base *base;
    char dir[32], path[48];
    int listener, peer;
    struct alq_grpc_request *request;
    unsigned answers;
    int code;
    char text[ALQ_ERR_TEXT_BYTES];
    char message[16];
    size_t len;
} w;

static int start(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)state;
    w = (struct world){.dir = "/tmp/alq-grpc-XXXXXX", .peer = -1};
    w.base = event_base_new();
    assert_non_null(mkdtemp(w.dir));
    snprintf(w.path, sizeof(w.path), "%s/s", w.dir);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", w.path);
    w.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(w.listener, (struct sockaddr *)&address, sizeof(address)), 0);
    return listen(w.listener, 1);
}

static int end(void **state)
{
    (void)state;
    if (w.peer >= 0)
        close(w.peer);
    close(w.listener);
    unlink(w.path);
    rmdir(w.dir);
    event_base_free(w.base);
    return 0;
}

static void on_answer(void *arg, const uint8_t *message, size_t len, const struct alq_err *err)
{
    (void)arg;
    w.answers++;
    w.code = err ? err->code : 0;
    snprintf(w.text, sizeof(w.text), "%s", err ? err->text : "");
    w.len = len;
    if (len && len < sizeof(w.message))
        memcpy(w.message, message, len);
}

static void ask(long timeout_ms)
{
    struct alq_err err = ALQ_ERR_INIT;
    w.request = alq_grpc_request_new(w.base, w.path, "/a.B/C", (const uint8_t *)"hi", 2, timeout_ms,
                                     on_answer, NULL, &err);
    assert_non_null(w.request);
    w.peer = accept(w.listener, NULL, NULL);
    assert_true(w.peer >= 0);
}

static void say(const char *bytes, size_t len)
{
    assert_int_equal(send(w.peer, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

static void hang_up(void)
{
    shutdown(w.peer, SHUT_WR);
}

/* Until the call has ended, once. */
static void assert_ends(int code, const char *words)
{
    while (!w.answers)
        event_base_loop(w.base, EVLOOP_ONCE);
    event_base_loop(w.base, EVLOOP_NONBLOCK);
    assert_int_equal(w.answers, 1);
    assert_int_equal(w.code, code);
    assert_non_null(strstr(w.text, words));
}

static void request_with_an_answer_gives_its_message(void **state)
{
    (void)state;
    ask(LONG_MS);
    say(BYTES(SETTINGS HEADERS FRAME("\7", "\0", "\0", "\1") "\0\0\0\0\2"
                                                             "ok" TRAILERS_OK));
    assert_ends(0, "");
    assert_int_equal(w.len, 2);
    assert_memory_equal(w.message, "ok", 2);
}

static void request_answered_byte_by_byte_gives_its_message(void **state)
{
    static const char answer[] = SETTINGS HEADERS FRAME("\7", "\0", "\0", "\1") "\0\0\0\0\2"
                                                                                "ok" TRAILERS_OK;
    (void)state;
    ask(LONG_MS);
    for (size_t i = 0; i < sizeof(answer) - 1; i++) {
        assert_int_equal(w.answers, 0);
        say(&answer[i], 1);
        event_base_loop(w.base, EVLOOP_NONBLOCK);
    }
    assert_ends(0, "");
}

static void request_whose_message_is_cut_is_an_error(void **state)
{
    (void)state;
    ask(LONG_MS); /* says 3 bytes, has 2 */
    say(BYTES(SETTINGS HEADERS FRAME("\7", "\0", "\0", "\1") "\0\0\0\0\3"
                                                             "ok" TRAILERS_OK));
    assert_ends(ALQ_EPROTO, "no gRPC message");
}

static void request_whose_message_claims_four_gib_is_an_error(void **state)
{
    (void)state;
    ask(LONG_MS);
    say(BYTES(SETTINGS HEADERS FRAME("\7", "\0", "\0", "\1") "\0\xff\xff\xff\xff"
                                                             "ok" TRAILERS_OK));
    assert_ends(ALQ_EPROTO, "no gRPC message");
}

static void request_whose_frame_is_cut_is_an_error(void **state)
{
    (void)state;
    ask(LONG_MS);
    say(BYTES(SETTINGS HEADERS FRAME("\7", "\0", "\0", "\1") "\0\0\0"));
    hang_up();
    assert_ends(ALQ_EIO, "the connection broke");
}

static void request_whose_answer_has_no_end_of_length_is_cut_off(void **state)
{
    static char frame[9 + CHUNK] = "\0\x40\0\0\0\0\0\0\1";
    unsigned chunks = 0;
    (void)state;
    ask(LONG_MS);
    say(BYTES(SETTINGS HEADERS));
    for (; !w.answers && chunks < 2 * ALQ_GRPC_MESSAGE_MAX_BYTES / CHUNK; chunks++) {
        say(frame, sizeof(frame));
        for (int i = 0; i < 3; i++) /* so that it has given back the window */
            event_base_loop(w.base, EVLOOP_NONBLOCK);
    }
    assert_ends(ALQ_EPROTO, "too long");
    assert_in_range(chunks, ALQ_GRPC_MESSAGE_MAX_BYTES / CHUNK,
                    ALQ_GRPC_MESSAGE_MAX_BYTES / CHUNK + 2);
}

static void request_that_the_peer_refuses_has_its_status(void **state)
{
    (void)state;
    ask(LONG_MS); /* 16, UNAUTHENTICATED, without a body */
    say(BYTES(SETTINGS FRAME("\x24", "\1", "\5", "\1") STATUS_200 GRPC_TYPE "\0\x0b"
                                                                            "grpc-status"
                                                                            "\2"
                                                                            "16"));
    assert_ends(ALQ_EPROTO, "gRPC status 16");
}

static void request_that_the_peer_resets_is_an_error(void **state)
{
    (void)state;
    ask(LONG_MS);
    say(BYTES(SETTINGS FRAME("\4", "\3", "\0", "\1") "\0\0\0\2"));
    assert_ends(ALQ_EPROTO, "no gRPC message");
}

static void request_to_what_is_no_grpc_is_an_error(void **state)
{
    static const char *const answers[] = {"HTTP/1.1 400 Bad Request\r\n\r\n",
                                          "garbage, and enough of it for a frame's header"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        w.answers = 0;
        ask(LONG_MS);
        say(answers[i], strlen(answers[i]));
        hang_up();
        while (!w.answers)
            event_base_loop(w.base, EVLOOP_ONCE);
        assert_true(w.code == ALQ_EPROTO || w.code == ALQ_EIO);
        close(w.peer);
    }
    w.peer = -1;
}

static void request_to_a_peer_that_hangs_ends_in_time(void **state)
{
    (void)state;
    ask(20);
    say(BYTES(SETTINGS HEADERS));
    assert_ends(ALQ_ETIMEDOUT, "no answer in time");
}

static void request_to_a_socket_that_is_gone_is_an_error_at_once(void **state)
{
    struct alq_err err = ALQ_ERR_INIT;
    (void)state;
    close(w.listener); /* the file is still there: nobody listens */
    assert_null(
        alq_grpc_request_new(w.base, w.path, "/a.B/C", NULL, 0, LONG_MS, on_answer, NULL, &err));
    assert_int_not_equal(err.code, 0);
    unlink(w.path);
    err = (struct alq_err)ALQ_ERR_INIT;
    assert_null(
        alq_grpc_request_new(w.base, w.path, "/a.B/C", NULL, 0, LONG_MS, on_answer, NULL, &err));
    assert_int_equal(err.code, ALQ_ENOENT);
    assert_non_null(strstr(err.text, w.path));
    assert_int_equal(w.answers, 0);
    w.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); /* for end() */
}

static void request_that_is_freed_is_not_answered(void **state)
{
    (void)state;
    ask(LONG_MS);
    say(BYTES(SETTINGS HEADERS));
    event_base_loop(w.base, EVLOOP_NONBLOCK);
    alq_grpc_request_free(w.request);
    event_base_loop(w.base, EVLOOP_NONBLOCK);
    assert_int_equal(w.answers, 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(request_with_an_answer_gives_its_message),
        TEST(request_answered_byte_by_byte_gives_its_message),
        TEST(request_whose_message_is_cut_is_an_error),
        TEST(request_whose_message_claims_four_gib_is_an_error),
        TEST(request_whose_frame_is_cut_is_an_error),
        TEST(request_whose_answer_has_no_end_of_length_is_cut_off),
        TEST(request_that_the_peer_refuses_has_its_status),
        TEST(request_that_the_peer_resets_is_an_error),
        TEST(request_to_what_is_no_grpc_is_an_error),
        TEST(request_to_a_peer_that_hangs_ends_in_time),
        TEST(request_to_a_socket_that_is_gone_is_an_error_at_once),
        TEST(request_that_is_freed_is_not_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
