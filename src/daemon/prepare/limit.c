/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A share's limits changed by the operator, see prepare.h. What was allocated stays as it is, since
 * the scheduler reckons with it; the limit in force is kept beside it, in record and control, and
 * the larger of the two counts against the GPU. So a limit that is raised takes room before the
 * files say so, and one that is lowered frees none that the scheduler has given away. Loop thread
 * only but for alq_limit_work.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/prepare/machine.h"
#include "daemon/prepare/room.h"
#include "daemon/state/claim_spec.h"

#define ALQ_LOG_MODULE "prepare"

static struct alq_share_spec *find_share(const struct alq_claim *claim, const char *share_id)
{
    for (uint32_t i = 0; claim && claim->spec && i < claim->spec->share_count; i++)
        if (!strcmp(claim->spec->shares[i].share_id, share_id))
            return &claim->spec->shares[i];
    return NULL;
}

static struct alq_claim *find_claim(const struct alq_prepare *p, const char *share_id)
{
    char uid[64];
    const char *dash = strrchr(share_id, '-');
    size_t n = dash ? (size_t)(dash - share_id) : 0;
    if (!n || n >= sizeof(uid))
        return NULL;
    memcpy(uid, share_id, n);
    uid[n] = '\0';
    return alq_claims_find(&p->claims, uid);
}

static int check(const struct alq_prepare *p, const struct alq_share_spec *share,
                 const struct alq_share_limit *wanted, struct alq_err *err)
{
    if (!alq_share_is_enforced(p->cfg, share))
        return alq_err_set(err, ALQ_ENOTSUP, "share %s has no limits: %s", share->share_id,
                           share->is_admin ? "its claim has adminAccess"
                                           : "it is a whole GPU that is passed through");
    if (wanted->memory_bytes < ALQ_LIMIT_MEMORY_MIN_BYTES ||
        wanted->memory_bytes > share->gpu_memory_bytes)
        return alq_err_set(err, ALQ_EINVAL,
                           "memory: %" PRIu64 " bytes; from 1Mi to the %" PRIu64 " that %s has",
                           wanted->memory_bytes, share->gpu_memory_bytes, share->device);
    if (wanted->cores_pct > ALQ_CORES_ALL)
        return alq_err_set(err, ALQ_EINVAL, "cores: %" PRIu32 "; from 0 to %u", wanted->cores_pct,
                           ALQ_CORES_ALL);
    return 0;
}

/* The claim as it would be, and whether the GPU has that. */
static int try_room(struct alq_operation *op, const struct alq_share_limit *limit,
                    struct alq_err *err)
{
    size_t count = 0;
    alq_auto_free struct alq_room_holder *holders = alq_holders_of_others(op, &count);
    struct alq_claim_spec *spec = alq_claim_spec_dup(op->claim->spec);
    int rc = holders && spec ? 0 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (!rc) {
        spec->shares[op->limit_index].limit = *limit;
        rc = alq_room_check(spec, holders, count, err);
    }
    if (rc) {
        alq_claim_spec_free(spec);
        return rc;
    }
    op->before = alq_claim_spec_dup(op->claim->spec);
    if (!op->before) {
        alq_claim_spec_free(spec);
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    op->spec = spec;
    /* Until the files say so, the more of both is held. */
    struct alq_share_spec *held = &op->claim->spec->shares[op->limit_index];
    const uint64_t memory_bytes = alq_share_memory_in_force(held);
    const uint32_t cores_pct = alq_share_cores_in_force(held);
    held->limit = *limit;
    if (held->limit.memory_bytes < memory_bytes)
        held->limit.memory_bytes = memory_bytes;
    if (held->limit.cores_pct < cores_pct)
        held->limit.cores_pct = cores_pct;
    return 0;
}

void alq_limit_run(struct alq_operation *op)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_share_spec *share = find_share(op->claim, op->share_id);
    if (!share || !op->claim->is_completed) {
        alq_err_set(&err, share ? ALQ_EAGAIN : ALQ_ENOENT, "share %s is not prepared%s",
                    op->share_id, share ? " in this boot" : "");
        alq_steps_fail(op, &err);
        return;
    }
    struct alq_share_limit limit = {
        .is_set = 1,
        .memory_bytes =
            op->change.has_memory ? op->change.memory_bytes : alq_share_memory_in_force(share),
        .cores_pct = op->change.has_cores ? op->change.cores_pct : alq_share_cores_in_force(share)};
    int rc = check(op->prepare, share, &limit, &err);
    if (op->change.is_reset ||
        (limit.memory_bytes == share->memory_bytes && limit.cores_pct == share->cores_pct))
        limit = (struct alq_share_limit){0};
    op->limit_index = share->index;
    if (!rc)
        rc = try_room(op, &limit, &err);
    if (rc)
        alq_steps_fail(op, &err);
    else
        alq_steps_work(op, 0);
}

void alq_limit_done(struct alq_operation *op)
{
    struct alq_share_spec *share = &op->claim->spec->shares[op->limit_index];
    share->limit = (op->job_err.code ? op->before : op->spec)->shares[op->limit_index].limit;
    if (op->job_err.code)
        return;
    alq_prepare_changed(op->prepare);
    char memory[24], cores[8];
    snprintf(memory, sizeof(memory), "%" PRIu64, alq_share_memory_in_force(share));
    snprintf(cores, sizeof(cores), "%" PRIu32, alq_share_cores_in_force(share));
    alq_info(ALQ_LOG_KV({"share", op->share_id}, {"memory", memory}, {"cores", cores}),
             share->limit.is_set ? "limits set by the operator" : "limits as allocated again");
}

void alq_limit_share(struct alq_prepare *p, const char *share_id,
                     const struct alq_limit_change *change, alq_prepare_cb cb, void *arg)
{
    struct alq_claim_id id = {0};
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_claim *claim = find_claim(p, share_id);
    if (!find_share(claim, share_id)) {
        alq_err_set(&err, ALQ_ENOENT, "there is no share %.80s", share_id);
        cb(arg, NULL, &err);
        return;
    }
    alq_claim_id_of(claim->spec, &id);
    struct alq_operation *op = alq_steps_new(p, ALQ_LIMIT, &id, ALQ_NEVER, cb, arg, &err);
    if (!op) {
        cb(arg, NULL, &err);
        return;
    }
    op->change = *change;
    snprintf(op->share_id, sizeof(op->share_id), "%s", share_id);
    alq_steps_begin(op);
}
