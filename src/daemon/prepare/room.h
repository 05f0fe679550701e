/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The overcommit guard: whether a GPU has what a claim asks, given what others were promised. Pure;
 * the caller lists the holders.
 */
#ifndef ALQ_DAEMON_PREPARE_ROOM_H
#define ALQ_DAEMON_PREPARE_ROOM_H

#include "base/err.h"
#include "daemon/domain.h"

/* Somebody's promise; remark says what is odd about it ("" for nothing), static text. */
struct alq_room_holder {
    const struct alq_claim_spec *claim;
    const char *remark;
};

/*
 * Checks claim against the promises of holders[0..count) (claim's own uid among them is skipped,
 * adminAccess too). ALQ_EBUSY: names the GPU, what is asked and left, and who holds the rest, those
 * with a remark first, in a text that leaves room for the claim's name in an error. err may be
 * NULL: putting that text together takes most of the time.
 */
int alq_room_check(const struct alq_claim_spec *claim, const struct alq_room_holder *holders,
                   size_t count, struct alq_err *err);

#endif
