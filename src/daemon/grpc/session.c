/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one connection: nghttp2 has frames, windows, pings and header compression; this file
 * has calls. A call goes through headers, body, running (the handler owns the answer) and ended;
 * whatever the peer does wrong ends that call alone with a gRPC status. One thread.
 */
#include "daemon/grpc/session.h"

#include <nghttp2/nghttp2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define PREFIX_BYTES 5u /* compressed flag, big-endian length */
#define STREAMS_MAX 100u
#define HEADER_LIST_MAX_BYTES (16u * 1024)
#define UNREAD_MAX_BYTES (16u * 1024 * 1024) /* request bytes held by all calls of a connection */
#define UNSENT_MAX_BYTES ALQ_GRPC_MESSAGE_MAX_BYTES
#define MESSAGE_TEXT_BYTES 1024

enum phase {
    PHASE_HEADERS, /* request header is coming in */
    PHASE_BODY,    /* request message is coming in */
    PHASE_RUNNING, /* the handler has it */
    PHASE_ENDED,   /* answered or given up; the rest is nghttp2's */
};

struct chunk {
    STAILQ_ENTRY(chunk) link;
    size_t len;
    size_t sent;
    uint8_t data[];
};

struct alq_grpc_call {
    LIST_ENTRY(alq_grpc_call) link;
    struct alq_grpc_session *session;
    int32_t stream_id;
    enum phase phase;
    const struct alq_grpc_method *method;
    size_t header_bytes;
    int is_post;
    int is_grpc; /* content-type */
    int is_timeout_bad;
    int is_encoding_unknown;
    int is_half_closed; /* the peer has sent everything */
    int is_response_started;
    int is_finished; /* no message follows: trailers after the queue */
    int64_t timeout_ns;
    int64_t deadline_ns;
    char unknown[256]; /* path without a handler, for the error */
    uint8_t *body;
    size_t body_len;
    size_t body_size;
    STAILQ_HEAD(chunk_queue, chunk) out;
    size_t out_bytes;
    enum alq_grpc_status status;
    char *status_text; /* percent-encoded; NULL: none */
    void (*on_cancel)(void *arg);
    void *cancel_arg;
    void (*on_drained)(void *arg);
    void *drained_arg;
};

struct alq_grpc_session {
    nghttp2_session *h2;
    const struct alq_grpc_method *methods;
    void (*on_output)(void *arg);
    void *arg;
    LIST_HEAD(call_list, alq_grpc_call) calls;
    size_t unread_bytes;
    unsigned running;
    int64_t now_ns;
    int is_feeding;
    int is_broken; /* out of memory in the middle of an answer */
};

/* ---- texts ------------------------------------------------------------------------------------
 */

int64_t alq_grpc_timeout_parse(const char *text, size_t len)
{
    static const struct {
        char letter;
        int64_t ns;
    } units[] = {{'n', 1},
                 {'u', 1000},
                 {'m', 1000000},
                 {'S', 1000000000},
                 {'M', 60 * 1000000000ll},
                 {'H', 3600 * 1000000000ll}};
    if (len < 2 || len > 9)
        return -1;
    int64_t value = 0;
    for (size_t i = 0; i + 1 < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (units[i].letter != text[len - 1])
            continue;
        return value > INT64_MAX / 2 / units[i].ns ? INT64_MAX / 2 : value * units[i].ns;
    }
    return -1;
}

void alq_grpc_message_encode(const char *text, char *out, size_t size)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        int is_plain = *p >= 0x20 && *p <= 0x7e && *p != '%';
        if (n + (is_plain ? 1 : 3) >= size)
            break;
        if (is_plain) {
            out[n++] = (char)*p;
        } else {
            out[n++] = '%';
            out[n++] = hex[*p >> 4];
            out[n++] = hex[*p & 15];
        }
    }
    out[n] = '\0';
}

static nghttp2_nv header(const char *name, const char *value)
{
    /* nghttp2 copies both; the casts only undo its missing const. */
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

/* ---- ends of calls ----------------------------------------------------------------------------
 */

static void check(struct alq_grpc_session *session, int rc)
{
    if (rc)
        session->is_broken = 1;
}

static void tell_output(struct alq_grpc_session *session)
{
    if (!session->is_feeding && session->on_output)
        session->on_output(session->arg);
}

static void leave_running(struct alq_grpc_call *call)
{
    if (call->phase == PHASE_RUNNING)
        call->session->running--;
    call->phase = PHASE_ENDED;
    call->on_cancel = NULL;
    call->on_drained = NULL;
}

static void drop_body(struct alq_grpc_call *call)
{
    call->session->unread_bytes -= call->body_len;
    free(call->body);
    call->body = NULL;
    call->body_len = call->body_size = 0;
}

static void cancel(struct alq_grpc_call *call)
{
    void (*on_cancel)(void *arg) = call->phase == PHASE_RUNNING ? call->on_cancel : NULL;
    leave_running(call);
    if (on_cancel)
        on_cancel(call->cancel_arg);
}

static void call_free(struct alq_grpc_call *call)
{
    cancel(call);
    drop_body(call);
    for (struct chunk *c; (c = STAILQ_FIRST(&call->out));) {
        STAILQ_REMOVE_HEAD(&call->out, link);
        free(c);
    }
    LIST_REMOVE(call, link);
    free(call->status_text);
    free(call);
}

static int add_trailers(const struct alq_grpc_call *call, nghttp2_nv nv[2], char number[16])
{
    int n = 0;
    snprintf(number, 16, "%d", (int)call->status);
    nv[n++] = header("grpc-status", number);
    if (call->status_text)
        nv[n++] = header("grpc-message", call->status_text);
    return n;
}

static ssize_t read_chunks(nghttp2_session *h2, int32_t stream_id, uint8_t *buf, size_t length,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)user;
    struct alq_grpc_call *call = source->ptr;
    size_t n = 0;
    for (struct chunk *c; n < length && (c = STAILQ_FIRST(&call->out));) {
        size_t part = c->len - c->sent < length - n ? c->len - c->sent : length - n;
        memcpy(buf + n, c->data + c->sent, part);
        c->sent += part;
        n += part;
        if (c->sent == c->len) {
            STAILQ_REMOVE_HEAD(&call->out, link);
            free(c);
        }
    }
    call->out_bytes -= n;
    if (n && STAILQ_EMPTY(&call->out) && call->on_drained) {
        void (*on_drained)(void *arg) = call->on_drained;
        call->on_drained = NULL;
        on_drained(call->drained_arg);
    }
    if (STAILQ_EMPTY(&call->out) && call->is_finished) {
        nghttp2_nv nv[2];
        char number[16];
        int count = add_trailers(call, nv, number);
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (nghttp2_submit_trailer(h2, stream_id, nv, (size_t)count))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
    } else if (!n) {
        return NGHTTP2_ERR_DEFERRED;
    }
    return (ssize_t)n;
}

static void start_response(struct alq_grpc_call *call)
{
    nghttp2_session *h2 = call->session->h2;
    nghttp2_nv nv[4] = {header(":status", "200"), header("content-type", "application/grpc")};
    if (call->is_finished && STAILQ_EMPTY(&call->out)) {
        char number[16];
        int count = add_trailers(call, nv + 2, number);
        check(call->session,
              nghttp2_submit_response(h2, call->stream_id, nv, 2 + (size_t)count, NULL));
    } else {
        nghttp2_data_provider provider = {.source.ptr = call, .read_callback = read_chunks};
        check(call->session, nghttp2_submit_response(h2, call->stream_id, nv, 2, &provider));
    }
    call->is_response_started = 1;
}

static void push(struct alq_grpc_call *call)
{
    struct alq_grpc_session *session = call->session;
    if (!call->is_response_started)
        start_response(call);
    else if (nghttp2_session_resume_data(session->h2, call->stream_id) == NGHTTP2_ERR_NOMEM)
        session->is_broken = 1;
    tell_output(session);
}

static void end(struct alq_grpc_call *call, enum alq_grpc_status status, const char *text)
{
    leave_running(call);
    drop_body(call);
    call->status = status;
    call->is_finished = 1;
    if (text && *text) {
        size_t size = 3 * strlen(text) + 1;
        call->status_text = malloc(size);
        if (call->status_text)
            alq_grpc_message_encode(text, call->status_text, size);
    }
    push(call);
}

/* An answer in HTTP's terms, to a peer that does not speak gRPC. */
static void refuse_http(struct alq_grpc_call *call, const char *code)
{
    nghttp2_nv nv = header(":status", code);
    leave_running(call);
    call->is_response_started = call->is_finished = 1;
    check(call->session, nghttp2_submit_response(call->session->h2, call->stream_id, &nv, 1, NULL));
}

void alq_grpc_fail(struct alq_grpc_call *call, enum alq_grpc_status status, const char *fmt, ...)
{
    char text[MESSAGE_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    end(call, status, text);
}

int alq_grpc_send(struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    if (len > ALQ_GRPC_MESSAGE_MAX_BYTES || call->out_bytes > UNSENT_MAX_BYTES)
        return -1;
    struct chunk *c = malloc(sizeof(*c) + PREFIX_BYTES + len);
    if (!c)
        return -1;
    c->len = PREFIX_BYTES + len;
    c->sent = 0;
    c->data[0] = 0;
    for (unsigned i = 0; i < 4; i++)
        c->data[1 + i] = (uint8_t)(len >> (24 - 8 * i));
    if (len)
        memcpy(c->data + PREFIX_BYTES, message, len);
    STAILQ_INSERT_TAIL(&call->out, c, link);
    call->out_bytes += c->len;
    push(call);
    return 0;
}

void alq_grpc_finish(struct alq_grpc_call *call)
{
    end(call, ALQ_GRPC_OK, NULL);
}

void alq_grpc_reply(struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    if (alq_grpc_send(call, message, len))
        alq_grpc_fail(call, ALQ_GRPC_RESOURCE_EXHAUSTED, "reply of %zu bytes is too large", len);
    else
        alq_grpc_finish(call);
}

void alq_grpc_on_cancel(struct alq_grpc_call *call, void (*on_cancel)(void *arg), void *arg)
{
    call->on_cancel = on_cancel;
    call->cancel_arg = arg;
}

void alq_grpc_on_drained(struct alq_grpc_call *call, void (*on_drained)(void *arg), void *arg)
{
    call->on_drained = on_drained;
    call->drained_arg = arg;
}

int64_t alq_grpc_call_deadline_ns(const struct alq_grpc_call *call)
{
    return call->deadline_ns;
}

/* ---- requests ---------------------------------------------------------------------------------
 */

static void refuse_method(struct alq_grpc_call *call)
{
    const char *path = call->unknown[0] == '/' ? call->unknown + 1 : call->unknown;
    const char *slash = strrchr(path, '/');
    size_t service_len = slash ? (size_t)(slash - path) : 0;
    if (!slash) {
        alq_grpc_fail(call, ALQ_GRPC_UNIMPLEMENTED, "malformed method name: \"%s\"", call->unknown);
        return;
    }
    for (const struct alq_grpc_method *m = call->session->methods; m->path; m++) {
        if (strncmp(m->path + 1, path, service_len + 1) != 0)
            continue;
        alq_grpc_fail(call, ALQ_GRPC_UNIMPLEMENTED, "unknown method %s for service %.*s", slash + 1,
                      (int)service_len, path);
        return;
    }
    alq_grpc_fail(call, ALQ_GRPC_UNIMPLEMENTED, "unknown service %.*s", (int)service_len, path);
}

/* The request header is complete. */
static void take_headers(struct alq_grpc_call *call)
{
    if (call->phase != PHASE_HEADERS)
        return;
    call->phase = PHASE_BODY;
    if (call->timeout_ns >= 0)
        call->deadline_ns = call->session->now_ns + call->timeout_ns;
    if (!call->is_post)
        refuse_http(call, "405");
    else if (!call->is_grpc)
        refuse_http(call, "415");
    else if (call->header_bytes > HEADER_LIST_MAX_BYTES)
        alq_grpc_fail(call, ALQ_GRPC_RESOURCE_EXHAUSTED, "request headers above %u bytes",
                      HEADER_LIST_MAX_BYTES);
    else if (call->is_timeout_bad)
        alq_grpc_fail(call, ALQ_GRPC_INTERNAL, "malformed grpc-timeout");
    else if (call->is_encoding_unknown)
        alq_grpc_fail(call, ALQ_GRPC_UNIMPLEMENTED, "grpc-encoding: only identity is known here");
    else if (!call->method)
        refuse_method(call);
}

/* Refuses as soon as the first bytes show that the message cannot be taken. */
static void check_prefix(struct alq_grpc_call *call)
{
    if (call->body_len < PREFIX_BYTES)
        return;
    uint32_t len = 0;
    for (unsigned i = 0; i < 4; i++)
        len = len << 8 | call->body[1 + i];
    if (call->body[0])
        alq_grpc_fail(call, ALQ_GRPC_INTERNAL, "compressed message without grpc-encoding");
    else if (len > ALQ_GRPC_MESSAGE_MAX_BYTES)
        alq_grpc_fail(call, ALQ_GRPC_RESOURCE_EXHAUSTED,
                      "received message larger than max (%u vs. %u)", len,
                      ALQ_GRPC_MESSAGE_MAX_BYTES);
    else if (call->body_len > PREFIX_BYTES + (size_t)len)
        alq_grpc_fail(call, ALQ_GRPC_INTERNAL, "more than one message in a unary request");
    else if (call->is_half_closed && call->body_len < PREFIX_BYTES + (size_t)len)
        alq_grpc_fail(call, ALQ_GRPC_INTERNAL, "request ends within its message");
}

static void take_end(struct alq_grpc_call *call)
{
    call->is_half_closed = 1;
    if (call->phase != PHASE_BODY)
        return;
    if (call->body_len < PREFIX_BYTES) {
        alq_grpc_fail(call, ALQ_GRPC_INTERNAL, "request without a message");
        return;
    }
    check_prefix(call);
    if (call->phase != PHASE_BODY)
        return;
    /* The body stays with this function: the handler may answer and thereby drop the call's. */
    uint8_t *body = call->body;
    size_t len = call->body_len;
    call->session->unread_bytes -= len;
    call->body = NULL;
    call->body_len = call->body_size = 0;
    call->phase = PHASE_RUNNING;
    call->session->running++;
    call->method->handler(call->method->arg, call, body + PREFIX_BYTES, len - PREFIX_BYTES);
    free(body);
}

static void take_data(struct alq_grpc_call *call, const uint8_t *data, size_t len)
{
    if (call->phase != PHASE_BODY)
        return;
    size_t need = call->body_len + len;
    if (need > PREFIX_BYTES + ALQ_GRPC_MESSAGE_MAX_BYTES ||
        call->session->unread_bytes + len > UNREAD_MAX_BYTES) {
        alq_grpc_fail(call, ALQ_GRPC_RESOURCE_EXHAUSTED, "too many request bytes");
        return;
    }
    if (need > call->body_size) {
        size_t size = call->body_size ? call->body_size : 256;
        while (size < need)
            size *= 2;
        uint8_t *body = realloc(call->body, size);
        if (!body) {
            alq_grpc_fail(call, ALQ_GRPC_RESOURCE_EXHAUSTED, "out of memory");
            return;
        }
        call->body = body;
        call->body_size = size;
    }
    memcpy(call->body + call->body_len, data, len);
    call->body_len = need;
    call->session->unread_bytes += len;
    check_prefix(call);
}

/* ---- nghttp2's callbacks ----------------------------------------------------------------------
 */

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    struct alq_grpc_session *session = user;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct alq_grpc_call *call = calloc(1, sizeof(*call));
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    call->session = session;
    call->stream_id = frame->hd.stream_id;
    call->timeout_ns = -1;
    call->deadline_ns = INT64_MAX;
    STAILQ_INIT(&call->out);
    LIST_INSERT_HEAD(&session->calls, call, link);
    nghttp2_session_set_stream_user_data(h2, call->stream_id, call);
    return 0;
}

static int is_name(const uint8_t *name, size_t len, const char *want)
{
    return len == strlen(want) && !memcmp(name, want, len);
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *user)
{
    (void)flags;
    struct alq_grpc_session *session = user;
    struct alq_grpc_call *call = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (!call || call->phase != PHASE_HEADERS)
        return 0;
    const char *text = (const char *)value; /* nghttp2 ends it with NUL */
    call->header_bytes += name_len + len + 32;
    if (call->header_bytes > HEADER_LIST_MAX_BYTES)
        return 0;
    if (is_name(name, name_len, ":method")) {
        call->is_post = !strcmp(text, "POST");
    } else if (is_name(name, name_len, ":path")) {
        for (const struct alq_grpc_method *m = session->methods; m->path; m++)
            if (!strcmp(m->path, text))
                call->method = m;
        if (!call->method)
            snprintf(call->unknown, sizeof(call->unknown), "%s", text);
    } else if (is_name(name, name_len, "content-type")) {
        static const char want[] = "application/grpc";
        char after = len >= sizeof(want) - 1 ? text[sizeof(want) - 1] : '\0';
        call->is_grpc = !strncmp(text, want, sizeof(want) - 1) &&
                        (after == '\0' || after == '+' || after == ';');
    } else if (is_name(name, name_len, "grpc-timeout")) {
        call->timeout_ns = alq_grpc_timeout_parse(text, len);
        call->is_timeout_bad = call->timeout_ns < 0;
    } else if (is_name(name, name_len, "grpc-encoding")) {
        call->is_encoding_unknown = strcmp(text, "identity") != 0;
    }
    return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    (void)user;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct alq_grpc_call *call = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (!call)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS)
        take_headers(call);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        take_end(call);
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t stream_id, const uint8_t *data,
                   size_t len, void *user)
{
    (void)flags;
    (void)user;
    struct alq_grpc_call *call = nghttp2_session_get_stream_user_data(h2, stream_id);
    if (call)
        take_data(call, data, len);
    return 0;
}

/* An answer that came before the end of the request: the peer need not send the rest. */
static int on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    (void)user;
    if (frame->hd.type != NGHTTP2_HEADERS || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    struct alq_grpc_call *call = nghttp2_session_get_stream_user_data(h2, frame->hd.stream_id);
    if (call && !call->is_half_closed)
        check(call->session, nghttp2_submit_rst_stream(h2, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                                       NGHTTP2_NO_ERROR));
    return 0;
}

static int on_close(nghttp2_session *h2, int32_t stream_id, uint32_t error_code, void *user)
{
    (void)error_code;
    (void)user;
    struct alq_grpc_call *call = nghttp2_session_get_stream_user_data(h2, stream_id);
    if (call)
        call_free(call);
    return 0;
}

/* ---- the session ------------------------------------------------------------------------------
 */

static int open_h2(struct alq_grpc_session *session)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, STREAMS_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, HEADER_LIST_MAX_BYTES}};
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int rc = nghttp2_session_callbacks_new(&callbacks);
    if (!rc)
        rc = nghttp2_option_new(&option);
    if (!rc) {
        nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
        nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
        /* A peer may reset 200 calls at once and 20 more a second (CVE-2023-44487). */
        nghttp2_option_set_stream_reset_rate_limit(option, 200, 20);
        nghttp2_option_set_max_outbound_ack(option, 1000);
        nghttp2_option_set_max_settings(option, 32);
        nghttp2_option_set_no_closed_streams(option, 1);
        rc = nghttp2_session_server_new2(&session->h2, callbacks, session, option);
    }
    if (!rc)
        rc = nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings,
                                     sizeof(settings) / sizeof(settings[0]));
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return rc;
}

struct alq_grpc_session *alq_grpc_session_new(const struct alq_grpc_method *methods,
                                              void (*on_output)(void *arg), void *arg)
{
    struct alq_grpc_session *session = calloc(1, sizeof(*session));
    if (!session)
        return NULL;
    session->methods = methods;
    session->on_output = on_output;
    session->arg = arg;
    LIST_INIT(&session->calls);
    if (open_h2(session)) {
        alq_grpc_session_free(session);
        return NULL;
    }
    return session;
}

void alq_grpc_session_free(struct alq_grpc_session *session)
{
    if (!session)
        return;
    session->on_output = NULL;
    for (struct alq_grpc_call *call; (call = LIST_FIRST(&session->calls));) {
        nghttp2_session_set_stream_user_data(session->h2, call->stream_id, NULL);
        call_free(call);
    }
    nghttp2_session_del(session->h2);
    free(session);
}

int alq_grpc_session_feed(struct alq_grpc_session *session, const uint8_t *data, size_t len,
                          int64_t now_ns)
{
    session->now_ns = now_ns;
    session->is_feeding = 1;
    ssize_t n = nghttp2_session_mem_recv(session->h2, data, len);
    session->is_feeding = 0;
    return n < 0 || session->is_broken ? -1 : 0;
}

ssize_t alq_grpc_session_take(struct alq_grpc_session *session, const uint8_t **data)
{
    /* Sending may end calls, whose handlers may ask for output: they are in our loop already. */
    session->is_feeding = 1;
    ssize_t n = nghttp2_session_mem_send(session->h2, data);
    session->is_feeding = 0;
    return n < 0 || session->is_broken ? -1 : n;
}

int alq_grpc_session_is_over(const struct alq_grpc_session *session)
{
    return session->is_broken ||
           (!nghttp2_session_want_read(session->h2) && !nghttp2_session_want_write(session->h2));
}

void alq_grpc_session_shutdown(struct alq_grpc_session *session)
{
    int32_t last = nghttp2_session_get_last_proc_stream_id(session->h2);
    check(session,
          nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, NULL, 0));
    tell_output(session);
}

int64_t alq_grpc_session_deadline_ns(const struct alq_grpc_session *session)
{
    int64_t first = INT64_MAX;
    const struct alq_grpc_call *call;
    LIST_FOREACH(call, &session->calls, link)
    if (call->phase != PHASE_ENDED && call->deadline_ns < first)
        first = call->deadline_ns;
    return first;
}

void alq_grpc_session_expire(struct alq_grpc_session *session, int64_t now_ns)
{
    session->now_ns = now_ns;
    for (struct alq_grpc_call *call = LIST_FIRST(&session->calls), *next; call; call = next) {
        next = LIST_NEXT(call, link);
        if (call->phase == PHASE_ENDED || call->deadline_ns > now_ns)
            continue;
        cancel(call);
        alq_grpc_fail(call, ALQ_GRPC_DEADLINE_EXCEEDED, "deadline exceeded");
    }
}

unsigned alq_grpc_session_open_calls(const struct alq_grpc_session *session)
{
    return session->running;
}
