/* SPDX-License-Identifier: Apache-2.0 */
/* The spec builder, on the made-up host of cdi_world.h, and the strict validator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cdi_world.h"
#include "conformance.h"
#include "daemon/cdi/cdi.h"
#include "daemon/cdi/inject.h"
#include "daemon/cdi/scan.h"
#include "daemon/cdi/validate.h"

#define UID "73086585-cd22-416e-87f8-a2f08248dd2a"
#define MIB (1024ull * 1024)

/* ---- spec ----------------------------------------------------------------------------------- */

static struct alq_share_spec share(uint32_t index, const char *uuid, uint32_t minor, uint64_t mib,
                                   uint32_t cores)
{
    struct alq_share_spec s = {.index = index, .gpu_minor = minor, .cores_pct = cores};
    snprintf(s.share_id, sizeof(s.share_id), UID "-%u", index);
    snprintf(s.gpu_uuid, sizeof(s.gpu_uuid), "%s", uuid);
    s.memory_bytes = mib * MIB;
    return s;
}

static json_t *build(struct world *w, struct alq_share_spec *shares, uint32_t count)
{
    struct alq_driver_files *files = NULL;
    struct alq_claim_spec claim = {.uid = UID, .share_count = count, .shares = shares};
    struct alq_library library = {.library_path = "/usr/local/lib/aliquot/libvgpu-0.so",
                                  .preload_path = "/usr/local/lib/aliquot/ld.so.preload-0"};
    struct alq_err err = ALQ_ERR_INIT;
    json_t *spec = NULL;
    if (!w->cfg.extra_mount_count) {
        put_driver(w, LIB_DIR, "550.163.01");
        put_nodes(w);
    }
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    if (alq_cdi_spec_build(&w->cfg, files, &library, &claim, &spec, &err))
        fail_msg("%s", err.text);
    alq_driver_files_free(files);
    return spec;
}

static const char *env_of(const json_t *edits, const char *name)
{
    size_t i, len = strlen(name);
    json_t *item;
    json_array_foreach (json_object_get(edits, "env"), i, item) {
        const char *text = json_string_value(item);
        if (!strncmp(text, name, len) && text[len] == '=')
            return text + len + 1;
    }
    return NULL;
}

static const json_t *edits_of(const json_t *spec, size_t device)
{
    return json_object_get(json_array_get(json_object_get(spec, "devices"), device),
                           "containerEdits");
}

static const json_t *mount_at(const json_t *edits, const char *path)
{
    size_t i;
    json_t *item;
    json_array_foreach (json_object_get(edits, "mounts"), i, item) {
        if (!strcmp(alq_json_str(item, "containerPath"), path))
            return item;
    }
    return NULL;
}

static void build_gives_what_a_container_needs(void **state)
{
    struct world *w = *state;
    struct alq_share_spec shares[] = {share(0, "GPU-a", 3, 4096, 30)};
    alq_auto_json json_t *spec = build(w, shares, 1);
    assert_string_equal(alq_json_str(spec, "kind"), "k8s.hami-core-gpu.project-hami.io/claim");
    assert_string_equal(alq_json_str(spec, "cdiVersion"), "0.5.0");
    const json_t *common = json_object_get(spec, "containerEdits");
    assert_string_equal(env_of(common, "NVIDIA_VISIBLE_DEVICES"), "void");
    assert_non_null(mount_at(common, "/" LIB_DIR "/libcuda.so.1"));
    const json_t *edits = edits_of(spec, 0);
    assert_non_null(mount_at(edits, "/usr/local/vgpu/libvgpu.so"));
    assert_non_null(mount_at(edits, "/etc/ld.so.preload"));
    assert_string_equal(alq_json_str(json_array_get(json_object_get(spec, "devices"), 0), "name"),
                        UID "-0");
    const json_t *node = json_array_get(json_object_get(edits, "deviceNodes"), 0);
    assert_string_equal(alq_json_str(node, "path"), "/dev/nvidia3");
    assert_string_equal(alq_json_str(node, "hostPath"), "/dev/null");
    assert_string_equal(env_of(edits, "CUDA_DEVICE_MEMORY_LIMIT_0"), "4096m");
    assert_string_equal(env_of(edits, "CUDA_DEVICE_SM_LIMIT_0"), "30");
    assert_string_equal(env_of(edits, "CUDA_DEVICE_MEMORY_SHARED_CACHE"),
                        "/run/aliquot/shares/" UID "-0/hami.cache");
    assert_null(env_of(edits, "GPU_CORE_UTILIZATION_POLICY"));
    assert_null(env_of(edits, "CUDA_TASK_PRIORITY"));
    const json_t *control = mount_at(edits, "/run/aliquot/shares/" UID "-0/control");
    assert_string_equal(alq_json_str(control, "hostPath"), "/run/aliquot/shares/" UID "-0/control");
    assert_string_equal(json_string_value(json_array_get(json_object_get(control, "options"), 0)),
                        "ro");
    const json_t *usage = mount_at(edits, "/run/aliquot/shares/" UID "-0/usage");
    assert_string_equal(json_string_value(json_array_get(json_object_get(usage, "options"), 0)),
                        "rw");
}

static void build_numbers_devices_in_nvml_order(void **state)
{
    struct world *w = *state;
    struct alq_share_spec shares[] = {share(0, "GPU-b", 3, 4096, 30),
                                      share(1, "GPU-a", 0, 8192, 60)};
    alq_auto_json json_t *spec = build(w, shares, 2);
    assert_string_equal(env_of(edits_of(spec, 0), "CUDA_DEVICE_MEMORY_LIMIT_1"), "4096m");
    assert_string_equal(env_of(edits_of(spec, 1), "CUDA_DEVICE_MEMORY_LIMIT_0"), "8192m");
}

static void build_two_shares_of_one_gpu_are_two_devices(void **state)
{
    struct world *w = *state;
    struct alq_share_spec shares[] = {share(0, "GPU-a", 0, 4096, 30),
                                      share(1, "GPU-a", 0, 8192, 60)};
    shares[1].tuning = (struct alq_share_tuning){.policy = ALQ_POLICY_NONE, .priority = 1};
    alq_auto_json json_t *spec = build(w, shares, 2);
    assert_int_equal(json_array_size(json_object_get(spec, "devices")), 2);
    assert_string_equal(env_of(edits_of(spec, 0), "CUDA_DEVICE_SM_LIMIT_0"), "30");
    assert_string_equal(env_of(edits_of(spec, 1), "CUDA_DEVICE_SM_LIMIT_0"), "60");
    assert_string_equal(env_of(edits_of(spec, 1), "GPU_CORE_UTILIZATION_POLICY"), "disable");
    assert_string_equal(env_of(edits_of(spec, 1), "CUDA_TASK_PRIORITY"), "1");
    assert_non_null(mount_at(edits_of(spec, 1), "/run/aliquot/shares/" UID "-1/usage"));
}

static void build_for_admin_access_sets_no_limit(void **state)
{
    struct world *w = *state;
    struct alq_share_spec shares[] = {share(0, "GPU-a", 0, 81920, 100)};
    shares[0].is_admin = 1;
    alq_auto_json json_t *spec = build(w, shares, 1);
    assert_null(json_object_get(edits_of(spec, 0), "env"));
    assert_null(json_object_get(edits_of(spec, 0), "mounts"));
    assert_null(mount_at(json_object_get(spec, "containerEdits"), "/etc/ld.so.preload"));
    assert_non_null(mount_at(json_object_get(spec, "containerEdits"), "/" LIB_DIR "/libcuda.so.1"));
}

static void build_for_a_whole_gpu_passes_it_through_when_told_so(void **state)
{
    struct world *w = *state;
    struct alq_share_spec shares[] = {share(0, "GPU-a", 0, 81920, 100),
                                      share(1, "GPU-b", 3, 81920, 99)};
    shares[0].gpu_memory_bytes = shares[1].gpu_memory_bytes = 81920 * MIB;
    for (enum alq_whole_gpu mode = ALQ_WHOLE_GPU_LIMIT; mode <= ALQ_WHOLE_GPU_PASSTHROUGH; mode++) {
        w->cfg.whole_gpu = mode;
        alq_auto_json json_t *spec = build(w, shares, 2);
        int is_bare = mode == ALQ_WHOLE_GPU_PASSTHROUGH;
        const json_t *common = json_object_get(spec, "containerEdits");
        const json_t *whole = edits_of(spec, 0), *part = edits_of(spec, 1);
        assert_null(mount_at(common, "/etc/ld.so.preload"));
        assert_int_equal(json_object_get(whole, "mounts") == NULL, is_bare);
        assert_int_equal(json_object_get(whole, "env") == NULL, is_bare);
        assert_int_equal(json_array_size(json_object_get(whole, "deviceNodes")), 1);
        assert_non_null(mount_at(part, "/etc/ld.so.preload"));
        assert_string_equal(env_of(part, "CUDA_DEVICE_SM_LIMIT_1"), "99");
        assert_int_equal(alq_file_remove_tree(at(w, "dev"), NULL), 0);
    }
}

static void build_without_the_gpus_node_is_no_spec(void **state)
{
    struct world *w = *state;
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_share_spec shares[] = {share(0, "GPU-a", 0, 4096, 30),
                                      share(1, "GPU-x", 7, 4096, 30)};
    struct alq_claim_spec claim = {.uid = UID, .share_count = 2, .shares = shares};
    struct alq_library library = {0};
    json_t *spec = NULL;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    assert_int_equal(alq_cdi_spec_build(&w->cfg, files, &library, &claim, &spec, &err), ALQ_ENOENT);
    assert_null(spec);
    assert_non_null(strstr(err.text, "GPU-x"));
    assert_non_null(strstr(err.text, "nvidia7"));
    /* A regular file in its place would be mounted as it is. */
    assert_int_equal(alq_file_write_atomic(at(w, "dev/nvidia7"), "", 0, 0644, 0, NULL), 0);
    assert_int_equal(alq_cdi_spec_build(&w->cfg, files, &library, &claim, &spec, &err), ALQ_EINVAL);
    claim.share_count = 0;
    assert_int_equal(alq_cdi_spec_build(&w->cfg, files, &library, &claim, &spec, &err), ALQ_EINVAL);
    alq_driver_files_free(files);
}

static void build_with_extras_adds_them_and_refuses_bad_ones(void **state)
{
    struct world *w = *state;
    char rw[] = "rw", bind[] = "bind", host[] = "/run/simgpu", inside[] = "/run/simgpu";
    char cuda[] = "/" LIB_DIR "/libcuda.so.1", env[] = "SIMGPU_GROUP=x";
    char *options[] = {rw, bind, NULL}, *extra_env[] = {env, NULL};
    struct alq_extra_mount extras[] = {{host, inside, options}, {host, cuda, options}};
    struct alq_share_spec shares[] = {share(0, "GPU-a", 0, 4096, 30)};
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    w->cfg.extra_mounts = extras;
    w->cfg.extra_mount_count = 2;
    w->cfg.extra_env = extra_env;
    w->cfg.extra_env_count = 1;
    json_t *spec = build(w, shares, 1);
    const json_t *common = json_object_get(spec, "containerEdits");
    assert_string_equal(env_of(common, "SIMGPU_GROUP"), "x");
    assert_non_null(mount_at(common, "/run/simgpu"));
    assert_string_equal(alq_json_str(mount_at(common, cuda), "hostPath"), "/run/simgpu");
    json_decref(spec);
    env[6] = '\0';
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_claim_spec claim = {.uid = UID, .share_count = 1, .shares = shares};
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    assert_int_equal(
        alq_cdi_spec_build(&w->cfg, files, &(struct alq_library){0}, &claim, &spec, &err),
        ALQ_EINVAL);
    assert_non_null(strstr(err.text, "SIMGPU"));
    alq_driver_files_free(files);
    w->cfg.extra_mounts = NULL;
    w->cfg.extra_env = NULL;
    w->cfg.extra_mount_count = w->cfg.extra_env_count = 0;
}

static void id_and_path_are_as_container_runtimes_expect(void **state)
{
    struct world *w = *state;
    char id[ALQ_CDI_ID_BYTES];
    alq_cdi_id(&w->cfg, UID "-0", id);
    assert_string_equal(id, "k8s.hami-core-gpu.project-hami.io/claim=" UID "-0");
    alq_auto_free char *path = alq_cdi_path(&w->cfg, UID);
    assert_string_equal(path, "/var/run/cdi/k8s.hami-core-gpu.project-hami.io-claim_" UID ".json");
}

/* ---- what stands in the common part ---------------------------------------------------------- */

/* A spec of one share of GPU 3, from a world that is laid out; hook "": none is installed. */
static json_t *build_with_hook(struct world *w, const char *hook)
{
    struct alq_share_spec shares[] = {share(0, "GPU-a", 3, 4096, 30)};
    struct alq_claim_spec claim = {.uid = UID, .share_count = 1, .shares = shares};
    struct alq_library library = {.library_path = "/x/libvgpu-0.so",
                                  .preload_path = "/x/ld.so.preload-0"};
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    json_t *spec = NULL;
    snprintf(library.hook_path, sizeof(library.hook_path), "%s", hook);
    if (alq_driver_scan(&w->cfg, &files, &err) ||
        alq_cdi_spec_build(&w->cfg, files, &library, &claim, &spec, &err))
        fail_msg("%s", err.text);
    alq_driver_files_free(files);
    return spec;
}

static void choose(struct world *w, const char *word)
{
    char first[] = "default";
    alq_auto_free char *second = strdup(word);
    char *words[] = {first, second, NULL};
    assert_int_equal(alq_inject_parse(words, &w->cfg.inject_sets, NULL), 0);
}

/* The arguments of the hook with that command, joined by spaces; NULL: there is none. */
static const char *hook_args(const json_t *edits, const char *command)
{
    static char text[512];
    size_t i, j;
    json_t *hook, *arg;
    json_array_foreach (json_object_get(edits, "hooks"), i, hook) {
        const json_t *args = json_object_get(hook, "args");
        if (strcmp(json_string_value(json_array_get(args, 1)), command) != 0)
            continue;
        assert_string_equal(alq_json_str(hook, "hookName"), "createContainer");
        assert_string_equal(alq_json_str(hook, "path"), "/x/aliquot-hook-0");
        assert_string_equal(json_string_value(json_array_get(args, 0)), "aliquot-hook");
        text[0] = '\0';
        json_array_foreach (args, j, arg) {
            size_t used = strlen(text);
            if (j >= 2)
                snprintf(text + used, sizeof(text) - used, "%s%s", used ? " " : "",
                         json_string_value(arg));
        }
        return text;
    }
    return NULL;
}

static void build_with_a_hook_has_it_do_links_cache_and_lock(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    put_text(w, "proc/driver/nvidia", "params", "ModifyDeviceFiles: 1\n");
    alq_auto_json json_t *spec = build_with_hook(w, "/x/aliquot-hook-0");
    const json_t *common = json_object_get(spec, "containerEdits");
    assert_string_equal(hook_args(common, "create-symlinks"),
                        "--link libcuda.so.1::/" LIB_DIR "/libcuda.so");
    assert_string_equal(hook_args(common, "update-ldcache"), "--folder /" LIB_DIR);
    assert_string_equal(hook_args(common, "disable-device-node-modification"), "");
    assert_null(mount_at(common, "/" LIB_DIR "/libcuda.so"));
    static const char *const rows[][2] = {{"-symlinks", "create-symlinks"},
                                          {"-ldcache", "update-ldcache"},
                                          {"-node-lock", "disable-device-node-modification"}};
    for (size_t i = 0; i < 3; i++) {
        choose(w, rows[i][0]);
        alq_auto_json json_t *less = build_with_hook(w, "/x/aliquot-hook-0");
        common = json_object_get(less, "containerEdits");
        assert_null(hook_args(common, rows[i][1]));
        assert_int_equal(json_array_size(json_object_get(common, "hooks")), 2);
        assert_int_equal(mount_at(common, "/" LIB_DIR "/libcuda.so") != NULL, i == 0);
    }
}

static void build_without_a_hook_mounts_files_where_links_would_be(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    alq_auto_json json_t *spec = build_with_hook(w, "");
    const json_t *common = json_object_get(spec, "containerEdits");
    assert_null(json_object_get(common, "hooks"));
    assert_string_equal(alq_json_str(mount_at(common, "/" LIB_DIR "/libcuda.so"), "hostPath"),
                        at(w, LIB_DIR "/libcuda.so.550.163.01"));
}

static void build_below_a_host_root_names_paths_as_the_host_knows_them(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    w->cfg.host_root = strdup(w->root);
    alq_auto_json json_t *spec = build_with_hook(w, "");
    const json_t *common = json_object_get(spec, "containerEdits");
    assert_string_equal(alq_json_str(mount_at(common, "/" LIB_DIR "/libcuda.so.1"), "hostPath"),
                        "/" LIB_DIR "/libcuda.so.550.163.01");
    assert_string_equal(alq_json_str(mount_at(common, "/" LIB_DIR "/libcuda.so"), "hostPath"),
                        "/" LIB_DIR "/libcuda.so.550.163.01");
}

static void build_leaves_the_toolkits_variable_out_when_told_so(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    choose(w, "-toolkit-void");
    alq_auto_json json_t *spec = build_with_hook(w, "");
    assert_null(json_object_get(json_object_get(spec, "containerEdits"), "env"));
}

/* Sockets are connected to: writable, and nothing in them is run. */
static void build_mounts_sockets_writable_and_noexec(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    put_text(w, "run/nvidia-persistenced", "socket", "");
    alq_auto_json json_t *spec = build_with_hook(w, "");
    const json_t *options = json_object_get(
        mount_at(json_object_get(spec, "containerEdits"), "/run/nvidia-persistenced/socket"),
        "options");
    alq_auto_free char *text = json_dumps(options, JSON_COMPACT);
    assert_string_equal(text, "[\"nosuid\",\"nodev\",\"noexec\",\"rbind\",\"rprivate\"]");
}

/* A node that not everybody may use keeps its mode and group; with `groups` the container's user is
 * of that group, which needs a newer spec. */
static void build_keeps_mode_and_group_of_nodes(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    assert_int_equal(unlink(at(w, "dev/nvidia3")), 0);
    if (mknod(at(w, "dev/nvidia3"), S_IFCHR | 0660, makedev(195, 3)) ||
        chown(at(w, "dev/nvidia3"), 0, 44) || chmod(at(w, "dev/nvidia3"), 0660)) {
        print_message("[  REASON  ] no node can be made here\n");
        skip();
    }
    alq_auto_json json_t *spec = build_with_hook(w, "");
    const json_t *edits = edits_of(spec, 0);
    const json_t *node = json_array_get(json_object_get(edits, "deviceNodes"), 0);
    assert_int_equal(json_integer_value(json_object_get(node, "fileMode")), 0660);
    assert_int_equal(json_integer_value(json_object_get(node, "gid")), 44);
    assert_null(json_object_get(node, "uid"));
    assert_null(json_object_get(edits, "additionalGids"));
    assert_string_equal(alq_json_str(spec, "cdiVersion"), "0.5.0");
    choose(w, "groups");
    alq_auto_json json_t *newer = build_with_hook(w, "");
    edits = edits_of(newer, 0);
    assert_int_equal(
        json_integer_value(json_array_get(json_object_get(edits, "additionalGids"), 0)), 44);
    assert_string_equal(alq_json_str(newer, "cdiVersion"), "0.7.0");
}

static void build_gives_a_share_the_nodes_of_its_gpu(void **state)
{
    struct world *w = *state;
    put_driver(w, LIB_DIR, "550.163.01");
    put_nodes(w);
    put_text(w, "proc/driver/nvidia/gpus/0000:65:00.0", "information", "Device Minor: 3\n");
    put_text(w, "sys/bus/pci/devices/0000:65:00.0/drm/renderD129", "dev", "226:129\n");
    put_text(w, "proc/driver/nvidia/capabilities/gpu3/mig/gi1", "access",
             "DeviceFileMinor: 12\nDeviceFileMode: 292\n");
    assert_int_equal(alq_file_mkdirs(at(w, "dev/dri"), 0755, NULL), 0);
    assert_int_equal(symlink("/dev/null", at(w, "dev/dri/renderD129")), 0);
    assert_int_equal(alq_file_mkdirs(at(w, "dev/nvidia-caps"), 0755, NULL), 0);
    assert_int_equal(symlink("/dev/null", at(w, "dev/nvidia-caps/nvidia-cap12")), 0);
    alq_auto_json json_t *spec = build_with_hook(w, "/x/aliquot-hook-0");
    const json_t *edits = edits_of(spec, 0), *nodes = json_object_get(edits, "deviceNodes");
    assert_int_equal(json_array_size(nodes), 3);
    assert_string_equal(alq_json_str(json_array_get(nodes, 1), "path"), "/dev/dri/renderD129");
    assert_string_equal(alq_json_str(json_array_get(nodes, 2), "path"),
                        "/dev/nvidia-caps/nvidia-cap12");
    assert_string_equal(hook_args(edits, "create-symlinks"),
                        "--link ../renderD129::/dev/dri/by-path/pci-0000:65:00.0-render");
    /* A capability that is missing is no spec for this GPU, and for others it is. */
    assert_int_equal(unlink(at(w, "dev/nvidia-caps/nvidia-cap12")), 0);
    struct alq_driver_files *files = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_library library = {0};
    json_t *none = NULL;
    struct alq_share_spec shares[] = {share(0, "GPU-a", 3, 4096, 30)};
    struct alq_claim_spec claim = {.uid = UID, .share_count = 1, .shares = shares};
    assert_int_equal(alq_driver_scan(&w->cfg, &files, NULL), 0);
    assert_int_equal(alq_cdi_spec_build(&w->cfg, files, &library, &claim, &none, &err), ALQ_ENOENT);
    assert_non_null(strstr(err.text, "nvidia-cap12"));
    assert_null(none);
    shares[0].gpu_minor = 0;
    assert_int_equal(alq_cdi_spec_build(&w->cfg, files, &library, &claim, &none, &err), 0);
    json_decref(none);
    alq_driver_files_free(files);
}

/* ---- validator ------------------------------------------------------------------------------ */

static void validate_takes_recorded_specs(void **state)
{
    static const char *const names[] = {"cdi/single-gpu-0-1.34.json", "cdi/two-shares-1.34.json"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_json json_t *spec = conformance_json(names[i]);
        if (alq_cdi_validate(spec, &err))
            fail_msg("%s: %s", names[i], err.text);
    }
}

/* Each row puts value (JSON) at path of a good spec; the error must hold the words. */
static void validate_refuses_every_mistake(void **state)
{
    static const char *const rows[][3] = {
        {"cdiVersion", "\"0.6.0\"", "lowest"},
        {"cdiVersion", "\"0.3.0\"", "lowest"},
        {"cdiVersion", "5", "lowest"},
        {"kind", "\"k8s.x\"", "kind"},
        {"kind", "\"k/claim\"", "kind"},
        {"kind", "\"vendor/c\"", "kind"},
        {"kind", "\"1vendor/claim\"", "kind"},
        {"kind", "\"vendor./claim\"", "kind"},
        {"kind", "\"ven dor/claim\"", "kind"},
        {"devices", "[]", "devices"},
        {"devices", "{}", "devices"},
        {"more", "1", "more"},
        {"annotations", "{}", "annotations"},
        {"containerEdits", "{}", "empty"},
        {"containerEdits", "[]", "object"},
        {"d.name", "\"\"", "name"},
        {"d.name", "\"-a\"", "name"},
        {"d.name", "\"a-\"", "name"},
        {"d.name", "\"a/b\"", "name"},
        {"d.more", "1", "more"},
        {"d.containerEdits", "{}", "empty"},
        {"d.containerEdits", "null", "object"},
        {"d.containerEdits.more", "1", "more"},
        {"d.containerEdits.env", "[]", "env"},
        {"d.containerEdits.env", "[\"A\"]", "NAME=value"},
        {"d.containerEdits.env", "[\"=A\"]", "NAME=value"},
        {"d.containerEdits.env", "[\"A=1\",\"B=1\",\"A=2\"]", "twice"},
        {"d.containerEdits.env", "[1]", "word"},
        {"d.containerEdits.deviceNodes", "[]", "deviceNodes"},
        {"d.containerEdits.deviceNodes", "[{\"hostPath\":\"/dev/a\"}]", "path"},
        {"d.containerEdits.deviceNodes", "[{\"path\":\"dev/a\"}]", "path"},
        {"d.containerEdits.deviceNodes", "[{\"path\":\"/dev//a\"}]", "path"},
        {"d.containerEdits.deviceNodes", "[{\"path\":\"/dev/../a\"}]", "path"},
        {"d.containerEdits.deviceNodes", "[{\"path\":\"/dev/a/\"}]", "path"},
        {"d.containerEdits.deviceNodes", "[{\"path\":\"/a\"},{\"path\":\"/a\"}]", "twice"},
        {"d.containerEdits.deviceNodes", "[{\"path\":\"/a\",\"type\":\"x\"}]", "type"},
        {"d.containerEdits.deviceNodes", "[{\"path\":\"/a\",\"permissions\":\"x\"}]",
         "permissions"},
        {"d.containerEdits.deviceNodes", "[{\"path\":\"/a\",\"major\":\"1\"}]", "major"},
        {"d.containerEdits.deviceNodes", "[{\"path\":\"/a\",\"more\":1}]", "more"},
        {"d.containerEdits.mounts", "[{\"hostPath\":\"/a\"}]", "containerPath"},
        {"d.containerEdits.mounts", "[{\"containerPath\":\"/a\"}]", "hostPath"},
        {"d.containerEdits.mounts",
         "[{\"hostPath\":\"/a\",\"containerPath\":\"/b\"},{\"hostPath\":\"/"
         "c\",\"containerPath\":\"/b\"}]",
         "second time"},
        {"d.containerEdits.mounts",
         "[{\"hostPath\":\"/a\",\"containerPath\":\"/b\",\"options\":[]}]", "list"},
        {"d.containerEdits.hooks", "[{\"hookName\":\"never\",\"path\":\"/a\"}]", "hookName"},
        {"d.containerEdits.hooks", "[{\"hookName\":\"prestart\"}]", "path"},
        {"d.containerEdits.hooks", "[{\"hookName\":\"prestart\",\"path\":\"/a\",\"timeout\":0}]",
         "timeout"},
        {"d.containerEdits.additionalGids", "[]", "additionalGids"},
        {"d.containerEdits.additionalGids", "[0]", "group"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_json json_t *spec = conformance_json("cdi/single-gpu-0-1.34.json");
        json_t *object = spec;
        char path[128], *key = path, *dot;
        snprintf(path, sizeof(path), "%s", rows[i][0]);
        for (; (dot = strchr(key, '.')); key = dot + 1) {
            *dot = '\0';
            object = strcmp(key, "d") ? json_object_get(object, key)
                                      : json_array_get(json_object_get(object, "devices"), 0);
        }
        json_object_set_new(object, key, json_loads(rows[i][1], JSON_DECODE_ANY, NULL));
        if (alq_cdi_validate(spec, &err) != ALQ_EINVAL)
            fail_msg("%s = %s was taken", rows[i][0], rows[i][1]);
        if (!strstr(err.text, rows[i][2]))
            fail_msg("%s = %s: %s", rows[i][0], rows[i][1], err.text);
    }
    alq_auto_json json_t *spec = conformance_json("cdi/two-shares-1.34.json");
    json_t *devices = json_object_get(spec, "devices");
    json_array_append(devices, json_array_get(devices, 0));
    assert_int_equal(alq_cdi_validate(spec, NULL), ALQ_EINVAL);
}

static void lowest_version_follows_the_content(void **state)
{
    static const char *const rows[][2] = {
        {"{\"kind\":\"aa/bb\",\"devices\":[{\"name\":\"a\"}]}", "0.3.0"},
        {"{\"kind\":\"aa/bb\",\"containerEdits\":{\"mounts\":[{\"type\":\"bind\"}]}}", "0.4.0"},
        {"{\"kind\":\"aa/bb\",\"devices\":[{\"name\":\"1a\"}]}", "0.5.0"},
        {"{\"kind\":\"aa/bb\",\"containerEdits\":{\"deviceNodes\":[{\"hostPath\":\"/a\"}]}}",
         "0.5.0"},
        {"{\"kind\":\"a.a/b.b\"}", "0.6.0"},
        {"{\"kind\":\"a.a/bb\"}", "0.3.0"},
        {"{\"kind\":\"aa/bb\",\"containerEdits\":{\"additionalGids\":[1]}}", "0.7.0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        alq_auto_json json_t *spec = json_loads(rows[i][0], 0, NULL);
        assert_string_equal(alq_cdi_lowest_version(spec), rows[i][1]);
    }
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        ROW(build_gives_what_a_container_needs),
        ROW(build_numbers_devices_in_nvml_order),
        ROW(build_two_shares_of_one_gpu_are_two_devices),
        ROW(build_for_admin_access_sets_no_limit),
        ROW(build_for_a_whole_gpu_passes_it_through_when_told_so),
        ROW(build_without_the_gpus_node_is_no_spec),
        ROW(build_with_extras_adds_them_and_refuses_bad_ones),
        ROW(id_and_path_are_as_container_runtimes_expect),
        ROW(build_with_a_hook_has_it_do_links_cache_and_lock),
        ROW(build_without_a_hook_mounts_files_where_links_would_be),
        ROW(build_below_a_host_root_names_paths_as_the_host_knows_them),
        ROW(build_leaves_the_toolkits_variable_out_when_told_so),
        ROW(build_mounts_sockets_writable_and_noexec),
        ROW(build_keeps_mode_and_group_of_nodes),
        ROW(build_gives_a_share_the_nodes_of_its_gpu),
        cmocka_unit_test(validate_takes_recorded_specs),
        cmocka_unit_test(validate_refuses_every_mistake),
        cmocka_unit_test(lowest_version_follows_the_content),
    };
#undef ROW
    return cmocka_run_group_tests(tests, NULL, NULL);
}
