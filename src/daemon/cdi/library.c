/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts our library where containers can mount it from: under the hash of its bytes, written beside
 * and renamed, so that a new version never touches a file that running processes have mapped. The
 * directory is probed for mounts that refuse execution, which would make every process of a
 * container fail to load the library. Blocking file I/O; runs once at start.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/elf.h"

#define LIBRARY_BYTES_MAX (64u << 20)
#define HASH_BYTES 16 /* of SHA-256: enough that two versions never meet */
#define HASH_TEXT_BYTES (2 * HASH_BYTES + 1)

static const char preload_text[] = "/usr/local/vgpu/libvgpu.so\n";

static int hash_text(const char *data, size_t len, char text[HASH_TEXT_BYTES], struct alq_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int digest_len = 0;
    if (!EVP_Digest(data, len, digest, &digest_len, EVP_sha256(), NULL) || digest_len < HASH_BYTES)
        return alq_err_set(err, ALQ_ENOTSUP, "libcrypto refuses to compute SHA-256");
    for (size_t i = 0; i < HASH_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

/* Whether files of dir can be mapped executable. */
static int probe_exec(const char *dir, struct alq_err *err)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/.probe-XXXXXX", dir);
    alq_auto_close int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return alq_err_errno(err, errno, "host lib dir %s is not writable (set --host-lib-dir)",
                             dir);
    unlink(path);
    if (ftruncate(fd, 4096))
        return alq_err_errno(err, errno, "host lib dir %s", dir);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        if (errno == EPERM || errno == EACCES)
            return alq_err_set(err, ALQ_ENOTSUP,
                               "host lib dir %s is mounted noexec, so no process could load "
                               "libvgpu.so from it; set "
                               "--host-lib-dir to a directory on a file system without that flag",
                               dir);
        return alq_err_errno(err, errno, "host lib dir %s", dir);
    }
    munmap(map, 4096);
    return 0;
}

/* Writes data to path unless the file there holds the same bytes. A damaged one is replaced by
 * rename. */
static int install(const char *path, const char *data, size_t len, struct alq_err *err)
{
    alq_auto_free char *old = NULL;
    size_t old_len = 0;
    if (!alq_file_read(path, LIBRARY_BYTES_MAX, &old, &old_len, NULL) && old_len == len &&
        !memcmp(old, data, len))
        return 0;
    return alq_file_write_atomic(path, data, len, 0644, 1, err);
}

static int check_library(const char *path, struct alq_err *err)
{
    struct alq_elf elf;
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return alq_err_errno(err, errno, "open %s", path);
    return alq_elf_read(fd, path, &elf, err);
}

int alq_library_install(const struct alq_config *cfg, struct alq_library *library,
                        struct alq_err *err)
{
    memset(library, 0, sizeof(*library));
    if (!cfg->library)
        return 0;

    /* Meson's build directory and packages install it behind a link; the reader refuses those. */
    alq_auto_free char *source = realpath(cfg->library, NULL);
    if (!source)
        return alq_err_errno(err, errno, "library %s (--library)", cfg->library);
    alq_auto_free char *data = NULL;
    size_t len = 0;
    char hash[HASH_TEXT_BYTES], preload_hash[HASH_TEXT_BYTES];
    int rc = check_library(source, err);
    if (!rc)
        rc = alq_file_read(source, LIBRARY_BYTES_MAX, &data, &len, err);
    if (rc)
        return err ? alq_err_wrap(err, "library (--library)") : rc;
    rc = alq_file_mkdirs(cfg->host_lib_dir, 0755, err);
    if (rc && err)
        alq_err_wrap(err, "--host-lib-dir");
    if (!rc)
        rc = probe_exec(cfg->host_lib_dir, err);
    if (!rc)
        rc = hash_text(data, len, hash, err);
    if (!rc)
        rc = hash_text(preload_text, sizeof(preload_text) - 1, preload_hash, err);
    if (rc)
        return rc;

    struct alq_library made = {0};
    int n = snprintf(made.library_path, sizeof(made.library_path), "%s/libvgpu-%s.so",
                     cfg->host_lib_dir, hash);
    int m = snprintf(made.preload_path, sizeof(made.preload_path), "%s/ld.so.preload-%s",
                     cfg->host_lib_dir, preload_hash);
    if (n < 0 || m < 0 || (size_t)n >= sizeof(made.library_path) ||
        (size_t)m >= sizeof(made.preload_path))
        return alq_err_set(err, ALQ_ERANGE, "host lib dir %s is too long a path",
                           cfg->host_lib_dir);
    rc = install(made.library_path, data, len, err);
    if (!rc)
        rc = install(made.preload_path, preload_text, sizeof(preload_text) - 1, err);
    if (!rc)
        *library = made;
    return rc;
}
