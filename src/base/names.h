/* SPDX-License-Identifier: Apache-2.0 */
/* Names and times as Kubernetes writes them. */
#ifndef ALQ_BASE_NAMES_H
#define ALQ_BASE_NAMES_H

#include <stddef.h>
#include <time.h>

/* RFC 1123, lower case: one label, or with has_dots labels between dots. How long it may be is the
 * caller's. */
int alq_is_dns_name(const char *text, size_t len, int has_dots);

#define ALQ_UUID_TEXT_BYTES 37

/* A random UUID (RFC 4122, version 4). -1: no random bytes; errno. */
int alq_uuid_random(char text[ALQ_UUID_TEXT_BYTES]);

#define ALQ_TIME_TEXT_BYTES 32

/* RFC 3339 in UTC, whole seconds; "" of a time that has no year. Returns text. */
const char *alq_time_format(time_t seconds, char text[ALQ_TIME_TEXT_BYTES]);

#endif
