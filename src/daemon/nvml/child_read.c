/* SPDX-License-Identifier: Apache-2.0 */
/* The NVML child's readings: what each GPU is. See child.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "daemon/nvml/child.h"
#include "daemon/nvml/sysfs.h"

static const char *brand_text(nvmlBrandType_t brand)
{
    static const char *const names[] = {
        [NVML_BRAND_QUADRO] = "Quadro",
        [NVML_BRAND_TESLA] = "Tesla",
        [NVML_BRAND_NVS] = "NVS",
        [NVML_BRAND_GRID] = "Grid",
        [NVML_BRAND_GEFORCE] = "GeForce",
        [NVML_BRAND_TITAN] = "Titan",
        [NVML_BRAND_NVIDIA_VAPPS] = "NvidiaVApps",
        [NVML_BRAND_NVIDIA_VPC] = "NvidiaVPC",
        [NVML_BRAND_NVIDIA_VCS] = "NvidiaVCS",
        [NVML_BRAND_NVIDIA_VWS] = "NvidiaVWS",
        [NVML_BRAND_NVIDIA_CLOUD_GAMING] = "NvidiaCloudGaming",
        [NVML_BRAND_QUADRO_RTX] = "QuadroRTX",
        [NVML_BRAND_NVIDIA_RTX] = "NvidiaRTX",
        [NVML_BRAND_NVIDIA] = "Nvidia",
        [NVML_BRAND_GEFORCE_RTX] = "GeForceRTX",
        [NVML_BRAND_TITAN_RTX] = "TitanRTX",
    };
    size_t i = (size_t)brand;
    return i < sizeof(names) / sizeof(names[0]) && names[i] ? names[i] : "Unknown";
}

static void read_driver(struct alq_gpu *gpu)
{
    char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE] = "";
    int cuda = 0;
    if (nvml.nvmlSystemGetDriverVersion(driver, sizeof(driver)) == NVML_SUCCESS) {
        snprintf(gpu->driver_version_raw, sizeof(gpu->driver_version_raw), "%.31s", driver);
        alq_nvml_semver(driver, gpu->driver_version, sizeof(gpu->driver_version));
    }
    int has_cuda = nvml.nvmlSystemGetCudaDriverVersion_v2
                       ? nvml.nvmlSystemGetCudaDriverVersion_v2(&cuda) == NVML_SUCCESS
                       : nvml.nvmlSystemGetCudaDriverVersion &&
                             nvml.nvmlSystemGetCudaDriverVersion(&cuda) == NVML_SUCCESS;
    if (has_cuda)
        snprintf(gpu->cuda_driver_version, sizeof(gpu->cuda_driver_version), "%d.%d.0", cuda / 1000,
                 cuda % 1000 / 10);
}

/* Total, and what the driver does not keep for itself. */
static nvmlReturn_t read_memory(nvmlDevice_t device, struct alq_gpu *gpu)
{
    nvmlMemory_v2_t v2 = {.version = nvmlMemory_v2};
    if (nvml.nvmlDeviceGetMemoryInfo_v2 &&
        nvml.nvmlDeviceGetMemoryInfo_v2(device, &v2) == NVML_SUCCESS && v2.reserved <= v2.total) {
        gpu->memory_total_bytes = v2.total;
        gpu->memory_promisable_bytes = v2.total - v2.reserved;
        return NVML_SUCCESS;
    }
    nvmlMemory_t v1 = {0};
    nvmlReturn_t status = nvml.nvmlDeviceGetMemoryInfo(device, &v1);
    gpu->memory_total_bytes = gpu->memory_promisable_bytes = v1.total;
    /* A GPU without memory of its own (GB10, integrated ones): 0 bytes, the parent decides. */
    return status == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : status;
}

/* Since driver 570 or so; -1 without it. */
static int read_recovery_action(nvmlDevice_t device)
{
    nvmlFieldValue_t field = {.fieldId = NVML_FI_DEV_GET_GPU_RECOVERY_ACTION};
    if (!nvml.nvmlDeviceGetFieldValues ||
        nvml.nvmlDeviceGetFieldValues(device, 1, &field) != NVML_SUCCESS ||
        field.nvmlReturn != NVML_SUCCESS)
        return -1;
    switch (field.valueType) {
    case NVML_VALUE_TYPE_UNSIGNED_INT:
        return (int)(field.value.uiVal & INT_MAX);
    case NVML_VALUE_TYPE_UNSIGNED_LONG:
        return (int)(field.value.ulVal & INT_MAX);
    case NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        return (int)(field.value.ullVal & INT_MAX);
    default:
        return -1;
    }
}

/* Fills *gpu, or *reason with why the GPU cannot be shared. The first failing call ends it. */
static int read_gpu(struct child *c, uint32_t index, struct alq_gpu *gpu, char *reason, size_t size)
{
    nvmlDevice_t device = NULL;
    nvmlPciInfo_t pci = {0};
    nvmlBrandType_t brand = NVML_BRAND_UNKNOWN;
    unsigned int minor = 0, mig = 0, pending = 0;
    int cc_major = 0, cc_minor = 0;

    gpu->index = index;
    gpu->numa_node = -1;
#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        nvmlReturn_t status = nvml.name(__VA_ARGS__);                                              \
        if (status != NVML_SUCCESS) {                                                              \
            snprintf(reason, size, "%s gives %d: %.100s", #name, (int)status,                      \
                     child_error_text(status));                                                    \
            c->is_stale |= child_is_lost(status);                                                  \
            return -1;                                                                             \
        }                                                                                          \
    } while (0)
    CALL(nvmlDeviceGetHandleByIndex_v2, index, &device);
    CALL(nvmlDeviceGetUUID, device, gpu->uuid, sizeof(gpu->uuid));
    CALL(nvmlDeviceGetMinorNumber, device, &minor);
    CALL(nvmlDeviceGetName, device, gpu->product_name, sizeof(gpu->product_name));
    CALL(nvmlDeviceGetCudaComputeCapability, device, &cc_major, &cc_minor);
    CALL(nvmlDeviceGetPciInfo_v3, device, &pci);
#undef CALL
    gpu->minor = minor;
    if (nvml.nvmlDeviceGetMigMode &&
        nvml.nvmlDeviceGetMigMode(device, &mig, &pending) == NVML_SUCCESS && mig) {
        snprintf(reason, size,
                 "it is in MIG mode, which is not supported; leave it to NVIDIA's driver, or turn "
                 "MIG off: nvidia-smi -i %u -mig 0",
                 index);
        return -1;
    }
    child_watch(c, index, device, gpu->uuid);
    nvmlReturn_t status = read_memory(device, gpu);
    if (status != NVML_SUCCESS) {
        snprintf(reason, size, "it does not tell its memory: %.100s", child_error_text(status));
        c->is_stale |= child_is_lost(status);
        return -1;
    }
    if (nvml.nvmlDeviceGetBrand)
        nvml.nvmlDeviceGetBrand(device, &brand);
    snprintf(gpu->brand, sizeof(gpu->brand), "%s", brand_text(brand));
    snprintf(gpu->architecture, sizeof(gpu->architecture), "%s",
             alq_nvml_architecture(cc_major, cc_minor));
    snprintf(gpu->compute_capability, sizeof(gpu->compute_capability), "%d.%d.0", cc_major,
             cc_minor);
    pci.busId[sizeof(pci.busId) - 1] = '\0';
    alq_nvml_pci_address(pci.busId, gpu->pci_bus_id, sizeof(gpu->pci_bus_id));
    alq_sysfs_pcie_root("/sys", gpu->pci_bus_id, gpu->pcie_root, sizeof(gpu->pcie_root));
    gpu->numa_node = alq_sysfs_numa_node("/sys", gpu->pci_bus_id);
    gpu->recovery_action = read_recovery_action(device);
    gpu->is_watched = c->watched[index].handle != NULL;
    read_driver(gpu);
    return 0;
}

static int by_minor(const void *a, const void *b)
{
    const struct alq_gpu *x = a, *y = b;
    return (x->minor > y->minor) - (x->minor < y->minor);
}

int child_read(struct child *c)
{
    unsigned int count = 0;
    nvmlReturn_t status = nvml.nvmlDeviceGetCount_v2(&count);
    if (status != NVML_SUCCESS)
        return child_give_up(c, ALQ_EAGAIN, "NVML: nvmlDeviceGetCount_v2 gives %d: %s", (int)status,
                             child_error_text(status));
    if (count > ALQ_NVML_GPUS_MAX)
        count = ALQ_NVML_GPUS_MAX;
    struct alq_gpu_list *list = &c->reading.list;
    list->gpus = calloc(count ? count : 1, sizeof(*list->gpus));
    if (!list->gpus)
        return child_give_up(c, ALQ_ENOMEM, "out of memory");
    child_module_load(c->reading.load, sizeof(c->reading.load));
    for (uint32_t i = 0; i < count; i++) {
        if (c->skipped[i])
            continue;
        struct alq_left_out *out = &c->reading.left_out[c->reading.left_out_count];
        struct alq_gpu *gpu = &list->gpus[list->count];
        *gpu = (struct alq_gpu){0};
        if (child_send(alq_str_printf("@%u", i)))
            return child_give_up(c, ALQ_EIO, "the parent is gone");
        if (!read_gpu(c, i, gpu, out->reason, sizeof(out->reason))) {
            list->count++;
        } else {
            out->index = i;
            memcpy(out->uuid, gpu->uuid, sizeof(out->uuid));
            c->reading.left_out_count++;
        }
    }
    qsort(list->gpus, list->count, sizeof(*list->gpus), by_minor);
    return 0;
}
