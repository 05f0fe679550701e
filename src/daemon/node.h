/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's state: records, files, device names, promises and the published slices. Of the
 * instances of aliquotd on a node one has it open at a time (succession.h says which); it opens and
 * closes as one unit. Opening reads and writes the disk on a worker, so the loop answers meanwhile,
 * and calls of the kubelet wait. Closing answers the open calls first. Loop thread only.
 */
#ifndef ALQ_DAEMON_NODE_H
#define ALQ_DAEMON_NODE_H

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/domain.h"

struct alq_claim_log;
struct alq_devices;
struct alq_claim_source;
struct alq_dra;
struct alq_events;
struct alq_findings;
struct alq_health;
struct alq_kube;
struct alq_monitor;
struct alq_node;
struct alq_nvml_reading;
struct alq_prepare;
struct alq_work;
struct event_base;

/* What a node works with; outlives it. */
struct alq_node_parts {
    const struct alq_config *cfg;
    struct event_base *base;
    struct alq_work *work;
    const struct alq_claim_source *source; /* where claims are looked up; NULL: kube */
    struct alq_kube *kube;                 /* NULL: nothing is published, nobody is told */
    struct alq_events *events;             /* NULL with it */
    struct alq_dra *dra;
    struct alq_health *health;
    struct alq_monitor *monitor;
    struct alq_findings *findings;
};

/* Closed. NULL when out of memory, or when the boot id cannot be read. */
struct alq_node *alq_node_new(const struct alq_node_parts *parts, struct alq_err *err);
/* No job may be running: free the workers first. Open calls end as cancelled. NULL-safe. */
void alq_node_free(struct alq_node *node);

/* opened(arg, err) comes from the loop: err NULL when the state is open and calls are served, else
 * it is closed and err names the setting at fault. The node must be closed, and nobody else's. */
void alq_node_open(struct alq_node *node, void (*opened)(void *arg, const struct alq_err *err),
                   void *arg);

/* Closes when there has been a pause in the calls, or after a few seconds; from then on calls are
 * refused for the reason why. closed(arg) comes from the loop. The node must be open. */
void alq_node_close(struct alq_node *node, const char *why, void (*closed)(void *arg), void *arg);

/* From the NVML reader; both are copied. The last reading is kept for later openings, an event that
 * comes while closed is not. */
void alq_node_read(struct alq_node *node, const struct alq_nvml_reading *reading);
void alq_node_happened(struct alq_node *node, const struct alq_gpu_event *event);

/* For what looks at the GPUs, or changes how they are judged. */
struct alq_devices *alq_node_devices(struct alq_node *node);
/* The claims, or NULL while the state is not open. */
struct alq_prepare *alq_node_prepare(const struct alq_node *node);
/* What became of the last claims. */
const struct alq_claim_log *alq_node_claim_log(const struct alq_node *node);
const struct alq_config *alq_node_config(const struct alq_node *node);

/* Whether the state is open, and whether the API server, if there is one, is known to have the
 * slices of now. */
int alq_node_is_open(const struct alq_node *node);
int alq_node_is_published(const struct alq_node *node);

#endif
