/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract 7's view of the node: /v1/gpus, /v1/shares, /v1/claims, and limits changed by PUT or
 * PATCH of /v1/shares/<id>. Fields are in docs/admin.md. While the state is not open (another
 * instance has it) the answer is 503. Loop thread only.
 */
#ifndef ALQ_DAEMON_ADMIN_SHARES_H
#define ALQ_DAEMON_ADMIN_SHARES_H

#include "daemon/admin/admin.h"
#include "daemon/node.h"

/* Adds the paths. node outlives admin's last answer. -1: out of memory. */
int alq_admin_add_shares(struct alq_admin *admin, struct alq_node *node);

#endif
