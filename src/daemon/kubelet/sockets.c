/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of sockets and what is left of dead ones, see sockets.h. A visible socket has always been
 * listened at before it got its name (grpc/server.c), so one that refuses is dead.
 */
#include "daemon/kubelet/sockets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"

#define ALQ_LOG_MODULE "sockets"

#define UID_HASH_BYTES 8
#define UID_HASH_CHARS 11 /* of base64url without padding */
#define NAME_HASH_BYTES 16
#define BASE64URL "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

/* The first `bytes` of data's SHA-256. */
static int hash_text(const void *data, size_t len, size_t bytes, char *text, struct alq_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    if (!EVP_Digest(data, len, digest, NULL, EVP_sha256(), NULL))
        return alq_err_set(err, ALQ_ENOTSUP, "libcrypto refuses to compute SHA-256");
    size_t n = 0;
    unsigned bits = 0, held = 0;
    for (size_t i = 0; i < bytes; i++) {
        bits = (bits << 8 | digest[i]) & 0xffff;
        for (held += 8; held >= 6; held -= 6)
            text[n++] = BASE64URL[bits >> (held - 6) & 63];
    }
    if (held)
        text[n++] = BASE64URL[bits << (6 - held) & 63];
    text[n] = '\0';
    return 0;
}

/* Takes text (malloc'ed, may be NULL) as the path; whether it fits. */
static int take(char path[ALQ_SOCKET_PATH_BYTES], char *text)
{
    alq_auto_free char *own = text;
    if (!own || strlen(own) >= ALQ_SOCKET_PATH_BYTES)
        return 0;
    memcpy(path, own, strlen(own) + 1);
    return 1;
}

static int too_long(const char *setting, const char *dir, struct alq_err *err)
{
    return alq_err_set(err, ALQ_ERANGE,
                       "%s: no socket below %s has a path of at most %d bytes; choose a shorter "
                       "directory",
                       setting, dir, ALQ_SOCKET_PATH_BYTES - 1);
}

int alq_sockets_name(const struct alq_config *cfg, struct alq_sockets *sockets, struct alq_err *err)
{
    const char *plugins = cfg->kubelet_plugins_dir, *registry = cfg->kubelet_registry_dir;
    const char *driver = cfg->driver_name, *uid = cfg->pod_uid ? cfg->pod_uid : "";
    const char *dash = cfg->pod_uid ? "-" : "";
    char uid_hash[16] = "", name_hash[32];
    alq_auto_free char *both = alq_str_printf("%s%c%s", driver, '\0', uid);
    if (!both)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = hash_text(both, strlen(driver) + 1 + strlen(uid), NAME_HASH_BYTES, name_hash, err);
    if (!rc && cfg->pod_uid)
        rc = hash_text(uid, strlen(uid), UID_HASH_BYTES, uid_hash, err);
    if (rc)
        return rc;
    if (!take(sockets->dra, alq_str_printf("%s/%s/dra%s%s.sock", plugins, driver, dash, uid)) &&
        !take(sockets->dra,
              alq_str_printf("%s/%s/dra%s%s.sock", plugins, driver, dash, uid_hash)) &&
        !take(sockets->dra, alq_str_printf("%s/%s/dra%s%s", plugins, driver, dash, uid_hash)))
        return too_long("--kubelet-plugins-dir", plugins, err);
    if (!take(sockets->registration,
              alq_str_printf("%s/%s%s%s-reg.sock", registry, driver, dash, uid)) &&
        !take(sockets->registration,
              alq_str_printf("%s/%s%s%s-reg.sock", registry, driver, dash, uid_hash)) &&
        !take(sockets->registration, alq_str_printf("%s/dra-%s-reg.sock", registry, name_hash)))
        return too_long("--kubelet-registry-dir", registry, err);
    return 0;
}

/* ---- sweep ------------------------------------------------------------------------------------
 */

enum life { LIFE_NONE, LIFE_DEAD, LIFE_LIVE }; /* none: no socket, or it cannot be told */

static enum life life_of(int dir, const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISSOCK(st.st_mode))
        return LIFE_NONE;
    /* Through the directory: the path itself may be too long. */
    int n = snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%s", dir, name);
    alq_auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (n < 0 || (size_t)n >= sizeof(addr.sun_path) || fd < 0)
        return LIFE_NONE;
    if (!connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) || errno == EAGAIN)
        return LIFE_LIVE;
    return errno == ECONNREFUSED ? LIFE_DEAD : LIFE_NONE;
}

/* Whether the text between the fixed parts of a name is a pod UID or the hash of one. */
static int is_uid_text(const char *text, size_t len)
{
    return (len == 36 && strspn(text, "0123456789abcdef-") >= len) ||
           (len == UID_HASH_CHARS && strspn(text, BASE64URL) >= len);
}

/* prefix, then nothing or "-" and a pod UID, then suffix. */
static int is_ours(const char *name, const char *prefix, const char *suffix)
{
    size_t before = strlen(prefix), after = strlen(suffix), len = strlen(name);
    if (len < before + after || strncmp(name, prefix, before) != 0 ||
        strcmp(name + len - after, suffix) != 0)
        return 0;
    size_t middle = len - before - after;
    return !middle || (name[before] == '-' && is_uid_text(name + before + 1, middle - 1));
}

/* A DRA socket's name has no suffix where the path would be too long with one. */
static int is_dra_name(const char *name)
{
    return is_ours(name, "dra", ".sock") || is_ours(name, "dra", "");
}

static void sweep_dir(const char *path, const char *prefix, const char *suffix)
{
    alq_auto_closedir DIR *dir = opendir(path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        /* One that was killed before its socket got its name has left a hidden one. */
        if (!is_ours(name[0] == '.' ? name + 1 : name, prefix, suffix) ||
            life_of(dirfd(dir), name) != LIFE_DEAD)
            continue;
        if (unlinkat(dirfd(dir), name, 0) && errno != ENOENT)
            alq_warn(ALQ_LOG_KV({"directory", path}, {"socket", name}), "dead socket stays: %s",
                     strerror(errno));
        else
            alq_info(ALQ_LOG_KV({"directory", path}, {"socket", name}), "dead socket removed");
    }
}

void alq_sockets_sweep(const struct alq_config *cfg)
{
    alq_auto_free char *plugin_dir =
        alq_str_printf("%s/%s", cfg->kubelet_plugins_dir, cfg->driver_name);
    if (plugin_dir) {
        sweep_dir(plugin_dir, "dra", ".sock");
        sweep_dir(plugin_dir, "dra", "");
    }
    sweep_dir(cfg->kubelet_registry_dir, cfg->driver_name, "-reg.sock");
}

int alq_sockets_has_other(const struct alq_config *cfg, const struct alq_sockets *own)
{
    alq_auto_free char *path = alq_str_printf("%s/%s", cfg->kubelet_plugins_dir, cfg->driver_name);
    alq_auto_closedir DIR *dir = path ? opendir(path) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (is_dra_name(entry->d_name) && strcmp(entry->d_name, strrchr(own->dra, '/') + 1) != 0 &&
            life_of(dirfd(dir), entry->d_name) == LIFE_LIVE)
            return 1;
    return 0;
}
