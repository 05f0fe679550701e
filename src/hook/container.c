/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the container's root, see container.h. State and bundle are the runtime's own words. */
#include "hook/container.h"

#include "hook/oci.h"
#include "hook/sys.h"

#define STATE_BYTES_MAX (1u << 20)
#define CONFIG_BYTES_MAX (16u << 20)

static char text[CONFIG_BYTES_MAX];

/* The length, or -errno; -EFBIG from `bytes` on. */
static long read_all(int fd, size_t bytes)
{
    size_t len = 0;
    for (;;) {
        long n = alq_sys_read(fd, text + len, bytes - len);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? n : (long)len;
        len += (size_t)n;
        if (len == bytes)
            return -EFBIG;
    }
}

static int open_bundle(const struct alq_container *container)
{
    return alq_sys_open(container->bundle, O_PATH | O_DIRECTORY, 0);
}

int alq_container_open_root(const struct alq_container *container)
{
    alq_auto_fd bundle = open_bundle(container);
    return bundle < 0 ? bundle : alq_sys_openat(bundle, container->root, O_PATH | O_DIRECTORY, 0);
}

static int read_config(struct alq_container *container)
{
    static const char *const root_path[] = {"root", "path", NULL};
    static const char *const mount_label[] = {"linux", "mountLabel", NULL};
    alq_auto_fd bundle = open_bundle(container);
    if (bundle < 0)
        return alq_report(container->bundle, "bundle", bundle);
    alq_auto_fd config = alq_sys_openat(bundle, "config.json", O_RDONLY | O_NONBLOCK, 0);
    if (config < 0)
        return alq_report(container->bundle, "config.json of the bundle", config);
    long len = read_all(config, CONFIG_BYTES_MAX);
    if (len < 0)
        return alq_report(container->bundle, "config.json of the bundle", (int)len);
    int rc = alq_oci_string(text, (size_t)len, root_path, container->root, ALQ_PATH_BYTES);
    if (rc == -EBADMSG)
        return alq_report(container->bundle, "config.json of the bundle is not JSON", -EINVAL);
    if (rc)
        return alq_report(container->bundle, "root.path in config.json of the bundle", rc);
    rc = alq_oci_string(text, (size_t)len, mount_label, container->label, ALQ_LABEL_BYTES);
    if (rc && rc != -ENOENT)
        return alq_report(container->bundle, "linux.mountLabel in config.json of the bundle", rc);
    return 0;
}

int alq_container_open(struct alq_container *container, int state)
{
    static const char *const bundle[] = {"bundle", NULL};
    long len = read_all(state, STATE_BYTES_MAX);
    if (len < 0)
        return alq_report("standard input", "OCI state", (int)len);
    int rc = alq_oci_string(text, (size_t)len, bundle, container->bundle, ALQ_PATH_BYTES);
    if (rc == -EBADMSG)
        return alq_report("standard input", "no OCI state: not JSON", -EINVAL);
    if (rc || container->bundle[0] != '/')
        return alq_report("standard input", "no OCI state: bundle", rc ? rc : -EINVAL);
    rc = read_config(container);
    if (rc)
        return rc;
    int root = alq_container_open_root(container);
    if (root < 0)
        return alq_report(container->root, "root of the container", root);
    rc = alq_rootfs_init(&container->rootfs, root);
    return rc ? alq_report("/proc/self/fd", "/proc of the host", rc) : 0;
}

bool alq_container_is_host(const struct alq_container *container)
{
    struct statx ours, host;
    return !alq_sys_fstatx(container->rootfs.fd, &ours) &&
           !alq_sys_statx(AT_FDCWD, "/", 0, &host) && ours.stx_ino == host.stx_ino &&
           ours.stx_dev_major == host.stx_dev_major && ours.stx_dev_minor == host.stx_dev_minor;
}
