/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims that aliquotd knows: what each is promised, and the operations that are open for it.
 * A table by UID; who puts operations and promises in is steps.c and admit.c. Loop thread only.
 */
#ifndef ALQ_DAEMON_PREPARE_CLAIMS_H
#define ALQ_DAEMON_PREPARE_CLAIMS_H

#include <assert.h>
#include <stdint.h>
#include <sys/queue.h>

#include "daemon/domain.h"
#include "daemon/prepare/allocation.h"
#include "daemon/prepare/lookup.h"

#define ALQ_CLAIM_BUCKETS 1024u /* a power of two */

struct alq_operation;

struct alq_claim {
    LIST_ENTRY(alq_claim) bucket;
    LIST_ENTRY(alq_claim) link;             /* of all */
    TAILQ_HEAD(, alq_operation) operations; /* in order of arrival; the head runs */
    char uid[64];
    struct alq_claim_spec *spec; /* promised: counted against the GPUs; NULL: nothing */
    uint64_t arrival;            /* of the Prepare that got the promise; 0: of an earlier life */
    int is_completed;            /* its files were made in this boot */
    int needs_rebuild;
    struct alq_lookup lookup; /* of its object, while it has a promise */
    int64_t take_back_ns;     /* when it is unprepared without the kubelet: its object is gone, or a
                                 removal of its files has failed; 0: neither */
    unsigned removals_failed;
    uint32_t gone; /* bit i: share i's GPU is not on this node, as has been told */
};
static_assert(ALQ_CLAIM_RESULTS_MAX <= 32, "alq_claim.gone");

LIST_HEAD(alq_claim_list, alq_claim);

struct alq_claims {
    struct alq_claim_list buckets[ALQ_CLAIM_BUCKETS];
    struct alq_claim_list all;
    unsigned count;
};

struct alq_claim *alq_claims_find(const struct alq_claims *claims, const char *uid);
/* Made when absent; NULL when out of memory. */
struct alq_claim *alq_claims_get(struct alq_claims *claims, const char *uid);
/* Its promise goes too; no operation may be open. */
void alq_claims_drop(struct alq_claims *claims, struct alq_claim *claim);

/* Ends the promise. A lookup in flight must have been cancelled. */
void alq_claim_forget(struct alq_claim *claim);

/* Whether both promise, or would, something of one GPU. */
int alq_claim_specs_meet(const struct alq_claim_spec *a, const struct alq_claim_spec *b);

void alq_claim_id_of(const struct alq_claim_spec *spec, struct alq_claim_id *id);

#endif
