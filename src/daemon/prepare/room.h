/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The overcommit guard: whether a GPU has what a claim asks, given what others were promised. Pure;
 * the caller lists the holders.
 */
#ifndef ALQ_DAEMON_PREPARE_ROOM_H
#define ALQ_DAEMON_PREPARE_ROOM_H

#include "base/err.h"
#include "daemon/domain.h"

/*
 * Checks claim against the promises of holders[0..count) (claim's own uid among them is skipped,
 * adminAccess too). ALQ_EBUSY: names the GPU, what is left of it, and who holds the rest; *gpu_uuid
 * (may be NULL) then is the GPU's, borrowed from claim.
 */
int alq_room_check(const struct alq_claim_spec *claim, const struct alq_claim_spec *const *holders,
                   size_t count, const char **gpu_uuid, struct alq_err *err);

#endif
