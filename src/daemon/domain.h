/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nouns of the daemon: a GPU as NVML described it, and a claim with its shares as Kubernetes
 * allocated them. Plain values, copied by assignment where no pointer is inside; no I/O, no
 * threads. Neither nghttp2, curl nor libevent is known here.
 */
#ifndef ALQ_DAEMON_DOMAIN_H
#define ALQ_DAEMON_DOMAIN_H

#include <stddef.h>
#include <stdint.h>

#include "aliquot/share.h"

#define ALQ_DEVICE_NAME_BYTES 64 /* DNS label, NUL */
#define ALQ_CORES_ALL 100u
#define ALQ_CLAIM_RESULTS_MAX 32u /* allocation results of a claim (API server's limit) */

/* What may be wrong with a GPU; of each kind it has at most one at a time. */
enum alq_fault_kind {
    ALQ_FAULT_XID,      /* the driver reported an XID; value: its number */
    ALQ_FAULT_ECC,      /* a double-bit error of its memory */
    ALQ_FAULT_RECOVERY, /* the driver asks for an action; value: "reset", "reboot", ... */
    ALQ_FAULT_HANG,     /* NVML does not come back from calls about it */
    ALQ_FAULT_KINDS,
};

enum alq_fault_effect {
    ALQ_FAULT_NONE,   /* no such fault */
    ALQ_FAULT_NOTICE, /* to be seen, the GPU serves on (a program's own error) */
    ALQ_FAULT_UNFIT,  /* no new claim is to land on it */
};

struct alq_fault {
    enum alq_fault_effect effect;
    int64_t since_s; /* Unix time */
    char value[24];  /* a label's value, "" none */
    char reason[232];
};

/* One GPU. Text is UTF-8, NUL-terminated, "" where unknown. The NVML reader fills everything but
 * `name` and `faults`. */
struct alq_gpu {
    char uuid[ALQ_UUID_BYTES];        /* "GPU-..." */
    char name[ALQ_DEVICE_NAME_BYTES]; /* "hami-gpu-<n>"; given by state/names.h, sticky per UUID; ""
                                         from the reader */
    uint32_t minor;                   /* /dev/nvidia<minor> */
    uint32_t index;                   /* NVML's order at the time of reading */
    char product_name[96];            /* "NVIDIA H100 80GB HBM3" */
    char brand[32];                   /* "Nvidia", "Tesla", ... */
    char architecture[32];            /* "Hopper", ... */
    char compute_capability[16];      /* semver, "9.0.0" */
    char driver_version[32];          /* semver, no leading zeros: "570.86.10" */
    char driver_version_raw[32];  /* as NVML says it and as library files are named: "570.086.10" */
    char cuda_driver_version[16]; /* semver, "12.8.0" */
    char pci_bus_id[16];          /* sysfs form, lower case: "0000:65:00.0" */
    char pcie_root[64];           /* "pci0000:64", "" unknown */
    int numa_node;                /* -1 unknown */
    uint64_t memory_total_bytes;  /* NVML total */
    uint64_t memory_promisable_bytes; /* total less the driver's reserve and --reserve, rounded down
                                         to Mi */
    int recovery_action; /* NVML's nvmlDeviceGpuRecoveryAction_t; -1: this driver does not tell */
    int is_watched;      /* NVML gives its XID and ECC events */
    int is_hanging;      /* the rest is of an earlier reading */
    struct alq_fault faults[ALQ_FAULT_KINDS]; /* see devices/faults.h */
};

/* The gravest fault, of several the first kind; NULL: the GPU is well. */
static inline const struct alq_fault *alq_gpu_fault(const struct alq_gpu *gpu)
{
    const struct alq_fault *worst = NULL;
    for (int i = 0; i < ALQ_FAULT_KINDS; i++) {
        if (gpu->faults[i].effect > (worst ? worst->effect : ALQ_FAULT_NONE))
            worst = &gpu->faults[i];
    }
    return worst;
}

/* A GPU that is there and not offered. */
struct alq_left_out {
    char uuid[ALQ_UUID_BYTES]; /* "" unknown */
    uint32_t index;            /* NVML's */
    char reason[256];          /* with the way out */
};

/* Ordered by minor, so that equal machines publish equal slices. */
struct alq_gpu_list {
    struct alq_gpu *gpus;
    size_t count;
};

/* Something that NVML reported about a GPU. */
struct alq_gpu_event {
    char uuid[ALQ_UUID_BYTES];
    enum alq_fault_kind kind; /* XID or ECC */
    uint64_t code;            /* XID's number; 0 for ECC */
};

#define ALQ_WAIT_MAX_S 3600u /* of memory.waitSeconds */

/* What a user may tune for a share (opaque ShareConfig); zero is the default. */
struct alq_share_tuning {
    uint32_t policy;      /* enum alq_policy */
    uint32_t priority;    /* 0 or 1 */
    uint32_t log_level;   /* 0 unset, 1 error, 2 warn, 3 info, 4 debug */
    uint32_t wait_s;      /* onExhausted: 0 Fail, else Wait and for how long */
    uint64_t spill_bytes; /* spillToHost.limit; 0: nothing spills */
};

/* Limits that the operator has set in place of what was allocated. */
struct alq_share_limit {
    int is_set;
    uint64_t memory_bytes;
    uint32_t cores_pct;
};

/* One result of a claim's allocation. */
struct alq_share_spec {
    uint32_t index; /* position among the driver's results of the claim: 0, 1, ... */
    char share_id[ALQ_SHARE_ID_BYTES]; /* "<claim uid>-<index>": directory name and CDI device name
                                        */
    char gpu_uuid[ALQ_UUID_BYTES];     /* key of the GPU */
    uint32_t gpu_minor;                /* where it was when the claim was prepared */
    uint64_t gpu_memory_bytes;         /* its promisable bytes then */
    uint64_t memory_bytes;             /* promised; all of it for adminAccess */
    uint32_t cores_pct;                /* promised, 0..100 */
    int is_admin; /* adminAccess: sees the GPU, is promised nothing, has no limit */
    struct alq_share_tuning tuning;
    struct alq_share_limit limit;
    char request[64];                   /* base request name (no subrequest) */
    char device[ALQ_DEVICE_NAME_BYTES]; /* as allocated */
    char share_uuid[64];                /* Kubernetes' shareID, "" when absent */
};

/* A claim with all that is needed to (re)build its files. The daemon keeps one for each claim in
 * use, so what may be long and seldom is has no room of its own. */
struct alq_claim_spec {
    char uid[64];
    char namespace_[64]; /* DNS label */
    char *name;          /* owned */
    char *pool;          /* owned; of all its shares */
    uint32_t share_count;
    struct alq_share_spec *shares; /* owned */
};

/* A container that uses a share; borrowed text. */
struct alq_share_user {
    const char *share_id, *pod, *container;
};

#endif
