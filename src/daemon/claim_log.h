/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What became of the claims that the kubelet asked for last: prepared, refused and why, unprepared,
 * and the pods they are for. For `aliquot explain` and GET /v1/history; the newest
 * ALQ_CLAIM_LOG_MAX, in memory alone. Loop thread only.
 */
#ifndef ALQ_DAEMON_CLAIM_LOG_H
#define ALQ_DAEMON_CLAIM_LOG_H

#include <jansson.h>

#include "base/err.h"
#include "daemon/domain.h"
#include "daemon/prepare/allocation.h"

#define ALQ_CLAIM_LOG_MAX 256u

struct alq_claim_log;

/* NULL when out of memory. */
struct alq_claim_log *alq_claim_log_new(struct alq_err *err);
void alq_claim_log_free(struct alq_claim_log *log);

/* object: the claim as the API server has it, for its pods; NULL: unknown. Without memory nothing
 * is noted. */
void alq_claim_log_prepared(struct alq_claim_log *log, const struct alq_claim_spec *claim,
                            const json_t *object);
void alq_claim_log_refused(struct alq_claim_log *log, const struct alq_claim_id *id,
                           const json_t *object, const struct alq_err *err);
void alq_claim_log_unprepared(struct alq_claim_log *log, const char *uid);

/* Adds to such a list that a Prepare of the claim waits. */
void alq_claim_log_add_waiting(json_t *claims, const struct alq_claim_id *id, const json_t *object,
                               const char *waits_for, int64_t waited_ns);

/* The newest first, as docs/admin.md has it; the caller's. NULL: out of memory. */
json_t *alq_claim_log_json(const struct alq_claim_log *log);

#endif
