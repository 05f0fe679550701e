/* SPDX-License-Identifier: Apache-2.0 */
/* Symbolic links in a container, see link.h. */
#include "hook/link.h"

#include "hook/container.h"
#include "hook/soname.h"
#include "hook/sys.h"
#include "vgpu/text.h"

int alq_link_put(int dir, const char *name, const char *target)
{
    char old[ALQ_PATH_BYTES], temporary[48];
    long n = alq_sys_readlinkat(dir, name, old, sizeof(old) - 1);
    old[n > 0 ? n : 0] = '\0';
    if (n > 0 && alq_text_is(old, target))
        return 0;
    int rc = alq_sys_symlinkat(target, dir, name);
    if (rc != -EEXIST)
        return rc;
    struct alq_text text = alq_text_on(temporary, sizeof(temporary));
    alq_text_add(&text, ".aliquot-hook-");
    alq_text_add_u64(&text, alq_sys_getpid());
    alq_sys_unlinkat(dir, temporary);
    rc = alq_sys_symlinkat(target, dir, temporary);
    if (rc)
        return rc;
    rc = alq_sys_renameat(dir, temporary, name);
    if (rc)
        alq_sys_unlinkat(dir, temporary);
    return rc == -EBUSY ? 0 : rc; /* a mount point */
}

/* ---- create-symlinks ---- */

static int create(const struct alq_rootfs *rootfs, const char *arg)
{
    char target[ALQ_PATH_BYTES], parent[ALQ_PATH_BYTES];
    size_t len = 0, slash = 0;
    while (arg[len] && (arg[len] != ':' || arg[len + 1] != ':'))
        len++;
    if (!len || !arg[len] || len >= sizeof(target))
        return alq_report(arg, "--link wants TARGET::PATH", -EINVAL);
    struct alq_text text = alq_text_on(target, sizeof(target));
    alq_text_add_n(&text, arg, len);
    const char *path = arg + len + 2;
    for (size_t i = 0; path[i]; i++) {
        if (path[i] == '/')
            slash = i;
    }
    const char *name = path + slash + 1;
    if (path[0] != '/' || !name[0] || alq_text_is(name, ".") || alq_text_is(name, ".."))
        return alq_report(arg, "--link wants an absolute PATH of a link", -EINVAL);
    text = alq_text_on(parent, sizeof(parent));
    alq_text_add_n(&text, path, slash);
    alq_auto_fd dir = text.is_cut ? -ENAMETOOLONG : alq_rootfs_make_dir(rootfs, parent);
    if (dir < 0)
        return alq_report(path, "directory of the link", dir);
    int rc = alq_link_put(dir, name, target);
    if (rc == -EROFS) /* for compilers and the like; programs ask for SONAMEs */
        return alq_report(path, "link not made: the root is read-only", 0);
    return rc ? alq_report(path, "making the link", rc) : 0;
}

int alq_create_symlinks(const struct alq_container *container, char **args, int count)
{
    const struct alq_rootfs *rootfs = &container->rootfs;
    for (int i = 0; i < count; i++) {
        int rc = create(rootfs, args[i]);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- links by SONAME ---- */

int alq_link_version_cmp(const char *a, const char *b)
{
    uint64_t x, y;
    while (*a && *b) {
        if (alq_text_read_u64(&a, &x) && alq_text_read_u64(&b, &y)) {
            if (x != y)
                return x < y ? -1 : 1;
            continue;
        }
        if (*a != *b)
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        a++;
        b++;
    }
    return (*a != '\0') - (*b != '\0');
}

/* "lib" and, somewhere after it, ".so." */
static bool is_library_name(const char *name)
{
    if (!alq_text_starts(name, "lib"))
        return false;
    for (; *name; name++) {
        if (alq_text_starts(name, ".so."))
            return true;
    }
    return false;
}

/* Whether `name` is a regular file here, and what its SONAME is. */
static bool read_library(const struct alq_rootfs *rootfs, int dir, const char *name,
                         struct alq_elf_facts *facts)
{
    alq_auto_fd path = alq_sys_openat(dir, name, O_PATH | O_NOFOLLOW, 0);
    alq_auto_fd file = path < 0 ? path : alq_rootfs_reopen_file(rootfs, path);
    return file >= 0 && !alq_elf_facts(file, facts) && facts->soname[0];
}

/* Whether the link that is there leads to a library of this SONAME that is no older. */
static bool is_link_good(const struct alq_rootfs *rootfs, int dir, const char *to, const char *name,
                         const char *soname)
{
    struct alq_elf_facts facts;
    for (const char *c = to; *c; c++) {
        if (*c == '/')
            return false;
    }
    return read_library(rootfs, dir, to, &facts) && alq_text_is(facts.soname, soname) &&
           alq_link_version_cmp(to, name) >= 0;
}

static int link_library(const struct alq_rootfs *rootfs, int dir, const char *name)
{
    struct alq_elf_facts facts;
    char to[ALQ_PATH_BYTES];
    if (!is_library_name(name) || !read_library(rootfs, dir, name, &facts) ||
        alq_text_is(facts.soname, name))
        return 0;
    long n = alq_sys_readlinkat(dir, facts.soname, to, sizeof(to) - 1);
    if (n == -EINVAL) /* not a link: a library by its own name, perhaps mounted */
        return 0;
    to[n > 0 ? n : 0] = '\0';
    if (n > 0 && is_link_good(rootfs, dir, to, name, facts.soname))
        return 0;
    int rc = alq_link_put(dir, facts.soname, name);
    return rc ? alq_report(facts.soname, "link by the SONAME", rc) : 0;
}

struct linking {
    const struct alq_rootfs *rootfs;
    int rc;
};

static bool on_name(void *arg, int dir, const char *name)
{
    struct linking *linking = arg;
    linking->rc = link_library(linking->rootfs, dir, name);
    return !linking->rc;
}

int alq_link_sonames(const struct alq_rootfs *rootfs, const char *folder)
{
    struct linking linking = {.rootfs = rootfs};
    int rc = alq_rootfs_list(rootfs, folder, on_name, &linking);
    if (rc == -ENOENT || rc == -ENOTDIR)
        return 0;
    return rc ? alq_report(folder, "directory of libraries", rc) : linking.rc;
}
