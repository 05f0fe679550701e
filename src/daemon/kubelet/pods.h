/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which containers use which shares, as the kubelet tells on its pod-resources socket (List, with
 * the CDI device names of claims: from Kubernetes 1.34 by default). Only labels depend on it: a
 * kubelet that does not tell costs nothing else. Loop thread only.
 */
#ifndef ALQ_DAEMON_KUBELET_PODS_H
#define ALQ_DAEMON_KUBELET_PODS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/domain.h"

struct alq_pods;
struct event_base;

/* All there are, borrowed; not called when the kubelet does not answer. */
typedef void (*alq_pods_cb)(void *arg, const struct alq_share_user *users, size_t count);

/* socket and driver (of our CDI device names) outlive it. NULL when out of memory. */
struct alq_pods *alq_pods_new(struct event_base *base, const char *socket, const char *driver,
                              alq_pods_cb cb, void *arg, struct alq_err *err);
/* NULL-safe. */
void alq_pods_free(struct alq_pods *pods);

/* Asks the kubelet, if it is not being asked already. */
void alq_pods_ask(struct alq_pods *pods);

/* The users in an answer; malloc'ed, with the strings in it. NULL: not such a message, or out of
 * memory. Pure. */
struct alq_share_user *alq_pods_decode(const uint8_t *message, size_t len, const char *driver,
                                       size_t *count);

#endif
