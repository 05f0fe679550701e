/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What monitor.c (when), collect.c (what is shown) and doctor.c (what is wrong) share; nobody else
 * includes it. Loop thread only.
 */
#ifndef ALQ_DAEMON_MONITOR_STATE_H
#define ALQ_DAEMON_MONITOR_STATE_H

#include "daemon/monitor/lender.h"
#include "daemon/monitor/metrics.h"
#include "daemon/monitor/monitor.h"
#include "daemon/monitor/pacer.h"
#include "daemon/monitor/shares.h"

enum alq_monitor_step {
    ALQ_MONITOR_IDLE,   /* no shares */
    ALQ_MONITOR_PAUSE,  /* until the next round */
    ALQ_MONITOR_BEFORE, /* a worker reads ledgers */
    ALQ_MONITOR_SAMPLE, /* NVML has been asked */
    ALQ_MONITOR_ROUND,  /* a worker does the rest */
};

struct alq_monitor {
    struct alq_monitor_parts parts;
    struct alq_timer *timer;
    enum alq_monitor_step step;
    struct alq_round *round; /* of the three last steps */
    struct alq_round_files files;
    int64_t last_ns;             /* when the last round began */
    struct alq_prepare *prepare; /* NULL: the node's state is not open */
    int is_stale;                /* the promises have changed since the table was made */
    struct alq_shares shares;
    struct alq_lender *lender;
    struct alq_pacer *pacer;
    struct alq_gpu_list gpus;    /* owned */
    struct alq_round_gpu *loads; /* owned; of the last sample */
    uint32_t load_count;
    struct alq_round_process *processes; /* owned; of the last sample */
    uint32_t process_count;
    unsigned missed;           /* rounds in a row without a sample */
    int is_blind;              /* mounts cannot be read, as of the last round */
    char mute[ALQ_UUID_BYTES]; /* a GPU whose processes' memory NVML does not tell; "" none */
    int64_t boot_to_unix_ns;   /* added to CLOCK_BOOTTIME */
    int64_t boot_ns;           /* CLOCK_BOOTTIME of the page that is being made */
    int64_t users_ns;          /* when the users of shares are to be asked for */
    int64_t users_wait_ns;     /* and how long after that again */
};

/* What NVML said last of a GPU; all zero before it did. */
const struct alq_round_gpu *alq_monitor_load(const struct alq_monitor *monitor, const char *uuid);

/* Brings the table of shares up to date with the promises. */
void alq_monitor_refresh(struct alq_monitor *monitor);

/* doctor.c: a round that has ended, before what it brought is given away. */
void alq_monitor_note(struct alq_monitor *monitor, const struct alq_round *round);

/* Collectors of the scopes SHARE and GPU; arg is the monitor. */
void alq_collect_share(void *monitor, enum alq_metric_id id, struct alq_metrics_text *text);
void alq_collect_gpu(void *monitor, enum alq_metric_id id, struct alq_metrics_text *text);
/* hami.c */
void alq_collect_hami_share(void *monitor, enum alq_metric_id id, struct alq_metrics_text *text);
void alq_collect_hami_gpu(void *monitor, enum alq_metric_id id, struct alq_metrics_text *text);

#endif
