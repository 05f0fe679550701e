/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scan on roots made from the file lists of real driver installs (conformance/cdi/layouts),
 * each with an older driver beside it, that was not taken away properly, and the spec made of it.
 * Layouts of arm64 servers are laid out in this machine's directories.
 */
#include "cdi_world.h"

#include <dirent.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/inject.h"
#include "daemon/cdi/scan.h"
#include "daemon/cdi/validate.h"

#define FILES_MAX 128
#define OLDER "470.256.02"
#define UID "73086585-cd22-416e-87f8-a2f08248dd2a"

struct layout {
    char version[32];
    size_t count;
    struct {
        char set[16], path[160], soname[80]; /* soname "": no library; "-": it has none */
    } files[FILES_MAX];
};

static void replace(char *text, size_t size, const char *old, const char *new)
{
    char *at_old = strstr(text, old);
    if (!at_old)
        return;
    alq_auto_free char *rest = strdup(at_old + strlen(old));
    snprintf(at_old, size - (size_t)(at_old - text), "%s%s", new, rest);
}

static void localise(char *text, size_t size)
{
    const char *own = LIB_DIR + strlen("usr/lib/");
    replace(text, size, "x86_64-linux-gnu", own);
    replace(text, size, "aarch64-linux-gnu", own);
}

/* Makes the root and tells what should come of it. */
static void lay_out(const struct world *w, const char *name, struct layout *layout)
{
    char line[512];
    alq_auto_free char *path = alq_str_printf(ALQ_CONFORMANCE_DIR "/cdi/layouts/%s", name);
    alq_auto_fclose FILE *list = fopen(path, "re");
    assert_non_null(list);
    memset(layout, 0, sizeof(*layout));
    while (fgets(line, sizeof(line), list)) {
        char set[16], file[160], more[160] = "";
        if (line[0] == '#')
            continue;
        assert_true(sscanf(line, "%15s %159s %159s", set, file, more) >= 2);
        if (!strcmp(set, "version")) {
            snprintf(layout->version, sizeof(layout->version), "%.31s", file);
            continue;
        }
        localise(file, sizeof(file));
        localise(more, sizeof(more));
        alq_auto_free char *dir = strdup(file);
        char *slash = strrchr(dir, '/');
        const char *leaf = slash ? slash + 1 : file;
        if (slash)
            *slash = '\0';
        if (!strcmp(set, "link")) {
            assert_int_equal(slash ? alq_file_mkdirs(at(w, dir), 0755, NULL) : 0, 0);
            assert_int_equal(symlink(more, at(w, file)), 0);
            continue;
        }
        if (more[0])
            put_library(w, dir, leaf, strcmp(more, "-") ? more : "");
        else
            put_text(w, dir, leaf, "text");
        assert_true(layout->count < FILES_MAX);
        snprintf(layout->files[layout->count].set, 16, "%.15s", set);
        snprintf(layout->files[layout->count].path, 160, "%s", file);
        snprintf(layout->files[layout->count++].soname, 80, "%.79s", more);
    }
    assert_true(layout->count > 30);
    /* What an older version left behind. */
    put_driver(w, LIB_DIR, OLDER);
    put_driver(w, "usr/lib64", OLDER);
    put_text(w, "lib/firmware/nvidia/" OLDER, "gsp.bin", "old");
    snprintf(line, sizeof(line), "NVRM version: NVIDIA UNIX Kernel Module  %s  Tue Feb 27\n",
             layout->version);
    put_text(w, "proc/driver/nvidia", "version", line);
}

static int is_mounted_from(const struct alq_driver_files *files, const char *host_path)
{
    int count = 0;
    for (size_t i = 0; i < files->mount_count; i++)
        count += !strcmp(files->mounts[i].host_path, host_path);
    return count;
}

static const char *container_path_of(const struct alq_driver_files *files, const char *host_path)
{
    for (size_t i = 0; i < files->mount_count; i++) {
        if (!strcmp(files->mounts[i].host_path, host_path))
            return files->mounts[i].container_path;
    }
    return NULL;
}

/* The words of --inject that name the sets of a layout: all but what is left out. */
static void check(const struct world *w, const struct layout *layout, const char *name,
                  const char *left_out)
{
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    size_t wanted = 0;
    if (alq_driver_scan(&w->cfg, &files, &err))
        fail_msg("%s: %s", name, err.text);
    assert_string_equal(files->version, layout->version);
    for (size_t i = 0; i < layout->count; i++) {
        /* lib may be a link to usr/lib. */
        alq_auto_free char *real = realpath(at(w, layout->files[i].path), NULL);
        int is_wanted = strcmp(layout->files[i].set, "-") && strcmp(layout->files[i].set, left_out);
        assert_non_null(real);
        wanted += (size_t)is_wanted;
        if (is_mounted_from(files, real) != is_wanted)
            fail_msg("%s without %s: %s", name, left_out, layout->files[i].path);
        const char *soname = layout->files[i].soname;
        if (is_wanted && soname[0] && strcmp(soname, "-")) {
            const char *leaf = strrchr(container_path_of(files, real), '/') + 1;
            assert_string_equal(leaf, soname);
        }
    }
    for (size_t i = 0; i < files->mount_count; i++) {
        if (strstr(files->mounts[i].host_path, OLDER))
            fail_msg("%s: %s", name, files->mounts[i].host_path);
    }
    assert_int_equal(files->mount_count, wanted);
    alq_driver_files_free(files);
}

static void check_spec(const struct world *w, const char *name)
{
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_share_spec shares[] = {
        {.share_id = UID "-0", .gpu_uuid = "GPU-a", .memory_bytes = 1 << 30, .cores_pct = 30}};
    struct alq_claim_spec claim = {.uid = UID, .share_count = 1, .shares = shares};
    struct alq_library library = {.library_path = "/usr/local/lib/aliquot/libvgpu-0.so",
                                  .preload_path = "/usr/local/lib/aliquot/ld.so.preload-0",
                                  .hook_path = "/usr/local/lib/aliquot/aliquot-hook-0"};
    json_t *spec = NULL;
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    if (alq_cdi_spec_build(&w->cfg, files, &library, &claim, &spec, &err) ||
        alq_cdi_validate(spec, &err))
        fail_msg("%s: %s", name, err.text);
    json_decref(spec);
    alq_driver_files_free(files);
}

static void every_layout_gives_what_its_list_says(void **state)
{
    size_t seen = 0;
    alq_auto_closedir DIR *dir = opendir(ALQ_CONFORMANCE_DIR "/cdi/layouts");
    (void)state;
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        static const char *const sets[] = {"", "graphics", "video", "firmware", NULL};
        struct layout layout;
        void *fresh = NULL;
        if (!strstr(e->d_name, ".txt"))
            continue;
        setup(&fresh);
        struct world *w = fresh;
        put_nodes(w);
        lay_out(w, e->d_name, &layout);
        for (const char *const *set = sets; *set; set++) {
            alq_auto_free char *without = alq_str_printf("-%s", *set);
            char all[] = "all", *words[] = {all, **set ? without : NULL, NULL};
            assert_int_equal(alq_inject_parse(words, &w->cfg.inject_sets, NULL), 0);
            check(w, &layout, e->d_name, *set);
        }
        check_spec(w, e->d_name);
        teardown(&fresh);
        seen++;
    }
    print_message("%zu layouts\n", seen);
    assert_true(seen >= 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_layout_gives_what_its_list_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
