/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading JSON that other programs wrote: parsing with a source named in the error, and access by
 * dotted path. Values are jansson's; a value may be read by several threads, never written by two.
 */
#include "base/json.h"

#include <string.h>

int alq_json_parse(const char *data, size_t len, const char *what, json_t **value,
                   struct alq_err *err)
{
    json_error_t at;
    json_t *parsed = json_loadb(data, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    if (!parsed) {
        if (json_error_code(&at) == json_error_out_of_memory)
            return alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", what);
        return alq_err_set(err, ALQ_EPROTO, "%s is not valid JSON: line %d column %d: %s", what,
                           at.line, at.column, at.text);
    }
    *value = parsed;
    return 0;
}

json_t *alq_json_at(const json_t *root, const char *path)
{
    const json_t *at = root;
    while (*path && at) {
        size_t len = strcspn(path, ".");
        at = json_object_getn(at, path, len); /* NULL unless `at` is an object */
        path += len;
        if (*path == '.')
            path++;
    }
    return (json_t *)at;
}

const char *alq_json_str(const json_t *root, const char *path)
{
    return json_string_value(alq_json_at(root, path));
}

const char *alq_json_text(const json_t *root, const char *path)
{
    const char *value = alq_json_str(root, path);
    return value ? value : "";
}

/* The value at path when it has the type wanted; otherwise the error that says which of the two is
 * wrong. */
static int need(const json_t *root, const char *path, json_type type, const char *type_name,
                json_t **value, struct alq_err *err)
{
    json_t *at = alq_json_at(root, path);
    if (!at)
        return alq_err_set(err, ALQ_EPROTO, "field %s is missing", path);
    if (json_typeof(at) != type)
        return alq_err_set(err, ALQ_EPROTO, "field %s is not %s", path, type_name);
    *value = at;
    return 0;
}

int alq_json_need_str(const json_t *root, const char *path, const char **text, struct alq_err *err)
{
    json_t *at = NULL;
    int rc = need(root, path, JSON_STRING, "a string", &at, err);
    if (rc == 0)
        *text = json_string_value(at);
    return rc;
}

int alq_json_need_array(const json_t *root, const char *path, json_t **array, struct alq_err *err)
{
    return need(root, path, JSON_ARRAY, "a list", array, err);
}

int alq_json_int(const json_t *value, const char *what, json_int_t low, json_int_t high,
                 json_int_t *number, struct alq_err *err)
{
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high)
        return alq_err_set(err, ALQ_EPROTO, "%s is missing or out of range", what);
    *number = json_integer_value(value);
    return 0;
}

int alq_json_only_keys(const json_t *object, const char *const *keys, const char *what,
                       struct alq_err *err)
{
    if (!json_is_object(object))
        return alq_err_set(err, ALQ_EINVAL, "%s is not an object", what);
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)object, key, value) {
        const char *const *known = keys;
        while (*known && strcmp(*known, key) != 0)
            known++;
        if (!*known)
            return alq_err_set(err, ALQ_EINVAL, "%s has an unknown field \"%.100s\"", what, key);
    }
    return 0;
}

char *alq_json_dump(const json_t *value)
{
    return json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
}
