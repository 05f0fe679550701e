/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole-or-absent files and directory trees. Every step after the first works relative to an open
 * directory, so that a directory renamed meanwhile cannot send a write elsewhere. Blocking; any
 * thread; the only state is the number in the names of temporaries.
 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

#define COPY_CHUNK_BYTES (64 * 1024)
#define TEMPORARY_TRIES 128
/* Deeper than any tree of ours; bounds the descriptors that removing one can take. */
#define TREE_DEPTH_MAX 64

static atomic_uint next_temporary; /* any thread, relaxed: only uniqueness matters */

/* Where a path's last component lives: an open directory and a name in it. */
struct place {
    int dir;
    char name[NAME_MAX + 1];
};

static int open_place(const char *path, struct place *place, struct alq_err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return alq_err_set(err, ALQ_EINVAL, "path \"%s\" does not end in a file name", path);
    if (strlen(name) > NAME_MAX)
        return alq_err_errno(err, ENAMETOOLONG, "cannot use %s", path);
    alq_auto_free char *parent = !slash          ? strdup(".")
                                 : slash == path ? strdup("/")
                                                 : strndup(path, (size_t)(slash - path));
    if (!parent)
        return alq_err_errno(err, ENOMEM, "cannot use %s", path);
    int dir = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return alq_err_errno(err, errno, "cannot open directory %s", parent);
    place->dir = dir;
    strcpy(place->name, name);
    return 0;
}

static void close_place(struct place *place)
{
    if (place->dir >= 0)
        close(place->dir);
}
#define auto_place __attribute__((cleanup(close_place)))

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -1;
        }
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

static ssize_t read_some(int fd, void *buf, size_t size)
{
    ssize_t n;
    do {
        n = read(fd, buf, size);
    } while (n < 0 && errno == EINTR);
    return n;
}

/* Some file systems cannot sync a directory and say EINVAL; their renames are as durable as they
 * get. */
static int sync_dir(int dir)
{
    if (fsync(dir) == 0 || errno == EINVAL || errno == ENOTSUP)
        return 0;
    return -1;
}

/* Creates a temporary beside the target. A name in the way is a leftover of an earlier process with
 * our number (a daemon is PID 1 in its container at every start): the next number is tried. */
static int open_temporary(const struct place *place, char *name, size_t size)
{
    for (int i = 0; i < TEMPORARY_TRIES; i++) {
        unsigned n = atomic_fetch_add_explicit(&next_temporary, 1, memory_order_relaxed);
        int len = snprintf(name, size, ".%s.tmp-%ld-%u", place->name, (long)getpid(), n);
        if (len < 0 || len > NAME_MAX) {
            errno = ENAMETOOLONG;
            return -1;
        }
        int fd =
            openat(place->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* What goes into the file: bytes, or all that another descriptor gives. */
struct source {
    const char *data;
    size_t len;
    int fd; /* -1: data */
};

static int write_source(int fd, const struct source *source)
{
    if (source->fd < 0)
        return write_all(fd, source->data, source->len);
    alq_auto_free char *chunk = malloc(COPY_CHUNK_BYTES);
    if (!chunk) {
        errno = ENOMEM;
        return -1;
    }
    ssize_t n;
    while ((n = read_some(source->fd, chunk, COPY_CHUNK_BYTES)) > 0) {
        if (write_all(fd, chunk, (size_t)n) < 0)
            return -1;
    }
    return n < 0 ? -1 : 0;
}

/* Fills and closes fd. Close is checked: file systems with delayed allocation or quotas may fail
 * there first. */
static int finish_temporary(int fd, const struct source *source, mode_t mode, int is_durable)
{
    int failed =
        write_source(fd, source) < 0 || fchmod(fd, mode) < 0 || (is_durable && fsync(fd) < 0);
    int saved = errno;
    if (close(fd) < 0 && !failed) {
        failed = 1;
        saved = errno;
    }
    errno = saved;
    return failed ? -1 : 0;
}

static int replace(const char *path, const struct source *source, mode_t mode, int is_durable,
                   struct alq_err *err)
{
    auto_place struct place place = {-1, ""};
    int rc = open_place(path, &place, err);
    if (rc < 0)
        return alq_err_wrap(err, "cannot write %s", path);
    char temporary[NAME_MAX + 64];
    int fd = open_temporary(&place, temporary, sizeof(temporary));
    if (fd < 0)
        return alq_err_errno(err, errno, "cannot write %s", path);
    if (finish_temporary(fd, source, mode, is_durable) < 0 ||
        renameat(place.dir, temporary, place.dir, place.name) < 0) {
        int saved = errno;
        unlinkat(place.dir, temporary, 0);
        return alq_err_errno(err, saved, "cannot write %s", path);
    }
    if (is_durable && sync_dir(place.dir) < 0)
        return alq_err_errno(err, errno, "cannot sync the directory of %s", path);
    return 0;
}

int alq_file_write_atomic(const char *path, const void *data, size_t len, mode_t mode,
                          int is_durable, struct alq_err *err)
{
    return replace(path, &(struct source){data, len, -1}, mode, is_durable, err);
}

/* O_NONBLOCK: a FIFO in a file's place must not hold us. */
static int open_regular(const char *path, int flags, struct stat *st, int *out, struct alq_err *err)
{
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
    if (fd < 0 && errno == ELOOP && (flags & O_NOFOLLOW))
        return alq_err_set(err, ALQ_EINVAL, "cannot read %s: it is a symbolic link", path);
    if (fd < 0 || fstat(fd, st) < 0)
        return alq_err_errno(err, errno, "cannot read %s", path);
    if (!S_ISREG(st->st_mode))
        return alq_err_set(err, ALQ_EINVAL, "cannot read %s: it is not a regular file", path);
    *out = alq_steal_fd(&fd);
    return 0;
}

static int read_whole(const char *path, int flags, size_t max_bytes, char **data, size_t *len,
                      struct alq_err *err)
{
    alq_auto_close int fd = -1;
    struct stat st;
    int rc = open_regular(path, flags, &st, &fd, err);
    if (rc < 0)
        return rc;

    /* st_size is a hint: files of /proc say 0, and a file may grow while it is read. */
    size_t capacity = st.st_size > 0 ? (size_t)st.st_size : 4096;
    if (capacity > max_bytes)
        capacity = max_bytes;
    size_t used = 0;
    alq_auto_free char *buf = malloc(capacity + 1);
    if (!buf)
        return alq_err_errno(err, ENOMEM, "cannot read %s", path);
    for (;;) {
        ssize_t n = read_some(fd, buf + used, capacity + 1 - used);
        if (n < 0)
            return alq_err_errno(err, errno, "cannot read %s", path);
        if (n == 0)
            break;
        used += (size_t)n;
        if (used <= capacity)
            continue;
        if (capacity >= max_bytes)
            return alq_err_set(err, ALQ_ERANGE, "cannot read %s: it is larger than %zu bytes", path,
                               max_bytes);
        size_t larger = capacity > max_bytes / 2 ? max_bytes : capacity * 2;
        char *grown = realloc(buf, larger + 1);
        if (!grown)
            return alq_err_errno(err, ENOMEM, "cannot read %s", path);
        buf = grown;
        capacity = larger;
    }
    buf[used] = '\0';
    *data = alq_steal(&buf);
    *len = used;
    return 0;
}

int alq_file_read(const char *path, size_t max_bytes, char **data, size_t *len, struct alq_err *err)
{
    return read_whole(path, O_NOFOLLOW, max_bytes, data, len, err);
}

int alq_file_read_target(const char *path, size_t max_bytes, char **data, size_t *len,
                         struct alq_err *err)
{
    return read_whole(path, 0, max_bytes, data, len, err);
}

/* mkdir, then the part of the mode that the umask took away (none of it in a daemon, which a kill
 * in between must not leave with another mode). An existing directory, or a link to one, is success
 * and left alone. */
static int make_dir(const char *path, mode_t mode, struct alq_err *err)
{
    if (mkdir(path, mode) == 0) {
        if (chmod(path, mode) < 0)
            return alq_err_errno(err, errno, "cannot set the mode of %s", path);
        return 0;
    }
    int saved = errno;
    struct stat st;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return 0;
        return alq_err_set(err, ALQ_EEXIST, "cannot create directory %s: a file is in the way",
                           path);
    }
    return alq_err_errno(err, saved, "cannot create directory %s", path);
}

int alq_file_mkdirs(const char *path, mode_t mode, struct alq_err *err)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len == 0)
        return alq_err_set(err, ALQ_EINVAL, "cannot create a directory without a name");
    alq_auto_free char *copy = strndup(path, len);
    if (!copy)
        return alq_err_errno(err, ENOMEM, "cannot create directory %s", path);
    for (size_t i = 1; i < len; i++) {
        if (copy[i] != '/' || copy[i - 1] == '/')
            continue;
        copy[i] = '\0';
        int rc = make_dir(copy, 0755, err);
        copy[i] = '/';
        if (rc < 0)
            return rc;
    }
    return make_dir(copy, mode, err);
}

int alq_file_remove(const char *path, int is_durable, struct alq_err *err)
{
    if (!is_durable) {
        if (unlink(path) < 0 && errno != ENOENT)
            return alq_err_errno(err, errno, "cannot remove %s", path);
        return 0;
    }
    auto_place struct place place = {-1, ""};
    struct alq_err local = ALQ_ERR_INIT;
    int rc = open_place(path, &place, &local);
    if (rc == ALQ_ENOENT)
        return 0;
    if (rc < 0)
        return alq_err_set(err, rc, "cannot remove %s: %s", path, local.text);
    if (unlinkat(place.dir, place.name, 0) < 0) {
        if (errno == ENOENT)
            return 0;
        return alq_err_errno(err, errno, "cannot remove %s", path);
    }
    if (sync_dir(place.dir) < 0)
        return alq_err_errno(err, errno, "cannot sync the directory of %s", path);
    return 0;
}

static int remove_entry(int dir, const char *name, int depth);

/* Empties the directory behind fd, which it takes over. */
static int empty_dir(int fd, int depth)
{
    alq_auto_closedir DIR *stream = fdopendir(fd);
    if (!stream) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    struct dirent *entry;
    while ((errno = 0, entry = readdir(stream)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (remove_entry(dirfd(stream), entry->d_name, depth) < 0)
            return -1;
    }
    return errno ? -1 : 0;
}

static int remove_entry(int dir, const char *name, int depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    /* unlink of a directory is EISDIR on Linux, EPERM by POSIX; anything else is a real refusal. */
    if (errno != EISDIR && errno != EPERM)
        return -1;
    int saved = errno;
    if (depth >= TREE_DEPTH_MAX) {
        errno = ELOOP;
        return -1;
    }
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOTDIR)
            errno = saved;
        return errno == ENOENT ? 0 : -1;
    }
    if (empty_dir(fd, depth + 1) < 0)
        return -1;
    return unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -1 : 0;
}

int alq_file_remove_tree(const char *path, struct alq_err *err)
{
    if (remove_entry(AT_FDCWD, path, 0) < 0)
        return alq_err_errno(err, errno, "cannot remove %s", path);
    return 0;
}

int alq_file_copy_atomic(const char *src, const char *dst, mode_t mode, struct alq_err *err)
{
    alq_auto_close int fd = -1;
    struct stat st;
    int rc = open_regular(src, 0, &st, &fd, err);
    if (rc < 0)
        return rc;
    return replace(dst, &(struct source){NULL, 0, fd}, mode, 0, err);
}

/* ".<name>.tmp-<digits>-<digits>" and nothing else. */
static int is_temporary(const char *name)
{
    if (name[0] != '.')
        return 0;
    const char *mark = NULL;
    for (const char *at = strstr(name + 1, ".tmp-"); at; at = strstr(at + 1, ".tmp-"))
        mark = at;
    if (!mark || mark == name + 1)
        return 0;
    const char *s = mark + strlen(".tmp-");
    size_t pid = strspn(s, "0123456789");
    if (pid == 0 || s[pid] != '-')
        return 0;
    s += pid + 1;
    size_t number = strspn(s, "0123456789");
    return number > 0 && s[number] == '\0';
}

int alq_file_sweep_temporaries(const char *dir, struct alq_err *err)
{
    alq_auto_closedir DIR *stream = opendir(dir);
    if (!stream)
        return alq_err_errno(err, errno, "cannot read directory %s", dir);
    int count = 0, rc = 0;
    struct dirent *entry;
    while ((errno = 0, entry = readdir(stream)) != NULL) {
        if (!is_temporary(entry->d_name))
            continue;
        if (unlinkat(dirfd(stream), entry->d_name, 0) == 0)
            count++;
        else if (errno != ENOENT)
            rc = alq_err_errno(err, errno, "cannot remove %s/%s", dir, entry->d_name);
    }
    if (errno)
        return alq_err_errno(err, errno, "cannot read directory %s", dir);
    return rc ? rc : count;
}

char *alq_file_beside(const char *name, const char *in_tree, const char *installed_dir)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = '\0';
    char *places[] = {
        slash ? alq_str_printf("%s/../libexec/aliquot/%s", exe, name) : NULL,
        slash ? alq_str_printf("%s/../%s/%s", exe, in_tree, name) : NULL,
        alq_str_printf("%s/%s", installed_dir, name),
    };
    char *found = NULL;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (!found && places[i] && !access(places[i], F_OK))
            found = places[i];
        else
            free(places[i]);
    }
    return found;
}

char *alq_str_printf(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : text;
}
