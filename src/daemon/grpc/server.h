/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gRPC servers on unix sockets: accepts, checks who is there, and carries bytes between sockets and
 * sessions on the event loop. Loop thread only. Peers are root or the daemon's own user; others are
 * hung up on.
 */
#ifndef ALQ_DAEMON_GRPC_SERVER_H
#define ALQ_DAEMON_GRPC_SERVER_H

#include "base/err.h"
#include "daemon/grpc/session.h"

struct event_base;
struct alq_grpc_server;

/*
 * Listens at path (0600). A socket without a listener that lies there is replaced by rename, so
 * that the path never is without one; a live one is ALQ_EEXIST, another kind of file ALQ_EEXIST
 * too. ALQ_ERANGE: the path is too long for a unix socket; ALQ_EIO, ALQ_EACCES: the directory.
 * methods outlives the server.
 */
struct alq_grpc_server *alq_grpc_server_new(struct event_base *base, const char *path,
                                            const struct alq_grpc_method *methods,
                                            struct alq_err *err);

/* Takes the socket file away, if it is still ours, and says GOAWAY to everybody: open calls may
 * still be answered. NULL-safe. */
void alq_grpc_server_shutdown(struct alq_grpc_server *server);

/* Makes the socket anew when somebody has taken its file away; who is connected stays so. 1: made,
 * 0: it is there, or the server was shut down; else as alq_grpc_server_new. */
int alq_grpc_server_renew(struct alq_grpc_server *server, struct alq_err *err);

/* Whether the socket is there and takes connections. */
int alq_grpc_server_is_live(const struct alq_grpc_server *server);

/* Connections there are. */
unsigned alq_grpc_server_connections(const struct alq_grpc_server *server);

/* Calls not answered yet. NULL-safe. */
unsigned alq_grpc_server_open_calls(const struct alq_grpc_server *server);

/* Sends what is ready, closes all connections (their calls are cancelled) and the socket.
 * NULL-safe. */
void alq_grpc_server_free(struct alq_grpc_server *server);

#endif
