/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount namespace for a child process of a test, so that the machine's mounts stay as they are.
 * Without root it comes with a user namespace in which the caller is root. Not for the test process
 * itself: there is no way back.
 */
#ifndef ALQ_TESTS_PRIVATE_MOUNTS_H
#define ALQ_TESTS_PRIVATE_MOUNTS_H

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static inline int private_mounts_write(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text) ? 0 : -1;
}

/* Returns 0, or -1 where the machine does not allow it. */
static inline int private_mounts(void)
{
    unsigned uid = geteuid();
    unsigned gid = getegid();
    if (unshare(CLONE_NEWNS | (uid ? CLONE_NEWUSER : 0)) < 0)
        return -1;
    if (uid) {
        char map[32];
        snprintf(map, sizeof(map), "0 %u 1", uid);
        if (private_mounts_write("/proc/self/setgroups", "deny") < 0 ||
            private_mounts_write("/proc/self/uid_map", map) < 0)
            return -1;
        snprintf(map, sizeof(map), "0 %u 1", gid);
        if (private_mounts_write("/proc/self/gid_map", map) < 0)
            return -1;
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

#endif
