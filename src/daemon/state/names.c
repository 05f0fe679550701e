/* SPDX-License-Identifier: Apache-2.0 */
/* Sticky device names, see names.h: a JSON object of UUID to name, written whole when it grows. */
#include "daemon/state/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

#define ALQ_LOG_MODULE "state"
#define FILE_MAX_BYTES (1024 * 1024)
#define PREFIX "hami-gpu-"

struct alq_names {
    char *path;
    json_t *by_uuid;
    int is_unsaved;
};

static int is_good(const json_t *root)
{
    const char *uuid;
    json_t *name;
    if (!json_is_object(root))
        return 0;
    json_object_foreach ((json_t *)(uintptr_t)root, uuid, name) {
        if (!json_is_string(name) || strlen(uuid) >= ALQ_UUID_BYTES ||
            json_string_length(name) >= ALQ_DEVICE_NAME_BYTES)
            return 0;
    }
    return 1;
}

int alq_names_open(const char *state_dir, struct alq_names **names, struct alq_err *err)
{
    struct alq_names *n = calloc(1, sizeof(*n));
    if (n)
        n->path = alq_str_printf("%s/devices.json", state_dir);
    if (!n || !n->path) {
        alq_names_close(n);
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    alq_auto_free char *data = NULL;
    size_t len = 0;
    struct alq_err why = ALQ_ERR_INIT;
    int rc = alq_file_read(n->path, FILE_MAX_BYTES, &data, &len, &why);
    if (!rc)
        rc = alq_json_parse(data, len, n->path, &n->by_uuid, &why);
    if (!rc && !is_good(n->by_uuid))
        rc = alq_err_set(&why, ALQ_EPROTO, "%s: not names by UUID", n->path);
    if (rc == ALQ_ENOMEM || rc == ALQ_EACCES || rc == ALQ_EAGAIN) {
        alq_names_close(n); /* not the file's fault: better no daemon than other names */
        *err = why;
        return rc;
    }
    if (rc && rc != ALQ_ENOENT) {
        alq_auto_free char *bad = alq_str_printf("%s.bad", n->path);
        alq_error(NULL, "%s; set aside, devices are named anew", why.text);
        if (bad)
            rename(n->path, bad);
    }
    if (rc) {
        json_decref(n->by_uuid);
        n->by_uuid = json_object();
    }
    *names = n;
    return 0;
}

void alq_names_close(struct alq_names *names)
{
    if (!names)
        return;
    json_decref(names->by_uuid);
    free(names->path);
    free(names);
}

const char *alq_names_find(const struct alq_names *names, const char *name)
{
    const char *uuid;
    json_t *value;
    json_object_foreach (names->by_uuid, uuid, value) {
        if (!strcmp(json_string_value(value), name))
            return uuid;
    }
    return NULL;
}

void alq_names_learn(struct alq_names *names, const char *uuid, const char *name)
{
    if (json_object_get(names->by_uuid, uuid) || alq_names_find(names, name))
        return;
    json_object_set_new(names->by_uuid, uuid, json_string(name));
    names->is_unsaved = 1;
}

/* The number of its minor if free, else the first free one. */
static void new_name(const struct alq_names *names, uint32_t minor,
                     char name[ALQ_DEVICE_NAME_BYTES])
{
    snprintf(name, ALQ_DEVICE_NAME_BYTES, PREFIX "%u", minor);
    for (uint32_t i = 0; alq_names_find(names, name); i++)
        snprintf(name, ALQ_DEVICE_NAME_BYTES, PREFIX "%u", i);
}

int alq_names_assign(struct alq_names *names, struct alq_gpu_list *list, struct alq_err *err)
{
    for (int is_second = 0; is_second < 2; is_second++) {
        for (size_t i = 0; i < list->count; i++) {
            struct alq_gpu *gpu = &list->gpus[i];
            const char *known = json_string_value(json_object_get(names->by_uuid, gpu->uuid));
            if (known) {
                snprintf(gpu->name, sizeof(gpu->name), "%s", known);
                continue;
            }
            /* First those whose own number is free, so that order decides nothing. */
            new_name(names, gpu->minor, gpu->name);
            char own[ALQ_DEVICE_NAME_BYTES];
            snprintf(own, sizeof(own), PREFIX "%u", gpu->minor);
            if (!is_second && strcmp(own, gpu->name) != 0)
                continue;
            json_object_set_new(names->by_uuid, gpu->uuid, json_string(gpu->name));
            names->is_unsaved = 1;
        }
    }
    if (!names->is_unsaved)
        return 0;
    alq_auto_free char *text = alq_json_dump(names->by_uuid);
    if (!text)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_file_write_atomic(names->path, text, strlen(text), 0600, 1, err);
    names->is_unsaved = rc != 0;
    return rc;
}
