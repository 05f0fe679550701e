/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML's process lists. The driver's own would show PIDs of the node and memory as the card has it;
 * instead a program sees the processes of its own PID namespace that have a context under the
 * share, with their counted memory, in the list of compute processes. The lists of graphics and MPS
 * processes are empty. Each list is given only where the driver gives it.
 */
#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/nvml/device.h"
#include "vgpu/usage.h"

#define NOT_AVAILABLE 0xffffffffu

/* One version's entry: v1 has no instance ids. */
static void put(void *array, bool is_v1, unsigned int at, uint32_t pid, uint64_t bytes)
{
    if (is_v1) {
        nvmlProcessInfo_v1_t *entry = (nvmlProcessInfo_v1_t *)array + at;
        entry->pid = pid;
        entry->usedGpuMemory = bytes;
    } else {
        nvmlProcessInfo_v2_t *entry = (nvmlProcessInfo_v2_t *)array + at;
        entry->pid = pid;
        entry->usedGpuMemory = bytes;
        entry->gpuInstanceId = NOT_AVAILABLE;
        entry->computeInstanceId = NOT_AVAILABLE;
    }
}

static bool is_listed(const struct alq_slot *slot, uint64_t namespace)
{
    return __atomic_load_n(&slot->pid, __ATOMIC_RELAXED) && slot->pid_ns_inode == namespace &&
           __atomic_load_n(&slot->contexts, __ATOMIC_RELAXED);
}

/* A process with several shares of the GPU is one entry: its bytes in later files are added to it
 * by PID. */
static uint64_t bytes_of(const struct alq_nvml_shares *s, uint32_t pid, uint64_t namespace)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t n = 0; n < ALQ_SLOTS && n < alq_file_header(s->share[i]->file)->slot_high;
             n++) {
            const struct alq_slot *slot = &s->share[i]->section->slots[n];
            if (slot->pid == pid && slot->pid_ns_inode == namespace)
                bytes += __atomic_load_n(&slot->counted_bytes, __ATOMIC_RELAXED);
        }
    return bytes;
}

static nvmlReturn_t list(const struct alq_nvml_shares *s, unsigned int *count, unsigned int room,
                         void *array, bool is_v1, bool is_compute)
{
    struct alq_room unused;
    unsigned int found = 0;
    uint64_t namespace = alq_usage_pid_namespace();

    alq_room_of(s->share, s->count, &unused); /* empties the slots of the dead */
    for (uint32_t n = 0;
         is_compute && n < ALQ_SLOTS && n < alq_file_header(s->share[0]->file)->slot_high; n++) {
        const struct alq_slot *slot = &s->share[0]->section->slots[n];
        if (!is_listed(slot, namespace))
            continue;
        if (found < room && array)
            put(array, is_v1, found, slot->pid, bytes_of(s, slot->pid, namespace));
        found++;
    }
    *count = found;
    return found > room || (found && !array) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define LIST(name, type, is_v1, is_compute)                                                        \
    ALQ_HOOK nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *array)              \
    {                                                                                              \
        struct alq_nvml_shares s;                                                                  \
        if (!alq_real(ALQ_NVML_##name))                                                            \
            return alq_nvml_absent(ALQ_NVML_##name);                                               \
        if (!count || !alq_core_is_on() || !alq_nvml_shares_of(device, &s))                        \
            return ALQ_CALL_NVML(name, device, count, array);                                      \
        unsigned int driver_count = 0;                                                             \
        nvmlReturn_t result =                                                                      \
            ALQ_CALL_NVML(name, device, &driver_count, NULL); /* can it be had at all */           \
        if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)                      \
            return result;                                                                         \
        return list(&s, count, *count, array, is_v1, is_compute);                                  \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, true, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, false, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, false, true)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, true, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, false, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, false, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, true, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, false, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, false, false)
