/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts what containers mount of ours where they can mount it from: each file under the hash of its
 * bytes, written beside and renamed, so that a new version never touches a file that running
 * processes have mapped. Old ones are removed once no spec names them. One row of `kinds` for each
 * file. Blocking file I/O; no state.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/elf.h"
#include "daemon/cdi/label.h"

#define ALQ_LOG_MODULE "cdi"
#define FILE_BYTES_MAX (64u << 20)
#define SPEC_BYTES_MAX (4u << 20)
#define HASH_BYTES 16 /* of SHA-256: enough that two versions never meet */
#define HASH_CHARS (2 * HASH_BYTES)
#define PATH_BYTES 4096
#define OLD_MAX 64 /* installed files looked at in one sweep; the next one sees the others */

static const char preload_text[] = "/usr/local/vgpu/libvgpu.so\n";

/* Named <prefix><hash><suffix>. A file that containers mount goes with its share; the hook, which
 * the runtime runs on the host, is always the current one. */
static const struct kind {
    const char *prefix, *suffix;
    const char *text; /* what is in it; NULL: what the setting names */
    const char *flag; /* the setting, at source_at in struct alq_config: without it, no such file */
    size_t source_at;
    size_t path_at; /* of its path in struct alq_library */
    mode_t mode;
    int is_mounted;
} kinds[] = {
    {"libvgpu-", ".so", NULL, "library", offsetof(struct alq_config, library),
     offsetof(struct alq_library, library_path), 0644, 1},
    {"ld.so.preload-", "", preload_text, "library", offsetof(struct alq_config, library),
     offsetof(struct alq_library, preload_path), 0644, 1},
    {"aliquot-hook-", "", NULL, "hook", offsetof(struct alq_config, hook),
     offsetof(struct alq_library, hook_path), 0755, 0},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

static const char *source_of(const struct alq_config *cfg, const struct kind *kind)
{
    return *(char *const *)(const void *)((const char *)cfg + kind->source_at);
}

static const char *const_path_in(const struct alq_library *library, const struct kind *kind)
{
    return (const char *)library + kind->path_at;
}

static char *path_in(struct alq_library *library, const struct kind *kind)
{
    return (char *)library + kind->path_at;
}

static int hash_text(const char *data, size_t len, char text[HASH_CHARS + 1], struct alq_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int digest_len = 0;
    if (!EVP_Digest(data, len, digest, &digest_len, EVP_sha256(), NULL) || digest_len < HASH_BYTES)
        return alq_err_set(err, ALQ_ENOTSUP, "libcrypto refuses to compute SHA-256");
    for (size_t i = 0; i < HASH_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

/* ---- installing -------------------------------------------------------------------------------
 */

/* Whether the file can be mapped executable, as every process of a container will do. */
static int probe_exec(const char *path, const char *dir, struct alq_err *err)
{
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return alq_err_errno(err, errno, "open %s", path);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    if (map != MAP_FAILED) {
        munmap(map, 4096);
        return 0;
    }
    if (errno != EPERM && errno != EACCES)
        return alq_err_errno(err, errno, "mapping %s", path);
    return alq_err_set(err, ALQ_ENOTSUP,
                       "host lib dir %s is mounted noexec, so nothing in it could be loaded or "
                       "run; set --host-lib-dir to a directory on a file system without that flag",
                       dir);
}

/* Writes data to path unless the file there holds the same bytes. */
static int install(const struct kind *kind, const char *path, const char *data, size_t len,
                   struct alq_err *err)
{
    alq_auto_free char *old = NULL;
    size_t old_len = 0;
    int rc = 0;
    if (alq_file_read(path, FILE_BYTES_MAX, &old, &old_len, NULL) || old_len != len ||
        memcmp(old, data, len) != 0)
        rc = alq_file_write_atomic(path, data, len, kind->mode, 1, err);
    if (!rc && kind->is_mounted)
        alq_label_for_containers(path);
    return rc;
}

/* A shared object, or a program for the same processor. */
static int check_source(const struct kind *kind, int fd, const char *path, struct alq_err *err)
{
    struct alq_elf elf;
    if (kind->is_mounted)
        return alq_elf_read(fd, path, &elf, err);
    return alq_elf_check_program(fd, path, err);
}

static int read_source(const struct alq_config *cfg, const struct kind *kind, char **data,
                       size_t *len, struct alq_err *err)
{
    /* Meson's build directory and packages install it behind a link; the reader refuses those. */
    alq_auto_free char *source = realpath(source_of(cfg, kind), NULL);
    if (!source)
        return alq_err_errno(err, errno, "%s", source_of(cfg, kind));
    alq_auto_close int fd = open(source, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return alq_err_errno(err, errno, "open %s", source);
    int rc = check_source(kind, fd, source, err);
    return rc ? rc : alq_file_read(source, FILE_BYTES_MAX, data, len, err);
}

static int install_kind(const struct alq_config *cfg, const struct kind *kind, char *path,
                        struct alq_err *err)
{
    alq_auto_free char *data = NULL;
    size_t len = 0;
    char hash[HASH_CHARS + 1];
    int rc = 0;
    if (!kind->text) {
        rc = read_source(cfg, kind, &data, &len, err);
        if (rc)
            return err ? alq_err_wrap(err, "--%s", kind->flag) : rc;
    }
    const char *bytes = kind->text ? kind->text : data;
    len = kind->text ? strlen(kind->text) : len;
    rc = hash_text(bytes, len, hash, err);
    if (rc)
        return rc;
    int n = snprintf(path, PATH_BYTES, "%s/%s%s%s", cfg->host_lib_dir, kind->prefix, hash,
                     kind->suffix);
    if (n < 0 || n >= PATH_BYTES)
        return alq_err_set(err, ALQ_ERANGE, "host lib dir %s is too long a path",
                           cfg->host_lib_dir);
    rc = alq_file_mkdirs(cfg->host_lib_dir, 0755, err);
    if (!rc)
        rc = install(kind, path, bytes, len, err);
    if (rc)
        return err ? alq_err_wrap(err, "--host-lib-dir") : rc;
    return kind->text ? 0 : probe_exec(path, cfg->host_lib_dir, err);
}

int alq_library_install(const struct alq_config *cfg, struct alq_library *library,
                        struct alq_err *err)
{
    struct alq_library made = {0};
    memset(library, 0, sizeof(*library));
    for (size_t i = 0; i < KINDS; i++) {
        int rc = source_of(cfg, &kinds[i])
                     ? install_kind(cfg, &kinds[i], path_in(&made, &kinds[i]), err)
                     : 0;
        if (rc)
            return rc;
    }
    *library = made;
    return 0;
}

/* ---- what is installed ------------------------------------------------------------------------
 */

static int is_file(const char *path)
{
    struct stat st;
    return !lstat(path, &st) && S_ISREG(st.st_mode) && st.st_size > 0;
}

int alq_library_is_there(const struct alq_config *cfg, const struct alq_library *library)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (source_of(cfg, &kinds[i]) && !is_file(const_path_in(library, &kinds[i])))
            return 0;
    }
    return 1;
}

/* The kind of an installed file by its name; *hash points into the name. */
static const struct kind *kind_of(const char *name, const char **hash)
{
    for (size_t i = 0; i < KINDS; i++) {
        size_t n = strlen(kinds[i].prefix);
        if (strncmp(name, kinds[i].prefix, n) != 0 ||
            strspn(name + n, "0123456789abcdef") < HASH_CHARS ||
            strcmp(name + n + HASH_CHARS, kinds[i].suffix) != 0)
            continue;
        *hash = name + n;
        return &kinds[i];
    }
    return NULL;
}

int alq_library_of_spec(const struct alq_config *cfg, const char *spec_text,
                        struct alq_library *library)
{
    struct alq_library found = *library;
    for (size_t i = 0; i < KINDS; i++) {
        if (!kinds[i].is_mounted)
            continue;
        alq_auto_free char *start = alq_str_printf("%s/%s", cfg->host_lib_dir, kinds[i].prefix);
        const char *at = start ? strstr(spec_text, start) : NULL;
        const char *end = at ? strchr(at, '"') : NULL;
        const char *hash;
        char *path = path_in(&found, &kinds[i]);
        if (!end || end - at >= PATH_BYTES)
            return 0;
        memcpy(path, at, (size_t)(end - at));
        if (kind_of(strrchr(path, '/') + 1, &hash) != &kinds[i] || !is_file(path))
            return 0;
    }
    *library = found;
    return 1;
}

/* ---- sweeping ---------------------------------------------------------------------------------
 */

struct old {
    char name[256];
    int is_named;
};

/* Whether the bytes are what the name says. A file that cannot be read is not judged. */
static int is_sound(const char *path, const char *hash)
{
    alq_auto_free char *data = NULL;
    size_t len = 0;
    char have[HASH_CHARS + 1];
    if (alq_file_read(path, FILE_BYTES_MAX, &data, &len, NULL) || hash_text(data, len, have, NULL))
        return 1;
    return !strncmp(have, hash, HASH_CHARS);
}

static int remove_old(const struct alq_config *cfg, const char *name, const char *why)
{
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_free char *path = alq_str_printf("%s/%s", cfg->host_lib_dir, name);
    if (!path || alq_file_remove(path, 0, &err)) {
        alq_warn(ALQ_LOG_KV({"file", name}), "stays: %s", err.text);
        return -1;
    }
    alq_info(ALQ_LOG_KV({"file", path}), "removed: %s", why);
    return 0;
}

/* The installed files that are not current. */
static int list_old(const struct alq_config *cfg, const struct alq_library *current,
                    int is_checking, struct old old[OLD_MAX], struct alq_err *err)
{
    alq_auto_closedir DIR *dir = opendir(cfg->host_lib_dir);
    if (!dir)
        return errno == ENOENT ? 0 : alq_err_errno(err, errno, "%s", cfg->host_lib_dir);
    int count = 0;
    for (struct dirent *entry; count < OLD_MAX && (errno = 0, entry = readdir(dir));) {
        const char *hash;
        alq_auto_free char *path = alq_str_printf("%s/%s", cfg->host_lib_dir, entry->d_name);
        const struct kind *kind = kind_of(entry->d_name, &hash);
        if (!path || !kind || !strcmp(path, const_path_in(current, kind)))
            continue;
        if (is_checking && !is_sound(path, hash) &&
            !remove_old(cfg, entry->d_name, "its bytes are not what its name says"))
            continue;
        old[count].is_named = 0;
        snprintf(old[count++].name, sizeof(old->name), "%s", entry->d_name);
    }
    return errno ? alq_err_errno(err, errno, "%s", cfg->host_lib_dir) : count;
}

/* Every spec counts, whoever wrote it: two daemons may share the directory. */
static int mark_named(const struct alq_config *cfg, struct old *old, int count, struct alq_err *err)
{
    alq_auto_closedir DIR *dir = opendir(cfg->cdi_dir);
    if (!dir)
        return errno == ENOENT ? 0 : alq_err_errno(err, errno, "%s", cfg->cdi_dir);
    for (struct dirent *entry; (errno = 0, entry = readdir(dir));) {
        alq_auto_free char *path = alq_str_printf("%s/%s", cfg->cdi_dir, entry->d_name);
        alq_auto_free char *text = NULL;
        size_t len = 0;
        if (!path)
            return alq_err_set(err, ALQ_ENOMEM, "out of memory");
        if (!is_file(path))
            continue;
        int rc = alq_file_read(path, SPEC_BYTES_MAX, &text, &len, err);
        if (rc == ALQ_ENOENT)
            continue;
        if (rc)
            return rc;
        for (int i = 0; i < count; i++)
            old[i].is_named |= memmem(text, len, old[i].name, strlen(old[i].name)) != NULL;
    }
    return errno ? alq_err_errno(err, errno, "%s", cfg->cdi_dir) : 0;
}

int alq_library_sweep(const struct alq_config *cfg, const struct alq_library *current,
                      int is_checking, struct alq_err *err)
{
    struct old old[OLD_MAX];
    int left = 0;
    int count = list_old(cfg, current, is_checking, old, err);
    int rc = count > 0 ? mark_named(cfg, old, count, err) : count;
    for (int i = 0; i < count && !rc; i++)
        left += old[i].is_named || remove_old(cfg, old[i].name, "no share uses it any more");
    return rc ? rc : left;
}
