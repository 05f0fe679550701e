/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registration service: the kubelet asks who we are and tells what it made of it. Answers come
 * from memory, within the call that asked. Loop thread only.
 */
#ifndef ALQ_DAEMON_KUBELET_REGISTRATION_H
#define ALQ_DAEMON_KUBELET_REGISTRATION_H

#include "base/err.h"
#include "daemon/grpc/session.h"

struct alq_registration;

/* driver and endpoint (the DRA socket's path) are copied. on_registered(arg) is told each time that
 * the kubelet has taken us. NULL when out of memory. */
struct alq_registration *alq_registration_new(const char *driver, const char *endpoint,
                                              void (*on_registered)(void *arg), void *arg,
                                              struct alq_err *err);
void alq_registration_free(struct alq_registration *registration);

/* For alq_grpc_server_new; lives as long as the registration. */
const struct alq_grpc_method *alq_registration_methods(const struct alq_registration *registration);

#endif
