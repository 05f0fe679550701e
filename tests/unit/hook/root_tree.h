/* SPDX-License-Identifier: Apache-2.0 */
/* A container's root and, beside it, what is the host's, below one temporary directory. */
#ifndef ALQ_TESTS_ROOT_TREE_H
#define ALQ_TESTS_ROOT_TREE_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hook/rootfs.h"

struct root_tree {
    char top[64]; /* top/root is the container's, top/host the host's */
    struct alq_rootfs rootfs;
};

/* top/<path>, in one of four buffers. */
static inline char *tree_at(const struct root_tree *t, const char *path)
{
    static char text[4][4096];
    static unsigned turn;
    char *buffer = text[turn++ % 4];
    snprintf(buffer, sizeof(text[0]), "%s/%s", t->top, path);
    return buffer;
}

static inline void tree_dir(const struct root_tree *t, const char *path)
{
    assert_int_equal(mkdir(tree_at(t, path), 0755), 0);
}

static inline void tree_file(const struct root_tree *t, const char *path, const void *data,
                             size_t bytes)
{
    int fd = open(tree_at(t, path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
}

static inline void tree_link(const struct root_tree *t, const char *path, const char *target)
{
    assert_int_equal(symlink(target, tree_at(t, path)), 0);
}

static inline void tree_is_link(const struct root_tree *t, const char *path, const char *target)
{
    char to[4096];
    ssize_t n = readlink(tree_at(t, path), to, sizeof(to) - 1);
    assert_true(n > 0);
    to[n] = '\0';
    assert_string_equal(to, target);
}

static inline int tree_setup(void **state)
{
    struct root_tree *t = calloc(1, sizeof(*t));
    snprintf(t->top, sizeof(t->top), "/tmp/alq-hook-XXXXXX");
    assert_non_null(mkdtemp(t->top));
    tree_dir(t, "root");
    tree_dir(t, "host");
    tree_file(t, "host/secret", "host", 4);
    int fd = open(tree_at(t, "root"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(alq_rootfs_init(&t->rootfs, fd), 0);
    *state = t;
    return 0;
}

static inline int tree_remove(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static inline int tree_teardown(void **state)
{
    struct root_tree *t = *state;
    close(t->rootfs.fd);
    close(t->rootfs.proc);
    nftw(t->top, tree_remove, 16, FTW_DEPTH | FTW_PHYS);
    free(t);
    return 0;
}

#endif
