/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's GPUs as everybody else is to see them: chosen (choose.h), named (state/names.h), with
 * their faults (faults.h), from the NVML reader's readings and events. Open while this instance has
 * the node's state; names and faults are on the disk before anybody is told of them. Loop thread
 * only, but for alq_devices_load.
 */
#ifndef ALQ_DAEMON_DEVICES_DEVICES_H
#define ALQ_DAEMON_DEVICES_DEVICES_H

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/domain.h"
#include "daemon/nvml/protocol.h"

struct alq_devices;
struct alq_names;
struct alq_work;
struct event_base;

struct alq_devices_calls {
    /* The GPUs that are offered now; borrowed. err non-NULL: there is no reading, for this reason;
     * the list is empty then. */
    void (*changed)(void *arg, const struct alq_gpu_list *list, const struct alq_err *err);
    /* See alq_faults_cb; name is the device's, "" unknown. */
    void (*fault)(void *arg, const char *uuid, const char *name, enum alq_fault_kind kind,
                  const struct alq_fault *fault);
    /* A GPU is left out, for another reason than before or for the first time. */
    void (*left_out)(void *arg, const struct alq_left_out *out);
    void *arg;
};

/* cfg outlives it. NULL when out of memory. */
struct alq_devices *alq_devices_new(const struct alq_config *cfg, struct event_base *base,
                                    struct alq_work *work, const char *boot_id,
                                    const struct alq_devices_calls *calls, struct alq_err *err);
/* No job may be running. NULL-safe. */
void alq_devices_free(struct alq_devices *devices);

/* Reads what an earlier run knew of faults; on a worker, before opening. Damaged: set aside with a
 * log line. */
int alq_devices_load(struct alq_devices *devices, struct alq_err *err);
/* Tells the last reading, and whatever comes, until closed. names are borrowed till then. */
void alq_devices_open(struct alq_devices *devices, struct alq_names *names);
/* No job may be running. */
void alq_devices_close(struct alq_devices *devices);

/* From the NVML reader, open or not; both are copied. Events that come while closed are the other
 * instance's. */
void alq_devices_read(struct alq_devices *devices, const struct alq_nvml_reading *reading);
void alq_devices_happened(struct alq_devices *devices, const struct alq_gpu_event *event);

/* The settings changed (--devices-include, --reserve, ...): judges the last reading anew. */
void alq_devices_choose_again(struct alq_devices *devices);

/* See alq_faults_clear. ALQ_EAGAIN: not open. */
int alq_devices_clear(struct alq_devices *devices, const char *uuid, struct alq_err *err);

/* Borrowed, until the next call. count 0 when there is no reading. */
const struct alq_gpu_list *alq_devices_list(const struct alq_devices *devices);
const struct alq_left_out *alq_devices_left_out(const struct alq_devices *devices, size_t *count);
/* Why there is no reading, NULL: there is one. */
const char *alq_devices_absent(const struct alq_devices *devices);

#endif
