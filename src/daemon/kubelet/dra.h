/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The services v1.DRAPlugin and v1beta1.DRAPlugin: batches of claims from the kubelet become
 * operations of prepare/, and their ends become the reply, each claim with its own error. A call
 * that is cancelled leaves its operations running; the kubelet asks again or unprepares. Loop
 * thread only.
 */
#ifndef ALQ_DAEMON_KUBELET_DRA_H
#define ALQ_DAEMON_KUBELET_DRA_H

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/grpc/session.h"

struct alq_dra;
struct alq_prepare;

/* cfg and prepare outlive it. NULL when out of memory. */
struct alq_dra *alq_dra_new(const struct alq_config *cfg, struct alq_prepare *prepare,
                            struct alq_err *err);
void alq_dra_free(struct alq_dra *dra);

/* For alq_grpc_server_new; lives as long as dra. */
const struct alq_grpc_method *alq_dra_methods(const struct alq_dra *dra);

#endif
