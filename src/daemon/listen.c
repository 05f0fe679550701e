/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Socket files, see listen.h.
 */
#include "daemon/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

#define BACKLOG 64

/* Fails when something lies at path that must not be replaced. */
static int check_path(const struct sockaddr_un *addr, struct alq_err *err)
{
    const char *path = addr->sun_path;
    struct stat st;
    if (lstat(path, &st))
        return errno == ENOENT ? 0 : alq_err_errno(err, errno, "%s", path);
    if (!S_ISSOCK(st.st_mode))
        return alq_err_set(err, ALQ_EEXIST, "%s exists and is no socket; remove it", path);
    alq_auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return alq_err_errno(err, errno, "socket");
    if (!connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) || errno == EAGAIN)
        return alq_err_set(err, ALQ_EEXIST,
                           "another process serves %s; stop it, or choose another driver name "
                           "or directory",
                           path);
    if (errno != ECONNREFUSED && errno != ENOENT)
        return alq_err_errno(err, errno, "connecting to %s to see whether it is live", path);
    return 0;
}

/* The hidden name is the socket's own, so that what a killed daemon has left is found again; the
 * kubelet's watcher ignores it. */
static int bind_and_rename(const char *path, mode_t mode, gid_t group, struct alq_unix_file *file,
                           int *out, struct alq_err *err)
{
    struct sockaddr_un temporary = {.sun_family = AF_UNIX};
    struct stat st;
    alq_auto_free char *copy = strdup(path);
    alq_auto_close int dir = copy ? open(dirname(copy), O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir < 0)
        return alq_err_errno(err, copy ? errno : ENOMEM, "directory of %s", path);
    alq_auto_free char *name = alq_str_printf(".%s", strrchr(path, '/') + 1);
    int n = name ? snprintf(temporary.sun_path, sizeof(temporary.sun_path), "/proc/self/fd/%d/%s",
                            dir, name)
                 : -1;
    if (n < 0 || (size_t)n >= sizeof(temporary.sun_path))
        return alq_err_errno(err, name ? ENAMETOOLONG : ENOMEM, "%s", path);
    unlinkat(dir, name, 0);
    alq_auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return alq_err_errno(err, errno, "socket");
    if (bind(fd, (const struct sockaddr *)&temporary, sizeof(temporary)))
        return alq_err_errno(err, errno, "making a socket in the directory of %s", path);
    if ((group != ALQ_NO_GROUP && fchownat(dir, name, (uid_t)-1, group, AT_SYMLINK_NOFOLLOW)) ||
        fchmodat(dir, name, mode, 0) || listen(fd, BACKLOG) || fstatat(dir, name, &st, 0) ||
        renameat(dir, name, AT_FDCWD, path)) {
        int rc = alq_err_errno(err, errno, "%s", path);
        unlinkat(dir, name, 0);
        return rc;
    }
    file->dev = st.st_dev;
    file->ino = st.st_ino;
    *out = alq_steal_fd(&fd);
    return 0;
}

int alq_unix_listen(const char *path, mode_t mode, gid_t group, struct alq_unix_file *file, int *fd,
                    struct alq_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(addr.sun_path))
        return alq_err_set(err, ALQ_ERANGE,
                           "%s is longer than the %zu bytes of a unix socket; choose a shorter "
                           "directory",
                           path, sizeof(addr.sun_path) - 1);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
    int rc = check_path(&addr, err);
    if (rc)
        return rc;
    if (!file->path && !(file->path = strdup(path)))
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return bind_and_rename(path, mode, group, file, fd, err);
}

int alq_unix_file_is_there(const struct alq_unix_file *file)
{
    struct stat st;
    return file->ino && !lstat(file->path, &st) && st.st_dev == file->dev && st.st_ino == file->ino;
}

int alq_unix_file_answers(const struct alq_unix_file *file)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (!alq_unix_file_is_there(file))
        return 0;
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", file->path);
    alq_auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd >= 0 && !connect(fd, (const struct sockaddr *)&addr, sizeof(addr));
}

void alq_unix_file_remove(struct alq_unix_file *file)
{
    if (alq_unix_file_is_there(file))
        unlink(file->path);
    free(file->path);
    *file = (struct alq_unix_file){0};
}
