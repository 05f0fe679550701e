/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's HTTP server: metrics and probes on TCP, the admin interface on a unix socket. Paths
 * have handlers; the server keeps everybody who connects within bounds: so many connections a
 * listener, so many bytes a request, so long for it and between two. Loop thread only; a handler
 * does not block, and may answer later.
 *
 * Ours and not libevent's evhttp: that neither bounds connections nor the time of a request as a
 * whole, and does not tell a handler who the peer of a unix socket is.
 */
#ifndef ALQ_DAEMON_ADMIN_HTTP_H
#define ALQ_DAEMON_ADMIN_HTTP_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

#define ALQ_HTTP_BODY_MAX_BYTES 65536u /* of a request; else 413 */
#define ALQ_HTTP_CONNECTIONS_MAX 32u   /* of a listener; then the longest idle or slowest goes */
#define ALQ_HTTP_REQUEST_MS 10000      /* from a request's first byte to its last */
#define ALQ_HTTP_IDLE_MS 120000        /* without a request */
#define ALQ_HTTP_ANSWER_MS 30000       /* until the peer has taken the answer */

struct event_base;
struct alq_http;
struct alq_http_call;

enum alq_http_where {
    ALQ_HTTP_TCP = 1,   /* everybody who reaches the port; GET and HEAD only */
    ALQ_HTTP_ADMIN = 2, /* the unix socket: group reads, root and the daemon's own user write */
    ALQ_HTTP_OWN = 4,   /* there, who may read may call other methods too: the handler judges by
                           request->peer what of it is his */
};

/* Who is at the other end of the unix socket, by the kernel's word. */
struct alq_http_peer {
    int fd; /* the connection, for SO_PEERPIDFD; borrowed */
    pid_t pid;
    uid_t uid;
    int is_admin; /* root or the daemon's own user */
};

struct alq_http_request {
    const char *method; /* never HEAD: that is GET without the body of the answer */
    const char *path;   /* decoded */
    const char *query;  /* as sent, without "?"; "" */
    const char *accept; /* the field Accept; "" */
    const char *body;   /* NUL after the last byte */
    size_t body_bytes;
    const struct alq_http_peer *peer; /* NULL on TCP */
};

/* Answers with alq_http_answer, at once or later. The request is borrowed for the time of the
 * call. */
typedef void (*alq_http_handler)(void *arg, struct alq_http_call *call,
                                 const struct alq_http_request *request);

/* NULL when out of memory. */
struct alq_http *alq_http_new(struct event_base *base, struct alq_err *err);
/* Connections are closed. Every call is answered still, to nobody. NULL-safe. */
void alq_http_free(struct alq_http *http);

/* methods: "GET" or "GET PUT PATCH"; others get 405. A path that ends with "/" has all paths below
 * it, the longest match wins. where: a mask; on TCP only GET is served, whatever methods says.
 * path and methods outlive the server. -1: out of memory. */
int alq_http_handle(struct alq_http *http, unsigned where, const char *methods, const char *path,
                    alq_http_handler handler, void *arg);

/* address: "host:port", ":port", "[::1]:port"; a numeric host; port 0: any. ALQ_EINVAL: not one;
 * ALQ_EBUSY: the port is taken; ALQ_EACCES, ALQ_EIO. */
int alq_http_listen_tcp(struct alq_http *http, const char *address, struct alq_err *err);
/* Errors as of alq_unix_listen. group may read; ALQ_EVERYBODY: all users of the machine. */
int alq_http_listen_admin(struct alq_http *http, const char *path, gid_t group,
                          struct alq_err *err);
/* The address in use, "127.0.0.1:9487"; "" while there is none. */
const char *alq_http_tcp_address(const struct alq_http *http);
/* Whether it listens at the admin socket, and the file is there. */
int alq_http_has_admin(const struct alq_http *http);
/* No more requests of the admin socket, its file goes; open calls are answered still. */
void alq_http_close_admin(struct alq_http *http);

/* Nobody is accepted any more, idle connections go, the others after their answer. */
void alq_http_shutdown(struct alq_http *http);
/* Calls not answered, or whose answer is not taken yet. NULL-safe. */
unsigned alq_http_open_calls(const struct alq_http *http);

/* body: malloc'ed, taken over; NULL: out of memory (500). The call is over. The peer may be gone.
 */
void alq_http_answer(struct alq_http_call *call, int status, const char *content_type, char *body,
                     size_t len);
/* A JSON object {"error": text}; content type application/json. */
void alq_http_fail(struct alq_http_call *call, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
