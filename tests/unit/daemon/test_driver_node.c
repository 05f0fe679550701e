/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device nodes that are made and linked, the kernel's files they are made by, the loader's cache
 * and the words of --inject. Making nodes needs CAP_MKNOD; without it those tests are skipped.
 */
#include "cdi_world.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/inject.h"
#include "daemon/cdi/kernel.h"
#include "daemon/cdi/ldcache.h"
#include "daemon/cdi/node.h"
#include "daemon/cdi/scan.h"

#define DEVICES                                                                                    \
    "Character devices:\n  1 mem\n  4 /dev/vc/0\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n"  \
    "234 nvidia-caps\n509 nvidia-uvm\n\nBlock devices:\n  7 loop\n510 nvidia-wrong\n"

static struct world *world_with_devices(void **state, const char *devices, const char *params)
{
    struct world *w = *state;
    w->cfg.is_mknod = 1;
    assert_int_equal(alq_file_mkdirs(at(w, "dev"), 0755, NULL), 0);
    put_text(w, "proc", "devices", devices);
    put_text(w, "proc/driver/nvidia", "params", params);
    if (mknod(at(w, "dev/probe"), S_IFCHR | 0600, makedev(1, 3))) {
        print_message("[  REASON  ] mknod: %s\n", strerror(errno));
        skip();
    }
    return w;
}

/* ---- making --------------------------------------------------------------------------------- */

static void find_makes_missing_nodes_as_the_module_says(void **state)
{
    static const struct {
        const char *name;
        unsigned major, minor;
    } rows[] = {{"nvidiactl", 195, 255},      {"nvidia0", 195, 0},    {"nvidia12", 195, 12},
                {"nvidia-modeset", 195, 254}, {"nvidia-uvm", 509, 0}, {"nvidia-uvm-tools", 509, 1}};
    struct world *w = world_with_devices(state, DEVICES,
                                         "Mobile: 4294967295\nModifyDeviceFiles: 1\n"
                                         "DeviceFileUID: 7\nDeviceFileGID: 44\n"
                                         "DeviceFileMode: 432\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_driver_node node = {0};
        struct alq_err err = ALQ_ERR_INIT;
        struct stat st;
        if (alq_driver_node_find(&w->cfg, rows[i].name, &node, &err))
            fail_msg("%s", err.text);
        assert_int_equal(lstat(node.host_path, &st), 0);
        assert_true(S_ISCHR(st.st_mode));
        assert_int_equal(major(st.st_rdev), rows[i].major);
        assert_int_equal(minor(st.st_rdev), rows[i].minor);
        assert_int_equal(st.st_mode & 0777, 0660);
        assert_int_equal(st.st_uid, 7);
        assert_int_equal(st.st_gid, 44);
        assert_int_equal(node.mode, 0660);
        assert_int_equal(node.gid, 44);
        alq_driver_node_clear(&node);
    }
}

static void find_makes_a_capability_with_its_own_mode(void **state)
{
    struct world *w = world_with_devices(state, DEVICES, "DeviceFileMode: 438\n");
    struct alq_driver_node node = {0};
    struct stat st;
    assert_int_equal(alq_driver_capability_find(&w->cfg, 21, 0444, &node, NULL), 0);
    assert_string_equal(node.path, "/dev/nvidia-caps/nvidia-cap21");
    assert_int_equal(stat(at(w, "dev/nvidia-caps/nvidia-cap21"), &st), 0);
    assert_int_equal(major(st.st_rdev), 234);
    assert_int_equal(minor(st.st_rdev), 21);
    assert_int_equal(st.st_mode & 0777, 0444);
    alq_driver_node_clear(&node);
}

static void find_of_the_older_module_uses_its_name(void **state)
{
    struct world *w = world_with_devices(
        state, "Character devices:\n195 nvidia-frontend\n\nBlock devices:\n", "");
    struct alq_driver_node node = {0};
    assert_int_equal(alq_driver_node_find(&w->cfg, "nvidia3", &node, NULL), 0);
    assert_int_equal(node.mode, 0666);
    alq_driver_node_clear(&node);
}

/* Nothing is made, the error says why and what to do, and it may be tried again. */
static void find_of_a_node_that_cannot_be_made_says_why(void **state)
{
    static const struct {
        const char *name, *devices, *params, *word;
        int is_mknod;
    } rows[] = {
        {"nvidia-uvm", "Character devices:\n195 nvidia\n", "", "nvidia-uvm is not among", 1},
        {"nvidia0", "Character devices:\n\nBlock devices:\n195 nvidia\n", "", "not among", 1},
        {"nvidia0", DEVICES, "ModifyDeviceFiles: 0\n", "ModifyDeviceFiles", 1},
        {"nvidia0", DEVICES, "", "--mknod", 0},
        {"nvidia0x", DEVICES, "", "no driver makes", 1},
    };
    struct world *w = *state;
    assert_int_equal(alq_file_mkdirs(at(w, "dev"), 0755, NULL), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_driver_node node = {0};
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_free char *path = alq_str_printf("%s/dev/%s", w->root, rows[i].name);
        w->cfg.is_mknod = rows[i].is_mknod;
        put_text(w, "proc", "devices", rows[i].devices);
        put_text(w, "proc/driver/nvidia", "params", rows[i].params);
        assert_int_equal(alq_driver_node_find(&w->cfg, rows[i].name, &node, &err), ALQ_ENOENT);
        if (!strstr(err.text, rows[i].word) || !strstr(err.text, path))
            fail_msg("%s: %s", rows[i].word, err.text);
        assert_null(node.path);
        assert_int_equal(access(path, F_OK), -1);
    }
}

static void scan_makes_control_nodes_and_no_spec_without_them(void **state)
{
    struct world *w = world_with_devices(state, DEVICES, "");
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    put_driver(w, LIB_DIR, "550.163.01");
    if (alq_driver_scan(&w->cfg, &files, &err))
        fail_msg("%s", err.text);
    alq_driver_files_free(files);
    files = NULL;
    assert_int_equal(access(at(w, "dev/nvidia-uvm"), F_OK), 0);
    assert_int_equal(unlink(at(w, "dev/nvidia-uvm")), 0);
    put_text(w, "proc", "devices", "Character devices:\n195 nvidia\n");
    assert_int_equal(alq_driver_scan(&w->cfg, &files, &err), ALQ_ENOENT);
    assert_null(files);
}

/* nvidia-uvm's major is dynamic, and its node outlives the module. */
static void find_replaces_a_node_of_numbers_that_the_driver_had_before(void **state)
{
    struct world *w = world_with_devices(state, DEVICES, "DeviceFileMode: 432\n");
    struct alq_driver_node node = {0};
    struct alq_err err = ALQ_ERR_INIT;
    struct stat st;
    assert_int_equal(mknod(at(w, "dev/nvidia-uvm"), S_IFCHR | 0666, makedev(508, 0)), 0);
    w->cfg.is_mknod = 0;
    assert_int_equal(alq_driver_node_find(&w->cfg, "nvidia-uvm", &node, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, "is 508:0 where the driver has 509:0 and --mknod is off"));
    w->cfg.is_mknod = 1;
    if (alq_driver_node_find(&w->cfg, "nvidia-uvm", &node, &err))
        fail_msg("%s", err.text);
    assert_int_equal(stat(node.host_path, &st), 0);
    assert_true(st.st_rdev == makedev(509, 0));
    assert_int_equal(node.mode, 0660);
    alq_driver_node_clear(&node);
    /* One whose numbers are right keeps the mode that it was given. */
    assert_int_equal(chmod(at(w, "dev/nvidia-uvm"), 0604), 0);
    assert_int_equal(alq_driver_node_find(&w->cfg, "nvidia-uvm", &node, NULL), 0);
    assert_int_equal(node.mode, 0604);
    alq_driver_node_clear(&node);
}

/* What a daemon left that was killed, in whose container the next one has the same PID. */
static void find_makes_nodes_and_links_beside_leftovers(void **state)
{
    struct world *w = world_with_devices(state, DEVICES, "");
    struct alq_driver_node node = {0};
    struct alq_err err = ALQ_ERR_INIT;
    char target[64] = "";
    w->cfg.is_dev_char = 1;
    assert_int_equal(alq_file_mkdirs(at(w, "dev/char"), 0755, NULL), 0);
    assert_int_equal(symlink("../gone", at(w, "dev/char/195:0")), 0);
    for (int i = 0; i < 40; i++) {
        char name[64];
        snprintf(name, sizeof(name), "dev/.aliquot-%d-%d", (int)getpid(), i);
        (void)mknod(at(w, name), S_IFCHR | 0600, makedev(1, 3));
        snprintf(name, sizeof(name), "dev/char/.aliquot-%d-%d", (int)getpid(), i);
        assert_int_equal(symlink("x", at(w, name)), 0);
    }
    if (alq_driver_node_find(&w->cfg, "nvidia0", &node, &err))
        fail_msg("%s", err.text);
    alq_driver_node_clear(&node);
    assert_true(readlink(at(w, "dev/char/195:0"), target, sizeof(target) - 1) > 0);
    assert_string_equal(target, "../nvidia0");
}

static void *find_often(void *arg)
{
    struct world *w = arg;
    for (int i = 0; i < 200; i++) {
        struct alq_driver_node node = {0};
        struct alq_err err = ALQ_ERR_INIT;
        if (alq_driver_node_find(&w->cfg, "nvidia-uvm", &node, &err))
            return strdup(err.text);
        alq_driver_node_clear(&node);
    }
    return NULL;
}

/* Workers, or daemons of two drivers. Nobody is refused, nothing is left but the node. */
static void find_of_many_at_once_ends_with_one_node(void **state)
{
    struct world *w = world_with_devices(state, DEVICES, "");
    pthread_t threads[4];
    assert_int_equal(unlink(at(w, "dev/probe")), 0);
    assert_int_equal(mknod(at(w, "dev/nvidia-uvm"), S_IFCHR | 0666, makedev(508, 0)), 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, find_often, w), 0);
    for (size_t i = 0; i < 4; i++) {
        void *error = NULL;
        pthread_join(threads[i], &error);
        if (error)
            fail_msg("%s", (char *)error);
    }
    struct stat st;
    assert_int_equal(stat(at(w, "dev/nvidia-uvm"), &st), 0);
    assert_true(st.st_rdev == makedev(509, 0));
    assert_int_equal(unlink(at(w, "dev/nvidia-uvm")), 0);
    assert_int_equal(rmdir(at(w, "dev")), 0);
}

/* A runtime makes a directory where it is told to mount a node that is not there. */
static void scan_leaves_out_what_is_no_node_unless_cuda_needs_it(void **state)
{
    struct world *w = world_with_devices(state, DEVICES, "");
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    put_driver(w, LIB_DIR, "550.163.01");
    assert_int_equal(mkdir(at(w, "dev/nvidia-uvm-tools"), 0755), 0);
    if (alq_driver_scan(&w->cfg, &files, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < files->nodes.count; i++)
        assert_string_not_equal(files->nodes.items[i].path, "/dev/nvidia-uvm-tools");
    assert_int_equal(rmdir(at(w, "dev/nvidia-uvm-tools")), 0);
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
    files = NULL;
    assert_int_equal(unlink(at(w, "dev/nvidia-uvm")), 0);
    assert_int_equal(mkdir(at(w, "dev/nvidia-uvm"), 0755), 0);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, &err), ALQ_EINVAL);
    assert_non_null(strstr(err.text, "dev/nvidia-uvm is not a character device"));
}

/* ---- dev/char ------------------------------------------------------------------------------- */

static void find_links_nodes_by_their_numbers(void **state)
{
    struct world *w = world_with_devices(state, DEVICES, "");
    struct alq_driver_node node = {0};
    char target[64] = "";
    w->cfg.is_dev_char = 1;
    assert_int_equal(alq_file_mkdirs(at(w, "dev/char"), 0755, NULL), 0);
    assert_int_equal(symlink("../gone", at(w, "dev/char/195:0")), 0); /* stale */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(alq_driver_node_find(&w->cfg, "nvidia0", &node, NULL), 0);
        alq_driver_node_clear(&node);
        assert_true(readlink(at(w, "dev/char/195:0"), target, sizeof(target) - 1) > 0);
        assert_string_equal(target, "../nvidia0");
    }
    assert_int_equal(alq_driver_capability_find(&w->cfg, 1, 0444, &node, NULL), 0);
    alq_driver_node_clear(&node);
    memset(target, 0, sizeof(target));
    assert_true(readlink(at(w, "dev/char/234:1"), target, sizeof(target) - 1) > 0);
    assert_string_equal(target, "../nvidia-caps/nvidia-cap1");
    w->cfg.is_dev_char = 0;
    assert_int_equal(alq_driver_node_find(&w->cfg, "nvidia1", &node, NULL), 0);
    alq_driver_node_clear(&node);
    assert_int_equal(access(at(w, "dev/char/195:1"), F_OK), -1);
}

/* ---- parsers -------------------------------------------------------------------------------- */

static void params_have_defaults_and_ignore_what_cannot_be_read(void **state)
{
    struct alq_kernel_params p;
    (void)state;
    alq_kernel_params_parse("", &p);
    assert_true(p.is_modify_allowed && !p.uid && !p.gid && p.mode == 0666);
    alq_kernel_params_parse("DeviceFileMode: -1\nDeviceFileGID: 99999999999\nDeviceFileUID: 5x\n"
                            "XModifyDeviceFiles: 0\n",
                            &p);
    assert_true(p.is_modify_allowed && !p.uid && !p.gid && p.mode == 0666);
    alq_kernel_params_parse("DeviceFileMode: 4294967295\nModifyDeviceFiles:0\n", &p);
    assert_true(!p.is_modify_allowed && p.mode == 0777);
}

static void majors_are_whole_names_of_character_devices(void **state)
{
    unsigned major = 0;
    (void)state;
    assert_int_equal(alq_kernel_major_parse(DEVICES, "nvidia-uvm", &major), 0);
    assert_int_equal(major, 509);
    assert_int_equal(alq_kernel_major_parse(DEVICES, "nvidia", &major), 0);
    assert_int_equal(major, 195);
    assert_int_not_equal(alq_kernel_major_parse(DEVICES, "nvidia-u", &major), 0);
    assert_int_not_equal(alq_kernel_major_parse(DEVICES, "nvidia-wrong", &major), 0);
    assert_int_not_equal(alq_kernel_major_parse("", "nvidia", &major), 0);
    assert_int_not_equal(alq_kernel_major_parse("Character devices:", "nvidia", &major), 0);
}

static void versions_are_compared_number_by_number(void **state)
{
    (void)state;
    assert_true(alq_driver_version_cmp("550.163.01", "550.90.7") > 0);
    assert_true(alq_driver_version_cmp("550.9", "550.10") < 0);
    assert_true(alq_driver_version_cmp("550.10", "550.10.1") < 0);
    assert_int_equal(alq_driver_version_cmp("550.10", "550.10"), 0);
    assert_false(alq_driver_version_is_valid("1"));
    assert_false(alq_driver_version_is_valid("550..1"));
    assert_false(alq_driver_version_is_valid("550.1."));
    assert_false(alq_driver_version_is_valid("550.1a"));
}

static int count(void *arg, const char *name, const char *path)
{
    (void)name, (void)path;
    return ++*(int *)arg, 0;
}

static int stop(void *arg, const char *name, const char *path)
{
    (void)arg;
    return strcmp(name, "libc.so.6") || path[0] != '/' ? 0 : 7;
}

static void ldcache_of_this_machine_is_read_and_damage_is_an_error(void **state)
{
    alq_auto_free char *data = NULL;
    size_t len = 0;
    int entries = 0;
    (void)state;
    if (alq_file_read("/etc/ld.so.cache", 16 << 20, &data, &len, NULL))
        skip();
    assert_int_equal(alq_ldcache_each(data, len, count, &entries, NULL), 0);
    assert_true(entries > 3);
    assert_int_equal(alq_ldcache_each(data, len, stop, NULL, NULL), 7);
    for (size_t cut = 0; cut < len; cut += cut < 256 ? 1 : 997) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_free char *part = malloc(cut + 1); /* its end is where a sanitiser looks */
        memcpy(part, data, cut);
        entries = 0;
        int rc = alq_ldcache_each(part, cut, count, &entries, &err);
        assert_true(rc == 0 || rc == ALQ_EPROTO);
        assert_true(rc == 0 || err.text[0]);
    }
    assert_int_equal(alq_ldcache_each("", 0, count, &entries, NULL), ALQ_EPROTO);
}

static void inject_reads_words_from_the_left(void **state)
{
    static const struct {
        const char *words[4];
        uint32_t sets;
    } rows[] = {
        {{NULL}, ALQ_INJECT_COMPUTE},
        {{"utility", NULL}, ALQ_INJECT_COMPUTE | ALQ_INJECT_UTILITY},
        {{"utility", "video", "-utility", NULL}, ALQ_INJECT_COMPUTE | ALQ_INJECT_VIDEO},
        {{"video", "-all", NULL}, ALQ_INJECT_COMPUTE},
    };
    uint32_t sets, all;
    struct alq_err err = ALQ_ERR_INIT;
    char word_all[] = "all", word_default[] = "default", wrong[] = "grafics",
         compute[] = "-compute";
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *words[4] = {0};
        for (size_t j = 0; rows[i].words[j]; j++)
            words[j] = strdup(rows[i].words[j]);
        assert_int_equal(alq_inject_parse(words, &sets, NULL), 0);
        assert_int_equal(sets, rows[i].sets);
        for (size_t j = 0; words[j]; j++)
            free(words[j]);
    }
    assert_int_equal(alq_inject_parse((char *[]){word_all, NULL}, &all, NULL), 0);
    assert_int_equal(alq_inject_parse((char *[]){word_default, NULL}, &sets, NULL), 0);
    assert_int_equal(all & ~sets, ALQ_INJECT_GRAPHICS | ALQ_INJECT_GROUPS);
    assert_int_equal(alq_inject_parse((char *[]){wrong, NULL}, &sets, &err), ALQ_EINVAL);
    assert_non_null(strstr(err.text, "grafics"));
    assert_non_null(strstr(err.text, "graphics"));
    assert_int_equal(alq_inject_parse((char *[]){compute, NULL}, &sets, &err), ALQ_EINVAL);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(find_makes_missing_nodes_as_the_module_says),
        ROW(find_makes_a_capability_with_its_own_mode),
        ROW(find_of_the_older_module_uses_its_name),
        ROW(find_of_a_node_that_cannot_be_made_says_why),
        ROW(scan_makes_control_nodes_and_no_spec_without_them),
        ROW(find_replaces_a_node_of_numbers_that_the_driver_had_before),
        ROW(find_makes_nodes_and_links_beside_leftovers),
        ROW(find_of_many_at_once_ends_with_one_node),
        ROW(scan_leaves_out_what_is_no_node_unless_cuda_needs_it),
        ROW(find_links_nodes_by_their_numbers),
        cmocka_unit_test(params_have_defaults_and_ignore_what_cannot_be_read),
        cmocka_unit_test(majors_are_whole_names_of_character_devices),
        cmocka_unit_test(versions_are_compared_number_by_number),
        cmocka_unit_test(ldcache_of_this_machine_is_read_and_damage_is_an_error),
        cmocka_unit_test(inject_reads_words_from_the_left),
    };
#undef ROW
    return cmocka_run_group_tests(tests, NULL, NULL);
}
