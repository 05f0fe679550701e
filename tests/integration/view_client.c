/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that asks for everything a GPU program can be told of memory, processes and
 * utilisation, and prints the answers as one JSON object; for test_vgpu_view.py. Arguments: NVML's
 * index of the device, bytes to allocate on it, milliseconds of kernels to launch before asking,
 * and "early" to ask before nvmlInit. Built linked against both libraries, or (by dlsym) not. Each
 * answer lies before bytes that no call may touch; the object's "touched" counts those that were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "aliquot/cuda_abi.h"
#include "aliquot/nvml_abi.h"

#ifdef LINKED
#define CU(name) name
#define NV(name) name
#else
static void *cuda, *nvml;
#define CU(name) ((__typeof__(name) *)dlsym(cuda, #name))
#define NV(name) ((__typeof__(name) *)dlsym(nvml, #name))
#endif

#define ROOM 16u

static nvmlDevice_t device;
static unsigned touched;

/* An answer's place, larger than any of them, full of canaries. */
static union {
    unsigned char bytes[4096];
    unsigned long long words[512];
} place;

static void *fresh(void)
{
    memset(&place, 0xa5, sizeof(place));
    return &place;
}

static void check_beyond(size_t used)
{
    for (size_t i = used; i < sizeof(place); i++)
        touched += place.bytes[i] != 0xa5;
}

static void print_v1(const char *name, unsigned count, const nvmlProcessInfo_v1_t *p)
{
    printf(",\"%s.list\":[", name);
    for (unsigned i = 0; i < count; i++)
        printf("%s[%u,%llu]", i ? "," : "", p[i].pid, p[i].usedGpuMemory);
    printf("]");
}

static void print_v2(const char *name, unsigned count, const nvmlProcessInfo_v2_t *p)
{
    printf(",\"%s.list\":[", name);
    for (unsigned i = 0; i < count; i++) {
        printf("%s[%u,%llu]", i ? "," : "", p[i].pid, p[i].usedGpuMemory);
        touched += p[i].gpuInstanceId != NVML_NO_INSTANCE_ID ||
                   p[i].computeInstanceId != NVML_NO_INSTANCE_ID;
    }
    printf("]");
}

/* The size query, a room that is one too small, and the list. */
#define LIST(name, type, print)                                                                    \
    do {                                                                                           \
        unsigned size = 0, small, count = ROOM;                                                    \
        int rc_size = (int)NV(name)(device, &size, NULL);                                          \
        small = size ? size - 1 : 0;                                                               \
        int rc_small = (int)NV(name)(device, &small, fresh());                                     \
        check_beyond(rc_small ? 0 : small * sizeof(type));                                         \
        int rc = (int)NV(name)(device, &count, fresh());                                           \
        int rc_null = (int)NV(name)(device, NULL, fresh());                                        \
        unsigned one = 1;                                                                          \
        int rc_no_array = (int)NV(name)(device, &one, NULL);                                       \
        printf(",\"%s\":[%d,%u,%d,%u,%d,%u,%d,%d]", #name, rc_size, size, rc_small, small, rc,     \
               count, rc_null, rc_no_array);                                                       \
        count = ROOM;                                                                              \
        rc = (int)NV(name)(device, &count, fresh());                                               \
        if (rc == 0) {                                                                             \
            check_beyond(count * sizeof(type));                                                    \
            print(#name, count, (const type *)place.words);                                        \
        }                                                                                          \
    } while (0)

static void details(void)
{
#ifndef LINKED
    if (!dlsym(nvml, "nvmlDeviceGetRunningProcessDetailList"))
        return;
#endif
    for (unsigned mode = 0; mode < 4; mode++) {
        nvmlProcessDetailList_t list = {.version = nvmlProcessDetailList_v1, .mode = mode};
        int rc_size = (int)NV(nvmlDeviceGetRunningProcessDetailList)(device, &list);
        unsigned size = list.numProcArrayEntries;
        list.numProcArrayEntries = ROOM;
        list.procArray = fresh();
        int rc = (int)NV(nvmlDeviceGetRunningProcessDetailList)(device, &list);
        check_beyond(rc ? 0 : list.numProcArrayEntries * sizeof(list.procArray[0]));
        printf(",\"details.%u\":[%d,%u,%d", mode, rc_size, size, rc);
        for (unsigned i = 0; rc == 0 && i < list.numProcArrayEntries; i++)
            printf(",[%u,%llu]", list.procArray[i].pid, list.procArray[i].usedGpuMemory);
        printf("]");
    }
    nvmlProcessDetailList_t other = {.version = 77};
    printf(",\"details.version\":%d",
           (int)NV(nvmlDeviceGetRunningProcessDetailList)(device, &other));
}

static void memory(void)
{
    nvmlMemory_t *m = fresh();
    int rc = (int)NV(nvmlDeviceGetMemoryInfo)(device, m);
    check_beyond(rc ? 0 : sizeof(*m));
    printf(",\"v1\":[%d,%llu,%llu,%llu]", rc, rc ? 0 : m->total, rc ? 0 : m->free,
           rc ? 0 : m->used);
    nvmlMemory_v2_t *v2 = fresh();
    v2->version = nvmlMemory_v2;
    rc = (int)NV(nvmlDeviceGetMemoryInfo_v2)(device, v2);
    check_beyond(rc ? sizeof(v2->version) : sizeof(*v2));
    printf(",\"v2\":[%d,%llu,%llu,%llu,%llu]", rc, rc ? 0 : v2->total, rc ? 0 : v2->free,
           rc ? 0 : v2->used, rc ? 0 : v2->reserved);
    v2->version = 1;
    printf(",\"v2.version\":%d", (int)NV(nvmlDeviceGetMemoryInfo_v2)(device, v2));
    nvmlBAR1Memory_t *bar1 = fresh();
    rc = (int)NV(nvmlDeviceGetBAR1MemoryInfo)(device, bar1);
    check_beyond(rc ? 0 : sizeof(*bar1));
    printf(",\"bar1\":[%d,%llu,%llu,%llu]", rc, rc ? 0 : bar1->bar1Total, rc ? 0 : bar1->bar1Free,
           rc ? 0 : bar1->bar1Used);
    printf(",\"null\":[%d,%d,%d,%d]", (int)NV(nvmlDeviceGetMemoryInfo)(device, NULL),
           (int)NV(nvmlDeviceGetMemoryInfo_v2)(device, NULL),
           (int)NV(nvmlDeviceGetBAR1MemoryInfo)(device, NULL),
           (int)NV(nvmlDeviceGetUtilizationRates)(device, NULL));
}

static void samples(const char *name, nvmlSamplingType_t type)
{
    nvmlValueType_t kind = 0;
    unsigned size = 0, count = ROOM;
    int rc_size = (int)NV(nvmlDeviceGetSamples)(device, type, 0, &kind, &size, NULL);
    nvmlSample_t *s = fresh();
    int rc = (int)NV(nvmlDeviceGetSamples)(device, type, 0, &kind, &count, s);
    check_beyond(rc ? 0 : count * sizeof(*s));
    printf(",\"samples.%s\":[%d,%d,%u,%u]", name, rc_size, rc, rc ? 0 : count,
           rc ? 0 : s[count - 1].sampleValue.uiVal);
}

static void utilisation(void)
{
    nvmlUtilization_t *u = fresh();
    int rc = (int)NV(nvmlDeviceGetUtilizationRates)(device, u);
    check_beyond(rc ? 0 : sizeof(*u));
    printf(",\"rates\":[%d,%u,%u]", rc, rc ? 0 : u->gpu, rc ? 0 : u->memory);
    samples("gpu", NVML_GPU_UTILIZATION_SAMPLES);
    samples("memory", NVML_MEMORY_UTILIZATION_SAMPLES);
    unsigned size = 0, count = ROOM;
    int rc_size = (int)NV(nvmlDeviceGetProcessUtilization)(device, NULL, &size, 0);
    nvmlProcessUtilizationSample_t *p = fresh();
    rc = (int)NV(nvmlDeviceGetProcessUtilization)(device, p, &count, 0);
    check_beyond(rc ? 0 : count * sizeof(*p));
    printf(",\"process\":[%d,%u,%d", rc_size, size, rc);
    for (unsigned i = 0; rc == 0 && i < count; i++)
        printf(",[%u,%u]", p[i].pid, p[i].smUtil);
    printf("]");
#ifndef LINKED
    if (!dlsym(nvml, "nvmlDeviceGetProcessesUtilizationInfo"))
        return;
#endif
    nvmlProcessesUtilizationInfo_t info = {.version = nvmlProcessesUtilizationInfo_v1};
    rc_size = (int)NV(nvmlDeviceGetProcessesUtilizationInfo)(device, &info);
    size = info.processSamplesCount;
    info.processSamplesCount = ROOM;
    info.procUtilArray = fresh();
    rc = (int)NV(nvmlDeviceGetProcessesUtilizationInfo)(device, &info);
    check_beyond(rc ? 0 : info.processSamplesCount * sizeof(info.procUtilArray[0]));
    printf(",\"processes\":[%d,%u,%d", rc_size, size, rc);
    for (unsigned i = 0; rc == 0 && i < info.processSamplesCount; i++)
        printf(",[%u,%u]", info.procUtilArray[i].pid, info.procUtilArray[i].smUtil);
    printf("]");
}

static void ask(void)
{
    memory();
    LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, print_v1);
    LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, print_v2);
    LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, print_v2);
    LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, print_v1);
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, print_v2);
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, print_v2);
    LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, print_v1);
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, print_v2);
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, print_v2);
    details();
    utilisation();
    const void *table = NULL;
    const unsigned char id[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                  0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    Dl_info where = {0};
    int rc = (int)NV(nvmlInternalGetExportTable)(&table, id);
    if (rc == 0 && table)
        dladdr(table, &where);
    printf(",\"table\":[%d,%d]", rc, where.dli_fname && strstr(where.dli_fname, "libvgpu") ? 1 : 0);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int work(uint64_t ms)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry busy_us(.param .u64 us)\n{\nret;\n}\n";
    CUmodule module;
    CUfunction busy;
    uint64_t us = 2000, end = now_ms() + ms;
    void *params[] = {&us};
    int rc = ms ? (int)CU(cuModuleLoadData)(&module, ptx) : 0;
    if (ms && rc == 0)
        rc = (int)CU(cuModuleGetFunction)(&busy, module, "busy_us");
    while (rc == 0 && now_ms() < end) {
        rc = (int)CU(cuLaunchKernel)(busy, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
        if (rc == 0)
            rc = (int)CU(cuCtxSynchronize)();
    }
    return rc;
}

int main(int argc, char **argv)
{
    unsigned index = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    size_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) : 0, free_bytes = 0, total_bytes = 0,
           device_bytes = 0;
    uint64_t ms = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    CUcontext context;
    CUdeviceptr ptr;
    int rc = 0;

#ifndef LINKED
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!cuda || !nvml)
        return 3;
#endif
    printf("{\"pid\":%d", (int)getpid());
    if (argc > 4) { /* the handle means nothing yet */
        ask();
        printf(",\"touched\":%u}\n", touched);
        return 0;
    }
    if (bytes) {
        rc = (int)CU(cuInit)(0);
        if (rc == 0)
            rc = (int)CU(cuCtxCreate_v2)(&context, 0, (int)index);
        if (rc == 0)
            rc = (int)CU(cuMemAlloc_v2)(&ptr, bytes);
        if (rc == 0)
            rc = work(ms);
        if (rc == 0)
            rc = (int)CU(cuMemGetInfo_v2)(&free_bytes, &total_bytes);
        if (rc == 0)
            rc = (int)CU(cuDeviceTotalMem_v2)(&device_bytes, (int)index);
        printf(",\"cuda\":[%d,%zu,%zu,%zu]", rc, total_bytes, free_bytes, device_bytes);
    }
    if (NV(nvmlInit_v2)() || NV(nvmlDeviceGetHandleByIndex_v2)(index, &device))
        return 4;
    ask();
    printf(",\"touched\":%u}\n", touched);
    return 0;
}
