/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From what a user asks for to a claim of his that is prepared: may he, is there room, and then
 * life.h. Loop thread only.
 */
#ifndef ALQ_DAEMON_STANDALONE_MAKE_H
#define ALQ_DAEMON_STANDALONE_MAKE_H

#include "daemon/standalone/life.h"

struct alq_make {
    uid_t owner;
    int is_admin;               /* root: no bounds */
    const char *name;           /* of the claim */
    json_t *document;           /* its spec and annotations; shared */
    json_t *classes;            /* that came with it; shared; NULL: none */
    struct alq_process process; /* that it ends with; pid 0: none */
    int process_fd;             /* of it; taken over; -1 */
};

/* cb as of alq_life_begin; may come before this returns. ALQ_EACCES, ALQ_EEXIST, ALQ_EBUSY and the
 * errors of alq_place and alq_life_begin. */
void alq_make(struct alq_standalone *s, const struct alq_make *what, alq_life_cb cb, void *arg);

/* The GPUs as they were last read; NULL with err set: why there are none. A source for alq_placer;
 * arg is the struct alq_standalone. */
const struct alq_gpu_list *alq_make_gpus(void *arg, struct alq_err *err);

#endif
