/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquotd --uninstall: takes away what aliquotd keeps on a host, when it is to serve it no more.
 * An instance that merely ends leaves all of it for the next one. Blocking file I/O, no loop; runs
 * instead of the daemon.
 */
#ifndef ALQ_DAEMON_UNINSTALL_H
#define ALQ_DAEMON_UNINSTALL_H

#include "base/err.h"
#include "daemon/config.h"

/*
 * Removes sockets, CDI specs, share directories, installed libraries and hooks, records and lock
 * files below the directories of cfg, and each of our own directories that is empty then; a log
 * line for each thing. The directories of others (kubelet, CDI) and what we do not know stay, and
 * so does an installed file that another driver's spec names. ALQ_EBUSY, with nothing removed: an
 * aliquotd runs (for this driver, or with this state or run directory), a claim is prepared, or a
 * process uses a share. ALQ_EIO and the like: something could not be removed (the first error); the
 * rest is gone.
 */
int alq_uninstall(const struct alq_config *cfg, struct alq_err *err);

#endif
