/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The services v1.DRAPlugin and v1beta1.DRAPlugin: batches of claims from the kubelet become
 * operations of prepare/, and their ends become the reply, each claim with its own error. A call
 * that is cancelled leaves its operations running; the kubelet asks again or unprepares. Loop
 * thread only.
 */
#ifndef ALQ_DAEMON_KUBELET_DRA_H
#define ALQ_DAEMON_KUBELET_DRA_H

#include <stdint.h>

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/grpc/session.h"

struct alq_dra;
struct alq_prepare;

/* on_stray (may be NULL) is told of each call that comes while calls are refused; it may call
 * alq_dra_wait. cfg outlives it. NULL when out of memory. */
struct alq_dra *alq_dra_new(const struct alq_config *cfg, void (*on_stray)(void *arg), void *arg,
                            struct alq_err *err);
/* After prepare and the servers. */
void alq_dra_free(struct alq_dra *dra);

/* What becomes of calls: they wait (at first, each to its own deadline), are given to prepare (the
 * waiting ones too, in order of arrival), or are refused as UNAVAILABLE for a reason (copied). */
void alq_dra_wait(struct alq_dra *dra);
void alq_dra_serve(struct alq_dra *dra, struct alq_prepare *prepare);
void alq_dra_refuse(struct alq_dra *dra, const char *why);

/* Answers the calls that prepare has not answered yet with UNAVAILABLE; their operations go on. */
void alq_dra_give_up(struct alq_dra *dra, const char *why);

/* Calls that wait, and calls that prepare works at (also for callers who have gone). */
unsigned alq_dra_waiting(const struct alq_dra *dra);
unsigned alq_dra_working(const struct alq_dra *dra);

/* Calls that have come so far. */
uint64_t alq_dra_calls(const struct alq_dra *dra);

/* For alq_grpc_server_new; lives as long as dra. */
const struct alq_grpc_method *alq_dra_methods(const struct alq_dra *dra);

#endif
