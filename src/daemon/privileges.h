/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The capabilities that aliquotd needs, and the end of all others: dropped for good before any
 * thread, socket or child is there. docs/security.md says what each is for. Before the loop runs.
 */
#ifndef ALQ_DAEMON_PRIVILEGES_H
#define ALQ_DAEMON_PRIVILEGES_H

#include "base/err.h"

/* Keeps what is needed, in the bounding set too, and sets no_new_privs: children get no more. Run
 * as root without one that is needed: ALQ_EACCES, with its name and what it is for. As another user
 * there may be none, and what they are for does not work. */
int alq_privileges_drop(struct alq_err *err);

#endif
