/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths of a container that the hook, a process of the host, may act on: every symbolic link on the
 * way, also the last, is resolved as the container's own processes would, so that none leads out of
 * its root. The kernel does it (openat2 with RESOLVE_IN_ROOT); where it cannot (before 5.6) or a
 * filter refuses it, a walk does that holds a descriptor on each directory it is in. What was
 * opened stays what it was whoever renames directories meanwhile. Functions return a descriptor or
 * 0, else -errno. No state; one thread.
 */
#ifndef ALQ_HOOK_ROOTFS_H
#define ALQ_HOOK_ROOTFS_H

#include <stdbool.h>
#include <stddef.h>

struct alq_rootfs {
    int fd;   /* the container's root, O_PATH */
    int proc; /* the host's /proc/self/fd, O_PATH */
};

/* fd's root is kept, not copied. -ENODEV: the host has no /proc. */
int alq_rootfs_init(struct alq_rootfs *rootfs, int fd);

/* An O_PATH descriptor of what `path` names; nothing is opened that opening could touch. A last
 * link is followed, too. */
int alq_rootfs_open(const struct alq_rootfs *rootfs, const char *path);

/* The same by the walk alone. -ELOOP: more than 40 links; -ENAMETOOLONG: deeper than 64, or links
 * add up to more than a path may have. */
int alq_rootfs_walk(const struct alq_rootfs *rootfs, const char *path);

/* An O_PATH descriptor of a directory; what is missing of it is made, 0755. Not for paths with "."
 * or ".." (-EINVAL). */
int alq_rootfs_make_dir(const struct alq_rootfs *rootfs, const char *path);

/* Opens for reading what an O_PATH descriptor stands for, if it is a regular file or a directory;
 * -EISDIR, -EINVAL otherwise. */
int alq_rootfs_reopen_file(const struct alq_rootfs *rootfs, int fd);
int alq_rootfs_reopen_dir(const struct alq_rootfs *rootfs, int fd);

/* Up to `bytes` - 1 bytes of the regular file fd stands for, and a NUL. The length; -EFBIG. */
long alq_rootfs_read(const struct alq_rootfs *rootfs, int fd, char *out, size_t bytes);

/* on_name(arg, dir, name) for each entry of the directory `path`, open as dir, until it says false.
 * Calls may nest. */
int alq_rootfs_list(const struct alq_rootfs *rootfs, const char *path,
                    bool (*on_name)(void *arg, int dir, const char *name), void *arg);

bool alq_is_regular(int fd);

/* "/proc/self/fd/<fd>", for calls that take paths alone. */
#define ALQ_FD_PATH_BYTES 32
void alq_fd_path(int fd, char path[ALQ_FD_PATH_BYTES]);

#endif
