/* SPDX-License-Identifier: Apache-2.0 */
/* status.devices, see claim_devices.h. Shapes and limits: reference/dra.md §4.1. Pure. */
#include "daemon/kube/claim_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "base/quantity.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static int has_key(const json_t *entry, const json_t *other)
{
    static const char *const keys[] = {"driver", "pool", "device", "shareID"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(text_of(entry, keys[i]), text_of(other, keys[i])) != 0)
            return 0;
    return 1;
}

static const json_t *find(const json_t *entries, const json_t *like)
{
    size_t i;
    json_t *entry;
    json_array_foreach (entries, i, entry) {
        if (has_key(entry, like))
            return entry;
    }
    return NULL;
}

static const json_t *ready_of(const json_t *entry)
{
    size_t i;
    json_t *condition;
    json_array_foreach (json_object_get(entry, "conditions"), i, condition) {
        if (!strcmp(text_of(condition, "type"), "Ready"))
            return condition;
    }
    return NULL;
}

/* ---- GPUs -------------------------------------------------------------------------------------
 */

int alq_gpu_states_set(struct alq_gpu_states *states, const struct alq_gpu_list *list)
{
    struct alq_gpu_state *at = calloc(list->count + 1, sizeof(*at));
    if (!at)
        return -1;
    for (size_t i = 0; i < list->count; i++) {
        const struct alq_fault *fault = alq_gpu_fault(&list->gpus[i]);
        snprintf(at[i].uuid, sizeof(at[i].uuid), "%s", list->gpus[i].uuid);
        if (fault && fault->effect == ALQ_FAULT_UNFIT)
            snprintf(at[i].trouble, sizeof(at[i].trouble), "%s", fault->reason);
    }
    free(states->at);
    *states = (struct alq_gpu_states){at, list->count};
    return 0;
}

/* NULL: it is not there. */
static const char *trouble_of(const struct alq_gpu_states *states, const char *uuid)
{
    for (size_t i = 0; i < states->count; i++)
        if (!strcmp(states->at[i].uuid, uuid))
            return states->at[i].trouble;
    return states->at ? NULL : "";
}

int alq_gpu_states_differ(const struct alq_gpu_states *a, const struct alq_gpu_states *b,
                          const struct alq_claim_spec *claim)
{
    for (uint32_t i = 0; i < claim->share_count; i++) {
        const char *x = trouble_of(a, claim->shares[i].gpu_uuid);
        const char *y = trouble_of(b, claim->shares[i].gpu_uuid);
        if (x && y ? strcmp(x, y) != 0 : x != y)
            return 1;
    }
    return 0;
}

/* ---- entries ----------------------------------------------------------------------------------
 */

static void describe(const struct alq_share_spec *s, char *text, size_t size)
{
    char memory[ALQ_QUANTITY_TEXT_BYTES];
    alq_quantity_format(alq_quantity_from_u64(s->memory_bytes), 1, memory);
    if (s->is_admin)
        snprintf(text, size, "prepared for admin access, without limits");
    else
        snprintf(text, size, "prepared: %u cores, %s of memory", s->cores_pct, memory);
}

static json_t *ready(const struct alq_share_spec *s, const struct alq_gpu_states *gpus,
                     const char *since)
{
    const char *trouble = trouble_of(gpus, s->gpu_uuid);
    const char *reason = !trouble ? "GPUGone" : *trouble ? "GPUUnhealthy" : "Prepared";
    char message[256];
    if (!trouble)
        snprintf(message, sizeof(message), "%s is no longer on this node", s->gpu_uuid);
    else if (*trouble)
        snprintf(message, sizeof(message), "%s", trouble);
    else
        describe(s, message, sizeof(message));
    return json_pack("{s:s, s:s, s:s, s:o, s:s}", "type", "Ready", "status",
                     trouble && !*trouble ? "True" : "False", "reason", reason, "message",
                     json_stringn_nocheck(message, strlen(message)), "lastTransitionTime", since);
}

static json_t *device_of(const struct alq_share_spec *s, const char *driver, const char *pool,
                         const struct alq_gpu_states *gpus, const char *since)
{
    json_t *data = json_pack("{s:s, s:I}", "uuid", s->gpu_uuid, "minor", (json_int_t)s->gpu_minor);
    if (data && !s->is_admin) {
        json_object_set_new(data, "memoryBytes", json_integer((json_int_t)s->memory_bytes));
        json_object_set_new(data, "cores", json_integer(s->cores_pct));
    }
    return json_pack("{s:s, s:s, s:s, s:s*, s:[o], s:o}", "driver", driver, "pool", pool, "device",
                     s->device, "shareID", s->share_uuid[0] ? s->share_uuid : NULL, "conditions",
                     ready(s, gpus, since), "data", data);
}

json_t *alq_claim_devices(const struct alq_claim_spec *claim, const char *driver,
                          const struct alq_gpu_states *gpus, time_t now)
{
    char since[ALQ_TIME_TEXT_BYTES];
    json_t *devices = json_array();
    alq_time_format(now, since);
    for (uint32_t i = 0; devices && i < claim->share_count; i++) {
        json_t *device = device_of(&claim->shares[i], driver, claim->pool, gpus, since);
        if (!device) {
            json_decref(devices);
            return NULL;
        }
        /* Two results of one device without shareIDs are one key, and a key may come once. */
        if (find(devices, device))
            json_decref(device);
        else
            json_array_append_new(devices, device);
    }
    return devices;
}

int alq_claim_devices_are_told(const json_t *object, const json_t *devices, int has_conditions)
{
    static const char *const keys[] = {"status", "reason", "message"};
    size_t i;
    json_t *device;
    json_array_foreach (devices, i, device) {
        const json_t *told = find(alq_json_at(object, "status.devices"), device);
        const json_t *ready_now = ready_of(told), *wanted = ready_of(device);
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]) && has_conditions; k++)
            if (!ready_now || strcmp(text_of(ready_now, keys[k]), text_of(wanted, keys[k])) != 0)
                return 0;
        if (!ready_now ||
            !json_equal(json_object_get(told, "data"), json_object_get(device, "data")))
            return 0;
    }
    return 1;
}

json_t *alq_claim_devices_apply(const struct alq_claim_spec *claim, json_t *devices)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:s}, s:{s:o}}", "apiVersion", "resource.k8s.io/v1",
                     "kind", "ResourceClaim", "metadata", "name", claim->name, "namespace",
                     claim->namespace_, "uid", claim->uid, "status", "devices", devices);
}
