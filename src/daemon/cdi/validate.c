/* SPDX-License-Identifier: Apache-2.0 */
/* The strict reader of CDI specs, see validate.h. Pure; borrows everything. */
#include "daemon/cdi/validate.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

#define PATH_BYTES 96 /* "devices[31].containerEdits.deviceNodes[7]" */

static int fail(struct alq_err *err, const char *at, const char *text)
{
    return alq_err_set(err, ALQ_EINVAL, "cdi spec: %s %s", at, text);
}

static int is_alnum(char c)
{
    return isalnum((unsigned char)c);
}

/* vendor and class: a letter first, letter or digit last, and of more than one character. */
static int is_kind_part(const char *text, size_t len)
{
    if (len < 2 || !isalpha((unsigned char)text[0]) || !is_alnum(text[len - 1]))
        return 0;
    for (size_t i = 0; i < len; i++) {
        if (!is_alnum(text[i]) && !strchr("_-.", text[i]))
            return 0;
    }
    return 1;
}

static int is_device_name(const char *text)
{
    size_t len = strlen(text);
    if (!len || !is_alnum(text[0]) || !is_alnum(text[len - 1]))
        return 0;
    for (size_t i = 0; i < len; i++) {
        if (!is_alnum(text[i]) && !strchr("_-.:", text[i]))
            return 0;
    }
    return 1;
}

/* Absolute, without empty, "." or ".." steps and without a slash at the end. */
static int is_clean_path(const char *path)
{
    if (path[0] != '/' || !path[1])
        return 0;
    for (const char *step = path; *step;) {
        const char *end = strchrnul(step + 1, '/');
        size_t len = (size_t)(end - step - 1);
        if (len == 0 || (len == 1 && step[1] == '.') ||
            (len == 2 && step[1] == '.' && step[2] == '.'))
            return 0;
        step = end;
    }
    return 1;
}

static int only_keys(const json_t *object, const char *const *keys, const char *at,
                     struct alq_err *err)
{
    if (!json_is_object(object))
        return fail(err, at, "is not an object");
    return alq_json_only_keys(object, keys, at, err);
}

static int need_path(const json_t *object, const char *key, const char *at, struct alq_err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || !is_clean_path(json_string_value(value)))
        return alq_err_set(err, ALQ_EINVAL, "cdi spec: %s.%s is not a clean absolute path", at,
                           key);
    return 0;
}

static int check_strings(const json_t *array, const char *at, struct alq_err *err)
{
    size_t i;
    json_t *item;
    if (!json_is_array(array) || !json_array_size(array))
        return fail(err, at, "is not a list with something in it");
    json_array_foreach (array, i, item) {
        if (!json_is_string(item) || !json_string_length(item))
            return fail(err, at, "holds what is not a word");
    }
    return 0;
}

static int check_env(const json_t *env, const char *at, struct alq_err *err)
{
    int rc = check_strings(env, at, err);
    for (size_t i = 0; !rc && i < json_array_size(env); i++) {
        const char *text = json_string_value(json_array_get(env, i));
        size_t name = strcspn(text, "=");
        if (!name || text[name] != '=')
            return alq_err_set(err, ALQ_EINVAL, "cdi spec: %s: \"%s\" is not NAME=value", at, text);
        for (size_t j = 0; j < i; j++) {
            if (!strncmp(json_string_value(json_array_get(env, j)), text, name + 1))
                return alq_err_set(err, ALQ_EINVAL, "cdi spec: %s sets %.*s twice", at, (int)name,
                                   text);
        }
    }
    return rc;
}

static int check_nodes(const json_t *nodes, const char *at, struct alq_err *err)
{
    static const char *const keys[] = {"path",     "hostPath", "type",        "major", "minor",
                                       "fileMode", "uid",      "permissions", "gid",   NULL};
    if (!json_is_array(nodes) || !json_array_size(nodes))
        return fail(err, at, "is not a list with something in it");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *node = json_array_get(nodes, i);
        char here[PATH_BYTES];
        snprintf(here, sizeof(here), "%s[%zu]", at, i);
        int rc = only_keys(node, keys, here, err);
        if (!rc)
            rc = need_path(node, "path", here, err);
        if (!rc && json_object_get(node, "hostPath"))
            rc = need_path(node, "hostPath", here, err);
        if (rc)
            return rc;
        const char *type = alq_json_str(node, "type");
        if (json_object_get(node, "type") && (!type || strlen(type) != 1 || !strchr("bcup", *type)))
            return fail(err, here, "has a type other than b, c, u or p");
        const char *rights = alq_json_str(node, "permissions");
        if (json_object_get(node, "permissions") &&
            (!rights || !*rights || strspn(rights, "rwm") != strlen(rights)))
            return fail(err, here, "has permissions other than r, w and m");
        static const char *const numbers[] = {"major", "minor", "fileMode", "uid", "gid", NULL};
        for (const char *const *number = numbers; *number; number++) {
            const json_t *value = json_object_get(node, *number);
            if (value && (!json_is_integer(value) || json_integer_value(value) < 0))
                return alq_err_set(err, ALQ_EINVAL, "cdi spec: %s.%s is not a number", here,
                                   *number);
        }
        for (size_t j = 0; j < i; j++) {
            if (!strcmp(alq_json_str(json_array_get(nodes, j), "path"), alq_json_str(node, "path")))
                return fail(err, here, "stands twice");
        }
    }
    return 0;
}

static int check_mounts(const json_t *mounts, const char *at, struct alq_err *err)
{
    static const char *const keys[] = {"hostPath", "containerPath", "options", "type", NULL};
    if (!json_is_array(mounts) || !json_array_size(mounts))
        return fail(err, at, "is not a list with something in it");
    for (size_t i = 0; i < json_array_size(mounts); i++) {
        const json_t *mount = json_array_get(mounts, i);
        char here[PATH_BYTES];
        snprintf(here, sizeof(here), "%s[%zu]", at, i);
        int rc = only_keys(mount, keys, here, err);
        if (!rc)
            rc = need_path(mount, "hostPath", here, err);
        if (!rc)
            rc = need_path(mount, "containerPath", here, err);
        if (!rc && json_object_get(mount, "options"))
            rc = check_strings(json_object_get(mount, "options"), here, err);
        if (rc)
            return rc;
        if (json_object_get(mount, "type") && !alq_json_str(mount, "type"))
            return fail(err, here, "has a type that is not text");
        for (size_t j = 0; j < i; j++) {
            if (!strcmp(alq_json_str(json_array_get(mounts, j), "containerPath"),
                        alq_json_str(mount, "containerPath")))
                return alq_err_set(err, ALQ_EINVAL, "cdi spec: %s mounts on %s a second time", here,
                                   alq_json_str(mount, "containerPath"));
        }
    }
    return 0;
}

static int check_hooks(const json_t *hooks, const char *at, struct alq_err *err)
{
    static const char *const keys[] = {"hookName", "path", "args", "env", "timeout", NULL};
    static const char *const names[] = {
        "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop",
        NULL};
    if (!json_is_array(hooks) || !json_array_size(hooks))
        return fail(err, at, "is not a list with something in it");
    for (size_t i = 0; i < json_array_size(hooks); i++) {
        const json_t *hook = json_array_get(hooks, i);
        char here[PATH_BYTES];
        snprintf(here, sizeof(here), "%s[%zu]", at, i);
        int rc = only_keys(hook, keys, here, err);
        if (!rc)
            rc = need_path(hook, "path", here, err);
        if (!rc && json_object_get(hook, "args"))
            rc = check_strings(json_object_get(hook, "args"), here, err);
        if (!rc && json_object_get(hook, "env"))
            rc = check_env(json_object_get(hook, "env"), here, err);
        if (rc)
            return rc;
        const char *name = alq_json_str(hook, "hookName");
        const char *const *known = names;
        while (name && *known && strcmp(*known, name))
            known++;
        if (!name || !*known)
            return fail(err, here, "has an unknown hookName");
        const json_t *timeout = json_object_get(hook, "timeout");
        if (timeout && (!json_is_integer(timeout) || json_integer_value(timeout) < 1))
            return fail(err, here, "has a timeout that is not a number of seconds");
    }
    return 0;
}

static int check_edits(const json_t *edits, const char *at, struct alq_err *err)
{
    static const char *const keys[] = {"env",   "deviceNodes",    "mounts",
                                       "hooks", "additionalGids", NULL};
    static int (*const checks[])(const json_t *, const char *, struct alq_err *) = {
        check_env, check_nodes, check_mounts, check_hooks};
    int rc = only_keys(edits, keys, at, err);
    if (rc)
        return rc;
    if (!json_object_size(edits))
        return fail(err, at, "is empty");
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        char here[PATH_BYTES];
        const json_t *value = json_object_get(edits, keys[i]);
        snprintf(here, sizeof(here), "%s.%s", at, keys[i]);
        rc = value ? checks[i](value, here, err) : 0;
        if (rc)
            return rc;
    }
    const json_t *gids = json_object_get(edits, "additionalGids");
    if (gids && (!json_is_array(gids) || !json_array_size(gids)))
        return fail(err, at, "has additionalGids that are no list");
    for (size_t i = 0; i < json_array_size(gids); i++) {
        if (!json_is_integer(json_array_get(gids, i)) ||
            json_integer_value(json_array_get(gids, i)) < 1)
            return fail(err, at, "has an additional group that is no number");
    }
    return 0;
}

static int edits_need_050(const json_t *edits)
{
    size_t i;
    json_t *node;
    json_array_foreach (json_object_get(edits, "deviceNodes"), i, node) {
        if (json_object_get(node, "hostPath"))
            return 1;
    }
    return 0;
}

static int edits_need_040(const json_t *edits)
{
    size_t i;
    json_t *mount;
    json_array_foreach (json_object_get(edits, "mounts"), i, mount) {
        if (json_object_get(mount, "type"))
            return 1;
    }
    return 0;
}

const char *alq_cdi_lowest_version(const json_t *spec)
{
    const json_t *edits = json_object_get(spec, "containerEdits");
    const char *kind = alq_json_str(spec, "kind");
    const char *class = kind ? strchr(kind, '/') : NULL;
    int need_040 = edits_need_040(edits), need_050 = edits_need_050(edits);
    int need_060 = class && strchr(class, '.');
    int need_070 = json_object_get(edits, "additionalGids") != NULL;
    size_t i;
    json_t *device;
    json_array_foreach (json_object_get(spec, "devices"), i, device) {
        const char *name = alq_json_str(device, "name");
        edits = json_object_get(device, "containerEdits");
        need_040 |= edits_need_040(edits);
        need_050 |= edits_need_050(edits) || (name && isdigit((unsigned char)name[0]));
        need_070 |= json_object_get(edits, "additionalGids") != NULL;
    }
    return need_070   ? "0.7.0"
           : need_060 ? "0.6.0"
           : need_050 ? "0.5.0"
           : need_040 ? "0.4.0"
                      : "0.3.0";
}

int alq_cdi_validate(const json_t *spec, struct alq_err *err)
{
    static const char *const keys[] = {"cdiVersion", "kind", "devices", "containerEdits", NULL};
    static const char *const device_keys[] = {"name", "containerEdits", NULL};

    int rc = only_keys(spec, keys, "the spec", err);
    if (rc)
        return rc;
    const char *kind = alq_json_str(spec, "kind");
    const char *slash = kind ? strchr(kind, '/') : NULL;
    if (!slash || !is_kind_part(kind, (size_t)(slash - kind)) ||
        !is_kind_part(slash + 1, strlen(slash + 1)))
        return alq_err_set(err, ALQ_EINVAL, "cdi spec: kind \"%s\" is not vendor/class",
                           kind ? kind : "");

    const json_t *devices = json_object_get(spec, "devices");
    if (!json_is_array(devices) || !json_array_size(devices))
        return fail(err, "devices", "is not a list with something in it");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *device = json_array_get(devices, i);
        char here[PATH_BYTES];
        snprintf(here, sizeof(here), "devices[%zu]", i);
        rc = only_keys(device, device_keys, here, err);
        if (rc)
            return rc;
        const char *name = alq_json_str(device, "name");
        if (!name || !is_device_name(name))
            return fail(err, here, "has no proper name");
        for (size_t j = 0; j < i; j++) {
            if (!strcmp(alq_json_str(json_array_get(devices, j), "name"), name))
                return alq_err_set(err, ALQ_EINVAL, "cdi spec: device \"%s\" stands twice", name);
        }
        snprintf(here, sizeof(here), "devices[%zu].containerEdits", i);
        rc = check_edits(json_object_get(device, "containerEdits"), here, err);
        if (rc)
            return rc;
    }
    const json_t *edits = json_object_get(spec, "containerEdits");
    rc = edits ? check_edits(edits, "containerEdits", err) : 0;
    if (rc)
        return rc;

    const char *version = alq_json_str(spec, "cdiVersion");
    const char *lowest = alq_cdi_lowest_version(spec);
    if (!version || strcmp(version, lowest))
        return alq_err_set(err, ALQ_EINVAL,
                           "cdi spec: cdiVersion is \"%s\", the lowest that holds is %s",
                           version ? version : "", lowest);
    return 0;
}
