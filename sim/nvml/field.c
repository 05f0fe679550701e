/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readings asked for by number or by kind: field values, samples, ECC counters. One that is not
 * known is NOT_SUPPORTED in its own place and no error of the whole call.
 */
#include "nvml/nvml.h"

#include <string.h>
#include <time.h>

static unsigned long long now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (unsigned long long)t.tv_sec * 1000000u + (unsigned long long)t.tv_nsec / 1000u;
}

static nvmlReturn_t set_whole(nvmlFieldValue_t *v, unsigned long long value)
{
    v->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    v->value.ullVal = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t set_uint(nvmlFieldValue_t *v, unsigned int value)
{
    v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    v->value.uiVal = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t fill(const struct sim_device_state *s, nvmlFieldValue_t *v)
{
    memset(&v->value, 0, sizeof(v->value));
    switch (v->fieldId) {
    case NVML_FI_DEV_ECC_CURRENT:
    case NVML_FI_DEV_ECC_PENDING:
        return set_uint(v, NVML_FEATURE_ENABLED);
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_SBE_AGG_TOTAL:
        return set_whole(v, s->ecc_corrected);
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL:
        return set_whole(v, s->ecc_uncorrected);
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
        return set_uint(v, NVML_POWER_IDLE_MW);
    case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
        return nvml_profile == SIM_PROFILE_13_0 ? set_uint(v, s->recovery_action)
                                                : NVML_ERROR_NOT_SUPPORTED;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    struct sim_device_state s;

    TRY(nvml_check(device));
    NEED(count > 0 && values, NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvml_state(device, &s));
    for (int i = 0; i < count; i++) {
        values[i].timestamp = (long long)now_us();
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = fill(&s, &values[i]);
    }
    return NVML_SUCCESS;
}

/* The buffer holds the newest sample only. */
nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long since_us, nvmlValueType_t *value_type,
                                  unsigned int *count, nvmlSample_t *samples)
{
    struct sim_device_state s;
    nvmlSample_t sample = {.timeStamp = now_us()};

    TRY(nvml_check(device));
    NEED(value_type && count && type <= NVML_OFA_UTILIZATION_SAMPLES, NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvml_state(device, &s));
    if (type == NVML_GPU_UTILIZATION_SAMPLES)
        sample.sampleValue.uiVal = s.utilization_pct;
    else if (type == NVML_MEMORY_UTILIZATION_SAMPLES)
        sample.sampleValue.uiVal = nvml_memory_pct(s.utilization_pct);
    else if (type == NVML_TOTAL_POWER_SAMPLES)
        sample.sampleValue.uiVal = NVML_POWER_IDLE_MW;
    else if (type != NVML_ENC_UTILIZATION_SAMPLES && type != NVML_DEC_UTILIZATION_SAMPLES)
        return NVML_ERROR_NOT_SUPPORTED;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!samples) {
        *count = 1;
        return NVML_SUCCESS;
    }
    NEED(*count, NVML_ERROR_INSUFFICIENT_SIZE);
    NEED(sample.timeStamp > since_us, NVML_ERROR_NOT_FOUND);
    *count = 1;
    samples[0] = sample;
    return NVML_SUCCESS;
}

/* ECC */

static nvmlReturn_t ecc_count(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                              nvmlEccCounterType_t counter, unsigned long long *count)
{
    struct sim_device_state s;

    TRY(nvml_check(device));
    NEED(count && type <= NVML_MEMORY_ERROR_TYPE_UNCORRECTED && counter <= NVML_AGGREGATE_ECC,
         NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvml_state(device, &s));
    *count = type == NVML_MEMORY_ERROR_TYPE_CORRECTED ? s.ecc_corrected : s.ecc_uncorrected;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *count)
{
    return ecc_count(device, type, counter, count);
}

/* All errors are the device memory's. */
nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                             nvmlEccCounterType_t counter,
                                             nvmlMemoryLocation_t location,
                                             unsigned long long *count)
{
    NEED(location <= NVML_MEMORY_LOCATION_SRAM, NVML_ERROR_INVALID_ARGUMENT);
    TRY(ecc_count(device, type, counter, count));
    if (location != NVML_MEMORY_LOCATION_DRAM)
        *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                            nvmlEccCounterType_t counter,
                                            nvmlEccErrorCounts_t *counts)
{
    unsigned long long count;

    NEED(counts, NVML_ERROR_INVALID_ARGUMENT);
    TRY(ecc_count(device, type, counter, &count));
    *counts = (nvmlEccErrorCounts_t){.deviceMemory = count};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *mode,
                                  nvmlEnableState_t *pending)
{
    TRY(nvml_check(device));
    NEED(mode && pending, NVML_ERROR_INVALID_ARGUMENT);
    *mode = *pending = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    TRY(nvml_check(device));
    NEED(mode, NVML_ERROR_INVALID_ARGUMENT);
    *mode = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}
