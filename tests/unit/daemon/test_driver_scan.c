/* SPDX-License-Identifier: Apache-2.0 */
/* The scan of a driver root, on the made-up host of cdi_world.h. */
#include "cdi_world.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/inject.h"
#include "daemon/cdi/scan.h"

static const struct alq_driver_mount *mount_on(const struct alq_driver_files *files,
                                               const char *path)
{
    for (size_t i = 0; i < files->mount_count; i++) {
        if (!strcmp(files->mounts[i].container_path, path))
            return &files->mounts[i];
    }
    return NULL;
}

/* ---- scan ----------------------------------------------------------------------------------- */

static void scan_mounts_libraries_by_version_at_their_soname(void **state)
{
    struct world *w = *state;
    struct alq_driver_files *files = NULL;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    assert_string_equal(files->version, "550.163.01");
    assert_string_equal(mount_on(files, "/" LIB_DIR "/libcuda.so.1")->host_path,
                        at(w, LIB_DIR "/libcuda.so.550.163.01"));
    assert_non_null(mount_on(files, "/" LIB_DIR "/libnvidia-ml.so.1"));
    assert_non_null(mount_on(files, "/" LIB_DIR "/libnvidia-nvvm.so.4"));
    assert_int_equal(files->mount_count, 4); /* graphics libraries stay out */
    assert_int_equal(files->link_count, 1);
    assert_string_equal(files->links[0].path, "/" LIB_DIR "/libcuda.so");
    assert_string_equal(files->links[0].target, "libcuda.so.1");
    assert_int_equal(files->folder_count, 1);
    assert_string_equal(files->folders[0], "/" LIB_DIR);
    assert_int_equal(files->nodes.count, 3);
    assert_string_equal(files->nodes.items[0].path, "/dev/nvidiactl");
    assert_string_equal(files->nodes.items[0].host_path, "/dev/null");
    assert_true(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
}

static void scan_of_two_versions_takes_the_linked_one_else_the_higher(void **state)
{
    struct world *w = *state;
    struct alq_driver_files *files = NULL;
    put_driver(w, LIB_DIR, "550.163.01");
    put_driver(w, LIB_DIR, "550.90.7");
    put_nodes(w);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    assert_string_equal(files->version, "550.163.01");
    assert_int_equal(symlink("libcuda.so.550.90.7", at(w, LIB_DIR "/libcuda.so.1")), 0);
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    assert_string_equal(files->version, "550.90.7");
    assert_string_equal(mount_on(files, "/" LIB_DIR "/libnvidia-ml.so.1")->host_path,
                        at(w, LIB_DIR "/libnvidia-ml.so.550.90.7"));
    alq_driver_files_free(files);
}

static void scan_finds_other_layouts(void **state)
{
    static const char *const dirs[][2] = {{"usr/lib64", "/usr/lib64/libcuda.so.1"},
                                          {LIB_DIR "/nvidia/current", "/" LIB_DIR "/libcuda.so.1"}};
    struct world *w = *state;
    put_nodes(w);
    for (size_t i = 0; i < 2; i++) {
        struct alq_driver_files *files = NULL;
        put_driver(w, dirs[i][0], "535.261.03");
        assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
        assert_non_null(mount_on(files, dirs[i][1]));
        alq_driver_files_free(files);
        assert_int_equal(alq_file_remove_tree(at(w, "usr"), NULL), 0);
    }
}

static void scan_follows_absolute_links_inside_the_root_only(void **state)
{
    struct world *w = *state;
    struct alq_driver_files *files = NULL;
    put_driver(w, "opt/nvidia", "550.163.01");
    put_nodes(w);
    assert_int_equal(alq_file_mkdirs(at(w, "usr/lib"), 0755, NULL), 0);
    assert_int_equal(symlink("/opt/nvidia", at(w, LIB_DIR)), 0);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    assert_string_equal(mount_on(files, "/" LIB_DIR "/libcuda.so.1")->host_path,
                        at(w, "opt/nvidia/libcuda.so.550.163.01"));
    alq_driver_files_free(files);
}

static void scan_without_a_driver_says_where_it_looked(void **state)
{
    struct world *w = *state;
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    assert_int_equal(alq_driver_scan(&w->cfg, &files, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, w->root));
    assert_non_null(strstr(err.text, LIB_DIR));
    put_driver(w, LIB_DIR, "550.163.01");
    assert_int_equal(alq_driver_scan(&w->cfg, &files, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, "/dev/nvidiactl"));
    put_nodes(w);
    unlink(at(w, LIB_DIR "/libnvidia-ml.so.550.163.01"));
    assert_int_equal(alq_driver_scan(&w->cfg, &files, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, "libnvidia-ml.so"));
    assert_null(files);
}

static void scan_of_damaged_libraries_is_an_error(void **state)
{
    struct world *w = *state;
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    assert_int_equal(truncate(at(w, LIB_DIR "/libnvidia-nvvm.so.550.163.01"), 100), 0);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, &err), ALQ_EPROTO);
    assert_non_null(strstr(err.text, "libnvidia-nvvm.so.550.163.01"));
}

static void is_current_sees_replaced_files_and_nodes(void **state)
{
    struct world *w = *state;
    struct alq_driver_files *files = NULL;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    put_library(w, LIB_DIR, "libnvidia-ml.so.550.163.01", "libnvidia-ml.so.1");
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    unlink(at(w, "dev/nvidia-uvm-tools"));
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
}

/* A scan that must go well. */
static struct alq_driver_files *scan(const struct world *w)
{
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_driver_scan(&w->cfg, &files, &err))
        fail_msg("%s", err.text);
    return files;
}

static void inject(struct world *w, const char *word)
{
    char *words[] = {strdup("default"), strdup(word), NULL};
    assert_int_equal(alq_inject_parse(words, &w->cfg.inject_sets, NULL), 0);
    free(words[0]);
    free(words[1]);
}

static const struct alq_driver_node *node_at(const struct alq_driver_nodes *nodes, const char *path)
{
    for (size_t i = 0; i < nodes->count; i++) {
        if (!strcmp(nodes->items[i].path, path))
            return &nodes->items[i];
    }
    return NULL;
}

static void put_kernel_version(const struct world *w, const char *version)
{
    char text[256];
    snprintf(text, sizeof(text),
             "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (x)\n"
             "GCC version:  gcc version 12.2.0 (Debian)\n",
             version);
    put_text(w, "proc/driver/nvidia", "version", text);
}

/* ---- versions ------------------------------------------------------------------------------- */

/* Opening a FIFO would wait for a writer, and hold a worker for good. */
static void scan_opens_no_fifo_in_the_place_of_a_file(void **state)
{
    static const char *const optional[] = {"etc/ld.so.cache", "usr/bin/nvidia-smi",
                                           "etc/OpenCL/vendors/nvidia.icd"};
    struct world *w = *state;
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    for (size_t i = 0; i < sizeof(optional) / sizeof(optional[0]); i++) {
        alq_auto_free char *dir = strdup(optional[i]);
        *strrchr(dir, '/') = '\0';
        assert_int_equal(alq_file_mkdirs(at(w, dir), 0755, NULL), 0);
        (void)unlink(at(w, optional[i]));
        assert_int_equal(mkfifo(at(w, optional[i]), 0666), 0);
    }
    alq_driver_files_free(scan(w));
    assert_int_equal(mkfifo(at(w, LIB_DIR "/libnvidia-new.so.550.163.01"), 0666), 0);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, &err), ALQ_EIO);
    assert_non_null(strstr(err.text, "libnvidia-new.so.550.163.01"));
}

static void scan_takes_the_version_of_the_loaded_module(void **state)
{
    struct world *w = *state;
    struct alq_err err = ALQ_ERR_INIT;
    put_driver(w, LIB_DIR, "550.163.01");
    put_driver(w, "usr/lib64", "535.261.03");
    put_nodes(w);
    put_kernel_version(w, "535.261.03");
    struct alq_driver_files *files = scan(w);
    assert_string_equal(files->version, "535.261.03");
    assert_string_equal(mount_on(files, "/usr/lib64/libcuda.so.1")->host_path,
                        at(w, "usr/lib64/libcuda.so.535.261.03"));
    for (size_t i = 0; i < files->mount_count; i++)
        assert_null(strstr(files->mounts[i].host_path, "550.163.01"));
    /* Upgraded on disk and reloaded: the scan is old. */
    put_kernel_version(w, "550.163.01");
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
    files = scan(w);
    assert_string_equal(files->version, "550.163.01");
    alq_driver_files_free(files);
    files = NULL;
    put_kernel_version(w, "580.65.06");
    assert_int_equal(alq_driver_scan(&w->cfg, &files, &err), ALQ_EAGAIN);
    assert_non_null(strstr(err.text, "580.65.06"));
    assert_non_null(strstr(err.text, "550.163.01"));
    assert_non_null(strstr(err.text, "535.261.03"));
    assert_null(files);
}

static void scan_ignores_links_that_lead_nowhere_and_other_processors(void **state)
{
    struct world *w = *state;
    put_driver(w, "usr/lib64", "550.163.01");
    put_nodes(w);
    assert_int_equal(alq_file_mkdirs(at(w, LIB_DIR), 0755, NULL), 0);
    assert_int_equal(symlink("gone", at(w, LIB_DIR "/libcuda.so.550.163.01")), 0);
    put_library_of(w, "usr/lib", "libnvidia-opencl.so.550.163.01", "libnvidia-opencl.so.1",
                   OTHER_MACHINE);
    struct alq_driver_files *files = scan(w);
    assert_non_null(mount_on(files, "/usr/lib64/libcuda.so.1"));
    assert_int_equal(files->mount_count, 4);
    alq_driver_files_free(files);
}

/* A cache with one entry, in glibc's format. */
static void put_ldcache(const struct world *w, const char *name, const char *path)
{
    struct {
        char magic[20];
        uint32_t count, strings_bytes, unused[5];
        int32_t flags;
        uint32_t name, path, os_version;
        uint64_t hwcap;
        char text[256];
    } file = {.count = 1, .flags = MACHINE == EM_X86_64 ? 0x0303 : 0x0a03};
    memcpy(file.magic, "glibc-ld.so.cache1.1", sizeof(file.magic));
    file.name = (uint32_t)((char *)file.text - (char *)&file);
    file.path = file.name + (uint32_t)strlen(name) + 1;
    snprintf(file.text, sizeof(file.text), "%s%c%s", name, 0, path);
    assert_int_equal(alq_file_mkdirs(at(w, "etc"), 0755, NULL), 0);
    assert_int_equal(
        alq_file_write_atomic(at(w, "etc/ld.so.cache"), &file, sizeof(file), 0644, 0, NULL), 0);
}

static void scan_finds_odd_directories_through_the_loaders_cache(void **state)
{
    struct world *w = *state;
    put_driver(w, "srv/gpu/lib", "550.163.01");
    put_nodes(w);
    put_ldcache(w, "libcuda.so.1", "/srv/gpu/lib/libcuda.so.1");
    struct alq_driver_files *files = scan(w);
    assert_string_equal(mount_on(files, "/" LIB_DIR "/libcuda.so.1")->host_path,
                        at(w, "srv/gpu/lib/libcuda.so.550.163.01"));
    /* The host's loader finds it elsewhere now. */
    put_ldcache(w, "libcuda.so.1", "/srv/other/lib/libcuda.so.1");
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
}

/* ---- sets ----------------------------------------------------------------------------------- */

static void scan_takes_the_files_of_the_chosen_sets(void **state)
{
    static const struct {
        const char *word, *dir, *name, *soname, *mounted;
    } rows[] = {
        {"graphics", LIB_DIR, "libGLX_nvidia.so.550.163.01", "libGLX_nvidia.so.0",
         "/" LIB_DIR "/libGLX_nvidia.so.0"},
        {"graphics", LIB_DIR, "libnvidia-egl-wayland.so.1.1.13", "libnvidia-egl-wayland.so.1",
         "/" LIB_DIR "/libnvidia-egl-wayland.so.1"},
        {"graphics", "usr/share/vulkan/icd.d", "nvidia_icd.json", NULL,
         "/usr/share/vulkan/icd.d/nvidia_icd.json"},
        {"video", LIB_DIR, "libnvcuvid.so.550.163.01", "libnvcuvid.so.1",
         "/" LIB_DIR "/libnvcuvid.so.1"},
        {"video", LIB_DIR "/vdpau", "libvdpau_nvidia.so.550.163.01", "libvdpau_nvidia.so.1",
         "/" LIB_DIR "/vdpau/libvdpau_nvidia.so.1"},
        {"utility", "usr/bin", "nvidia-smi", NULL, "/usr/bin/nvidia-smi"},
        {"firmware", "lib/firmware/nvidia/550.163.01", "gsp_ga10x.bin", NULL,
         "/lib/firmware/nvidia/550.163.01/gsp_ga10x.bin"},
        {"compute", "etc/OpenCL/vendors", "nvidia.icd", NULL, "/etc/OpenCL/vendors/nvidia.icd"},
        {"compute", LIB_DIR, "libnvidia-future.so.550.163.01", "libnvidia-future.so.1",
         "/" LIB_DIR "/libnvidia-future.so.1"},
        {NULL, LIB_DIR, "libnvidia-gtk3.so.550.163.01", "libnvidia-gtk3.so.550.163.01",
         "/" LIB_DIR "/libnvidia-gtk3.so.550.163.01"},
        {NULL, LIB_DIR, "libcuda.so.535.261.03", "libcuda.so.535.261.03",
         "/" LIB_DIR "/libcuda.so.535.261.03"},
    };
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].soname)
            put_library(w, rows[i].dir, rows[i].name, rows[i].soname);
        else
            put_text(w, rows[i].dir, rows[i].name, "text");
    }
    inject(w, "all");
    struct alq_driver_files *all = scan(w);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char without[32];
        assert_int_equal(mount_on(all, rows[i].mounted) != NULL, rows[i].word != NULL);
        if (!rows[i].word || !strcmp(rows[i].word, "compute"))
            continue;
        snprintf(without, sizeof(without), "-%s", rows[i].word);
        inject(w, without);
        struct alq_driver_files *less = scan(w);
        assert_null(mount_on(less, rows[i].mounted));
        assert_true(less->mount_count < all->mount_count);
        alq_driver_files_free(less);
    }
    alq_driver_files_free(all);
}

static void scan_takes_sockets_that_are_there_and_sees_them_come_and_go(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    struct alq_driver_files *files = scan(w);
    assert_null(mount_on(files, "/run/nvidia-persistenced/socket"));
    put_text(w, "run/nvidia-persistenced", "socket", "");
    assert_int_equal(alq_file_mkdirs(at(w, "tmp/nvidia-mps"), 0755, NULL), 0);
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
    files = scan(w);
    assert_true(mount_on(files, "/run/nvidia-persistenced/socket")->is_socket);
    assert_true(mount_on(files, "/tmp/nvidia-mps")->is_socket);
    put_text(w, "tmp/nvidia-mps", "log", "MPS writes here");
    assert_true(alq_driver_files_is_current(&w->cfg, files));
    assert_int_equal(unlink(at(w, "run/nvidia-persistenced/socket")), 0);
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void link_node(const struct world *w, const char *dir, const char *name)
{
    alq_auto_free char *path = alq_str_printf("%s/%s/%s", w->root, dir, name);
    assert_int_equal(alq_file_mkdirs(at(w, dir), 0755, NULL), 0);
    assert_int_equal(symlink("/dev/null", path), 0);
}

static void scan_finds_switches_and_channels_where_present(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    struct alq_driver_files *files = scan(w);
    link_node(w, "dev", "nvidia-nvswitchctl");
    link_node(w, "dev", "nvidia-nvswitch0");
    link_node(w, "dev/nvidia-caps-imex-channels", "channel0");
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
    files = scan(w);
    assert_non_null(node_at(&files->nodes, "/dev/nvidia-nvswitchctl"));
    assert_non_null(node_at(&files->nodes, "/dev/nvidia-nvswitch0"));
    assert_non_null(node_at(&files->nodes, "/dev/nvidia-caps-imex-channels/channel0"));
    alq_driver_files_free(files);
    inject(w, "-nvswitch");
    files = scan(w);
    assert_null(node_at(&files->nodes, "/dev/nvidia-nvswitch0"));
    assert_non_null(node_at(&files->nodes, "/dev/nvidia-caps-imex-channels/channel0"));
    alq_driver_files_free(files);
    inject(w, "-imex");
    files = scan(w);
    assert_null(node_at(&files->nodes, "/dev/nvidia-caps-imex-channels/channel0"));
    alq_driver_files_free(files);
}

static void put_gpu(const struct world *w, const char *address, unsigned minor)
{
    alq_auto_free char *dir = alq_str_printf("proc/driver/nvidia/gpus/%s", address);
    char text[256];
    snprintf(text, sizeof(text),
             "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 64\nBus Location: \t %s\n"
             "Device Minor: \t %u\n",
             address, minor);
    put_text(w, dir, "information", text);
}

static void scan_finds_drm_nodes_by_pci_address(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    put_gpu(w, "0000:65:00.0", 3);
    put_gpu(w, "0000:17:00.0", 0);
    put_text(w, "sys/bus/pci/devices/0000:65:00.0/drm/card1", "dev", "226:1");
    put_text(w, "sys/bus/pci/devices/0000:65:00.0/drm/renderD129", "dev", "226:129");
    link_node(w, "dev/dri", "card1");
    link_node(w, "dev/dri", "renderD129");
    link_node(w, "dev/dri", "renderD128"); /* of another card */
    struct alq_driver_files *files = scan(w);
    const struct alq_driver_gpu *gpu = alq_driver_gpu_of(files, 3);
    assert_string_equal(gpu->pci_bus_id, "0000:65:00.0");
    assert_int_equal(gpu->nodes.count, 2);
    assert_non_null(node_at(&gpu->nodes, "/dev/dri/card1"));
    assert_non_null(node_at(&gpu->nodes, "/dev/dri/renderD129"));
    assert_int_equal(gpu->link_count, 2);
    assert_string_equal(gpu->links[1].path, "/dev/dri/by-path/pci-0000:65:00.0-render");
    assert_string_equal(gpu->links[1].target, "../renderD129");
    assert_int_equal(alq_driver_gpu_of(files, 0)->nodes.count, 0);
    assert_null(alq_driver_gpu_of(files, 1));
    /* A GPU that is plugged in. */
    put_gpu(w, "0000:ca:00.0", 1);
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
    inject(w, "-drm");
    files = scan(w);
    assert_int_equal(alq_driver_gpu_of(files, 3)->nodes.count, 0);
    alq_driver_files_free(files);
}

static void scan_finds_the_capabilities_of_mig_instances(void **state)
{
    static const char instance[] = "proc/driver/nvidia/capabilities/gpu3/mig/gi1";
    static const char compute[] = "proc/driver/nvidia/capabilities/gpu3/mig/gi1/ci0";
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    put_gpu(w, "0000:65:00.0", 3);
    put_text(w, instance, "access",
             "DeviceFileMinor: 12\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
    put_text(w, compute, "access",
             "DeviceFileMinor: 13\nDeviceFileMode: 292\nDeviceFileModify: 1\n");
    link_node(w, "dev/nvidia-caps", "nvidia-cap12");
    struct alq_driver_files *files = scan(w);
    const struct alq_driver_gpu *gpu = alq_driver_gpu_of(files, 3);
    assert_non_null(node_at(&gpu->nodes, "/dev/nvidia-caps/nvidia-cap12"));
    assert_int_equal(gpu->missing.code, ALQ_ENOENT);
    assert_non_null(strstr(gpu->missing.text, "nvidia-cap13"));
    alq_driver_files_free(files);
    link_node(w, "dev/nvidia-caps", "nvidia-cap13");
    files = scan(w);
    gpu = alq_driver_gpu_of(files, 3);
    assert_int_equal(gpu->missing.code, 0);
    assert_int_equal(gpu->nodes.count, 2);
    assert_int_equal(alq_file_remove_tree(at(w, compute), NULL), 0);
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
}

/* ---- changes -------------------------------------------------------------------------------- */

/* Exchanges two roots under the scan until told to stop. */
struct swapper {
    const struct world *w;
    atomic_int is_over;
};

static void *swap_roots(void *arg)
{
    struct swapper *s = arg;
    char root[128], other[128];
    snprintf(root, sizeof(root), "%s/live", s->w->root);
    snprintf(other, sizeof(other), "%s/other", s->w->root);
    while (!atomic_load(&s->is_over))
        renameat2(AT_FDCWD, root, AT_FDCWD, other, RENAME_EXCHANGE);
    return NULL;
}

static void scan_of_a_root_that_is_exchanged_is_whole_or_an_error(void **state)
{
    struct world *w = *state;
    struct swapper swapper = {.w = w};
    unsigned whole = 0, refused = 0;
    pthread_t thread;
    put_driver(w, "live/" LIB_DIR, "550.163.01");
    put_driver(w, "other/" LIB_DIR, "535.261.03");
    put_driver(w, "other/usr/lib64", "535.261.03");
    put_nodes(w);
    free(w->cfg.driver_root);
    w->cfg.driver_root = strdup(at(w, "live"));
    assert_int_equal(pthread_create(&thread, NULL, swap_roots, &swapper), 0);
    for (int i = 0; i < 300; i++) {
        struct alq_driver_files *files = NULL;
        struct alq_err err = ALQ_ERR_INIT;
        int rc = alq_driver_scan(&w->cfg, &files, &err);
        refused += rc != 0;
        if (rc) {
            assert_true(rc == ALQ_EAGAIN || rc == ALQ_ENOENT);
            assert_non_null(strstr(err.text, w->root));
            continue;
        }
        whole++;
        assert_true(!strcmp(files->version, "550.163.01") || !strcmp(files->version, "535.261.03"));
        assert_int_equal(files->mount_count, strcmp(files->version, "550.163.01") ? 8 : 4);
        for (size_t j = 0; j < files->mount_count; j++)
            assert_non_null(strstr(files->mounts[j].host_path, files->version));
        alq_driver_files_free(files);
    }
    atomic_store(&swapper.is_over, 1);
    pthread_join(thread, NULL);
    print_message("%u scans were whole, %u refused\n", whole, refused);
    assert_int_equal(whole + refused, 300);
}

static void is_current_notices_that_the_root_is_gone(void **state)
{
    struct world *w = *state;
    struct alq_err err = ALQ_ERR_INIT;
    put_driver(w, "live/" LIB_DIR, "550.163.01");
    put_nodes(w);
    free(w->cfg.driver_root);
    w->cfg.driver_root = strdup(at(w, "live"));
    struct alq_driver_files *files = scan(w);
    assert_int_equal(alq_file_remove_tree(w->cfg.driver_root, NULL), 0);
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
    files = NULL;
    assert_int_equal(alq_driver_scan(&w->cfg, &files, &err), ALQ_ENOENT);
    assert_null(files);
}

static void is_current_notices_a_version_that_comes_beside(void **state)
{
    struct world *w = *state;
    put_driver(w, "usr/lib64", "550.163.01");
    put_nodes(w);
    struct alq_driver_files *files = scan(w);
    put_driver(w, LIB_DIR, "580.65.06");
    assert_false(alq_driver_files_is_current(&w->cfg, files));
    alq_driver_files_free(files);
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(scan_mounts_libraries_by_version_at_their_soname),
        ROW(scan_of_two_versions_takes_the_linked_one_else_the_higher),
        ROW(scan_finds_other_layouts),
        ROW(scan_follows_absolute_links_inside_the_root_only),
        ROW(scan_without_a_driver_says_where_it_looked),
        ROW(scan_of_damaged_libraries_is_an_error),
        ROW(scan_opens_no_fifo_in_the_place_of_a_file),
        ROW(is_current_sees_replaced_files_and_nodes),
        ROW(scan_takes_the_version_of_the_loaded_module),
        ROW(scan_ignores_links_that_lead_nowhere_and_other_processors),
        ROW(scan_finds_odd_directories_through_the_loaders_cache),
        ROW(scan_takes_the_files_of_the_chosen_sets),
        ROW(scan_takes_sockets_that_are_there_and_sees_them_come_and_go),
        ROW(scan_finds_switches_and_channels_where_present),
        ROW(scan_finds_drm_nodes_by_pci_address),
        ROW(scan_finds_the_capabilities_of_mig_instances),
        ROW(scan_of_a_root_that_is_exchanged_is_whole_or_an_error),
        ROW(is_current_notices_that_the_root_is_gone),
        ROW(is_current_notices_a_version_that_comes_beside),
    };
#undef ROW
    return cmocka_run_group_tests(tests, NULL, NULL);
}
