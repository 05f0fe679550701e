/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shares that the monitor watches: those of the claims with a promise in force, with what is
 * known of each. Nothing of a share outlives its promise. Loop thread only.
 */
#ifndef ALQ_DAEMON_MONITOR_SHARES_H
#define ALQ_DAEMON_MONITOR_SHARES_H

#include "daemon/config.h"
#include "daemon/domain.h"
#include "daemon/monitor/round.h"

struct alq_prepare;

struct alq_watched {
    char id[ALQ_SHARE_ID_BYTES];
    char gpu_uuid[ALQ_UUID_BYTES];
    uint64_t limit_bytes; /* promised; 0 for adminAccess */
    uint32_t cores_pct;
    uint8_t is_enforced, is_exclusive, is_admin;
    uint8_t is_seen; /* while the table is brought up to date */
    char *labels;    /* owned; those of the metrics of a share */
    uint16_t fixed;  /* bytes of labels without pod and container */
    struct alq_figures f;
    const char *pod, *container; /* while users are being told */
};

struct alq_shares {
    const struct alq_config *cfg;
    struct alq_watched **all; /* owned; sorted by id */
    size_t count, size;
};

/* Makes the table what the promises are (prepare NULL: none). -1: out of memory, some are missing.
 */
int alq_shares_sync(struct alq_shares *shares, const struct alq_prepare *prepare);
void alq_shares_clear(struct alq_shares *shares);
struct alq_watched *alq_shares_find(const struct alq_shares *shares, const char *id);

/* Who uses the shares: the labels pod and container of each, "" where it is nobody, or several that
 * differ. */
void alq_shares_set_users(struct alq_shares *shares, const struct alq_share_user *users,
                          size_t count);

/* The ledger's overhead with the correction in force. */
uint64_t alq_watched_overhead(const struct alq_watched *w);

/* What is promised of a GPU. */
void alq_shares_promised(const struct alq_shares *shares, const char *gpu_uuid,
                         uint64_t *memory_bytes, uint32_t *cores_pct);

#endif
