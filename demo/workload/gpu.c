/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the driver for the demo's programs; see gpu.h. Single-threaded but for gpu_enter and
 * gpu_leave. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct gpu_driver gpu;

void gpu_check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *name = NULL;
    if (!gpu.cuGetErrorName || gpu.cuGetErrorName(result, &name) != CUDA_SUCCESS || !name)
        name = "unknown error";
    fprintf(stderr, "%s: %s (%d)\n", what, name, (int)result);
    exit(1);
}

int gpu_open(struct gpu_device *devices)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define X(call)                                                                                    \
    gpu.call = (__typeof__(gpu.call))dlsym(handle, #call);                                         \
    if (!gpu.call) {                                                                               \
        fprintf(stderr, "libcuda.so.1 has no %s\n", #call);                                        \
        exit(1);                                                                                   \
    }
    GPU_CALLS(X)
#undef X
    gpu_check(gpu.cuInit(0), "cuInit");
    int count = 0;
    gpu_check(gpu.cuDeviceGetCount(&count), "cuDeviceGetCount");
    if (count > GPU_DEVICES_MAX)
        count = GPU_DEVICES_MAX;
    for (int i = 0; i < count; i++) {
        struct gpu_device *d = &devices[i];
        memset(d, 0, sizeof(*d));
        gpu_check(gpu.cuDeviceGet(&d->device, i), "cuDeviceGet");
        gpu_check(gpu.cuDeviceGetName(d->name, sizeof(d->name), d->device), "cuDeviceGetName");
        CUuuid uuid;
        gpu_check(gpu.cuDeviceGetUuid(&uuid, d->device), "cuDeviceGetUuid");
        char *out = d->uuid + sprintf(d->uuid, "GPU");
        for (int b = 0; b < 16; b++) {
            int starts_group = b == 0 || b == 4 || b == 6 || b == 8 || b == 10;
            out += sprintf(out, "%s%02x", starts_group ? "-" : "",
                           (unsigned)(unsigned char)uuid.bytes[b]);
        }
    }
    return count;
}

void gpu_enter(struct gpu_device *device)
{
    const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    CUresult result = gpu.cuDevicePrimaryCtxRetain(&device->context, device->device);
    for (int tries = 0; result == CUDA_ERROR_OUT_OF_MEMORY && tries < 300; tries++) {
        nanosleep(&pause, NULL);
        result = gpu.cuDevicePrimaryCtxRetain(&device->context, device->device);
    }
    gpu_check(result, "context");
    gpu_check(gpu.cuCtxSetCurrent(device->context), "cuCtxSetCurrent");
}

void gpu_leave(struct gpu_device *device)
{
    gpu_check(gpu.cuCtxSetCurrent(NULL), "cuCtxSetCurrent");
    gpu_check(gpu.cuDevicePrimaryCtxRelease_v2(device->device), "cuDevicePrimaryCtxRelease");
}

double gpu_option_seconds(int argc, char **argv, const char *name, double fallback)
{
    if (argc == 1)
        return fallback;
    char *end = NULL;
    double value = argc == 3 && strcmp(argv[1], name) == 0 ? strtod(argv[2], &end) : -1;
    if (!end || *end || end == argv[2] || !(value >= 0 && value <= 86400)) {
        fprintf(stderr, "usage: %s [%s SECONDS]\n", argv[0], name);
        exit(2);
    }
    return value;
}
