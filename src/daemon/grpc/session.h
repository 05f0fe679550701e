/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One server connection of gRPC over HTTP/2 without any I/O: bytes and the time go in, bytes come
 * out, calls reach handlers that may answer at once or later. Unary requests; replies of one or of
 * many messages. One thread, no blocking, no clock of its own. Facts: reference/dra.md §3.2 and the
 * gRPC over HTTP/2 protocol document; nothing outside grpc/ includes nghttp2.
 */
#ifndef ALQ_DAEMON_GRPC_SESSION_H
#define ALQ_DAEMON_GRPC_SESSION_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/grpc/status.h"

#define ALQ_GRPC_MESSAGE_MAX_BYTES (4u * 1024 * 1024) /* as other gRPC servers by default */

struct alq_grpc_session;
struct alq_grpc_call;

/*
 * A request has arrived whole. message is borrowed until the handler returns. The handler answers
 * now or later by alq_grpc_reply, alq_grpc_fail, or alq_grpc_send... alq_grpc_finish; until then it
 * may keep the call, if it has set alq_grpc_on_cancel.
 */
typedef void (*alq_grpc_handler)(void *arg, struct alq_grpc_call *call, const uint8_t *message,
                                 size_t len);

struct alq_grpc_method {
    const char *path; /* "/package.Service/Method" */
    alq_grpc_handler handler;
    void *arg;
};

/* methods ends with a NULL path and outlives the session. on_output (may be NULL) is told when
 * bytes may have become ready outside of alq_grpc_session_feed. NULL when out of memory. */
struct alq_grpc_session *alq_grpc_session_new(const struct alq_grpc_method *methods,
                                              void (*on_output)(void *arg), void *arg);
/* Calls not answered are cancelled. NULL-safe. */
void alq_grpc_session_free(struct alq_grpc_session *session);

/* Takes what the peer sent. 0, or -1 when the connection is beyond use (send what there is to send,
 * then close). now_ns: monotonic. */
int alq_grpc_session_feed(struct alq_grpc_session *session, const uint8_t *data, size_t len,
                          int64_t now_ns);

/* The next bytes for the peer: their number, 0 when there is none now, -1 beyond use. *data is
 * valid until the next call on the session. */
ssize_t alq_grpc_session_take(struct alq_grpc_session *session, const uint8_t **data);

/* Neither wants to read nor to write: close it. */
int alq_grpc_session_is_over(const struct alq_grpc_session *session);

/* Says goodbye (GOAWAY): open calls go on, new ones are not taken, then the session is over. */
void alq_grpc_session_shutdown(struct alq_grpc_session *session);

/* When the first deadline of a call passes; INT64_MAX: none is set. */
int64_t alq_grpc_session_deadline_ns(const struct alq_grpc_session *session);
/* Ends calls whose deadline has passed with DEADLINE_EXCEEDED. */
void alq_grpc_session_expire(struct alq_grpc_session *session, int64_t now_ns);

/* Calls not answered yet. */
unsigned alq_grpc_session_open_calls(const struct alq_grpc_session *session);

/* The call has ended without us (reset, deadline, connection lost): on_cancel(arg) is called once
 * and the call is gone when it returns. NULL: nobody keeps the call. */
void alq_grpc_on_cancel(struct alq_grpc_call *call, void (*on_cancel)(void *arg), void *arg);

/* Absolute, on the clock of alq_grpc_session_feed; INT64_MAX: none. */
int64_t alq_grpc_call_deadline_ns(const struct alq_grpc_call *call);

/* The only message, then OK. The call must not be used any more. */
void alq_grpc_reply(struct alq_grpc_call *call, const uint8_t *message, size_t len);

/* An error without a message (trailers only when nothing was sent). The call must not be used any
 * more. */
void alq_grpc_fail(struct alq_grpc_call *call, enum alq_grpc_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* One message of several. -1: out of memory or too much unsent (4 MiB); the caller fails the call.
 */
int alq_grpc_send(struct alq_grpc_call *call, const uint8_t *message, size_t len);
/* on_drained(arg) is called once, when all that was sent up to then is on its way; it may send. The
 * end of the call forgets it. */
void alq_grpc_on_drained(struct alq_grpc_call *call, void (*on_drained)(void *arg), void *arg);
/* After the last message. The call must not be used any more. */
void alq_grpc_finish(struct alq_grpc_call *call);

/* "<1 to 8 digits><n|u|m|S|M|H>" in nanoseconds, or -1. */
int64_t alq_grpc_timeout_parse(const char *text, size_t len);

/* Percent-encodes what grpc-message may not hold; always NUL-terminated, cut to size between
 * characters. */
void alq_grpc_message_encode(const char *text, char *out, size_t size);

#endif
