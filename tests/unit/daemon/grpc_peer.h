/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of gRPC sessions for tests, on nghttp2's client side: it keeps what each stream was
 * answered, and can be made to misbehave. No I/O; time is a number.
 */
#ifndef ALQ_TESTS_GRPC_PEER_H
#define ALQ_TESTS_GRPC_PEER_H

#include <nghttp2/nghttp2.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/grpc/session.h"

#define SECOND 1000000000ll
#define STREAMS 256

struct answer {
    char http_status[8];
    char grpc_status[8];
    char grpc_message[512];
    char content_type[64];
    uint8_t *data;
    size_t len;
    unsigned header_frames; /* with trailers-only there is one */
    int is_closed;
    uint32_t error;
};

struct peer {
    nghttp2_session *h2;
    struct alq_grpc_session *server;
    struct answer answers[STREAMS];
    int is_goaway;
    int is_slow; /* what comes is not read: no window is given back */
    int64_t now_ns;
    int server_rc;
};

struct upload {
    const uint8_t *data;
    size_t len;
    int is_open; /* no END_STREAM */
};

/* A request that may be wrong in one thing. */
struct request {
    const char *method, *path, *content_type, *timeout, *encoding, *extra;
    struct upload upload;
};

/* window: the initial one of each stream, 0 for HTTP/2's own. */
void peer_open(struct peer *p, const struct alq_grpc_method *methods, uint32_t window);
void peer_close(struct peer *p);

/* Lets both sides speak until neither has anything to say. */
void peer_pump(struct peer *p);

/* Sends the request and pumps. Returns its stream. */
int32_t peer_ask(struct peer *p, struct request *r);

#endif
