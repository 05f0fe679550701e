/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scan's part for device nodes: the control nodes, NVSwitch and IMEX channels of all
 * containers; and, out of the kernel's files, each GPU's DRM nodes (by its PCI address) and the
 * capability nodes of its MIG instances. Blocking; no state.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/cdi/inject.h"
#include "daemon/cdi/root.h"
#include "daemon/cdi/scan.h"

#define ALQ_LOG_MODULE "cdi"
#define ENTRIES_MAX 4096 /* of one directory: more is not the driver's doing */

static const struct {
    const char *name;
    int is_needed;
} control_nodes[] = {
    {"nvidiactl", 1},
    {"nvidia-uvm", 1},
    {"nvidia-uvm-tools", 0},
    {"nvidia-modeset", 0},
};

static int out_of_memory(struct alq_err *err)
{
    return alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

/* ---- directories ------------------------------------------------------------------------------
 */

struct names {
    size_t count;
    char **items; /* sorted */
};

static void names_clear(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->items[i]);
    free(names->items);
}
#define auto_names __attribute__((cleanup(names_clear)))

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(struct names *names, const char *name)
{
    char **grown = reallocarray(names->items, names->count + 1, sizeof(*grown));
    if (!grown)
        return -1;
    names->items = grown;
    grown[names->count] = strdup(name);
    if (!grown[names->count])
        return -1;
    names->count++;
    return 0;
}

/* The names in root/path that begin with prefix; none when it is missing. With files the directory
 * is watched. */
static int list(struct alq_driver_files *files, const char *root, const char *path,
                const char *prefix, enum alq_watch_how how, struct names *names,
                struct alq_err *err)
{
    alq_auto_free char *host_path = NULL;
    alq_auto_free char *joined = alq_root_join(root, path);
    struct stat st;
    if (!joined)
        return out_of_memory(err);
    alq_auto_close int fd = alq_root_open(root, path, O_DIRECTORY, &host_path, NULL);
    if (fd < 0)
        return files ? alq_scan_add_watch(files, joined, how, NULL, err) : 0;
    if (fstat(fd, &st))
        return alq_err_errno(err, errno, "stat %s", joined);
    int rc = files ? alq_scan_add_watch(files, host_path, how, &st, err) : 0;
    alq_auto_closedir DIR *dir = rc ? NULL : fdopendir(fd);
    if (!dir)
        return rc ? rc : alq_err_errno(err, errno, "read directory %s", joined);
    (void)alq_steal_fd(&fd);
    errno = 0;
    for (struct dirent *e; (e = readdir(dir)) && names->count < ENTRIES_MAX; errno = 0) {
        if (e->d_name[0] != '.' && !strncmp(e->d_name, prefix, strlen(prefix)) &&
            add_name(names, e->d_name))
            return out_of_memory(err);
    }
    if (errno)
        return alq_err_errno(err, errno, "read directory %s", joined);
    if (names->count)
        qsort(names->items, names->count, sizeof(*names->items), by_name);
    return 0;
}

/* ---- nodes of all containers ------------------------------------------------------------------
 */

static int add_node(const struct alq_config *cfg, struct alq_driver_files *files,
                    struct alq_driver_nodes *nodes, const char *name, int is_needed,
                    struct alq_err *err)
{
    struct alq_driver_node node = {0};
    struct alq_err why = ALQ_ERR_INIT;
    int rc = alq_driver_node_find(cfg, name, &node, &why);
    if (!rc)
        return alq_scan_keep_node(cfg, files, nodes, &node, err);
    if (is_needed || rc == ALQ_ENOMEM) {
        if (err)
            *err = why;
        return rc;
    }
    /* A directory, say, that some runtime made in its place to mount upon. */
    if (rc != ALQ_ENOENT && rc != ALQ_EACCES)
        alq_warn(NULL, "containers do without a node: %s", why.text);
    alq_auto_free char *path = alq_str_printf("dev/%s", name);
    alq_auto_free char *below = path ? alq_root_join(cfg->dev_root, path) : NULL;
    return below ? alq_scan_add_watch(files, below, ALQ_WATCH_NODE, NULL, err) : out_of_memory(err);
}

/* Switches: all there are, made by the driver's tools. */
static int add_switches(const struct alq_config *cfg, struct alq_driver_files *files,
                        struct alq_err *err)
{
    auto_names struct names names = {0};
    int rc = list(NULL, cfg->dev_root, "dev", "nvidia-nvswitch", ALQ_WATCH_CONTENT, &names, err);
    for (size_t i = 0; i < names.count && !rc; i++)
        rc = add_node(cfg, files, &files->nodes, names.items[i], 0, err);
    if (!rc && !names.count) /* the one that comes with the first switch is watched */
        rc = add_node(cfg, files, &files->nodes, "nvidia-nvswitchctl", 0, err);
    return rc;
}

static int add_channels(const struct alq_config *cfg, struct alq_driver_files *files,
                        struct alq_err *err)
{
    auto_names struct names names = {0};
    int rc = list(files, cfg->dev_root, "dev/nvidia-caps-imex-channels", "channel",
                  ALQ_WATCH_CONTENT, &names, err);
    for (size_t i = 0; i < names.count && !rc; i++) {
        alq_auto_free char *name = alq_str_printf("nvidia-caps-imex-channels/%s", names.items[i]);
        rc = name ? add_node(cfg, files, &files->nodes, name, 0, err) : out_of_memory(err);
    }
    return rc;
}

/* ---- nodes of a GPU ---------------------------------------------------------------------------
 */

/* "0000:65:00.0", the name of a GPU's directory in proc and in sysfs. */
static int is_pci_address(const char *text)
{
    size_t len = strlen(text);
    return strspn(text, "0123456789abcdefABCDEF:.") == len && strchr(text, ':') &&
           len < sizeof(((struct alq_driver_gpu *)0)->pci_bus_id);
}

static int add_drm(const struct alq_config *cfg, struct alq_driver_files *files,
                   struct alq_driver_gpu *gpu, struct alq_err *err)
{
    static const struct {
        const char *prefix, *kind;
    } kinds[] = {{"card", "card"}, {"renderD", "render"}};
    int rc = 0;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]) && !rc; k++) {
        auto_names struct names names = {0};
        alq_auto_free char *dir = alq_str_printf("sys/bus/pci/devices/%s/drm", gpu->pci_bus_id);
        if (!dir)
            return out_of_memory(err);
        rc = list(files, cfg->kernel_root, dir, kinds[k].prefix, ALQ_WATCH_IDENTITY, &names, err);
        for (size_t i = 0; i < names.count && !rc; i++) {
            size_t before = gpu->nodes.count;
            alq_auto_free char *name = alq_str_printf("dri/%s", names.items[i]);
            alq_auto_free char *link =
                alq_str_printf("/dev/dri/by-path/pci-%s-%s", gpu->pci_bus_id, kinds[k].kind);
            alq_auto_free char *target = alq_str_printf("../%s", names.items[i]);
            if (!name || !link || !target)
                return out_of_memory(err);
            rc = add_node(cfg, files, &gpu->nodes, name, 0, err);
            if (!rc && gpu->nodes.count > before)
                rc = alq_scan_add_link(&gpu->links, &gpu->link_count, link, target, err);
        }
    }
    return rc;
}

/* One capability file of the kernel's, ".../access". */
static int add_capability(const struct alq_config *cfg, struct alq_driver_files *files,
                          struct alq_driver_gpu *gpu, const char *dir, struct alq_err *err)
{
    char text[512];
    uint32_t minor, mode = 0400;
    struct alq_driver_node node = {0};
    alq_auto_free char *path = alq_str_printf("%s/access", dir);
    if (!path)
        return out_of_memory(err);
    if (alq_kernel_read(cfg, path, text, sizeof(text), NULL) ||
        alq_kernel_number(text, "DeviceFileMinor", &minor))
        return 0; /* the instance is going away: the directory's watch tells */
    (void)alq_kernel_number(text, "DeviceFileMode", &mode);
    if (alq_driver_capability_find(cfg, minor, mode, &node, &gpu->missing))
        return 0; /* this GPU cannot be injected; others can */
    return alq_scan_keep_node(cfg, files, &gpu->nodes, &node, err);
}

/* GPU instances and their compute instances. */
static int add_mig(const struct alq_config *cfg, struct alq_driver_files *files,
                   struct alq_driver_gpu *gpu, struct alq_err *err)
{
    auto_names struct names gis = {0};
    alq_auto_free char *mig =
        alq_str_printf("proc/driver/nvidia/capabilities/gpu%u/mig", gpu->minor);
    if (!mig)
        return out_of_memory(err);
    int rc = list(files, cfg->kernel_root, mig, "gi", ALQ_WATCH_IDENTITY, &gis, err);
    for (size_t i = 0; i < gis.count && !rc; i++) {
        auto_names struct names cis = {0};
        alq_auto_free char *gi = alq_str_printf("%s/%s", mig, gis.items[i]);
        if (!gi)
            return out_of_memory(err);
        rc = add_capability(cfg, files, gpu, gi, err);
        if (!rc)
            rc = list(files, cfg->kernel_root, gi, "ci", ALQ_WATCH_IDENTITY, &cis, err);
        for (size_t j = 0; j < cis.count && !rc; j++) {
            alq_auto_free char *ci = alq_str_printf("%s/%s", gi, cis.items[j]);
            rc = ci ? add_capability(cfg, files, gpu, ci, err) : out_of_memory(err);
        }
    }
    return rc;
}

static int add_gpu(const struct alq_config *cfg, struct alq_driver_files *files,
                   const char *address, struct alq_err *err)
{
    char text[4096];
    uint32_t minor;
    alq_auto_free char *path = alq_str_printf("proc/driver/nvidia/gpus/%s/information", address);
    if (!path)
        return out_of_memory(err);
    if (!is_pci_address(address) || alq_kernel_read(cfg, path, text, sizeof(text), NULL) ||
        alq_kernel_number(text, "Device Minor", &minor))
        return 0;
    struct alq_driver_gpu *grown = reallocarray(files->gpus, files->gpu_count + 1, sizeof(*grown));
    if (!grown)
        return out_of_memory(err);
    files->gpus = grown;
    struct alq_driver_gpu *gpu = &grown[files->gpu_count++];
    *gpu = (struct alq_driver_gpu){.minor = minor};
    snprintf(gpu->pci_bus_id, sizeof(gpu->pci_bus_id), "%s", address);
    int rc = cfg->inject_sets & ALQ_INJECT_DRM ? add_drm(cfg, files, gpu, err) : 0;
    if (!rc && cfg->inject_sets & ALQ_INJECT_MIG)
        rc = add_mig(cfg, files, gpu, err);
    return rc;
}

int alq_scan_nodes(const struct alq_config *cfg, struct alq_driver_files *files,
                   struct alq_err *err)
{
    auto_names struct names gpus = {0};
    int rc = 0;
    for (size_t i = 0; i < sizeof(control_nodes) / sizeof(control_nodes[0]) && !rc; i++)
        rc = add_node(cfg, files, &files->nodes, control_nodes[i].name, control_nodes[i].is_needed,
                      err);
    if (!rc && cfg->inject_sets & ALQ_INJECT_NVSWITCH)
        rc = add_switches(cfg, files, err);
    if (!rc && cfg->inject_sets & ALQ_INJECT_IMEX)
        rc = add_channels(cfg, files, err);
    if (!rc)
        rc = list(files, cfg->kernel_root, "proc/driver/nvidia/gpus", "", ALQ_WATCH_IDENTITY, &gpus,
                  err);
    for (size_t i = 0; i < gpus.count && !rc; i++)
        rc = add_gpu(cfg, files, gpus.items[i], err);
    return rc;
}
