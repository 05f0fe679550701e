/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must be written so that the API server's slices become the desired ones: a pure function of
 * both. The caller does one action, puts the outcome into its picture of the server, and asks
 * again; an empty plan means that nothing is to be done. Any thread.
 */
#ifndef ALQ_DAEMON_KUBE_POOL_H
#define ALQ_DAEMON_KUBE_POOL_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"

/* What we want. Everything is borrowed. */
struct alq_pool_want {
    const char *driver;
    const char *node;         /* also the pool's name */
    const char *node_uid;     /* "": slices get no owner */
    const json_t *layout;     /* array of arrays of devices, see slice.h */
    int64_t generation_floor; /* the highest generation ever seen of this pool; new slices of an
                                 empty pool go above */
};

enum alq_pool_verb { ALQ_POOL_CREATE, ALQ_POOL_UPDATE, ALQ_POOL_DELETE };

struct alq_pool_action {
    enum alq_pool_verb verb;
    char *name;   /* of the slice; NULL for a create */
    json_t *body; /* ResourceSlice to send, or DeleteOptions */
};

struct alq_pool_plan {
    struct alq_pool_action *actions; /* deletions, updates, creations, in this order */
    size_t count;
};

/*
 * What the server keeps of a slice's desired spec, where it is not all (a feature gate is off):
 * pairs of what was sent and what came back. A slice that holds what came back counts as right.
 */
struct alq_pool_accepted {
    json_t *pairs; /* array of [sent devices, stored devices]; NULL: none yet */
};
/* Remembers the server's answer to a write. Returns whether something was dropped that had not been
 * known before. */
int alq_pool_accept(struct alq_pool_accepted *accepted, const json_t *sent_devices,
                    const json_t *stored_devices);
void alq_pool_accepted_clear(struct alq_pool_accepted *accepted);

/*
 * observed: object of slice name -> ResourceSlice. Slices of other drivers or nodes are never
 * touched. ALQ_ENOMEM. Rules (reference/dra.md §4.4): consumers look at the highest generation
 * only, and want as many slices as it says.
 *   - all slices of the highest generation are right: missing and older ones are brought to that
 * generation
 *   - just one is wrong, none is missing, and the number stays: it is changed in place
 *   - else every slice goes to the next generation
 */
int alq_pool_plan(const struct alq_pool_want *want, const json_t *observed,
                  const struct alq_pool_accepted *accepted, struct alq_pool_plan *plan,
                  struct alq_err *err);
void alq_pool_plan_clear(struct alq_pool_plan *plan);

/* Highest generation among the observed slices of the pool, 0 when there is none. */
int64_t alq_pool_generation(const struct alq_pool_want *want, const json_t *observed);

#endif
