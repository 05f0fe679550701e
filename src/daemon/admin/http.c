/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections of the HTTP server, see http.h. One request at a time each: while it is called and
 * answered nothing is read, so a peer that sends more waits in its own socket. One timer per
 * connection for what it may take now. Loop thread only.
 */
#include "daemon/admin/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <jansson.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/utf8.h"
#include "daemon/address.h"
#include "daemon/admin/http_head.h"
#include "daemon/listen.h"

#define ALQ_LOG_MODULE "http"

#define BACKLOG 64
#define ACCEPT_PAUSE_MS 100
#define GROUPS_MAX 1024

enum state { STATE_READING, STATE_CALLED, STATE_ANSWERING };
enum right { RIGHT_NONE, RIGHT_READ, RIGHT_WRITE };

struct route {
    SLIST_ENTRY(route) link;
    unsigned where;
    const char *methods, *path;
    alq_http_handler handler;
    void *arg;
};

struct alq_http_call {
    struct connection *connection; /* NULL: the peer is gone */
    int is_head;                   /* the answer has no body */
};

struct connection {
    TAILQ_ENTRY(connection) link; /* who was busy last is last */
    struct listener *listener;
    struct bufferevent *bev;
    struct event *timer;
    struct alq_http_call *call; /* STATE_CALLED */
    enum state state;
    enum right right;
    struct alq_http_peer peer; /* of the unix socket */
    int has_begun;             /* a request's first byte is there */
    int is_kept;               /* after the answer */
};

struct listener {
    struct alq_http *http;
    enum alq_http_where where;
    gid_t group;
    struct evconnlistener *socket; /* NULL: not listening */
    struct event *resume;          /* accepting again after a lack of descriptors */
    TAILQ_HEAD(, connection) connections;
    unsigned count;
};

struct alq_http {
    struct event_base *base;
    struct listener tcp, admin;
    struct alq_unix_file file;
    char address[NI_MAXHOST + 16];
    SLIST_HEAD(, route) routes;
    int is_ending;
};

static void process(struct connection *c);

static void connection_free(struct connection *c)
{
    if (c->call)
        c->call->connection = NULL;
    TAILQ_REMOVE(&c->listener->connections, c, link);
    c->listener->count--;
    if (c->timer)
        event_free(c->timer);
    bufferevent_free(c->bev);
    free(c);
}

static void arm(struct connection *c, int ms)
{
    const struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    event_add(c->timer, &tv);
}

/* ---- answers ----------------------------------------------------------------------------------
 */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {202, "Accepted"},
        {204, "No Content"},
        {400, "Bad Request"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {431, "Request Header Fields Too Large"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Internal Server Error";
}

static void free_body(const void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    free(arg);
}

static void send_answer(struct connection *c, int status, int is_head, const char *content_type,
                        char *body, size_t len)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    c->is_kept = c->is_kept && !c->listener->http->is_ending;
    c->state = STATE_ANSWERING;
    arm(c, ALQ_HTTP_ANSWER_MS);
    int rc = evbuffer_add_printf(out,
                                 "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                                 "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                                 "%s\r\n",
                                 status, reason_of(status), content_type, len,
                                 c->is_kept ? "" : "Connection: close\r\n");
    if (rc < 0 || is_head || !len || evbuffer_add_reference(out, body, len, free_body, body))
        free(body);
}

static char *error_body(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));
static char *error_body(const char *fmt, va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof(text), fmt, ap);
    alq_utf8_clean(text); /* cut within a character, perhaps */
    json_t *object = json_pack("{s:s}", "error", text);
    char *body = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    return body;
}

/* Of the server itself; the connection ends where the stream can no longer be trusted. */
static void refuse(struct connection *c, int status, int is_head, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void refuse(struct connection *c, int status, int is_head, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *body = error_body(fmt, ap);
    va_end(ap);
    send_answer(c, status, is_head, "application/json", body, body ? strlen(body) : 0);
}

void alq_http_answer(struct alq_http_call *call, int status, const char *content_type, char *body,
                     size_t len)
{
    struct connection *c = call->connection;
    if (!body)
        status = 500;
    if (c) {
        c->call = NULL;
        send_answer(c, status, call->is_head, content_type, body, body ? len : 0);
    } else {
        free(body);
    }
    free(call);
}

void alq_http_fail(struct alq_http_call *call, int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *body = error_body(fmt, ap);
    va_end(ap);
    alq_http_answer(call, status, "application/json", body, body ? strlen(body) : 0);
}

/* ---- requests ---------------------------------------------------------------------------------
 */

static const struct route *find_route(const struct alq_http *http, unsigned where, const char *path)
{
    const struct route *r, *best = NULL;
    SLIST_FOREACH(r, &http->routes, link)
    {
        size_t len = strlen(r->path);
        int is_below = r->path[len - 1] == '/' && !strncmp(path, r->path, len);
        if ((r->where & where) && (is_below || !strcmp(path, r->path)) &&
            (!best || len > strlen(best->path)))
            best = r;
    }
    return best;
}

static int has_method(const char *methods, const char *method)
{
    size_t len = strlen(method);
    for (const char *p = methods; (p = strstr(p, method)); p += len)
        if ((p == methods || p[-1] == ' ') && (!p[len] || p[len] == ' '))
            return 1;
    return 0;
}

static void call(struct connection *c, const struct alq_http_head *head, const char *body)
{
    enum alq_http_where where = c->listener->where;
    int is_head = !strcmp(head->method, "HEAD");
    const struct alq_http_request request = {.method = is_head ? "GET" : head->method,
                                             .path = head->path,
                                             .query = head->query,
                                             .accept = head->accept,
                                             .body = body,
                                             .body_bytes = head->body_bytes,
                                             .peer = where == ALQ_HTTP_ADMIN ? &c->peer : NULL};
    const struct route *route = find_route(c->listener->http, where, head->path);
    int is_read = !strcmp(request.method, "GET") || (route && route->where & ALQ_HTTP_OWN);
    if (c->right == RIGHT_NONE || (c->right == RIGHT_READ && !is_read && where == ALQ_HTTP_ADMIN))
        refuse(c, 403, is_head,
               c->right ? "only root and the daemon's own user may change something"
                        : "your user is neither root nor in the group that may read");
    else if (!route)
        refuse(c, 404, is_head, "there is no %s", head->path);
    else if (!has_method(where == ALQ_HTTP_TCP ? "GET" : route->methods, request.method))
        refuse(c, 405, is_head, "%s takes %s", head->path,
               where == ALQ_HTTP_TCP ? "GET" : route->methods);
    else if (!(c->call = calloc(1, sizeof(*c->call))))
        refuse(c, 503, is_head, "out of memory");
    if (!c->call)
        return;
    c->call->connection = c;
    c->call->is_head = is_head;
    c->state = STATE_CALLED;
    arm(c, ALQ_HTTP_ANSWER_MS);
    route->handler(route->arg, c->call, &request);
}

/* The length of the head with its empty line; 0: not all there. */
static size_t head_bytes(struct evbuffer *in)
{
    struct evbuffer_ptr end = evbuffer_search(in, "\r\n\r\n", 4, NULL);
    return end.pos < 0 ? 0 : (size_t)end.pos + 4;
}

static void take_request(struct connection *c, struct evbuffer *in, size_t head_len)
{
    struct alq_http_head head;
    alq_auto_free char *text = malloc(head_len);
    alq_auto_free char *body = NULL;
    if (!text || evbuffer_copyout(in, text, head_len) != (ssize_t)head_len) {
        c->is_kept = 0;
        refuse(c, 503, 0, "out of memory");
        return;
    }
    int status = alq_http_head_parse(text, head_len, &head);
    if (!status && head.body_bytes > ALQ_HTTP_BODY_MAX_BYTES)
        status = 413;
    if (status) {
        c->is_kept = 0;
        refuse(c, status, 0, "%s",
               status == 413 ? "a request of more than 64 KiB; ask for less" : reason_of(status));
        return;
    }
    if (evbuffer_get_length(in) - head_len < head.body_bytes)
        return;
    evbuffer_drain(in, head_len);
    body = calloc(1, head.body_bytes + 1);
    c->is_kept = body ? head.is_kept : 0;
    c->has_begun = 0;
    TAILQ_REMOVE(&c->listener->connections, c, link);
    TAILQ_INSERT_TAIL(&c->listener->connections, c, link);
    if (body) {
        evbuffer_remove(in, body, head.body_bytes);
        call(c, &head, body);
    } else {
        refuse(c, 503, 0, "out of memory");
    }
}

/* What is in the buffer may be a request. */
static void process(struct connection *c)
{
    struct evbuffer *in = bufferevent_get_input(c->bev);
    size_t len = evbuffer_get_length(in);
    if (c->state != STATE_READING)
        return;
    if (len && !c->has_begun) {
        c->has_begun = 1;
        arm(c, ALQ_HTTP_REQUEST_MS);
    }
    size_t head_len = head_bytes(in);
    if (head_len && head_len <= ALQ_HTTP_HEAD_MAX_BYTES) {
        take_request(c, in, head_len);
    } else if (len > ALQ_HTTP_HEAD_MAX_BYTES) {
        c->is_kept = 0;
        refuse(c, 431, 0, "a head of more than %u bytes", ALQ_HTTP_HEAD_MAX_BYTES);
    }
    if (c->state != STATE_READING)
        bufferevent_disable(c->bev, EV_READ);
}

static void on_read(struct bufferevent *bev, void *arg)
{
    (void)bev;
    process(arg);
}

static void read_on(struct connection *c)
{
    c->state = STATE_READING;
    c->has_begun = 0;
    arm(c, ALQ_HTTP_IDLE_MS);
    bufferevent_enable(c->bev, EV_READ);
    process(c);
}

static void on_written(struct bufferevent *bev, void *arg)
{
    struct connection *c = arg;
    if (c->state != STATE_ANSWERING || evbuffer_get_length(bufferevent_get_output(bev)))
        return;
    if (c->is_kept && !c->listener->http->is_ending)
        read_on(c);
    else
        connection_free(c);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    (void)bev;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        connection_free(arg);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    connection_free(arg);
}

/* ---- who connects -----------------------------------------------------------------------------
 */

static int is_in_group(int fd, const struct ucred *peer, gid_t group)
{
    gid_t groups[GROUPS_MAX];
    socklen_t len = sizeof(groups);
    if (group == ALQ_NO_GROUP)
        return 0;
    if (peer->gid == group)
        return 1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len))
        return 0;
    for (size_t i = 0; i < len / sizeof(groups[0]); i++)
        if (groups[i] == group)
            return 1;
    return 0;
}

static enum right right_of(const struct listener *l, int fd, struct alq_http_peer *who)
{
    struct ucred peer;
    socklen_t len = sizeof(peer);
    if (l->where == ALQ_HTTP_TCP)
        return RIGHT_READ;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
        return RIGHT_NONE;
    *who = (struct alq_http_peer){.fd = fd,
                                  .pid = peer.pid,
                                  .uid = peer.uid,
                                  .is_admin = peer.uid == 0 || peer.uid == geteuid()};
    if (who->is_admin)
        return RIGHT_WRITE;
    return l->group == ALQ_EVERYBODY || is_in_group(fd, &peer, l->group) ? RIGHT_READ : RIGHT_NONE;
}

static unsigned count_of(const struct listener *l, uid_t user)
{
    const struct connection *c;
    unsigned n = 0;
    TAILQ_FOREACH(c, &l->connections, link)
    n += c->peer.uid == user;
    return n;
}

/* Of those whose user has so many connections or more: who has waited longest for a request; if
 * nobody waits, who has been longest at sending one or at taking an answer. */
static struct connection *slowest_of(const struct listener *l, unsigned least)
{
    struct connection *c, *slowest = NULL;
    TAILQ_FOREACH(c, &l->connections, link)
    {
        if (count_of(l, c->peer.uid) < least)
            continue;
        if (c->state == STATE_READING && !c->has_begun)
            return c;
        if (!slowest && c->state != STATE_CALLED)
            slowest = c;
    }
    return slowest;
}

/* Room for one more: one of the user goes who has most connections, else any. So peers that dawdle,
 * however many, keep no probe out, and a user keeps no other out. */
static int make_room(struct listener *l)
{
    const struct connection *c;
    unsigned most = 0;
    if (l->count < ALQ_HTTP_CONNECTIONS_MAX)
        return 0;
    TAILQ_FOREACH(c, &l->connections, link)
    {
        unsigned count = count_of(l, c->peer.uid);
        most = count > most ? count : most;
    }
    struct connection *slowest = slowest_of(l, most);
    if (!slowest)
        slowest = slowest_of(l, 0);
    if (!slowest)
        return -1;
    connection_free(slowest);
    return 0;
}

static void on_accept(struct evconnlistener *socket, evutil_socket_t fd, struct sockaddr *addr,
                      int len, void *arg)
{
    (void)socket;
    (void)addr;
    (void)len;
    struct listener *l = arg;
    struct connection *c = make_room(l) ? NULL : calloc(1, sizeof(*c));
    if (c)
        c->bev = bufferevent_socket_new(l->http->base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!c || !c->bev) {
        static const char busy[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n"
                                   "Connection: close\r\n\r\n";
        send(fd, busy, sizeof(busy) - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        close(fd);
        free(c);
        return;
    }
    c->listener = l;
    c->right = right_of(l, fd, &c->peer);
    TAILQ_INSERT_TAIL(&l->connections, c, link);
    l->count++;
    c->timer = evtimer_new(l->http->base, on_timer, c);
    if (!c->timer) {
        connection_free(c);
        return;
    }
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, ALQ_HTTP_HEAD_MAX_BYTES + ALQ_HTTP_BODY_MAX_BYTES);
    bufferevent_enable(c->bev, EV_WRITE);
    read_on(c);
}

/* Out of descriptors or memory: the listener would spin, so it rests a little. */
static void on_accept_error(struct evconnlistener *socket, void *arg)
{
    static const struct timeval pause = {.tv_usec = ACCEPT_PAUSE_MS * 1000};
    struct listener *l = arg;
    alq_warn(NULL, "accept: %s", strerror(errno));
    evconnlistener_disable(socket);
    event_add(l->resume, &pause);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct listener *l = arg;
    if (l->socket)
        evconnlistener_enable(l->socket);
}

static void close_socket(struct listener *l)
{
    if (l->socket)
        evconnlistener_free(l->socket);
    l->socket = NULL;
}

/* Takes fd in any case. */
static int listen_on(struct listener *l, int fd, struct alq_err *err)
{
    close_socket(l);
    l->socket = evconnlistener_new(l->http->base, on_accept, l,
                                   LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (!l->socket) {
        close(fd);
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    evconnlistener_set_error_cb(l->socket, on_accept_error);
    return 0;
}

int alq_http_listen_admin(struct alq_http *http, const char *path, gid_t group, struct alq_err *err)
{
    int fd = -1, is_for_all = group == ALQ_EVERYBODY;
    http->admin.group = group;
    int rc = alq_unix_listen(path,
                             is_for_all              ? 0666
                             : group == ALQ_NO_GROUP ? 0600
                                                     : 0660,
                             is_for_all ? ALQ_NO_GROUP : group, &http->file, &fd, err);
    return rc ? rc : listen_on(&http->admin, fd, err);
}

int alq_http_has_admin(const struct alq_http *http)
{
    return http->admin.socket && alq_unix_file_is_there(&http->file);
}

static int open_tcp(const struct alq_address *a, struct alq_err *err)
{
    const int on = 1, is_v6_only = !a->is_both;
    alq_auto_close int fd =
        socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0)
        return alq_err_errno(err, errno, "socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &is_v6_only, sizeof(is_v6_only));
    if (bind(fd, &a->any, a->len) || listen(fd, BACKLOG)) {
        int code = errno == EADDRINUSE ? ALQ_EBUSY : errno == EACCES ? ALQ_EACCES : ALQ_EIO;
        return alq_err_set(err, code, "%s",
                           code == ALQ_EBUSY ? "another process has the port" : strerror(errno));
    }
    return alq_steal_fd(&fd);
}

static void name_address(struct alq_http *http, int fd)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof(addr);
    char host[NI_MAXHOST] = "", port[8] = "";
    if (!getsockname(fd, (struct sockaddr *)&addr, &len))
        getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(http->address, sizeof(http->address), strchr(host, ':') ? "[%s]:%s" : "%s:%s", host,
             port);
}

int alq_http_listen_tcp(struct alq_http *http, const char *text, struct alq_err *err)
{
    struct alq_address a;
    struct alq_err why = ALQ_ERR_INIT;
    int rc = alq_address_parse(text, &a, err);
    if (rc)
        return rc;
    int fd = open_tcp(&a, &why);
    if (fd < 0 && a.is_both && fd != ALQ_EBUSY) { /* a machine without IPv6 */
        const uint16_t port = a.v6.sin6_port;
        a = (struct alq_address){.v4 = {.sin_family = AF_INET, .sin_port = port},
                                 .len = sizeof(a.v4)};
        fd = open_tcp(&a, &why);
    }
    if (fd < 0) {
        *err = why;
        return alq_err_wrap(err, "listening on %s", text);
    }
    name_address(http, fd);
    return listen_on(&http->tcp, fd, err);
}

const char *alq_http_tcp_address(const struct alq_http *http)
{
    return http->tcp.socket ? http->address : "";
}

/* ---- life -------------------------------------------------------------------------------------
 */

int alq_http_handle(struct alq_http *http, unsigned where, const char *methods, const char *path,
                    alq_http_handler handler, void *arg)
{
    struct route *r = calloc(1, sizeof(*r));
    if (!r)
        return -1;
    *r = (struct route){
        .where = where, .methods = methods, .path = path, .handler = handler, .arg = arg};
    SLIST_INSERT_HEAD(&http->routes, r, link);
    return 0;
}

static int init_listener(struct alq_http *http, struct listener *l, enum alq_http_where where)
{
    l->http = http;
    l->where = where;
    l->group = ALQ_NO_GROUP;
    TAILQ_INIT(&l->connections);
    l->resume = evtimer_new(http->base, on_resume, l);
    return l->resume ? 0 : -1;
}

struct alq_http *alq_http_new(struct event_base *base, struct alq_err *err)
{
    struct alq_http *http = calloc(1, sizeof(*http));
    if (!http) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    http->base = base;
    SLIST_INIT(&http->routes);
    if (init_listener(http, &http->tcp, ALQ_HTTP_TCP) |
        init_listener(http, &http->admin, ALQ_HTTP_ADMIN)) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        alq_http_free(http);
        return NULL;
    }
    return http;
}

static void end_idle(struct listener *l)
{
    for (struct connection *c = TAILQ_FIRST(&l->connections), *next; c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (c->state == STATE_READING)
            connection_free(c);
        else
            c->is_kept = 0;
    }
}

void alq_http_close_admin(struct alq_http *http)
{
    alq_unix_file_remove(&http->file);
    close_socket(&http->admin);
    end_idle(&http->admin);
}

void alq_http_shutdown(struct alq_http *http)
{
    http->is_ending = 1;
    alq_http_close_admin(http);
    close_socket(&http->tcp);
    end_idle(&http->tcp);
}

static unsigned busy(const struct listener *l)
{
    const struct connection *c;
    unsigned n = 0;
    TAILQ_FOREACH(c, &l->connections, link)
    n += c->state != STATE_READING;
    return n;
}

unsigned alq_http_open_calls(const struct alq_http *http)
{
    return http ? busy(&http->tcp) + busy(&http->admin) : 0;
}

static void fini_listener(struct listener *l)
{
    close_socket(l);
    for (struct connection *c; (c = TAILQ_FIRST(&l->connections));)
        connection_free(c);
    if (l->resume)
        event_free(l->resume);
}

void alq_http_free(struct alq_http *http)
{
    if (!http)
        return;
    alq_unix_file_remove(&http->file);
    fini_listener(&http->tcp);
    fini_listener(&http->admin);
    for (struct route *r; (r = SLIST_FIRST(&http->routes));) {
        SLIST_REMOVE_HEAD(&http->routes, link);
        free(r);
    }
    free(http);
}
