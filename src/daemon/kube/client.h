/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only kube/ needs of the client: watches and the server's wish for a pause. Loop thread only.
 */
#ifndef ALQ_DAEMON_KUBE_CLIENT_H
#define ALQ_DAEMON_KUBE_CLIENT_H

#include "daemon/kube/kube.h"
#include "daemon/kube/watch.h"

typedef void (*alq_kube_event_cb)(void *arg, const struct alq_watch_event *event);

/* The watch is over: err NULL when the server ended it in good order, else as for alq_kube_cb.
 * Called once, last. */
typedef void (*alq_kube_end_cb)(void *arg, int status, const struct alq_err *err);

/*
 * GET path (with watch=true and its own timeoutSeconds) as an endless answer. timeout_ms: when the
 * whole is given up, well above timeoutSeconds. alq_kube_cancel ends it without a callback, also
 * from within one. NULL: out of memory.
 */
struct alq_kube_call *alq_kube_watch(struct alq_kube *kube, const char *path, long timeout_ms,
                                     alq_kube_event_cb on_event, alq_kube_end_cb on_end, void *arg,
                                     struct alq_err *err);

/* Within a callback: the Retry-After of the answer in ms, 0 when there was none. */
long alq_kube_retry_after_ms(const struct alq_kube *kube);

/* Percent-encodes one path segment or query value; malloc'ed, NULL when out of memory. */
char *alq_kube_escape(const char *text);

#endif
