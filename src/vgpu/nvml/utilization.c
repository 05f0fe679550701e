/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How busy the GPU is, as a program is told: the share's own time in percent of the GPU, so that a
 * full share of 30 percent reads 30, and its processes likewise. The time in which memory was read
 * or written is known of the whole card only and is shown in the same proportion. Where a share
 * does not limit compute nothing is measured, and the driver's answer stands. The driver is asked
 * first; its errors pass.
 */
#include "vgpu/clock.h"
#include "vgpu/driver.h"
#include "vgpu/nvml/load.h"
#include "vgpu/nvml/processes.h"

static bool is_shared(nvmlDevice_t device, struct alq_nvml_shares *s, uint32_t *pct)
{
    return alq_core_is_on() && alq_nvml_shares_of(device, s) && alq_load_pct(s, pct);
}

/* Memory time of the card in the proportion of the share's part of its GPU time. */
static unsigned int memory_part(unsigned int card_memory, unsigned int card_gpu, unsigned int gpu)
{
    if (card_gpu == 0 || gpu >= card_gpu)
        return card_memory < gpu ? card_memory : gpu;
    return card_memory * gpu / card_gpu;
}

ALQ_HOOK nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device,
                                                    nvmlUtilization_t *utilization)
{
    struct alq_nvml_shares s;
    uint32_t pct;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetUtilizationRates))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetUtilizationRates);
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetUtilizationRates, device, utilization);
    if (result != NVML_SUCCESS || !utilization || !is_shared(device, &s, &pct))
        return result;
    utilization->memory = memory_part(utilization->memory, utilization->gpu, pct);
    utilization->gpu = pct;
    return result;
}

ALQ_HOOK nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device,
                                                      nvmlGpuDynamicPstatesInfo_t *info)
{
    struct alq_nvml_shares s;
    uint32_t pct;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetDynamicPstatesInfo))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetDynamicPstatesInfo);
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetDynamicPstatesInfo, device, info);
    if (result != NVML_SUCCESS || !info || !is_shared(device, &s, &pct))
        return result;
    unsigned int *gpu = &info->utilization[NVML_GPU_UTILIZATION_DOMAIN_GPU].percentage;
    unsigned int *memory = &info->utilization[NVML_GPU_UTILIZATION_DOMAIN_FB].percentage;
    *memory = memory_part(*memory, *gpu, pct);
    *gpu = pct;
    return result;
}

/* The newest sample alone is kept: of the share's past no more than that is known. */
ALQ_HOOK nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                           unsigned long long since_us, nvmlValueType_t *value_type,
                                           unsigned int *count, nvmlSample_t *samples)
{
    struct alq_nvml_shares s;
    uint32_t pct;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetSamples))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetSamples);
    nvmlReturn_t result =
        ALQ_CALL_NVML(nvmlDeviceGetSamples, device, type, since_us, value_type, count, samples);
    if (result != NVML_SUCCESS || !samples || !*count ||
        (type != NVML_GPU_UTILIZATION_SAMPLES && type != NVML_MEMORY_UTILIZATION_SAMPLES) ||
        *value_type != NVML_VALUE_TYPE_UNSIGNED_INT || !is_shared(device, &s, &pct))
        return result;
    for (unsigned int i = 1; i < *count; i++)
        if (samples[i].timeStamp > samples[0].timeStamp)
            samples[0] = samples[i];
    *count = 1;
    if (type == NVML_GPU_UTILIZATION_SAMPLES)
        samples[0].sampleValue.uiVal = pct;
    else
        samples[0].sampleValue.uiVal = memory_part(samples[0].sampleValue.uiVal, 100, pct);
    return result;
}

/* ---- processes ------------------------------------------------------------------------------- */

/* A process is never shown busier than its share: two streams at once count twice for it alone. */
static uint32_t busy_of(const struct alq_nvml_process *p, uint32_t pct)
{
    return p->busy_pct < pct ? p->busy_pct : pct;
}

static unsigned long long now_us(void)
{
    return alq_clock_realtime_ns() / 1000;
}

ALQ_HOOK nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                      nvmlProcessUtilizationSample_t *samples,
                                                      unsigned int *count,
                                                      unsigned long long since_us)
{
    struct alq_nvml_shares s;
    struct alq_nvml_walk walk;
    struct alq_nvml_process process;
    uint32_t pct;
    unsigned int driver_count = 0, at = 0;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetProcessUtilization))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetProcessUtilization);
    if (!count || !is_shared(device, &s, &pct))
        return ALQ_CALL_NVML(nvmlDeviceGetProcessUtilization, device, samples, count, since_us);
    nvmlReturn_t result =
        ALQ_CALL_NVML(nvmlDeviceGetProcessUtilization, device, NULL, &driver_count, since_us);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    unsigned int room = samples ? *count : 0, found = alq_nvml_process_count(&s);
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    *count = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    alq_nvml_walk_begin(&s, &walk);
    while (at < found && alq_nvml_walk_next(&s, &walk, &process))
        samples[at++] = (nvmlProcessUtilizationSample_t){
            .pid = process.pid, .timeStamp = now_us(), .smUtil = busy_of(&process, pct)};
    *count = at;
    return NVML_SUCCESS;
}

ALQ_HOOK nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                            nvmlProcessesUtilizationInfo_t *info)
{
    struct alq_nvml_shares s;
    struct alq_nvml_walk walk;
    struct alq_nvml_process process;
    uint32_t pct;
    unsigned int at = 0;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetProcessesUtilizationInfo))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetProcessesUtilizationInfo);
    if (!info || info->version != nvmlProcessesUtilizationInfo_v1 || !is_shared(device, &s, &pct))
        return ALQ_CALL_NVML(nvmlDeviceGetProcessesUtilizationInfo, device, info);
    nvmlProcessesUtilizationInfo_t empty = {.version = info->version,
                                            .lastSeenTimeStamp = info->lastSeenTimeStamp};
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetProcessesUtilizationInfo, device, &empty);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    unsigned int room = info->procUtilArray ? info->processSamplesCount : 0,
                 found = alq_nvml_process_count(&s);
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    info->processSamplesCount = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    alq_nvml_walk_begin(&s, &walk);
    while (at < found && alq_nvml_walk_next(&s, &walk, &process))
        info->procUtilArray[at++] = (nvmlProcessUtilizationInfo_v1_t){
            .pid = process.pid, .timeStamp = now_us(), .smUtil = busy_of(&process, pct)};
    info->processSamplesCount = at;
    return NVML_SUCCESS;
}
