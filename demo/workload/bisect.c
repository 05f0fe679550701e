/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes all the device memory it can get from each GPU in turn, halving the size at each refusal
 * down to one byte, then holds it for a while and gives it back. Prints the sum of what it asked
 * for and was given. Any answer but success and out of memory ends it with status 1.
 * Single-threaded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "gpu.h"

#define ALLOCATIONS_MAX 4096

static void hold(double seconds)
{
    struct timespec ts = {.tv_sec = (time_t)seconds,
                          .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&ts, NULL);
}

int main(int argc, char **argv)
{
    static CUdeviceptr pointers[ALLOCATIONS_MAX];
    double hold_seconds = gpu_option_seconds(argc, argv, "--hold-seconds", 0);
    struct gpu_device devices[GPU_DEVICES_MAX];
    int count = gpu_open(devices);
    for (int i = 0; i < count; i++) {
        struct gpu_device *d = &devices[i];
        int used = 0;
        unsigned refusals = 0;
        size_t sum = 0;
        gpu_enter(d);
        for (size_t size = (size_t)1 << 40; size > 0;) {
            CUresult result = gpu.cuMemAlloc_v2(&pointers[used], size);
            if (result == CUDA_ERROR_OUT_OF_MEMORY || used == ALLOCATIONS_MAX - 1) {
                refusals++;
                size /= 2;
                continue;
            }
            gpu_check(result, "cuMemAlloc");
            sum += size;
            used++;
        }
        printf("bisect gpu=%d uuid=%s sum_bytes=%zu allocations=%d refusals=%u\n", i, d->uuid, sum,
               used, refusals);
        fflush(stdout);
        hold(hold_seconds);
        while (used > 0)
            gpu_check(gpu.cuMemFree_v2(pointers[--used]), "cuMemFree");
        gpu_leave(d);
    }
    return 0;
}
