/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An address to listen at, as a setting writes it. Pure function of its input; any thread.
 */
#ifndef ALQ_DAEMON_ADDRESS_H
#define ALQ_DAEMON_ADDRESS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/err.h"

struct alq_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
    socklen_t len;
    int is_both; /* IPv4 and IPv6 */
};

/* "127.0.0.1:9487", "[::1]:9487", ":9487" (both); port 0: any. Numbers only: a name would have to
 * be asked for, and the loop would wait. ALQ_EINVAL. */
int alq_address_parse(const char *text, struct alq_address *a, struct alq_err *err);

#endif
