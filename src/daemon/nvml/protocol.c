/* SPDX-License-Identifier: Apache-2.0 */
/* The lines between NVML child and parent, see protocol.h. Pure; owns what it returns. */
#include "daemon/nvml/protocol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

/* The text fields of a GPU: one row, one key. */
static const struct {
    const char *key;
    size_t offset, size;
} texts[] = {
#define ROW(key, field)                                                                            \
    {                                                                                              \
        key, offsetof(struct alq_gpu, field), sizeof(((struct alq_gpu *)0)->field)                 \
    }
    ROW("uuid", uuid),
    ROW("productName", product_name),
    ROW("brand", brand),
    ROW("architecture", architecture),
    ROW("computeCapability", compute_capability),
    ROW("driverVersion", driver_version),
    ROW("driverVersionRaw", driver_version_raw),
    ROW("cudaDriverVersion", cuda_driver_version),
    ROW("pciBusID", pci_bus_id),
    ROW("pcieRoot", pcie_root),
#undef ROW
};
#define TEXT_COUNT (sizeof(texts) / sizeof(texts[0]))

static json_t *encode_gpu(const struct alq_gpu *gpu)
{
    json_t *value =
        json_pack("{s:I, s:I, s:i, s:I, s:I, s:i, s:b, s:b}", "minor", (json_int_t)gpu->minor,
                  "index", (json_int_t)gpu->index, "numaNode", gpu->numa_node, "memoryTotal",
                  (json_int_t)gpu->memory_total_bytes, "memoryPromisable",
                  (json_int_t)gpu->memory_promisable_bytes, "recoveryAction", gpu->recovery_action,
                  "watched", gpu->is_watched, "hanging", gpu->is_hanging);
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        /* A driver may give text that is not UTF-8; such a field is unknown rather than the whole
         * reading lost. */
        json_t *text = json_string((const char *)gpu + texts[i].offset);
        json_object_set_new(value, texts[i].key, text ? text : json_string(""));
    }
    return value;
}

static json_t *encode_left_out(const struct alq_left_out *out)
{
    json_t *uuid = json_string(out->uuid), *reason = json_string(out->reason);
    return json_pack("{s:I, s:o, s:o}", "index", (json_int_t)out->index, "uuid",
                     uuid ? uuid : json_string(""), "reason",
                     reason ? reason : json_string("reason is not text"));
}

char *alq_nvml_encode(const struct alq_nvml_reading *reading)
{
    json_t *gpus = json_array(), *left_out = json_array();
    for (size_t i = 0; i < reading->list.count; i++)
        json_array_append_new(gpus, encode_gpu(&reading->list.gpus[i]));
    for (size_t i = 0; i < reading->left_out_count; i++)
        json_array_append_new(left_out, encode_left_out(&reading->left_out[i]));
    json_t *reason = json_string(reading->reason);
    alq_auto_json json_t *value = json_pack(
        "{s:i, s:b, s:o, s:s, s:o, s:o}", "code", reading->code, "restart",
        reading->is_restart_wanted, "reason", reason ? reason : json_string("reason is not text"),
        "load", reading->load, "gpus", gpus, "leftOut", left_out);
    return value ? alq_json_dump(value) : NULL;
}

static int need_number(const json_t *object, const char *key, json_int_t low, json_int_t high,
                       json_int_t *number, struct alq_err *err)
{
    char what[64];
    snprintf(what, sizeof(what), "nvml reader: %s", key);
    return alq_json_int(json_object_get(object, key), what, low, high, number, err);
}

static int copy_text(const json_t *object, const char *key, char *text, size_t size,
                     struct alq_err *err)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (!value || strlen(value) >= size)
        return alq_err_set(err, ALQ_EPROTO, "nvml reader: %s is missing or too long", key);
    memcpy(text, value, strlen(value) + 1);
    return 0;
}

static int decode_gpu(const json_t *value, struct alq_gpu *gpu, struct alq_err *err)
{
    json_int_t minor = 0, index = 0, numa = 0, total = 0, promisable = 0, action = 0;
    int rc = need_number(value, "minor", 0, UINT32_MAX, &minor, err);
    if (!rc)
        rc = need_number(value, "index", 0, UINT32_MAX, &index, err);
    if (!rc)
        rc = need_number(value, "numaNode", -1, INT32_MAX, &numa, err);
    if (!rc)
        rc = need_number(value, "memoryTotal", 0, INT64_MAX, &total, err);
    if (!rc)
        rc = need_number(value, "memoryPromisable", 0, total, &promisable, err);
    if (!rc)
        rc = need_number(value, "recoveryAction", -1, INT32_MAX, &action, err);
    for (size_t i = 0; !rc && i < TEXT_COUNT; i++)
        rc = copy_text(value, texts[i].key, (char *)gpu + texts[i].offset, texts[i].size, err);
    if (!rc && !gpu->uuid[0])
        rc = alq_err_set(err, ALQ_EPROTO, "nvml reader: a gpu without uuid");
    gpu->minor = (uint32_t)minor;
    gpu->index = (uint32_t)index;
    gpu->numa_node = (int)numa;
    gpu->memory_total_bytes = (uint64_t)total;
    gpu->memory_promisable_bytes = (uint64_t)promisable;
    gpu->recovery_action = (int)action;
    gpu->is_watched = json_is_true(json_object_get(value, "watched"));
    gpu->is_hanging = json_is_true(json_object_get(value, "hanging"));
    return rc;
}

static int decode_gpus(const json_t *gpus, struct alq_gpu_list *list, struct alq_err *err)
{
    size_t count = json_array_size(gpus);
    if (!json_is_array(gpus) || count > ALQ_NVML_GPUS_MAX)
        return alq_err_set(err, ALQ_EPROTO, "nvml reader: gpus are missing or too many");
    list->gpus = calloc(count ? count : 1, sizeof(*list->gpus));
    if (!list->gpus)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        int rc = decode_gpu(json_array_get(gpus, i), &list->gpus[i], err);
        if (rc)
            return rc;
        for (size_t j = 0; j < i; j++) {
            if (!strcmp(list->gpus[j].uuid, list->gpus[i].uuid))
                return alq_err_set(err, ALQ_EPROTO, "nvml reader: gpu %s stands twice",
                                   list->gpus[i].uuid);
        }
        list->count = i + 1;
    }
    return 0;
}

int alq_nvml_decode(const char *line, size_t len, struct alq_nvml_reading *reading,
                    struct alq_err *err)
{
    alq_auto_json json_t *value = NULL;
    memset(reading, 0, sizeof(*reading));
    int rc = alq_json_parse(line, len, "nvml reader", &value, err);
    if (rc)
        return rc;
    json_int_t code = 0;
    rc = need_number(value, "code", -1000, 0, &code, err);
    if (!rc)
        rc = copy_text(value, "reason", reading->reason, sizeof(reading->reason), err);
    if (!rc)
        rc = copy_text(value, "load", reading->load, sizeof(reading->load), err);
    if (!rc)
        rc = decode_gpus(json_object_get(value, "gpus"), &reading->list, err);
    if (rc)
        return rc;
    reading->code = (int)code;
    reading->is_restart_wanted = json_is_true(json_object_get(value, "restart"));

    const json_t *left_out = json_object_get(value, "leftOut");
    for (size_t i = 0; i < json_array_size(left_out) && i < ALQ_NVML_GPUS_MAX; i++) {
        const json_t *item = json_array_get(left_out, i);
        struct alq_left_out *out = &reading->left_out[i];
        json_int_t index = 0;
        rc = need_number(item, "index", 0, UINT32_MAX, &index, err);
        if (!rc)
            rc = copy_text(item, "uuid", out->uuid, sizeof(out->uuid), err);
        if (!rc)
            rc = copy_text(item, "reason", out->reason, sizeof(out->reason), err);
        if (rc)
            return rc;
        out->index = (uint32_t)index;
        reading->left_out_count = i + 1;
    }
    return 0;
}

void alq_nvml_reading_clear(struct alq_nvml_reading *reading)
{
    free(reading->list.gpus);
    reading->list = (struct alq_gpu_list){0};
}

/* ---- events -------------------------------------------------------------------------------------
 */

char *alq_nvml_encode_events(const struct alq_nvml_events *events)
{
    json_t *list = json_array();
    for (size_t i = 0; i < events->count; i++) {
        const struct alq_gpu_event *e = &events->events[i];
        json_array_append_new(list, json_pack("{s:s, s:i, s:I}", "uuid", e->uuid, "kind",
                                              (int)e->kind, "code", (json_int_t)e->code));
    }
    alq_auto_json json_t *value =
        json_pack("{s:b, s:o}", "readingDue", events->is_reading_due, "events", list);
    return value ? alq_json_dump(value) : NULL;
}

int alq_nvml_decode_events(const char *line, size_t len, struct alq_nvml_events *events,
                           struct alq_err *err)
{
    alq_auto_json json_t *value = NULL;
    memset(events, 0, sizeof(*events));
    int rc = alq_json_parse(line, len, "nvml reader", &value, err);
    const json_t *list = json_object_get(value, "events");
    if (!rc && (!json_is_array(list) || json_array_size(list) > ALQ_NVML_EVENTS_MAX))
        rc = alq_err_set(err, ALQ_EPROTO, "nvml reader: events are missing or too many");
    for (size_t i = 0; !rc && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        struct alq_gpu_event *e = &events->events[events->count++];
        json_int_t kind = 0, code = 0;
        rc = copy_text(item, "uuid", e->uuid, sizeof(e->uuid), err);
        if (!rc)
            rc = need_number(item, "kind", ALQ_FAULT_XID, ALQ_FAULT_ECC, &kind, err);
        if (!rc)
            rc = need_number(item, "code", 0, INT64_MAX, &code, err);
        e->kind = (enum alq_fault_kind)kind;
        e->code = (uint64_t)code;
    }
    events->is_reading_due = json_is_true(json_object_get(value, "readingDue"));
    return rc;
}

int alq_nvml_decode_progress(const char *line, size_t len)
{
    int index = 0;
    if (len < 2 || len > 4 || line[0] != '@')
        return -1;
    for (size_t i = 1; i < len; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -1;
        index = index * 10 + (line[i] - '0');
    }
    return index < (int)ALQ_NVML_GPUS_MAX ? index : -1;
}

/* ---- texts --------------------------------------------------------------------------------------
 */

void alq_nvml_semver(const char *text, char *semver, size_t size)
{
    unsigned long parts[3] = {0};
    semver[0] = '\0';
    for (size_t i = 0; i < 3; i++) {
        char *end;
        if (*text < '0' || *text > '9')
            break;
        parts[i] = strtoul(text, &end, 10);
        if (i == 0 || *end == '.' || *end == '\0')
            snprintf(semver, size, "%lu.%lu.%lu", parts[0], parts[1], parts[2]);
        if (*end != '.')
            break;
        text = end + 1;
    }
}

void alq_nvml_pci_address(const char *text, char *address, size_t size)
{
    unsigned domain, bus, device, function;
    int used = 0;
    address[0] = '\0';
    if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) == 4 &&
        text[used] == '\0')
        snprintf(address, size, "%04x:%02x:%02x.%x", domain, bus, device, function);
}

/* Values 0 to 4 are of driver 570, 5 to 7 of later ones. */
static const char *const recovery_names[] = {"",          "reset",           "reboot",
                                             "drain-p2p", "drain-and-reset", "recover-imex-domain",
                                             "bus-reset", "system-reboot"};

const char *alq_nvml_recovery_name(int action)
{
    if (action <= 0)
        return "";
    return action < (int)(sizeof(recovery_names) / sizeof(recovery_names[0]))
               ? recovery_names[action]
               : "unknown";
}

int alq_nvml_is_reset(int action)
{
    return action == 1 || action == 4 || action == 6;
}

const char *alq_nvml_architecture(int major, int minor)
{
    switch (major) {
    case 3:
        return "Kepler";
    case 5:
        return "Maxwell";
    case 6:
        return "Pascal";
    case 7:
        return minor < 5 ? "Volta" : "Turing";
    case 8:
        return minor < 9 ? "Ampere" : "Ada Lovelace";
    case 9:
        return "Hopper";
    case 10:
    case 11:
    case 12:
        return "Blackwell";
    default:
        return "";
    }
}
