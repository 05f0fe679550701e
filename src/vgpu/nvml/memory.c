/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program is told of memory through NVML: total = the limit to the byte, as CUDA shows it.
 * Version 1: used = total - free. Version 2: used = counted + overhead, reserved = the rest. BAR1,
 * which is as large as the card on current ones, is shown no larger than the limit. The driver is
 * asked first; its errors pass.
 */
#include "vgpu/arith.h"
#include "vgpu/driver.h"
#include "vgpu/nvml/device.h"

/* The whole of what NVML counts by version 1's structure; protected memory of confidential
 * computing is that, too. */
#define MEMORY_V1(name)                                                                            \
    ALQ_HOOK nvmlReturn_t name(nvmlDevice_t device, nvmlMemory_t *memory)                          \
    {                                                                                              \
        struct alq_room room;                                                                      \
        struct alq_nvml_shares s;                                                                  \
        if (!alq_real(ALQ_NVML_##name))                                                            \
            return alq_nvml_absent(ALQ_NVML_##name);                                               \
        nvmlReturn_t result = ALQ_CALL_NVML(name, device, memory);                                 \
        if (result != NVML_SUCCESS || !memory || !alq_core_is_on() ||                              \
            !alq_nvml_shares_of(device, &s))                                                       \
            return result;                                                                         \
        alq_nvml_room(&s, &room);                                                                  \
        memory->total = alq_min(memory->total, room.limit_bytes);                                  \
        memory->free = alq_min(alq_min(memory->free, room.free_bytes), memory->total);             \
        memory->used = memory->total - memory->free;                                               \
        return result;                                                                             \
    }

MEMORY_V1(nvmlDeviceGetMemoryInfo)
MEMORY_V1(nvmlDeviceGetConfComputeProtectedMemoryUsage)

ALQ_HOOK nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t device,
                                                          nvmlConfComputeMemSizeInfo_t *size)
{
    struct alq_nvml_shares s;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetConfComputeMemSizeInfo))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetConfComputeMemSizeInfo);
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetConfComputeMemSizeInfo, device, size);
    if (result != NVML_SUCCESS || !size || !alq_core_is_on() || !alq_nvml_shares_of(device, &s))
        return result;
    uint64_t limit_kib = alq_shares_limit_bytes(s.share, s.count) / 1024;
    size->protectedMemSizeKib = alq_min(size->protectedMemSizeKib, limit_kib);
    size->unprotectedMemSizeKib =
        alq_min(size->unprotectedMemSizeKib, limit_kib - size->protectedMemSizeKib);
    return result;
}

ALQ_HOOK nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct alq_room room;
    struct alq_nvml_shares s;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetMemoryInfo_v2))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetMemoryInfo_v2);
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetMemoryInfo_v2, device, memory);
    if (result != NVML_SUCCESS || !memory || !alq_core_is_on() || !alq_nvml_shares_of(device, &s))
        return result;
    alq_nvml_room(&s, &room);
    memory->total = alq_min(memory->total, room.limit_bytes);
    memory->free = alq_min(alq_min(memory->free, room.free_bytes), memory->total);
    memory->used = alq_min(room.held_bytes, memory->total - memory->free);
    memory->reserved = memory->total - memory->free - memory->used;
    return result;
}

ALQ_HOOK nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    struct alq_nvml_shares s;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetBAR1MemoryInfo))
        return alq_nvml_absent(ALQ_NVML_nvmlDeviceGetBAR1MemoryInfo);
    nvmlReturn_t result = ALQ_CALL_NVML(nvmlDeviceGetBAR1MemoryInfo, device, memory);
    if (result != NVML_SUCCESS || !memory || !alq_core_is_on() || !alq_nvml_shares_of(device, &s))
        return result;
    memory->bar1Total = alq_min(memory->bar1Total, alq_shares_limit_bytes(s.share, s.count));
    memory->bar1Used = alq_min(memory->bar1Used, memory->bar1Total);
    memory->bar1Free = memory->bar1Total - memory->bar1Used;
    return result;
}
