/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks for the files of NVIDIA's driver below the driver root: libcuda.so.<version> first, then
 * every other library of that version beside it that compute work and NVML need, by their SONAME.
 * What is found is remembered with its stat, so that a later look costs a stat a file and no
 * directory walk. Blocking file I/O; no state.
 */
#include "daemon/cdi/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/elf.h"
#include "daemon/cdi/root.h"

/* Libraries of the driver's compute and utility sets (reference/dra.md §5.3), without
 * ".so.<version>". */
static const char *const library_names[] = {
    "libcuda",
    "libcudadebugger",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-compiler",
    "libnvidia-fatbinaryloader",
    "libnvidia-gpucomp",
    "libnvidia-ml",
    "libnvidia-nscq",
    "libnvidia-nvvm",
    "libnvidia-nvvm70",
    "libnvidia-opencl",
    "libnvidia-pkcs11",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-ptxjitcompiler",
    "libnvidia-tileiras",
    NULL,
};

static const char *const binary_paths[] = {"usr/bin/nvidia-smi", NULL};

static const struct {
    const char *name;
    int is_needed;
} common_nodes[ALQ_DRIVER_COMMON_NODES] = {
    {"nvidiactl", 1},
    {"nvidia-uvm", 1},
    {"nvidia-uvm-tools", 0},
    {"nvidia-modeset", 0},
};

static int out_of_memory(struct alq_err *err)
{
    return alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

static struct alq_file_stamp stamp_of(const struct stat *st)
{
    return (struct alq_file_stamp){
        .device = st->st_dev,
        .inode = st->st_ino,
        .size = (uint64_t)st->st_size,
        .changed_ns = (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec,
    };
}

static int is_same_stamp(struct alq_file_stamp a, struct alq_file_stamp b)
{
    return a.device == b.device && a.inode == b.inode && a.size == b.size &&
           a.changed_ns == b.changed_ns;
}

/* "550.163.01": at least two numbers with points between. */
static int is_version(const char *text)
{
    size_t len = strlen(text);
    return len > 2 && len < sizeof(((struct alq_driver_files *)0)->version) && strchr(text, '.') &&
           strspn(text, "0123456789.") == len && text[0] != '.' && text[len - 1] != '.' &&
           !strstr(text, "..");
}

static int version_cmp(const char *a, const char *b)
{
    while (*a && *b) {
        char *a_end, *b_end;
        unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);
        if (x != y)
            return x < y ? -1 : 1;
        a = a_end + (*a_end == '.');
        b = b_end + (*b_end == '.');
    }
    return (*a != '\0') - (*b != '\0');
}

/* ---- nodes
 * ------------------------------------------------------------------------------------------------
 */

int alq_driver_node_find(const struct alq_config *cfg, const char *name,
                         struct alq_driver_node *node, struct alq_err *err)
{
    alq_auto_free char *path = alq_str_printf("/dev/%s", name);
    alq_auto_free char *below = path ? alq_root_join(cfg->dev_root, path) : NULL;
    if (!below)
        return out_of_memory(err);
    alq_auto_free char *real = realpath(below, NULL);
    if (!real && errno == ENOENT)
        return alq_err_set(err, ALQ_ENOENT,
                           "device node %s is missing; load the driver and make its nodes "
                           "(nvidia-modprobe -c 0 -u), or "
                           "set --dev-root",
                           below);
    struct stat st;
    if (!real || stat(real, &st))
        return alq_err_errno(err, errno, "device node %s", below);
    if (!S_ISCHR(st.st_mode))
        return alq_err_set(err, ALQ_EINVAL, "device node %s: %s is not a character device", below,
                           real);
    node->path = alq_steal(&path);
    node->host_path = alq_steal(&real);
    return 0;
}

void alq_driver_node_clear(struct alq_driver_node *node)
{
    free(node->path);
    free(node->host_path);
    *node = (struct alq_driver_node){0};
}

static int find_common_nodes(const struct alq_config *cfg, struct alq_driver_files *files,
                             struct alq_err *err)
{
    for (size_t i = 0; i < ALQ_DRIVER_COMMON_NODES; i++) {
        struct alq_err why = ALQ_ERR_INIT;
        int rc =
            alq_driver_node_find(cfg, common_nodes[i].name, &files->nodes[files->node_count], &why);
        if (!rc) {
            files->node_count++;
        } else if (common_nodes[i].is_needed || rc != ALQ_ENOENT) {
            if (err)
                *err = why;
            return rc;
        }
    }
    return 0;
}

/* ---- files
 * ------------------------------------------------------------------------------------------------
 */

static int add_mount(struct alq_driver_files *files, const char *host_path,
                     const char *container_path, const struct stat *st, struct alq_err *err)
{
    for (size_t i = 0; i < files->mount_count; i++) {
        if (!strcmp(files->mounts[i].container_path, container_path))
            return 0; /* found in a directory that goes before */
    }
    struct alq_driver_mount *grown =
        reallocarray(files->mounts, files->mount_count + 1, sizeof(*grown));
    if (!grown)
        return out_of_memory(err);
    files->mounts = grown;
    struct alq_driver_mount *m = &grown[files->mount_count];
    *m = (struct alq_driver_mount){.host_path = strdup(host_path),
                                   .container_path = strdup(container_path),
                                   .stamp = stamp_of(st)};
    if (!m->host_path || !m->container_path) {
        free(m->host_path);
        free(m->container_path);
        return out_of_memory(err);
    }
    files->mount_count++;
    return 0;
}

/* Whether name is "<library>.so.<version>" of the wanted set; *version points into it. */
static int is_driver_library(const char *name, const char **version)
{
    for (const char *const *library = library_names; *library; library++) {
        size_t len = strlen(*library);
        if (!strncmp(name, *library, len) && !strncmp(name + len, ".so.", 4)) {
            *version = name + len + 4;
            return 1;
        }
    }
    return 0;
}

/* The version that libcuda.so.1 of this directory leads to, "" when it does not say. */
static void linked_version(const char *root, const char *dir, char *version, size_t size)
{
    version[0] = '\0';
    alq_auto_free char *link = alq_str_printf("%s/libcuda.so.1", dir);
    alq_auto_free char *target = NULL;
    alq_auto_close int fd = link ? alq_root_open(root, link, O_PATH, &target, NULL) : -1;
    const char *found = fd >= 0 && target ? strstr(target, "/libcuda.so.") : NULL;
    if (found && is_version(found + strlen("/libcuda.so.")))
        snprintf(version, size, "%s", found + strlen("/libcuda.so."));
}

static DIR *open_dir(const char *root, const char *dir)
{
    alq_auto_close int fd = alq_root_open(root, dir, O_DIRECTORY, NULL, NULL);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d)
        (void)alq_steal_fd(&fd);
    return d;
}

/* Finds libcuda.so.<version>: the first directory that has one; there the version that libcuda.so.1
 * leads to, else the highest. */
static int find_libcuda(const struct alq_config *cfg, struct alq_driver_files *files,
                        struct alq_err *err)
{
    for (const char *const *dir = alq_driver_library_dirs; *dir; dir++) {
        alq_auto_closedir DIR *d = open_dir(cfg->driver_root, *dir);
        char linked[sizeof(files->version)];
        if (!d)
            continue;
        linked_version(cfg->driver_root, *dir, linked, sizeof(linked));
        for (struct dirent *e; (e = readdir(d));) {
            if (strncmp(e->d_name, "libcuda.so.", 11) || !is_version(e->d_name + 11))
                continue;
            const char *version = e->d_name + 11;
            if (!strcmp(version, linked)) {
                snprintf(files->version, sizeof(files->version), "%s", version);
                return 0;
            }
            if (!files->version[0] || version_cmp(version, files->version) > 0)
                snprintf(files->version, sizeof(files->version), "%s", version);
        }
        if (files->version[0])
            return 0;
    }
    char looked[256];
    size_t used = 0;
    for (const char *const *dir = alq_driver_library_dirs; *dir && used < sizeof(looked); dir++)
        used +=
            (size_t)snprintf(looked + used, sizeof(looked) - used, "%s%s", used ? ", " : "", *dir);
    return alq_err_set(err, ALQ_ENOENT,
                       "no libcuda.so.<version> below %s (looked in %s); install NVIDIA's driver "
                       "or set --driver-root",
                       cfg->driver_root, looked);
}

static int add_library(const struct alq_config *cfg, struct alq_driver_files *files,
                       const char *dir, const char *name, struct alq_err *err)
{
    alq_auto_free char *path = alq_str_printf("%s/%s", dir, name);
    alq_auto_free char *host_path = NULL;
    if (!path)
        return out_of_memory(err);
    struct alq_err why = ALQ_ERR_INIT;
    alq_auto_close int fd = alq_root_open(cfg->driver_root, path, 0, &host_path, &why);
    struct stat st;
    struct alq_elf elf;
    int rc = fd < 0 ? fd : 0;
    if (!rc && fstat(fd, &st))
        rc = alq_err_errno(&why, errno, "stat %s", host_path);
    if (!rc)
        rc = alq_elf_read(fd, host_path, &elf, &why);
    if (rc) {
        if (err)
            *err = why;
        return rc;
    }

    const char *soname = elf.soname[0] && !strchr(elf.soname, '/') ? elf.soname : name;
    alq_auto_free char *container_path =
        alq_str_printf("%s/%s", alq_driver_container_dir(dir), soname);
    if (!container_path)
        return out_of_memory(err);
    rc = add_mount(files, host_path, container_path, &st, err);
    if (rc || strncmp(name, "libcuda.so.", 11))
        return rc;

    /* Programs that were not linked against the driver open it as libcuda.so too. */
    alq_auto_free char *plain = alq_str_printf("%s/libcuda.so", alq_driver_container_dir(dir));
    if (!plain)
        return out_of_memory(err);
    if (!files->library_host_path) {
        files->library_host_path = strdup(host_path);
        if (!files->library_host_path)
            return out_of_memory(err);
    }
    return add_mount(files, host_path, plain, &st, err);
}

static int find_libraries(const struct alq_config *cfg, struct alq_driver_files *files,
                          struct alq_err *err)
{
    for (const char *const *dir = alq_driver_library_dirs; *dir; dir++) {
        alq_auto_closedir DIR *d = open_dir(cfg->driver_root, *dir);
        if (!d)
            continue;
        errno = 0;
        for (struct dirent *e; (e = readdir(d)); errno = 0) {
            const char *version;
            if (!is_driver_library(e->d_name, &version) || strcmp(version, files->version))
                continue;
            int rc = add_library(cfg, files, *dir, e->d_name, err);
            if (rc)
                return rc;
        }
        if (errno)
            return alq_err_errno(err, errno, "read directory %s below %s", *dir, cfg->driver_root);
    }
    return 0;
}

static int find_binaries(const struct alq_config *cfg, struct alq_driver_files *files,
                         struct alq_err *err)
{
    for (const char *const *path = binary_paths; *path; path++) {
        alq_auto_free char *host_path = NULL;
        alq_auto_close int fd = alq_root_open(cfg->driver_root, *path, 0, &host_path, NULL);
        struct stat st;
        if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode))
            continue;
        alq_auto_free char *container_path = alq_str_printf("/%s", *path);
        if (!container_path)
            return out_of_memory(err);
        int rc = add_mount(files, host_path, container_path, &st, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int by_container_path(const void *a, const void *b)
{
    return strcmp(((const struct alq_driver_mount *)a)->container_path,
                  ((const struct alq_driver_mount *)b)->container_path);
}

/* NVML goes with libcuda; a root that has but one of them is being installed or taken away. */
static int check_complete(const struct alq_config *cfg, const struct alq_driver_files *files,
                          struct alq_err *err)
{
    for (size_t i = 0; i < files->mount_count; i++) {
        if (strstr(files->mounts[i].container_path, "/libnvidia-ml.so.1"))
            return 0;
    }
    return alq_err_set(
        err, ALQ_ENOENT,
        "libcuda.so.%s is below %s but libnvidia-ml.so.%s is not; the driver is incomplete",
        files->version, cfg->driver_root, files->version);
}

int alq_driver_scan(const struct alq_config *cfg, struct alq_driver_files **files,
                    struct alq_err *err)
{
    struct alq_driver_files *found = calloc(1, sizeof(*found));
    if (!found)
        return out_of_memory(err);
    int rc = find_libcuda(cfg, found, err);
    if (!rc)
        rc = find_libraries(cfg, found, err);
    if (!rc)
        rc = find_binaries(cfg, found, err);
    if (!rc)
        rc = check_complete(cfg, found, err);
    if (!rc)
        rc = find_common_nodes(cfg, found, err);
    if (rc) {
        alq_driver_files_free(found);
        return rc;
    }
    qsort(found->mounts, found->mount_count, sizeof(*found->mounts), by_container_path);
    *files = found;
    return 0;
}

int alq_driver_files_is_current(const struct alq_config *cfg, const struct alq_driver_files *files)
{
    for (size_t i = 0; i < files->mount_count; i++) {
        struct stat st;
        if (stat(files->mounts[i].host_path, &st) ||
            !is_same_stamp(stamp_of(&st), files->mounts[i].stamp))
            return 0;
    }
    /* libcuda.so.1 may have been turned to another version that lies beside the old one. */
    for (const char *const *dir = alq_driver_library_dirs; *dir; dir++) {
        char linked[sizeof(files->version)];
        linked_version(cfg->driver_root, *dir, linked, sizeof(linked));
        if (linked[0]) {
            if (strcmp(linked, files->version))
                return 0;
            break;
        }
    }
    struct alq_driver_files now = {0};
    int is_same = !find_common_nodes(cfg, &now, NULL) && now.node_count == files->node_count;
    for (size_t i = 0; i < now.node_count; i++) {
        if (is_same && (strcmp(now.nodes[i].path, files->nodes[i].path) ||
                        strcmp(now.nodes[i].host_path, files->nodes[i].host_path)))
            is_same = 0;
        alq_driver_node_clear(&now.nodes[i]);
    }
    return is_same;
}

void alq_driver_files_free(struct alq_driver_files *files)
{
    if (!files)
        return;
    for (size_t i = 0; i < files->mount_count; i++) {
        free(files->mounts[i].host_path);
        free(files->mounts[i].container_path);
    }
    free(files->mounts);
    for (size_t i = 0; i < files->node_count; i++)
        alq_driver_node_clear(&files->nodes[i]);
    free(files->library_host_path);
    free(files);
}
