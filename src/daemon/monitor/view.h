/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of the last round as JSON, for the admin socket; the fields are in docs/admin.md.
 * Loop thread only.
 */
#ifndef ALQ_DAEMON_MONITOR_VIEW_H
#define ALQ_DAEMON_MONITOR_VIEW_H

#include <jansson.h>

struct alq_monitor;

/* What a share uses; the caller's. NULL: it is not watched, or out of memory. */
json_t *alq_monitor_usage_json(const struct alq_monitor *monitor, const char *share_id);

/* Adds to a GPU's object what NVML says of it, and to a share's who uses it, where known. */
void alq_monitor_add_load(const struct alq_monitor *monitor, const char *gpu_uuid, json_t *gpu);
void alq_monitor_add_users(const struct alq_monitor *monitor, const char *share_id, json_t *share);

/* The processes on all GPUs; the caller's. NULL: out of memory. */
json_t *alq_monitor_processes_json(const struct alq_monitor *monitor);

#endif
