/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a local claim: it is written down, prepared, and taken away again when its user says
 * so or its process has ended. A claim whose share a process still uses does not end: what is in
 * use stays promised. Files are written by workers. Loop thread only.
 */
#ifndef ALQ_DAEMON_STANDALONE_LIFE_H
#define ALQ_DAEMON_STANDALONE_LIFE_H

#include "daemon/standalone/claims.h"
#include "daemon/standalone/place.h"
#include "daemon/standalone/standalone.h"

struct alq_standalone {
    struct alq_standalone_parts parts;
    struct alq_locals locals;
    struct alq_placer placer;
    struct alq_prepare *prepare; /* NULL while the state is not open */
};

/* The end of what was asked; err NULL: success. spec: what is prepared, borrowed; NULL after an
 * end. local is gone after an end that succeeded and a begin that failed. */
typedef void (*alq_life_cb)(void *arg, struct alq_local *local, const struct alq_claim_spec *spec,
                            const struct alq_err *err);

/* For a claim that is in the table with its allocation. It ends with its process, if it has one
 * (fd of it: taken over; -1). Errors as of alq_prepare_claim. */
void alq_life_begin(struct alq_standalone *s, struct alq_local *local, int process_fd,
                    alq_life_cb cb, void *arg);

/* ALQ_EBUSY: it is in use, or being made. */
void alq_life_end(struct alq_standalone *s, struct alq_local *local, alq_life_cb cb, void *arg);

/* After a start: has it prepared, again and again until that succeeds; or ends it, when its process
 * has ended. */
void alq_life_resume(struct alq_standalone *s, struct alq_local *local);

#endif
