/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process as each PID namespace around it numbers it. Read once, while the process is known to
 * live (it has just connected); afterwards translation needs no system call. Where /proc does not
 * let us read the namespaces, a process has one number for everybody: the one simgpud sees.
 */
#ifndef SIM_DAEMON_PIDNS_H
#define SIM_DAEMON_PIDNS_H

#include <stdint.h>
#include <sys/types.h>

#define SIM_PIDNS_LEVELS 33 /* the kernel nests at most 32 deep */

struct sim_pidns {
    uint32_t levels;                       /* known ones; 0 when /proc did not tell */
    pid_t pid[SIM_PIDNS_LEVELS];           /* [0] in simgpud's namespace, the last in its own */
    uint64_t namespace_[SIM_PIDNS_LEVELS]; /* inode of each of those namespaces */
};

/* Fills p for the live process pid (in simgpud's namespace). */
void sim_pidns_read(pid_t pid, struct sim_pidns *p);

/* The number of process `of` as `to` would see it; 0 when it cannot see it. */
pid_t sim_pidns_translate(const struct sim_pidns *of, const struct sim_pidns *to);

#endif
