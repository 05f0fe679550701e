/* SPDX-License-Identifier: Apache-2.0 */
/* Files in memory for a container, see tmpfs.h. */
#include "hook/tmpfs.h"

#include "hook/container.h"
#include "hook/sys.h"
#include "vgpu/text.h"

int alq_tmpfs_new(const char *size)
{
    alq_auto_fd fs = alq_sys_fsopen("tmpfs");
    int rc = fs < 0 ? fs : alq_sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", size);
    if (!rc)
        rc = alq_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL);
    return rc ? rc : alq_sys_fsmount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

/* Without a label of its own the file would have that of a tmpfs, which containers may not read. */
static int put_label(const struct alq_container *container, int file)
{
    static const char name[] = "security.selinux";
    size_t len = alq_text_len(container->label);
    if (!len)
        return 0;
    int rc = alq_sys_fsetxattr(file, name, container->label, len + 1);
    return rc == -EOPNOTSUPP ? 0 : rc;
}

static int make_file(const struct alq_container *container, int mount, const char *data,
                     size_t bytes)
{
    alq_auto_fd file = alq_sys_openat(mount, "file", O_RDWR | O_CREAT | O_EXCL, 0444);
    if (file < 0)
        return file;
    for (size_t done = 0; done < bytes;) {
        long n = alq_sys_write(file, data + done, bytes - done);
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        done += (size_t)n;
    }
    int rc = put_label(container, file);
    return rc ? rc : alq_keep_fd(&file);
}

/* A file of a tmpfs can be bound once the tmpfs is mounted somewhere: for that long it covers the
 * container's root. */
static int bind_file(const struct alq_container *container, int mount, int file, int target)
{
    char from[ALQ_FD_PATH_BYTES], to[ALQ_FD_PATH_BYTES], tmpfs[ALQ_FD_PATH_BYTES];
    alq_fd_path(file, from);
    alq_fd_path(target, to);
    alq_fd_path(mount, tmpfs);
    int rc = alq_sys_move_mount(mount, container->rootfs.fd);
    if (rc)
        return rc;
    rc = alq_sys_mount(from, to, NULL, MS_BIND, NULL);
    int undone = alq_sys_umount(tmpfs);
    return rc ? rc : undone;
}

int alq_tmpfs_cover(const struct alq_container *container, const char *path, const char *data,
                    size_t bytes)
{
    char covered[ALQ_FD_PATH_BYTES];
    alq_auto_fd target = alq_rootfs_open(&container->rootfs, path);
    if (target < 0)
        return target;
    alq_auto_fd mount = alq_tmpfs_new("17m");
    if (mount < 0)
        return mount;
    alq_auto_fd file = make_file(container, mount, data, bytes);
    int rc = file < 0 ? file : bind_file(container, mount, file, target);
    if (rc < 0)
        return rc;
    alq_auto_fd bound = alq_rootfs_open(&container->rootfs, path);
    if (bound < 0)
        return bound;
    alq_fd_path(bound, covered);
    return alq_sys_mount(NULL, covered, NULL,
                         MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}
