/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of claims, as Kubernetes Events for those who use them: which reason, about whom, in
 * which words. Loop thread only.
 */
#ifndef ALQ_DAEMON_CLAIM_EVENTS_H
#define ALQ_DAEMON_CLAIM_EVENTS_H

#include "base/err.h"
#include "daemon/domain.h"

struct alq_claim_id;
struct alq_events;
struct alq_prepare;

/* A Prepare was answered with err, whose text begins with the claim's name. The kubelet tells the
 * pod. */
void alq_claim_events_refused(struct alq_events *events, const struct alq_claim_id *id,
                              const struct alq_err *err);

/* The GPU of a share has gone while containers may use it. */
void alq_claim_events_lost(struct alq_events *events, const struct alq_claim_spec *claim,
                           const struct alq_share_spec *share);

/* A fault of a GPU (name: of the device) began or is over, to all who have a share of it. */
void alq_claim_events_fault(struct alq_events *events, const struct alq_prepare *prepare,
                            const char *uuid, const char *name, const struct alq_fault *fault);

#endif
