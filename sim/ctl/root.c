/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver roots of root.h. Every file is written whole or not at all; running it again is harmless.
 */
#include "ctl/root.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

#if defined(__x86_64__)
#define LIBRARY_DIR "usr/lib/x86_64-linux-gnu"
#elif defined(__aarch64__)
#define LIBRARY_DIR "usr/lib/aarch64-linux-gnu"
#else
#error "the simulated driver's libraries are for x86-64 and aarch64"
#endif

static const char *const profile_files[SIM_PROFILES] = {"535", "550", "13_0"};

/* A link at path to target; what is there is replaced. */
static int link_to(const char *target, const char *path, struct alq_err *err)
{
    if (unlink(path) != 0 && errno != ENOENT)
        return alq_err_errno(err, errno, "cannot replace %s", path);
    if (symlink(target, path) != 0)
        return alq_err_errno(err, errno, "cannot link %s to %s", path, target);
    return 0;
}

/* One library under its versioned name, with the SONAME and the development link. */
static int install_library(const char *lib_dir, const char *file, const char *dir, const char *name,
                           const char *version, int has_plain, struct alq_err *err)
{
    char from[PATH_MAX], to[PATH_MAX], target[128], path[PATH_MAX];
    int rc;

    snprintf(from, sizeof(from), "%s/%s", lib_dir, file);
    snprintf(target, sizeof(target), "%s.%s", name, version);
    snprintf(to, sizeof(to), "%s/" LIBRARY_DIR "/%s", dir, target);
    if ((rc = alq_file_copy_atomic(from, to, 0755, err)) != 0)
        return rc;
    snprintf(path, sizeof(path), "%s/" LIBRARY_DIR "/%s.1", dir, name);
    if ((rc = link_to(target, path, err)) != 0 || !has_plain)
        return rc;
    snprintf(target, sizeof(target), "%s.1", name);
    snprintf(path, sizeof(path), "%s/" LIBRARY_DIR "/%s", dir, name);
    return link_to(target, path, err);
}

static int install_nodes(const struct sim_machine *m, const char *dir, struct alq_err *err)
{
    static const char *const common[] = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"};
    char path[PATH_MAX];
    int rc;

    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
        snprintf(path, sizeof(path), "%s/dev/%s", dir, common[i]);
        if ((rc = link_to("/dev/null", path, err)) != 0)
            return rc;
    }
    for (uint32_t i = 0; i < m->device_count; i++) {
        snprintf(path, sizeof(path), "%s/dev/nvidia%u", dir, m->device[i].minor);
        if ((rc = link_to("/dev/null", path, err)) != 0)
            return rc;
    }
    return 0;
}

int sim_root_install(const struct sim_machine *m, const char *lib_dir, const char *dir,
                     struct alq_err *err)
{
    static const char *const dirs[] = {LIBRARY_DIR, "dev", "proc/driver/nvidia"};
    const char *version = sim_profile_facts(m->profile)->driver_version;
    char path[PATH_MAX], file[64], text[256];
    int rc;

    if (strlen(dir) + 128 > PATH_MAX || strlen(lib_dir) + 64 > PATH_MAX)
        return alq_err_set(err, ALQ_ERANGE, "%s: the path is too long", dir);
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, dirs[i]);
        if ((rc = alq_file_mkdirs(path, 0755, err)) != 0)
            return rc;
    }
    snprintf(file, sizeof(file), "libsimcuda-%s.so", profile_files[m->profile]);
    if ((rc = install_library(lib_dir, file, dir, "libcuda.so", version, 1, err)) != 0)
        return rc;
    snprintf(file, sizeof(file), "libsimnvml-%s.so", profile_files[m->profile]);
    if ((rc = install_library(lib_dir, file, dir, "libnvidia-ml.so", version, 0, err)) != 0 ||
        (rc = install_nodes(m, dir, err)) != 0)
        return rc;
    snprintf(path, sizeof(path), "%s/proc/driver/nvidia/version", dir);
    snprintf(text, sizeof(text), "NVRM version: simulated kernel module  %s  (Aliquot's simgpud)\n",
             version);
    return alq_file_write_atomic(path, text, strlen(text), 0644, 0, err);
}

int sim_root_find_libraries(char **lib_dir, struct alq_err *err)
{
    static const char *const places[] = {".", "../lib/aliquot-sim"};
    char self[PATH_MAX - 64], probe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (n < 0)
        return alq_err_errno(err, errno, "cannot read /proc/self/exe; give --lib-dir");
    self[n] = '\0';
    slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(probe, sizeof(probe), "%s/%s/libsimcuda-550.so", self, places[i]);
        if (access(probe, R_OK) == 0) {
            *lib_dir = alq_str_printf("%s/%s", self, places[i]);
            return *lib_dir ? 0 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
        }
    }
    return alq_err_set(err, ALQ_ENOENT,
                       "no stand-in libraries beside %s/simctl; build them or give --lib-dir",
                       self);
}
