/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the NVML child says about the GPUs once a second: memory, utilisation and processes, each
 * field on its own unknown where NVML does not tell it. One JSON object a line, as protocol.h has
 * it. Pure functions; any thread. What the child says is checked like foreign input.
 */
#ifndef ALQ_DAEMON_NVML_SAMPLE_H
#define ALQ_DAEMON_NVML_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/domain.h"

#define ALQ_SAMPLE_PROCESSES_MAX 1024u /* of one GPU; the list is cut there */
#define ALQ_UNKNOWN (-1)

struct alq_process_sample {
    uint32_t pid;       /* of the daemon's PID namespace */
    int64_t used_bytes; /* ALQ_UNKNOWN: NVML does not tell (a driver model, no permission) */
    uint32_t sm_pct;    /* mean since the last sample: time in which a kernel of it ran */
};

struct alq_gpu_sample {
    char uuid[ALQ_UUID_BYTES];
    int64_t total_bytes; /* this and the next three: ALQ_UNKNOWN where NVML does not tell */
    int64_t used_bytes;  /* without what the driver keeps for itself */
    int utilization_pct;
    int memory_utilization_pct; /* of its controller */
    int has_processes;          /* 0: NVML does not tell them */
    uint32_t process_count;
    struct alq_process_sample *processes; /* owned; a PID once */
};

struct alq_sample {
    int64_t begun_ns; /* CLOCK_BOOTTIME before the first call: who started later is not in it */
    uint32_t gpu_count;
    struct alq_gpu_sample *gpus; /* owned */
};

/* A line without its newline; malloc'ed, NULL when out of memory. */
char *alq_sample_encode(const struct alq_sample *sample);

/* ALQ_EPROTO naming the field: not such a line. Clear *sample in either case. */
int alq_sample_decode(const char *line, size_t len, struct alq_sample *sample, struct alq_err *err);
void alq_sample_clear(struct alq_sample *sample);

/* NULL: the GPU is not in the sample. */
const struct alq_gpu_sample *alq_sample_find(const struct alq_sample *sample, const char *uuid);

/* Adds what a list says of a process to what the ones before said: a process that is in several is
 * one, with the larger figure. The array has room for ALQ_SAMPLE_PROCESSES_MAX. */
void alq_sample_add_process(struct alq_gpu_sample *gpu, uint32_t pid, int64_t used_bytes);

#endif
