/* SPDX-License-Identifier: Apache-2.0 */
/* ResourceSlice objects, see slice.h. Sources: reference/dra.md §4.1 and §4.2. Pure. */
#include "daemon/kube/slice.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/names.h"
#include "base/quantity.h"

#define MIB (1024 * 1024)
#define ATTRIBUTE_BYTES_MAX 64 /* strings and versions */
#define ONE_SLICE_MINOR 35     /* before, the scheduler looks at a slice's first device only */
#define EFFECT_NONE_MINOR 35

/* At most 64 bytes, cut before a character rather than within one. Empty texts make no attribute.
 */
static void add_text(json_t *attributes, const char *key, const char *type, const char *text)
{
    size_t len = strlen(text);
    if (len > ATTRIBUTE_BYTES_MAX) {
        len = ATTRIBUTE_BYTES_MAX;
        while (len && ((unsigned char)text[len] & 0xc0) == 0x80)
            len--;
    }
    if (len)
        json_object_set_new(attributes, key, json_pack("{s:o}", type, json_stringn(text, len)));
}

static void add_number(json_t *attributes, const char *key, json_int_t number)
{
    json_object_set_new(attributes, key, json_pack("{s:I}", "int", number));
}

/* All of it by default, in steps from min. */
static json_t *capacity(const char *all, const char *min, const char *step)
{
    return json_pack("{s:s, s:{s:s, s:{s:s, s:s, s:s}}}", "value", all, "requestPolicy", "default",
                     all, "validRange", "min", min, "max", all, "step", step);
}

/* The time is ours, not the server's, so that writing the same taint again changes nothing. */
static json_t *taint(const char *driver, const char *name, const struct alq_fault *fault)
{
    char key[128], since[ALQ_TIME_TEXT_BYTES];
    snprintf(key, sizeof(key), "%s/%s", driver, name);
    alq_time_format((time_t)fault->since_s, since);
    json_t *value =
        json_pack("{s:s, s:s, s:s}", "key", key, "effect",
                  fault->effect == ALQ_FAULT_UNFIT ? "NoSchedule" : "None", "timeAdded", since);
    if (fault->value[0])
        json_object_set_new(value, "value", json_string(fault->value));
    return value;
}

static void add_taints(json_t *device, const struct alq_gpu *gpu,
                       const struct alq_slice_server *server)
{
    static const char *const names[ALQ_FAULT_KINDS] = {
        [ALQ_FAULT_XID] = "xid",
        [ALQ_FAULT_ECC] = "ecc",
        [ALQ_FAULT_RECOVERY] = "recovery-action",
        [ALQ_FAULT_HANG] = "unresponsive",
    };
    json_t *taints = json_array();
    for (int i = 0; i < ALQ_FAULT_KINDS && !server->is_without_taints; i++) {
        const struct alq_fault *fault = &gpu->faults[i];
        if (fault->effect == ALQ_FAULT_UNFIT ||
            (fault->effect == ALQ_FAULT_NOTICE && server->minor >= EFFECT_NONE_MINOR))
            json_array_append_new(taints, taint(server->driver, names[i], fault));
    }
    if (json_array_size(taints))
        json_object_set(device, "taints", taints);
    json_decref(taints);
}

static int is_unfit(const struct alq_gpu *gpu)
{
    const struct alq_fault *fault = alq_gpu_fault(gpu);
    return fault && fault->effect == ALQ_FAULT_UNFIT;
}

int alq_slice_device(const struct alq_gpu *gpu, const struct alq_slice_server *server,
                     json_t **device, struct alq_err *err)
{
    char memory[ALQ_QUANTITY_TEXT_BYTES];
    uint64_t bytes = gpu->memory_promisable_bytes / MIB * MIB;
    /* The range from min to max must hold a step. */
    if (bytes < 2 * MIB)
        return alq_err_set(err, ALQ_EINVAL,
                           "gpu %s has no memory to promise (total %" PRIu64
                           " bytes, see --reserve)",
                           gpu->uuid, gpu->memory_total_bytes);
    alq_quantity_format(alq_quantity_from_u64(bytes), 1, memory);

    json_t *attributes = json_object();
    add_text(attributes, "type", "string", "hami-gpu");
    add_text(attributes, "uuid", "string", gpu->uuid);
    add_number(attributes, "minor", gpu->minor);
    add_number(attributes, "index", gpu->index);
    add_text(attributes, "productName", "string", gpu->product_name);
    add_text(attributes, "brand", "string", gpu->brand);
    add_text(attributes, "architecture", "string", gpu->architecture);
    add_text(attributes, "cudaComputeCapability", "version", gpu->compute_capability);
    add_text(attributes, "driverVersion", "version", gpu->driver_version);
    add_text(attributes, "cudaDriverVersion", "version", gpu->cuda_driver_version);
    add_text(attributes, "pcieBusID", "string", gpu->pci_bus_id);
    add_text(attributes, "resource.kubernetes.io/pciBusID", "string", gpu->pci_bus_id);
    add_text(attributes, "resource.kubernetes.io/pcieRoot", "string", gpu->pcie_root);
    if (gpu->numa_node >= 0)
        add_number(attributes, "resource.kubernetes.io/numaNode", gpu->numa_node);

    *device = json_pack("{s:s, s:o, s:b, s:{s:o, s:o}}", "name", gpu->name, "attributes",
                        attributes, "allowMultipleAllocations", 1, "capacity", "cores",
                        capacity("100", "0", "1"), "memory", capacity(memory, "1Mi", "1Mi"));
    if (!*device)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory, or gpu %s is not described in UTF-8",
                           gpu->uuid);
    add_taints(*device, gpu, server);
    return 0;
}

json_t *alq_slice_layout(const struct alq_gpu_list *list, const struct alq_slice_server *server,
                         struct alq_err *err)
{
    json_t *layout = json_array(), *slice = NULL;
    for (size_t i = 0; i < list->count; i++) {
        struct alq_err why = ALQ_ERR_INIT;
        json_t *device = NULL;
        if (server->is_without_taints && is_unfit(&list->gpus[i]))
            continue;
        if (alq_slice_device(&list->gpus[i], server, &device, &why)) {
            if (err && !err->code)
                *err = why;
            continue;
        }
        if (!slice || server->minor < ONE_SLICE_MINOR ||
            json_array_size(slice) == ALQ_SLICE_DEVICES_MAX) {
            slice = json_array();
            json_array_append_new(layout, slice);
        }
        json_array_append_new(slice, device);
    }
    return layout;
}

/* ---- meaning ------------------------------------------------------------------------------------
 */

static int is_empty(const json_t *value)
{
    return !value || json_is_null(value) || (json_is_object(value) && !json_object_size(value)) ||
           (json_is_array(value) && !json_array_size(value));
}

/* A string, or a number, which the API server takes for a quantity too. */
static int quantity_of(const json_t *value, struct alq_quantity *q)
{
    if (json_is_string(value))
        return !alq_quantity_parse(json_string_value(value), json_string_length(value), q, NULL);
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *q = alq_quantity_from_u64((uint64_t)json_integer_value(value));
        return 1;
    }
    return 0;
}

static int is_same(const json_t *a, const json_t *b, int is_capacity);

static int is_same_object(const json_t *a, const json_t *b, int is_capacity)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)a, key, value) {
        if (!is_same(value, json_object_get(b, key), is_capacity || !strcmp(key, "capacity")))
            return 0;
    }
    json_object_foreach ((json_t *)b, key, value) {
        if (!json_object_get(a, key) && !is_empty(value))
            return 0;
    }
    return 1;
}

static int is_same(const json_t *a, const json_t *b, int is_capacity)
{
    struct alq_quantity x, y;
    if (is_empty(a) || is_empty(b))
        return is_empty(a) && is_empty(b);
    if (json_is_object(a) && json_is_object(b))
        return is_same_object(a, b, is_capacity);
    if (json_is_array(a) && json_is_array(b)) {
        if (json_array_size(a) != json_array_size(b))
            return 0;
        for (size_t i = 0; i < json_array_size(a); i++) {
            if (!is_same(json_array_get(a, i), json_array_get(b, i), is_capacity))
                return 0;
        }
        return 1;
    }
    if (is_capacity && quantity_of(a, &x) && quantity_of(b, &y))
        return alq_quantity_cmp(x, y) == 0;
    return json_equal(a, b);
}

int alq_slice_is_same(const json_t *a, const json_t *b)
{
    return is_same(a, b, 0);
}

/* ---- what the server did not keep ---------------------------------------------------------------
 */

struct drops {
    char *paths;
    size_t size, used;
    char path[192];
};

static void add_drop(struct drops *d)
{
    int n = snprintf(d->paths + d->used, d->size - d->used, "%s%s", d->used ? ", " : "", d->path);
    size_t left = d->size - d->used;
    d->used = n < 0 ? d->used : (size_t)n < left ? d->used + (size_t)n : d->size - 1;
}

static void find_drops(struct drops *d, const json_t *sent, const json_t *stored, int is_capacity)
{
    size_t len = strlen(d->path);
    if (is_same(sent, stored, is_capacity))
        return;
    if (json_is_object(sent) && json_is_object(stored)) {
        const char *key;
        json_t *value;
        json_object_foreach ((json_t *)sent, key, value) {
            snprintf(d->path + len, sizeof(d->path) - len, "%s%s", len ? "." : "", key);
            find_drops(d, value, json_object_get(stored, key),
                       is_capacity || !strcmp(key, "capacity"));
            d->path[len] = '\0';
        }
    } else if (json_is_array(sent) && json_is_array(stored) &&
               json_array_size(sent) == json_array_size(stored)) {
        for (size_t i = 0; i < json_array_size(sent); i++) {
            snprintf(d->path + len, sizeof(d->path) - len, "[%zu]", i);
            find_drops(d, json_array_get(sent, i), json_array_get(stored, i), is_capacity);
            d->path[len] = '\0';
        }
    } else {
        add_drop(d);
    }
}

void alq_slice_dropped(const json_t *sent, const json_t *stored, char *paths, size_t size)
{
    struct drops d = {.paths = paths, .size = size};
    paths[0] = '\0';
    find_drops(&d, sent, stored, 0);
}
