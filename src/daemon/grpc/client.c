/* SPDX-License-Identifier: Apache-2.0 */
/* A gRPC call as a client, see client.h: nghttp2 speaks HTTP/2, libevent waits. */
#include "daemon/grpc/client.h"

#include <errno.h>
#include <event2/event.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/grpc/session.h"

#define PREFIX_BYTES 5u
#define READ_BYTES 16384

struct alq_grpc_request {
    struct event_base *base;
    struct event *readable, *writable, *deadline;
    int fd;
    nghttp2_session *h2;
    uint8_t *sent; /* prefix and message */
    size_t sent_len, sent_at;
    uint8_t *got;
    size_t got_len, got_size;
    int is_grpc; /* its content-type */
    int status;  /* grpc-status, -1 while it has not come */
    char text[256];
    int is_closed; /* the stream */
    struct alq_err err;
    alq_grpc_answer_cb cb;
    void *arg;
};

/* ---- nghttp2's callbacks ----------------------------------------------------------------------
 */

static ssize_t on_body(nghttp2_session *h2, int32_t stream, uint8_t *buf, size_t len,
                       uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct alq_grpc_request *r = arg;
    (void)h2;
    (void)stream;
    (void)source;
    size_t n = r->sent_len - r->sent_at < len ? r->sent_len - r->sent_at : len;
    memcpy(buf, r->sent + r->sent_at, n);
    r->sent_at += n;
    if (r->sent_at == r->sent_len)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *arg)
{
    struct alq_grpc_request *r = arg;
    (void)h2;
    (void)frame;
    (void)name_len;
    (void)flags;
    const char *key = (const char *)name, *text = (const char *)value; /* NUL-terminated */
    if (!strcmp(key, "content-type"))
        r->is_grpc = !strncmp(text, "application/grpc", 16);
    else if (!strcmp(key, "grpc-status"))
        r->status = atoi(text);
    else if (!strcmp(key, "grpc-message"))
        snprintf(r->text, sizeof(r->text), "%.*s", (int)(len < 200 ? len : 200), text);
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t len, void *arg)
{
    struct alq_grpc_request *r = arg;
    (void)h2;
    (void)flags;
    (void)stream;
    if (len > ALQ_GRPC_MESSAGE_MAX_BYTES + PREFIX_BYTES - r->got_len)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (r->got_size - r->got_len < len) {
        size_t size = r->got_size ? r->got_size * 2 : READ_BYTES;
        while (size - r->got_len < len)
            size *= 2;
        uint8_t *got = realloc(r->got, size);
        if (!got)
            return NGHTTP2_ERR_CALLBACK_FAILURE;
        r->got = got;
        r->got_size = size;
    }
    memcpy(r->got + r->got_len, data, len);
    r->got_len += len;
    return 0;
}

static int on_close(nghttp2_session *h2, int32_t stream, uint32_t code, void *arg)
{
    struct alq_grpc_request *r = arg;
    (void)h2;
    (void)stream;
    (void)code;
    r->is_closed = 1;
    return 0;
}

/* ---- the end ----------------------------------------------------------------------------------
 */

static void finish(struct alq_grpc_request *r)
{
    alq_grpc_answer_cb cb = r->cb;
    void *arg = r->arg;
    struct alq_err err = r->err;
    alq_auto_free uint8_t *got = alq_steal(&r->got);
    size_t len = 0;
    if (!err.code && r->status > 0) {
        alq_err_set(&err, ALQ_EPROTO, "gRPC status %d: %s", r->status, r->text);
    } else if (!err.code) {
        for (size_t i = 1; i < PREFIX_BYTES && r->got_len >= PREFIX_BYTES; i++)
            len = len << 8 | got[i];
        if (r->status != 0 || !r->is_grpc || r->got_len < PREFIX_BYTES || got[0] ||
            len != r->got_len - PREFIX_BYTES)
            alq_err_set(&err, ALQ_EPROTO, "the answer is no gRPC message");
    }
    alq_grpc_request_free(r);
    if (err.code)
        cb(arg, NULL, 0, &err);
    else
        cb(arg, got + PREFIX_BYTES, len, NULL);
}

static void fail(struct alq_grpc_request *r, int code, const char *what)
{
    alq_err_set(&r->err, code, "%s", what);
    finish(r);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    fail(arg, ALQ_ETIMEDOUT, "no answer in time");
}

/* ---- bytes ------------------------------------------------------------------------------------
 */

/* -1: it has ended and is gone. */
static int send_some(struct alq_grpc_request *r)
{
    const uint8_t *data;
    for (ssize_t n; (n = nghttp2_session_mem_send(r->h2, &data)) != 0;) {
        /* What a call sends fits into a socket's buffer; one that does not take it is stuck. */
        if (n < 0 || send(r->fd, data, (size_t)n, MSG_NOSIGNAL) != n) {
            fail(r, ALQ_EIO, "the connection broke while asking");
            return -1;
        }
    }
    return 0;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct alq_grpc_request *r = arg;
    uint8_t buf[READ_BYTES];
    (void)what;
    ssize_t n = recv(fd, buf, sizeof(buf), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        fail(r, ALQ_EIO, "the connection broke");
        return;
    }
    if (nghttp2_session_mem_recv(r->h2, buf, (size_t)n) != n) {
        fail(r, ALQ_EPROTO, "the answer is no HTTP/2, or too long");
        return;
    }
    if (r->is_closed)
        finish(r);
    else
        send_some(r);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    send_some(arg);
}

/* ---- the beginning ----------------------------------------------------------------------------
 */

static int connect_to(const char *path, struct alq_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return alq_err_set(err, ALQ_ERANGE, "%s is too long for a unix socket", path);
    memcpy(address.sun_path, path, strlen(path));
    alq_auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
        return alq_err_errno(err, errno, "%s", path);
    return alq_steal_fd(&fd);
}

static int open_session(struct alq_grpc_request *r)
{
    nghttp2_session_callbacks *callbacks;
    if (nghttp2_session_callbacks_new(&callbacks))
        return -1;
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    int rc = nghttp2_session_client_new(&r->h2, callbacks, r);
    nghttp2_session_callbacks_del(callbacks);
    return rc ? -1 : nghttp2_submit_settings(r->h2, NGHTTP2_FLAG_NONE, NULL, 0);
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static int ask(struct alq_grpc_request *r, const char *path, const uint8_t *message, size_t len)
{
    const nghttp2_nv headers[] = {
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":path", path),
        header(":authority", "localhost"),
        header("te", "trailers"),
        header("content-type", "application/grpc"),
        header("user-agent", "aliquotd"),
    };
    const nghttp2_data_provider body = {.read_callback = on_body};
    r->sent_len = PREFIX_BYTES + len;
    r->sent = calloc(1, r->sent_len);
    if (!r->sent)
        return -1;
    for (size_t i = 1; i < PREFIX_BYTES; i++)
        r->sent[i] = (uint8_t)(len >> 8 * (PREFIX_BYTES - 1 - i));
    if (len)
        memcpy(r->sent + PREFIX_BYTES, message, len);
    return nghttp2_submit_request(r->h2, NULL, headers, sizeof(headers) / sizeof(headers[0]), &body,
                                  NULL) < 0
               ? -1
               : 0;
}

struct alq_grpc_request *alq_grpc_request_new(struct event_base *base, const char *socket,
                                              const char *path, const uint8_t *message, size_t len,
                                              long timeout_ms, alq_grpc_answer_cb cb, void *arg,
                                              struct alq_err *err)
{
    const struct timeval timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    int fd = connect_to(socket, err);
    if (fd < 0)
        return NULL;
    struct alq_grpc_request *r = calloc(1, sizeof(*r));
    if (!r) {
        close(fd);
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    r->base = base;
    r->fd = fd;
    r->status = -1;
    r->cb = cb;
    r->arg = arg;
    r->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, r);
    r->writable = event_new(base, fd, EV_WRITE, on_writable, r);
    r->deadline = evtimer_new(base, on_deadline, r);
    if (!r->readable || !r->writable || !r->deadline || open_session(r) ||
        ask(r, path, message, len)) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        alq_grpc_request_free(r);
        return NULL;
    }
    event_add(r->readable, NULL);
    event_add(r->writable, NULL);
    evtimer_add(r->deadline, &timeout);
    return r;
}

void alq_grpc_request_free(struct alq_grpc_request *r)
{
    struct event *events[] = {r ? r->readable : NULL, r ? r->writable : NULL,
                              r ? r->deadline : NULL};
    if (!r)
        return;
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
        if (events[i])
            event_free(events[i]);
    nghttp2_session_del(r->h2);
    close(r->fd);
    free(r->sent);
    free(r->got);
    free(r);
}
