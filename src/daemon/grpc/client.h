/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A unary gRPC call over a unix socket, on a connection of its own: for questions asked now and
 * then. Loop thread only; nothing blocks.
 */
#ifndef ALQ_DAEMON_GRPC_CLIENT_H
#define ALQ_DAEMON_GRPC_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct alq_grpc_request;
struct event_base;

/* The answer's message, borrowed, or why there is none: ALQ_ETIMEDOUT, ALQ_EIO (the connection),
 * ALQ_EPROTO (the peer's own error, with its status and text, or no gRPC). Called once, later than
 * alq_grpc_request_new returns; the request is gone then. */
typedef void (*alq_grpc_answer_cb)(void *arg, const uint8_t *message, size_t len,
                                   const struct alq_err *err);

/* Connects to socket and calls path ("/package.Service/Method"). NULL: ALQ_ENOENT (no such socket),
 * ALQ_EACCES, ALQ_EIO, ALQ_ERANGE (the path is too long), ALQ_ENOMEM. */
struct alq_grpc_request *alq_grpc_request_new(struct event_base *base, const char *socket,
                                              const char *path, const uint8_t *message, size_t len,
                                              long timeout_ms, alq_grpc_answer_cb cb, void *arg,
                                              struct alq_err *err);
/* The callback is not called. NULL-safe. */
void alq_grpc_request_free(struct alq_grpc_request *request);

#endif
