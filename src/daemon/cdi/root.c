/* SPDX-License-Identifier: Apache-2.0 */
/* Paths below a driver root, see root.h. openat2(RESOLVE_IN_ROOT) does the work; where the kernel
 * (before 5.6) or a seccomp filter refuses it, realpath stands in and what it finds outside the
 * root is refused. */
#include "daemon/cdi/root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"

#if defined(__x86_64__)
#define TRIPLET "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define TRIPLET "aarch64-linux-gnu"
#else
#error "which multi-arch directory does this machine use?"
#endif

/* Debian and Ubuntu, Debian's alternatives, RHEL and SUSE; packages of vendors and older Ubuntu;
 * COS, Talos and GKE; NixOS; Arch, and hand-made roots. The rest is found through ld.so.cache. */
const char *const alq_driver_library_dirs[] = {
    "usr/lib/" TRIPLET,
    "usr/lib/" TRIPLET "/nvidia/current",
    "usr/lib64",
    "lib/" TRIPLET,
    "lib64",
    "usr/lib/" TRIPLET "/nvidia",
    "usr/lib64/nvidia",
    "usr/lib/nvidia",
    "usr/local/nvidia/lib64",
    "usr/local/glibc/usr/lib",
    "home/kubernetes/bin/nvidia/lib64",
    "opt/nvidia/lib64",
    "run/opengl-driver/lib",
    "usr/lib",
    NULL,
};

const char *alq_driver_container_dir(const char *library_dir)
{
    size_t len = strcspn(library_dir, "/");
    if (!strncmp(library_dir, "usr/lib64", 9) || (len == 5 && !strncmp(library_dir, "lib64", len)))
        return "/usr/lib64";
    return "/usr/lib/" TRIPLET;
}

char *alq_root_join(const char *root, const char *path)
{
    size_t len = strlen(root);
    while (len && root[len - 1] == '/')
        len--;
    return alq_str_printf("%.*s/%s", (int)len, root, path + strspn(path, "/"));
}

/* The path behind an open descriptor, as this process sees it. */
static char *path_of(int fd)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n <= 0 || (size_t)n >= sizeof(path) - 1)
        return NULL;
    path[n] = '\0';
    return strdup(path);
}

static int open_by_realpath(int dir, const char *path, int flags)
{
    char root[64];
    snprintf(root, sizeof(root), "/proc/self/fd/%d", dir);
    alq_auto_free char *joined = alq_root_join(root, path);
    alq_auto_free char *real_root = joined ? realpath(root, NULL) : NULL;
    alq_auto_free char *real = real_root ? realpath(joined, NULL) : NULL;
    if (!real)
        return -1;
    size_t len = strlen(real_root);
    if (strcmp(real_root, "/") &&
        (strncmp(real, real_root, len) || (real[len] != '/' && real[len] != '\0'))) {
        errno = EXDEV;
        return -1;
    }
    return open(real, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | flags);
}

static int open_any(int dir, const char *path, int flags)
{
    struct open_how how = {.flags = (unsigned)(O_RDONLY | O_CLOEXEC | flags),
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        fd = open_by_realpath(dir, path, flags);
    return fd;
}

/* Opens a file for reading, and nothing whose opening waits or does something. */
static int open_file(int dir, const char *path)
{
    char link[64];
    struct stat st;
    alq_auto_close int fd = open_any(dir, path, O_PATH);
    if (fd < 0 || fstat(fd, &st))
        return -1;
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        return -1;
    }
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    return open(link, O_RDONLY | O_CLOEXEC);
}

int alq_root_open_at(int dir, const char *root, const char *path, int flags, char **host_path,
                     struct alq_err *err)
{
    path += strspn(path, "/");
    alq_auto_close int fd = flags ? open_any(dir, path, flags) : open_file(dir, path);
    const char *slash = root[0] == '/' && !root[1] ? "" : "/";
    if (fd < 0)
        return alq_err_errno(err, errno, "open %s%s%s", root, slash, path);
    if (host_path) {
        *host_path = path_of(fd);
        if (!*host_path)
            return alq_err_set(err, ALQ_EIO, "path of %s%s%s cannot be told (is /proc mounted?)",
                               root, slash, path);
    }
    return alq_steal_fd(&fd);
}

int alq_root_open(const char *root, const char *path, int flags, char **host_path,
                  struct alq_err *err)
{
    alq_auto_close int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return alq_err_errno(err, errno, "open %s", root);
    return alq_root_open_at(dir, root, path, flags, host_path, err);
}
