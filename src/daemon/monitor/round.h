/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One round of the monitor, on a worker: the usage files of all shares, the processes that NVML
 * listed and whose they are, and from both the figures of each share and its correction of overhead
 * in `control`. A round is filled on the loop, runs on a worker twice (before and after NVML is
 * asked), and is read on the loop again.
 */
#ifndef ALQ_DAEMON_MONITOR_ROUND_H
#define ALQ_DAEMON_MONITOR_ROUND_H

#include "daemon/monitor/correct.h"
#include "daemon/monitor/mounts.h"
#include "daemon/monitor/usage.h"
#include "daemon/nvml/sample.h"
#include "daemon/prepare/control.h"
#include "daemon/work.h"

/* What is known of a share, from round to round. */
struct alq_figures {
    struct alq_usage usage;
    uint64_t physical_bytes; /* of its processes, as NVML says */
    uint64_t used_ns;  /* in which a kernel of it ran, as NVML says; since the daemon knows it */
    uint32_t used_pct; /* in the last round */
    uint32_t gpu_processes;   /* that NVML listed */
    int64_t correction_bytes; /* of overhead, in force */
    struct alq_overhead_highs highs;
    uint64_t trimmed_bytes;  /* cut off its files so far */
    unsigned flawed_rounds;  /* in a row, this one too */
    unsigned pause;          /* rounds to leave its file alone, since that cost too much */
    int is_correction_known; /* correction_bytes has been read from `control` */
};

/* sorted by id */
struct alq_round_share {
    char id[ALQ_SHARE_ID_BYTES];
    char gpu_uuid[ALQ_UUID_BYTES];
    int is_enforced;  /* has a directory; else it has what nobody else has of its GPU */
    int is_exclusive; /* not enforced, and the whole GPU is its */
    int has_before;
    struct alq_held before;
    struct alq_figures f;
    /* the round's own */
    uint64_t physical_bytes;
    uint32_t sm_pct;
    uint32_t processes;
};

struct alq_round_gpu {
    char uuid[ALQ_UUID_BYTES];
    int64_t total_bytes, used_bytes; /* ALQ_UNKNOWN */
    int64_t outside_bytes;           /* used by no share; ALQ_UNKNOWN */
    int utilization_pct, memory_utilization_pct;
};

/* A process that NVML listed on a GPU. */
struct alq_round_process {
    uint32_t pid; /* of the daemon's PID namespace */
    uint32_t sm_pct;
    int64_t used_bytes; /* ALQ_UNKNOWN */
    char gpu_uuid[ALQ_UUID_BYTES];
    char share_id[ALQ_SHARE_ID_BYTES]; /* the last of those it has on that GPU; "": none */
    char command[16];                  /* as the kernel has it; "" it is gone */
};

/* What rounds keep; the worker's while one runs. */
struct alq_round_files {
    const char *run_dir;
    struct alq_mounts *mounts; /* NULL: processes cannot be told apart */
    int has_failed;            /* to find out; said once */
};

struct alq_round {
    struct alq_job job; /* first */
    void *arg;          /* its maker's */
    struct alq_round_files *files;
    int64_t begun_ns, last_ns; /* CLOCK_MONOTONIC: this round, and the one before it */
    struct alq_sample sample;  /* owned */
    int has_sample;
    struct alq_round_gpu *gpus; /* owned; of the sample */
    uint32_t gpu_count;
    struct alq_round_process *processes; /* owned; of the sample */
    uint32_t process_count;
    uint32_t count;
    struct alq_round_share shares[];
};

struct alq_round *alq_round_new(uint32_t count);
void alq_round_free(struct alq_round *round);

/* On a worker. Before NVML is asked: what the ledgers of shares with processes hold. */
void alq_round_before(struct alq_round *round);
/* On a worker. With the sample, or without: everything else. */
void alq_round_run(struct alq_round *round);

#endif
