/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's allocation of devices to the ResourceClaims of one pod on one node, by the rules
 * of Dynamic Resource Allocation with consumable capacity as Kubernetes' scheduler has them
 * (reference/dra.md §4.3, §4.4; the recorded claims in tests/conformance/alloc). First fit: claims,
 * requests and alternatives in their order, devices in the order of pools, slices and devices, with
 * backtracking. Differences, all on the safe side:
 *
 * - The consumption of a share is always checked against the device that it lands on; 1.34 looks at
 * another device of the slice (kubernetes#133705), which is done in addition, so that what 1.34
 * refuses is refused here.
 * - adminAccess takes no room and needs none. One claim never gets a device twice by adminAccess.
 * - allocationMode All fails while a device that it means lacks room, as the API promises (1.36
 * leaves such a device out).
 * - Devices that consume counters or have binding conditions are never allocated.
 *
 * Pure but for getrandom(2) (shareIDs); one thread per call, any number of calls at once.
 */
#ifndef ALQ_ALLOC_ALLOC_H
#define ALQ_ALLOC_ALLOC_H

#include <jansson.h>

#include "base/err.h"

#define ALQ_ALLOC_STEPS_MAX 200000 /* of the search: about a second */

/* All borrowed, all API objects as JSON; arrays may be NULL for "none". */
struct alq_alloc_input {
    json_t *claims;    /* ResourceClaims of the pod; those with status.allocation are only checked
                          against the node */
    json_t *classes;   /* DeviceClasses */
    json_t *slices;    /* ResourceSlices of all drivers and nodes */
    json_t *allocated; /* ResourceClaims with status.allocation: what is in use */
    json_t *node;      /* the Node */
    const char *now;   /* RFC 3339, for allocationTimestamp; NULL: left out */
    unsigned server_minor; /* 34 for Kubernetes 1.34; 0: the newest known */
};

/*
 * 0 with *allocations: an object from claim uid to what belongs into status.allocation (the
 * caller's reference), or 0 with *reason (malloc'ed): the claims cannot be allocated on this node
 * now. ALQ_EINVAL, ALQ_EPROTO: a claim, class or slice that is wrong, an expression that does not
 * compile, or one that fails on a device ("claim ns/name: selector #0: CEL runtime error:
 * ..."); ALQ_ERANGE: a limit of the API or of the search; ALQ_ENOTSUP: where Kubernetes 1.34's
 * scheduler would crash; ALQ_EIO; ALQ_ENOMEM.
 */
int alq_alloc(const struct alq_alloc_input *input, json_t **allocations, char **reason,
              struct alq_err *err);

/* "1.34", "v1.36.2" -> 34, 36; 0 for NULL or "". ALQ_EINVAL otherwise. */
int alq_alloc_server_minor(const char *version, unsigned *minor, struct alq_err *err);

#endif
