/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML's accounting, where root has switched it on: records of all processes of the card by the
 * node's PIDs, those of other tenants among them. Under a share none is shown, as on a card that
 * has just been switched to it. The driver judges its arguments first; its errors pass.
 */
#include "vgpu/driver.h"
#include "vgpu/nvml/device.h"

ALQ_HOOK nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count,
                                                  unsigned int *pids)
{
    struct alq_nvml_shares s;
    unsigned int driver_count = 0;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetAccountingPids))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetAccountingPids);
    if (!count || (*count && !pids) || !alq_core_is_on() || !alq_nvml_shares_of(device, &s))
        return ALQ_CALL_NVML(nvmlDeviceGetAccountingPids, device, count, pids);
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetAccountingPids, device, &driver_count, NULL);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    *count = 0;
    return NVML_SUCCESS;
}

ALQ_HOOK nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid,
                                                   nvmlAccountingStats_t *stats)
{
    struct alq_nvml_shares s;
    nvmlAccountingStats_t unseen;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetAccountingStats))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetAccountingStats);
    if (!stats || !alq_core_is_on() || !alq_nvml_shares_of(device, &s))
        return ALQ_CALL_NVML(nvmlDeviceGetAccountingStats, device, pid, stats);
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetAccountingStats, device, pid, &unseen);
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

ALQ_HOOK nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device,
                                                      nvmlAccountingStats_v2_t *stats)
{
    struct alq_nvml_shares s;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetAccountingStats_v2))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetAccountingStats_v2);
    if (!stats || !alq_core_is_on() || !alq_nvml_shares_of(device, &s))
        return ALQ_CALL_NVML(nvmlDeviceGetAccountingStats_v2, device, stats);
    nvmlAccountingStats_v2_t unseen = *stats;
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetAccountingStats_v2, device, &unseen);
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}
