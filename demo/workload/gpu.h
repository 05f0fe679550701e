/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the demo's three programs share: the driver opened by its SONAME as the CUDA runtime does,
 * and a context on each device. A program ends with status 1 and one line on stderr at the first
 * call that fails.
 */
#ifndef DEMO_GPU_H
#define DEMO_GPU_H

#include "aliquot/cuda_abi.h"

#define GPU_DEVICES_MAX 16
#define GPU_UUID_TEXT 48

#define GPU_CALLS(X)                                                                               \
    X(cuInit)                                                                                      \
    X(cuGetErrorName)                                                                              \
    X(cuDeviceGetCount)                                                                            \
    X(cuDeviceGet)                                                                                 \
    X(cuDeviceGetName)                                                                             \
    X(cuDeviceGetUuid)                                                                             \
    X(cuDeviceTotalMem_v2)                                                                         \
    X(cuDevicePrimaryCtxRetain)                                                                    \
    X(cuDevicePrimaryCtxRelease_v2)                                                                \
    X(cuCtxSetCurrent)                                                                             \
    X(cuMemGetInfo_v2)                                                                             \
    X(cuMemAlloc_v2)                                                                               \
    X(cuMemFree_v2)                                                                                \
    X(cuModuleLoadData)                                                                            \
    X(cuModuleGetFunction)                                                                         \
    X(cuModuleUnload)                                                                              \
    X(cuLaunchKernel)                                                                              \
    X(cuStreamCreate)                                                                              \
    X(cuStreamSynchronize)                                                                         \
    X(cuStreamDestroy_v2)

struct gpu_driver {
#define X(name) __typeof__(name) *name;
    GPU_CALLS(X)
#undef X
};

extern struct gpu_driver gpu;

struct gpu_device {
    CUdevice device;
    CUcontext context;
    char name[96];
    char uuid[GPU_UUID_TEXT];
};

/* Opens the driver, calls cuInit, fills devices[0..GPU_DEVICES_MAX) without contexts. Returns how
 * many. */
int gpu_open(struct gpu_device *devices);

/* Retains the primary context and makes it current to this thread. Out of memory is waited for,
 * half a minute at most: another container of the same share may hold it all for a while. Any other
 * failure ends the program. */
void gpu_enter(struct gpu_device *device);
void gpu_leave(struct gpu_device *device);

/* Ends the program when result is not CUDA_SUCCESS, naming what failed. */
void gpu_check(CUresult result, const char *what);

/* "--name N" among the arguments, else fallback. Ends the program with status 2 on anything else.
 */
double gpu_option_seconds(int argc, char **argv, const char *name, double fallback);

#endif
