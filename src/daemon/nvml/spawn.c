/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the NVML child, see spawn.h. Keeps nothing. */
#include "daemon/nvml/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include "base/cleanup.h"

extern char **environ;

static int spawn(const char *program, char *const *argv, int request_end, int reply_end, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_adddup2(&actions, request_end, 0);
    posix_spawn_file_actions_adddup2(&actions, 2, 1);
    posix_spawn_file_actions_adddup2(&actions, reply_end, 3);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn(pid, program, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* Puts a descriptor above those that the child gets, so that dup2 never meets itself (it would keep
 * close-on-exec). */
static int raise_fd(int *fd)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, 10);
    int rc = high < 0 ? errno : 0;
    close(*fd);
    *fd = high;
    return rc;
}

int alq_nvml_spawn(const char *program, char *const *argv, struct alq_nvml_child *child)
{
    int ask[2], answer[2];
    if (pipe2(ask, O_CLOEXEC))
        return errno;
    alq_auto_close int request_end = ask[0], request_fd = ask[1];
    if (pipe2(answer, O_CLOEXEC))
        return errno;
    alq_auto_close int reply_fd = answer[0], reply_end = answer[1];
    fcntl(request_fd, F_SETFL, O_NONBLOCK);
    fcntl(reply_fd, F_SETFL, O_NONBLOCK);
    int rc = raise_fd(&request_end);
    if (!rc)
        rc = raise_fd(&reply_end);
    if (!rc)
        rc = spawn(program, argv, request_end, reply_end, &child->pid);
    if (rc)
        return rc;
    child->request_fd = alq_steal_fd(&request_fd);
    child->reply_fd = alq_steal_fd(&reply_fd);
    return 0;
}
