/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's part: which GPU a claim gets, by src/alloc, of what the claims that are there
 * leave. A claim can be made so that the search takes a second, so workers do it; one at a time,
 * for each must see what the one before has got. Loop thread only.
 */
#ifndef ALQ_DAEMON_STANDALONE_PLACE_H
#define ALQ_DAEMON_STANDALONE_PLACE_H

#include <jansson.h>
#include <sys/queue.h>

#include "base/err.h"
#include "daemon/domain.h"
#include "daemon/work.h"

struct alq_locals;
struct alq_placing;

/* The end of a placement, err NULL: object has its status.allocation. Who wants it puts it into the
 * table before this returns. ALQ_EINVAL: the claim or a class is wrong; ALQ_EBUSY: there is no such
 * GPU with so much left; ALQ_ECANCELED: aliquotd ends; ALQ_ENOMEM, ALQ_EIO. */
typedef void (*alq_place_cb)(void *arg, json_t *object, const struct alq_err *err);

struct alq_placer {
    const struct alq_locals *locals;
    struct alq_work *work;
    /* The GPUs of now; NULL with err set: there are none. */
    const struct alq_gpu_list *(*gpus)(void *arg, struct alq_err *err);
    void *gpus_arg;
    STAILQ_HEAD(, alq_placing) line; /* the head runs */
};

void alq_placer_init(struct alq_placer *placer, const struct alq_locals *locals,
                     struct alq_work *work,
                     const struct alq_gpu_list *(*gpus)(void *arg, struct alq_err *err),
                     void *gpus_arg);

/* object: a claim without an allocation; classes: DeviceClasses that came with it, NULL: none. Both
 * are shared, and object is the placement's alone until the end, which may come before this
 * returns. */
void alq_place(struct alq_placer *placer, json_t *object, json_t *classes, alq_place_cb cb,
               void *arg);

#endif
