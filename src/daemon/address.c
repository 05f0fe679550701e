/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses to listen at, see address.h.
 */
#include "daemon/address.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What follows the last colon, digits only; -1: none. */
static long read_port(const char *text)
{
    char *end;
    if (!isdigit((unsigned char)*text))
        return -1;
    unsigned long port = strtoul(text, &end, 10);
    return *end || port > UINT16_MAX ? -1 : (long)port;
}

int alq_address_parse(const char *text, struct alq_address *a, struct alq_err *err)
{
    const char *colon = strrchr(text, ':');
    long port = colon ? read_port(colon + 1) : -1;
    size_t len = colon ? (size_t)(colon - text) : 0;
    int is_bracketed = len > 1 && text[0] == '[' && text[len - 1] == ']';
    char host[INET6_ADDRSTRLEN + 2] = "";
    memset(a, 0, sizeof(*a));
    if (port >= 0 && len < sizeof(host)) {
        memcpy(host, text + is_bracketed, len - (is_bracketed ? 2 : 0));
        a->is_both = !len;
        if (a->is_both || (is_bracketed && inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1)) {
            a->v6.sin6_family = AF_INET6;
            a->v6.sin6_port = htons((uint16_t)port);
            a->len = sizeof(a->v6);
        } else if (!is_bracketed && inet_pton(AF_INET, host, &a->v4.sin_addr) == 1) {
            a->v4.sin_family = AF_INET;
            a->v4.sin_port = htons((uint16_t)port);
            a->len = sizeof(a->v4);
        }
    }
    if (a->len)
        return 0;
    return alq_err_set(err, ALQ_EINVAL,
                       "\"%.100s\" is not a numeric address and a port (127.0.0.1:9487, :9487, "
                       "[::1]:9487)",
                       text);
}
