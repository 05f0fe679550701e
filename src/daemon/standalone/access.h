/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A share directory for the eyes of its user alone: usage files can be written by everybody who
 * reaches them, and on a machine with users that must not be every user. The directory stays
 * root's, so that nobody can put other files into it. A few system calls on tmpfs; any thread.
 */
#ifndef ALQ_DAEMON_STANDALONE_ACCESS_H
#define ALQ_DAEMON_STANDALONE_ACCESS_H

#include <sys/types.h>

#include "base/err.h"

/* Lets a user into a directory of mode 0700 by an access list; where the kernel has none for tmpfs
 * (CONFIG_TMPFS_POSIX_ACL) everybody. ALQ_EIO. */
int alq_access_grant(const char *dir, uid_t user, struct alq_err *err);

#endif
