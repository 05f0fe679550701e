/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people are told of the node's GPUs: log lines, Events about the node (events NULL: none),
 * counters and findings. Decides nothing. Loop thread only.
 */
#ifndef ALQ_DAEMON_DEVICES_REPORT_H
#define ALQ_DAEMON_DEVICES_REPORT_H

#include "daemon/devices/devices.h"

struct alq_events;
struct alq_findings;

/* A fault began or is over, see alq_devices_calls. */
void alq_report_fault(struct alq_events *events, const char *uuid, const char *name,
                      enum alq_fault_kind kind, const struct alq_fault *fault);
void alq_report_left_out(struct alq_events *events, const struct alq_left_out *out);
void alq_report_devices(const struct alq_gpu_list *list, const struct alq_err *err);

/* A source of findings; arg: struct alq_devices. */
void alq_report_findings(void *arg, struct alq_findings *findings);

#endif
