/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publisher of the node's ResourceSlices: keeps what the API server has equal to the GPUs it was
 * told last, re-creates slices that others delete or change, retries with back-off, and follows the
 * rules of contract 1 (one GPU per slice before 1.35). Loop thread only.
 */
#ifndef ALQ_DAEMON_KUBE_SLICES_H
#define ALQ_DAEMON_KUBE_SLICES_H

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/domain.h"

struct event_base;
struct alq_events;
struct alq_findings;
struct alq_kube;
struct alq_slices;

/* Does nothing until alq_slices_set_devices. What an operator must know goes to events (NULL: to
 * nobody) as well as to the log. NULL when out of memory. */
struct alq_slices *alq_slices_new(const struct alq_config *cfg, struct alq_kube *kube,
                                  struct alq_events *events, struct event_base *base,
                                  struct alq_err *err);
void alq_slices_free(struct alq_slices *slices);

/* The GPUs to publish from now on (copied; every name is set); count 0 publishes an empty pool: all
 * our slices go. */
int alq_slices_set_devices(struct alq_slices *slices, const struct alq_gpu_list *list,
                           struct alq_err *err);

/* A source of findings; slices is its arg. */
void alq_slices_tell(void *slices, struct alq_findings *findings);

/* Whether the server was last seen to hold exactly what should be there. */
int alq_slices_is_published(const struct alq_slices *slices);

#endif
