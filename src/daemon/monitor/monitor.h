/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The monitor: once a second, while there are shares, it reads their usage files and asks NVML what
 * their processes have, writes what differs into `control` as corrections, and keeps the figures
 * for /metrics. Without a share it does nothing until somebody looks. Loop thread only; files are
 * read and written on a worker (round.h).
 */
#ifndef ALQ_DAEMON_MONITOR_MONITOR_H
#define ALQ_DAEMON_MONITOR_MONITOR_H

#include "base/err.h"
#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/domain.h"
#include "daemon/nvml/nvml.h"

struct alq_findings;
struct alq_http;
struct alq_monitor;
struct alq_prepare;
struct alq_work;

struct alq_monitor_parts {
    const struct alq_config *cfg;
    struct alq_clock clock;
    struct alq_work *work;
    /* as alq_nvml_sample */
    int (*sample)(void *arg, alq_nvml_sample_cb cb, void *cb_arg);
    void *sample_arg;
    /* as alq_nvml_use */
    int (*use)(void *arg, alq_nvml_use_cb cb, void *cb_arg);
    void *use_arg;
    /* Asks who uses the shares; alq_monitor_set_users may follow. */
    void (*ask_users)(void *arg);
    void *users_arg;
};

/* Takes the collectors of metrics. NULL when out of memory. */
struct alq_monitor *alq_monitor_new(const struct alq_monitor_parts *parts, struct alq_err *err);
/* No job may be running: free the workers first. NULL-safe. */
void alq_monitor_free(struct alq_monitor *monitor);

/* The node's state is open: its claims are watched until the close, which must come before prepare
 * is freed. */
void alq_monitor_open(struct alq_monitor *monitor, struct alq_prepare *prepare);
void alq_monitor_close(struct alq_monitor *monitor);

/* The node's GPUs, with their names (copied). */
void alq_monitor_set_gpus(struct alq_monitor *monitor, const struct alq_gpu_list *list);

/* Somebody looks at the figures: a round begins where none is due by itself. */
void alq_monitor_look(struct alq_monitor *monitor);

/* Who uses shares (pod and container labels). */
void alq_monitor_set_users(struct alq_monitor *monitor, const struct alq_share_user *users,
                           size_t count);

/* A source of findings; monitor is its arg. */
void alq_monitor_tell(void *monitor, struct alq_findings *findings);

/* Serves /metrics. -1: out of memory. */
int alq_monitor_serve(struct alq_monitor *monitor, struct alq_http *http);

#endif
