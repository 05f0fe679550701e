/* SPDX-License-Identifier: Apache-2.0 */
/* What aliquotd keeps on a host, taken away; see uninstall.h. */
#include "daemon/uninstall.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/cdi/cdi.h"
#include "daemon/kubelet/sockets.h"
#include "daemon/prepare/share_dir.h"
#include "daemon/state/store.h"

#define ALQ_LOG_MODULE "uninstall"
#define ALQ_NAME_BYTES 320 /* namespace/name */

/* ---- whether it may be ------------------------------------------------------------------------
 */

/* The first record that can be read tells more than a UID. */
static void take_name(void *arg, struct alq_record *record)
{
    char *name = arg;
    if (!*name)
        snprintf(name, ALQ_NAME_BYTES, "%s/%s", record->claim.namespace_, record->claim.name);
}

/* A record that was set aside counts too: the kubelet holds its claim for prepared. */
static int check_records(const struct alq_config *cfg, struct alq_store *store, struct alq_err *err)
{
    alq_auto_free char *path = alq_str_printf("%s/claims", cfg->state_dir);
    alq_auto_closedir DIR *dir = path ? opendir(path) : NULL;
    char name[ALQ_NAME_BYTES] = "";
    unsigned count = 0;
    if (!dir)
        return alq_err_errno(err, path ? errno : ENOMEM, "%s/claims", cfg->state_dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.' && strstr(entry->d_name, ".record") != NULL;
    if (!count)
        return 0;
    alq_store_load(store, take_name, name, NULL);
    return alq_err_set(err, ALQ_EBUSY,
                       "%u claims are prepared on this node%s%s: delete their pods while aliquotd "
                       "runs, then uninstall; where the cluster is no more, remove %s first",
                       count, *name ? ", among them " : "", name, path);
}

/* *lock keeps other instances from the shares; untouched where there are none. */
static int check_shares(const struct alq_config *cfg, int *lock, struct alq_err *err)
{
    alq_auto_free char *root = alq_share_root(cfg);
    alq_auto_closedir DIR *dir = root ? opendir(root) : NULL;
    int rc = dir ? alq_share_root_lock(cfg, lock, err) : 0;
    if (rc)
        return rc;
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && alq_share_dir_is_in_use(cfg, entry->d_name))
            return alq_err_set(err, ALQ_EBUSY,
                               "a process uses the share %s: end its container, then uninstall",
                               entry->d_name);
    return 0;
}

/* ---- removal ----------------------------------------------------------------------------------
 */

/* The first error is the one that is told; each is logged. */
static void keep(struct alq_err *first, const struct alq_err *why)
{
    alq_error(NULL, "%s", why->text);
    if (!first->code)
        *first = *why;
}

static void remove_matching(const char *dir_path, const char *const *patterns,
                            struct alq_err *first)
{
    alq_auto_closedir DIR *dir = opendir(dir_path);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *const *p = patterns;
        while (*p && fnmatch(*p, entry->d_name, 0))
            p++;
        alq_auto_free char *path = *p ? alq_str_printf("%s/%s", dir_path, entry->d_name) : NULL;
        struct alq_err why = ALQ_ERR_INIT;
        if (path && alq_file_remove_tree(path, &why))
            keep(first, &why);
        else if (path)
            alq_info(ALQ_LOG_KV({"file", path}), "removed");
    }
}

static void remove_empty(const char *path, struct alq_err *first)
{
    struct alq_err why = ALQ_ERR_INIT;
    char first_byte;
    if (!rmdir(path)) {
        alq_info(ALQ_LOG_KV({"file", path}), "removed");
    } else if (errno == ENOTEMPTY || errno == EEXIST) {
        alq_warn(ALQ_LOG_KV({"file", path}), "stays: there is something in it that is not ours");
    } else if (errno == EBUSY) {
        alq_warn(ALQ_LOG_KV({"file", path}), "stays, empty: it is a mount point here");
    } else if (errno == ENOTDIR && readlink(path, &first_byte, 1) > 0) {
        alq_warn(ALQ_LOG_KV({"file", path}),
                 "stays: it is a link; the directory behind it was emptied of what is ours");
    } else if (errno != ENOENT) {
        alq_err_errno(&why, errno, "%s", path);
        keep(first, &why);
    }
}

/* Those that no spec names; ours are gone. A sweep looks at so many at a time. */
static void remove_libraries(const struct alq_config *cfg, struct alq_err *first)
{
    static const struct alq_library none;
    int before = -1, left = 0;
    struct alq_err why = ALQ_ERR_INIT;
    if (access(cfg->host_lib_dir, F_OK))
        return;
    alq_file_sweep_temporaries(cfg->host_lib_dir, NULL);
    do {
        before = left;
        left = alq_library_sweep(cfg, &none, 0, &why);
    } while (left > 0 && left != before);
    if (left < 0)
        keep(first, &why);
    else
        remove_empty(cfg->host_lib_dir, first);
}

static int remove_all(const struct alq_config *cfg, const char *plugin_dir, struct alq_err *err)
{
    struct alq_err first = ALQ_ERR_INIT;
    alq_auto_free char *spec = alq_str_printf("k8s.%s-claim_*.json", cfg->driver_name);
    alq_auto_free char *part = alq_str_printf(".k8s.%s-claim_*.json.tmp-*", cfg->driver_name);
    const char *const specs[] = {spec, part, NULL};
    static const char *const run[] = {"shares", "aliquotd.sock", NULL};
    static const char *const locks[] = {"aliquotd.lock", "aliquotd.next", NULL};
    static const char *const state[] = {"claims",        "made",
                                        "devices.json*", ".devices.json.tmp-*",
                                        "faults.json*",  ".faults.json.tmp-*",
                                        "lock",          NULL};
    if (!spec || !part)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    alq_sockets_sweep(cfg);
    remove_matching(cfg->cdi_dir, specs, &first);
    remove_libraries(cfg, &first);
    remove_matching(cfg->run_dir, run, &first);
    remove_empty(cfg->run_dir, &first);
    remove_matching(cfg->state_dir, state, &first);
    remove_empty(cfg->state_dir, &first);
    remove_matching(plugin_dir, locks, &first);
    remove_empty(plugin_dir, &first);
    if (first.code)
        *err = first;
    return first.code;
}

int alq_uninstall(const struct alq_config *cfg, struct alq_err *err)
{
    alq_auto_free char *plugin_dir =
        alq_str_printf("%s/%s", cfg->kubelet_plugins_dir, cfg->driver_name);
    alq_auto_free char *lock_path =
        plugin_dir ? alq_str_printf("%s/aliquotd.lock", plugin_dir) : NULL;
    alq_auto_close int lock = -1, run_lock = -1;
    struct alq_store *store = NULL;
    if (!lock_path)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = access(plugin_dir, F_OK) ? 0 : alq_lock_take(lock_path, plugin_dir, "", &lock, err);
    if (!rc && !access(cfg->state_dir, F_OK)) {
        rc = alq_store_open(cfg->state_dir, &store, err);
        if (!rc)
            rc = check_records(cfg, store, err);
    }
    if (!rc)
        rc = check_shares(cfg, &run_lock, err);
    if (!rc)
        rc = remove_all(cfg, plugin_dir, err);
    alq_store_close(store);
    return rc;
}
