/* SPDX-License-Identifier: Apache-2.0 */
/* Paths inside a container's root, see rootfs.h. */
#include "hook/rootfs.h"

#include <linux/magic.h>
#include <stdalign.h>

#include "hook/hook.h"
#include "hook/sys.h"
#include "vgpu/text.h"

#define DEPTH_MAX 64
#define LINKS_MAX 40
#define NAME_BYTES 256
#define ENTRY_BYTES 16384
#define RETRIES 32 /* of openat2 while somebody renames directories */

int alq_rootfs_init(struct alq_rootfs *rootfs, int fd)
{
    struct statfs fs;
    int proc = alq_sys_open("/proc/self/fd", O_PATH | O_DIRECTORY, 0);
    if (proc < 0)
        return -ENODEV;
    if (alq_sys_fstatfs(proc, &fs) || fs.f_type != PROC_SUPER_MAGIC) {
        alq_sys_close(proc);
        return -ENODEV;
    }
    *rootfs = (struct alq_rootfs){.fd = fd, .proc = proc};
    return 0;
}

/* ---- the walk ---- */

struct walk {
    int root;
    int held[DEPTH_MAX]; /* the way from the root to where the walk is */
    int depth;
    int links;
    char rest[ALQ_PATH_BYTES]; /* still to go */
};

static int here(const struct walk *w)
{
    return w->depth ? w->held[w->depth - 1] : w->root;
}

static void back_to(struct walk *w, int depth)
{
    while (w->depth > depth)
        alq_sys_close(w->held[--w->depth]);
}

/* Takes the first name off rest. False at the end. *has_more: names follow, or a slash. */
static bool next_name(struct walk *w, size_t *at, char name[NAME_BYTES], bool *has_more, int *rc)
{
    size_t len = 0;
    while (w->rest[*at] == '/')
        ++*at;
    for (; w->rest[*at] && w->rest[*at] != '/'; ++*at) {
        if (len + 1 == NAME_BYTES) {
            *rc = -ENAMETOOLONG;
            return false;
        }
        name[len++] = w->rest[*at];
    }
    name[len] = '\0';
    *has_more = w->rest[*at] == '/';
    return len > 0;
}

/* What the link fd says takes its place at the front of rest. */
static int follow(struct walk *w, int fd, size_t at)
{
    char joined[ALQ_PATH_BYTES];
    struct alq_text text = alq_text_on(joined, sizeof(joined));
    if (++w->links > LINKS_MAX)
        return -ELOOP;
    long n = alq_sys_readlinkat(fd, "", joined, sizeof(joined));
    if (n < 0)
        return (int)n;
    if ((size_t)n >= sizeof(joined))
        return -ENAMETOOLONG;
    joined[n] = '\0';
    text.len = (size_t)n;
    if (joined[0] == '/')
        back_to(w, 0);
    alq_text_add(&text, w->rest + at);
    if (text.is_cut)
        return -ENAMETOOLONG;
    text = alq_text_on(w->rest, sizeof(w->rest));
    alq_text_add(&text, joined);
    return 0;
}

static int step(struct walk *w, const char *name, bool has_more, size_t *at)
{
    struct statx st;
    if (alq_text_is(name, "."))
        return 0;
    if (alq_text_is(name, "..")) {
        back_to(w, w->depth ? w->depth - 1 : 0);
        return 0;
    }
    alq_auto_fd fd = alq_sys_openat(here(w), name, O_PATH | O_NOFOLLOW, 0);
    int rc = fd < 0 ? fd : alq_sys_fstatx(fd, &st);
    if (rc < 0)
        return rc;
    if ((st.stx_mode & ALQ_S_TYPE) == ALQ_S_LINK) {
        rc = follow(w, fd, *at);
        *at = 0;
        return rc;
    }
    if (has_more && (st.stx_mode & ALQ_S_TYPE) != ALQ_S_DIR)
        return -ENOTDIR;
    if (w->depth == DEPTH_MAX)
        return -ENAMETOOLONG;
    w->held[w->depth++] = alq_keep_fd(&fd);
    return 0;
}

int alq_rootfs_walk(const struct alq_rootfs *rootfs, const char *path)
{
    struct walk w = {.root = rootfs->fd};
    char name[NAME_BYTES];
    bool has_more = false;
    size_t at = 0;
    int rc = 0;
    struct alq_text rest = alq_text_on(w.rest, sizeof(w.rest));
    alq_text_add(&rest, path);
    if (rest.is_cut)
        return -ENAMETOOLONG;
    while (!rc && next_name(&w, &at, name, &has_more, &rc))
        rc = step(&w, name, has_more, &at);
    if (!rc && w.depth)
        rc = w.held[--w.depth];
    else if (!rc)
        rc = alq_sys_openat(w.root, ".", O_PATH | O_DIRECTORY, 0);
    back_to(&w, 0);
    return rc;
}

/* ---- opening ---- */

int alq_rootfs_open(const struct alq_rootfs *rootfs, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = -EAGAIN;
    for (int i = 0; i < RETRIES && fd == -EAGAIN; i++)
        fd = alq_sys_openat2(rootfs->fd, path, &how);
    return fd == -ENOSYS || fd == -EPERM || fd == -EAGAIN ? alq_rootfs_walk(rootfs, path) : fd;
}

static int open_dir(const struct alq_rootfs *rootfs, const char *path)
{
    struct statx st;
    alq_auto_fd fd = alq_rootfs_open(rootfs, path);
    int rc = fd < 0 ? fd : alq_sys_fstatx(fd, &st);
    if (!rc && (st.stx_mode & ALQ_S_TYPE) != ALQ_S_DIR)
        rc = -ENOTDIR;
    return rc ? rc : alq_keep_fd(&fd);
}

/* The directory `prefix`, made in `parent` by the name that it ends with if it is missing. */
static int open_or_make(const struct alq_rootfs *rootfs, int parent, const char *prefix,
                        const char *name)
{
    int fd = open_dir(rootfs, prefix);
    if (fd != -ENOENT)
        return fd;
    int rc = alq_sys_mkdirat(parent, name, 0755);
    return rc && rc != -EEXIST ? rc : open_dir(rootfs, prefix);
}

int alq_rootfs_make_dir(const struct alq_rootfs *rootfs, const char *path)
{
    char prefix[ALQ_PATH_BYTES] = "/";
    struct alq_text text = {prefix, sizeof(prefix), 1, false};
    alq_auto_fd dir = open_dir(rootfs, "/");
    while (dir >= 0) {
        while (*path == '/')
            path++;
        if (!*path)
            break;
        size_t len = 0, start = text.len;
        while (path[len] && path[len] != '/')
            len++;
        alq_text_add_n(&text, path, len);
        const char *name = prefix + start;
        if (text.is_cut)
            return -ENAMETOOLONG;
        if (alq_text_is(name, ".") || alq_text_is(name, ".."))
            return -EINVAL;
        int next = open_or_make(rootfs, dir, prefix, name);
        alq_sys_close(dir);
        dir = next;
        alq_text_add(&text, "/");
        path += len;
    }
    return alq_keep_fd(&dir);
}

/* ---- reading ---- */

static int type_of(int fd)
{
    struct statx st;
    int rc = alq_sys_fstatx(fd, &st);
    return rc ? rc : st.stx_mode & ALQ_S_TYPE;
}

bool alq_is_regular(int fd)
{
    return type_of(fd) == ALQ_S_FILE;
}

static int reopen(const struct alq_rootfs *rootfs, int fd, int flags)
{
    char name[16];
    struct alq_text text = alq_text_on(name, sizeof(name));
    alq_text_add_u64(&text, (uint64_t)fd);
    return alq_sys_openat(rootfs->proc, name, O_RDONLY | flags, 0);
}

int alq_rootfs_reopen_file(const struct alq_rootfs *rootfs, int fd)
{
    int type = type_of(fd);
    if (type < 0)
        return type;
    if (type != ALQ_S_FILE)
        return type == ALQ_S_DIR ? -EISDIR : -EINVAL;
    return reopen(rootfs, fd, 0);
}

int alq_rootfs_reopen_dir(const struct alq_rootfs *rootfs, int fd)
{
    return reopen(rootfs, fd, O_DIRECTORY);
}

/* struct linux_dirent64 */
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};

int alq_rootfs_list(const struct alq_rootfs *rootfs, const char *path,
                    bool (*on_name)(void *arg, int dir, const char *name), void *arg)
{
    alignas(8) char entries[ENTRY_BYTES];
    alq_auto_fd found = alq_rootfs_open(rootfs, path);
    alq_auto_fd dir = found < 0 ? found : alq_rootfs_reopen_dir(rootfs, found);
    long bytes = dir;
    while (dir >= 0 && (bytes = alq_sys_getdents(dir, entries, sizeof(entries))) > 0) {
        for (long at = 0; at < bytes;) {
            const struct entry *e = (const void *)(entries + at);
            if (!on_name(arg, dir, e->name))
                return 0;
            at += e->bytes;
        }
    }
    return (int)bytes;
}

long alq_rootfs_read(const struct alq_rootfs *rootfs, int fd, char *out, size_t bytes)
{
    size_t len = 0;
    alq_auto_fd file = alq_rootfs_reopen_file(rootfs, fd);
    if (file < 0)
        return file;
    for (;;) {
        long n = alq_sys_read(file, out + len, bytes - len);
        if (n < 0)
            return n;
        if (!n)
            break;
        len += (size_t)n;
        if (len == bytes)
            return -EFBIG;
    }
    out[len] = '\0';
    return (long)len;
}

void alq_fd_path(int fd, char path[ALQ_FD_PATH_BYTES])
{
    struct alq_text text = alq_text_on(path, ALQ_FD_PATH_BYTES);
    alq_text_add(&text, "/proc/self/fd/");
    alq_text_add_u64(&text, (uint64_t)fd);
}
