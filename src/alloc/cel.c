/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiled expressions and devices: making and freeing. Owns both; calls the other CEL modules and
 * jansson; any thread, one at a time per object while it is made.
 */
#include "alloc/cel.h"

#include <stdlib.h>
#include <string.h>

#include "alloc/cel_ast.h"
#include "alloc/cel_lex.h"
#include "alloc/cel_regex.h"
#include "base/cleanup.h"

#define PROGRAM_MAX_BYTES (4 * 1024 * 1024) /* of the tree; 10 KiB of brackets need about half */

/* Offset of the first byte that is not UTF-8 (or is NUL), len when all is well. */
static size_t utf8_valid_len(const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;

    while (i < len) {
        unsigned char c = p[i];
        size_t n = c == 0                  ? 0
                   : c < 0x80              ? 1
                   : c >= 0xc2 && c < 0xe0 ? 2
                   : c >= 0xe0 && c < 0xf0 ? 3
                   : c >= 0xf0 && c < 0xf5 ? 4
                                           : 0;
        if (!n || i + n > len)
            return i;
        for (size_t k = 1; k < n; k++)
            if ((p[i + k] & 0xc0) != 0x80)
                return i;
        if ((c == 0xe0 && p[i + 1] < 0xa0) || (c == 0xed && p[i + 1] >= 0xa0) ||
            (c == 0xf0 && p[i + 1] < 0x90) || (c == 0xf4 && p[i + 1] >= 0x90))
            return i;
        i += n;
    }
    return i;
}

int alq_cel_compile(const char *expression, size_t len, struct alq_cel_program **out,
                    struct alq_err *err)
{
    struct alq_cel_program *p;
    size_t valid;
    int rc;

    if (len > ALQ_CEL_EXPRESSION_MAX_BYTES)
        return alq_err_set(err, ALQ_ERANGE, "expression is longer than %d bytes",
                           ALQ_CEL_EXPRESSION_MAX_BYTES);
    valid = utf8_valid_len(expression, len);
    if (valid < len)
        return alq_err_set(err, ALQ_EINVAL, "expression is not UTF-8 text at byte %zu", valid + 1);
    p = calloc(1, sizeof(*p));
    if (!p)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    p->arena = alq_arena_init(PROGRAM_MAX_BYTES);
    p->len = len;
    p->text = alq_arena_strndup(&p->arena, expression, len);
    rc = p->text ? alq_cel_parse(p, err) : alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (!rc)
        rc = alq_cel_check(p, err);
    if (rc)
        alq_cel_program_free(p);
    else
        *out = p;
    return rc;
}

void alq_cel_program_free(struct alq_cel_program *p)
{
    if (!p)
        return;
    for (struct alq_cel_node *n = p->regexes; n; n = n->next_regex)
        alq_cel_regex_free(n->regex);
    alq_arena_fini(&p->arena);
    free(p);
}

static int attribute_value(const char *name, json_t *j, struct alq_cel_value *out,
                           struct alq_err *err)
{
    struct alq_err why = ALQ_ERR_INIT;
    json_t *v;

    if ((v = json_object_get(j, "int")) && json_is_integer(v)) {
        *out = alq_cel_int(json_integer_value(v));
        return 0;
    }
    if ((v = json_object_get(j, "bool")) && json_is_boolean(v)) {
        *out = alq_cel_bool(json_is_true(v));
        return 0;
    }
    if ((v = json_object_get(j, "string")) && json_is_string(v)) {
        *out = alq_cel_string(json_string_value(v), json_string_length(v));
        return 0;
    }
    if ((v = json_object_get(j, "version")) && json_is_string(v)) {
        *out = (struct alq_cel_value){.type = ALQ_CEL_SEMVER};
        if (alq_semver_parse(json_string_value(v), json_string_length(v), &out->semver, &why))
            return alq_err_set(err, ALQ_EPROTO, "attribute %s: %s", name, why.text);
        return 0;
    }
    return alq_err_set(err, ALQ_EPROTO, "attribute %s: unsupported attribute value", name);
}

static int capacity_value(const char *name, json_t *j, struct alq_cel_value *out,
                          struct alq_err *err)
{
    struct alq_err why = ALQ_ERR_INIT;
    json_t *v = json_object_get(j, "value");

    *out = (struct alq_cel_value){.type = ALQ_CEL_QUANTITY};
    if (!json_is_string(v))
        return alq_err_set(err, ALQ_EPROTO, "capacity %s: value is missing", name);
    if (alq_quantity_parse(json_string_value(v), json_string_length(v), &out->quantity, &why))
        return alq_err_set(err, ALQ_EPROTO, "capacity %s: %s", name, why.text);
    return 0;
}

static int add_entries(const char *driver, json_t *map,
                       int (*value)(const char *, json_t *, struct alq_cel_value *,
                                    struct alq_err *),
                       struct alq_cel_entries *out, struct alq_err *err)
{
    const char *name;
    json_t *j;

    if (!json_object_size(map))
        return 0;
    out->items = calloc(json_object_size(map), sizeof(*out->items));
    if (!out->items)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    json_object_foreach (map, name, j) {
        struct alq_cel_entry *e = &out->items[out->count];
        const char *slash = strchr(name, '/');
        e->domain = slash ? (struct alq_cel_text){name, (size_t)(slash - name)}
                          : (struct alq_cel_text){driver, strlen(driver)};
        e->name = slash ? (struct alq_cel_text){slash + 1, strlen(slash + 1)}
                        : (struct alq_cel_text){name, strlen(name)};
        int rc = value(name, j, &e->value, err);
        if (rc)
            return rc;
        out->count++;
    }
    return 0;
}

int alq_cel_device_new(const char *driver, json_t *device, struct alq_cel_device **out,
                       struct alq_err *err)
{
    struct alq_cel_device *d = calloc(1, sizeof(*d));
    int rc;

    if (!d || !(d->driver = strdup(driver))) {
        free(d);
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    d->json = json_incref(device);
    d->is_multi_alloc = json_is_true(json_object_get(device, "allowMultipleAllocations"));
    rc = add_entries(d->driver, json_object_get(device, "attributes"), attribute_value,
                     &d->attributes, err);
    if (!rc)
        rc = add_entries(d->driver, json_object_get(device, "capacity"), capacity_value,
                         &d->capacity, err);
    if (rc)
        alq_cel_device_free(d);
    else
        *out = d;
    return rc;
}

void alq_cel_device_free(struct alq_cel_device *d)
{
    if (!d)
        return;
    free(d->attributes.items);
    free(d->capacity.items);
    json_decref(d->json);
    free(d->driver);
    free(d);
}
