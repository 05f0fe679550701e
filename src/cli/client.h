/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request to aliquotd's admin socket: HTTP/1.1, a connection each, blocking with a time limit.
 */
#ifndef ALQ_CLI_CLIENT_H
#define ALQ_CLI_CLIENT_H

#include <jansson.h>

#include "base/err.h"

/*
 * *value is the caller's. With *status 0, ALQ_ENOENT: no daemon listens there; ALQ_EACCES, ALQ_EIO:
 * it was not reached; ALQ_ETIMEDOUT: it does not answer; ALQ_EPROTO: no answer that is understood.
 * An answer of 300 or more is an error with the daemon's own words and *status set.
 */
int alq_client_ask(const char *socket_path, const char *method, const char *path,
                   const json_t *body, int *status, json_t **value, struct alq_err *err);

/* The same with a body that is text as it stands; NULL: none. */
int alq_client_send(const char *socket_path, const char *method, const char *path, const char *text,
                    int *status, json_t **value, struct alq_err *err);

/* Texts for a terminal: what would command it, or end the line, becomes a blank, what is not UTF-8
 * a '?'. Names come from other users' manifests and programs. Of JSON all strings, not keys. */
void alq_client_clean_text(char *text);
void alq_client_clean(json_t *value);

/* Writes JSON as the daemon gave it, indented, to stdout. */
void alq_client_print(const json_t *value);

#endif
