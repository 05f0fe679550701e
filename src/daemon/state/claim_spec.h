/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of struct alq_claim_spec, and what may be the identity of a claim. Pure functions.
 */
#ifndef ALQ_DAEMON_STATE_CLAIM_SPEC_H
#define ALQ_DAEMON_STATE_CLAIM_SPEC_H

#include "daemon/config.h"
#include "daemon/domain.h"

/* Deep copy, NULL when out of memory. */
struct alq_claim_spec *alq_claim_spec_dup(const struct alq_claim_spec *claim);
void alq_claim_spec_fini(struct alq_claim_spec *claim); /* frees what is inside */
void alq_claim_spec_free(struct alq_claim_spec *claim); /* NULL-safe */

/* Same allocation: same uid and in each result everything but where the GPU was (minor, size) and
 * what the operator has set. */
int alq_claim_spec_equal(const struct alq_claim_spec *a, const struct alq_claim_spec *b);

/* Whether the containers of the share get its limits, files and library. Not with adminAccess, nor
 * for a whole GPU that is passed through. */
int alq_share_is_enforced(const struct alq_config *cfg, const struct alq_share_spec *share);

/* The limits that hold: the operator's, else what was allocated. */
uint64_t alq_share_memory_in_force(const struct alq_share_spec *share);
uint32_t alq_share_cores_in_force(const struct alq_share_spec *share);

/* Takes over the limits that the operator has set on an equal claim. */
void alq_claim_spec_keep_limits(struct alq_claim_spec *claim, const struct alq_claim_spec *from);

/* 1 to 48 letters, digits and '-', first and last no '-': a UID names files, so nothing else may
 * pass. */
int alq_claim_uid_is_valid(const char *uid);

/* "<uid>-<index>" */
void alq_share_id_format(const char *uid, uint32_t index, char id[ALQ_SHARE_ID_BYTES]);

#endif
