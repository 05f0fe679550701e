/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the compute gates of shares in step with NVML (pace.h) while others are on their GPU: reads
 * what the library charged and asks NVML what ran, every ALQ_PACER_STEP_NS, and writes corrections
 * into `control`. NVML is asked only while such a share does something, nothing at all is done
 * while no share has company. A correction holds for ALQ_PACER_HOLDS_NS: without a daemon, or an
 * NVML that answers, it ends. It is renewed at the latest when it is half over. Loop thread only;
 * files are read and written on a worker.
 */
#ifndef ALQ_DAEMON_MONITOR_PACER_H
#define ALQ_DAEMON_MONITOR_PACER_H

#include "daemon/clock.h"
#include "daemon/monitor/shares.h"
#include "daemon/nvml/nvml.h"
#include "daemon/work.h"

#define ALQ_PACER_STEP_NS (100 * ALQ_NS_PER_MS)
#define ALQ_PACER_HOLDS_NS (1000 * ALQ_NS_PER_MS)

struct alq_pacer;

struct alq_pacer_parts {
    struct alq_clock clock;
    struct alq_work *work;
    const struct alq_shares *shares; /* kept, and looked at anew at each step */
    /* Of the last round; the process is in that share, or "" in none. */
    const struct alq_round_process *(*processes)(void *arg, uint32_t *count);
    void *processes_arg;
    int (*use)(void *arg, alq_nvml_use_cb cb, void *cb_arg); /* as alq_nvml_use */
    void *use_arg;
};

/* NULL when out of memory. */
struct alq_pacer *alq_pacer_new(const struct alq_pacer_parts *parts);
/* No job may be running, and NVML's answer is not called back any more. NULL-safe. */
void alq_pacer_free(struct alq_pacer *pacer);

/* There are other shares, or other processes: starts, if there is something to do. */
void alq_pacer_look(struct alq_pacer *pacer);

#endif
