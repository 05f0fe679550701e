/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that a claim ends with. A number is not enough: the kernel uses it again, so the
 * process is held by a pidfd, and over a restart of the daemon known by its start. A few system
 * calls; any thread.
 */
#ifndef ALQ_DAEMON_STANDALONE_PROCESS_H
#define ALQ_DAEMON_STANDALONE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct alq_process {
    pid_t pid;            /* 0: none */
    uint64_t start_ticks; /* since boot, as /proc/<pid>/stat has it */
};

/* The peer of a connected unix socket. *fd becomes readable when it has ended. ALQ_ENOENT: it has
 * ended already; ALQ_ENOTSUP: this kernel has no pidfd_open (5.3). */
int alq_process_of_peer(int socket, pid_t pid, struct alq_process *process, int *fd,
                        struct alq_err *err);

/* A descriptor likewise of a process that was known before; -1: it has ended. */
int alq_process_again(const struct alq_process *process);

#endif
