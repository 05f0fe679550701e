/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disable-device-node-modification: NVIDIA's programs make missing device nodes as
 * /proc/driver/nvidia/params allows, and would make those of GPUs that are not the container's. In
 * the container the file gets another text, a read-only mount that says ModifyDeviceFiles: 0.
 */
#include "hook/container.h"
#include "hook/sys.h"
#include "vgpu/text.h"

#define PARAMS_DIR "/proc/driver/nvidia"
#define PARAMS_PATH PARAMS_DIR "/params"
#define PARAMS_BYTES 65536
#define KEY "ModifyDeviceFiles: "

/* Puts 0 behind the key. False when it is 0 already, or the driver has no such line. */
static bool forbid(const char *params, struct alq_text *out)
{
    bool is_changed = false;
    while (*params) {
        size_t len = 0;
        while (params[len] && params[len] != '\n')
            len++;
        len += params[len] == '\n';
        if (alq_text_starts(params, KEY) && !alq_text_starts(params, KEY "0\n")) {
            alq_text_add(out, KEY "0\n");
            is_changed = true;
        } else {
            alq_text_add_n(out, params, len);
        }
        params += len;
    }
    return is_changed;
}

/* A tmpfs that is mounted nowhere yet, with the file in it. */
static int make_file(const struct alq_text *params, int *file)
{
    alq_auto_fd fs = alq_sys_fsopen("tmpfs");
    int rc = fs < 0 ? fs : alq_sys_fsconfig(fs, FSCONFIG_SET_STRING, "size", "64k");
    if (!rc)
        rc = alq_sys_fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL);
    alq_auto_fd mount =
        rc ? rc : alq_sys_fsmount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    if (mount < 0)
        return mount;
    alq_auto_fd made = alq_sys_openat(mount, "params", O_RDWR | O_CREAT | O_EXCL, 0444);
    if (made < 0)
        return made;
    long n = alq_sys_write(made, params->at, params->len);
    if (n < 0 || (size_t)n != params->len)
        return n < 0 ? (int)n : -ENOSPC;
    *file = alq_keep_fd(&made);
    return alq_keep_fd(&mount);
}

/* A file of a tmpfs can be bound once the tmpfs is mounted somewhere: for that long it covers the
 * directory, whose file is held by `target`. */
static int cover(const struct alq_rootfs *rootfs, int target, const struct alq_text *params)
{
    char from[ALQ_FD_PATH_BYTES], to[ALQ_FD_PATH_BYTES], tmpfs[ALQ_FD_PATH_BYTES];
    int made = -1;
    alq_auto_fd dir = alq_rootfs_open(rootfs, PARAMS_DIR);
    alq_auto_fd mount = dir < 0 ? dir : make_file(params, &made);
    alq_auto_fd file = made;
    if (mount < 0)
        return mount;
    int rc = alq_sys_move_mount(mount, dir);
    if (rc)
        return rc;
    alq_fd_path(file, from);
    alq_fd_path(target, to);
    alq_fd_path(mount, tmpfs);
    rc = alq_sys_mount(from, to, NULL, MS_BIND, NULL);
    int undone = alq_sys_umount(tmpfs);
    if (rc || undone)
        return rc ? rc : undone;
    alq_auto_fd covered = alq_rootfs_open(rootfs, PARAMS_PATH);
    if (covered < 0)
        return covered;
    alq_fd_path(covered, to);
    return alq_sys_mount(NULL, to, NULL,
                         MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

int alq_disable_device_node_modification(const struct alq_container *container, char **args,
                                         int count)
{
    static char old[PARAMS_BYTES], changed[PARAMS_BYTES + sizeof(KEY)];
    struct alq_text text = alq_text_on(changed, sizeof(changed));
    const struct alq_rootfs *rootfs = &container->rootfs;
    (void)args;
    (void)count;
    alq_auto_fd target = alq_rootfs_open(rootfs, PARAMS_PATH);
    if (target == -ENOENT || target == -ENOTDIR) /* no driver, or no /proc */
        return 0;
    long len = target < 0 ? target : alq_rootfs_read(rootfs, target, old, sizeof(old));
    if (len < 0)
        return alq_report(PARAMS_PATH, "reading", (int)len);
    if (!forbid(old, &text))
        return 0;
    int rc = cover(rootfs, target, &text);
    return rc ? alq_report(PARAMS_PATH, "mounting over it", rc) : 0;
}
