/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquotd --standalone: what API server, scheduler and kubelet are in a cluster, for the users of
 * one machine. Claims come over the admin socket (docs/standalone.md), src/alloc finds their GPUs,
 * and prepare/ makes and promises as it does for the kubelet. A claim is its user's; one made for a
 * process ends with that process, others stay over restarts and reboots until they are deleted.
 * Loop thread only.
 */
#ifndef ALQ_DAEMON_STANDALONE_STANDALONE_H
#define ALQ_DAEMON_STANDALONE_STANDALONE_H

#include "base/err.h"
#include "daemon/admin/admin.h"
#include "daemon/config.h"
#include "daemon/prepare/lookup.h"

struct alq_prepare;
struct alq_standalone;
struct alq_work;
struct event_base;

/* What it works with; outlives it. */
struct alq_standalone_parts {
    const struct alq_config *cfg;
    struct event_base *base;
    struct alq_work *work;
    struct alq_admin *admin;
};

/* Reads the claims that are kept and adds the paths to admin. Blocking: before the loop runs.
 * ALQ_EIO: the directory of claims cannot be read; ALQ_EBUSY: another aliquotd serves here. */
struct alq_standalone *alq_standalone_new(const struct alq_standalone_parts *parts,
                                          struct alq_err *err);
/* No job may be running: free the workers first; after prepare. NULL-safe. */
void alq_standalone_free(struct alq_standalone *standalone);

/* Where prepare looks claims up. */
const struct alq_claim_source *alq_standalone_source(struct alq_standalone *standalone);

/* The node's state is open: the claims are prepared, and calls are served from now on. */
void alq_standalone_open(struct alq_standalone *standalone, struct alq_prepare *prepare);
/* The daemon ends: what is under way ends with an error. Before the workers are freed. NULL-safe.
 */
void alq_standalone_close(struct alq_standalone *standalone);

#endif
