/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the NVML child tells its parent: one JSON object a line. The parent writes one byte for each
 * reading it wants. Pure functions; any thread. The child may be corrupted by the driver it hosts,
 * so that what it says is checked like foreign input.
 */
#ifndef ALQ_DAEMON_NVML_PROTOCOL_H
#define ALQ_DAEMON_NVML_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/domain.h"

/* What the parent asks for. */
#define ALQ_NVML_ASK_READING 'r'
#define ALQ_NVML_ASK_SAMPLE 's' /* sample.h */

#define ALQ_NVML_LINE_BYTES_MAX (256u << 10)
#define ALQ_NVML_GPUS_MAX 128u
#define ALQ_NVML_REASON_BYTES 256

/* A GPU that is there and not offered. */
struct alq_nvml_left_out {
    uint32_t index; /* NVML's */
    char reason[ALQ_NVML_REASON_BYTES];
};

/* A reading has GPUs, or says why there are none (code != 0). */
struct alq_nvml_reading {
    int code;              /* enum alq_err_code; 0: gpus holds */
    int is_restart_wanted; /* the driver changed: start another child, this one is about to end */
    char reason[ALQ_NVML_REASON_BYTES]; /* when code or is_restart_wanted */
    struct alq_gpu_list list; /* owned; memory_promisable_bytes without --reserve and not rounded */
    size_t left_out_count;
    struct alq_nvml_left_out left_out[ALQ_NVML_GPUS_MAX];
};

/* A line without its newline; malloc'ed, NULL when out of memory. */
char *alq_nvml_encode(const struct alq_nvml_reading *reading);

/* ALQ_EPROTO naming the field: not such a line. Clear *reading in either case. */
int alq_nvml_decode(const char *line, size_t len, struct alq_nvml_reading *reading,
                    struct alq_err *err);
void alq_nvml_reading_clear(struct alq_nvml_reading *reading);

/* "570.086.10" -> "570.86.10", "535.54" -> "535.54.0"; "" when text does not begin with a number.
 */
void alq_nvml_semver(const char *text, char *semver, size_t size);

/* NVML's "00000000:65:00.0" -> sysfs' "0000:65:00.0"; "" when it is none. */
void alq_nvml_pci_address(const char *text, char *address, size_t size);

/* The architecture's name by compute capability, "" when unknown. */
const char *alq_nvml_architecture(int major, int minor);

#endif
