/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shares that the monitor watches: those of the claims with a promise in force, with what is
 * known of each. Nothing of a share outlives its promise. Loop thread only.
 */
#ifndef ALQ_DAEMON_MONITOR_SHARES_H
#define ALQ_DAEMON_MONITOR_SHARES_H

#include "daemon/config.h"
#include "daemon/domain.h"
#include "daemon/monitor/lend.h"
#include "daemon/monitor/round.h"

struct alq_prepare;

struct alq_watched {
    char id[ALQ_SHARE_ID_BYTES];
    char gpu_uuid[ALQ_UUID_BYTES];
    const struct alq_claim_spec *claim; /* borrowed, until the promises change */
    const struct alq_share_spec *share; /* of the claim */
    uint8_t is_seen;                    /* while the table is brought up to date */
    uint8_t is_told;                    /* while users are being told: one has been */
    char *pod, *container;              /* owned; NULL: nobody, or several that differ */
    const char *labels;                 /* those of a share's metrics, between label and unlabel */
    uint32_t fixed;                     /* bytes of labels before pod and container */
    unsigned unseen; /* rounds in a row in which NVML listed none of its processes */
    struct alq_lend lend;
    int is_read;           /* the correction in force is known; see round.c */
    struct alq_figures *f; /* owned; NULL: it has not been used */
};

struct alq_shares {
    const struct alq_config *cfg;
    struct alq_watched **all; /* owned; sorted by id */
    size_t count, size;
    char *labels; /* owned; of all */
};

/* Makes the table what the promises are (prepare NULL: none). -1: out of memory, some are missing.
 */
int alq_shares_sync(struct alq_shares *shares, const struct alq_prepare *prepare);
void alq_shares_clear(struct alq_shares *shares);

/* Makes the labels of all for a page, and frees them: nobody else needs them, and they are most of
 * what is to be said of a share. The promises must not have changed since the last sync. -1: out of
 * memory. */
int alq_shares_label(struct alq_shares *shares);
void alq_shares_unlabel(struct alq_shares *shares);

int alq_watched_is_enforced(const struct alq_shares *shares, const struct alq_watched *w);
/* 0 for adminAccess */
uint64_t alq_watched_limit_bytes(const struct alq_watched *w);
uint32_t alq_watched_cores_pct(const struct alq_watched *w);

/* The figures; of a share that has not been used, those of nothing. */
const struct alq_figures *alq_watched_figures(const struct alq_watched *w);

/* The same for a round to work on, and what it has made of them. Without memory the old ones stay.
 */
void alq_watched_get(const struct alq_watched *w, struct alq_figures *f);
void alq_watched_set(struct alq_watched *w, const struct alq_figures *f);

struct alq_watched *alq_shares_find(const struct alq_shares *shares, const char *id);

/* Who uses the shares: pod and container of each. */
void alq_shares_set_users(struct alq_shares *shares, const struct alq_share_user *users,
                          size_t count);

/* The ledger's overhead with the correction in force. */
uint64_t alq_watched_overhead(const struct alq_watched *w);

/* What it leaves idle of its promise while another share of its GPU borrows. */
uint32_t alq_watched_lent_pct(const struct alq_shares *shares, const struct alq_watched *w);

/* What is promised of a GPU. */
void alq_shares_promised(const struct alq_shares *shares, const char *gpu_uuid,
                         uint64_t *memory_bytes, uint32_t *cores_pct);

#endif
