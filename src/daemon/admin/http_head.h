/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an HTTP/1.1 request as bytes: request line and fields, up to the empty line. Only
 * what a scraper, a probe and our own tool send is taken; everything else is refused with the
 * status that says so. Sans I/O: a pure function; any thread.
 */
#ifndef ALQ_DAEMON_ADMIN_HTTP_HEAD_H
#define ALQ_DAEMON_ADMIN_HTTP_HEAD_H

#include <stddef.h>

#define ALQ_HTTP_HEAD_MAX_BYTES 8192u

/* Text points into the bytes that were parsed; "" where there is none. */
struct alq_http_head {
    const char *method; /* GET, HEAD, PUT, ... */
    const char *path;   /* decoded; begins with "/" */
    const char *query;  /* as sent, without "?" */
    const char *accept;
    size_t body_bytes; /* Content-Length */
    int is_kept;       /* the connection stays open afterwards */
};

/*
 * Parses text[0..len), which ends with the empty line, in place: it is cut into strings. 0, or the
 * status to answer: 400 malformed, 414 a path too long, 417 an Expect, 501 Transfer-Encoding, 505
 * another version.
 */
int alq_http_head_parse(char *text, size_t len, struct alq_http_head *head);

#endif
