/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract 7's view of the node: /v1/gpus, /v1/shares, /v1/claims, /v1/processes, and limits
 * changed by PUT or PATCH of /v1/shares/<id>. Fields are in docs/admin.md. While the state is not
 * open (another instance has it) the answer is 503. Loop thread only.
 */
#ifndef ALQ_DAEMON_ADMIN_SHARES_H
#define ALQ_DAEMON_ADMIN_SHARES_H

#include "daemon/admin/admin.h"
#include "daemon/node.h"

struct alq_monitor;

/* What the answers are made of; outlives admin's last one. */
struct alq_admin_sources {
    struct alq_node *node;
    struct alq_monitor *monitor; /* NULL: there is none, and no usage in the answers */
};

/* Adds the paths. sources is borrowed for as long. -1: out of memory. */
int alq_admin_add_shares(struct alq_admin *admin, struct alq_admin_sources *sources);

#endif
