/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines, read back from the pipe they were written to, and not written where nobody reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"

#define ALQ_LOG_MODULE "test"

static int pipe_fds[2];
static char line[2 * PIPE_BUF];

static int open_pipe(void **state)
{
    (void)state;
    return pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK);
}

static int close_pipe(void **state)
{
    (void)state;
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_TEXT, 2);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return 0;
}

/* What one read gives: all that was written, since nothing else writes. "" when nothing was. */
static const char *written(void)
{
    ssize_t n = read(pipe_fds[0], line, sizeof(line) - 1);
    line[n > 0 ? n : 0] = '\0';
    return line;
}

/* The part behind the time, whose form is checked here. */
static const char *without_time(const char *text)
{
    static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ ";
    for (size_t i = 0; shape[i]; i++) {
        if (shape[i] == 'd')
            assert_true(text[i] >= '0' && text[i] <= '9');
        else
            assert_int_equal(text[i], shape[i]);
    }
    return text + strlen(shape);
}

static void text_line_has_time_level_module_message_pairs(void **state)
{
    (void)state;
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_TEXT, pipe_fds[1]);
    alq_warn(ALQ_LOG_KV({"claim", "default/a"}, {"pod", NULL}, {"device", "hami-gpu-0"}),
             "cannot prepare, attempt %d", 2);
    assert_string_equal(without_time(written()),
                        "warn test: cannot prepare, attempt 2 claim=default/a device=hami-gpu-0\n");
}

static void text_without_pairs_is_message_alone(void **state)
{
    (void)state;
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_TEXT, pipe_fds[1]);
    alq_error(NULL, "stopped");
    assert_string_equal(without_time(written()), "error test: stopped\n");
}

static void text_values_are_quoted_when_they_could_be_misread(void **state)
{
    (void)state;
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_TEXT, pipe_fds[1]);
    alq_info(ALQ_LOG_KV({"a", "x y"}, {"b", ""}, {"c", "k=v"}, {"d", "say \"hi\""}, {"e", "l1\nl2"},
                        {"f", "\x1b[31m"}, {"g", "\xc3\xa9"}, {"h", "\xff"}),
             "m");
    assert_string_equal(
        without_time(written()),
        "info test: m a=\"x y\" b=\"\" c=\"k=v\" d=\"say \\\"hi\\\"\" e=\"l1\\nl2\" "
        "f=\"\\x1b[31m\" g=\"\xc3\xa9\" h=\"\\xff\"\n");
}

static void text_message_with_newline_stays_one_line(void **state)
{
    (void)state;
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_TEXT, pipe_fds[1]);
    alq_info(NULL, "%s", "first\n2026-01-01T00:00:00.000Z error forged");
    const char *text = written();
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void json_line_is_an_object_with_all_fields(void **state)
{
    (void)state;
    alq_log_init(ALQ_LOG_DEBUG, ALQ_LOG_JSON, pipe_fds[1]);
    alq_debug(ALQ_LOG_KV({"claim", "a\"b\\c"}, {"skipped", NULL}, {"raw", "\x01\xff\n"}),
              "hello %s", "w\xc3\xb6rld");
    alq_auto_json json_t *json = NULL;
    const char *text = written();
    assert_int_equal(alq_json_parse(text, strlen(text), "line", &json, NULL), 0);
    assert_int_equal(json_object_size(json), 6);
    without_time(strcat(strcpy((char[64]){0}, alq_json_str(json, "time")), " "));
    assert_string_equal(alq_json_str(json, "level"), "debug");
    assert_string_equal(alq_json_str(json, "module"), "test");
    assert_string_equal(alq_json_str(json, "message"), "hello w\xc3\xb6rld");
    assert_string_equal(alq_json_str(json, "claim"), "a\"b\\c");
    assert_string_equal(alq_json_str(json, "raw"), "\x01\xef\xbf\xbd\n");
}

/* Lengths around the limit, where a cut could fall between a quote and its value. */
static void json_line_cut_at_any_length_is_still_an_object(void **state)
{
    (void)state;
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_JSON, pipe_fds[1]);
    char value[PIPE_BUF + 64];
    for (size_t len = PIPE_BUF - 400; len < PIPE_BUF; len++) {
        memset(value, 'v', len);
        value[len] = '\0';
        alq_info(ALQ_LOG_KV({"first", value}, {"second", "s\n\n\n"}, {"third", "t"}), "m");
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_json json_t *json = NULL;
        const char *text = written();
        if (alq_json_parse(text, strlen(text), "line", &json, &err) < 0)
            fail_msg("length %zu: %s", len, err.text);
        assert_true(strlen(line) <= PIPE_BUF);
        assert_int_equal(line[strlen(line) - 1], '\n');
    }
}

static void text_line_too_long_is_cut_and_ends(void **state)
{
    (void)state;
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_TEXT, pipe_fds[1]);
    char value[2 * PIPE_BUF];
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    alq_info(ALQ_LOG_KV({"a", "b"}, {"v", value}), "m");
    const char *text = written();
    assert_true(strlen(text) <= PIPE_BUF);
    assert_string_equal(text + strlen(text) - 4, "...\n");
}

static void level_below_the_limit_writes_nothing(void **state)
{
    (void)state;
    alq_log_init(ALQ_LOG_WARN, ALQ_LOG_TEXT, pipe_fds[1]);
    alq_info(NULL, "quiet");
    assert_string_equal(written(), "");
    assert_true(alq_log_enabled(ALQ_LOG_ERROR));
    assert_true(alq_log_enabled(ALQ_LOG_WARN));
    assert_false(alq_log_enabled(ALQ_LOG_INFO));
}

/* ---- a reader that does not read ---------------------------------------------------------------
 */

static unsigned lines_in(int fd, char *last, size_t size)
{
    static char text[PIPE_BUF];
    unsigned lines = 0;
    size_t at = 0;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (ssize_t n; (n = read(fd, text, sizeof(text))) > 0;) {
        for (ssize_t i = 0; i < n; i++) {
            if (text[i] != '\n' && at + 1 < size)
                last[at++] = text[i];
            if (text[i] != '\n')
                continue;
            last[at] = '\0';
            at = 0;
            lines++;
        }
    }
    return lines;
}

/* Writes more than the descriptor takes: with one that waits, the alarm ends the test. */
static void lose_lines(int reader, int writer)
{
    enum { LINES = 20000 };
    char last[256];
    assert_int_equal(fcntl(writer, F_GETFL) & O_NONBLOCK, 0);
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_TEXT, writer);
    alarm(30);
    for (int i = 0; i < LINES; i++)
        alq_info(NULL, "line");
    alarm(0);
    assert_int_equal(fcntl(writer, F_GETFL) & O_NONBLOCK, 0); /* of whoever shares it */
    unsigned kept = lines_in(reader, last, sizeof(last));
    assert_in_range(kept, 1, LINES - 1);
    assert_string_equal(without_time(last), "info test: line");

    char want[128], lost[256];
    alq_info(NULL, "heard again");
    ssize_t n = read(reader, lost, sizeof(lost) - 1);
    lost[n > 0 ? n : 0] = '\0';
    char *second = strchr(lost, '\n');
    snprintf(want, sizeof(want), "warn log: lines lost: they could not be written count=%u",
             LINES - kept);
    if (!second) /* a socket's or pipe's read gives what is there: both lines, but for a cut */
        fail_msg("one line: %s", lost);
    *second = '\0';
    assert_string_equal(without_time(lost), want);
    assert_string_equal(without_time(second + 1), "info test: heard again\n");
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_TEXT, STDERR_FILENO);
    close(reader);
    close(writer);
}

static void write_to_a_full_pipe_drops_and_counts(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    lose_lines(fds[0], fds[1]);
}

static void write_to_a_full_socket_drops_and_counts(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    lose_lines(fds[0], fds[1]);
}

/* As a daemon that is not root and was given root's pipe. */
static void write_to_a_full_pipe_of_another_user_drops_and_counts(void **state)
{
    (void)state;
    int fds[2];
    if (geteuid())
        skip();
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    assert_int_equal(seteuid(65534), 0);
    lose_lines(fds[0], fds[1]);
    assert_int_equal(seteuid(0), 0);
}

static void write_without_a_reader_is_dropped(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    alq_log_init(ALQ_LOG_INFO, ALQ_LOG_TEXT, pipe_fds[1]);
    close(pipe_fds[0]);
    errno = 7;
    alq_info(NULL, "nobody");
    assert_int_equal(errno, 7);
}

#define with_pipe(f) cmocka_unit_test_setup_teardown(f, open_pipe, close_pipe)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_pipe(text_line_has_time_level_module_message_pairs),
        with_pipe(text_without_pairs_is_message_alone),
        with_pipe(text_values_are_quoted_when_they_could_be_misread),
        with_pipe(text_message_with_newline_stays_one_line),
        with_pipe(json_line_is_an_object_with_all_fields),
        with_pipe(json_line_cut_at_any_length_is_still_an_object),
        with_pipe(text_line_too_long_is_cut_and_ends),
        with_pipe(level_below_the_limit_writes_nothing),
        cmocka_unit_test(write_to_a_full_pipe_drops_and_counts),
        cmocka_unit_test(write_to_a_full_socket_drops_and_counts),
        cmocka_unit_test(write_to_a_full_pipe_of_another_user_drops_and_counts),
        with_pipe(write_without_a_reader_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
