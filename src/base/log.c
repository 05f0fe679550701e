/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines. Each is built in a buffer of PIPE_BUF bytes on the stack and written by one write(2),
 * which a pipe (and the journal behind it) keeps whole; what does not fit is cut, and the line
 * stays well-formed. A write never waits for a reader: a line that cannot be written at once is
 * dropped and counted, and the next one that can says how many went before. Any thread, no locks;
 * all settings but the level are
 * written before threads start. errno is left as it was.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* How not to wait for a reader; O_NONBLOCK on the descriptor that we were given would be felt by
 * everybody who shares it. */
enum way {
    WAY_WRITE, /* it is a file, or opened by us for not waiting */
    WAY_SEND,  /* a socket, as of the journal */
    WAY_POLL,  /* asked first whether it would wait */
};

static struct {
    atomic_int level; /* enum alq_log_level; relaxed: a line more or less */
    enum alq_log_format format;
    int fd;
    int own_fd; /* fd when we opened it, else -1 */
    enum way way;
} settings = {ALQ_LOG_INFO, ALQ_LOG_TEXT, STDERR_FILENO, -1, WAY_WRITE};

static atomic_uint lost_lines; /* any thread, relaxed: only a figure */

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* The last bytes are kept for what closes a line that was cut: "..." a quote, a brace, a newline.
 */
#define TAIL_BYTES 8
#define MESSAGE_BYTES 2048

struct line {
    size_t len;
    int is_full;
    char buf[PIPE_BUF];
};

static void put(struct line *l, const char *text, size_t len)
{
    if (l->is_full || l->len + len > sizeof(l->buf) - TAIL_BYTES) {
        l->is_full = 1;
        return;
    }
    memcpy(l->buf + l->len, text, len);
    l->len += len;
}

static void puts_(struct line *l, const char *text)
{
    put(l, text, strlen(text));
}

/* Length of the well-formed UTF-8 sequence of a printable character at s (no C1 controls), or 0. */
static size_t utf8_len(const unsigned char *s)
{
    size_t n;
    unsigned cp;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        n = 2;
        cp = s[0] & 0x1fu;
    } else if ((s[0] & 0xf0) == 0xe0) {
        n = 3;
        cp = s[0] & 0x0fu;
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        n = 4;
        cp = s[0] & 0x07u;
    } else {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        cp = cp << 6 | (s[i] & 0x3fu);
    }
    if (cp < 0xa0 || (n == 3 && cp < 0x800) || (n == 4 && (cp < 0x10000 || cp > 0x10ffff)) ||
        (cp >= 0xd800 && cp <= 0xdfff))
        return 0;
    return n;
}

/* The characters of text, with what could break or forge a line escaped. JSON has no \x, so it gets
 * \u00NN, and U+FFFD for bytes that are not UTF-8. */
static void put_escaped(struct line *l, const char *text, int is_json, int is_quoted)
{
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        char esc[8];
        size_t n;
        if ((*s == '"' || *s == '\\') && is_quoted) {
            esc[0] = '\\';
            esc[1] = (char)*s;
            put(l, esc, 2);
            s++;
        } else if (*s == '\n' || *s == '\r' || *s == '\t') {
            esc[0] = '\\';
            esc[1] = *s == '\n' ? 'n' : *s == '\r' ? 'r' : 't';
            put(l, esc, 2);
            s++;
        } else if (*s >= 0x20 && *s < 0x7f) {
            put(l, (const char *)s, 1);
            s++;
        } else if ((n = utf8_len(s)) != 0) {
            put(l, (const char *)s, n);
            s += n;
        } else {
            if (is_json)
                snprintf(esc, sizeof(esc), "\\u%04x", *s < 0x80 ? *s : 0xfffd);
            else
                snprintf(esc, sizeof(esc), "\\x%02x", *s);
            puts_(l, esc);
            s++;
        }
    }
}

static int needs_quotes(const char *text)
{
    if (!*text)
        return 1;
    for (const char *s = text; *s; s++) {
        if (*s <= 0x20 || *s >= 0x7f || *s == '"' || *s == '=' || *s == '\\')
            return 1;
    }
    return 0;
}

/* Writes past the limit that put() keeps: only for the few bytes that TAIL_BYTES holds free. */
static void put_tail(struct line *l, const char *text)
{
    size_t len = strlen(text);
    if (l->len + len <= sizeof(l->buf)) {
        memcpy(l->buf + l->len, text, len);
        l->len += len;
    }
}

static void put_json_string(struct line *l, const char *text)
{
    if (l->is_full)
        return;
    put(l, "\"", 1);
    if (l->is_full)
        return;
    put_escaped(l, text, 1, 1);
    put_tail(l, l->is_full ? "...\"" : "\"");
}

/* A pair is written only when its key fits with an empty value, so that a cut line is still an
 * object. */
static void put_json_pair(struct line *l, const char *sep, const char *key, const char *value)
{
    if (l->len + strlen(key) * 6 + 8 > sizeof(l->buf) - TAIL_BYTES)
        l->is_full = 1;
    if (l->is_full)
        return;
    puts_(l, sep);
    put_json_string(l, key);
    put(l, ":", 1);
    put_json_string(l, value);
}

static void build_text(struct line *l, enum alq_log_level level, const char *module,
                       const struct alq_log_kv *kv, const char *when, const char *message)
{
    puts_(l, when);
    put(l, " ", 1);
    puts_(l, level_names[level]);
    put(l, " ", 1);
    puts_(l, module);
    put(l, ": ", 2);
    put_escaped(l, message, 0, 0);
    for (; kv && kv->key; kv++) {
        if (!kv->value)
            continue;
        put(l, " ", 1);
        puts_(l, kv->key);
        put(l, "=", 1);
        if (needs_quotes(kv->value)) {
            put(l, "\"", 1);
            put_escaped(l, kv->value, 0, 1);
            put(l, "\"", 1);
        } else {
            puts_(l, kv->value);
        }
    }
    put_tail(l, l->is_full ? "...\n" : "\n");
}

static void build_json(struct line *l, enum alq_log_level level, const char *module,
                       const struct alq_log_kv *kv, const char *when, const char *message)
{
    put_json_pair(l, "{", "time", when);
    put_json_pair(l, ",", "level", level_names[level]);
    put_json_pair(l, ",", "module", module);
    put_json_pair(l, ",", "message", message);
    for (; kv && kv->key; kv++) {
        if (kv->value)
            put_json_pair(l, ",", kv->key, kv->value);
    }
    put_tail(l, "}\n");
}

/* A pipe or terminal is opened a second time; that needs rights on it that we may not have, and a
 * reader. */
static void choose_way(int fd)
{
    struct stat st;
    char path[32];
    settings.fd = fd;
    settings.way = WAY_POLL;
    if (settings.own_fd >= 0)
        close(settings.own_fd);
    settings.own_fd = -1;
    if (fstat(fd, &st) || S_ISREG(st.st_mode)) {
        settings.way = WAY_WRITE;
    } else if (S_ISSOCK(st.st_mode)) {
        settings.way = WAY_SEND;
    } else {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        settings.own_fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    }
    if (settings.own_fd >= 0) {
        settings.fd = settings.own_fd;
        settings.way = WAY_WRITE;
    }
}

void alq_log_init(enum alq_log_level level, enum alq_log_format format, int fd)
{
    alq_log_set_level(level);
    settings.format = format;
    choose_way(fd);
}

void alq_log_set_level(enum alq_log_level level)
{
    atomic_store_explicit(&settings.level, (int)level, memory_order_relaxed);
}

int alq_log_enabled(enum alq_log_level level)
{
    return (int)level <= atomic_load_explicit(&settings.level, memory_order_relaxed);
}

static void build(struct line *l, enum alq_log_level level, const char *module,
                  const struct alq_log_kv *kv, const char *message)
{
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    char seconds[32];
    char when[48];
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when, sizeof(when), "%s.%03dZ", seconds, (int)(now.tv_nsec / 1000000));

    l->len = 0;
    l->is_full = 0;
    if (settings.format == ALQ_LOG_JSON)
        build_json(l, level, module, kv, when, message);
    else
        build_text(l, level, module, kv, when, message);
}

static int write_line(const struct line *l)
{
    ssize_t n;
    struct pollfd room = {.fd = settings.fd, .events = POLLOUT};
    if (settings.way == WAY_POLL && poll(&room, 1, 0) != 1)
        return -1;
    do {
        if (settings.way == WAY_SEND)
            n = send(settings.fd, l->buf, l->len, MSG_DONTWAIT | MSG_NOSIGNAL);
        else
            n = write(settings.fd, l->buf, l->len);
    } while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

static int write_lost(unsigned lost)
{
    char count[16];
    struct line l;
    snprintf(count, sizeof(count), "%u", lost);
    build(&l, ALQ_LOG_WARN, "log", ALQ_LOG_KV({"count", count}),
          "lines lost: they could not be written");
    return write_line(&l);
}

void alq_log_write(enum alq_log_level level, const char *module, const struct alq_log_kv *kv,
                   const char *fmt, ...)
{
    int saved = errno;
    char message[MESSAGE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(message, sizeof(message), fmt, ap) < 0)
        message[0] = '\0';
    va_end(ap);

    struct line l;
    build(&l, level, module, kv, message);
    unsigned lost = atomic_exchange_explicit(&lost_lines, 0, memory_order_relaxed);
    if (lost && !write_lost(lost))
        lost = 0;
    if (lost || write_line(&l))
        atomic_fetch_add_explicit(&lost_lines, lost + 1, memory_order_relaxed);
    errno = saved;
}
