/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What parent and NVML child say to each other. The parent writes one byte for each answer it wants
 * (enum alq_nvml_request), the child answers with one JSON object a line. Before it touches a GPU
 * the child sends a line "@<index>", so that the parent knows which one it hangs on. Pure
 * functions; any thread. The child may be corrupted by the driver it hosts, so that what it says is
 * checked like foreign input.
 */
#ifndef ALQ_DAEMON_NVML_PROTOCOL_H
#define ALQ_DAEMON_NVML_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "daemon/domain.h"

#define ALQ_NVML_LINE_BYTES_MAX (256u << 10)
#define ALQ_NVML_GPUS_MAX 128u
#define ALQ_NVML_REASON_BYTES 256

#define ALQ_NVML_EVENTS_MAX 64u

enum alq_nvml_request {
    ALQ_NVML_ASK_READING = 'r',
    ALQ_NVML_ASK_EVENTS = 'e', /* what happened since the last time */
    ALQ_NVML_ASK_SAMPLE = 's', /* sample.h */
    ALQ_NVML_ASK_USE = 'u',    /* use.h */
    ALQ_NVML_SKIP = 'k',       /* no answer; one more byte: never touch the GPU of this index */
};

/* A reading has GPUs, or says why there are none (code != 0). */
struct alq_nvml_reading {
    int code;              /* enum alq_err_code; 0: list holds */
    int is_restart_wanted; /* the driver changed: start another child, this one is about to end */
    char reason[ALQ_NVML_REASON_BYTES]; /* when code or is_restart_wanted */
    char load[64];            /* changes when the kernel module is loaded anew; "" unknown */
    struct alq_gpu_list list; /* owned; memory_promisable_bytes without --reserve and not rounded */
    size_t left_out_count;
    struct alq_left_out left_out[ALQ_NVML_GPUS_MAX];
};

/* A line without its newline; malloc'ed, NULL when out of memory. */
char *alq_nvml_encode(const struct alq_nvml_reading *reading);

/* ALQ_EPROTO naming the field: not such a line. Clear *reading in either case. */
int alq_nvml_decode(const char *line, size_t len, struct alq_nvml_reading *reading,
                    struct alq_err *err);
void alq_nvml_reading_clear(struct alq_nvml_reading *reading);

struct alq_nvml_events {
    int is_reading_due; /* something changed that only a reading tells */
    size_t count;
    struct alq_gpu_event events[ALQ_NVML_EVENTS_MAX];
};

/* As above. */
char *alq_nvml_encode_events(const struct alq_nvml_events *events);
int alq_nvml_decode_events(const char *line, size_t len, struct alq_nvml_events *events,
                           struct alq_err *err);

/* The index of a line "@<index>", -1 when it is none. */
int alq_nvml_decode_progress(const char *line, size_t len);

/* "570.086.10" -> "570.86.10", "535.54" -> "535.54.0"; "" when text does not begin with a number.
 */
void alq_nvml_semver(const char *text, char *semver, size_t size);

/* NVML's "00000000:65:00.0" -> sysfs' "0000:65:00.0"; "" when it is none. */
void alq_nvml_pci_address(const char *text, char *address, size_t size);

/* Of nvmlDeviceGpuRecoveryAction_t: its name as a label's value ("reset"), "" for none; and whether
 * it takes a reset of the GPU, which nobody may hold then. */
const char *alq_nvml_recovery_name(int action);
int alq_nvml_is_reset(int action);

/* The architecture's name by compute capability, "" when unknown. */
const char *alq_nvml_architecture(int major, int minor);

#endif
