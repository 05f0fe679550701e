/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and comparisons of claims, see claim_spec.h. Pure functions, any thread. */
#include "daemon/state/claim_spec.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UID_BYTES_MAX 48u

struct alq_claim_spec *alq_claim_spec_dup(const struct alq_claim_spec *claim)
{
    struct alq_claim_spec *copy = malloc(sizeof(*copy));
    if (!copy)
        return NULL;
    *copy = *claim;
    copy->name = strdup(claim->name);
    copy->pool = strdup(claim->pool);
    copy->shares = calloc(claim->share_count ? claim->share_count : 1, sizeof(*copy->shares));
    if (!copy->name || !copy->pool || !copy->shares) {
        alq_claim_spec_free(copy);
        return NULL;
    }
    if (claim->share_count)
        memcpy(copy->shares, claim->shares, claim->share_count * sizeof(*copy->shares));
    return copy;
}

void alq_claim_spec_fini(struct alq_claim_spec *claim)
{
    free(claim->name);
    free(claim->pool);
    free(claim->shares);
    claim->name = claim->pool = NULL;
    claim->shares = NULL;
    claim->share_count = 0;
}

void alq_claim_spec_free(struct alq_claim_spec *claim)
{
    if (claim)
        alq_claim_spec_fini(claim);
    free(claim);
}

static int is_same_share(const struct alq_share_spec *a, const struct alq_share_spec *b)
{
    return a->index == b->index && !strcmp(a->share_id, b->share_id) &&
           !strcmp(a->gpu_uuid, b->gpu_uuid) && a->memory_bytes == b->memory_bytes &&
           a->cores_pct == b->cores_pct && a->is_admin == b->is_admin &&
           a->tuning.policy == b->tuning.policy && a->tuning.priority == b->tuning.priority &&
           a->tuning.log_level == b->tuning.log_level && a->tuning.wait_s == b->tuning.wait_s &&
           a->tuning.spill_bytes == b->tuning.spill_bytes && !strcmp(a->request, b->request) &&
           !strcmp(a->device, b->device) && !strcmp(a->share_uuid, b->share_uuid);
}

int alq_claim_spec_equal(const struct alq_claim_spec *a, const struct alq_claim_spec *b)
{
    if (strcmp(a->uid, b->uid) != 0 || strcmp(a->pool, b->pool) != 0 ||
        a->share_count != b->share_count)
        return 0;
    for (uint32_t i = 0; i < a->share_count; i++)
        if (!is_same_share(&a->shares[i], &b->shares[i]))
            return 0;
    return 1;
}

int alq_share_is_enforced(const struct alq_config *cfg, const struct alq_share_spec *share)
{
    int is_whole =
        share->cores_pct == ALQ_CORES_ALL && share->memory_bytes >= share->gpu_memory_bytes;
    return !share->is_admin && !(is_whole && cfg->whole_gpu == ALQ_WHOLE_GPU_PASSTHROUGH);
}

uint64_t alq_share_memory_in_force(const struct alq_share_spec *share)
{
    return share->limit.is_set ? share->limit.memory_bytes : share->memory_bytes;
}

uint32_t alq_share_cores_in_force(const struct alq_share_spec *share)
{
    return share->limit.is_set ? share->limit.cores_pct : share->cores_pct;
}

void alq_claim_spec_keep_limits(struct alq_claim_spec *claim, const struct alq_claim_spec *from)
{
    for (uint32_t i = 0; i < claim->share_count && i < from->share_count; i++)
        claim->shares[i].limit = from->shares[i].limit;
}

int alq_claim_uid_is_valid(const char *uid)
{
    size_t n = strlen(uid);
    if (!n || n > UID_BYTES_MAX || uid[0] == '-' || uid[n - 1] == '-')
        return 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)uid[i]) && uid[i] != '-')
            return 0;
    return 1;
}

void alq_share_id_format(const char *uid, uint32_t index, char id[ALQ_SHARE_ID_BYTES])
{
    snprintf(id, ALQ_SHARE_ID_BYTES, "%.*s-%u", (int)UID_BYTES_MAX, uid, index);
}
