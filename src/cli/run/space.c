/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Namespaces and mounts, see space.h. A directory that lacks what must be mounted in it, and that
 * nobody may write to, is replaced by a copy whose entries are the host's, mounted one by one: for
 * /etc only where the kernel gives users no overlay (before 5.11, or with files mounted in it).
 */
#include "cli/run/space.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "aliquot/share.h"
#include "base/cleanup.h"
#include "base/file.h"

#define PRELOAD "/etc/ld.so.preload"
#define OWN ALQ_SHARE_ROOT "/.aliquot" /* hidden names are no shares */
#define OWN_ETC OWN "/etc"

/* ---- namespaces -------------------------------------------------------------------------------
 */

static int write_text(const char *path, const char *text, struct alq_err *err)
{
    alq_auto_close int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return alq_err_errno(err, errno, "writing %s", path);
    return 0;
}

/* A number that a file of /proc/sys holds; -1: there is no such file. */
static int setting(const char *path)
{
    char text[24];
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (int)strtol(text, NULL, 10) : -1;
}

static int no_namespaces(int errnum, struct alq_err *err)
{
    const char *why = "this kernel or container does not allow it";
    if (setting("/proc/sys/kernel/unprivileged_userns_clone") == 0)
        why = "sysctl kernel.unprivileged_userns_clone is 0";
    else if (setting("/proc/sys/user/max_user_namespaces") == 0)
        why = "sysctl user.max_user_namespaces is 0";
    else if (setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1)
        why = "sysctl kernel.apparmor_restrict_unprivileged_userns is 1";
    return alq_err_set(err, ALQ_ENOTSUP,
                       "no private namespaces for this user (%s: %s); change that, run as root, or "
                       "use --preload-env",
                       strerror(errnum), why);
}

static int enter_user_namespace(struct alq_err *err)
{
    char map[64];
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
        return no_namespaces(errno, err);
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)uid, (unsigned)uid);
    int rc = write_text("/proc/self/setgroups", "deny", err);
    if (!rc)
        rc = write_text("/proc/self/uid_map", map, err);
    snprintf(map, sizeof(map), "%u %u 1", (unsigned)gid, (unsigned)gid);
    return rc ? rc : write_text("/proc/self/gid_map", map, err);
}

static int enter_namespaces(struct alq_err *err)
{
    if (geteuid() != 0 || unshare(CLONE_NEWNS)) {
        int rc = enter_user_namespace(err);
        if (rc)
            return rc;
    }
    /* What the host mounts later is seen; what is mounted here is not. AppArmor lets users have
     * namespaces and no mounts. */
    return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) ? no_namespaces(errno, err) : 0;
}

/* ---- mounts -----------------------------------------------------------------------------------
 */

/* Adds flags to a mount and keeps those that it has: a user must not take them off. */
static int restrict_mount(const char *path, unsigned long flags, struct alq_err *err)
{
    static const struct {
        unsigned long has, keep;
    } kept[] = {{ST_RDONLY, MS_RDONLY}, {ST_NOSUID, MS_NOSUID},   {ST_NODEV, MS_NODEV},
                {ST_NOEXEC, MS_NOEXEC}, {ST_NOATIME, MS_NOATIME}, {ST_NODIRATIME, MS_NODIRATIME}};
    struct statvfs fs;
    if (statvfs(path, &fs))
        return alq_err_errno(err, errno, "%s", path);
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        if (fs.f_flag & kept[i].has)
            flags |= kept[i].keep;
    if (mount(NULL, path, NULL, MS_REMOUNT | MS_BIND | flags, NULL))
        return alq_err_errno(err, errno, "mount options of %s", path);
    return 0;
}

static int make_file(const char *path, const char *text, struct alq_err *err)
{
    alq_auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        return alq_err_errno(err, errno, "making %s", path);
    return 0;
}

static int bind_file(const char *from, const char *to, unsigned long flags, struct alq_err *err)
{
    int rc = make_file(to, "", err);
    if (rc)
        return rc;
    if (mount(from, to, NULL, MS_BIND, NULL))
        return alq_err_errno(err, errno, "mounting %s", from);
    return restrict_mount(to, flags, err);
}

static void copy_entry(int old, const char *dir, const char *name)
{
    struct stat st;
    char target[PATH_MAX];
    alq_auto_free char *path = alq_str_printf("%s/%s", dir, name);
    alq_auto_free char *from = alq_str_printf("/proc/self/fd/%d/%s", old, name);
    if (!path || !from || fstatat(old, name, &st, AT_SYMLINK_NOFOLLOW))
        return;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlinkat(old, name, target, sizeof(target) - 1);
        target[n < 0 ? 0 : n] = '\0';
        if (symlink(target, path))
            return; /* a link that cannot be made is missed by who follows it */
    } else if (S_ISDIR(st.st_mode)) {
        if (!mkdir(path, 0755) && mount(from, path, NULL, MS_BIND | MS_REC, NULL))
            rmdir(path);
    } else if (!make_file(path, "", NULL) && mount(from, path, NULL, MS_BIND, NULL)) {
        unlink(path);
    }
}

/* Puts a directory that can be written to in place of dir, with what was in it. */
static int copy_directory(const char *dir, struct alq_err *err)
{
    alq_auto_close int old = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int again = old < 0 ? -1 : dup(old);
    alq_auto_closedir DIR *entries = again < 0 ? NULL : fdopendir(again);
    if (!entries)
        return alq_err_errno(err, errno, "%s", dir);
    if (mount("tmpfs", dir, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=4m"))
        return alq_err_errno(err, errno, "mounting on %s", dir);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            copy_entry(old, dir, entry->d_name);
    return 0;
}

/* A directory of the host to mount on, made in a copy of its parent where it is missing. */
static int make_mount_point(const char *path, struct alq_err *err)
{
    char part[PATH_MAX];
    int is_copy = 0;
    for (const char *end = path; *end;) {
        end = strchrnul(end + 1, '/');
        snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
        if (!access(part, F_OK))
            continue;
        char *slash = strrchr(part, '/');
        *slash = '\0';
        int rc = is_copy ? 0 : copy_directory(*part ? part : "/", err);
        if (rc)
            return rc;
        is_copy = 1;
        *slash = '/';
        if (mkdir(part, 0755))
            return alq_err_errno(err, errno, "making %s", part);
    }
    return 0;
}

static int mount_shares(const struct alq_space *space, struct alq_err *err)
{
    static const struct {
        const char *name;
        unsigned long flags;
    } files[] = {{"control", MS_RDONLY}, {"usage", 0}, {"hami.cache", 0}};
    int rc = make_mount_point(ALQ_SHARE_ROOT, err);
    if (rc)
        return rc;
    if (mount("tmpfs", ALQ_SHARE_ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=1m"))
        return alq_err_errno(err, errno, "mounting on " ALQ_SHARE_ROOT);
    for (size_t i = 0; i < space->share_count; i++) {
        const struct alq_space_share *share = &space->shares[i];
        alq_auto_free char *dir = alq_str_printf(ALQ_SHARE_ROOT "/%s", share->id);
        if (!dir || mkdir(dir, 0755))
            return alq_err_errno(err, errno, "making a directory in " ALQ_SHARE_ROOT);
        for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
            alq_auto_free char *from = alq_str_printf("%s/%s", share->directory, files[k].name);
            alq_auto_free char *to = alq_str_printf("%s/%s", dir, files[k].name);
            rc = from && to
                     ? bind_file(from, to, files[k].flags | MS_NOSUID | MS_NODEV | MS_NOEXEC, err)
                     : alq_err_set(err, ALQ_ENOMEM, "out of memory");
            if (rc)
                return rc;
        }
    }
    return 0;
}

/* What is preloaded already stays so; ours comes last. */
static char *preload_text(const char *library, int *has_file)
{
    alq_auto_free char *have = NULL;
    size_t len = 0;
    *has_file = !access(PRELOAD, F_OK);
    if (*has_file && alq_file_read_target(PRELOAD, 65536, &have, &len, NULL))
        return NULL;
    return alq_str_printf("%s%s%s\n", len ? have : "", len && have[len - 1] != '\n' ? "\n" : "",
                          library);
}

static int mount_preload(const struct alq_space *space, struct alq_err *err)
{
    int has_file = 0;
    alq_auto_free char *text = preload_text(space->library, &has_file);
    if (!text)
        return alq_err_set(err, ALQ_EIO, PRELOAD " is there and cannot be read");
    if (mkdir(OWN, 0755) || mkdir(OWN_ETC, 0755))
        return alq_err_errno(err, errno, "making " OWN_ETC);
    int rc = make_file(OWN_ETC "/ld.so.preload", text, err);
    if (rc)
        return rc;
    if (has_file)
        return mount(OWN_ETC "/ld.so.preload", PRELOAD, NULL, MS_BIND, NULL)
                   ? alq_err_errno(err, errno, "mounting on " PRELOAD)
                   : 0;
    if (!mount("overlay", "/etc", "overlay", MS_RDONLY, "lowerdir=" OWN_ETC ":/etc"))
        return 0;
    rc = copy_directory("/etc", err);
    return rc ? rc : make_file(PRELOAD, text, err);
}

/* Through a mount without devices a node cannot be opened, not even by root. */
static int hide_gpu(unsigned minor, struct alq_err *err)
{
    char path[32];
    snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
    if (access(path, F_OK))
        return 0;
    if (mount(path, path, NULL, MS_BIND, NULL))
        return alq_err_errno(err, errno, "mounting on %s", path);
    return restrict_mount(path, MS_NODEV, err);
}

int alq_space_enter(const struct alq_space *space, struct alq_err *err)
{
    int rc = enter_namespaces(err);
    if (!rc)
        rc = mount_shares(space, err);
    if (!rc)
        rc = mount_preload(space, err);
    if (!rc)
        rc = restrict_mount(ALQ_SHARE_ROOT, MS_RDONLY, err);
    for (size_t i = 0; !rc && i < space->hidden_count; i++)
        rc = hide_gpu(space->hidden[i], err);
    return rc;
}
