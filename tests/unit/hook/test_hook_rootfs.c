/* SPDX-License-Identifier: Apache-2.0 */
/* Paths inside a hostile root: by the kernel and by the walk that stands in for it, with the same
 * answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "hook/root_tree.h"

static int open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* Both ways must open the file or directory `expected` (of the test's own path), or give rc. */
static void opens(const struct root_tree *t, const char *path, const char *expected, int rc)
{
    int before = open_descriptors();
    for (int is_walk = 0; is_walk <= 1; is_walk++) {
        struct stat found, wanted;
        int fd = is_walk ? alq_rootfs_walk(&t->rootfs, path) : alq_rootfs_open(&t->rootfs, path);
        if (!expected) {
            if (fd != rc)
                fail_msg("%s, walk %d: %d instead of %d", path, is_walk, fd, rc);
            continue;
        }
        if (fd < 0)
            fail_msg("%s, walk %d: %d", path, is_walk, fd);
        assert_int_equal(fstat(fd, &found), 0);
        assert_int_equal(stat(tree_at(t, expected), &wanted), 0);
        assert_int_equal(found.st_ino, wanted.st_ino);
        close(fd);
    }
    assert_int_equal(open_descriptors(), before);
}

static void open_of_plain_paths_finds_them(void **state)
{
    const struct root_tree *t = *state;
    tree_dir(t, "root/etc");
    tree_file(t, "root/etc/conf", "x", 1);
    opens(t, "/", "root", 0);
    opens(t, "/etc", "root/etc", 0);
    opens(t, "etc/conf", "root/etc/conf", 0);
    opens(t, "//etc/./conf", "root/etc/conf", 0);
    opens(t, "/etc/../etc/conf", "root/etc/conf", 0);
    opens(t, "/etc/", "root/etc", 0);
    opens(t, "/etc/none", NULL, -ENOENT);
    opens(t, "/none/conf", NULL, -ENOENT);
    opens(t, "/etc/conf/x", NULL, -ENOTDIR);
    opens(t, "/etc/conf/", NULL, -ENOTDIR);
}

static void open_through_links_stays_inside(void **state)
{
    const struct root_tree *t = *state;
    char host[128];
    snprintf(host, sizeof(host), "%s/host", t->top);
    tree_dir(t, "root/etc");
    tree_file(t, "root/etc/conf", "x", 1);
    tree_link(t, "root/relative", "etc/conf");
    tree_link(t, "root/absolute", "/etc/conf");
    tree_link(t, "root/etc/absolute", "/etc/conf");
    tree_link(t, "root/etc/up", "../../../../../etc/conf");
    tree_link(t, "root/out", host);
    tree_link(t, "root/climb", "../host");
    tree_link(t, "root/etc/climb", "../../host/secret");
    tree_link(t, "root/dangling", "/none");
    opens(t, "/relative", "root/etc/conf", 0);
    opens(t, "/absolute", "root/etc/conf", 0);
    opens(t, "/etc/absolute", "root/etc/conf", 0);
    opens(t, "/etc/up", "root/etc/conf", 0);
    opens(t, "/out/secret", NULL, -ENOENT);
    opens(t, "/climb/secret", NULL, -ENOENT);
    opens(t, "/etc/climb", NULL, -ENOENT);
    opens(t, "/../../host/secret", NULL, -ENOENT);
    opens(t, "/..", "root", 0);
    opens(t, "/dangling", NULL, -ENOENT);
}

static void open_of_loops_ends(void **state)
{
    const struct root_tree *t = *state;
    char name[16], to[16];
    tree_link(t, "root/self", "self");
    tree_link(t, "root/ping", "/pong");
    tree_link(t, "root/pong", "/ping/x");
    opens(t, "/self", NULL, -ELOOP);
    opens(t, "/ping", NULL, -ELOOP);
    tree_file(t, "root/l0", "x", 1);
    for (int i = 1; i <= 41; i++) {
        snprintf(name, sizeof(name), "root/l%d", i);
        snprintf(to, sizeof(to), "l%d", i - 1);
        tree_link(t, name, to);
    }
    opens(t, "/l40", "root/l0", 0);
    opens(t, "/l41", NULL, -ELOOP);
}

static void open_of_huge_names_is_refused(void **state)
{
    const struct root_tree *t = *state;
    char path[8192];
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    opens(t, path, NULL, -ENAMETOOLONG);
    path[300] = '\0';
    opens(t, path, NULL, -ENAMETOOLONG);
    path[255] = '\0';
    opens(t, path, NULL, -ENOENT);
}

static void walk_of_links_that_grow_is_refused(void **state)
{
    const struct root_tree *t = *state;
    char target[4096];
    memset(target, '/', sizeof(target) - 1);
    target[sizeof(target) - 3] = 'a';
    target[sizeof(target) - 2] = '\0';
    tree_link(t, "root/a", target);
    assert_int_equal(alq_rootfs_walk(&t->rootfs, "/a/b/c/d"), -ENAMETOOLONG);
}

static void walk_deeper_than_it_holds_is_refused(void **state)
{
    const struct root_tree *t = *state;
    char path[512] = "root";
    for (int i = 0; i < 65; i++) {
        strcat(path, "/d");
        tree_dir(t, path);
    }
    assert_int_equal(alq_rootfs_walk(&t->rootfs, path + 4), -ENAMETOOLONG);
    path[strlen(path) - 2] = '\0';
    int fd = alq_rootfs_walk(&t->rootfs, path + 4);
    assert_true(fd >= 0);
    close(fd);
}

static void make_dir_makes_what_is_missing(void **state)
{
    const struct root_tree *t = *state;
    struct stat st;
    tree_dir(t, "root/usr");
    tree_link(t, "root/lib", "/usr");
    for (int i = 0; i < 2; i++) {
        int fd = alq_rootfs_make_dir(&t->rootfs, "/lib//a/b/");
        assert_true(fd >= 0);
        assert_int_equal(fstat(fd, &st), 0);
        close(fd);
        struct stat wanted;
        assert_int_equal(stat(tree_at(t, "root/usr/a/b"), &wanted), 0);
        assert_int_equal(st.st_ino, wanted.st_ino);
    }
    int fd = alq_rootfs_make_dir(&t->rootfs, "/");
    assert_true(fd >= 0);
    close(fd);
}

static void make_dir_makes_nothing_outside(void **state)
{
    const struct root_tree *t = *state;
    int before = open_descriptors();
    tree_link(t, "root/climb", "../host");
    tree_link(t, "root/out", tree_at(t, "host/new"));
    tree_file(t, "root/file", "x", 1);
    assert_int_equal(alq_rootfs_make_dir(&t->rootfs, "/climb/new"), -ENOENT);
    assert_int_equal(alq_rootfs_make_dir(&t->rootfs, "/out"), -ENOENT);
    assert_int_equal(alq_rootfs_make_dir(&t->rootfs, "/a/../b"), -EINVAL);
    assert_int_equal(alq_rootfs_make_dir(&t->rootfs, "/file/a"), -ENOTDIR);
    assert_int_equal(access(tree_at(t, "host/new"), F_OK), -1);
    assert_int_equal(open_descriptors(), before);
}

static void reopen_of_what_is_not_a_file_is_refused(void **state)
{
    const struct root_tree *t = *state;
    char text[16];
    assert_int_equal(mkfifo(tree_at(t, "root/fifo"), 0644), 0);
    tree_dir(t, "root/dir");
    tree_file(t, "root/file", "0123456789", 10);
    int fifo = alq_rootfs_open(&t->rootfs, "/fifo"), dir = alq_rootfs_open(&t->rootfs, "/dir");
    int file = alq_rootfs_open(&t->rootfs, "/file");
    assert_true(fifo >= 0 && dir >= 0 && file >= 0);
    assert_int_equal(alq_rootfs_reopen_file(&t->rootfs, fifo), -EINVAL);
    assert_int_equal(alq_rootfs_read(&t->rootfs, fifo, text, sizeof(text)), -EINVAL);
    assert_int_equal(alq_rootfs_reopen_file(&t->rootfs, dir), -EISDIR);
    assert_int_equal(alq_rootfs_reopen_dir(&t->rootfs, file), -ENOTDIR);
    assert_int_equal(alq_rootfs_read(&t->rootfs, file, text, 10), -EFBIG);
    assert_int_equal(alq_rootfs_read(&t->rootfs, file, text, 11), 10);
    assert_string_equal(text, "0123456789");
    close(fifo);
    close(dir);
    close(file);
}

/* ---- directories that change places ---- */

struct race {
    const struct root_tree *t;
    atomic_int is_over;
};

/* root/a is by turns a directory and a link out of the root. */
static void *swap(void *arg)
{
    struct race *race = arg;
    const char *top = race->t->top;
    char a[128], dir[128], link[128];
    snprintf(a, sizeof(a), "%s/root/a", top);
    snprintf(dir, sizeof(dir), "%s/root/dir", top);
    snprintf(link, sizeof(link), "%s/root/link", top);
    while (!atomic_load(&race->is_over)) {
        rename(dir, a);
        rename(a, dir);
        rename(link, a);
        rename(a, link);
    }
    return NULL;
}

static void open_while_directories_change_places_stays_inside(void **state)
{
    const struct root_tree *t = *state;
    struct race race = {.t = t};
    struct stat secret, st;
    pthread_t thread;
    tree_dir(t, "root/dir");
    tree_dir(t, "root/dir/deep");
    tree_file(t, "root/dir/secret", "inside", 6);
    tree_link(t, "root/link", "../host");
    assert_int_equal(stat(tree_at(t, "host/secret"), &secret), 0);
    assert_int_equal(pthread_create(&thread, NULL, swap, &race), 0);
    for (int i = 0; i < 20000; i++) {
        const char *path = i % 2 ? "/a/secret" : "/a/deep/../../host/secret";
        int fd = i % 4 < 2 ? alq_rootfs_open(&t->rootfs, path) : alq_rootfs_walk(&t->rootfs, path);
        if (fd < 0)
            continue;
        assert_int_equal(fstat(fd, &st), 0);
        assert_int_not_equal(st.st_ino, secret.st_ino);
        close(fd);
    }
    atomic_store(&race.is_over, 1);
    pthread_join(thread, NULL);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TREE_TEST(open_of_plain_paths_finds_them),
        TREE_TEST(open_through_links_stays_inside),
        TREE_TEST(open_of_loops_ends),
        TREE_TEST(open_of_huge_names_is_refused),
        TREE_TEST(walk_of_links_that_grow_is_refused),
        TREE_TEST(walk_deeper_than_it_holds_is_refused),
        TREE_TEST(make_dir_makes_what_is_missing),
        TREE_TEST(make_dir_makes_nothing_outside),
        TREE_TEST(reopen_of_what_is_not_a_file_is_refused),
        TREE_TEST(open_while_directories_change_places_stays_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
