/* SPDX-License-Identifier: Apache-2.0 */
/*
 * update-ldcache: the container's loader shall find the libraries of the given folders. Where the
 * image has a cache, the folders go into its configuration and the host's ldconfig makes the cache
 * anew (ldconfig.c), which in a read-only root is mounted over the old one; where it has none, or
 * that does not go, links by SONAME do for folders that the loader searches by itself.
 */
#include "hook/container.h"
#include "hook/ldconfig.h"
#include "hook/link.h"
#include "hook/sys.h"
#include "hook/tmpfs.h"
#include "vgpu/text.h"

#define CONF_DIR "/etc/ld.so.conf.d"
#define CONF_FIRST "00-aliquot.conf" /* an image's own driver is not the node's */
#define CONF_LAST "zz-aliquot.conf"
#define CONF_BYTES 65536
#define CACHE_PATH "/etc/ld.so.cache"
#define CACHE_BYTES (16u << 20)

#if defined(__x86_64__)
#define TRIPLET "x86_64-linux-gnu"
#define MUSL_LOADER "/lib/ld-musl-x86_64.so.1"
#define GLIBC_LOADER "/lib64/ld-linux-x86-64.so.2"
#elif defined(__aarch64__)
#define TRIPLET "aarch64-linux-gnu"
#define MUSL_LOADER "/lib/ld-musl-aarch64.so.1"
#define GLIBC_LOADER "/lib/ld-linux-aarch64.so.1"
#endif

static bool is_file(const struct alq_rootfs *rootfs, const char *path)
{
    alq_auto_fd fd = alq_rootfs_open(rootfs, path);
    return fd >= 0 && alq_is_regular(fd);
}

static bool is_musl(const struct alq_rootfs *rootfs)
{
    return is_file(rootfs, MUSL_LOADER) && !is_file(rootfs, GLIBC_LOADER);
}

static bool has_line(const char *text, const char *line)
{
    while (*text) {
        size_t len = 0;
        while (text[len] && text[len] != '\n')
            len++;
        size_t same = 0;
        while (same < len && line[same] == text[same])
            same++;
        if (same == len && !line[len])
            return true;
        text += len + (text[len] == '\n');
    }
    return false;
}

static int replace(int dir, const char *name, const char *data, size_t bytes)
{
    static const char temporary[] = ".aliquot-hook.new";
    size_t done = 0;
    long n = 0;
    alq_sys_unlinkat(dir, temporary);
    alq_auto_fd file =
        alq_sys_openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
    if (file < 0)
        return file;
    while (done < bytes && (n = alq_sys_write(file, data + done, bytes - done)) > 0)
        done += (size_t)n;
    int rc = n < 0 ? (int)n : done < bytes ? -ENOSPC : alq_sys_renameat(dir, temporary, name);
    if (rc)
        alq_sys_unlinkat(dir, temporary);
    return rc;
}

/* Adds the lines that the file lacks. */
static int add_lines(const struct alq_rootfs *rootfs, int dir, const char *name, char **lines,
                     int count)
{
    static char buffer[CONF_BYTES];
    alq_auto_fd old = alq_sys_openat(dir, name, O_PATH | O_NOFOLLOW, 0);
    long len = old < 0 ? -1 : alq_rootfs_read(rootfs, old, buffer, sizeof(buffer));
    struct alq_text conf = {buffer, sizeof(buffer), len > 0 ? (size_t)len : 0, false};
    size_t before = conf.len;
    buffer[conf.len] = '\0';
    if (conf.len && buffer[conf.len - 1] != '\n')
        alq_text_add(&conf, "\n");
    for (int i = 0; i < count; i++) {
        if (!has_line(buffer, lines[i])) {
            alq_text_add(&conf, lines[i]);
            alq_text_add(&conf, "\n");
        }
    }
    if (conf.is_cut)
        return -EFBIG;
    return conf.len == before ? 0 : replace(dir, name, conf.at, conf.len);
}

/* The directories that some distribution's loader searches by itself, which the host's ldconfig
 * need not know: without them the new cache would lack what the image's own had. How many are
 * there. */
#define SYSTEM_DIRS 4
static int system_dirs(const struct alq_rootfs *rootfs, char *found[SYSTEM_DIRS])
{
    static char dirs[SYSTEM_DIRS][32] = {"/lib/" TRIPLET, "/usr/lib/" TRIPLET, "/lib64",
                                         "/usr/lib64"};
    int count = 0;
    for (size_t i = 0; i < SYSTEM_DIRS; i++) {
        alq_auto_fd fd = alq_rootfs_open(rootfs, dirs[i]);
        if (fd >= 0)
            found[count++] = dirs[i];
    }
    return count;
}

/* For an ldconfig that runs in the container later (a package is installed). An image without the
 * directory has no such thing. */
static int put_conf(const struct alq_rootfs *rootfs, char **folders, int count)
{
    char *last[SYSTEM_DIRS];
    alq_auto_fd dir = alq_rootfs_open(rootfs, CONF_DIR);
    if (dir < 0)
        return dir == -ENOENT ? 0 : dir;
    int rc = add_lines(rootfs, dir, CONF_FIRST, folders, count);
    return rc ? rc : add_lines(rootfs, dir, CONF_LAST, last, system_dirs(rootfs, last));
}

static int run_ldconfig(const struct alq_container *container, char **folders, int count)
{
    static char buffer[CONF_BYTES];
    char *last[SYSTEM_DIRS];
    struct alq_text conf = alq_text_on(buffer, sizeof(buffer));
    for (int i = 0; i < count; i++) {
        alq_text_add(&conf, folders[i]);
        alq_text_add(&conf, "\n");
    }
    alq_text_add(&conf, "include /etc/ld.so.conf\n");
    int last_count = system_dirs(&container->rootfs, last);
    for (int i = 0; i < last_count; i++) {
        alq_text_add(&conf, last[i]);
        alq_text_add(&conf, "\n");
    }
    return conf.is_cut ? -EFBIG : alq_ldconfig_run(container, buffer);
}

static int install_cache(const struct alq_container *container, int made)
{
    static char cache[CACHE_BYTES];
    long len = alq_rootfs_read(&container->rootfs, made, cache, sizeof(cache));
    if (len < 0)
        return (int)len;
    alq_auto_fd etc = alq_rootfs_open(&container->rootfs, "/etc");
    int rc = etc < 0 ? etc : replace(etc, "ld.so.cache", cache, (size_t)len);
    return rc == -EROFS ? alq_tmpfs_cover(container, CACHE_PATH, cache, (size_t)len) : rc;
}

static int make_cache(const struct alq_container *container, char **folders, int count)
{
    int rc = put_conf(&container->rootfs, folders, count);
    if (rc && rc != -EROFS)
        return alq_report(CONF_DIR, "links by SONAME instead", rc);
    alq_auto_fd made = run_ldconfig(container, folders, count);
    if (made < 0)
        return made;
    rc = install_cache(container, made);
    return rc ? alq_report(CACHE_PATH, "links by SONAME instead", rc) : 0;
}

static bool has_cache(const struct alq_rootfs *rootfs)
{
    return is_file(rootfs, CACHE_PATH) && !is_musl(rootfs);
}

/* A line of ld.so.conf as it stands. */
static bool is_folder(const char *path)
{
    for (const char *c = path; *c; c++) {
        if ((unsigned char)*c <= ' ' || *c == 127 || *c == '#' || *c == ':' || *c == ',' ||
            *c == '=')
            return false;
    }
    return path[0] == '/' && alq_text_len(path) < ALQ_PATH_BYTES;
}

int alq_update_ldcache(const struct alq_container *container, char **folders, int count)
{
    const struct alq_rootfs *rootfs = &container->rootfs;
    for (int i = 0; i < count; i++) {
        if (!is_folder(folders[i]))
            return alq_report(
                folders[i],
                "--folder wants an absolute path without blanks and any of #:,=", -EINVAL);
    }
    if (has_cache(rootfs) && !make_cache(container, folders, count))
        return 0;
    for (int i = 0; i < count; i++) {
        int rc = alq_link_sonames(rootfs, folders[i]);
        if (rc)
            return rc;
    }
    return 0;
}
