/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells that something may have gone from directories that others can write to: a cleaner that
 * takes our sockets away leaves a daemon that nobody can reach. By inotify, and every few seconds
 * besides, since a directory may be replaced and inotify may have run out. Loop thread only.
 */
#ifndef ALQ_DAEMON_KUBELET_GONE_H
#define ALQ_DAEMON_KUBELET_GONE_H

#include "base/err.h"

#define ALQ_GONE_DIRS_MAX 4
#define ALQ_GONE_PERIOD_S 5

struct event_base;
struct alq_gone;

/* dirs ends with NULL and is copied. on_gone(arg) looks itself what is missing. NULL when out of
 * memory. */
struct alq_gone *alq_gone_new(struct event_base *base, const char *const *dirs,
                              void (*on_gone)(void *arg), void *arg, struct alq_err *err);
/* NULL-safe. */
void alq_gone_free(struct alq_gone *gone);

#endif
