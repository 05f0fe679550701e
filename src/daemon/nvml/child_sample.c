/* SPDX-License-Identifier: Apache-2.0 */
/* Reads samples from NVML, see child_sample.h. Single-threaded, in the NVML child only. */
#include "daemon/nvml/child_sample.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aliquot/nvml_abi.h"
#include "daemon/nvml/child_use.h"

#define FUNCTIONS(X)                                                                               \
    X(nvmlDeviceGetMemoryInfo)                                                                     \
    X(nvmlDeviceGetMemoryInfo_v2)                                                                  \
    X(nvmlDeviceGetUtilizationRates)

static struct {
#define MEMBER(name) __typeof__(&name) name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} calls;

/* The lists of one form: _v3 (510) and _v2 have elements alike, the first form shorter ones. */
typedef nvmlReturn_t (*list_fn)(nvmlDevice_t, unsigned int *, nvmlProcessInfo_v2_t *);
static const char *const list_names[] = {
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
};
#define LISTS (sizeof(list_names) / sizeof(list_names[0]))
static list_fn lists[LISTS];

/* Up to when the utilisation of processes has been read, per GPU of NVML's order. */
static uint64_t seen_us[ALQ_NVML_GPUS_MAX];

void alq_child_sample_init(void *library)
{
#define RESOLVE(name) *(void **)&calls.name = dlsym(library, #name);
    FUNCTIONS(RESOLVE)
#undef RESOLVE
    for (size_t i = 0; i < LISTS; i++) {
        char name[64];
        size_t len = strlen(list_names[i]);
        memcpy(name, list_names[i], len + 1);
        *(void **)&lists[i] = dlsym(library, name);
        name[len - 1] = '2';
        if (!lists[i])
            *(void **)&lists[i] = dlsym(library, name);
    }
}

static void read_memory(nvmlDevice_t device, struct alq_gpu_sample *gpu)
{
    nvmlMemory_v2_t v2 = {.version = nvmlMemory_v2};
    nvmlMemory_t v1 = {0};
    if (calls.nvmlDeviceGetMemoryInfo_v2 &&
        calls.nvmlDeviceGetMemoryInfo_v2(device, &v2) == NVML_SUCCESS) {
        gpu->total_bytes = (int64_t)v2.total;
        gpu->used_bytes = (int64_t)v2.used;
    } else if (calls.nvmlDeviceGetMemoryInfo &&
               calls.nvmlDeviceGetMemoryInfo(device, &v1) == NVML_SUCCESS) {
        gpu->total_bytes = (int64_t)v1.total;
        gpu->used_bytes = (int64_t)v1.used;
    }
}

static int percent(unsigned int value)
{
    return value > 100 ? 100 : (int)value;
}

/* -1: this list cannot be had. */
static int read_list(nvmlDevice_t device, list_fn list, struct alq_gpu_sample *gpu)
{
    static nvmlProcessInfo_v2_t infos[ALQ_SAMPLE_PROCESSES_MAX];
    unsigned int count = ALQ_SAMPLE_PROCESSES_MAX;
    if (!list || list(device, &count, infos) != NVML_SUCCESS || count > ALQ_SAMPLE_PROCESSES_MAX)
        return -1;
    for (unsigned int i = 0; i < count; i++) {
        int64_t used = (int64_t)infos[i].usedGpuMemory;
        if (infos[i].pid && infos[i].pid <= INT32_MAX)
            alq_sample_add_process(gpu, infos[i].pid, used < 0 ? ALQ_UNKNOWN : used);
    }
    return 0;
}

static void read_utilization(nvmlDevice_t device, uint32_t index, struct alq_gpu_sample *gpu)
{
    struct alq_use_gpu use = {0};
    child_read_use(device, &seen_us[index], &use);
    for (uint32_t p = 0; p < gpu->process_count; p++)
        for (uint32_t u = 0; u < use.process_count; u++)
            if (use.processes[u].pid == gpu->processes[p].pid)
                gpu->processes[p].sm_pct = use.processes[u].sm_pct;
    free(use.processes);
}

static void read_gpu(nvmlDevice_t device, uint32_t index, struct alq_gpu_sample *gpu)
{
    nvmlUtilization_t rates = {0};
    gpu->total_bytes = gpu->used_bytes = ALQ_UNKNOWN;
    gpu->utilization_pct = gpu->memory_utilization_pct = ALQ_UNKNOWN;
    read_memory(device, gpu);
    if (calls.nvmlDeviceGetUtilizationRates &&
        calls.nvmlDeviceGetUtilizationRates(device, &rates) == NVML_SUCCESS) {
        gpu->utilization_pct = percent(rates.gpu);
        gpu->memory_utilization_pct = percent(rates.memory);
    }
    gpu->has_processes = !read_list(device, lists[0], gpu);
    for (size_t i = 1; i < LISTS; i++)
        read_list(device, lists[i], gpu);
    read_utilization(device, index, gpu);
}

int alq_child_sample(const struct child *c, struct alq_sample *sample)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    sample->begun_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    uint32_t count = child_gpu_count();
    sample->gpus = calloc(count ? count : 1, sizeof(*sample->gpus));
    if (!sample->gpus)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        struct alq_gpu_sample *gpu = &sample->gpus[sample->gpu_count];
        nvmlDevice_t device = NULL;
        int rc = child_visit(c, i, &device, gpu->uuid);
        if (rc < 0)
            return -1;
        if (!rc)
            continue;
        gpu->processes = calloc(ALQ_SAMPLE_PROCESSES_MAX, sizeof(*gpu->processes));
        if (!gpu->processes)
            return -1;
        sample->gpu_count++;
        read_gpu(device, i, gpu);
    }
    return 0;
}
