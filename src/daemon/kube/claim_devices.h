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

/* What is to be said of a GPU. */
struct alq_gpu_state {
    char uuid[ALQ_UUID_BYTES];
    char trouble[232]; /* why it is not fit for new claims; "" it is */
};

/* Those of the node; at NULL: there has been no reading yet. */
struct alq_gpu_states {
    struct alq_gpu_state *at; /* owned, with one more than count */
    size_t count;
};

/* -1: out of memory; states is unchanged. */
int alq_gpu_states_set(struct alq_gpu_states *states, const struct alq_gpu_list *list);

/* Whether a share of the claim is told otherwise by the one than by the other. */
int alq_gpu_states_differ(const struct alq_gpu_states *a, const struct alq_gpu_states *b,
                          const struct alq_claim_spec *claim);

/* One entry a share: its key as allocated, a condition Ready (False while its GPU is unfit or is
 * gone), and as data uuid, minor and, but for an admin's, memoryBytes and cores. New reference;
 * NULL when out of memory. */
json_t *alq_claim_devices(const struct alq_claim_spec *claim, const char *driver,
                          const struct alq_gpu_states *gpus, time_t now);

/* Whether the claim's object says all that already, the conditions only with has_conditions;
 * conditions and entries of others, and times, do not count. */
int alq_claim_devices_are_told(const json_t *object, const json_t *devices, int has_conditions);

/* The object to apply (server-side) on the claim's status. Takes devices over. */
json_t *alq_claim_devices_apply(const struct alq_claim_spec *claim, json_t *devices);

#endif
