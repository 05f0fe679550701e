/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the files of NVIDIA's user-space driver below a root. The version is the loaded kernel
 * module's; where that is not known, the one that libcuda.so.1 leads to, else the highest. A
 * library is mounted under its SONAME, the name by which programs ask for it, so that no ldconfig
 * needs to run in a container like the host; what is taken of a driver is all of one version, and
 * at the end all that was looked at must be as it was. Blocking file I/O; no state.
 */
#include "daemon/cdi/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/elf.h"
#include "daemon/cdi/inject.h"
#include "daemon/cdi/ldcache.h"
#include "daemon/cdi/root.h"
#include "daemon/cdi/wanted.h"

#define DIRS_MAX 32
#define LDCACHE_BYTES_MAX (16u << 20)
#define TRIES 3

/* One scan, of one root: its path may lead to another one meanwhile. */
struct scan {
    const struct alq_config *cfg;
    struct alq_driver_files *files;
    int root;        /* open */
    char *root_path; /* where it was then, "" for "/" */
    /* Directories of libraries, relative to the root; each once, whatever its names. */
    size_t dir_count;
    struct dir {
        char *path;
        dev_t device;
        ino_t inode;
    } dirs[DIRS_MAX];
};

static int out_of_memory(struct alq_err *err)
{
    return alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

static int open_below(const struct scan *scan, const char *path, int flags, char **host_path,
                      struct alq_err *err)
{
    return alq_root_open_at(scan->root, scan->cfg->driver_root, path, flags, host_path, err);
}

/* ---- directories of libraries -----------------------------------------------------------------
 */

static int add_dir(struct scan *scan, const char *path, struct alq_err *err)
{
    alq_auto_free char *host_path = NULL;
    alq_auto_free char *joined = alq_root_join(scan->cfg->driver_root, path);
    struct stat st;
    if (!joined)
        return out_of_memory(err);
    alq_auto_close int fd = open_below(scan, path, O_DIRECTORY, &host_path, NULL);
    if (fd < 0 || fstat(fd, &st))
        return alq_scan_add_watch(scan->files, joined, ALQ_WATCH_CONTENT, NULL, err);
    for (size_t i = 0; i < scan->dir_count; i++) {
        if (scan->dirs[i].device == st.st_dev && scan->dirs[i].inode == st.st_ino)
            return 0;
    }
    if (scan->dir_count == DIRS_MAX)
        return 0;
    struct dir *dir = &scan->dirs[scan->dir_count];
    *dir = (struct dir){.path = strdup(path), .device = st.st_dev, .inode = st.st_ino};
    if (!dir->path)
        return out_of_memory(err);
    scan->dir_count++;
    return alq_scan_add_watch(scan->files, host_path, ALQ_WATCH_CONTENT, &st, err);
}

/* Where the host's loader finds the driver, if that is somewhere else. */
static int on_cached_library(void *arg, const char *name, const char *path)
{
    struct scan *scan = arg;
    const char *slash = strrchr(path, '/');
    if ((strcmp(name, "libcuda.so.1") && strcmp(name, "libnvidia-ml.so.1")) || path[0] != '/' ||
        slash == path)
        return 0;
    alq_auto_free char *dir = alq_str_printf("%.*s", (int)(slash - path - 1), path + 1);
    return dir ? add_dir(scan, dir, NULL) : ALQ_ENOMEM;
}

static int add_cached_dirs(struct scan *scan, struct alq_err *err)
{
    alq_auto_free char *host_path = NULL;
    alq_auto_free char *data = NULL;
    size_t len = 0;
    struct stat st;
    alq_auto_close int fd = open_below(scan, "etc/ld.so.cache", 0, &host_path, NULL);
    if (fd < 0 || fstat(fd, &st))
        return 0;
    int rc = alq_scan_add_watch(scan->files, host_path, ALQ_WATCH_CONTENT, &st, err);
    /* A cache that cannot be read is not a reason: the usual places do without. */
    if (!rc && !alq_file_read(host_path, LDCACHE_BYTES_MAX, &data, &len, NULL) &&
        alq_ldcache_each(data, len, on_cached_library, scan, NULL) == ALQ_ENOMEM)
        rc = out_of_memory(err);
    return rc;
}

static int find_dirs(struct scan *scan, struct alq_err *err)
{
    int rc = 0;
    for (const char *const *dir = alq_driver_library_dirs; *dir && !rc; dir++)
        rc = add_dir(scan, *dir, err);
    return rc ? rc : add_cached_dirs(scan, err);
}

static DIR *open_dir(const struct scan *scan, const char *path)
{
    alq_auto_close int fd = open_below(scan, path, O_DIRECTORY, NULL, NULL);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (d)
        (void)alq_steal_fd(&fd);
    return d;
}

/* ---- the version ------------------------------------------------------------------------------
 */

/* Whether root/dir/name leads to a file. */
static int leads_to_file(const struct scan *scan, const char *dir, const char *name)
{
    struct stat st;
    alq_auto_free char *path = alq_str_printf("%s/%s", dir, name);
    alq_auto_close int fd = path ? open_below(scan, path, O_PATH, NULL, NULL) : -1;
    return fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
}

/* The version that libcuda.so.1 of this directory leads to, "" when it does not say. */
static void linked_version(const struct scan *scan, const char *dir, char *version, size_t size)
{
    version[0] = '\0';
    alq_auto_free char *link = alq_str_printf("%s/libcuda.so.1", dir);
    alq_auto_free char *target = NULL;
    alq_auto_close int fd = link ? open_below(scan, link, O_PATH, &target, NULL) : -1;
    const char *found = fd >= 0 && target ? strstr(target, "/libcuda.so.") : NULL;
    if (found && alq_driver_version_is_valid(found + strlen("/libcuda.so.")))
        snprintf(version, size, "%s", found + strlen("/libcuda.so."));
}

static int no_driver(const struct scan *scan, const char *others, struct alq_err *err)
{
    const char *loaded = scan->files->kernel_version;
    if (others[0])
        return alq_err_set(err, ALQ_EAGAIN,
                           "the loaded kernel module is %s, but below %s there is libcuda of %s "
                           "only; reboot or reload the driver after an upgrade, or install the "
                           "libraries of %s",
                           loaded, scan->cfg->driver_root, others, loaded);
    return alq_err_set(err, ALQ_ENOENT,
                       "no libcuda.so.<version> below %s (looked in %s, %s, what etc/ld.so.cache "
                       "names, and other usual places); install NVIDIA's driver or set "
                       "--driver-root",
                       scan->cfg->driver_root, alq_driver_library_dirs[0], "usr/lib64");
}

/* files->version: the kernel module's if its libcuda is there; without a module that tells, of the
 * first directory that has any. */
static int find_version(struct scan *scan, struct alq_err *err)
{
    struct alq_driver_files *files = scan->files;
    char others[128] = "";
    for (size_t i = 0; i < scan->dir_count; i++) {
        char linked[ALQ_DRIVER_VERSION_BYTES];
        const char *dir = scan->dirs[i].path;
        alq_auto_closedir DIR *d = open_dir(scan, dir);
        if (!d)
            continue;
        linked_version(scan, dir, linked, sizeof(linked));
        const char *wanted = files->kernel_version[0] ? files->kernel_version : linked;
        for (struct dirent *e; (e = readdir(d));) {
            const char *version = e->d_name + strlen("libcuda.so.");
            if (strncmp(e->d_name, "libcuda.so.", strlen("libcuda.so.")) != 0 ||
                !alq_driver_version_is_valid(version) || !leads_to_file(scan, dir, e->d_name))
                continue;
            if (!strcmp(version, wanted)) {
                snprintf(files->version, sizeof(files->version), "%s", version);
                return 0;
            }
            size_t used = strlen(others);
            if (files->kernel_version[0] && !strstr(others, version))
                snprintf(others + used, sizeof(others) - used, "%s%s", used ? ", " : "", version);
            else if (!files->kernel_version[0] &&
                     (!files->version[0] || alq_driver_version_cmp(version, files->version) > 0))
                snprintf(files->version, sizeof(files->version), "%s", version);
        }
        if (files->version[0])
            return 0;
    }
    return no_driver(scan, others, err);
}

/* ---- files ------------------------------------------------------------------------------------
 */

/* Mounts root/path, already open as fd, and watches it. */
static int add_mount(struct scan *scan, int fd, const char *host_path, const char *container_path,
                     int is_socket, struct alq_err *err)
{
    struct alq_driver_files *files = scan->files;
    struct stat st;
    for (size_t i = 0; i < files->mount_count; i++) {
        if (!strcmp(files->mounts[i].container_path, container_path))
            return 0; /* found in a directory that goes before */
    }
    if (fstat(fd, &st))
        return alq_err_errno(err, errno, "stat %s", host_path);
    size_t root_len = strlen(scan->root_path);
    if (strncmp(host_path, scan->root_path, root_len) != 0 || host_path[root_len] != '/')
        return alq_err_set(err, ALQ_EAGAIN, "%s has been moved to %s while it was looked at",
                           scan->cfg->driver_root, host_path);
    struct alq_driver_mount *grown =
        reallocarray(files->mounts, files->mount_count + 1, sizeof(*grown));
    if (!grown)
        return out_of_memory(err);
    files->mounts = grown;
    struct alq_driver_mount *m = &grown[files->mount_count];
    *m = (struct alq_driver_mount){.host_path = strdup(host_path),
                                   .container_path = strdup(container_path),
                                   .is_socket = is_socket};
    if (!m->host_path || !m->container_path) {
        free(m->host_path);
        free(m->container_path);
        return out_of_memory(err);
    }
    files->mount_count++;
    return alq_scan_add_watch(files, host_path, is_socket ? ALQ_WATCH_IDENTITY : ALQ_WATCH_CONTENT,
                              &st, err);
}

/* Mounts root/path at container_path if it is a regular file. *is_found tells. */
static int add_file(struct scan *scan, const char *path, const char *container_path, int *is_found,
                    struct alq_err *err)
{
    alq_auto_free char *host_path = NULL;
    struct stat st;
    alq_auto_close int fd = open_below(scan, path, 0, &host_path, NULL);
    *is_found = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode);
    return *is_found ? add_mount(scan, fd, host_path, container_path, 0, err) : 0;
}

static int add_folder(struct alq_driver_files *files, const char *dir, struct alq_err *err)
{
    for (size_t i = 0; i < files->folder_count; i++) {
        if (!strcmp(files->folders[i], dir))
            return 0;
    }
    const char **grown = reallocarray(files->folders, files->folder_count + 1, sizeof(*grown));
    if (!grown)
        return out_of_memory(err);
    files->folders = grown;
    grown[files->folder_count++] = dir;
    return 0;
}

static int add_links_of(struct scan *scan, const char *dir, const char *soname, struct alq_err *err)
{
    int rc = 0;
    for (const struct alq_wanted_link *link = alq_wanted_links; link->soname && !rc; link++) {
        if (!(link->set & scan->cfg->inject_sets) || strcmp(link->soname, soname) != 0)
            continue;
        alq_auto_free char *path = alq_str_printf("%s/%s", dir, link->link);
        rc = path ? alq_scan_add_link(&scan->files->links, &scan->files->link_count, path,
                                      link->target, err)
                  : out_of_memory(err);
    }
    return rc;
}

static int add_library(struct scan *scan, const char *dir, const char *name, struct alq_err *err)
{
    struct alq_driver_files *files = scan->files;
    alq_auto_free char *path = alq_str_printf("%s/%s", dir, name);
    alq_auto_free char *host_path = NULL;
    struct alq_err why = ALQ_ERR_INIT;
    struct alq_elf elf;
    if (!path)
        return out_of_memory(err);
    alq_auto_close int fd = open_below(scan, path, 0, &host_path, &why);
    int rc = fd < 0 ? fd : alq_elf_read(fd, host_path, &elf, &why);
    /* A link that leads nowhere is not a library, nor is another processor's; a file that has just
     * gone is noticed at the end. */
    if (rc == ALQ_ENOENT || rc == ALQ_ENOTSUP)
        return 0;
    if (rc) {
        if (err)
            *err = why;
        return rc;
    }
    const char *soname = elf.soname[0] && !strchr(elf.soname, '/') ? elf.soname : name;
    const char *folder = alq_driver_container_dir(dir);
    alq_auto_free char *container_path =
        alq_str_printf("%s/%s%s", folder, alq_wanted_is_vdpau(name) ? "vdpau/" : "", soname);
    size_t before = files->mount_count;
    if (!container_path)
        return out_of_memory(err);
    rc = add_mount(scan, fd, host_path, container_path, 0, err);
    if (!rc)
        rc = add_folder(files, folder, err);
    if (rc || files->mount_count == before)
        return rc;
    if (!files->library_host_path && !strcmp(soname, "libcuda.so.1")) {
        files->library_host_path = strdup(host_path);
        if (!files->library_host_path)
            return out_of_memory(err);
    }
    return add_links_of(scan, folder, soname, err);
}

/* The driver's libraries in dir and, for VDPAU, in the subdirectory of that name. */
static int find_libraries_in(struct scan *scan, const char *dir, struct alq_err *err)
{
    alq_auto_closedir DIR *d = open_dir(scan, dir);
    if (!d)
        return 0;
    errno = 0;
    for (struct dirent *e; (e = readdir(d)); errno = 0) {
        if (!(alq_wanted_library(e->d_name, scan->files->version) & scan->cfg->inject_sets))
            continue;
        int rc = add_library(scan, dir, e->d_name, err);
        if (rc)
            return rc;
    }
    return errno ? alq_err_errno(err, errno, "read directory %s below %s", dir,
                                 scan->cfg->driver_root)
                 : 0;
}

static int find_libraries(struct scan *scan, struct alq_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < scan->dir_count && !rc; i++) {
        alq_auto_free char *vdpau = alq_str_printf("%s/vdpau", scan->dirs[i].path);
        rc = find_libraries_in(scan, scan->dirs[i].path, err);
        if (!rc)
            rc = vdpau ? find_libraries_in(scan, vdpau, err) : out_of_memory(err);
    }
    return rc;
}

/* NVML goes with libcuda; a root that has but one of them is being installed or taken away. */
static int check_complete(const struct scan *scan, struct alq_err *err)
{
    const struct alq_driver_files *files = scan->files;
    int has_nvml = !(scan->cfg->inject_sets & ALQ_INJECT_UTILITY), has_cuda = 0;
    for (size_t i = 0; i < files->mount_count; i++) {
        has_nvml |= strstr(files->mounts[i].container_path, "/libnvidia-ml.so.1") != NULL;
        has_cuda |= strstr(files->mounts[i].container_path, "/libcuda.so.1") != NULL;
    }
    if (has_nvml && has_cuda)
        return 0;
    return alq_err_set(err, ALQ_ENOENT,
                       "libcuda.so.%s is below %s but %s is not; the driver is incomplete",
                       files->version, scan->cfg->driver_root,
                       has_cuda ? "the libnvidia-ml.so.<version> that goes with it"
                                : "a version of it for this processor");
}

static int find_programs(struct scan *scan, struct alq_err *err)
{
    int rc = 0;
    for (const struct alq_wanted_file *f = alq_wanted_programs; f->name && !rc; f++) {
        int is_found = !(f->set & scan->cfg->inject_sets);
        for (const char *const *dir = alq_wanted_bin_dirs; *dir && !rc && !is_found; dir++) {
            alq_auto_free char *path = alq_str_printf("%s/%s", *dir, f->name);
            alq_auto_free char *container_path = alq_str_printf("/usr/bin/%s", f->name);
            rc = path && container_path ? add_file(scan, path, container_path, &is_found, err)
                                        : out_of_memory(err);
        }
    }
    return rc;
}

static int find_data(struct scan *scan, struct alq_err *err)
{
    int rc = 0;
    for (const struct alq_wanted_file *f = alq_wanted_data; f->name && !rc; f++) {
        int is_found;
        alq_auto_free char *container_path = alq_str_printf("/%s", f->name);
        if (!(f->set & scan->cfg->inject_sets))
            continue;
        rc = container_path ? add_file(scan, f->name, container_path, &is_found, err)
                            : out_of_memory(err);
    }
    return rc;
}

static int find_sockets(struct scan *scan, struct alq_err *err)
{
    int rc = 0;
    for (const struct alq_wanted_file *f = alq_wanted_sockets; f->name && !rc; f++) {
        alq_auto_free char *host_path = NULL;
        alq_auto_free char *joined = alq_root_join(scan->cfg->driver_root, f->name);
        alq_auto_free char *container_path = alq_str_printf("/%s", f->name);
        if (!(f->set & scan->cfg->inject_sets))
            continue;
        if (!joined || !container_path)
            return out_of_memory(err);
        alq_auto_close int fd = open_below(scan, f->name, O_PATH, &host_path, NULL);
        rc = fd < 0 ? alq_scan_add_watch(scan->files, joined, ALQ_WATCH_IDENTITY, NULL, err)
                    : add_mount(scan, fd, host_path, container_path, 1, err);
    }
    return rc;
}

/* gsp*.bin of the version in one directory, mounted where the kernel looks first. */
static int find_firmware_in(struct scan *scan, const char *dir, int *is_any, struct alq_err *err)
{
    int rc = 0;
    alq_auto_closedir DIR *d = open_dir(scan, dir);
    for (struct dirent *e; d && !rc && (e = readdir(d));) {
        int is_found;
        const char *end = strrchr(e->d_name, '.');
        if (strncmp(e->d_name, "gsp", 3) != 0 || !end || strcmp(end, ".bin") != 0)
            continue;
        alq_auto_free char *path = alq_str_printf("%s/%s", dir, e->d_name);
        alq_auto_free char *container_path =
            alq_str_printf("/lib/firmware/nvidia/%s/%s", scan->files->version, e->d_name);
        rc = path && container_path ? add_file(scan, path, container_path, &is_found, err)
                                    : out_of_memory(err);
        *is_any |= !rc && is_found;
    }
    return rc;
}

/* From the first of the kernel's directories that has any: its parameter, then those built in. */
static int find_firmware(struct scan *scan, struct alq_err *err)
{
    struct utsname kernel;
    char own[256], updates[128], release[128];
    uname(&kernel);
    if (alq_kernel_read(scan->cfg, "sys/module/firmware_class/parameters/path", own, sizeof(own),
                        NULL))
        own[0] = '\0';
    own[strcspn(own, "\n")] = '\0';
    snprintf(updates, sizeof(updates), "lib/firmware/updates/%s", kernel.release);
    snprintf(release, sizeof(release), "lib/firmware/%s", kernel.release);
    const char *const dirs[] = {own,     updates,        "lib/firmware/updates",
                                release, "lib/firmware", "usr/lib/firmware"};
    int is_any = 0, rc = 0;
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]) && !rc && !is_any; i++) {
        alq_auto_free char *dir = alq_str_printf("%s/nvidia/%s", dirs[i], scan->files->version);
        rc = dir ? find_firmware_in(scan, dir, &is_any, err) : out_of_memory(err);
    }
    return rc;
}

/* ---- the scan ---------------------------------------------------------------------------------
 */

static int by_container_path(const void *a, const void *b)
{
    return strcmp(((const struct alq_driver_mount *)a)->container_path,
                  ((const struct alq_driver_mount *)b)->container_path);
}

static int open_root(struct scan *scan, struct alq_err *err)
{
    struct stat st;
    const char *root = scan->cfg->driver_root;
    scan->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (scan->root < 0 || fstat(scan->root, &st))
        return alq_err_errno(err, errno, "driver root %s", root);
    alq_auto_close int self = open_below(scan, ".", O_PATH, &scan->root_path, err);
    if (self < 0)
        return self;
    if (!strcmp(scan->root_path, "/"))
        scan->root_path[0] = '\0';
    return alq_scan_add_watch(scan->files, root, ALQ_WATCH_IDENTITY, &st, err);
}

static int scan_once(struct scan *scan, struct alq_err *err)
{
    const struct alq_config *cfg = scan->cfg;
    struct alq_driver_files *files = scan->files;
    alq_auto_close int params =
        alq_root_open(cfg->kernel_root, "proc/driver/nvidia/params", O_PATH, NULL, NULL);
    files->has_params = params >= 0;
    alq_kernel_version(cfg, files->kernel_version);
    int rc = open_root(scan, err);
    if (!rc)
        rc = find_dirs(scan, err);
    if (!rc)
        rc = find_version(scan, err);
    if (!rc)
        rc = find_libraries(scan, err);
    if (!rc)
        rc = find_programs(scan, err);
    if (!rc)
        rc = find_data(scan, err);
    if (!rc && cfg->inject_sets & ALQ_INJECT_FIRMWARE)
        rc = find_firmware(scan, err);
    if (!rc)
        rc = find_sockets(scan, err);
    if (!rc)
        rc = check_complete(scan, err);
    if (!rc)
        rc = alq_scan_nodes(cfg, files, err);
    if (!rc)
        qsort(files->mounts, files->mount_count, sizeof(*files->mounts), by_container_path);
    return rc;
}

/* One try; *files is set on success. */
static int try_scan(const struct alq_config *cfg, struct alq_driver_files **files,
                    struct alq_err *err)
{
    struct scan scan = {.cfg = cfg, .files = calloc(1, sizeof(*scan.files)), .root = -1};
    if (!scan.files)
        return out_of_memory(err);
    int rc = scan_once(&scan, err);
    if (!rc && !alq_driver_files_is_current(cfg, scan.files))
        rc = alq_err_set(err, ALQ_EAGAIN,
                         "the driver below %s changes while it is looked at (an upgrade?); try "
                         "again when that is done",
                         cfg->driver_root);
    for (size_t i = 0; i < scan.dir_count; i++)
        free(scan.dirs[i].path);
    free(scan.root_path);
    if (scan.root >= 0)
        close(scan.root);
    if (rc)
        alq_driver_files_free(scan.files);
    else
        *files = scan.files;
    return rc;
}

int alq_driver_scan(const struct alq_config *cfg, struct alq_driver_files **files,
                    struct alq_err *err)
{
    struct alq_err why = ALQ_ERR_INIT;
    int rc = ALQ_EAGAIN;
    for (int i = 0; i < TRIES && rc == ALQ_EAGAIN; i++)
        rc = try_scan(cfg, files, &why);
    if (rc && err)
        *err = why;
    return rc;
}
