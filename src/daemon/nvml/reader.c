/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parent of the NVML child: starts it, asks for a reading now and then, kills it when it does not
 * answer, starts another with back-off. A child stuck in the kernel cannot be reaped and is left to
 * itself; it holds up nothing. One hiccup changes nothing for the caller: the last reading stands
 * until the failures repeat. Loop thread only.
 */
#define ALQ_LOG_MODULE "nvml"
#include "daemon/nvml/reader.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/nvml/program.h"
#include "daemon/nvml/protocol.h"

#define FAILURES_TOLERATED 2 /* in a row, before the last reading is given up */
#define STOP_MS 1000         /* how long alq_nvml_stop waits for killed children */
#define STUCK_MAX 4          /* children that do not die; no more are started then */
#define MIB (1024 * 1024)
#define NS_PER_S 1000000000ll
#define NS_PER_MS 1000000

extern char **environ;

struct alq_nvml {
    struct event_base *base;
    int program_fd; /* -1: none; what program names, kept open */
    char *program;
    char **argv;
    uint64_t reserve_bytes;
    struct alq_nvml_timing timing;
    alq_nvml_devices_cb on_devices;
    void *arg;

    pid_t pid; /* 0: none runs */
    pid_t stuck[STUCK_MAX];
    int request_fd, reply_fd;
    struct event *readable;       /* reply_fd */
    struct event *timer;          /* next request, deadline of one, or next start */
    int is_waiting;               /* a request is out */
    int64_t poll_ns;              /* when the next reading is due */
    alq_nvml_sample_cb sample_cb; /* NULL: no sample is wanted */
    void *sample_arg;
    int is_sampling;  /* the request that is out is for it */
    unsigned replies; /* of this child */
    long retry_ms;
    unsigned failures; /* in a row */

    char *line;
    size_t line_len;
    char *told;     /* what the caller was told last, as text to compare */
    char *restart;  /* why a child last asked for another */
    char *left_out; /* what was logged last about GPUs left out */
    int has_reading;
};

static void start_child(struct alq_nvml *n);

static void arm(struct alq_nvml *n, long ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    evtimer_add(n->timer, &tv);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* Until the next reading. */
static void arm_poll(struct alq_nvml *n)
{
    int64_t left_ns = n->poll_ns - now_ns();
    arm(n, left_ns > 0 ? (long)(left_ns / NS_PER_MS) : 0);
}

static void end_sample(struct alq_nvml *n, const struct alq_sample *sample)
{
    alq_nvml_sample_cb cb = n->sample_cb;
    n->sample_cb = NULL;
    n->is_sampling = 0;
    if (cb)
        cb(n->sample_arg, sample);
}

/* ---- what the caller hears ----------------------------------------------------------------------
 */

/* Whether text differs from what was told last; remembers it. */
static int is_news(char **last, char *text)
{
    if (*last && text && !strcmp(*last, text)) {
        free(text);
        return 0;
    }
    free(*last);
    *last = text;
    return 1;
}

static void tell_absent(struct alq_nvml *n, int code, const char *reason)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_gpu_list none = {0};
    n->has_reading = 0;
    if (!is_news(&n->told, alq_str_printf("%d %s", code, reason)))
        return;
    alq_err_set(&err, code, "%s", reason);
    n->on_devices(n->arg, &none, &err);
}

static void tell_left_out(struct alq_nvml *n, const struct alq_nvml_reading *reading)
{
    char text[2048] = "";
    size_t used = 0;
    for (size_t i = 0; i < reading->left_out_count && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%sgpu %u: %s", used ? "; " : "",
                                 reading->left_out[i].index, reading->left_out[i].reason);
    if (is_news(&n->left_out, strdup(text)) && text[0])
        alq_warn(NULL, "not offered: %s", text);
}

static void tell_reading(struct alq_nvml *n, struct alq_nvml_reading *reading)
{
    for (size_t i = 0; i < reading->list.count; i++) {
        uint64_t *bytes = &reading->list.gpus[i].memory_promisable_bytes;
        *bytes = *bytes > n->reserve_bytes ? (*bytes - n->reserve_bytes) / MIB * MIB : 0;
    }
    tell_left_out(n, reading);
    n->has_reading = 1;
    reading->left_out_count = 0;
    if (is_news(&n->told, alq_nvml_encode(reading)))
        n->on_devices(n->arg, &reading->list, NULL);
}

/* ---- the child ----------------------------------------------------------------------------------
 */

static void reap_stuck(struct alq_nvml *n)
{
    for (size_t i = 0; i < STUCK_MAX; i++) {
        if (n->stuck[i] && waitpid(n->stuck[i], NULL, WNOHANG) != 0)
            n->stuck[i] = 0;
    }
}

static int is_reaped(struct alq_nvml *n)
{
    reap_stuck(n);
    for (size_t i = 0; i < STUCK_MAX; i++) {
        if (n->stuck[i])
            return 0;
    }
    return 1;
}

static pid_t *free_stuck(struct alq_nvml *n)
{
    reap_stuck(n);
    for (size_t i = 0; i < STUCK_MAX; i++) {
        if (!n->stuck[i])
            return &n->stuck[i];
    }
    return NULL;
}

/* Ends the running child without waiting for it. *status is its wait status if it was dead already,
 * else -1. */
static void drop_child(struct alq_nvml *n, int *status)
{
    *status = -1;
    event_free(n->readable);
    n->readable = NULL;
    close(n->reply_fd);
    close(n->request_fd);
    event_del(n->timer);
    n->is_waiting = 0;
    n->line_len = 0;

    /* Its end of the pipe closes a moment before the kernel lets us reap it. */
    pid_t done = 0;
    for (int i = 0; i < 5 && !(done = waitpid(n->pid, status, WNOHANG)); i++) {
        if (i == 1)
            kill(n->pid, SIGKILL);
        if (i)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (done == 0) {
        *status = -1;
        *free_stuck(n) = n->pid; /* start_child made sure that there is room */
    }
    n->pid = 0;
    end_sample(n, NULL);
}

static void retry_later(struct alq_nvml *n)
{
    /* Jitter of a quarter, so that the nodes of a cluster do not move together. */
    long ms = n->retry_ms - n->retry_ms / 8 + (long)(random() % (n->retry_ms / 4 + 1));
    n->retry_ms =
        n->retry_ms * 2 > n->timing.retry_max_ms ? n->timing.retry_max_ms : n->retry_ms * 2;
    arm(n, ms);
}

/* The child broke down rather than gave an answer. */
static void child_failed(struct alq_nvml *n, int code, const char *what)
{
    int status;
    char reason[ALQ_NVML_REASON_BYTES];
    drop_child(n, &status);
    if (status != -1 && WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        snprintf(reason, sizeof(reason), "NVML reader died by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(reason, sizeof(reason), "NVML reader %s", what);
    n->failures++;
    if (n->failures == 1)
        alq_warn(NULL, "%s, starting another", reason);
    if (n->failures > FAILURES_TOLERATED || !n->has_reading)
        tell_absent(n, code, reason);
    retry_later(n);
}

static void request(struct alq_nvml *n, char what)
{
    n->is_waiting = 1;
    n->is_sampling = what == ALQ_NVML_ASK_SAMPLE;
    arm(n, n->replies ? n->timing.reply_ms : n->timing.first_reply_ms);
    if (write(n->request_fd, &what, 1) != 1)
        child_failed(n, ALQ_EIO, "ended");
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct alq_nvml *n = arg;
    (void)fd;
    (void)what;
    if (!n->pid)
        start_child(n);
    else if (n->is_waiting)
        child_failed(n, ALQ_ETIMEDOUT,
                     "did not answer in time and was killed; a GPU or its driver hangs");
    else
        request(n, ALQ_NVML_ASK_READING);
}

/* A whole line. Returns whether the child still runs. */
static int handle_line(struct alq_nvml *n, const char *line, size_t len)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_nvml_reading *reading = calloc(1, sizeof(*reading));
    int status, keeps = 0;
    if (!reading || alq_nvml_decode(line, len, reading, &err)) {
        alq_warn(NULL, "%s", reading ? err.text : "out of memory");
        child_failed(n, ALQ_EPROTO, "sent what cannot be read");
    } else if (reading->is_restart_wanted) {
        if (is_news(&n->restart, strdup(reading->reason)))
            alq_info(NULL, "starting another reader: %s", reading->reason);
        drop_child(n, &status);
        arm(n, n->timing.retry_min_ms);
    } else if (reading->code) {
        drop_child(n, &status);
        n->failures = 0;
        tell_absent(n, reading->code, reading->reason);
        retry_later(n);
    } else {
        keeps = 1;
        n->failures = 0;
        n->retry_ms = n->timing.retry_min_ms;
        n->replies++;
        n->is_waiting = 0;
        n->poll_ns = now_ns() + n->timing.poll_ms * NS_PER_MS;
        arm_poll(n);
        tell_reading(n, reading);
        if (n->sample_cb && !n->is_waiting)
            request(n, ALQ_NVML_ASK_SAMPLE);
    }
    if (reading)
        alq_nvml_reading_clear(reading);
    free(reading);
    return keeps;
}

static void handle_sample(struct alq_nvml *n, const char *line, size_t len)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_sample sample;
    if (alq_sample_decode(line, len, &sample, &err)) {
        alq_warn(NULL, "%s", err.text);
        child_failed(n, ALQ_EPROTO, "sent what cannot be read");
    } else {
        n->is_waiting = 0;
        arm_poll(n);
        end_sample(n, &sample);
    }
    alq_sample_clear(&sample);
}

int alq_nvml_sample(struct alq_nvml *n, alq_nvml_sample_cb cb, void *arg)
{
    if (n->sample_cb || !n->pid || !n->has_reading)
        return -1;
    n->sample_cb = cb;
    n->sample_arg = arg;
    if (!n->is_waiting)
        request(n, ALQ_NVML_ASK_SAMPLE);
    return 0;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct alq_nvml *n = arg;
    (void)what;
    ssize_t got = read(fd, n->line + n->line_len, ALQ_NVML_LINE_BYTES_MAX - n->line_len);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        child_failed(n, ALQ_EIO, "ended without an answer");
        return;
    }
    n->line_len += (size_t)got;
    char *end = memchr(n->line, '\n', n->line_len);
    if (!end) {
        if (n->line_len == ALQ_NVML_LINE_BYTES_MAX)
            child_failed(n, ALQ_EPROTO, "sent too long a line");
        return;
    }
    /* One answer to one request: what follows the newline has not been asked for. */
    size_t len = (size_t)(end - n->line);
    if (!n->is_waiting || len + 1 != n->line_len) {
        child_failed(n, ALQ_EPROTO, "spoke without being asked");
        return;
    }
    n->line_len = 0;
    if (n->is_sampling)
        handle_sample(n, n->line, len);
    else
        handle_line(n, n->line, len);
}

static int spawn(struct alq_nvml *n, int request_end, int reply_end)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, request_end, 0);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    posix_spawn_file_actions_adddup2(&actions, reply_end, 3);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn(&n->pid, n->program, &actions, &attributes, n->argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (rc)
        n->pid = 0;
    return rc;
}

/* A descriptor above those that the child gets, so that dup2 never meets itself (it would keep
 * close-on-exec). */
static int raise_fd(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 10);
    close(fd);
    return high;
}

static void start_child(struct alq_nvml *n)
{
    int ask[2] = {-1, -1}, answer[2] = {-1, -1};
    if (!free_stuck(n)) {
        tell_absent(
            n, ALQ_EBUSY,
            "NVML readers hang in the kernel and cannot be killed; the node needs a reboot");
        retry_later(n);
        return;
    }
    int rc = pipe2(ask, O_CLOEXEC) ? errno : 0;
    if (!rc && pipe2(answer, O_CLOEXEC))
        rc = errno;
    if (!rc) {
        ask[0] = raise_fd(ask[0]);
        answer[1] = raise_fd(answer[1]);
        fcntl(answer[0], F_SETFL, O_NONBLOCK);
        fcntl(ask[1], F_SETFL, O_NONBLOCK);
        rc = ask[0] < 0 || answer[1] < 0 ? EMFILE : spawn(n, ask[0], answer[1]);
    }
    if (ask[0] >= 0)
        close(ask[0]);
    if (answer[1] >= 0)
        close(answer[1]);
    n->readable = rc ? NULL : event_new(n->base, answer[0], EV_READ | EV_PERSIST, on_readable, n);
    if (rc || !n->readable) {
        char reason[ALQ_NVML_REASON_BYTES];
        if (n->pid) {
            kill(n->pid, SIGKILL);
            *free_stuck(n) = n->pid;
            n->pid = 0;
        }
        if (ask[1] >= 0)
            close(ask[1]);
        if (answer[0] >= 0)
            close(answer[0]);
        snprintf(reason, sizeof(reason), "NVML reader %.160s cannot be started: %s", n->program,
                 strerror(rc ? rc : ENOMEM));
        tell_absent(n, ALQ_EIO, reason);
        retry_later(n);
        return;
    }
    n->request_fd = ask[1];
    n->reply_fd = answer[0];
    n->replies = 0;
    n->line_len = 0;
    event_add(n->readable, NULL);
    request(n, ALQ_NVML_ASK_READING);
}

/* ---- life ---------------------------------------------------------------------------------------
 */

struct alq_nvml *alq_nvml_start_with(struct event_base *base, const char *program,
                                     char *const *argv, uint64_t reserve_bytes,
                                     const struct alq_nvml_timing *timing,
                                     alq_nvml_devices_cb on_devices, void *arg, struct alq_err *err)
{
    size_t count = 0;
    while (argv[count])
        count++;
    struct alq_nvml *n = calloc(1, sizeof(*n));
    if (!n) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    n->base = base;
    n->program_fd = -1;
    n->program = strdup(program);
    n->reserve_bytes = reserve_bytes;
    n->timing = *timing;
    n->on_devices = on_devices;
    n->arg = arg;
    n->retry_ms = timing->retry_min_ms;
    n->argv = calloc(count + 1, sizeof(*n->argv));
    n->line = malloc(ALQ_NVML_LINE_BYTES_MAX);
    n->timer = evtimer_new(base, on_timer, n);
    int is_whole = n->program && n->argv && n->line && n->timer;
    for (size_t i = 0; is_whole && i < count; i++)
        is_whole = (n->argv[i] = strdup(argv[i])) != NULL;
    if (!is_whole) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        alq_nvml_stop(n);
        return NULL;
    }
    arm(n, 0);
    return n;
}

struct alq_nvml *alq_nvml_start(struct event_base *base, const struct alq_config *cfg,
                                alq_nvml_devices_cb on_devices, void *arg, struct alq_err *err)
{
    /* Without a persistence daemon the driver initialises each GPU at the first call, some seconds
     * each. */
    static const struct alq_nvml_timing timing = {.first_reply_ms = 60000,
                                                  .reply_ms = 20000,
                                                  .poll_ms = 10000,
                                                  .retry_min_ms = 500,
                                                  .retry_max_ms = 30000};
    char name[] = ALQ_NVML_PROGRAM, path[64];
    char *const argv[] = {name, cfg->driver_root, NULL};
    alq_auto_free char *dir = NULL;
    alq_auto_close int fd = -1;
    if (alq_nvml_program_dir(&dir, err) || alq_nvml_program_open(dir, &fd, err))
        return NULL;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct alq_nvml *n =
        alq_nvml_start_with(base, path, argv, cfg->reserve_bytes, &timing, on_devices, arg, err);
    if (n)
        n->program_fd = alq_steal_fd(&fd);
    return n;
}

void alq_nvml_stop(struct alq_nvml *n)
{
    if (!n)
        return;
    n->sample_cb = NULL;
    if (n->pid) {
        int status;
        kill(n->pid, SIGKILL);
        drop_child(n, &status);
    }
    /* A killed child is gone at once, unless the kernel holds it; then init reaps it after us. */
    for (int i = 0; i < STOP_MS && !is_reaped(n); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (n->timer)
        event_free(n->timer);
    for (char **a = n->argv; a && *a; a++)
        free(*a);
    free(n->argv);
    free(n->program);
    if (n->program_fd >= 0)
        close(n->program_fd);
    free(n->line);
    free(n->told);
    free(n->restart);
    free(n->left_out);
    free(n);
}
