/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The services v1alpha1.DRAResourceHealth and v1.DRAResourceHealth: each watcher gets the state of
 * every device when it comes, at each change, and again every ALQ_HEALTH_RESEND_S, for the kubelet
 * takes a state older than 30 s for unknown. A watcher that reads slowly skips states: it gets the
 * latest one when it has read what was sent before. Loop thread only.
 *
 * A device is UNHEALTHY while a fault makes it unfit for new claims, or when it is known and the
 * last reading lacks it; UNKNOWN while there is no reading; else HEALTHY.
 */
#ifndef ALQ_DAEMON_KUBELET_HEALTH_H
#define ALQ_DAEMON_KUBELET_HEALTH_H

#include "base/err.h"
#include "daemon/domain.h"
#include "daemon/grpc/session.h"

#define ALQ_HEALTH_RESEND_S 10
#define ALQ_HEALTH_MESSAGE_BYTES 1025 /* the API's 1024 and a NUL */

struct event_base;
struct alq_health;

/* pool (the node's name) is copied. NULL when out of memory. */
struct alq_health *alq_health_new(struct event_base *base, const char *pool, struct alq_err *err);
/* Watchers must have gone: after the servers. NULL-safe. */
void alq_health_free(struct alq_health *health);

/* For alq_grpc_server_new; ends with a NULL path, lives as long as health. */
const struct alq_grpc_method *alq_health_methods(const struct alq_health *health);

/* A device that claims hold, whether a reading has it or not. Out of memory: logged. */
void alq_health_know(struct alq_health *health, const char *uuid, const char *device);

/* The last reading (named GPUs); err non-NULL: there is none, for this reason. */
void alq_health_set_gpus(struct alq_health *health, const struct alq_gpu_list *list,
                         const struct alq_err *err);

/* Forgets all devices: another instance of aliquotd speaks for them now. Watchers stay and get
 * nothing until devices are known again. */
void alq_health_clear(struct alq_health *health);

/* Ends every watch with UNAVAILABLE. */
void alq_health_end(struct alq_health *health);

#endif
