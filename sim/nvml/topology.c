/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How devices lie to each other and to the CPUs: cards of one NUMA node meet at the node, others
 * across the system; every pair reaches each other over PCIe, none over NVLink. A NUMA node that
 * this machine lacks has all its CPUs.
 */
#include "nvml/nvml.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORD_BITS (sizeof(unsigned long) * CHAR_BIT)

static nvmlGpuTopologyLevel_t level_of(nvmlDevice_t a, nvmlDevice_t b)
{
    return a == b                                   ? NVML_TOPOLOGY_INTERNAL
           : a->info.numa_node == b->info.numa_node ? NVML_TOPOLOGY_NODE
                                                    : NVML_TOPOLOGY_SYSTEM;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b,
                                                 nvmlGpuTopologyLevel_t *level)
{
    TRY(nvml_check(a));
    TRY(nvml_check(b));
    NEED(level, NVML_ERROR_INVALID_ARGUMENT);
    *level = level_of(a, b);
    return NVML_SUCCESS;
}

/* *count in is the room; without an array the number alone is asked for. */
static nvmlReturn_t copy_devices(nvmlDevice_t *all, unsigned int found, unsigned int *count,
                                 nvmlDevice_t *devices)
{
    unsigned int room = devices ? *count : 0;

    *count = found;
    NEED(!devices || found <= room, NVML_ERROR_INSUFFICIENT_SIZE);
    if (devices)
        memcpy(devices, all, found * sizeof(*devices));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, nvmlGpuTopologyLevel_t level,
                                              unsigned int *count, nvmlDevice_t *devices)
{
    nvmlDevice_t near[SIM_MAX_DEVICES];
    unsigned int found = 0;

    TRY(nvml_check(device));
    NEED(count && level <= NVML_TOPOLOGY_SYSTEM, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t i = 0; i < nvml_count(); i++) {
        if (nvml_at(i) != device && level_of(device, nvml_at(i)) == level)
            near[found++] = nvml_at(i);
    }
    return copy_devices(near, found, count, devices);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t *status)
{
    TRY(nvml_check(a));
    TRY(nvml_check(b));
    NEED(status && index < NVML_P2P_CAPS_INDEX_UNKNOWN, NVML_ERROR_INVALID_ARGUMENT);
    *status =
        index == NVML_P2P_CAPS_INDEX_NVLINK ? NVML_P2P_STATUS_NOT_SUPPORTED : NVML_P2P_STATUS_OK;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *is_same)
{
    TRY(nvml_check(a));
    TRY(nvml_check(b));
    NEED(is_same, NVML_ERROR_INVALID_ARGUMENT);
    *is_same = a == b;
    return NVML_SUCCESS;
}

/* Sets the bits of a list such as "0-3,8"; anything else ends it. */
static void set_list(FILE *f, unsigned long *set, unsigned int words)
{
    unsigned long from, to;

    while (fscanf(f, "%lu", &from) == 1) {
        to = from;
        if (fscanf(f, "-%lu", &to) != 1)
            to = from;
        for (unsigned long cpu = from; cpu <= to && cpu < words * WORD_BITS; cpu++)
            set[cpu / WORD_BITS] |= 1ul << cpu % WORD_BITS;
        if (fgetc(f) != ',')
            break;
    }
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *set)
{
    char path[64];
    FILE *f;

    TRY(nvml_check(device));
    NEED(words && set, NVML_ERROR_INVALID_ARGUMENT);
    memset(set, 0, words * sizeof(*set));
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", device->info.numa_node);
    f = fopen(path, "re");
    if (f) {
        set_list(f, set, words);
        fclose(f);
        return NVML_SUCCESS;
    }
    for (long cpu = 0; cpu < sysconf(_SC_NPROCESSORS_CONF) && cpu < (long)(words * WORD_BITS);
         cpu++)
        set[(size_t)cpu / WORD_BITS] |= 1ul << (size_t)cpu % WORD_BITS;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words,
                                                 unsigned long *set, nvmlAffinityScope_t scope)
{
    NEED(scope <= NVML_AFFINITY_SCOPE_SOCKET, NVML_ERROR_INVALID_ARGUMENT);
    return nvmlDeviceGetCpuAffinity(device, words, set);
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words,
                                         unsigned long *set, nvmlAffinityScope_t scope)
{
    TRY(nvml_check(device));
    NEED(words && set && scope <= NVML_AFFINITY_SCOPE_SOCKET, NVML_ERROR_INVALID_ARGUMENT);
    memset(set, 0, words * sizeof(*set));
    if (device->info.numa_node < words * WORD_BITS)
        set[device->info.numa_node / WORD_BITS] |= 1ul << device->info.numa_node % WORD_BITS;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *count,
                                         nvmlDevice_t *devices)
{
    nvmlDevice_t near[SIM_MAX_DEVICES];
    unsigned long set[64];
    unsigned int found = 0;

    TRY(nvml_ready());
    NEED(count && cpu < sizeof(set) * CHAR_BIT, NVML_ERROR_INVALID_ARGUMENT);
    for (uint32_t i = 0; i < nvml_count(); i++) {
        if (nvmlDeviceGetCpuAffinity(nvml_at(i), sizeof(set) / sizeof(set[0]), set) ==
                NVML_SUCCESS &&
            set[cpu / WORD_BITS] >> cpu % WORD_BITS & 1)
            near[found++] = nvml_at(i);
    }
    return copy_devices(near, found, count, devices);
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    TRY(nvml_check(device));
    NEED(node, NVML_ERROR_INVALID_ARGUMENT);
    *node = device->info.numa_node;
    return NVML_SUCCESS;
}
