/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the CDI spec of a claim, see cdi.h. What all shares of a claim have in common stands once
 * at the top (driver libraries, control nodes); each share is one device with its GPU's node and,
 * when it is enforced, its files, our library and HAMi-core's variables. The result has passed
 * alq_cdi_validate. No I/O but a stat of each GPU's node.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "daemon/cdi/cdi.h"
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

static json_t *node(const struct alq_driver_node *n)
{
    /* The runtime reads type and numbers from the host's node when the container starts:
     * nvidia-uvm's major number may have changed by then. */
    json_t *value = json_pack("{s:s, s:s}", "path", n->path, "permissions", "rw");
    if (strcmp(n->path, n->host_path))
        put(value, "hostPath", json_string(n->host_path));
    return value;
}

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
                      const char *container_path)
{
    if (!is_extra_mount(cfg, container_path))
        append(mounts, mount(host_path, container_path, options_ro()));
}

static json_t *common_edits(const struct alq_config *cfg, const struct alq_driver_files *files)
{
    json_t *env = json_array(), *nodes = json_array(), *mounts = json_array();

    /* Keeps an NVIDIA runtime hook that is installed as well from adding every GPU. */
    append(env, json_string("NVIDIA_VISIBLE_DEVICES=void"));
    for (size_t i = 0; i < cfg->extra_env_count; i++)
        append(env, json_string(cfg->extra_env[i]));
    for (size_t i = 0; i < files->node_count; i++)
        append(nodes, node(&files->nodes[i]));
    for (size_t i = 0; i < files->mount_count; i++)
        add_mount(cfg, mounts, files->mounts[i].host_path, files->mounts[i].container_path);
    for (size_t i = 0; i < cfg->extra_mount_count; i++) {
        const struct alq_extra_mount *extra = &cfg->extra_mounts[i];
        json_t *options = json_array();
        for (char **option = extra->options; option && *option; option++)
            append(options, json_string(*option));
        append(mounts, mount(extra->host_path, extra->container_path, options));
    }
    json_t *edits = json_pack("{s:o, s:o}", "env", env, "deviceNodes", nodes);
    if (json_array_size(mounts))
        put(edits, "mounts", json_incref(mounts));
    json_decref(mounts);
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

static int share_device(const struct alq_config *cfg, const struct alq_library *library,
                        const struct alq_claim_spec *claim, const struct alq_share_spec *share,
                        json_t *devices, struct alq_err *err)
{
    char name[32];
    struct alq_driver_node gpu = {0};
    snprintf(name, sizeof(name), "nvidia%" PRIu32, share->gpu_minor);
    int rc = alq_driver_node_find(cfg, name, &gpu, err);
    if (rc)
        return err ? alq_err_wrap(err, "gpu %s", share->gpu_uuid) : rc;

    json_t *edits = json_pack("{s:[o]}", "deviceNodes", node(&gpu));
    alq_driver_node_clear(&gpu);
    if (alq_share_is_enforced(cfg, share)) {
        json_t *env = json_array(), *mounts = json_array();
        add_limits(env, share, gpu_position(claim, share));
        add_share_files(mounts, cfg, share);
        /* Here and not at the top: a container that uses another request only is left alone. */
        if (library->library_path[0]) {
            add_mount(cfg, mounts, library->library_path, LIBRARY_CONTAINER_PATH);
            add_mount(cfg, mounts, library->preload_path, PRELOAD_CONTAINER_PATH);
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
        int rc = share_device(cfg, library, claim, &claim->shares[i], devices, err);
        if (rc)
            return rc;
    }
    alq_auto_free char *kind = alq_str_printf("k8s.%s/claim", cfg->driver_name);
    alq_auto_json json_t *built =
        json_pack("{s:s, s:s, s:O, s:o}", "cdiVersion", "0.3.0", "kind", kind ? kind : "",
                  "devices", devices, "containerEdits", common_edits(cfg, files));
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
