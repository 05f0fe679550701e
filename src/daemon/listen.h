/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening unix socket and its file. The path never lacks a listener while one is made: the
 * socket is bound under a hidden name beside it and renamed. What a killed daemon has left is
 * replaced; what lives, or is no socket, is not. A few system calls on a local file system; loop
 * thread, or before the loop runs.
 */
#ifndef ALQ_DAEMON_LISTEN_H
#define ALQ_DAEMON_LISTEN_H

#include <sys/types.h>

#include "base/err.h"

#define ALQ_NO_GROUP ((gid_t)-1)
#define ALQ_EVERYBODY ((gid_t)-2) /* in place of a group: all users; not for alq_unix_listen */

struct alq_unix_file {
    char *path; /* owned */
    dev_t dev;
    ino_t ino; /* 0: there is none */
};

/*
 * Listens at path (copied to file, which is zero or one that was lost). group ALQ_NO_GROUP: the
 * daemon's own. ALQ_EEXIST: a live socket lies there, or another kind of file; ALQ_ERANGE: the path
 * is too long for a unix socket; ALQ_EIO, ALQ_EACCES: the directory.
 */
int alq_unix_listen(const char *path, mode_t mode, gid_t group, struct alq_unix_file *file, int *fd,
                    struct alq_err *err);

/* Whether the file is there and is the one that was made. */
int alq_unix_file_is_there(const struct alq_unix_file *file);

/* Whether it is, and somebody listens there with room for one more. */
int alq_unix_file_answers(const struct alq_unix_file *file);

/* Takes the file away if it is still ours, and frees the path. */
void alq_unix_file_remove(struct alq_unix_file *file);

#endif
