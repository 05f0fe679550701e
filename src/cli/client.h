/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to aliquotd's admin socket: HTTP/1.1, a connection each, blocking with a time limit.
 */
#ifndef ALQ_CLI_CLIENT_H
#define ALQ_CLI_CLIENT_H

#include <jansson.h>

#include "base/err.h"

/*
 * *value is the caller's. ALQ_ENOENT, ALQ_EACCES, ALQ_EIO: the daemon was not reached, *status is
 * 0; ALQ_ETIMEDOUT: it does not answer; ALQ_EPROTO: no answer that is understood. An answer of 300
 * or more is an error with the daemon's own words and *status set.
 */
int alq_client_ask(const char *socket_path, const char *method, const char *path,
                   const json_t *body, int *status, json_t **value, struct alq_err *err);

/* The same with a body that is text as it stands; NULL: none. */
int alq_client_send(const char *socket_path, const char *method, const char *path, const char *text,
                    int *status, json_t **value, struct alq_err *err);

/* Writes JSON as the daemon gave it, indented, to stdout. */
void alq_client_print(const json_t *value);

#endif
