/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records as files, <state dir>/claims/<claim uid>.record, one writer at a time by a lock on
 * <state dir>/lock. Writing is atomic and durable. A file that is no good record is set aside as
 * <name>.bad (.bad.1, ...), one that the disk does not give is left, and neither costs anybody
 * else. Blocking: workers, or before the loop runs.
 */
#ifndef ALQ_DAEMON_STATE_STORE_H
#define ALQ_DAEMON_STATE_STORE_H

#include "base/err.h"
#include "daemon/state/record.h"

struct alq_store; /* constant after open: any thread */

/* Makes the directories (0700), takes the lock and sweeps leftover temporaries. ALQ_EBUSY: another
 * process has it (its PID in the text); ALQ_EIO, ALQ_EACCES: not writable. */
int alq_store_open(const char *state_dir, struct alq_store **store, struct alq_err *err);
void alq_store_close(struct alq_store *store);

/* Calls each(arg, record) for all good records; each may take the claim out of it. Bad ones are set
 * aside with a log line. Returns how many were set aside, or a code when the directory cannot be
 * read. */
int alq_store_load(struct alq_store *store, void (*each)(void *arg, struct alq_record *record),
                   void *arg, struct alq_err *err);

/* Whether there is a record of the claim, and whether there was one that could not be used, now or
 * in an earlier run. */
int alq_store_has(const struct alq_store *store, const char *uid);
int alq_store_is_set_aside(const struct alq_store *store, const char *uid);

/* The claim is prepared anew, or over: what was set aside of it goes. */
void alq_store_forget_aside(struct alq_store *store, const char *uid);

int alq_store_put(struct alq_store *store, const struct alq_record *record, struct alq_err *err);
/* A missing record is success. */
int alq_store_remove(struct alq_store *store, const char *uid, struct alq_err *err);

/* Takes an exclusive lock on a file (created 0600, holds our PID and a line of note) that ends with
 * the process. ALQ_EBUSY as above. *fd keeps it. what says in the error whom the lock guards. */
int alq_lock_take(const char *path, const char *what, const char *note, int *fd,
                  struct alq_err *err);

/* Replaces the note of a lock that is held. */
void alq_lock_set_note(int fd, const char *note);

/* Whether another process has the lock. */
int alq_lock_is_held(const char *path);

/* The note of who has the lock or had it last; "" when there is none. */
void alq_lock_note(const char *path, char *note, size_t size);

/* The kernel's boot id. */
int alq_boot_id_read(char boot_id[ALQ_BOOT_ID_BYTES], struct alq_err *err);

#endif
