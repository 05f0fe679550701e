/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Share directories, see share_dir.h. The daemon is the only writer of control; usage belongs to
 * the containers once made, so it is read with pread and judged, never mapped. Blocking calls.
 */
#include "daemon/prepare/share_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/label.h"
#include "daemon/prepare/control.h"
#include "daemon/state/claim_spec.h"

char *alq_share_root(const struct alq_config *cfg)
{
    return alq_str_printf("%s/shares", cfg->run_dir);
}

/* Who may rename or add files here could give a container another one's share. */
static int check_owner(const char *dir, struct alq_err *err)
{
    struct stat st;
    if (stat(dir, &st))
        return alq_err_errno(err, errno, "%s", dir);
    if ((st.st_uid && st.st_uid != geteuid()) || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return alq_err_set(err, ALQ_EACCES,
                           "%s (mode %04o, user %u) may be written by others than root; give it to "
                           "root with mode 0755",
                           dir, (unsigned)st.st_mode & 07777, (unsigned)st.st_uid);
    return 0;
}

int alq_share_root_prepare(const struct alq_config *cfg, struct alq_err *err)
{
    alq_auto_free char *root = alq_share_root(cfg);
    struct statfs fs;
    if (!root)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_file_mkdirs(root, 0755, err);
    if (!rc)
        rc = check_owner(cfg->run_dir, err);
    if (!rc)
        rc = check_owner(root, err);
    if (rc)
        return rc;
    if (statfs(root, &fs))
        return alq_err_errno(err, errno, "%s", root);
    if (fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC && !cfg->is_non_tmpfs_allowed)
        return alq_err_set(err, ALQ_ENOTSUP,
                           "run dir %s is not on tmpfs: shares there would cost every container "
                           "page faults and outlive a boot; mount a tmpfs there, or for a test "
                           "pass --allow-non-tmpfs",
                           cfg->run_dir);
    return 0;
}

int alq_share_root_lock(const struct alq_config *cfg, int *fd, struct alq_err *err)
{
    alq_auto_free char *root = alq_share_root(cfg);
    alq_auto_close int lock = root ? open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (lock < 0)
        return alq_err_errno(err, root ? errno : ENOMEM, "%s", root ? root : "shares");
    if (flock(lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return alq_err_set(err, ALQ_EBUSY,
                           "another aliquotd, of another driver name or state directory, has its "
                           "shares in %s; give one of them a --run-dir of its own",
                           root);
    *fd = alq_steal_fd(&lock);
    return 0;
}

static void fill_values(const struct alq_config *cfg, const struct alq_share_spec *share,
                        struct alq_control_values *v)
{
    memset(v, 0, sizeof(*v));
    v->memory_limit_bytes = alq_share_memory_in_force(share);
    v->context_estimate_bytes = cfg->context_estimate_bytes;
    v->compute_limit_pct = alq_share_cores_in_force(share);
    v->policy = share->tuning.policy;
    v->priority = share->tuning.priority;
    v->log_level = share->tuning.log_level;
    v->memory_wait_s = share->tuning.wait_s;
    v->memory_spill_bytes = share->tuning.spill_bytes;
    v->time_correction_ppm = ALQ_TIME_CORRECTION_ONE;
}

/* Writes all of data at offset. */
static int write_at(int fd, const void *data, size_t len, off_t offset, const char *what,
                    struct alq_err *err)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, (const char *)data + done, len - done, offset + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return alq_err_errno(err, n ? errno : EIO, "writing %s", what);
        done += (size_t)n;
    }
    return 0;
}

/*
 * Opens name in the directory for reading and writing, made with the given mode when absent. A file
 * is preallocated in full, so that a full tmpfs is our error and not a container's SIGBUS, and it
 * never shrinks.
 */
static int open_file(int dir, const char *name, mode_t mode, size_t bytes, int *is_new, int *out,
                     const char *what, struct alq_err *err)
{
    struct stat st;
    *is_new = 1;
    alq_auto_close int fd =
        openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0 && errno == EEXIST) {
        *is_new = 0;
        fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    }
    if (fd < 0 || fstat(fd, &st))
        return alq_err_errno(err, errno, "%s", what);
    if (!S_ISREG(st.st_mode))
        return alq_err_set(err, ALQ_EIO, "%s is no regular file; remove it", what);
    if ((st.st_mode & 07777) != mode && fchmod(fd, mode))
        return alq_err_errno(err, errno, "mode of %s", what);
    alq_label_fd_for_containers(fd, what);
    if (bytes && (size_t)st.st_size < bytes) {
        int rc = posix_fallocate(fd, 0, (off_t)bytes);
        if (rc)
            return alq_err_errno(err, rc, "allocating %zu bytes for %s", bytes, what);
    }
    *out = alq_steal_fd(&fd);
    return 0;
}

/* The first publication, or one over a file that is no control file of this share. */
static int write_control(const struct alq_config *cfg, const struct alq_share_spec *share, int fd,
                         const char *what, struct alq_err *err)
{
    struct alq_control control;
    memset(&control, 0, sizeof(control));
    control.version = ALQ_SHARE_VERSION;
    control.bytes = ALQ_CONTROL_BYTES;
    memcpy(control.share_id, share->share_id, sizeof(control.share_id));
    memcpy(control.gpu_uuid, share->gpu_uuid, sizeof(control.gpu_uuid));
    fill_values(cfg, share, &control.values[0]);
    const uint64_t magic = ALQ_CONTROL_MAGIC;
    int rc = write_at(fd, &control, sizeof(control), 0, what, err);
    return rc ? rc : write_at(fd, &magic, sizeof(magic), 0, what, err);
}

static int ensure_control(const struct alq_config *cfg, const struct alq_share_spec *share, int dir,
                          int *is_new, const char *what, struct alq_err *err)
{
    alq_auto_close int fd = -1;
    struct alq_control have;
    struct alq_control_values limits;
    int rc = open_file(dir, "control", 0644, ALQ_CONTROL_BYTES, is_new, &fd, what, err);
    if (rc)
        return rc;
    ssize_t n = pread(fd, &have, sizeof(have), 0);
    if (n < 0)
        return alq_err_errno(err, errno, "reading %s", what);
    if (n != (ssize_t)sizeof(have) || have.magic != ALQ_CONTROL_MAGIC ||
        have.version != ALQ_SHARE_VERSION || have.bytes != ALQ_CONTROL_BYTES ||
        memcmp(have.share_id, share->share_id, sizeof(have.share_id)) != 0 ||
        memcmp(have.gpu_uuid, share->gpu_uuid, sizeof(have.gpu_uuid)) != 0)
        return write_control(cfg, share, fd, what, err);
    fill_values(cfg, share, &limits);
    return alq_control_publish(fd, &limits, what, err);
}

static int ensure_usage(const struct alq_share_spec *share, int dir, int *is_new, const char *what,
                        struct alq_err *err)
{
    alq_auto_close int fd = -1;
    uint32_t sections = share->tuning.spill_bytes ? ALQ_SECTION_HOST + 1 : ALQ_SECTION_DEVICE + 1;
    int rc = open_file(dir, "usage", 0666, ALQ_USAGE_BYTES(sections), is_new, &fd, what, err);
    if (rc)
        return rc;
    struct alq_usage_header have, want = {.magic = ALQ_USAGE_MAGIC,
                                          .version = ALQ_SHARE_VERSION,
                                          .header_bytes = ALQ_USAGE_HEADER_BYTES,
                                          .section_bytes = sizeof(struct alq_usage_section),
                                          .section_count = sections,
                                          .slot_count = ALQ_SLOTS,
                                          .slot_bytes = sizeof(struct alq_slot)};
    char uuid[ALQ_UUID_BYTES];
    const off_t uuid_at =
        ALQ_USAGE_HEADER_BYTES + (off_t)offsetof(struct alq_usage_section, gpu_uuid);
    const size_t once = offsetof(struct alq_usage_header, slot_high);
    if (pread(fd, &have, sizeof(have), 0) != (ssize_t)sizeof(have) ||
        pread(fd, uuid, sizeof(uuid), uuid_at) != (ssize_t)sizeof(uuid))
        return alq_err_errno(err, EIO, "reading %s", what);
    if (!memcmp(&have, &want, once) && !memcmp(uuid, share->gpu_uuid, sizeof(uuid)))
        return 0;
    /* New, or defaced by a container: only the fields written once are ours to set right. */
    rc = write_at(fd, share->gpu_uuid, sizeof(share->gpu_uuid), uuid_at, what, err);
    if (!rc)
        rc = write_at(fd, (const char *)&want + sizeof(want.magic), once - sizeof(want.magic),
                      sizeof(want.magic), what, err);
    return rc ? rc : write_at(fd, &want.magic, sizeof(want.magic), 0, what, err);
}

int alq_share_dir_ensure(const struct alq_config *cfg, const struct alq_share_spec *share,
                         unsigned *made, struct alq_err *err)
{
    alq_auto_free char *root = alq_share_root(cfg);
    alq_auto_free char *path = alq_str_printf("%s/shares/%s", cfg->run_dir, share->share_id);
    alq_auto_free char *control = alq_str_printf("%s/control", path);
    alq_auto_free char *usage = alq_str_printf("%s/usage", path);
    alq_auto_free char *cache = alq_str_printf("%s/hami.cache", path);
    if (!root || !path || !control || !usage || !cache)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_file_mkdirs(root, 0755, err);
    if (rc)
        return rc;
    /* Without a cluster its user is let in by an access list (standalone/access.h), whose mask a
     * chmod would change. */
    const mode_t mode = cfg->is_standalone ? 0700 : 0755;
    if (mkdir(path, mode) && errno != EEXIST)
        return alq_err_errno(err, errno, "share directory %s", path);
    alq_auto_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || (!cfg->is_standalone && fchmod(dir, mode)))
        return alq_err_errno(err, errno, "share directory %s", path);
    int news[3] = {0};
    alq_auto_close int fd = -1;
    rc = ensure_usage(share, dir, &news[0], usage, err);
    if (!rc)
        rc = open_file(dir, "hami.cache", 0666, 0, &news[1], &fd, cache, err);
    if (!rc)
        rc = ensure_control(cfg, share, dir, &news[2], control, err);
    if (!rc && made)
        *made += (unsigned)(news[0] + news[1] + news[2]);
    return rc;
}

int alq_share_dir_read(const struct alq_config *cfg, const char *share_id,
                       struct alq_share_spec *share)
{
    struct alq_control control;
    alq_auto_free char *path = alq_str_printf("%s/shares/%s/control", cfg->run_dir, share_id);
    alq_auto_close int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    if (fd < 0 || pread(fd, &control, sizeof(control), 0) != (ssize_t)sizeof(control) ||
        control.magic != ALQ_CONTROL_MAGIC || control.version != ALQ_SHARE_VERSION ||
        strncmp(control.share_id, share_id, sizeof(control.share_id)) != 0 ||
        !memchr(control.gpu_uuid, '\0', sizeof(control.gpu_uuid)))
        return -1;
    const struct alq_control_values *in_force = &control.values[control.sequence & 1];
    if (in_force->memory_limit_bytes > INT64_MAX || in_force->compute_limit_pct > ALQ_CORES_ALL)
        return -1;
    memset(share, 0, sizeof(*share));
    snprintf(share->share_id, sizeof(share->share_id), "%s", share_id);
    memcpy(share->gpu_uuid, control.gpu_uuid, sizeof(share->gpu_uuid));
    share->memory_bytes = in_force->memory_limit_bytes;
    share->cores_pct = in_force->compute_limit_pct;
    return 0;
}

int alq_share_dir_is_in_use(const struct alq_config *cfg, const char *share_id)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}; /* the whole file */
    alq_auto_free char *path = alq_str_printf("%s/shares/%s/usage", cfg->run_dir, share_id);
    alq_auto_close int fd = path ? open(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
    return fd >= 0 && !fcntl(fd, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

int alq_share_dir_remove(const struct alq_config *cfg, const char *share_id, struct alq_err *err)
{
    alq_auto_free char *path = alq_str_printf("%s/shares/%s", cfg->run_dir, share_id);
    if (!path)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return alq_file_remove_tree(path, err);
}
