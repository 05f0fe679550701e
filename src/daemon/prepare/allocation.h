/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a ResourceClaim as the API server gave it to the shares that it promises on this node. Pure:
 * the claim and the GPUs go in, a spec or a sentence comes out.
 */
#ifndef ALQ_DAEMON_PREPARE_ALLOCATION_H
#define ALQ_DAEMON_PREPARE_ALLOCATION_H

#include <jansson.h>

#include "base/err.h"
#include "daemon/domain.h"

struct alq_claim_id {
    char uid[64];
    char namespace_[64]; /* DNS label */
    char name[256];
};

/*
 * Reads status.allocation of the object for our driver and node. ALQ_EAGAIN: not allocated (yet),
 * or the claim was replaced by another of the same name; ALQ_EINVAL: an allocation that cannot be
 * served here, with the thing named and the remedy; ALQ_ENOENT: a device that is not on this node.
 * held: what containers of the claim have now, or NULL. A share that is among it stays as it is
 * when its GPU has less to promise than it had (--reserve). The result is the caller's.
 */
int alq_allocation_read(const json_t *object, const struct alq_claim_id *id, const char *driver,
                        const char *pool, const struct alq_gpu_list *gpus,
                        const struct alq_claim_spec *held, struct alq_claim_spec **claim,
                        struct alq_err *err);

#endif
