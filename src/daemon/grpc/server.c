/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets for sessions. Reading: what the buffer event has goes to the session. Writing: the
 * session is drained into the buffer event until a high mark, the rest when that has gone out. One
 * timer per connection for the nearest deadline. Loop thread only.
 */
#include "daemon/grpc/server.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/monotonic.h"
#include "daemon/listen.h"

#define ALQ_LOG_MODULE "grpc"

#define CONNECTIONS_MAX 64u
#define OUTPUT_MARK_BYTES (256u * 1024)
#define ACCEPT_PAUSE_MS 100

struct connection {
    LIST_ENTRY(connection) link;
    struct alq_grpc_server *server;
    struct alq_grpc_session *session;
    struct bufferevent *bev;
    struct event *flush; /* made active when the session has output */
    struct event *deadline;
    int is_closing; /* close when the buffer is empty */
};

struct alq_grpc_server {
    struct event_base *base;
    const struct alq_grpc_method *methods;
    char *path;
    struct alq_unix_file file;
    struct evconnlistener *listener;
    struct event *resume; /* accepting again after a lack of descriptors */
    int spare;            /* a descriptor kept to turn away who connects then; -1: none */
    LIST_HEAD(connection_list, connection) connections;
    unsigned connection_count;
};

static void connection_free(struct connection *c)
{
    LIST_REMOVE(c, link);
    c->server->connection_count--;
    alq_grpc_session_free(c->session);
    if (c->flush)
        event_free(c->flush);
    if (c->deadline)
        event_free(c->deadline);
    bufferevent_free(c->bev);
    free(c);
}

static void arm_deadline(struct connection *c)
{
    int64_t at = alq_grpc_session_deadline_ns(c->session);
    if (at == INT64_MAX) {
        event_del(c->deadline);
        return;
    }
    int64_t left = at - alq_now_ns();
    if (left < 0)
        left = 0;
    struct timeval tv = {.tv_sec = left / 1000000000, .tv_usec = left % 1000000000 / 1000 + 1};
    event_add(c->deadline, &tv);
}

/* Moves output on; frees the connection when it is over. */
static void pump(struct connection *c)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    while (evbuffer_get_length(out) < OUTPUT_MARK_BYTES) {
        const uint8_t *data;
        ssize_t n = alq_grpc_session_take(c->session, &data);
        if (n < 0)
            c->is_closing = 1;
        if (n <= 0)
            break;
        if (evbuffer_add(out, data, (size_t)n)) {
            c->is_closing = 1;
            break;
        }
    }
    if (alq_grpc_session_is_over(c->session))
        c->is_closing = 1;
    if (c->is_closing && !evbuffer_get_length(out))
        connection_free(c);
    else
        arm_deadline(c);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct connection *c = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    for (size_t len; (len = evbuffer_get_contiguous_space(in)) && !c->is_closing;) {
        if (alq_grpc_session_feed(c->session, evbuffer_pullup(in, (ssize_t)len), len, alq_now_ns()))
            c->is_closing = 1;
        evbuffer_drain(in, len);
    }
    evbuffer_drain(in, evbuffer_get_length(in));
    pump(c);
}

static void on_written(struct bufferevent *bev, void *arg)
{
    (void)bev;
    pump(arg);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        connection_free(arg);
}

static void on_flush(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    pump(arg);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct connection *c = arg;
    alq_grpc_session_expire(c->session, alq_now_ns());
    pump(c);
}

static void on_output(void *arg)
{
    struct connection *c = arg;
    event_active(c->flush, EV_TIMEOUT, 0);
}

static int is_peer_allowed(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
        return 0;
    if (peer.uid == 0 || peer.uid == geteuid())
        return 1;
    alq_warn(NULL, "connection of uid %u (pid %d) refused", peer.uid, peer.pid);
    return 0;
}

static int connection_new(struct alq_grpc_server *server, int fd)
{
    struct connection *c = calloc(1, sizeof(*c));
    if (!c)
        return -1;
    c->server = server;
    c->bev = bufferevent_socket_new(server->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c->bev) {
        free(c);
        return -1;
    }
    LIST_INSERT_HEAD(&server->connections, c, link);
    server->connection_count++;
    c->session = alq_grpc_session_new(server->methods, on_output, c);
    c->flush = event_new(server->base, -1, 0, on_flush, c);
    c->deadline = evtimer_new(server->base, on_deadline, c);
    if (!c->session || !c->flush || !c->deadline) {
        connection_free(c); /* closes fd */
        return 0;
    }
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
    pump(c);
    return 0;
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *addr,
                      int len, void *arg)
{
    (void)listener;
    (void)addr;
    (void)len;
    struct alq_grpc_server *server = arg;
    if (!is_peer_allowed(fd)) {
        close(fd);
    } else if (server->connection_count >= CONNECTIONS_MAX) {
        alq_warn(ALQ_LOG_KV({"socket", server->path}), "more than %u connections, one refused",
                 CONNECTIONS_MAX);
        close(fd);
    } else if (connection_new(server, fd)) {
        close(fd);
    }
}

/* Without a descriptor for it a connection would wait until its deadline: better it learns at once.
 */
static void turn_away(struct alq_grpc_server *server)
{
    if (server->spare >= 0)
        close(server->spare);
    int fd = accept4(evconnlistener_get_fd(server->listener), NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Out of descriptors or memory: the listener would spin, so it rests a little. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    struct alq_grpc_server *server = arg;
    struct timeval tv = {.tv_usec = ACCEPT_PAUSE_MS * 1000};
    int is_out_of_descriptors = errno == EMFILE || errno == ENFILE;
    alq_warn(ALQ_LOG_KV({"socket", server->path}), "accept: %s%s", strerror(errno),
             is_out_of_descriptors ? "; raise the limit (LimitNOFILE)" : "");
    if (is_out_of_descriptors)
        turn_away(server);
    evconnlistener_disable(listener);
    event_add(server->resume, &tv);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct alq_grpc_server *server = arg;
    if (server->listener)
        evconnlistener_enable(server->listener);
}

/* In place of the listener that there was. */
static int open_listener(struct alq_grpc_server *server, struct alq_err *err)
{
    int fd = -1;
    int rc = alq_unix_listen(server->path, 0600, ALQ_NO_GROUP, &server->file, &fd, err);
    if (rc)
        return rc;
    struct evconnlistener *listener = evconnlistener_new(
        server->base, on_accept, server, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!listener) {
        close(fd);
        return alq_err_set(err, ALQ_ENOMEM, "listening on %s: out of memory", server->path);
    }
    evconnlistener_set_error_cb(listener, on_accept_error);
    if (server->listener)
        evconnlistener_free(server->listener);
    server->listener = listener;
    return 0;
}

struct alq_grpc_server *alq_grpc_server_new(struct event_base *base, const char *path,
                                            const struct alq_grpc_method *methods,
                                            struct alq_err *err)
{
    struct alq_grpc_server *server = calloc(1, sizeof(*server));
    if (!server) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    server->base = base;
    server->methods = methods;
    server->path = strdup(path);
    server->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    LIST_INIT(&server->connections);
    server->resume = evtimer_new(base, on_resume, server);
    if (!server->path || !server->resume)
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
    else if (!open_listener(server, err))
        return server;
    alq_grpc_server_free(server);
    return NULL;
}

int alq_grpc_server_renew(struct alq_grpc_server *server, struct alq_err *err)
{
    if (!server || !server->listener || alq_unix_file_is_there(&server->file))
        return 0;
    int rc = open_listener(server, err);
    return rc ? rc : 1;
}

void alq_grpc_server_shutdown(struct alq_grpc_server *server)
{
    if (!server)
        return;
    alq_unix_file_remove(&server->file);
    if (server->listener)
        evconnlistener_free(server->listener);
    server->listener = NULL;
    struct connection *c;
    LIST_FOREACH(c, &server->connections, link)
    alq_grpc_session_shutdown(c->session);
}

int alq_grpc_server_is_live(const struct alq_grpc_server *server)
{
    return server->listener && alq_unix_file_answers(&server->file);
}

unsigned alq_grpc_server_connections(const struct alq_grpc_server *server)
{
    return server->connection_count;
}

unsigned alq_grpc_server_open_calls(const struct alq_grpc_server *server)
{
    unsigned calls = 0;
    const struct connection *c;
    if (!server)
        return 0;
    LIST_FOREACH(c, &server->connections, link)
    calls += alq_grpc_session_open_calls(c->session);
    return calls;
}

void alq_grpc_server_free(struct alq_grpc_server *server)
{
    if (!server)
        return;
    alq_unix_file_remove(&server->file);
    if (server->listener)
        evconnlistener_free(server->listener);
    for (struct connection *c; (c = LIST_FIRST(&server->connections));) {
        struct evbuffer *out = bufferevent_get_output(c->bev);
        const uint8_t *data;
        for (ssize_t n; (n = alq_grpc_session_take(c->session, &data)) > 0;)
            evbuffer_add(out, data, (size_t)n);
        /* The buffer event owns the front of its output; it will not run again. */
        evbuffer_unfreeze(out, 1);
        evbuffer_write(out, bufferevent_getfd(c->bev));
        connection_free(c);
    }
    if (server->resume)
        event_free(server->resume);
    if (server->spare >= 0)
        close(server->spare);
    free(server->path);
    free(server);
}
