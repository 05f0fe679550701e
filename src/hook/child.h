/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child process that may be held up: what it opens is the container's, and a FIFO there, or a
 * link to one, has whoever opens it sleep until somebody writes. One thread.
 */
#ifndef ALQ_HOOK_CHILD_H
#define ALQ_HOOK_CHILD_H

/* Waits for a child of alq_sys_fork. 0 with *status as wait4 has it; -ETIMEDOUT: it slept for two
 * seconds without a single wake-up, and was killed (waiting for a disk is not sleep; Linux before
 * 5.3, or without the host's /proc: nobody looks); another -errno of wait4. */
int alq_child_wait(int pid, int pidfd, int *status);

#endif
