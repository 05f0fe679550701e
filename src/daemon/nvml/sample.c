/* SPDX-License-Identifier: Apache-2.0 */
/* Samples between NVML child and parent, see sample.h. Pure; owns what it returns. */
#include "daemon/nvml/sample.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "daemon/nvml/protocol.h"

static json_t *encode_gpu(const struct alq_gpu_sample *gpu)
{
    json_t *processes = gpu->has_processes ? json_array() : json_null();
    for (uint32_t i = 0; gpu->has_processes && i < gpu->process_count; i++) {
        const struct alq_process_sample *p = &gpu->processes[i];
        json_array_append_new(processes,
                              json_pack("[I, I, I]", (json_int_t)p->pid, (json_int_t)p->used_bytes,
                                        (json_int_t)p->sm_pct));
    }
    return json_pack("{s:s, s:I, s:I, s:i, s:i, s:o}", "uuid", gpu->uuid, "total",
                     (json_int_t)gpu->total_bytes, "used", (json_int_t)gpu->used_bytes, "util",
                     gpu->utilization_pct, "memoryUtil", gpu->memory_utilization_pct, "processes",
                     processes);
}

char *alq_sample_encode(const struct alq_sample *sample)
{
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < sample->gpu_count; i++)
        json_array_append_new(gpus, encode_gpu(&sample->gpus[i]));
    alq_auto_json json_t *value =
        json_pack("{s:I, s:o}", "begun", (json_int_t)sample->begun_ns, "gpus", gpus);
    return value ? alq_json_dump(value) : NULL;
}

static int decode_processes(const json_t *list, struct alq_gpu_sample *gpu, struct alq_err *err)
{
    size_t count = json_array_size(list);
    gpu->has_processes = json_is_array(list);
    if ((!gpu->has_processes && !json_is_null(list)) || count > ALQ_SAMPLE_PROCESSES_MAX)
        return alq_err_set(err, ALQ_EPROTO, "nvml sample: processes are missing or too many");
    if (count && !(gpu->processes = calloc(count, sizeof(*gpu->processes))))
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(list, i);
        json_int_t pid = 0, used = 0, sm = 0;
        int rc = alq_json_int(json_array_get(row, 0), "nvml sample: pid", 1, INT32_MAX, &pid, err);
        if (!rc)
            rc = alq_json_int(json_array_get(row, 1), "nvml sample: memory of a process",
                              ALQ_UNKNOWN, INT64_MAX, &used, err);
        if (!rc)
            rc = alq_json_int(json_array_get(row, 2), "nvml sample: utilisation of a process", 0,
                              100, &sm, err);
        if (rc)
            return rc;
        gpu->processes[i] = (struct alq_process_sample){(uint32_t)pid, used, (uint32_t)sm};
        gpu->process_count = (uint32_t)i + 1;
    }
    return 0;
}

static int decode_gpu(const json_t *value, struct alq_gpu_sample *gpu, struct alq_err *err)
{
    const char *uuid = json_string_value(json_object_get(value, "uuid"));
    json_int_t total = 0, used = 0, util = 0, memory_util = 0;
    if (!uuid || !*uuid || strlen(uuid) >= sizeof(gpu->uuid))
        return alq_err_set(err, ALQ_EPROTO, "nvml sample: uuid is missing or too long");
    memcpy(gpu->uuid, uuid, strlen(uuid));
    int rc = alq_json_int(json_object_get(value, "total"), "nvml sample: total", ALQ_UNKNOWN,
                          INT64_MAX, &total, err);
    if (!rc)
        rc = alq_json_int(json_object_get(value, "used"), "nvml sample: used", ALQ_UNKNOWN,
                          INT64_MAX, &used, err);
    if (!rc)
        rc = alq_json_int(json_object_get(value, "util"), "nvml sample: util", ALQ_UNKNOWN, 100,
                          &util, err);
    if (!rc)
        rc = alq_json_int(json_object_get(value, "memoryUtil"), "nvml sample: memoryUtil",
                          ALQ_UNKNOWN, 100, &memory_util, err);
    gpu->total_bytes = total;
    gpu->used_bytes = used;
    gpu->utilization_pct = (int)util;
    gpu->memory_utilization_pct = (int)memory_util;
    return rc ? rc : decode_processes(json_object_get(value, "processes"), gpu, err);
}

int alq_sample_decode(const char *line, size_t len, struct alq_sample *sample, struct alq_err *err)
{
    alq_auto_json json_t *value = NULL;
    json_int_t begun = 0;
    memset(sample, 0, sizeof(*sample));
    int rc = alq_json_parse(line, len, "nvml sample", &value, err);
    if (!rc)
        rc = alq_json_int(json_object_get(value, "begun"), "nvml sample: begun", 0, INT64_MAX,
                          &begun, err);
    if (rc)
        return rc;
    const json_t *gpus = json_object_get(value, "gpus");
    size_t count = json_array_size(gpus);
    if (!json_is_array(gpus) || count > ALQ_NVML_GPUS_MAX)
        return alq_err_set(err, ALQ_EPROTO, "nvml sample: gpus are missing or too many");
    sample->begun_ns = begun;
    sample->gpus = calloc(count ? count : 1, sizeof(*sample->gpus));
    if (!sample->gpus)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; i < count && !rc; i++) {
        sample->gpu_count = (uint32_t)i + 1;
        rc = decode_gpu(json_array_get(gpus, i), &sample->gpus[i], err);
    }
    return rc;
}

void alq_sample_clear(struct alq_sample *sample)
{
    for (uint32_t i = 0; i < sample->gpu_count; i++)
        free(sample->gpus[i].processes);
    free(sample->gpus);
    *sample = (struct alq_sample){0};
}

const struct alq_gpu_sample *alq_sample_find(const struct alq_sample *sample, const char *uuid)
{
    for (uint32_t i = 0; i < sample->gpu_count; i++)
        if (!strcmp(sample->gpus[i].uuid, uuid))
            return &sample->gpus[i];
    return NULL;
}

void alq_sample_add_process(struct alq_gpu_sample *gpu, uint32_t pid, int64_t used_bytes)
{
    struct alq_process_sample *p = gpu->processes, *end = p + gpu->process_count;
    while (p < end && p->pid != pid)
        p++;
    if (p == end) {
        if (gpu->process_count == ALQ_SAMPLE_PROCESSES_MAX)
            return;
        gpu->process_count++;
        *p = (struct alq_process_sample){.pid = pid, .used_bytes = ALQ_UNKNOWN};
    }
    if (used_bytes > p->used_bytes)
        p->used_bytes = used_bytes;
}
