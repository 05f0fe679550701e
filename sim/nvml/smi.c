/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table that nvidia-smi asks for through nvmlInternalGetExportTable. It is not documented by a
 * header; its id, its slots and the layout of a process entry are what NVIDIA publishes in
 * k8s-test-infra's mock NVML (Apache-2.0), and hold for the nvidia-smi of 535 and 550. Slots that
 * are not known answer success and do nothing. No other table is known here: libcuda's are part of
 * how the CUDA runtime authenticates its driver and are never answered.
 */
#include "nvml/nvml.h"

#include <stdlib.h>
#include <string.h>

#define SMI_SLOTS 256
#define SMI_SLOT_HANDLE_BY_INDEX 81
#define SMI_SLOT_COMPUTE_PROCESSES 213

static const unsigned char smi_table_id[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                               0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};

struct smi_process {
    unsigned int pid;
    unsigned int reserved0;
    unsigned long long used_bytes;
    unsigned int gpu_instance;
    unsigned int compute_instance;
    unsigned long long reserved1;
    char name[4096];
};
_Static_assert(sizeof(struct smi_process) == 4128, "process entry of nvidia-smi's table");

static nvmlReturn_t smi_ignore(void)
{
    return NVML_SUCCESS;
}

static nvmlReturn_t smi_handle_by_index(unsigned int index, nvmlDevice_t *device,
                                        unsigned int flags)
{
    (void)flags;
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* As the public lists: *count in is the room, out the number. */
static nvmlReturn_t smi_compute_processes(nvmlDevice_t device, unsigned int *count,
                                          struct smi_process *out)
{
    NEED(count && (out || !*count), NVML_ERROR_INVALID_ARGUMENT);
    nvmlProcessInfo_v2_t *infos = calloc(*count + 1u, sizeof(*infos));
    NEED(infos, NVML_ERROR_MEMORY);
    nvmlReturn_t rc = nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
    for (unsigned int i = 0; rc == NVML_SUCCESS && i < *count; i++) {
        memset(&out[i], 0, sizeof(out[i]));
        out[i].pid = infos[i].pid;
        out[i].used_bytes = infos[i].usedGpuMemory;
        out[i].gpu_instance = NVML_NO_INSTANCE_ID;
        out[i].compute_instance = NVML_NO_INSTANCE_ID;
        nvmlSystemGetProcessName(infos[i].pid, out[i].name, sizeof(out[i].name));
    }
    free(infos);
    return rc;
}

/* Two slots follow the compute list, for graphics and for MPS: no process draws or uses MPS here.
 */
static nvmlReturn_t smi_no_processes(nvmlDevice_t device, unsigned int *count,
                                     struct smi_process *out)
{
    (void)out;
    TRY(nvml_check(device));
    NEED(count, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id)
{
    static void *smi_table[SMI_SLOTS]; /* the first word is its size in bytes */

    NEED(table && id, NVML_ERROR_INVALID_ARGUMENT);
    *table = NULL;
    NEED(!memcmp(id, smi_table_id, sizeof(smi_table_id)), NVML_ERROR_NOT_FOUND);
    /* Every caller writes the same words. */
    for (int i = 1; i < SMI_SLOTS; i++)
        smi_table[i] = (void *)(uintptr_t)smi_ignore;
    smi_table[0] = (void *)sizeof(smi_table);
    smi_table[SMI_SLOT_HANDLE_BY_INDEX] = (void *)(uintptr_t)smi_handle_by_index;
    smi_table[SMI_SLOT_COMPUTE_PROCESSES] = (void *)(uintptr_t)smi_compute_processes;
    smi_table[SMI_SLOT_COMPUTE_PROCESSES + 1] = (void *)(uintptr_t)smi_no_processes;
    smi_table[SMI_SLOT_COMPUTE_PROCESSES + 2] = (void *)(uintptr_t)smi_no_processes;
    *table = smi_table;
    return NVML_SUCCESS;
}
