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
    json_t *value = json_pack("{s:I, s:I, s:i, s:I, s:I}", "minor", (json_int_t)gpu->minor, "index",
                              (json_int_t)gpu->index, "numaNode", gpu->numa_node, "memoryTotal",
                              (json_int_t)gpu->memory_total_bytes, "memoryPromisable",
                              (json_int_t)gpu->memory_promisable_bytes);
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        /* A driver may give text that is not UTF-8; such a field is unknown rather than the whole
         * reading lost. */
        json_t *text = json_string((const char *)gpu + texts[i].offset);
        json_object_set_new(value, texts[i].key, text ? text : json_string(""));
    }
    return value;
}

char *alq_nvml_encode(const struct alq_nvml_reading *reading)
{
    json_t *gpus = json_array(), *left_out = json_array();
    for (size_t i = 0; i < reading->list.count; i++)
        json_array_append_new(gpus, encode_gpu(&reading->list.gpus[i]));
    for (size_t i = 0; i < reading->left_out_count; i++)
        json_array_append_new(left_out, json_pack("{s:I, s:s}", "index",
                                                  (json_int_t)reading->left_out[i].index, "reason",
                                                  reading->left_out[i].reason));
    json_t *reason = json_string(reading->reason);
    alq_auto_json json_t *value = json_pack("{s:i, s:b, s:o, s:o, s:o}", "code", reading->code,
                                            "restart", reading->is_restart_wanted, "reason",
                                            reason ? reason : json_string("reason is not text"),
                                            "gpus", gpus, "leftOut", left_out);
    return value ? alq_json_dump(value) : NULL;
}

static int need_number(const json_t *object, const char *key, json_int_t low, json_int_t high,
                       json_int_t *number, struct alq_err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > high)
        return alq_err_set(err, ALQ_EPROTO, "nvml reader: %s is missing or out of range", key);
    *number = json_integer_value(value);
    return 0;
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
    json_int_t minor = 0, index = 0, numa = 0, total = 0, promisable = 0;
    int rc = need_number(value, "minor", 0, UINT32_MAX, &minor, err);
    if (!rc)
        rc = need_number(value, "index", 0, UINT32_MAX, &index, err);
    if (!rc)
        rc = need_number(value, "numaNode", -1, INT32_MAX, &numa, err);
    if (!rc)
        rc = need_number(value, "memoryTotal", 0, INT64_MAX, &total, err);
    if (!rc)
        rc = need_number(value, "memoryPromisable", 0, total, &promisable, err);
    for (size_t i = 0; !rc && i < TEXT_COUNT; i++)
        rc = copy_text(value, texts[i].key, (char *)gpu + texts[i].offset, texts[i].size, err);
    if (!rc && !gpu->uuid[0])
        rc = alq_err_set(err, ALQ_EPROTO, "nvml reader: a gpu without uuid");
    gpu->minor = (uint32_t)minor;
    gpu->index = (uint32_t)index;
    gpu->numa_node = (int)numa;
    gpu->memory_total_bytes = (uint64_t)total;
    gpu->memory_promisable_bytes = (uint64_t)promisable;
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
        rc = decode_gpus(json_object_get(value, "gpus"), &reading->list, err);
    if (rc)
        return rc;
    reading->code = (int)code;
    reading->is_restart_wanted = json_is_true(json_object_get(value, "restart"));

    const json_t *left_out = json_object_get(value, "leftOut");
    for (size_t i = 0; i < json_array_size(left_out) && i < ALQ_NVML_GPUS_MAX; i++) {
        struct alq_nvml_left_out *out = &reading->left_out[i];
        json_int_t index = 0;
        rc = need_number(json_array_get(left_out, i), "index", 0, UINT32_MAX, &index, err);
        if (!rc)
            rc = copy_text(json_array_get(left_out, i), "reason", out->reason, sizeof(out->reason),
                           err);
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
