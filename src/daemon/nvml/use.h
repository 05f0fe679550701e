/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the time each process had kernels on each GPU, which the NVML child may be asked ten
 * times a second: nothing else is read for it. One JSON object a line, as protocol.h has it. Pure
 * functions; any thread. What the child says is checked like foreign input.
 */
#ifndef ALQ_DAEMON_NVML_USE_H
#define ALQ_DAEMON_NVML_USE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/domain.h"

#define ALQ_USE_PROCESSES_MAX 1024u /* of one GPU; the list is cut there */
#define ALQ_USE_AGE_NS_MAX 2000000000

struct alq_use_process {
    uint32_t pid;    /* of the daemon's PID namespace */
    uint32_t sm_pct; /* mean over the window: time in which a kernel of it ran */
};

struct alq_use_gpu {
    char uuid[ALQ_UUID_BYTES];
    /* From the newest of NVML's samples known at the question before to the newest one now. 0:
     * there is none since, or it is the first one known; then there are no processes. While nothing
     * runs NVML has no samples (each is of about 1/6 s), so the first window after a rest is as
     * long as the rest. */
    int64_t window_ns;
    /* How long before the answer the window ended, by NVML's time stamps, which are CLOCK_REALTIME.
     * 0: no window, or not within ALQ_USE_AGE_NS_MAX, so that the clocks cannot be compared. */
    int64_t age_ns;
    uint32_t process_count;
    struct alq_use_process *processes; /* owned; ascending, a PID once */
};

struct alq_use {
    uint32_t gpu_count;
    struct alq_use_gpu *gpus; /* owned; a UUID once */
};

/* A line without its newline; malloc'ed, NULL when out of memory. */
char *alq_use_encode(const struct alq_use *use);

/* ALQ_EPROTO naming the field: not such a line. Clear *use in either case. */
int alq_use_decode(const char *line, size_t len, struct alq_use *use, struct alq_err *err);
void alq_use_clear(struct alq_use *use);

/* NULL: the GPU is not in it. */
const struct alq_use_gpu *alq_use_find(const struct alq_use *use, const char *uuid);

#endif
