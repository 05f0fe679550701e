/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML's process lists. The driver's own would show PIDs of the node and memory as the card has it;
 * instead a program sees the processes of its own PID namespace that have a context under the
 * share, with their counted memory, in the list of compute processes. The lists of graphics and MPS
 * processes are empty. Each list is given only where the driver gives it, and judges its arguments
 * as the driver does: nothing is written where there is not room for all.
 */
#include "vgpu/nvml/processes.h"

#include "vgpu/clock.h"
#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/nvml/load.h"
#include "vgpu/usage.h"

static uint32_t high_of(const struct alq_share *share)
{
    uint32_t high = __atomic_load_n(&alq_file_header(share->file)->slot_high, __ATOMIC_RELAXED);
    return high < ALQ_SLOTS ? high : ALQ_SLOTS;
}

/* A process with several shares of the GPU is one entry: what its slots in other files say is added
 * by PID. */
static void add_up(const struct alq_nvml_shares *s, const struct alq_nvml_walk *walk,
                   struct alq_nvml_process *out)
{
    uint64_t now = alq_clock_ns();

    for (uint32_t i = 0; i < s->count; i++)
        for (uint32_t n = 0, high = high_of(s->share[i]); n < high; n++) {
            const struct alq_slot *slot = &s->share[i]->section->slots[n];
            if (__atomic_load_n(&slot->pid, __ATOMIC_RELAXED) != out->pid ||
                slot->pid_ns_inode != walk->namespace)
                continue;
            out->counted_bytes += __atomic_load_n(&slot->counted_bytes, __ATOMIC_RELAXED);
            out->busy_pct += alq_load_process_pct(slot, now);
        }
}

void alq_nvml_walk_begin(const struct alq_nvml_shares *s, struct alq_nvml_walk *out)
{
    struct alq_room unused;

    alq_nvml_room(s, &unused); /* empties the slots of the dead */
    *out = (struct alq_nvml_walk){.namespace = alq_usage_pid_namespace()};
}

bool alq_nvml_walk_next(const struct alq_nvml_shares *s, struct alq_nvml_walk *walk,
                        struct alq_nvml_process *out)
{
    for (uint32_t high = high_of(s->share[0]); walk->slot < high;) {
        const struct alq_slot *slot = &s->share[0]->section->slots[walk->slot++];
        uint32_t pid = __atomic_load_n(&slot->pid, __ATOMIC_RELAXED);
        if (!pid || slot->pid_ns_inode != walk->namespace ||
            !__atomic_load_n(&slot->contexts, __ATOMIC_RELAXED))
            continue;
        *out = (struct alq_nvml_process){.pid = pid};
        add_up(s, walk, out);
        return true;
    }
    return false;
}

uint32_t alq_nvml_process_count(const struct alq_nvml_shares *s)
{
    struct alq_nvml_walk walk;
    struct alq_nvml_process unused;
    uint32_t count = 0;

    alq_nvml_walk_begin(s, &walk);
    while (alq_nvml_walk_next(s, &walk, &unused))
        count++;
    return count;
}

enum form { FORM_V1, FORM_V2, FORM_DETAIL };

static void put(void *array, enum form form, unsigned int at, const struct alq_nvml_process *p)
{
    if (form == FORM_V1)
        ((nvmlProcessInfo_v1_t *)array)[at] =
            (nvmlProcessInfo_v1_t){.pid = p->pid, .usedGpuMemory = p->counted_bytes};
    else if (form == FORM_V2)
        ((nvmlProcessInfo_v2_t *)array)[at] =
            (nvmlProcessInfo_v2_t){.pid = p->pid,
                                   .usedGpuMemory = p->counted_bytes,
                                   .gpuInstanceId = NVML_NO_INSTANCE_ID,
                                   .computeInstanceId = NVML_NO_INSTANCE_ID};
    else
        ((nvmlProcessDetail_v1_t *)array)[at] =
            (nvmlProcessDetail_v1_t){.pid = p->pid,
                                     .usedGpuMemory = p->counted_bytes,
                                     .gpuInstanceId = NVML_NO_INSTANCE_ID,
                                     .computeInstanceId = NVML_NO_INSTANCE_ID};
}

static nvmlReturn_t list(const struct alq_nvml_shares *s, unsigned int *count, void *array,
                         enum form form, bool is_compute)
{
    struct alq_nvml_walk walk;
    struct alq_nvml_process process;
    unsigned int room = array ? *count : 0, at = 0;

    *count = is_compute ? alq_nvml_process_count(s) : 0;
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    alq_nvml_walk_begin(s, &walk);
    while (at < *count && alq_nvml_walk_next(s, &walk, &process))
        put(array, form, at++, &process);
    *count = at;
    return NVML_SUCCESS;
}

#define LIST(name, type, form, is_compute)                                                         \
    ALQ_HOOK nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *array)              \
    {                                                                                              \
        struct alq_nvml_shares s;                                                                  \
        if (!alq_real(ALQ_NVML_##name))                                                            \
            return alq_nvml_absent(ALQ_NVML_##name);                                               \
        if (!count || (*count && !array) || !alq_core_is_on() || !alq_nvml_shares_of(device, &s))  \
            return ALQ_CALL_NVML(name, device, count, array);                                      \
        unsigned int driver_count = 0;                                                             \
        nvmlReturn_t result =                                                                      \
            ALQ_CALL_NVML(name, device, &driver_count, NULL); /* can it be had at all */           \
        if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)                      \
            return result;                                                                         \
        return list(&s, count, array, form, is_compute);                                           \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, FORM_V1, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, FORM_V2, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, FORM_V2, true)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, FORM_V1, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, FORM_V2, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, FORM_V2, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, FORM_V1, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, FORM_V2, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, FORM_V2, false)

ALQ_HOOK nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
                                                            nvmlProcessDetailList_t *detail)
{
    struct alq_nvml_shares s;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetRunningProcessDetailList))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetRunningProcessDetailList);
    if (!detail || detail->version != nvmlProcessDetailList_v1 || !alq_core_is_on() ||
        !alq_nvml_shares_of(device, &s))
        return ALQ_CALL_NVML(nvmlDeviceGetRunningProcessDetailList, device, detail);
    nvmlProcessDetailList_t empty = {.version = detail->version, .mode = detail->mode};
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetRunningProcessDetailList, device, &empty);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    return list(&s, &detail->numProcArrayEntries, detail->procArray, FORM_DETAIL,
                detail->mode == 0);
}
