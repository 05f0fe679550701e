/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes: the running lists in their three versions and per-process utilisation. PIDs are the
 * caller's namespace's; processes outside it are not shown.
 */
#include "nvml/nvml.h"

#include <stdlib.h>
#include <string.h>

static nvmlReturn_t fetch(nvmlDevice_t device, struct sim_process_list **list)
{
    nvmlReturn_t rc;

    *list = malloc(SIM_MESSAGE_BYTES);
    NEED(*list, NVML_ERROR_MEMORY);
    rc = nvml_ask(SIM_PROCESSES, device, 0, *list, SIM_MESSAGE_BYTES);
    if (rc != NVML_SUCCESS) {
        free(*list);
        *list = NULL;
    }
    return rc;
}

/* All lists behave alike: *count in is the room, out the number; too little room gives the number
 * and INSUFFICIENT_SIZE. size is that of an element, in which pid and usedGpuMemory come first. */
static nvmlReturn_t compute_list(nvmlDevice_t device, unsigned int *count, void *out, size_t size)
{
    struct sim_process_list *list;
    unsigned int room;

    TRY(nvml_check(device));
    NEED(count && (out || !*count), NVML_ERROR_INVALID_ARGUMENT);
    TRY(fetch(device, &list));
    room = *count;
    *count = list->count;
    for (uint32_t i = 0; i < list->count && list->count <= room; i++) {
        nvmlProcessInfo_v2_t p = {
            .pid = list->process[i].pid,
            .usedGpuMemory = list->process[i].used_bytes,
            .gpuInstanceId = NVML_NO_INSTANCE_ID,
            .computeInstanceId = NVML_NO_INSTANCE_ID,
        };

        memcpy((char *)out + i * size, &p, size);
    }
    free(list);
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                  nvmlProcessInfo_v1_t *infos)
{
    return compute_list(device, count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *infos)
{
    return compute_list(device, count, infos, sizeof(*infos));
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                     nvmlProcessInfo_v2_t *infos)
{
    return compute_list(device, count, infos, sizeof(*infos));
}

/* No process draws or uses MPS here. */
static nvmlReturn_t empty_list(nvmlDevice_t device, unsigned int *count)
{
    TRY(nvml_check(device));
    NEED(count, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    return NVML_SUCCESS;
}

#define SIM_ENTRY_EMPTY(function, type)                                                            \
    nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, type *infos)                   \
    {                                                                                              \
        (void)infos;                                                                               \
        return empty_list(device, count);                                                          \
    }

/* clang-format off */
SIM_ENTRY_EMPTY(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
SIM_ENTRY_EMPTY(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
SIM_ENTRY_EMPTY(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t)
SIM_ENTRY_EMPTY(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
SIM_ENTRY_EMPTY(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
SIM_ENTRY_EMPTY(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t)
/* clang-format on */

nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                   nvmlProcessDetailList_t *detail)
{
    struct sim_process_list *list;
    unsigned int room;

    TRY(nvml_check(device));
    NEED(detail, NVML_ERROR_INVALID_ARGUMENT);
    NEED(detail->version == nvmlProcessDetailList_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    NEED(detail->mode <= 2, NVML_ERROR_INVALID_ARGUMENT);
    TRY(fetch(device, &list));
    if (detail->mode != 0)
        list->count = 0;
    room = detail->procArray ? detail->numProcArrayEntries : 0;
    detail->numProcArrayEntries = list->count;
    for (uint32_t i = 0; i < list->count && list->count <= room; i++)
        detail->procArray[i] = (nvmlProcessDetail_v1_t){
            .pid = list->process[i].pid,
            .usedGpuMemory = list->process[i].used_bytes,
            .gpuInstanceId = NVML_NO_INSTANCE_ID,
            .computeInstanceId = NVML_NO_INSTANCE_ID,
        };
    free(list);
    return detail->numProcArrayEntries > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* Utilisation */

static nvmlReturn_t fetch_samples(nvmlDevice_t device, uint64_t since_us,
                                  struct sim_sample_list **list)
{
    nvmlReturn_t rc;

    *list = malloc(SIM_MESSAGE_BYTES);
    NEED(*list, NVML_ERROR_MEMORY);
    rc = nvml_ask(SIM_SAMPLES, device, since_us, *list, SIM_MESSAGE_BYTES);
    if (rc == NVML_SUCCESS && !(*list)->count)
        rc = NVML_ERROR_NOT_FOUND; /* as the driver says when nothing ran */
    if (rc != NVML_SUCCESS) {
        free(*list);
        *list = NULL;
    }
    return rc;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned int *count, unsigned long long since_us)
{
    struct sim_sample_list *list;
    unsigned int room;

    TRY(nvml_check(device));
    NEED(count, NVML_ERROR_INVALID_ARGUMENT);
    TRY(fetch_samples(device, since_us, &list));
    room = samples ? *count : 0;
    *count = list->count;
    for (uint32_t i = 0; i < list->count && list->count <= room; i++)
        samples[i] = (nvmlProcessUtilizationSample_t){
            .pid = list->sample[i].pid,
            .timeStamp = list->sample[i].time_us,
            .smUtil = list->sample[i].sm_pct,
        };
    free(list);
    return *count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info)
{
    struct sim_sample_list *list;
    unsigned int room;

    TRY(nvml_check(device));
    NEED(info, NVML_ERROR_INVALID_ARGUMENT);
    NEED(info->version == nvmlProcessesUtilizationInfo_v1, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    TRY(fetch_samples(device, info->lastSeenTimeStamp, &list));
    room = info->procUtilArray ? info->processSamplesCount : 0;
    info->processSamplesCount = list->count;
    for (uint32_t i = 0; i < list->count && list->count <= room; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = list->sample[i].time_us,
            .pid = list->sample[i].pid,
            .smUtil = list->sample[i].sm_pct,
        };
    free(list);
    return info->processSamplesCount > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
