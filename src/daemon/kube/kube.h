/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client of the API server on libcurl's multi interface and the daemon's event loop: HTTPS/1.1 with
 * keep-alive, credentials of a kubeconfig file or of the in-cluster service account, re-read when
 * they change (at least once a minute and after a 401). Every call is asynchronous; nothing here
 * blocks but reading the credential files. Loop thread only. Nothing outside kube/ includes curl.
 */
#ifndef ALQ_DAEMON_KUBE_KUBE_H
#define ALQ_DAEMON_KUBE_KUBE_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "daemon/config.h"

struct event_base;
struct alq_kube;
struct alq_kube_call;

/*
 * The outcome of one call. Exactly one of these holds:
 *   err == NULL, status 2xx, body is the object
 *   err != NULL, status 0: no answer. ALQ_ETIMEDOUT, ALQ_EIO (connection, TLS), ALQ_EPROTO (not
 * JSON), ALQ_EACCES (no credentials) err != NULL, status >= 300: the server's answer; body is its
 * Status object or NULL; err->text has the server's message, its code is ALQ_ENOENT (404),
 * ALQ_EACCES (401, 403), ALQ_EEXIST (409), ALQ_EINVAL (400, 422), ALQ_EAGAIN (429, 5xx), ALQ_EPROTO
 * (others) body is borrowed; take a reference to keep it. Called once, from the loop, never from
 * inside the call that started it.
 */
typedef void (*alq_kube_cb)(void *arg, int status, json_t *body, const struct alq_err *err);

/* A missing or unreadable kubeconfig is ALQ_EINVAL or ALQ_ENOENT naming it (exec plugins are
 * refused clearly); without
 * --kubeconfig and without a service account ALQ_ENOENT saying what to set. The server need not be
 * reachable. */
struct alq_kube *alq_kube_new(const struct alq_config *cfg, struct event_base *base,
                              struct alq_err *err);
/* Cancels what is in flight (no callbacks). NULL-safe. */
void alq_kube_free(struct alq_kube *kube);

/* One request. path begins with "/" and may have a query; body (NULL: none) is not kept.
 * content_type NULL: application/json. timeout_ms > 0 bounds the whole call. Returns a handle valid
 * until the callback begins or alq_kube_cancel; NULL only when out of memory (then err is set and
 * no callback comes). */
struct alq_kube_call *alq_kube_request(struct alq_kube *kube, const char *method, const char *path,
                                       const char *content_type, const json_t *body,
                                       long timeout_ms, alq_kube_cb cb, void *arg,
                                       struct alq_err *err);

/* GET /apis/resource.k8s.io/v1/namespaces/<namespace>/resourceclaims/<name>; names are
 * percent-encoded. */
struct alq_kube_call *alq_kube_get_claim(struct alq_kube *kube, const char *namespace_,
                                         const char *name, long timeout_ms, alq_kube_cb cb,
                                         void *arg, struct alq_err *err);

/* The callback will not come. */
void alq_kube_cancel(struct alq_kube_call *call);

#endif
