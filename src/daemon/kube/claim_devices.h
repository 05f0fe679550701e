/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status.devices of a ResourceClaim: what this driver says of the shares that it prepared. Pure
 * functions; any thread.
 *
 * The server clears it when the claim is deallocated, so nothing is taken away at Unprepare: the
 * entry is about the allocation, which may outlive this pod and be prepared for the next.
 */
#ifndef ALQ_DAEMON_KUBE_CLAIM_DEVICES_H
#define ALQ_DAEMON_KUBE_CLAIM_DEVICES_H

#include <jansson.h>
#include <time.h>

#include "daemon/domain.h"

/* One entry a share: its key as allocated, a condition Ready, and as data uuid, minor and, but for
 * an admin's, memoryBytes and cores. New reference; NULL when out of memory. */
json_t *alq_claim_devices(const struct alq_claim_spec *claim, const char *driver, time_t now);

/* Whether the claim's object says all that already; conditions and entries of others, and times, do
 * not count. */
int alq_claim_devices_are_told(const json_t *object, const json_t *devices);

/* The object to apply (server-side) on the claim's status. Takes devices over. */
json_t *alq_claim_devices_apply(const struct alq_claim_spec *claim, json_t *devices);

#endif
