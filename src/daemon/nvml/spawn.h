/* SPDX-License-Identifier: Apache-2.0 */
/* Starting the NVML child with its two pipes. Any thread. */
#ifndef ALQ_DAEMON_NVML_SPAWN_H
#define ALQ_DAEMON_NVML_SPAWN_H

#include <sys/types.h>

struct alq_nvml_child {
    pid_t pid;
    int request_fd; /* we write; the child's descriptor 0 */
    int reply_fd;   /* we read; the child's descriptor 3 */
};

/* Our ends do not block and are closed on exec. The child's output goes to our standard error, no
 * signal is blocked or ignored in it. 0, or an errno: then there is nothing to close or reap. */
int alq_nvml_spawn(const char *program, char *const *argv, struct alq_nvml_child *child);

#endif
