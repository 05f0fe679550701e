/* SPDX-License-Identifier: Apache-2.0 */
/* Links by name and by SONAME. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "hook/link.h"
#include "hook/root_tree.h"
#include "hook/small_elf.h"

static void put_library(const struct root_tree *t, const char *path, const char *soname)
{
    struct small_elf file;
    small_elf_make(&file, soname);
    tree_file(t, path, &file, sizeof(file));
}

static void put_replaces_all_but_right_links_and_directories(void **state)
{
    const struct root_tree *t = *state;
    struct stat before, after;
    int root = t->rootfs.fd;
    assert_int_equal(alq_link_put(root, "new", "target"), 0);
    tree_is_link(t, "root/new", "target");
    assert_int_equal(lstat(tree_at(t, "root/new"), &before), 0);
    assert_int_equal(alq_link_put(root, "new", "target"), 0);
    assert_int_equal(lstat(tree_at(t, "root/new"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    assert_int_equal(alq_link_put(root, "new", "other"), 0);
    tree_is_link(t, "root/new", "other");
    assert_int_equal(mkfifo(tree_at(t, "root/fifo"), 0644), 0);
    assert_int_equal(alq_link_put(root, "fifo", "target"), 0);
    tree_is_link(t, "root/fifo", "target");
    tree_dir(t, "root/dir");
    assert_int_equal(alq_link_put(root, "dir", "target"), -EISDIR);
}

static void put_over_a_hard_link_leaves_the_other_file_alone(void **state)
{
    const struct root_tree *t = *state;
    char text[8] = "";
    assert_int_equal(link(tree_at(t, "host/secret"), tree_at(t, "root/lib")), 0);
    assert_int_equal(alq_link_put(t->rootfs.fd, "lib", "target"), 0);
    tree_is_link(t, "root/lib", "target");
    int fd = open(tree_at(t, "host/secret"), O_RDONLY | O_CLOEXEC);
    assert_int_equal(read(fd, text, sizeof(text)), 4);
    assert_string_equal(text, "host");
    close(fd);
}

static void sonames_get_links_to_the_highest_version(void **state)
{
    const struct root_tree *t = *state;
    tree_dir(t, "root/lib");
    put_library(t, "root/lib/libcuda.so.535.9.1", "libcuda.so.1");
    put_library(t, "root/lib/libcuda.so.535.10.0", "libcuda.so.1");
    put_library(t, "root/lib/libcuda.so.99", "libcuda.so.1");
    put_library(t, "root/lib/libnvidia-ml.so.550", "libnvidia-ml.so.1");
    put_library(t, "root/lib/other.so.1.2", "other.so.1");
    tree_file(t, "root/lib/libtext.so.5", "text", 4);
    assert_int_equal(alq_link_sonames(&t->rootfs, "/lib"), 0);
    tree_is_link(t, "root/lib/libcuda.so.1", "libcuda.so.535.10.0");
    tree_is_link(t, "root/lib/libnvidia-ml.so.1", "libnvidia-ml.so.550");
    assert_int_equal(access(tree_at(t, "root/lib/other.so.1"), F_OK), -1);
    struct stat before, after;
    assert_int_equal(lstat(tree_at(t, "root/lib/libcuda.so.1"), &before), 0);
    assert_int_equal(alq_link_sonames(&t->rootfs, "/lib"), 0);
    assert_int_equal(lstat(tree_at(t, "root/lib/libcuda.so.1"), &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

static void sonames_replace_stale_links_and_no_files(void **state)
{
    const struct root_tree *t = *state;
    tree_dir(t, "root/lib");
    put_library(t, "root/lib/liba.so.2", "liba.so.1");
    tree_link(t, "root/lib/liba.so.1", "liba.so.0");
    put_library(t, "root/lib/libb.so.2", "libb.so.1");
    put_library(t, "root/lib/libb.so.1", "libb.so.1");
    put_library(t, "root/lib/libc.so.2", "libc.so.1");
    tree_link(t, "root/lib/libc.so.1", tree_at(t, "host/secret"));
    assert_int_equal(alq_link_sonames(&t->rootfs, "/lib"), 0);
    tree_is_link(t, "root/lib/liba.so.1", "liba.so.2");
    tree_is_link(t, "root/lib/libc.so.1", "libc.so.2");
    struct stat st;
    assert_int_equal(lstat(tree_at(t, "root/lib/libb.so.1"), &st), 0);
    assert_true(S_ISREG(st.st_mode));
}

static void sonames_of_a_hostile_folder_lead_nowhere(void **state)
{
    const struct root_tree *t = *state;
    tree_dir(t, "root/lib");
    put_library(t, "root/lib/liba.so.1", "../../host/planted");
    put_library(t, "root/lib/libb.so.1", "/planted");
    put_library(t, "host/libc.so.7", "libc.so.1");
    tree_link(t, "root/lib/libc.so.7", tree_at(t, "host/libc.so.7"));
    assert_int_equal(mkfifo(tree_at(t, "root/lib/libd.so.1"), 0644), 0);
    tree_dir(t, "root/lib/libe.so.1");
    assert_int_equal(alq_link_sonames(&t->rootfs, "/lib"), 0);
    assert_int_equal(access(tree_at(t, "host/planted"), F_OK), -1);
    assert_int_equal(access(tree_at(t, "root/planted"), F_OK), -1);
    assert_int_equal(access(tree_at(t, "root/lib/libc.so.1"), F_OK), -1);
    tree_link(t, "root/away", "../host");
    assert_int_equal(alq_link_sonames(&t->rootfs, "/away"), 0);
    assert_int_equal(access(tree_at(t, "host/libc.so.1"), F_OK), -1);
    assert_int_equal(alq_link_sonames(&t->rootfs, "/none"), 0);
}

static void version_cmp_counts_as_ldconfig(void **state)
{
    (void)state;
    assert_true(alq_link_version_cmp("libx.so.10", "libx.so.9") > 0);
    assert_true(alq_link_version_cmp("libx.so.1.2.10", "libx.so.1.10") < 0);
    assert_true(alq_link_version_cmp("libx.so.1", "libx.so.1.0") < 0);
    assert_true(alq_link_version_cmp("libx.so.550.54.15", "libx.so.550.54.15") == 0);
    assert_true(alq_link_version_cmp("libx.so.550.163.01", "libx.so.550.54.15") > 0);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TREE_TEST(put_replaces_all_but_right_links_and_directories),
        TREE_TEST(put_over_a_hard_link_leaves_the_other_file_alone),
        TREE_TEST(sonames_get_links_to_the_highest_version),
        TREE_TEST(sonames_replace_stale_links_and_no_files),
        TREE_TEST(sonames_of_a_hostile_folder_lead_nowhere),
        cmocka_unit_test(version_cmp_counts_as_ldconfig),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
