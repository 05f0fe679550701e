/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/env.h"

#include <stddef.h>

#include "vgpu/size.h"
#include "vgpu/text.h"

/* HAMi-core's own default. */
#define DEFAULT_USAGE_PATH "/tmp/cudevshr.cache"

/* The value when the entry is NAME=value, else NULL. */
static const char *value_of(const char *entry, const char *name)
{
    size_t len = alq_text_len(name);
    return alq_text_starts(entry, name) && entry[len] == '=' ? entry + len + 1 : NULL;
}

/* The value when the entry is PREFIX_<i>=value, else NULL. */
static const char *indexed_value_of(const char *entry, const char *prefix, uint32_t *index)
{
    uint64_t number;
    if (!alq_text_starts(entry, prefix))
        return NULL;
    entry += alq_text_len(prefix);
    if (*entry++ != '_' || !alq_text_read_u64(&entry, &number) || *entry != '=')
        return NULL;
    *index = number < ALQ_ENV_DEVICES ? (uint32_t)number : ALQ_ENV_DEVICES;
    return entry + 1;
}

static void bad(struct alq_env *out, const char *entry, const char *value, bool is_index)
{
    if (out->bad_name)
        return;
    out->bad_index = is_index;
    out->bad_name = entry;
    out->bad_name_len = (uint32_t)(value - entry - 1);
    out->bad_value = value;
}

void alq_env_read(char *const *environ, struct alq_env *out)
{
    uint64_t memory_all = 0;
    uint32_t compute_all = 0, index = 0;
    const char *value;

    *out = (struct alq_env){
        .policy = ALQ_POLICY_HARD, .priority = 1, .usage_path = DEFAULT_USAGE_PATH};
    for (; environ && *environ; environ++) {
        const char *entry = *environ;
        if (!alq_text_starts(entry, "CUDA_") && !alq_text_starts(entry, "GPU_CORE") &&
            !alq_text_starts(entry, "LIBCUDA_") && !alq_text_starts(entry, "ALIQUOT_"))
            continue;
        if ((value = value_of(entry, "CUDA_DEVICE_MEMORY_LIMIT"))) {
            if (!alq_size_read(value, &memory_all))
                bad(out, entry, value, false);
        } else if ((value = indexed_value_of(entry, "CUDA_DEVICE_MEMORY_LIMIT", &index))) {
            if (index == ALQ_ENV_DEVICES || !alq_size_read(value, &out->memory_bytes[index]))
                bad(out, entry, value, index == ALQ_ENV_DEVICES);
        } else if ((value = value_of(entry, "CUDA_DEVICE_SM_LIMIT"))) {
            if (!alq_percent_read(value, &compute_all))
                bad(out, entry, value, false);
        } else if ((value = indexed_value_of(entry, "CUDA_DEVICE_SM_LIMIT", &index))) {
            if (index == ALQ_ENV_DEVICES || !alq_percent_read(value, &out->compute_pct[index]))
                bad(out, entry, value, index == ALQ_ENV_DEVICES);
        } else if ((value = value_of(entry, "CUDA_DEVICE_MEMORY_SHARED_CACHE"))) {
            if (*value)
                out->usage_path = value;
        } else if ((value = value_of(entry, "GPU_CORE_UTILIZATION_POLICY"))) {
            out->policy = alq_text_is_nocase(value, "disable") ? ALQ_POLICY_NONE : ALQ_POLICY_HARD;
        } else if ((value = value_of(entry, "CUDA_TASK_PRIORITY"))) {
            uint64_t number;
            if (alq_text_read_u64(&value, &number) && *value == '\0')
                out->priority = number ? 1 : 0;
        } else if ((value = value_of(entry, "LIBCUDA_LOG_LEVEL"))) {
            uint64_t number;
            if (alq_text_read_u64(&value, &number) && *value == '\0')
                out->log_level = number > 4 ? 4 : (uint32_t)number;
        } else if ((value = value_of(entry, "ALIQUOT_CONTEXT_BYTES"))) {
            if (!alq_size_read(value, &out->context_bytes))
                bad(out, entry, value, false);
        } else if ((value = value_of(entry, "ALIQUOT_SHARE_ROOT"))) {
            out->share_root = *value ? value : NULL;
        } else if ((value = value_of(entry, "CUDA_VISIBLE_DEVICES"))) {
            out->visible = value;
        }
    }
    out->is_uniform = out->is_first_only = true;
    for (uint32_t i = 0; i <= ALQ_ENV_DEVICES; i++) {
        if (out->memory_bytes[i] == 0)
            out->memory_bytes[i] = memory_all;
        if (out->compute_pct[i] == 0)
            out->compute_pct[i] = compute_all;
        if (out->compute_pct[i] >= 100)
            out->compute_pct[i] = 0;
        if (out->memory_bytes[i] || (out->compute_pct[i] && out->policy != ALQ_POLICY_NONE))
            out->has_limits = true;
        if (i && (out->memory_bytes[i] || out->compute_pct[i]))
            out->is_first_only = false;
        if (out->memory_bytes[i] != out->memory_bytes[0] ||
            out->compute_pct[i] != out->compute_pct[0])
            out->is_uniform = false;
    }
}
