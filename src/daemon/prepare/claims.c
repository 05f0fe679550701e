/* SPDX-License-Identifier: Apache-2.0 */
/* The table of claims, see claims.h: chained buckets over FNV-1a of the UID. Loop thread only. */
#include "daemon/prepare/claims.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/state/claim_spec.h"

static unsigned bucket_of(const char *uid)
{
    uint32_t hash = 2166136261u;
    for (const char *c = uid; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return hash & (ALQ_CLAIM_BUCKETS - 1);
}

struct alq_claim *alq_claims_find(const struct alq_claims *claims, const char *uid)
{
    struct alq_claim *claim = LIST_FIRST(&claims->buckets[bucket_of(uid)]);
    while (claim && strcmp(claim->uid, uid) != 0)
        claim = LIST_NEXT(claim, bucket);
    return claim;
}

struct alq_claim *alq_claims_get(struct alq_claims *claims, const char *uid)
{
    struct alq_claim *claim = alq_claims_find(claims, uid);
    if (claim || !(claim = calloc(1, sizeof(*claim))))
        return claim;
    snprintf(claim->uid, sizeof(claim->uid), "%s", uid);
    TAILQ_INIT(&claim->operations);
    LIST_INSERT_HEAD(&claims->buckets[bucket_of(uid)], claim, bucket);
    LIST_INSERT_HEAD(&claims->all, claim, link);
    claims->count++;
    return claim;
}

void alq_claims_drop(struct alq_claims *claims, struct alq_claim *claim)
{
    LIST_REMOVE(claim, bucket);
    LIST_REMOVE(claim, link);
    claims->count--;
    alq_claim_spec_free(claim->spec);
    free(claim);
}

void alq_claim_forget(struct alq_claim *claim)
{
    alq_claim_spec_free(alq_steal(&claim->spec));
    claim->arrival = 0;
    claim->is_completed = claim->needs_rebuild = 0;
    claim->take_back_ns = 0;
    claim->removals_failed = 0;
    claim->gone = 0;
    memset(&claim->lookup, 0, sizeof(claim->lookup));
}

int alq_claim_specs_meet(const struct alq_claim_spec *a, const struct alq_claim_spec *b)
{
    for (uint32_t i = 0; i < a->share_count; i++)
        for (uint32_t j = 0; j < b->share_count; j++)
            if (!a->shares[i].is_admin && !b->shares[j].is_admin &&
                !strcmp(a->shares[i].gpu_uuid, b->shares[j].gpu_uuid))
                return 1;
    return 0;
}

void alq_claim_id_of(const struct alq_claim_spec *spec, struct alq_claim_id *id)
{
    snprintf(id->uid, sizeof(id->uid), "%s", spec->uid);
    snprintf(id->namespace_, sizeof(id->namespace_), "%s", spec->namespace_);
    snprintf(id->name, sizeof(id->name), "%s", spec->name);
}
