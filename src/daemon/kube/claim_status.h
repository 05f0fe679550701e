/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells in status.devices of claims what was prepared for them (claim_devices.h), after the kubelet
 * has its answer: claims wait in a queue and are written one at a time, by server-side apply with a
 * field manager of our own. A claim that says so already is not written, and one whose GPU becomes
 * unfit, goes or is well again is written once for each such change. Without the right, or
 * where the server does not keep the field, that is one finding and no further tries for an hour.
 * Loop thread only.
 *
 * The service account needs patch of resourceclaims/status in resource.k8s.io, and from Kubernetes
 * 1.36 on associated-node:patch of resourceclaims/driver for our driver's name.
 */
#ifndef ALQ_DAEMON_KUBE_CLAIM_STATUS_H
#define ALQ_DAEMON_KUBE_CLAIM_STATUS_H

#include <jansson.h>

#include "base/err.h"
#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/domain.h"

struct alq_claim_status;
struct alq_findings;
struct alq_kube;

/* cfg and kube outlive it, clock is copied. NULL when out of memory. */
struct alq_claim_status *alq_claim_status_new(const struct alq_config *cfg, struct alq_kube *kube,
                                              const struct alq_clock *clock, struct alq_err *err);
/* NULL-safe. */
void alq_claim_status_free(struct alq_claim_status *status);

/* The claim is prepared; object: as the API server has it, not long ago. Nothing is kept of
 * either. */
void alq_claim_status_set(struct alq_claim_status *status, const struct alq_claim_spec *claim,
                          const json_t *object);

/* What the GPUs are now. Then, for each prepared claim, _gpus_changed, which writes it if that is
 * something else than before for its own. The first reading is no change: what the server has may
 * be older or newer, so such claims are to be looked up and set. */
void alq_claim_status_set_gpus(struct alq_claim_status *status, const struct alq_gpu_list *list);
void alq_claim_status_gpus_changed(struct alq_claim_status *status,
                                   const struct alq_claim_spec *claim);

/* The claim is over: what waits to be told of it is not told. */
void alq_claim_status_forget(struct alq_claim_status *status, const char *uid);

/* A source of findings; status is its arg. */
void alq_claim_status_tell(void *status, struct alq_findings *findings);

#endif
