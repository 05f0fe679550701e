/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device names that stick: a GPU, known by its UUID, keeps the name it got first, even when its
 * minor number moves (contract 1). Kept in <state dir>/devices.json. Loop thread or before it runs;
 * blocking only when a name is new.
 */
#ifndef ALQ_DAEMON_STATE_NAMES_H
#define ALQ_DAEMON_STATE_NAMES_H

#include "base/err.h"
#include "daemon/domain.h"

struct alq_names;

/* A damaged file is set aside with a log line: names are then made anew, but for those that records
 * teach. */
int alq_names_open(const char *state_dir, struct alq_names **names, struct alq_err *err);
void alq_names_close(struct alq_names *names);

/* A record says that uuid was called name; ignored when either is known. */
void alq_names_learn(struct alq_names *names, const char *uuid, const char *name);

/* Sets name of every GPU of the list, "hami-gpu-<minor>" or the next free number, and saves new
 * ones. ALQ_EIO: not saved (names are set all the same). */
int alq_names_assign(struct alq_names *names, struct alq_gpu_list *list, struct alq_err *err);

/* UUID that was given this name, or NULL. */
const char *alq_names_find(const struct alq_names *names, const char *name);

#endif
