/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps every GPU busy with kernels of one millisecond for some seconds, a thread for each GPU,
 * never more than sixteen launches ahead. Prints when (CLOCK_MONOTONIC) it was busy and how many
 * kernels it ran.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "gpu.h"

#define KERNEL_US 1000
#define LAUNCHES_AHEAD 16

/* Spins until so many microseconds have gone by on the GPU's own timer. */
static const char busy_ptx[] = ".version 6.0\n"
                               ".target sm_50\n"
                               ".address_size 64\n"
                               ".visible .entry busy_us(.param .u64 us)\n"
                               "{\n"
                               "    .reg .pred %p;\n"
                               "    .reg .u64 %limit, %start, %now;\n"
                               "    ld.param.u64 %limit, [us];\n"
                               "    mul.lo.u64 %limit, %limit, 1000;\n"
                               "    mov.u64 %start, %globaltimer;\n"
                               "again:\n"
                               "    mov.u64 %now, %globaltimer;\n"
                               "    sub.u64 %now, %now, %start;\n"
                               "    setp.lt.u64 %p, %now, %limit;\n"
                               "    @%p bra again;\n"
                               "    ret;\n"
                               "}\n";

struct job {
    struct gpu_device *device;
    int index;
    double seconds;
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void *run(void *arg)
{
    struct job *job = arg;
    CUmodule module;
    CUfunction function;
    CUstream stream;
    gpu_enter(job->device);
    gpu_check(gpu.cuModuleLoadData(&module, busy_ptx), "cuModuleLoadData");
    gpu_check(gpu.cuModuleGetFunction(&function, module, "busy_us"), "cuModuleGetFunction");
    gpu_check(gpu.cuStreamCreate(&stream, 0), "cuStreamCreate");
    uint64_t us = KERNEL_US;
    void *params[] = {&us};
    uint64_t start = now_ns();
    uint64_t end = start + (uint64_t)(job->seconds * 1e9);
    unsigned long kernels = 0;
    while (now_ns() < end) {
        for (int i = 0; i < LAUNCHES_AHEAD && now_ns() < end; i++, kernels++)
            gpu_check(gpu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL),
                      "cuLaunchKernel");
        gpu_check(gpu.cuStreamSynchronize(stream), "cuStreamSynchronize");
    }
    printf("busy gpu=%d uuid=%s start_ns=%llu end_ns=%llu kernels=%lu kernel_us=%d\n", job->index,
           job->device->uuid, (unsigned long long)start, (unsigned long long)now_ns(), kernels,
           KERNEL_US);
    gpu_check(gpu.cuStreamDestroy_v2(stream), "cuStreamDestroy");
    gpu_check(gpu.cuModuleUnload(module), "cuModuleUnload");
    gpu_leave(job->device);
    return NULL;
}

int main(int argc, char **argv)
{
    struct gpu_device devices[GPU_DEVICES_MAX];
    struct job jobs[GPU_DEVICES_MAX];
    pthread_t threads[GPU_DEVICES_MAX];
    double seconds = gpu_option_seconds(argc, argv, "--seconds", 5);
    int count = gpu_open(devices);
    for (int i = 0; i < count; i++) {
        jobs[i] = (struct job){.device = &devices[i], .index = i, .seconds = seconds};
        if (pthread_create(&threads[i], NULL, run, &jobs[i]) != 0) {
            fprintf(stderr, "no thread for gpu %d\n", i);
            return 1;
        }
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
