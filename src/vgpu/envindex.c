/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/envindex.h"

#include "vgpu/doors/doors.h"
#include "vgpu/driver.h"
#include "vgpu/log.h"

static _Atomic uint32_t said_smallest;

typedef void *dlopen_fn(const char *file, int mode);

/* -1: NVML does not answer, or does not know the GPU. */
static int nvml_index(const char *uuid)
{
    unsigned count = 0;
    int found = -1;

    if (!alq_real_is_loaded(ALQ_NVML_nvmlInit_v2)) {
        const int lazy = 1;
        ((dlopen_fn *)alq_door_next(ALQ_DOOR_DLOPEN))("libnvidia-ml.so.1", lazy);
    }
    if (!alq_real(ALQ_NVML_nvmlInit_v2) || !alq_real(ALQ_NVML_nvmlShutdown) ||
        !alq_real(ALQ_NVML_nvmlDeviceGetCount_v2) ||
        !alq_real(ALQ_NVML_nvmlDeviceGetHandleByIndex_v2) ||
        !alq_real(ALQ_NVML_nvmlDeviceGetUUID) || ALQ_CALL_NVML(nvmlInit_v2) != NVML_SUCCESS)
        return -1;
    if (ALQ_CALL_NVML(nvmlDeviceGetCount_v2, &count) == NVML_SUCCESS)
        for (unsigned i = 0; i < count && found < 0; i++) {
            nvmlDevice_t device;
            char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
            if (ALQ_CALL_NVML(nvmlDeviceGetHandleByIndex_v2, i, &device) == NVML_SUCCESS &&
                ALQ_CALL_NVML(nvmlDeviceGetUUID, device, text, sizeof(text)) == NVML_SUCCESS &&
                alq_text_is_uuid(text, uuid))
                found = (int)i;
        }
    ALQ_CALL_NVML(nvmlShutdown); /* init and shutdown are counted: the program's own stays */
    return found;
}

static void use_smallest(struct alq_env *env)
{
    struct alq_line line;
    uint64_t memory = 0;
    uint32_t compute = 0;

    for (uint32_t i = 0; i <= ALQ_ENV_DEVICES; i++) {
        if (env->memory_bytes[i] && (memory == 0 || env->memory_bytes[i] < memory))
            memory = env->memory_bytes[i];
        if (env->compute_pct[i] && (compute == 0 || env->compute_pct[i] < compute))
            compute = env->compute_pct[i];
    }
    for (uint32_t i = 0; i <= ALQ_ENV_DEVICES; i++) {
        env->memory_bytes[i] = memory;
        env->compute_pct[i] = compute;
    }
    env->is_uniform = true;
    alq_log_begin(&line, ALQ_LOG_WARN);
    alq_text_add(&line.text, "NVML cannot tell the order of the GPUs; the smallest limit of the "
                             "environment holds for each");
    alq_log_end_always(&line, &said_smallest);
}

uint32_t alq_env_index(struct alq_env *env, const char *uuid, uint32_t cuda_count)
{
    /* The only device that CUDA shows has the only limit, whatever its place. */
    if (env->is_uniform || (cuda_count == 1 && !env->visible && env->is_first_only))
        return 0;
    int index = nvml_index(uuid);
    if (index >= 0)
        return (uint32_t)index;
    use_smallest(env);
    return 0;
}
