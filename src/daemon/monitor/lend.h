/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may have how much of a GPU beyond what he was promised: shares of policy Burst and those of 0
 * percent borrow what the others leave idle. Reckoned from what the library writes into `usage`,
 * some 40 times a second (lender.h). Pure functions.
 */
#ifndef ALQ_DAEMON_MONITOR_LEND_H
#define ALQ_DAEMON_MONITOR_LEND_H

#include <stdint.h>

/* Of a usage file at a moment; a container can write any of it, which costs nobody but itself what
 * was promised. */
struct alq_lend_figures {
    uint64_t tat_ns; /* the gate's clock: ahead of now while the share has work or debts */
    uint64_t launches;
    uint64_t charged_ns;
    uint64_t throttled_ns;
};

/* Zero to begin with. */
struct alq_lend {
    /* What was promised. */
    uint32_t cores_pct;
    uint8_t is_borrower; /* takes loans */
    uint8_t is_measured; /* its library charges what it uses: neither policy None nor 100 percent */
    uint8_t rank;        /* lower ones are lent to first: the priority, 2 for 0 percent */
    /* What is known of it. */
    struct alq_lend_figures last;
    int64_t seen_ns;       /* when; 0: never */
    int64_t active_ns;     /* when it last had work */
    int64_t hungry_ns;     /* when it last had to wait */
    uint32_t used_mpct;    /* thousandths of a percent, over some tenths of a second */
    uint32_t kept_pct;     /* of the promise, not to be lent */
    uint32_t borrowed_pct; /* beyond the promise */
};

#define ALQ_LEND_RANKS 3u

/* Takes in what the file said at now_ns. */
void alq_lend_observe(struct alq_lend *lend, const struct alq_lend_figures *now, int64_t now_ns);

/* Divides what is idle on one GPU among its borrowers that have work; shares in any order. */
void alq_lend_divide(struct alq_lend *const *shares, uint32_t count, int64_t now_ns);

int alq_lend_is_active(const struct alq_lend *lend, int64_t now_ns);

#endif
