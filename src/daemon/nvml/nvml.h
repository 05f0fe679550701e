/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVML reader: aliquotd re-executed (/proc/self/exe --nvml-child ...) with a pipe, so that a
 * hang, a crash, a driver change or an absent driver stay in the child. The parent kills and
 * restarts it with back-off; it never calls NVML itself. Parent side: loop thread only.
 */
#ifndef ALQ_DAEMON_NVML_NVML_H
#define ALQ_DAEMON_NVML_NVML_H

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/domain.h"

struct event_base;
struct alq_nvml;

#define ALQ_NVML_CHILD_FLAG "--nvml-child"

/*
 * Called from the loop with the first reading and after each change. list is borrowed; names are ""
 * (the caller gives them). err == NULL: list is what NVML has (count may be 0). err != NULL: there
 * is no reading, e.g. ALQ_ENOENT "no libnvidia-ml.so.1 below /run/nvidia/driver" or ALQ_EAGAIN
 * "driver not loaded"; list->count is 0; the reader keeps trying and calls again only when the
 * reason or the reading changes.
 */
typedef void (*alq_nvml_devices_cb)(void *arg, const struct alq_gpu_list *list,
                                    const struct alq_err *err);

/* Starts the child. A missing driver is no error here. ALQ_EIO or ALQ_ENOMEM when no child can be
 * had at all. */
struct alq_nvml *alq_nvml_start(struct event_base *base, const struct alq_config *cfg,
                                alq_nvml_devices_cb on_devices, void *arg, struct alq_err *err);
/* Kills and reaps the child. NULL-safe. */
void alq_nvml_stop(struct alq_nvml *nvml);

/* main() hands over here when argv[1] is ALQ_NVML_CHILD_FLAG, before anything else is set up.
 * Returns the exit status. */
int alq_nvml_child_main(int argc, char **argv);

#endif
