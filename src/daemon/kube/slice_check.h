/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the API server would refuse of our ResourceSlices, found out before it is asked: one device
 * that breaks a rule would cost the node all of them. Not less strict than the server; stricter
 * where it takes what can only be a mistake (a negative capacity or step, a policy that says
 * nothing). Pure functions; any thread.
 */
#ifndef ALQ_DAEMON_KUBE_SLICE_CHECK_H
#define ALQ_DAEMON_KUBE_SLICE_CHECK_H

#include <jansson.h>

#include "base/err.h"

/* A whole spec, as it is to be sent to Kubernetes 1.<server_minor>. ALQ_EINVAL names the field and
 * what is wrong with it. */
int alq_slice_check(const json_t *spec, int server_minor, struct alq_err *err);

/* Takes the devices that would be refused out of a layout (slice.h), and slices left empty. The
 * first reason goes to err when that has none yet. Returns how many. */
unsigned alq_slice_keep_valid(json_t *layout, int server_minor, struct alq_err *err);

#endif
