/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims of a machine without a cluster: a table, the file that each is kept in, and the place
 * where prepare/ looks them up as it would at an API server. What is done with them is life.c.
 */
#ifndef ALQ_DAEMON_STANDALONE_CLAIMS_H
#define ALQ_DAEMON_STANDALONE_CLAIMS_H

#include <jansson.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "base/err.h"
#include "daemon/config.h"
#include "daemon/prepare/allocation.h"
#include "daemon/prepare/lookup.h"
#include "daemon/standalone/process.h"

struct alq_standalone;
struct event;
struct event_base;

struct alq_local {
    TAILQ_ENTRY(alq_local) link;
    struct alq_standalone *of;
    struct alq_claim_id id; /* namespace: alq_local_namespace of the owner */
    uid_t owner;
    json_t *object;             /* ResourceClaim with its allocation; never changed */
    struct alq_process process; /* pid 0: it lasts until it is deleted */
    struct event *exit;         /* of the process; NULL without one */
    struct event *again;        /* what life.c tries again */
    unsigned failures;          /* in a row */
    int is_prepared;
    int is_busy; /* something is being done with it that ends in a callback */
    int is_over; /* it ends as soon as nobody uses it */
};

TAILQ_HEAD(alq_local_list, alq_local);

struct alq_locals {
    const struct alq_config *cfg;
    struct event_base *base;
    struct alq_local_list all;
    unsigned unread; /* files that are no claims to us: what is not in the table may be in one */
    struct alq_claim_source source;
};

void alq_locals_init(struct alq_locals *locals, const struct alq_config *cfg,
                     struct event_base *base);
void alq_locals_fini(struct alq_locals *locals);

/* A claim of this object (taken over), put into the table; NULL when out of memory. */
struct alq_local *alq_locals_add(struct alq_locals *locals, const struct alq_claim_id *id,
                                 uid_t owner, json_t *object);
void alq_locals_drop(struct alq_locals *locals, struct alq_local *local);

struct alq_local *alq_locals_by_uid(const struct alq_locals *locals, const char *uid);
struct alq_local *alq_locals_by_name(const struct alq_locals *locals, const char *namespace_,
                                     const char *name);
unsigned alq_locals_count_of(const struct alq_locals *locals, uid_t owner);

/* "uid-1000": a user's claims are in a namespace of his own. */
void alq_local_namespace(uid_t owner, char *text, size_t size);

/* ---- files; blocking: workers, or before the loop runs ---- */

/* What is written, malloc'ed; NULL when out of memory. */
char *alq_local_text(const struct alq_local *local);
int alq_local_write(const struct alq_config *cfg, const char *uid, const char *text,
                    struct alq_err *err);
/* A missing file is success. */
int alq_local_remove(const struct alq_config *cfg, const char *uid, struct alq_err *err);

/* Reads all that there are into the table; one that is no good is left where it is, with a line in
 * the log, and what it may be the claim of keeps its share. ALQ_EIO: the directory. */
int alq_locals_load(struct alq_locals *locals, struct alq_err *err);

#endif
