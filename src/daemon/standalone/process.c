/* SPDX-License-Identifier: Apache-2.0 */
/* Processes by pidfd, see process.h. */
#include "daemon/standalone/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/monitor/mounts.h"

/* Linux 6.5; older C libraries do not name it. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define STAT_BYTES 1024

static int start_of(pid_t pid, uint64_t *ticks)
{
    char path[32], text[STAT_BYTES];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return alq_stat_start(text, ticks);
}

static int open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

int alq_process_of_peer(int socket, pid_t pid, struct alq_process *process, int *fd,
                        struct alq_err *err)
{
    socklen_t len = sizeof(*fd);
    alq_auto_close int own = -1;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &own, &len) || own < 0)
        own = open_pidfd(pid);
    if (own < 0 && errno == ENOSYS)
        return alq_err_set(err, ALQ_ENOTSUP,
                           "this kernel cannot tell when a process ends (pidfd_open, Linux 5.3); "
                           "make a claim instead (aliquot claim apply), which lasts until it is "
                           "deleted");
    if (own < 0 || start_of(pid, &process->start_ticks))
        return alq_err_set(err, ALQ_ENOENT, "process %d has ended", (int)pid);
    process->pid = pid;
    *fd = alq_steal_fd(&own);
    return 0;
}

int alq_process_again(const struct alq_process *process)
{
    uint64_t ticks = 0;
    alq_auto_close int fd = open_pidfd(process->pid);
    if (fd < 0 || start_of(process->pid, &ticks) || ticks != process->start_ticks)
        return -1;
    return alq_steal_fd(&fd);
}
