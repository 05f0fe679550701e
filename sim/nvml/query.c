/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device is and how it does: handles, identity, memory, utilisation, and the readings that
 * nvidia-smi's default table shows. A data-centre card without MIG, fan or display.
 */
#include "nvml/nvml.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Figures nobody's decision rests on; plausible for a card of 700 W at rest. */
#define POWER_LIMIT_MW 700000u
#define TEMPERATURE_C 32u
#define CLOCK_GRAPHICS_MHZ 1980u
#define CLOCK_MEMORY_MHZ 2619u

/* Handles */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    TRY(nvml_ready());
    NEED(count, NVML_ERROR_INVALID_ARGUMENT);
    *count = nvml_count();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    TRY(nvml_ready());
    NEED(device && index < nvml_count(), NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvml_check(nvml_at(index)));
    *device = nvml_at(index);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    TRY(nvml_ready());
    NEED(uuid && device, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t i = 0; i < nvml_count(); i++) {
        if (strcasecmp(nvml_at(i)->info.uuid, uuid) == 0) {
            TRY(nvml_check(nvml_at(i)));
            *device = nvml_at(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    TRY(nvml_ready());
    NEED(serial && device, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t i = 0; i < nvml_count(); i++) {
        if (strcmp(nvml_at(i)->info.serial, serial) == 0) {
            TRY(nvml_check(nvml_at(i)));
            *device = nvml_at(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
    unsigned int domain = 0, bus, slot, function = 0;

    TRY(nvml_ready());
    NEED(id && device, NVML_ERROR_INVALID_ARGUMENT);
    if (sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
        domain = 0;
        NEED(sscanf(id, "%x:%x.%x", &bus, &slot, &function) >= 2, NVML_ERROR_INVALID_ARGUMENT);
    }
    for (uint32_t i = 0; i < nvml_count(); i++) {
        const struct sim_device_info *info = &nvml_at(i)->info;

        if (info->pci_domain == domain && info->pci_bus == bus && info->pci_device == slot &&
            function == 0) {
            TRY(nvml_check(nvml_at(i)));
            *device = nvml_at(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

/* Identity */

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    TRY(nvml_check(device));
    NEED(index, NVML_ERROR_INVALID_ARGUMENT);
    *index = (unsigned int)(device - nvml_at(0));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    TRY(nvml_check(device));
    return nvml_text(name, length, device->info.name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    TRY(nvml_check(device));
    return nvml_text(uuid, length, device->info.uuid);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    TRY(nvml_check(device));
    return nvml_text(serial, length, device->info.serial);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    TRY(nvml_check(device));
    return nvml_text(version, length, "96.00.5E.00.01");
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    TRY(nvml_check(device));
    NEED(minor, NVML_ERROR_INVALID_ARGUMENT);
    *minor = device->info.minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    const struct sim_device_info *i = &device->info;

    TRY(nvml_check(device));
    NEED(pci, NVML_ERROR_INVALID_ARGUMENT);
    memset(pci, 0, sizeof(*pci));
    pci->domain = i->pci_domain;
    pci->bus = i->pci_bus;
    pci->device = i->pci_device;
    pci->pciDeviceId = 0x233010deu;
    pci->pciSubSystemId = 0x16c110deu;
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", i->pci_domain & 0xffff,
             i->pci_bus & 0xff, i->pci_device & 0xff);
    snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", i->pci_domain, i->pci_bus,
             i->pci_device);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    nvmlPciInfo_t full;

    NEED(pci, NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvmlDeviceGetPciInfo_v3(device, &full));
    memset(pci, 0, sizeof(*pci));
    memcpy(pci, &full, offsetof(nvmlPciInfo_v2_t, reserved));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v1_t *pci)
{
    nvmlPciInfo_t full;

    NEED(pci, NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvmlDeviceGetPciInfo_v3(device, &full));
    memcpy(pci, &full, sizeof(*pci));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci)
{
    nvmlPciInfo_t full;

    TRY(nvml_check(device));
    NEED(pci, NVML_ERROR_INVALID_ARGUMENT);
    NEED(pci->version == ALQ_NVML_VERSION(nvmlPciInfoExt_v1_t, 1),
         NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    TRY(nvmlDeviceGetPciInfo_v3(device, &full));
    pci->domain = full.domain;
    pci->bus = full.bus;
    pci->device = full.device;
    pci->pciDeviceId = full.pciDeviceId;
    pci->pciSubSystemId = full.pciSubSystemId;
    pci->baseClass = 0x03;
    pci->subClass = 0x02;
    memcpy(pci->busId, full.busId, sizeof(pci->busId));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand)
{
    TRY(nvml_check(device));
    NEED(brand, NVML_ERROR_INVALID_ARGUMENT);
    *brand = strstr(device->info.name, "GeForce") ? NVML_BRAND_GEFORCE
             : strstr(device->info.name, "Tesla") ? NVML_BRAND_TESLA
                                                  : NVML_BRAND_NVIDIA;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch)
{
    unsigned int major, minor;

    TRY(nvml_check(device));
    NEED(arch, NVML_ERROR_INVALID_ARGUMENT);
    major = device->info.cc_major;
    minor = device->info.cc_minor;
    *arch = major >= 10  ? NVML_DEVICE_ARCH_BLACKWELL
            : major == 9 ? NVML_DEVICE_ARCH_HOPPER
            : major == 8 ? (minor == 9 ? NVML_DEVICE_ARCH_ADA : NVML_DEVICE_ARCH_AMPERE)
            : major == 7 ? (minor == 5 ? NVML_DEVICE_ARCH_TURING : NVML_DEVICE_ARCH_VOLTA)
            : major == 6 ? NVML_DEVICE_ARCH_PASCAL
            : major == 5 ? NVML_DEVICE_ARCH_MAXWELL
                         : NVML_DEVICE_ARCH_KEPLER;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    TRY(nvml_check(device));
    NEED(major && minor, NVML_ERROR_INVALID_ARGUMENT);
    *major = (int)device->info.cc_major;
    *minor = (int)device->info.cc_minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *cores)
{
    TRY(nvml_check(device));
    NEED(cores, NVML_ERROR_INVALID_ARGUMENT);
    *cores = device->info.sms * 128;
    return NVML_SUCCESS;
}

/* Memory and utilisation */

/* What is withheld and what is held may together be more than there is. */
static unsigned long long at_most(unsigned long long bytes, unsigned long long most)
{
    return bytes < most ? bytes : most;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct sim_device_state s;

    TRY(nvml_check(device));
    NEED(memory, NVML_ERROR_INVALID_ARGUMENT);
    NEED(memory->version == nvmlMemory_v2, NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    TRY(nvml_state(device, &s));
    memory->total = device->info.total_bytes;
    memory->reserved = device->info.reserved_bytes;
    memory->used = s.used_bytes + s.withheld_bytes;
    memory->used = at_most(memory->used, memory->total - memory->reserved);
    memory->free = memory->total - memory->reserved - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct sim_device_state s;

    TRY(nvml_check(device));
    NEED(memory, NVML_ERROR_INVALID_ARGUMENT);
    TRY(nvml_state(device, &s));
    memory->total = device->info.total_bytes;
    memory->used = device->info.reserved_bytes + s.used_bytes + s.withheld_bytes;
    memory->used = at_most(memory->used, memory->total);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    TRY(nvml_check(device));
    NEED(memory, NVML_ERROR_INVALID_ARGUMENT);
    memory->bar1Total = device->info.total_bytes;
    memory->bar1Used = 1 << 20;
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    struct sim_device_state s;

    TRY(nvml_check(device));
    NEED(utilization, NVML_ERROR_INVALID_ARGUMENT);
    NEED(!device->info.mig, NVML_ERROR_NOT_SUPPORTED); /* as of a card cut into instances */
    TRY(nvml_state(device, &s));
    utilization->gpu = s.utilization_pct;
    utilization->memory = nvml_memory_pct(s.utilization_pct);
    return NVML_SUCCESS;
}

/* Readings of the default table */

#define SIMPLE(function, type, value)                                                              \
    nvmlReturn_t function(nvmlDevice_t device, type *out)                                          \
    {                                                                                              \
        TRY(nvml_check(device));                                                                   \
        NEED(out, NVML_ERROR_INVALID_ARGUMENT);                                                    \
        *out = (value);                                                                            \
        return NVML_SUCCESS;                                                                       \
    }

#define SIM_ENTRY_SIMPLE SIMPLE

/* clang-format off: one row each, at the start of the line (gen_entries.py looks for them there) */
SIM_ENTRY_SIMPLE(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
SIM_ENTRY_SIMPLE(nvmlDeviceGetDisplayActive, nvmlEnableState_t, NVML_FEATURE_DISABLED)
SIM_ENTRY_SIMPLE(nvmlDeviceGetDisplayMode, nvmlEnableState_t, NVML_FEATURE_DISABLED)
SIM_ENTRY_SIMPLE(nvmlDeviceGetComputeMode, nvmlComputeMode_t, NVML_COMPUTEMODE_DEFAULT)
SIM_ENTRY_SIMPLE(nvmlDeviceGetPerformanceState, nvmlPstates_t, NVML_PSTATE_0)
SIM_ENTRY_SIMPLE(nvmlDeviceGetPowerState, nvmlPstates_t, NVML_PSTATE_0)
SIM_ENTRY_SIMPLE(nvmlDeviceGetPowerUsage, unsigned int, NVML_POWER_IDLE_MW)
SIM_ENTRY_SIMPLE(nvmlDeviceGetPowerManagementMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
SIM_ENTRY_SIMPLE(nvmlDeviceGetPowerManagementLimit, unsigned int, POWER_LIMIT_MW)
SIM_ENTRY_SIMPLE(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, POWER_LIMIT_MW)
SIM_ENTRY_SIMPLE(nvmlDeviceGetEnforcedPowerLimit, unsigned int, POWER_LIMIT_MW)
SIM_ENTRY_SIMPLE(nvmlDeviceGetVirtualizationMode, nvmlGpuVirtualizationMode_t,
                 NVML_GPU_VIRTUALIZATION_MODE_NONE)
SIM_ENTRY_SIMPLE(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
SIM_ENTRY_SIMPLE(nvmlDeviceGetBoardId, unsigned int, device->info.pci_bus << 8)
SIM_ENTRY_SIMPLE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, 5)
SIM_ENTRY_SIMPLE(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned int, 5)
SIM_ENTRY_SIMPLE(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, 16)
SIM_ENTRY_SIMPLE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, 5)
SIM_ENTRY_SIMPLE(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)
SIM_ENTRY_SIMPLE(nvmlDeviceGetBusType, nvmlBusType_t, NVML_BUS_TYPE_PCIE)
SIM_ENTRY_SIMPLE(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
SIM_ENTRY_SIMPLE(nvmlDeviceGetMaxMigDeviceCount, unsigned int, device->info.mig ? 7 : 0)
SIM_ENTRY_SIMPLE(nvmlDeviceGetNumFans, unsigned int, 0)
/* clang-format on */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *mode, unsigned int *pending)
{
    TRY(nvml_check(device));
    NEED(mode && pending, NVML_ERROR_INVALID_ARGUMENT);
    NEED(device->info.cc_major >= 8 && device->info.cc_minor == 0, NVML_ERROR_NOT_SUPPORTED);
    *mode = *pending = device->info.mig ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned int *temperature)
{
    TRY(nvml_check(device));
    NEED(temperature && sensor == NVML_TEMPERATURE_GPU, NVML_ERROR_INVALID_ARGUMENT);
    *temperature = TEMPERATURE_C;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                               nvmlTemperatureThresholds_t which,
                                               unsigned int *temperature)
{
    TRY(nvml_check(device));
    NEED(temperature && which <= NVML_TEMPERATURE_THRESHOLD_GPU_MAX, NVML_ERROR_INVALID_ARGUMENT);
    *temperature = which == NVML_TEMPERATURE_THRESHOLD_SHUTDOWN ? 95 : 87;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *low,
                                                          unsigned int *high)
{
    TRY(nvml_check(device));
    NEED(low && high, NVML_ERROR_INVALID_ARGUMENT);
    *low = POWER_LIMIT_MW / 3;
    *high = POWER_LIMIT_MW;
    return NVML_SUCCESS;
}

static unsigned int clock_mhz(nvmlClockType_t type)
{
    return type == NVML_CLOCK_MEM ? CLOCK_MEMORY_MHZ : CLOCK_GRAPHICS_MHZ;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
    TRY(nvml_check(device));
    NEED(clock && type <= NVML_CLOCK_VIDEO, NVML_ERROR_INVALID_ARGUMENT);
    *clock = clock_mhz(type);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                       unsigned int *clock)
{
    return nvmlDeviceGetClockInfo(device, type, clock);
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device)
{
    return nvml_check(device);
}
