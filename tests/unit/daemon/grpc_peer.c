/* SPDX-License-Identifier: Apache-2.0 */
/* The client, see grpc_peer.h. */
#include "grpc_peer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t len, uint8_t flags, void *user)
{
    (void)h2;
    (void)flags;
    (void)name_len;
    (void)len;
    struct answer *a = &((struct peer *)user)->answers[frame->hd.stream_id];
    const char *n = (const char *)name, *v = (const char *)value;
    if (!strcmp(n, ":status"))
        snprintf(a->http_status, sizeof(a->http_status), "%s", v);
    else if (!strcmp(n, "grpc-status"))
        snprintf(a->grpc_status, sizeof(a->grpc_status), "%s", v);
    else if (!strcmp(n, "grpc-message"))
        snprintf(a->grpc_message, sizeof(a->grpc_message), "%s", v);
    else if (!strcmp(n, "content-type"))
        snprintf(a->content_type, sizeof(a->content_type), "%s", v);
    return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user)
{
    (void)h2;
    struct peer *p = user;
    if (frame->hd.type == NGHTTP2_HEADERS)
        p->answers[frame->hd.stream_id].header_frames++;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        p->is_goaway = 1;
    return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                   void *user)
{
    (void)flags;
    struct peer *p = user;
    struct answer *a = &p->answers[id];
    if (!p->is_slow)
        nghttp2_session_consume(h2, id, len);
    a->data = realloc(a->data, a->len + len + 1);
    assert_non_null(a->data);
    memcpy(a->data + a->len, data, len);
    a->len += len;
    return 0;
}

static int on_close(nghttp2_session *h2, int32_t id, uint32_t error, void *user)
{
    (void)h2;
    struct answer *a = &((struct peer *)user)->answers[id];
    a->is_closed = 1;
    a->error = error;
    return 0;
}

void peer_open(struct peer *p, const struct alq_grpc_method *methods, uint32_t window)
{
    nghttp2_session_callbacks *cb;
    nghttp2_option *option;
    memset(p, 0, sizeof(*p));
    p->now_ns = 1000 * SECOND;
    p->server = alq_grpc_session_new(methods, NULL, NULL);
    assert_non_null(p->server);
    nghttp2_session_callbacks_new(&cb);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_close);
    nghttp2_option_new(&option);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_session_client_new2(&p->h2, cb, p, option);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(option);
    const nghttp2_settings_entry entry = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
    nghttp2_submit_settings(p->h2, NGHTTP2_FLAG_NONE, &entry, window ? 1 : 0);
}

void peer_close(struct peer *p)
{
    alq_grpc_session_free(p->server);
    nghttp2_session_del(p->h2);
    for (int i = 0; i < STREAMS; i++)
        free(p->answers[i].data);
}

void peer_pump(struct peer *p)
{
    for (int is_quiet = 0; !is_quiet && !p->server_rc;) {
        const uint8_t *data;
        ssize_t n;
        is_quiet = 1;
        while ((n = nghttp2_session_mem_send(p->h2, &data)) > 0) {
            is_quiet = 0;
            p->server_rc = alq_grpc_session_feed(p->server, data, (size_t)n, p->now_ns);
        }
        while ((n = alq_grpc_session_take(p->server, &data)) > 0) {
            is_quiet = 0;
            assert_int_equal(nghttp2_session_mem_recv(p->h2, data, (size_t)n), n);
        }
    }
}

static ssize_t read_upload(nghttp2_session *h2, int32_t id, uint8_t *buf, size_t length,
                           uint32_t *flags, nghttp2_data_source *source, void *user)
{
    (void)h2;
    (void)id;
    (void)user;
    struct upload *u = source->ptr;
    size_t n = u->len < length ? u->len : length;
    memcpy(buf, u->data, n);
    u->data += n;
    u->len -= n;
    if (!u->len && u->is_open && !n)
        return NGHTTP2_ERR_DEFERRED;
    if (!u->len && !u->is_open)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

static nghttp2_nv nv(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

int32_t peer_ask(struct peer *p, struct request *r)
{
    nghttp2_nv headers[9] = {nv(":method", r->method ? r->method : "POST"), nv(":scheme", "http"),
                             nv(":path", r->path), nv(":authority", "localhost"),
                             nv("te", "trailers")};
    size_t n = 5;
    headers[n++] = nv("content-type", r->content_type ? r->content_type : "application/grpc");
    if (r->timeout)
        headers[n++] = nv("grpc-timeout", r->timeout);
    if (r->encoding)
        headers[n++] = nv("grpc-encoding", r->encoding);
    if (r->extra)
        headers[n++] = nv("x-extra", r->extra);
    nghttp2_data_provider provider = {.source.ptr = &r->upload, .read_callback = read_upload};
    int has_body = r->upload.len || r->upload.is_open;
    int32_t id = nghttp2_submit_request(p->h2, NULL, headers, n, has_body ? &provider : NULL, NULL);
    assert_true(id > 0 && id < STREAMS);
    peer_pump(p);
    return id;
}
