/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run has used, out of its usage file (include/aliquot/share.h). Blocking file I/O.
 */
#ifndef ALQ_CLI_RUN_FIGURES_H
#define ALQ_CLI_RUN_FIGURES_H

#include <stddef.h>
#include <stdint.h>

#include "aliquot/share.h"

#define ALQ_RUN_GPUS_MAX 32u

struct alq_run_figures {
    char gpu[ALQ_UUID_BYTES];
    char device[64];       /* "" without a daemon */
    uint64_t memory_bytes; /* the limit; 0: none */
    uint32_t cores_pct;
    uint64_t peak_bytes, gpu_ns, throttled_ns, refusals, allocations, launches;
};

/* The sections of the file at path that a GPU has; figures that are there already for a GPU of that
 * UUID are filled, others are added up to ALQ_RUN_GPUS_MAX. A file that is none adds nothing. */
void alq_run_figures_read(const char *path, struct alq_run_figures *figures, size_t *count);

/* To stderr, a line for each GPU, or one JSON object. */
void alq_run_figures_print(const struct alq_run_figures *figures, size_t count, int status,
                           int is_voluntary, int is_json);

#endif
