/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings as one table: a row gives the flag, its kind, its default and its help; the YAML key is
 * derived from the flag. A file is decoded strictly, so that a misspelt key is an error and not a
 * silent default. Runs before the loop; reads the file named by --config and nothing else.
 */
#include "daemon/config.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"
#include "daemon/yaml.h"

#define FILE_MAX_BYTES (1024 * 1024)
#define LIST_MAX 64

enum kind { KIND_TEXT, KIND_PATH, KIND_BYTES, KIND_LEVEL, KIND_FORMAT, KIND_BOOL, KIND_WHOLE_GPU };

struct setting {
    const char *flag; /* without "--" */
    enum kind kind;
    size_t offset;
    const char *preset; /* as if it had been given; NULL: none */
    const char *help;
};

#define ROW(flag, kind, field, preset, help)                                                       \
    {                                                                                              \
        flag, kind, offsetof(struct alq_config, field), preset, help                               \
    }

static const struct setting settings[] = {
    ROW("node-name", KIND_TEXT, node_name, NULL, "this node (default: $NODE_NAME, else host name)"),
    ROW("driver-name", KIND_TEXT, driver_name, ALQ_DRIVER_NAME_DEFAULT,
        "driver, DeviceClass and attribute domain"),
    ROW("kubeconfig", KIND_PATH, kubeconfig, NULL,
        "how to reach the API server (default: $KUBECONFIG, else the pod's service account)"),
    ROW("kubelet-plugins-dir", KIND_PATH, kubelet_plugins_dir, "/var/lib/kubelet/plugins",
        "our DRA socket is <dir>/<driver>/dra[-<pod uid>].sock"),
    ROW("kubelet-registry-dir", KIND_PATH, kubelet_registry_dir,
        "/var/lib/kubelet/plugins_registry",
        "our registration socket is <dir>/<driver>[-<pod uid>]-reg.sock"),
    ROW("pod-uid", KIND_TEXT, pod_uid, NULL,
        "pod of this instance (default: $POD_UID): another one may take its place without a gap"),
    ROW("cdi-dir", KIND_PATH, cdi_dir, "/var/run/cdi", "CDI specs for the container runtime"),
    ROW("state-dir", KIND_PATH, state_dir, "/var/lib/aliquot", "records of prepared claims"),
    ROW("run-dir", KIND_PATH, run_dir, "/run/aliquot", "share directories, on tmpfs"),
    ROW("driver-root", KIND_PATH, driver_root, "/", "root of NVIDIA's driver installation"),
    ROW("dev-root", KIND_PATH, dev_root, NULL,
        "root of its dev/ (default: driver root if dev/nvidiactl is there, else /)"),
    ROW("library", KIND_PATH, library, NULL,
        "libvgpu.so to install and inject (default: none, limits are not enforced)"),
    ROW("host-lib-dir", KIND_PATH, host_lib_dir, "/usr/local/lib/aliquot",
        "where the library is installed, by content hash"),
    ROW("reserve", KIND_BYTES, reserve_bytes, "0", "memory of each GPU that is never promised"),
    ROW("context-estimate", KIND_BYTES, context_estimate_bytes, "256Mi",
        "memory reserved in a share before a CUDA context is made"),
    ROW("whole-gpu", KIND_WHOLE_GPU, whole_gpu, "limit",
        "limit or passthrough: a claim of a whole GPU gets no library and no share"),
    ROW("log-level", KIND_LEVEL, log_level, "info", "error, warn, info or debug"),
    ROW("log-format", KIND_FORMAT, log_format, "text", "text or json"),
    ROW("allow-non-tmpfs", KIND_BOOL, is_non_tmpfs_allowed, "false",
        "accept a run dir on a disk (tests; it costs the containers page faults)"),
};
#define SETTING_COUNT (sizeof(settings) / sizeof(settings[0]))

static char **text_field(struct alq_config *cfg, const struct setting *s)
{
    return (char **)(void *)((char *)cfg + s->offset);
}

static void *field(struct alq_config *cfg, const struct setting *s)
{
    return (char *)cfg + s->offset;
}

/* "kubelet-plugins-dir" -> "kubeletPluginsDir" */
static void yaml_key(const char *flag, char *key, size_t size)
{
    size_t n = 0;
    for (const char *p = flag; *p && n + 1 < size; p++) {
        if (*p == '-' && p[1])
            key[n++] = (char)toupper((unsigned char)*++p);
        else
            key[n++] = *p;
    }
    key[n] = '\0';
}

static int set_copy(char **dst, const char *text, struct alq_err *err)
{
    char *copy = strdup(text);
    if (!copy)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    free(*dst);
    *dst = copy;
    return 0;
}

static int set_path(char **dst, const char *text, const char *name, struct alq_err *err)
{
    if (text[0] != '/')
        return alq_err_set(err, ALQ_EINVAL, "%s: \"%s\" is not an absolute path", name, text);
    int rc = set_copy(dst, text, err);
    if (rc)
        return rc;
    for (size_t n = strlen(*dst); n > 1 && (*dst)[n - 1] == '/'; n--)
        (*dst)[n - 1] = '\0';
    return 0;
}

static int set_value(struct alq_config *cfg, const struct setting *s, const char *text,
                     const char *name, struct alq_err *err)
{
    int rc = 0;
    switch (s->kind) {
    case KIND_TEXT:
        if (!*text)
            return alq_err_set(err, ALQ_EINVAL, "%s: empty", name);
        return set_copy(text_field(cfg, s), text, err);
    case KIND_PATH:
        return set_path(text_field(cfg, s), text, name, err);
    case KIND_BYTES:
        rc = alq_bytes_parse(text, 0, field(cfg, s), err);
        break;
    case KIND_LEVEL:
        rc = alq_log_level_parse(text, field(cfg, s), err);
        break;
    case KIND_FORMAT:
        rc = alq_log_format_parse(text, field(cfg, s), err);
        break;
    case KIND_BOOL:
        if (!strcmp(text, "true"))
            *(int *)field(cfg, s) = 1;
        else if (!strcmp(text, "false"))
            *(int *)field(cfg, s) = 0;
        else
            return alq_err_set(err, ALQ_EINVAL, "%s: \"%s\" is neither true nor false", name, text);
        return 0;
    case KIND_WHOLE_GPU:
        if (!strcmp(text, "limit"))
            *(enum alq_whole_gpu *)field(cfg, s) = ALQ_WHOLE_GPU_LIMIT;
        else if (!strcmp(text, "passthrough"))
            *(enum alq_whole_gpu *)field(cfg, s) = ALQ_WHOLE_GPU_PASSTHROUGH;
        else
            return alq_err_set(err, ALQ_EINVAL, "%s: \"%s\" is neither limit nor passthrough", name,
                               text);
        return 0;
    }
    return rc ? alq_err_wrap(err, "%s", name) : 0;
}

static int set_json(struct alq_config *cfg, const struct setting *s, const json_t *value,
                    const char *name, struct alq_err *err)
{
    char number[32];
    if (json_is_string(value))
        return set_value(cfg, s, json_string_value(value), name, err);
    if (json_is_boolean(value) && s->kind == KIND_BOOL)
        return set_value(cfg, s, json_is_true(value) ? "true" : "false", name, err);
    if (json_is_integer(value) && s->kind == KIND_BYTES) {
        snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return set_value(cfg, s, number, name, err);
    }
    return alq_err_set(err, ALQ_EINVAL, "%s: %s", name,
                       s->kind == KIND_BOOL ? "neither true nor false" : "not a string");
}

static int need_path(const json_t *object, const char *key, const char *what, char **dst,
                     struct alq_err *err)
{
    const json_t *value = json_object_get(object, key);
    char name[64];
    snprintf(name, sizeof(name), "%s.%s", what, key);
    if (!json_is_string(value))
        return alq_err_set(err, ALQ_EINVAL, "%s: missing or not a string", name);
    return set_path(dst, json_string_value(value), name, err);
}

/* NULL-terminated copy of a list of strings. */
static int copy_texts(const json_t *array, const char *what, char ***texts, struct alq_err *err)
{
    if (!json_is_array(array) || json_array_size(array) > LIST_MAX)
        return alq_err_set(err, ALQ_EINVAL, "%s: not a list of at most %d strings", what, LIST_MAX);
    *texts = calloc(json_array_size(array) + 1, sizeof(char *));
    if (!*texts)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    size_t i;
    json_t *item;
    json_array_foreach (array, i, item) {
        if (!json_is_string(item))
            return alq_err_set(err, ALQ_EINVAL, "%s[%zu]: not a string", what, i);
        int rc = set_copy(&(*texts)[i], json_string_value(item), err);
        if (rc)
            return rc;
    }
    return 0;
}

static int load_mounts(struct alq_config *cfg, const json_t *array, struct alq_err *err)
{
    static const char *const keys[] = {"hostPath", "containerPath", "options", NULL};
    if (!json_is_array(array) || json_array_size(array) > LIST_MAX)
        return alq_err_set(err, ALQ_EINVAL, "extraMounts: not a list of at most %d mounts",
                           LIST_MAX);
    cfg->extra_mounts = calloc(json_array_size(array) + 1, sizeof(*cfg->extra_mounts));
    if (!cfg->extra_mounts)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    size_t i;
    json_t *item;
    json_array_foreach (array, i, item) {
        struct alq_extra_mount *mount = &cfg->extra_mounts[cfg->extra_mount_count++];
        char what[48];
        snprintf(what, sizeof(what), "extraMounts[%zu]", i);
        if (!json_is_object(item))
            return alq_err_set(err, ALQ_EINVAL, "%s: not a mapping", what);
        int rc = alq_json_only_keys(item, keys, what, err);
        if (!rc)
            rc = need_path(item, "hostPath", what, &mount->host_path, err);
        if (!rc)
            rc = need_path(item, "containerPath", what, &mount->container_path, err);
        const json_t *options = json_object_get(item, "options");
        alq_auto_json json_t *preset = NULL;
        if (!options || (json_is_array(options) && !json_array_size(options)))
            options = preset = json_pack("[ssss]", "rw", "nosuid", "nodev", "bind");
        if (!rc)
            rc = copy_texts(options, "extraMounts options", &mount->options, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int load_env(struct alq_config *cfg, const json_t *array, struct alq_err *err)
{
    int rc = copy_texts(array, "extraEnv", &cfg->extra_env, err);
    if (rc)
        return rc;
    for (char **p = cfg->extra_env; *p; p++, cfg->extra_env_count++) {
        const char *equals = strchr(*p, '=');
        if (!equals || equals == *p)
            return alq_err_set(err, ALQ_EINVAL, "extraEnv: \"%s\" is not NAME=VALUE", *p);
    }
    return 0;
}

static int load_file(struct alq_config *cfg, const char *path, struct alq_err *err)
{
    alq_auto_free char *data = NULL;
    size_t len = 0;
    int rc = alq_file_read(path, FILE_MAX_BYTES, &data, &len, err);
    if (rc)
        return rc;
    alq_auto_json json_t *root = NULL;
    rc = alq_yaml_parse(data, len, path, &root, err);
    if (rc)
        return rc;
    if (!json_is_object(root))
        return alq_err_set(err, ALQ_EINVAL, "%s: not a mapping of settings", path);
    const char *key;
    json_t *value;
    json_object_foreach (root, key, value) {
        const struct setting *found = NULL;
        for (size_t i = 0; i < SETTING_COUNT && !found; i++) {
            char name[64];
            yaml_key(settings[i].flag, name, sizeof(name));
            if (!strcmp(name, key))
                found = &settings[i];
        }
        if (found)
            rc = set_json(cfg, found, value, key, err);
        else if (!strcmp(key, "extraMounts"))
            rc = load_mounts(cfg, value, err);
        else if (!strcmp(key, "extraEnv"))
            rc = load_env(cfg, value, err);
        else
            rc = alq_err_set(err, ALQ_EINVAL, "unknown key \"%s\"", key);
        if (rc)
            return alq_err_wrap(err, "%s", path);
    }
    return 0;
}

/* Splits "--flag=value" or "--flag" "value". *i is moved past what was used. */
static int next_flag(int argc, char **argv, int *i, char *flag, size_t size, const char **value,
                     struct alq_err *err)
{
    const char *arg = argv[(*i)++];
    if (strncmp(arg, "--", 2) != 0)
        return alq_err_set(err, ALQ_EINVAL, "\"%s\" is not a flag; see --help", arg);
    const char *equals = strchr(arg, '=');
    size_t len = equals ? (size_t)(equals - arg) - 2 : strlen(arg) - 2;
    if (len >= size)
        return alq_err_set(err, ALQ_EINVAL, "unknown flag %s; see --help", arg);
    memcpy(flag, arg + 2, len);
    flag[len] = '\0';
    *value = equals ? equals + 1 : NULL;
    if (!*value && *i < argc && strncmp(argv[*i], "--", 2) != 0)
        *value = argv[(*i)++];
    return 0;
}

static const struct setting *find_flag(const char *flag)
{
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (!strcmp(settings[i].flag, flag))
            return &settings[i];
    return NULL;
}

/* Pass 1 (cfg NULL) finds --config, --help and --version and checks the names; pass 2 sets. */
static int scan_flags(struct alq_config *cfg, int argc, char **argv, const char **file,
                      enum alq_config_action *action, struct alq_err *err)
{
    for (int i = 1; i < argc;) {
        char flag[64], name[72];
        const char *value = NULL;
        int rc = next_flag(argc, argv, &i, flag, sizeof(flag), &value, err);
        if (rc)
            return rc;
        snprintf(name, sizeof(name), "--%s", flag);
        const struct setting *s = find_flag(flag);
        if (!strcmp(flag, "help") || !strcmp(flag, "version")) {
            *action = flag[0] == 'h' ? ALQ_CONFIG_HELP : ALQ_CONFIG_VERSION;
            continue;
        }
        if (s && s->kind == KIND_BOOL && !value)
            value = "true";
        if (!s && strcmp(flag, "config") != 0)
            return alq_err_set(err, ALQ_EINVAL, "unknown flag %s; see --help", name);
        if (!value)
            return alq_err_set(err, ALQ_EINVAL, "%s needs a value", name);
        if (!s)
            *file = value;
        else if (cfg && (rc = set_value(cfg, s, value, name, err)))
            return rc;
    }
    return 0;
}

static int set_presets(struct alq_config *cfg, struct alq_err *err)
{
    int rc = 0;
    char host[256] = "";
    const char *node = getenv("NODE_NAME");
    const char *kubeconfig = getenv("KUBECONFIG");
    const char *pod_uid = getenv("POD_UID");
    for (size_t i = 0; i < SETTING_COUNT && !rc; i++)
        if (settings[i].preset)
            rc = set_value(cfg, &settings[i], settings[i].preset, settings[i].flag, err);
    if (!rc && (!node || !*node) && gethostname(host, sizeof(host) - 1) == 0)
        node = host;
    if (!rc && node && *node)
        rc = set_copy(&cfg->node_name, node, err);
    if (!rc && pod_uid && *pod_uid)
        rc = set_copy(&cfg->pod_uid, pod_uid, err);
    if (!rc && kubeconfig && *kubeconfig)
        rc = set_path(&cfg->kubeconfig, kubeconfig, "$KUBECONFIG", err);
    return rc;
}

static int is_dns_subdomain(const char *text, size_t max)
{
    char before = '.';
    for (const char *p = text; *p; before = *p++) {
        unsigned char c = (unsigned char)*p;
        if (islower(c) || isdigit(c))
            continue;
        if ((c != '-' && c != '.') || before == '.' || (c == '.' && before == '-'))
            return 0;
    }
    return before != '.' && before != '-' && strlen(text) <= max;
}

static int check(struct alq_config *cfg, struct alq_err *err)
{
    if (!cfg->node_name || !is_dns_subdomain(cfg->node_name, 253))
        return alq_err_set(err, ALQ_EINVAL,
                           "--node-name: \"%s\" is not the name of a node (lower-case letters, "
                           "digits, '-' and '.')",
                           cfg->node_name ? cfg->node_name : "");
    /* A CDI vendor of one letter makes containerd and podman panic; ours is "k8s.<driver>". */
    if (!is_dns_subdomain(cfg->driver_name, 63))
        return alq_err_set(err, ALQ_EINVAL,
                           "--driver-name: \"%s\" is not a DNS subdomain of at most 63 bytes",
                           cfg->driver_name);
    if (cfg->pod_uid &&
        (strlen(cfg->pod_uid) > 63 ||
         cfg->pod_uid[strspn(cfg->pod_uid, "0123456789abcdefghijklmnopqrstuvwxyz-")]))
        return alq_err_set(err, ALQ_EINVAL,
                           "--pod-uid: \"%s\" is not one (lower-case letters, digits and '-', at "
                           "most 63)",
                           cfg->pod_uid);
    if (!cfg->dev_root) {
        alq_auto_free char *node = alq_str_printf("%s/dev/nvidiactl", cfg->driver_root);
        if (!node)
            return alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return set_copy(&cfg->dev_root, access(node, F_OK) == 0 ? cfg->driver_root : "/", err);
    }
    return 0;
}

int alq_config_load(struct alq_config *cfg, int argc, char **argv, enum alq_config_action *action,
                    struct alq_err *err)
{
    const char *file = NULL;
    memset(cfg, 0, sizeof(*cfg));
    *action = ALQ_CONFIG_RUN;
    int rc = scan_flags(NULL, argc, argv, &file, action, err);
    if (rc || *action != ALQ_CONFIG_RUN)
        return rc;
    rc = set_presets(cfg, err);
    if (!rc && file)
        rc = load_file(cfg, file, err);
    if (!rc)
        rc = scan_flags(cfg, argc, argv, &file, action, err);
    return rc ? rc : check(cfg, err);
}

void alq_config_free(struct alq_config *cfg)
{
    for (size_t i = 0; i < SETTING_COUNT; i++)
        if (settings[i].kind == KIND_TEXT || settings[i].kind == KIND_PATH)
            free(*text_field(cfg, &settings[i]));
    for (size_t i = 0; i < cfg->extra_mount_count; i++) {
        struct alq_extra_mount *mount = &cfg->extra_mounts[i];
        free(mount->host_path);
        free(mount->container_path);
        for (char **p = mount->options; p && *p; p++)
            free(*p);
        free(mount->options);
    }
    free(cfg->extra_mounts);
    for (char **p = cfg->extra_env; p && *p; p++)
        free(*p);
    free(cfg->extra_env);
    memset(cfg, 0, sizeof(*cfg));
}

void alq_config_help(FILE *out)
{
    fputs("usage: aliquotd [--config FILE.yaml] [flags]\n\n"
          "Shares this node's NVIDIA GPUs between containers: publishes them, prepares the\n"
          "ResourceClaims of pods and injects each share through CDI.\n\n"
          "  --config FILE                the flags below as YAML keys (nodeName: ...), also\n"
          "                               extraMounts and extraEnv; flags win\n",
          out);
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        const struct setting *s = &settings[i];
        fprintf(out, "  --%-26s %s", s->flag, s->help);
        if (s->preset && s->kind != KIND_BOOL)
            fprintf(out, " [%s]", s->preset);
        fputc('\n', out);
    }
    fputs("  --help, --version\n", out);
}
