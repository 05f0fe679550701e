/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the CDI spec of a claim, see cdi.h. What all shares of a claim have in common stands once
 * at the top (driver libraries, control nodes); each share is one device with its GPU's node and,
 * when it is enforced, its files, our library and HAMi-core's variables. The result has passed
 * alq_cdi_validate. No I/O but for each GPU's node, which is looked at, and made if missing.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/inject.h"
#include "daemon/cdi/scan.h"
#include "daemon/cdi/validate.h"
#include "daemon/state/claim_spec.h"

#define LIBRARY_CONTAINER_PATH "/usr/local/vgpu/libvgpu.so"
#define PRELOAD_CONTAINER_PATH "/etc/ld.so.preload"
#define MIB (1024 * 1024)

/* Whether an append failed since the build began: a spec that lacks a mount must not be written.
 * One build runs on one thread, so the mark is the thread's. */
static _Thread_local int is_broken;

static void append(json_t *array, json_t *value)
{
    is_broken |= json_array_append_new(array, value);
}

static void put(json_t *object, const char *key, json_t *value)
{
    is_broken |= json_object_set_new(object, key, value);
}

/* An edit that is empty is left out: runtimes refuse it. */
static void put_list(json_t *edits, const char *key, json_t *list)
{
    if (!list || json_array_size(list))
        put(edits, key, list);
    else
        json_decref(list);
}

static void add_textf(json_t *array, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_textf(json_t *array, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    append(array, json_vsprintf(fmt, args));
    va_end(args);
}

static json_t *mount(const char *host_path, const char *container_path, json_t *options)
{
    return json_pack("{s:s, s:s, s:o}", "hostPath", host_path, "containerPath", container_path,
                     "options", options);
}

static json_t *options_ro(void)
{
    return json_pack("[sssss]", "ro", "nosuid", "nodev", "rbind", "rprivate");
}

/* "rw" must run no program and honour no device that the container makes up. */
static json_t *options_share(const char *access)
{
    return json_pack("[sssss]", access, "nosuid", "nodev", "noexec", "bind");
}

/* Programs connect to it and make files in it (MPS), but run none. */
static json_t *options_socket(void)
{
    return json_pack("[sssss]", "nosuid", "nodev", "noexec", "rbind", "rprivate");
}

/* A path that was found below the host root, as the runtime on the host knows it. */
static const char *on_host(const struct alq_config *cfg, const char *path)
{
    size_t len = cfg->host_root ? strlen(cfg->host_root) : 0;
    return len > 1 && !strncmp(path, cfg->host_root, len) && path[len] == '/' ? path + len : path;
}

/* gids collects the groups that a node is for. */
static json_t *node(const struct alq_config *cfg, const struct alq_driver_node *n, json_t *gids)
{
    /* The runtime reads type and numbers from the host's node when the container starts:
     * nvidia-uvm's major number may have changed by then. */
    json_t *value = json_pack("{s:s, s:s}", "path", n->path, "permissions", "rw");
    const char *host_path = on_host(cfg, n->host_path);
    if (strcmp(n->path, host_path))
        put(value, "hostPath", json_string(host_path));
    if ((n->mode & 0666) == 0666)
        return value; /* what a runtime makes of a node without a mode */
    put(value, "fileMode", json_integer(n->mode));
    /* No uid: the runtime makes the container's user the owner. */
    if (n->gid) {
        size_t i;
        json_t *have;
        put(value, "gid", json_integer(n->gid));
        json_array_foreach (gids, i, have) {
            if (json_integer_value(have) == n->gid)
                return value;
        }
        append(gids, json_integer(n->gid));
    }
    return value;
}

static void put_gids(const struct alq_config *cfg, json_t *edits, json_t *gids)
{
    if (cfg->inject_sets & ALQ_INJECT_GROUPS && json_array_size(gids))
        put(edits, "additionalGids", json_incref(gids));
    json_decref(gids);
}

/* ---- hooks ------------------------------------------------------------------------------------
 */

static json_t *hook(const struct alq_library *library, const char *command)
{
    return json_pack("{s:s, s:s, s:[ss]}", "hookName", "createContainer", "path",
                     library->hook_path, "args", "aliquot-hook", command);
}

static void add_links(json_t *hooks, const struct alq_library *library,
                      const struct alq_driver_link *links, size_t count)
{
    json_t *value = hook(library, "create-symlinks");
    for (size_t i = 0; i < count; i++) {
        append(json_object_get(value, "args"), json_string("--link"));
        add_textf(json_object_get(value, "args"), "%s::%s", links[i].target, links[i].path);
    }
    append(hooks, value);
}

/* The file mounted where the link would lead; NULL: that is no file of ours. */
static const struct alq_driver_mount *mount_behind(const struct alq_driver_files *files,
                                                   const struct alq_driver_link *link)
{
    const char *leaf = strrchr(link->target, '/') ? strrchr(link->target, '/') + 1 : link->target;
    for (size_t i = 0; i < files->mount_count; i++) {
        const struct alq_driver_mount *m = &files->mounts[i];
        if (!strcmp(strrchr(m->container_path, '/') + 1, leaf))
            return m;
    }
    return NULL;
}

static json_t *common_hooks(const struct alq_config *cfg, const struct alq_driver_files *files,
                            const struct alq_library *library)
{
    json_t *hooks = json_array();
    if (!library->hook_path[0])
        return hooks;
    if (cfg->inject_sets & ALQ_INJECT_SYMLINKS && files->link_count)
        add_links(hooks, library, files->links, files->link_count);
    if (cfg->inject_sets & ALQ_INJECT_LDCACHE && files->folder_count) {
        json_t *value = hook(library, "update-ldcache");
        for (size_t i = 0; i < files->folder_count; i++) {
            append(json_object_get(value, "args"), json_string("--folder"));
            append(json_object_get(value, "args"), json_string(files->folders[i]));
        }
        append(hooks, value);
    }
    if (cfg->inject_sets & ALQ_INJECT_NODE_LOCK && files->has_params)
        append(hooks, hook(library, "disable-device-node-modification"));
    return hooks;
}

/* ---- what all shares have ---------------------------------------------------------------------
 */

/* extraMounts on a path of ours replace ours. */
static int is_extra_mount(const struct alq_config *cfg, const char *container_path)
{
    for (size_t i = 0; i < cfg->extra_mount_count; i++) {
        if (!strcmp(cfg->extra_mounts[i].container_path, container_path))
            return 1;
    }
    return 0;
}

static void add_mount(const struct alq_config *cfg, json_t *mounts, const char *host_path,
                      const char *container_path, json_t *options)
{
    if (is_extra_mount(cfg, container_path))
        json_decref(options);
    else
        append(mounts, mount(host_path, container_path, options));
}

static json_t *common_mounts(const struct alq_config *cfg, const struct alq_driver_files *files,
                             const struct alq_library *library)
{
    json_t *mounts = json_array();
    int is_linked = cfg->inject_sets & ALQ_INJECT_SYMLINKS && library->hook_path[0];
    for (size_t i = 0; i < files->mount_count; i++) {
        const struct alq_driver_mount *m = &files->mounts[i];
        add_mount(cfg, mounts, on_host(cfg, m->host_path), m->container_path,
                  m->is_socket ? options_socket() : options_ro());
    }
    /* Without the hook a file stands where its link would. */
    for (size_t i = 0; i < files->link_count && !is_linked; i++) {
        const struct alq_driver_mount *m = mount_behind(files, &files->links[i]);
        if (m)
            add_mount(cfg, mounts, on_host(cfg, m->host_path), files->links[i].path, options_ro());
    }
    for (size_t i = 0; i < cfg->extra_mount_count; i++) {
        const struct alq_extra_mount *extra = &cfg->extra_mounts[i];
        json_t *options = json_array();
        for (char **option = extra->options; option && *option; option++)
            append(options, json_string(*option));
        append(mounts, mount(extra->host_path, extra->container_path, options));
    }
    return mounts;
}

static json_t *common_edits(const struct alq_config *cfg, const struct alq_driver_files *files,
                            const struct alq_library *library)
{
    json_t *env = json_array(), *nodes = json_array(), *gids = json_array();

    /* Keeps an NVIDIA runtime hook that is installed as well from adding every GPU. */
    if (cfg->inject_sets & ALQ_INJECT_TOOLKIT_VOID)
        append(env, json_string("NVIDIA_VISIBLE_DEVICES=void"));
    for (size_t i = 0; i < cfg->extra_env_count; i++)
        append(env, json_string(cfg->extra_env[i]));
    for (size_t i = 0; i < files->nodes.count; i++)
        append(nodes, node(cfg, &files->nodes.items[i], gids));
    json_t *edits = json_pack("{s:o}", "deviceNodes", nodes);
    put_list(edits, "env", env);
    put_list(edits, "mounts", common_mounts(cfg, files, library));
    put_list(edits, "hooks", common_hooks(cfg, files, library));
    put_gids(cfg, edits, gids);
    return edits;
}

/* Position of the share's GPU among the claim's GPUs in NVML's order: how a container that uses the
 * whole claim counts. */
static unsigned gpu_position(const struct alq_claim_spec *claim, const struct alq_share_spec *share)
{
    unsigned before = 0;
    for (uint32_t i = 0; i < claim->share_count; i++) {
        const struct alq_share_spec *other = &claim->shares[i];
        int is_first = 1;
        for (uint32_t j = 0; j < i && is_first; j++)
            is_first = strcmp(claim->shares[j].gpu_uuid, other->gpu_uuid) != 0;
        if (is_first && strcmp(other->gpu_uuid, share->gpu_uuid) &&
            other->gpu_minor < share->gpu_minor)
            before++;
    }
    return before;
}

static void add_limits(json_t *env, const struct alq_share_spec *share, unsigned position)
{
    static const char *const policies[] = {
        [ALQ_POLICY_HARD] = NULL, [ALQ_POLICY_BURST] = "default", [ALQ_POLICY_NONE] = "disable"};

    if (share->memory_bytes % MIB)
        add_textf(env, "CUDA_DEVICE_MEMORY_LIMIT_%u=%" PRIu64, position, share->memory_bytes);
    else
        add_textf(env, "CUDA_DEVICE_MEMORY_LIMIT_%u=%" PRIu64 "m", position,
                  share->memory_bytes / MIB);
    add_textf(env, "CUDA_DEVICE_SM_LIMIT_%u=%" PRIu32, position, share->cores_pct);
    add_textf(env, "CUDA_DEVICE_MEMORY_SHARED_CACHE=" ALQ_SHARE_ROOT "/%s/hami.cache",
              share->share_id);
    if (share->tuning.policy < sizeof(policies) / sizeof(policies[0]) &&
        policies[share->tuning.policy])
        add_textf(env, "GPU_CORE_UTILIZATION_POLICY=%s", policies[share->tuning.policy]);
    if (share->tuning.priority)
        add_textf(env, "CUDA_TASK_PRIORITY=%" PRIu32, share->tuning.priority);
}

static void add_share_files(json_t *mounts, const struct alq_config *cfg,
                            const struct alq_share_spec *share)
{
    static const struct {
        const char *name, *access;
    } files[] = {{"control", "ro"}, {"usage", "rw"}, {"hami.cache", "rw"}};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        alq_auto_free char *host =
            alq_str_printf("%s/shares/%s/%s", cfg->run_dir, share->share_id, files[i].name);
        alq_auto_free char *inside =
            alq_str_printf(ALQ_SHARE_ROOT "/%s/%s", share->share_id, files[i].name);
        append(mounts, host && inside ? mount(host, inside, options_share(files[i].access)) : NULL);
    }
}

static int gpu_edits(const struct alq_config *cfg, const struct alq_driver_files *files,
                     const struct alq_library *library, const struct alq_share_spec *share,
                     json_t **edits, struct alq_err *err)
{
    char name[32];
    struct alq_driver_node own = {0};
    const struct alq_driver_gpu *gpu = alq_driver_gpu_of(files, share->gpu_minor);
    snprintf(name, sizeof(name), "nvidia%" PRIu32, share->gpu_minor);
    if (gpu && gpu->missing.code)
        return alq_err_set(err, gpu->missing.code, "%s", gpu->missing.text);
    int rc = alq_driver_node_find(cfg, name, &own, err);
    if (rc)
        return rc;
    json_t *gids = json_array(), *nodes = json_array();
    append(nodes, node(cfg, &own, gids));
    alq_driver_node_clear(&own);
    for (size_t i = 0; gpu && i < gpu->nodes.count; i++)
        append(nodes, node(cfg, &gpu->nodes.items[i], gids));
    *edits = json_pack("{s:o}", "deviceNodes", nodes);
    put_gids(cfg, *edits, gids);
    if (gpu && gpu->link_count && library->hook_path[0] && cfg->inject_sets & ALQ_INJECT_SYMLINKS) {
        json_t *hooks = json_array();
        add_links(hooks, library, gpu->links, gpu->link_count);
        put(*edits, "hooks", hooks);
    }
    return 0;
}

static int share_device(const struct alq_config *cfg, const struct alq_driver_files *files,
                        const struct alq_library *library, const struct alq_claim_spec *claim,
                        const struct alq_share_spec *share, json_t *devices, struct alq_err *err)
{
    json_t *edits = NULL;
    int rc = gpu_edits(cfg, files, library, share, &edits, err);
    if (rc)
        return err ? alq_err_wrap(err, "gpu %s", share->gpu_uuid) : rc;
    if (alq_share_is_enforced(cfg, share)) {
        json_t *env = json_array(), *mounts = json_array();
        add_limits(env, share, gpu_position(claim, share));
        add_share_files(mounts, cfg, share);
        /* Here and not at the top: a container that uses another request only is left alone. */
        if (library->library_path[0]) {
            add_mount(cfg, mounts, library->library_path, LIBRARY_CONTAINER_PATH, options_ro());
            add_mount(cfg, mounts, library->preload_path, PRELOAD_CONTAINER_PATH, options_ro());
        }
        put(edits, "env", env);
        put(edits, "mounts", mounts);
    }
    append(devices, json_pack("{s:s, s:o}", "name", share->share_id, "containerEdits", edits));
    return 0;
}

int alq_cdi_spec_build(const struct alq_config *cfg, const struct alq_driver_files *files,
                       const struct alq_library *library, const struct alq_claim_spec *claim,
                       json_t **spec, struct alq_err *err)
{
    if (!claim->share_count)
        return alq_err_set(err, ALQ_EINVAL, "claim %s has no device of this driver", claim->uid);
    is_broken = 0;
    alq_auto_json json_t *devices = json_array();
    for (uint32_t i = 0; i < claim->share_count; i++) {
        int rc = share_device(cfg, files, library, claim, &claim->shares[i], devices, err);
        if (rc)
            return rc;
    }
    alq_auto_free char *kind = alq_str_printf("k8s.%s/claim", cfg->driver_name);
    alq_auto_json json_t *built =
        json_pack("{s:s, s:s, s:O, s:o}", "cdiVersion", "0.3.0", "kind", kind ? kind : "",
                  "devices", devices, "containerEdits", common_edits(cfg, files, library));
    if (!built || is_broken || json_array_size(devices) != claim->share_count)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    put(built, "cdiVersion", json_string(alq_cdi_lowest_version(built)));
    int rc =
        is_broken ? alq_err_set(err, ALQ_ENOMEM, "out of memory") : alq_cdi_validate(built, err);
    if (!rc)
        *spec = alq_steal(&built);
    return rc;
}

void alq_cdi_id(const struct alq_config *cfg, const char *share_id, char id[ALQ_CDI_ID_BYTES])
{
    snprintf(id, ALQ_CDI_ID_BYTES, "k8s.%s/claim=%s", cfg->driver_name, share_id);
}

char *alq_cdi_path(const struct alq_config *cfg, const char *claim_uid)
{
    return alq_str_printf("%s/k8s.%s-claim_%s.json", cfg->cdi_dir, cfg->driver_name, claim_uid);
}
