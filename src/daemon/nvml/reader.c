/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parent of the NVML child: starts it, asks for a reading now and then, kills it when it does not
 * answer, starts another with back-off. A child stuck in the kernel cannot be reaped and is left to
 * itself; it holds up nothing. One hiccup changes nothing for the caller: the last reading stands
 * until the failures repeat. A child that hangs on one GPU is replaced by one that lets that GPU
 * be. While a GPU asks for a reset the child does not stay between the readings, for nvidia-smi
 * resets no GPU that somebody holds. Some 700 lines, for all of them are steps of one small state.
 * Loop thread only.
 */
#define ALQ_LOG_MODULE "nvml"
#include "daemon/nvml/reader.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "daemon/monitor/metrics.h"
#include "daemon/nvml/program.h"
#include "daemon/nvml/protocol.h"
#include "daemon/nvml/spawn.h"

#define FAILURES_TOLERATED 2 /* in a row, before the last reading is given up */
#define STOP_MS 1000         /* how long alq_nvml_stop waits for killed children */
#define STUCK_MAX 4          /* children that do not die; no more are started then */

struct alq_nvml {
    struct event_base *base;
    int program_fd; /* -1: none; what program names, kept open */
    char *program;
    char **argv;
    struct alq_nvml_timing timing;
    struct alq_nvml_calls calls;

    pid_t pid; /* 0: none runs */
    pid_t stuck[STUCK_MAX];
    int request_fd, reply_fd;
    struct event *readable; /* reply_fd */
    struct event *timer;    /* next request, deadline of one, or next start */
    int is_waiting;         /* a request is out */
    enum alq_nvml_request asked;
    alq_nvml_sample_cb sample_cb; /* NULL: no sample is wanted */
    void *sample_arg;
    alq_nvml_use_cb use_cb; /* likewise */
    void *use_arg;
    int at;           /* index of the GPU that the child is at, -1: none */
    unsigned replies; /* of this child */
    int64_t read_ms;  /* when it was last asked for a reading */
    int64_t look_ms;  /* when for one, or for events */
    struct skip {
        int64_t until_ms; /* 0: not skipped */
        unsigned times;
    } skips[ALQ_NVML_GPUS_MAX];
    long retry_ms;
    unsigned failures; /* in a row */

    char *line;
    size_t line_len;
    char *told;    /* what the caller was told last, as text to compare */
    char *restart; /* why a child last asked for another */
    int has_reading;
    struct alq_gpu_list last; /* the last reading; owned */
};

static void start_child(struct alq_nvml *n);
static void arm_next(struct alq_nvml *n);

static void arm(struct alq_nvml *n, long ms)
{
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    evtimer_add(n->timer, &tv);
}

/* What was wanted has come, or (NULL) does not. The caller may want more at once: what others wait
 * for goes out before. */
static void end_sample(struct alq_nvml *n, struct alq_sample *sample)
{
    alq_nvml_sample_cb cb = n->sample_cb;
    n->sample_cb = NULL;
    if (sample)
        arm_next(n);
    if (cb)
        cb(n->sample_arg, sample);
}

static void end_use(struct alq_nvml *n, struct alq_use *use)
{
    alq_nvml_use_cb cb = n->use_cb;
    n->use_cb = NULL;
    if (use)
        arm_next(n);
    if (cb)
        cb(n->use_arg, use);
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
    struct alq_nvml_reading *none;
    n->has_reading = 0;
    if (!is_news(&n->told, alq_str_printf("%d %s", code, reason)) ||
        !(none = calloc(1, sizeof(*none))))
        return;
    none->code = code;
    snprintf(none->reason, sizeof(none->reason), "%s", reason);
    n->calls.read(n->calls.arg, none);
    free(none);
}

static const struct alq_gpu *last_of(const struct alq_nvml *n, uint32_t index)
{
    for (size_t i = 0; i < n->last.count; i++) {
        if (n->last.gpus[i].index == index)
            return &n->last.gpus[i];
    }
    return NULL;
}

static int by_minor(const void *a, const void *b)
{
    const struct alq_gpu *x = a, *y = b;
    return (x->minor > y->minor) - (x->minor < y->minor);
}

/* The GPUs that the child was told to let be. */
static void add_skipped(const struct alq_nvml *n, struct alq_nvml_reading *reading)
{
    size_t skipped = 0;
    for (uint32_t i = 0; i < ALQ_NVML_GPUS_MAX; i++)
        skipped += n->skips[i].until_ms != 0;
    if (!skipped)
        return;
    struct alq_gpu *gpus =
        realloc(reading->list.gpus, (reading->list.count + skipped) * sizeof(*gpus));
    if (!gpus)
        return;
    reading->list.gpus = gpus;
    for (uint32_t i = 0; i < ALQ_NVML_GPUS_MAX; i++) {
        const struct alq_gpu *last = n->skips[i].until_ms ? last_of(n, i) : NULL;
        if (last) {
            gpus[reading->list.count] = *last;
            gpus[reading->list.count++].is_hanging = 1;
        } else if (n->skips[i].until_ms && reading->left_out_count < ALQ_NVML_GPUS_MAX) {
            struct alq_left_out *out = &reading->left_out[reading->left_out_count++];
            out->index = i;
            snprintf(out->reason, sizeof(out->reason),
                     "NVML hangs on it; see the kernel's log, reset it or reboot the node");
        }
    }
}

static void tell_reading(struct alq_nvml *n, struct alq_nvml_reading *reading)
{
    add_skipped(n, reading);
    if (reading->list.count)
        qsort(reading->list.gpus, reading->list.count, sizeof(*reading->list.gpus), by_minor);
    for (size_t i = 0; i < reading->list.count; i++) {
        struct skip *skip = &n->skips[reading->list.gpus[i].index % ALQ_NVML_GPUS_MAX];
        if (!skip->until_ms)
            skip->times = 0;
    }
    n->has_reading = 1;
    if (is_news(&n->told, alq_nvml_encode(reading)))
        n->calls.read(n->calls.arg, reading);
    free(n->last.gpus);
    n->last = reading->list;
    reading->list = (struct alq_gpu_list){0};
}

/* Whether a GPU waits for a reset, which our own child would be in the way of. */
static int is_reset_wanted(const struct alq_nvml *n)
{
    for (size_t i = 0; i < n->last.count; i++) {
        if (alq_nvml_is_reset(n->last.gpus[i].recovery_action))
            return 1;
    }
    return 0;
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
    n->at = -1;

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
    end_use(n, NULL);
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

static void child_misspoke(struct alq_nvml *n, const char *why)
{
    alq_warn(NULL, "%s", why);
    child_failed(n, ALQ_EPROTO, "sent what cannot be read");
}

static void request(struct alq_nvml *n, enum alq_nvml_request what)
{
    const char byte = (char)what;
    n->is_waiting = 1;
    n->asked = what;
    n->at = -1;
    if (what == ALQ_NVML_ASK_READING)
        n->read_ms = alq_now_ms();
    if (what == ALQ_NVML_ASK_READING || what == ALQ_NVML_ASK_EVENTS)
        n->look_ms = alq_now_ms();
    arm(n, n->replies ? n->timing.reply_ms : n->timing.first_reply_ms);
    /* One that does not listen any more has failed, but who asks hears of it later only. */
    if (write(n->request_fd, &byte, 1) != 1)
        kill(n->pid, SIGKILL);
}

/* Until events or a reading are due, however much else is asked for meanwhile; 0: they are. */
static long left_ms(const struct alq_nvml *n)
{
    int64_t due_ms = n->read_ms + n->timing.poll_ms;
    if (n->timing.events_ms && n->look_ms + n->timing.events_ms < due_ms)
        due_ms = n->look_ms + n->timing.events_ms;
    int64_t left = due_ms - alq_now_ms();
    return left > 0 ? (long)left : 0;
}

/* The next question, after the answer to the last. */
static void arm_next(struct alq_nvml *n)
{
    if (n->is_waiting)
        return; /* the caller has asked for something already */
    long left = left_ms(n);
    arm(n, left);
    if (left && (n->sample_cb || n->use_cb))
        request(n, n->sample_cb ? ALQ_NVML_ASK_SAMPLE : ALQ_NVML_ASK_USE);
}

static int is_skip_over(const struct alq_nvml *n, int64_t now)
{
    for (size_t i = 0; i < ALQ_NVML_GPUS_MAX; i++) {
        if (n->skips[i].until_ms && n->skips[i].until_ms <= now)
            return 1;
    }
    return 0;
}

/* A child was told for its life what to let be, so looking again takes another one; not while a
 * former one still hangs in the kernel. */
static void look_again(struct alq_nvml *n)
{
    int status;
    int64_t now = alq_now_ms();
    for (size_t i = 0; i < ALQ_NVML_GPUS_MAX; i++) {
        if (n->skips[i].until_ms && n->skips[i].until_ms <= now)
            n->skips[i].until_ms = 0;
    }
    drop_child(n, &status);
    start_child(n);
}

static void skip_gpu(struct alq_nvml *n)
{
    char index[16];
    const struct alq_gpu *gpu = last_of(n, (uint32_t)n->at);
    struct skip *skip = &n->skips[n->at];
    long ms = n->timing.skip_min_ms;
    int status;
    for (unsigned i = 0; i < skip->times && ms < n->timing.skip_max_ms; i++)
        ms *= 2;
    skip->times++;
    skip->until_ms = alq_now_ms() + (ms < n->timing.skip_max_ms ? ms : n->timing.skip_max_ms);
    snprintf(index, sizeof(index), "%d", n->at);
    alq_error(ALQ_LOG_KV({"index", index}, {"uuid", gpu ? gpu->uuid : ""}),
              "NVML hangs on a GPU; the reader was killed, the others are read without it");
    drop_child(n, &status);
    start_child(n);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct alq_nvml *n = arg;
    int64_t now = alq_now_ms();
    (void)fd;
    (void)what;
    if (!n->pid)
        start_child(n);
    else if (n->is_waiting && n->at >= 0)
        skip_gpu(n);
    else if (n->is_waiting)
        child_failed(n, ALQ_ETIMEDOUT,
                     "did not answer in time and was killed; a GPU or its driver hangs");
    else if (now - n->read_ms < n->timing.poll_ms)
        request(n, ALQ_NVML_ASK_EVENTS);
    else if (is_skip_over(n, now) && is_reaped(n))
        look_again(n);
    else
        request(n, ALQ_NVML_ASK_READING);
}

/* The child cannot go on. */
static void child_ends(struct alq_nvml *n, const struct alq_nvml_reading *reading)
{
    int status;
    drop_child(n, &status);
    if (reading->is_restart_wanted) {
        if (is_news(&n->restart, strdup(reading->reason)))
            alq_info(NULL, "starting another reader: %s", reading->reason);
        memset(n->skips, 0, sizeof(n->skips)); /* an index may be another GPU's now */
        arm(n, n->timing.retry_min_ms);
    } else {
        n->failures = 0;
        tell_absent(n, reading->code, reading->reason);
        retry_later(n);
    }
}

static void handle_reading(struct alq_nvml *n, const char *line, size_t len)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_nvml_reading *reading = calloc(1, sizeof(*reading));
    int status;
    if (!reading || alq_nvml_decode(line, len, reading, &err)) {
        child_misspoke(n, reading ? err.text : "out of memory");
    } else if (reading->is_restart_wanted || reading->code) {
        child_ends(n, reading);
    } else {
        n->failures = 0;
        n->retry_ms = n->timing.retry_min_ms;
        n->replies++;
        n->is_waiting = 0;
        tell_reading(n, reading);
        if (is_reset_wanted(n)) {
            drop_child(n, &status);
            arm(n, n->timing.poll_ms);
        } else {
            arm_next(n);
        }
    }
    if (reading)
        alq_nvml_reading_clear(reading);
    free(reading);
}

static void handle_events(struct alq_nvml *n, const char *line, size_t len)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_nvml_events *events = calloc(1, sizeof(*events));
    if (!events || alq_nvml_decode_events(line, len, events, &err)) {
        child_misspoke(n, events ? err.text : "out of memory");
    } else {
        n->replies++;
        n->is_waiting = 0;
        if (events->is_reading_due)
            n->read_ms = alq_now_ms() - n->timing.poll_ms;
        arm_next(n);
        for (size_t i = 0; i < events->count; i++)
            n->calls.happened(n->calls.arg, &events->events[i]);
    }
    free(events);
}

static void handle_sample(struct alq_nvml *n, const char *line, size_t len)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_sample sample;
    if (alq_sample_decode(line, len, &sample, &err)) {
        child_misspoke(n, err.text);
    } else {
        n->is_waiting = 0;
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
    if (!n->is_waiting && left_ms(n))
        request(n, ALQ_NVML_ASK_SAMPLE);
    return 0;
}

static void handle_use(struct alq_nvml *n, const char *line, size_t len)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_use use;
    if (alq_use_decode(line, len, &use, &err)) {
        child_misspoke(n, err.text);
    } else {
        n->is_waiting = 0;
        end_use(n, &use);
    }
    alq_use_clear(&use);
}

int alq_nvml_use(struct alq_nvml *n, alq_nvml_use_cb cb, void *arg)
{
    if (n->use_cb || !n->pid || !n->has_reading)
        return -1;
    n->use_cb = cb;
    n->use_arg = arg;
    if (!n->is_waiting && left_ms(n))
        request(n, ALQ_NVML_ASK_USE);
    return 0;
}

/* A whole line. Returns whether what follows it may be read: the child still runs, and has not said
 * all yet. */
static int handle_line(struct alq_nvml *n, const char *line, size_t len, int is_last)
{
    int at = alq_nvml_decode_progress(line, len);
    /* One answer to one request: what follows it has not been asked for. */
    if (!n->is_waiting || (at < 0 && !is_last)) {
        child_failed(n, ALQ_EPROTO, "spoke without being asked");
    } else if (at >= 0) {
        n->at = at;
        arm(n, n->replies ? n->timing.reply_ms : n->timing.first_reply_ms);
        return 1;
    } else if (n->asked == ALQ_NVML_ASK_EVENTS) {
        handle_events(n, line, len);
    } else if (n->asked == ALQ_NVML_ASK_SAMPLE) {
        handle_sample(n, line, len);
    } else if (n->asked == ALQ_NVML_ASK_USE) {
        handle_use(n, line, len);
    } else {
        handle_reading(n, line, len);
    }
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
    size_t used = 0;
    for (char *end; (end = memchr(n->line + used, '\n', n->line_len - used));) {
        const char *line = n->line + used;
        used = (size_t)(end - n->line) + 1;
        if (!handle_line(n, line, (size_t)(end - line), used == n->line_len)) {
            n->line_len = 0;
            return;
        }
    }
    n->line_len -= used;
    memmove(n->line, n->line + used, n->line_len);
    if (n->line_len == ALQ_NVML_LINE_BYTES_MAX)
        child_failed(n, ALQ_EPROTO, "sent too long a line");
}

static void start_child(struct alq_nvml *n)
{
    if (!free_stuck(n)) {
        tell_absent(
            n, ALQ_EBUSY,
            "NVML readers hang in the kernel and cannot be killed; the node needs a reboot");
        retry_later(n);
        return;
    }
    struct alq_nvml_child child;
    int rc = alq_nvml_spawn(n->program, n->argv, &child);
    n->readable =
        rc ? NULL : event_new(n->base, child.reply_fd, EV_READ | EV_PERSIST, on_readable, n);
    if (!n->readable) {
        char reason[ALQ_NVML_REASON_BYTES];
        if (!rc) {
            kill(child.pid, SIGKILL);
            *free_stuck(n) = child.pid;
            close(child.request_fd);
            close(child.reply_fd);
        }
        snprintf(reason, sizeof(reason), "NVML reader %.160s cannot be started: %s", n->program,
                 strerror(rc ? rc : ENOMEM));
        tell_absent(n, ALQ_EIO, reason);
        retry_later(n);
        return;
    }
    n->pid = child.pid;
    n->request_fd = child.request_fd;
    n->reply_fd = child.reply_fd;
    n->replies = 0;
    n->line_len = 0;
    event_add(n->readable, NULL);
    alq_metric_add(ALQ_METRIC_NVML_READERS, 1, NULL, NULL);
    for (size_t i = 0; i < ALQ_NVML_GPUS_MAX; i++) {
        const char skip[2] = {ALQ_NVML_SKIP, (char)i};
        if (n->skips[i].until_ms && write(n->request_fd, skip, 2) != 2)
            kill(n->pid, SIGKILL);
    }
    request(n, ALQ_NVML_ASK_READING);
}

/* ---- life ---------------------------------------------------------------------------------------
 */

struct alq_nvml *alq_nvml_start_with(struct event_base *base, const char *program,
                                     char *const *argv, const struct alq_nvml_timing *timing,
                                     const struct alq_nvml_calls *calls, struct alq_err *err)
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
    n->timing = *timing;
    n->calls = *calls;
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
                                const struct alq_nvml_calls *calls, struct alq_err *err)
{
    /* Without a persistence daemon the driver initialises each GPU at the first call, some seconds
     * each. */
    static const struct alq_nvml_timing timing = {.first_reply_ms = 60000,
                                                  .reply_ms = 20000,
                                                  .poll_ms = 10000,
                                                  .events_ms = 1000,
                                                  .retry_min_ms = 500,
                                                  .retry_max_ms = 30000,
                                                  .skip_min_ms = 60000,
                                                  .skip_max_ms = 3600000};
    char name[] = ALQ_NVML_PROGRAM, path[64];
    char *const argv[] = {name, cfg->driver_root, cfg->dev_root, NULL};
    alq_auto_free char *dir = NULL;
    alq_auto_close int fd = -1;
    if (alq_nvml_program_dir(&dir, err) || alq_nvml_program_open(dir, &fd, err))
        return NULL;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    struct alq_nvml *n = alq_nvml_start_with(base, path, argv, &timing, calls, err);
    if (n)
        n->program_fd = alq_steal_fd(&fd);
    return n;
}

void alq_nvml_release(struct alq_nvml *n, unsigned seconds)
{
    char text[16];
    int status;
    snprintf(text, sizeof(text), "%u", seconds);
    alq_info(ALQ_LOG_KV({"seconds", text}), "the driver is let go");
    if (n->pid) {
        kill(n->pid, SIGKILL);
        drop_child(n, &status);
    }
    arm(n, (long)seconds * 1000);
}

void alq_nvml_stop(struct alq_nvml *n)
{
    if (!n)
        return;
    n->sample_cb = NULL;
    n->use_cb = NULL;
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
    free(n->last.gpus);
    free(n);
}
