/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of the hook beyond those of vgpu/sys.h, in its manner: every function returns
 * the kernel's answer, a value or -errno. No errno, no libc, no state.
 */
#ifndef ALQ_HOOK_SYS_H
#define ALQ_HOOK_SYS_H

#include <asm/statfs.h>
#include <linux/errno.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <linux/stat.h>

#include "vgpu/sys.h"

/* linux/stat.h keeps these to itself where glibc's headers are about. */
#define ALQ_S_TYPE 0170000
#define ALQ_S_LINK 0120000
#define ALQ_S_FILE 0100000
#define ALQ_S_DIR 0040000

static inline long alq_sys_read(int fd, void *out, size_t bytes)
{
    return alq_syscall6(__NR_read, fd, (long)out, (long)bytes, 0, 0, 0);
}

static inline int alq_sys_openat2(int dir, const char *path, const struct open_how *how)
{
    return (int)alq_syscall6(__NR_openat2, dir, (long)path, (long)how, sizeof(*how), 0, 0);
}

static inline int alq_sys_statx(int dir, const char *path, int flags, struct statx *out)
{
    return (int)alq_syscall6(__NR_statx, dir, (long)path, flags, STATX_BASIC_STATS, (long)out, 0);
}

static inline int alq_sys_fstatx(int fd, struct statx *out)
{
    return alq_sys_statx(fd, "", AT_EMPTY_PATH, out);
}

static inline int alq_sys_fstatfs(int fd, struct statfs *out)
{
    return (int)alq_syscall6(__NR_fstatfs, fd, (long)out, 0, 0, 0, 0);
}

static inline long alq_sys_readlinkat(int dir, const char *path, char *out, size_t bytes)
{
    return alq_syscall6(__NR_readlinkat, dir, (long)path, (long)out, (long)bytes, 0, 0);
}

static inline int alq_sys_mkdirat(int dir, const char *path, int mode)
{
    return (int)alq_syscall6(__NR_mkdirat, dir, (long)path, mode, 0, 0, 0);
}

static inline int alq_sys_symlinkat(const char *target, int dir, const char *path)
{
    return (int)alq_syscall6(__NR_symlinkat, (long)target, dir, (long)path, 0, 0, 0);
}

static inline int alq_sys_renameat(int dir, const char *from, const char *to)
{
    return (int)alq_syscall6(__NR_renameat2, dir, (long)from, dir, (long)to, 0, 0);
}

static inline int alq_sys_unlinkat(int dir, const char *path)
{
    return (int)alq_syscall6(__NR_unlinkat, dir, (long)path, 0, 0, 0, 0);
}

static inline int alq_sys_fsetxattr(int fd, const char *name, const void *value, size_t bytes)
{
    return (int)alq_syscall6(__NR_fsetxattr, fd, (long)name, (long)value, (long)bytes, 0, 0);
}

static inline int alq_sys_dup3(int from, int to)
{
    return (int)alq_syscall6(__NR_dup3, from, to, 0, 0, 0, 0);
}

static inline int alq_sys_memfd(const char *name, unsigned int flags)
{
    return (int)alq_syscall6(__NR_memfd_create, (long)name, flags, 0, 0, 0, 0);
}

static inline long alq_sys_sendfile(int to, int from, size_t bytes)
{
    return alq_syscall6(__NR_sendfile, to, from, 0, (long)bytes, 0, 0);
}

static inline int alq_sys_fcntl(int fd, int command, long value)
{
    return (int)alq_syscall6(__NR_fcntl, fd, command, value, 0, 0, 0);
}

static inline int alq_sys_mount(const char *source, const char *target, const char *type,
                                unsigned long flags, const char *options)
{
    return (int)alq_syscall6(__NR_mount, (long)source, (long)target, (long)type, (long)flags,
                             (long)options, 0);
}

#define ALQ_MNT_DETACH 2

static inline int alq_sys_umount(const char *target)
{
    return (int)alq_syscall6(__NR_umount2, (long)target, ALQ_MNT_DETACH, 0, 0, 0, 0);
}

static inline int alq_sys_fsopen(const char *type)
{
    return (int)alq_syscall6(__NR_fsopen, (long)type, FSOPEN_CLOEXEC, 0, 0, 0, 0);
}

static inline int alq_sys_fsconfig(int fs, unsigned int command, const char *key, const char *value)
{
    return (int)alq_syscall6(__NR_fsconfig, fs, command, (long)key, (long)value, 0, 0);
}

static inline int alq_sys_fsmount(int fs, unsigned int attributes)
{
    return (int)alq_syscall6(__NR_fsmount, fs, FSMOUNT_CLOEXEC, attributes, 0, 0, 0);
}

static inline int alq_sys_move_mount(int mount, int target)
{
    return (int)alq_syscall6(__NR_move_mount, mount, (long)"", target, (long)"",
                             MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH, 0);
}

/* What is below the mount, too, shows no devices from now on. */
static inline int alq_sys_mount_nodev(int mount)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NODEV};
    return (int)alq_syscall6(__NR_mount_setattr, mount, (long)"", AT_EMPTY_PATH | AT_RECURSIVE,
                             (long)&attr, sizeof(attr), 0);
}

static inline int alq_sys_unshare(unsigned long flags)
{
    return (int)alq_syscall6(__NR_unshare, (long)flags, 0, 0, 0, 0, 0);
}

static inline int alq_sys_fchdir(int fd)
{
    return (int)alq_syscall6(__NR_fchdir, fd, 0, 0, 0, 0, 0);
}

static inline int alq_sys_chroot(const char *path)
{
    return (int)alq_syscall6(__NR_chroot, (long)path, 0, 0, 0, 0, 0);
}

/* The working directory, a mount point, becomes the root; the old root is mounted over it. */
static inline int alq_sys_pivot_root_here(void)
{
    return (int)alq_syscall6(__NR_pivot_root, (long)".", (long)".", 0, 0, 0, 0);
}

static inline int alq_sys_prctl(int option, unsigned long value)
{
    return (int)alq_syscall6(__NR_prctl, option, (long)value, 0, 0, 0, 0);
}

/* fork(2): a child with a copy of this process, whose end is told by SIGCHLD; *pidfd is its own. */
static inline int alq_sys_fork(int *pidfd)
{
    return (int)alq_syscall6(__NR_clone, CLONE_PIDFD | 17, 0, (long)pidfd, 0, 0, 0);
}

static inline int alq_sys_kill(int pid, int number)
{
    return (int)alq_syscall6(__NR_kill, pid, number, 0, 0, 0, 0);
}

/* Whether fd can be read, or a process has ended, within that time. */
static inline int alq_sys_poll_in(int fd, int64_t wait_ns)
{
    struct {
        int fd;
        short events, revents;
    } poll = {fd, 1, 0};
    struct {
        int64_t s, ns;
    } wait = {0, wait_ns};
    return (int)alq_syscall6(__NR_ppoll, (long)&poll, 1, (long)&wait, 0, 0, 0);
}

static inline int alq_sys_wait(int pid, int *status)
{
    return (int)alq_syscall6(__NR_wait4, pid, (long)status, 0, 0, 0, 0);
}

static inline int alq_sys_execveat(int fd, const char *const *argv, const char *const *envp)
{
    return (int)alq_syscall6(__NR_execveat, fd, (long)"", (long)argv, (long)envp, AT_EMPTY_PATH, 0);
}

__attribute__((noreturn)) static inline void alq_sys_exit(int status)
{
    for (;;)
        alq_syscall6(__NR_exit_group, status, 0, 0, 0, 0, 0);
}

static inline void alq_close_fd(const int *fd)
{
    if (*fd >= 0)
        alq_sys_close(*fd);
}
#define alq_auto_fd __attribute__((cleanup(alq_close_fd))) int

/* Hands an alq_auto_fd over to the caller. */
static inline int alq_keep_fd(int *fd)
{
    int kept = *fd;
    *fd = -1;
    return kept;
}

#endif
