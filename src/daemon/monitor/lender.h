/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lends compute: while a share that may borrow is prepared, reads the gates of all shares of its
 * GPU every ALQ_LENDER_STEP_NS (every ALQ_LENDER_IDLE_NS while no borrower has work) and writes
 * loans that run a little longer than that into `control`. A daemon that stops lends nothing: what
 * it had lent ends by itself. Loop thread only; files are read and written on a worker.
 */
#ifndef ALQ_DAEMON_MONITOR_LENDER_H
#define ALQ_DAEMON_MONITOR_LENDER_H

#include "daemon/clock.h"
#include "daemon/monitor/shares.h"
#include "daemon/work.h"

#define ALQ_LENDER_STEP_NS (25 * ALQ_NS_PER_MS)
#define ALQ_LENDER_IDLE_NS (100 * ALQ_NS_PER_MS)
#define ALQ_LENDER_RUNS_NS (75 * ALQ_NS_PER_MS)

struct alq_lender;

/* shares: kept, and looked at anew at each step, apart from what is borrowed in it. NULL when out
 * of memory. */
struct alq_lender *alq_lender_new(struct alq_clock clock, struct alq_work *work,
                                  struct alq_shares *shares);
/* No job may be running. NULL-safe. */
void alq_lender_free(struct alq_lender *lender);

/* The table of shares has changed: starts, goes on, or stops. */
void alq_lender_look(struct alq_lender *lender);

#endif
