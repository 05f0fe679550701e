/* SPDX-License-Identifier: Apache-2.0 */
/* The use of the GPUs between NVML child and parent, see use.h. Pure; owns what it returns. */
#include "daemon/nvml/use.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "daemon/nvml/protocol.h"

static json_t *encode_gpu(const struct alq_use_gpu *gpu)
{
    json_t *processes = json_array();
    for (uint32_t i = 0; i < gpu->process_count; i++)
        json_array_append_new(processes, json_pack("[I, I]", (json_int_t)gpu->processes[i].pid,
                                                   (json_int_t)gpu->processes[i].sm_pct));
    return json_pack("{s:s, s:I, s:I, s:o}", "uuid", gpu->uuid, "window",
                     (json_int_t)gpu->window_ns, "age", (json_int_t)gpu->age_ns, "processes",
                     processes);
}

char *alq_use_encode(const struct alq_use *use)
{
    json_t *gpus = json_array();
    for (uint32_t i = 0; i < use->gpu_count; i++)
        json_array_append_new(gpus, encode_gpu(&use->gpus[i]));
    alq_auto_json json_t *value = json_pack("{s:o}", "gpus", gpus);
    return value ? alq_json_dump(value) : NULL;
}

static int decode_processes(const json_t *list, struct alq_use_gpu *gpu, struct alq_err *err)
{
    size_t count = json_array_size(list), most = gpu->window_ns ? ALQ_USE_PROCESSES_MAX : 0;
    json_int_t pid = 0, pct = 0;
    if (!json_is_array(list) || count > most)
        return alq_err_set(err, ALQ_EPROTO, "nvml use: processes are missing or too many");
    if (count && !(gpu->processes = calloc(count, sizeof(*gpu->processes))))
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(list, i);
        int rc =
            alq_json_int(json_array_get(row, 0), "nvml use: pid", pid + 1, INT32_MAX, &pid, err);
        if (!rc)
            rc = alq_json_int(json_array_get(row, 1), "nvml use: time of a process", 0, 100, &pct,
                              err);
        if (rc)
            return rc;
        gpu->processes[i] = (struct alq_use_process){(uint32_t)pid, (uint32_t)pct};
        gpu->process_count = (uint32_t)i + 1;
    }
    return 0;
}

/* Adds value to use, which has room. */
static int decode_gpu(const json_t *value, struct alq_use *use, struct alq_err *err)
{
    const char *uuid = json_string_value(json_object_get(value, "uuid"));
    struct alq_use_gpu *gpu = &use->gpus[use->gpu_count];
    json_int_t window = 0, age = 0;
    if (!uuid || !*uuid || strlen(uuid) >= sizeof(gpu->uuid) || alq_use_find(use, uuid))
        return alq_err_set(err, ALQ_EPROTO, "nvml use: uuid is missing, too long or there twice");
    use->gpu_count++;
    memcpy(gpu->uuid, uuid, strlen(uuid));
    int rc = alq_json_int(json_object_get(value, "window"), "nvml use: window", 0, INT64_MAX,
                          &window, err);
    if (!rc)
        rc = alq_json_int(json_object_get(value, "age"), "nvml use: age", 0,
                          window ? ALQ_USE_AGE_NS_MAX : 0, &age, err);
    gpu->window_ns = window;
    gpu->age_ns = age;
    return rc ? rc : decode_processes(json_object_get(value, "processes"), gpu, err);
}

int alq_use_decode(const char *line, size_t len, struct alq_use *use, struct alq_err *err)
{
    alq_auto_json json_t *value = NULL;
    memset(use, 0, sizeof(*use));
    int rc = alq_json_parse(line, len, "nvml use", &value, err);
    if (rc)
        return rc;
    const json_t *gpus = json_object_get(value, "gpus");
    size_t count = json_array_size(gpus);
    if (!json_is_array(gpus) || count > ALQ_NVML_GPUS_MAX)
        return alq_err_set(err, ALQ_EPROTO, "nvml use: gpus are missing or too many");
    use->gpus = calloc(count ? count : 1, sizeof(*use->gpus));
    if (!use->gpus)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; i < count && !rc; i++)
        rc = decode_gpu(json_array_get(gpus, i), use, err);
    return rc;
}

void alq_use_clear(struct alq_use *use)
{
    for (uint32_t i = 0; i < use->gpu_count; i++)
        free(use->gpus[i].processes);
    free(use->gpus);
    *use = (struct alq_use){0};
}

const struct alq_use_gpu *alq_use_find(const struct alq_use *use, const char *uuid)
{
    for (uint32_t i = 0; i < use->gpu_count; i++)
        if (!strcmp(use->gpus[i].uuid, uuid))
            return &use->gpus[i];
    return NULL;
}
