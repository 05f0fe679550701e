/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ResourceSlice objects as JSON: how a GPU is described (contract 1) and when two descriptions mean
 * the same. Pure functions; any thread.
 */
#ifndef ALQ_DAEMON_KUBE_SLICE_H
#define ALQ_DAEMON_KUBE_SLICE_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "daemon/domain.h"

#define ALQ_SLICE_DEVICES_MAX 64 /* API server's limit for a slice whose devices have taints */

/* What the API server takes. */
struct alq_slice_server {
    const char *driver;    /* domain of our taints */
    int minor;             /* of Kubernetes 1.x */
    int is_without_taints; /* it drops them: the feature gate DRADeviceTaints is off */
};

/* The device of a GPU: name, attributes, capacity, and a taint for each fault: NoSchedule, or None
 * (from 1.35) where it serves on. New reference; ALQ_EINVAL when the GPU cannot be described as the
 * API server wants it (no memory left to promise). */
int alq_slice_device(const struct alq_gpu *gpu, const struct alq_slice_server *server,
                     json_t **device, struct alq_err *err);

/*
 * The desired contents of the pool: an array of arrays of devices, one for each slice. One GPU per
 * slice before 1.35, else one slice (more only above the API server's limit). GPUs that take no new
 * claims are left out where taints do not stick. So are those that cannot be described; the first
 * reason goes to err, whose code stays 0 when all went well.
 */
json_t *alq_slice_layout(const struct alq_gpu_list *list, const struct alq_slice_server *server,
                         struct alq_err *err);

/*
 * Whether two JSON values mean the same to Kubernetes: quantities by value ("16384Mi" is "16Gi"),
 * empty and absent members alike, order of members without meaning. Quantities are the strings
 * below "capacity".
 */
int alq_slice_is_same(const json_t *a, const json_t *b);

/*
 * Paths below which stored lacks or alters what sent has ("devices[0].allowMultipleAllocations,
 * ..."), for people; "" when everything was kept. What stored has in addition is not listed.
 */
void alq_slice_dropped(const json_t *sent, const json_t *stored, char *paths, size_t size);

#endif
