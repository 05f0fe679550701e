/* SPDX-License-Identifier: Apache-2.0 */
/* Prints each GPU's memory as CUDA sees it and as NVML sees it, one line of key=value a GPU.
 * Single-threaded. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "aliquot/nvml_abi.h"
#include "gpu.h"

static struct {
    __typeof__(nvmlInit_v2) *init;
    __typeof__(nvmlShutdown) *shutdown;
    __typeof__(nvmlDeviceGetHandleByUUID) *by_uuid;
    __typeof__(nvmlDeviceGetMemoryInfo) *memory;
} nvml;

static void nvml_open(void)
{
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    nvml.init = (__typeof__(nvml.init))dlsym(handle, "nvmlInit_v2");
    nvml.shutdown = (__typeof__(nvml.shutdown))dlsym(handle, "nvmlShutdown");
    nvml.by_uuid = (__typeof__(nvml.by_uuid))dlsym(handle, "nvmlDeviceGetHandleByUUID");
    nvml.memory = (__typeof__(nvml.memory))dlsym(handle, "nvmlDeviceGetMemoryInfo");
    if (!nvml.init || !nvml.shutdown || !nvml.by_uuid || !nvml.memory) {
        fprintf(stderr, "libnvidia-ml.so.1 lacks a function this program needs\n");
        exit(1);
    }
    nvmlReturn_t rc = nvml.init();
    if (rc != NVML_SUCCESS) {
        fprintf(stderr, "nvmlInit: error %d\n", (int)rc);
        exit(1);
    }
}

int main(void)
{
    struct gpu_device devices[GPU_DEVICES_MAX];
    int count = gpu_open(devices);
    nvml_open();
    for (int i = 0; i < count; i++) {
        struct gpu_device *d = &devices[i];
        size_t device_total = 0;
        size_t free_bytes = 0;
        size_t total = 0;
        gpu_check(gpu.cuDeviceTotalMem_v2(&device_total, d->device), "cuDeviceTotalMem");
        gpu_enter(d);
        gpu_check(gpu.cuMemGetInfo_v2(&free_bytes, &total), "cuMemGetInfo");
        nvmlDevice_t handle;
        nvmlMemory_t memory;
        nvmlReturn_t rc = nvml.by_uuid(d->uuid, &handle);
        if (rc == NVML_SUCCESS)
            rc = nvml.memory(handle, &memory);
        if (rc != NVML_SUCCESS) {
            fprintf(stderr, "nvml: %s: error %d\n", d->uuid, (int)rc);
            return 1;
        }
        printf("report gpu=%d uuid=%s name=\"%s\" cuda_device_total_bytes=%zu cuda_total_bytes=%zu "
               "cuda_free_bytes=%zu "
               "nvml_total_bytes=%llu nvml_used_bytes=%llu\n",
               i, d->uuid, d->name, device_total, total, free_bytes, memory.total, memory.used);
        gpu_leave(d);
    }
    nvml.shutdown();
    return 0;
}
