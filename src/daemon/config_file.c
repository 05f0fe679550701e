/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The YAML file of settings, see config_file.h. Decoded strictly, so that a misspelt key is an
 * error and not a silent default.
 */
#include "daemon/config_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "daemon/settings.h"
#include "daemon/yaml.h"

#define FILE_MAX_BYTES (1024 * 1024)

static int need_path(const json_t *object, const char *key, const char *what, char **dst,
                     struct alq_err *err)
{
    const json_t *value = json_object_get(object, key);
    char name[64];
    snprintf(name, sizeof(name), "%s.%s", what, key);
    if (!json_is_string(value))
        return alq_err_set(err, ALQ_EINVAL, "%s: missing or not a string", name);
    return alq_path_set(dst, json_string_value(value), name, err);
}

static int load_mounts(struct alq_config *cfg, const json_t *array, struct alq_err *err)
{
    static const char *const keys[] = {"hostPath", "containerPath", "options", NULL};
    if (!json_is_array(array) || json_array_size(array) > ALQ_SETTING_LIST_MAX)
        return alq_err_set(err, ALQ_EINVAL, "extraMounts: not a list of at most %d mounts",
                           ALQ_SETTING_LIST_MAX);
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
            rc = alq_texts_set(&mount->options, options, "extraMounts options", err);
        if (rc)
            return rc;
    }
    return 0;
}

static int load_env(struct alq_config *cfg, const json_t *array, struct alq_err *err)
{
    int rc = alq_texts_set(&cfg->extra_env, array, "extraEnv", err);
    if (rc)
        return rc;
    for (char **p = cfg->extra_env; *p; p++, cfg->extra_env_count++) {
        const char *equals = strchr(*p, '=');
        if (!equals || equals == *p)
            return alq_err_set(err, ALQ_EINVAL, "extraEnv: \"%s\" is not NAME=VALUE", *p);
    }
    return 0;
}

static int load_key(struct alq_config *cfg, const char *key, const json_t *value,
                    struct alq_err *err)
{
    const struct alq_setting *s = alq_setting_by_key(key);
    if (s)
        return alq_setting_set_json(cfg, s, value, key, err);
    if (!strcmp(key, "extraMounts"))
        return load_mounts(cfg, value, err);
    if (!strcmp(key, "extraEnv"))
        return load_env(cfg, value, err);
    s = alq_setting_near(key);
    char near[ALQ_SETTING_NAME_BYTES] = "";
    if (s)
        alq_setting_key(s, near);
    return alq_err_set(err, ALQ_EINVAL, "unknown key \"%s\"%s%s%s", key,
                       s ? "; did you mean \"" : "", near, s ? "\"?" : "");
}

int alq_config_file_load(struct alq_config *cfg, const char *path, struct alq_err *err)
{
    alq_auto_free char *data = NULL;
    size_t len = 0;
    int rc = alq_file_read_target(path, FILE_MAX_BYTES, &data, &len, err);
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
    json_object_foreach (root, key, value)
        if ((rc = load_key(cfg, key, value, err)))
            return alq_err_wrap(err, "%s", path);
    return 0;
}
