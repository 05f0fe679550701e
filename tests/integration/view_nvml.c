/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml with one card of 80 GiB on which confidential computing and accounting are on,
 * which the simulated one has not: for test_vgpu_view.py. Two processes of other tenants are in its
 * books.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "aliquot/nvml_abi.h"

#define CARD (80ull << 30)
#define HELD (50ull << 30)

nvmlReturn_t nvmlInit_v2(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)(uintptr_t)(index + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    (void)device;
    snprintf(uuid, length, "%s", UUID);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    (void)device;
    *memory = (nvmlMemory_t){.total = CARD, .free = CARD - HELD, .used = HELD};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, nvmlMemory_t *memory)
{
    return nvmlDeviceGetMemoryInfo(device, memory);
}

nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device,
                                                 nvmlConfComputeMemSizeInfo_t *size)
{
    (void)device;
    *size = (nvmlConfComputeMemSizeInfo_t){(CARD - (1ull << 30)) / 1024, (1ull << 30) / 1024};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    (void)device;
    *utilization = (nvmlUtilization_t){.gpu = 90, .memory = 40};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info)
{
    (void)device;
    memset(info, 0, sizeof(*info));
    for (int i = 0; i < 4; i++) {
        info->utilization[i].bIsPresent = 1;
        info->utilization[i].percentage = 90 - 10 * (unsigned int)i;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                         unsigned int *pids)
{
    unsigned int room = *count;
    (void)device;
    *count = 2;
    if (room < 2)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    pids[0] = 1234;
    pids[1] = 5678;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                          nvmlAccountingStats_t *stats)
{
    (void)device;
    if (!stats)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(stats, 0, sizeof(*stats));
    stats->maxMemoryUsage = HELD;
    return pid == 1234 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)
{
    (void)device;
    if (!stats)
        return NVML_ERROR_INVALID_ARGUMENT;
    stats->maxMemoryUsage = HELD;
    return stats->pid == 1234 ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}
