/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of a known amount of work on the first GPU, for run.sh; threads: one.
 *
 *   load time US eager|graph SECONDS LOOPS   keeps the GPU busy: "load kernels=N kernel_us=US
 * seconds=S" load calibrate                           "calibrate loops=L": turns of the kernel's
 * loop in a microsecond load calls                               "calls launch_ns=N record_ns=N":
 * launches and event records in a stream
 *
 * Graphs are captured from a stream, so they show that captures go on undisturbed too. A kernel
 * counts turns and not time: what it is preempted for does not make it shorter.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../../demo/workload/gpu.h"

#define AHEAD_US 20000  /* launches not waited for yet, in work; but two at least */
#define GRAPH_KERNELS 4 /* or one of 5 ms and more */
#define CALLS 20000

#define CALLS_MORE(X)                                                                              \
    X(cuEventCreate)                                                                               \
    X(cuEventRecord)                                                                               \
    X(cuEventSynchronize)                                                                          \
    X(cuEventElapsedTime)                                                                          \
    X(cuStreamBeginCapture_v2)                                                                     \
    X(cuStreamEndCapture)                                                                          \
    X(cuGraphInstantiateWithFlags)                                                                 \
    X(cuGraphLaunch)

static struct {
#define X(name) __typeof__(name) *name;
    CALLS_MORE(X)
#undef X
} more;

/* The simulated driver knows busy_us by its name and takes its first parameter for the time. */
static const char ptx_text[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                               ".visible .entry busy_us(.param .u64 us)\n{\n"
                               "    .reg .pred %%p;\n    .reg .u64 %%left;\n"
                               "    ld.param.u64 %%left, [us];\n"
                               "    mul.lo.u64 %%left, %%left, %lu;\n"
                               "again:\n"
                               "    add.u64 %%left, %%left, -1;\n"
                               "    setp.ne.u64 %%p, %%left, 0;\n"
                               "    @%%p bra again;\n"
                               "    ret;\n}\n";

static struct gpu_device devices[GPU_DEVICES_MAX];
static CUstream stream;
static CUfunction function;

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void open_all(unsigned long loops)
{
    char ptx[sizeof(ptx_text) + 32];
    CUmodule module;
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
    gpu_open(devices);
    gpu_enter(&devices[0]);
#define X(call)                                                                                    \
    more.call = (__typeof__(more.call))dlsym(handle, #call);                                       \
    gpu_check(more.call ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, #call);
    CALLS_MORE(X)
#undef X
    snprintf(ptx, sizeof(ptx), ptx_text, loops);
    gpu_check(gpu.cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    gpu_check(gpu.cuModuleGetFunction(&function, module, "busy_us"), "cuModuleGetFunction");
    gpu_check(gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
}

static void launch(uint64_t us)
{
    void *params[] = {&us};
    gpu_check(gpu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL),
              "cuLaunchKernel");
}

static void sync_stream(void)
{
    gpu_check(gpu.cuStreamSynchronize(stream), "cuStreamSynchronize");
}

static void calibrate(void)
{
    const unsigned long first = 100;
    CUevent from, to;
    float ms = 0, best = 0;
    open_all(first);
    gpu_check(more.cuEventCreate(&from, CU_EVENT_DEFAULT), "cuEventCreate");
    gpu_check(more.cuEventCreate(&to, CU_EVENT_DEFAULT), "cuEventCreate");
    for (int i = 0; i < 5; i++) {
        launch(20000);
        gpu_check(more.cuEventRecord(from, stream), "cuEventRecord");
        launch(20000);
        gpu_check(more.cuEventRecord(to, stream), "cuEventRecord");
        gpu_check(more.cuEventSynchronize(to), "cuEventSynchronize");
        gpu_check(more.cuEventElapsedTime(&ms, from, to), "cuEventElapsedTime");
        if (i == 0 || ms < best)
            best = ms;
    }
    printf("calibrate loops=%.0f\n", (double)first * 20 / (double)best);
}

static void run(uint64_t us, int is_graph, double seconds, unsigned long loops)
{
    CUgraph graph;
    CUgraphExec exec = NULL;
    uint64_t kernels = 0, each = is_graph && us < 5000 ? GRAPH_KERNELS : 1;
    open_all(loops);
    if (is_graph) {
        gpu_check(more.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                  "cuStreamBeginCapture");
        for (uint64_t i = 0; i < each; i++)
            launch(us);
        gpu_check(more.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
        gpu_check(more.cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
    }
    uint64_t ahead = AHEAD_US / (us * each) > 2 ? AHEAD_US / (us * each) : 2;
    uint64_t begin = now_ns(), settled = begin + 500000000u;
    uint64_t end = settled + (uint64_t)(seconds * 1e9), from = 0;
    /* The first half second is not counted. */
    while (now_ns() < end) {
        for (uint64_t i = 0; i < ahead && now_ns() < end; i++, kernels += each)
            if (exec)
                gpu_check(more.cuGraphLaunch(exec, stream), "cuGraphLaunch");
            else
                launch(us);
        sync_stream();
        if (!from && now_ns() >= settled) {
            from = now_ns();
            kernels = 0;
        }
    }
    printf("load kernels=%llu kernel_us=%llu seconds=%.3f\n", (unsigned long long)kernels,
           (unsigned long long)us, (double)(now_ns() - from) * 1e-9);
}

static void time_calls(void)
{
    CUevent event;
    uint64_t ns[2];
    open_all(1);
    gpu_check(more.cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate");
    for (int kind = 0; kind < 2; kind++) {
        uint64_t begin = now_ns();
        for (int i = 0; i < CALLS; i++) {
            if (kind)
                gpu_check(more.cuEventRecord(event, stream), "cuEventRecord");
            else
                launch(1);
            if (i % 500 == 499)
                sync_stream();
        }
        ns[kind] = (now_ns() - begin) / CALLS;
    }
    printf("calls launch_ns=%llu record_ns=%llu\n", (unsigned long long)ns[0],
           (unsigned long long)ns[1]);
}

int main(int argc, char **argv)
{
    if (argc == 6 && !strcmp(argv[1], "time"))
        run(strtoull(argv[2], NULL, 10), !strcmp(argv[3], "graph"), atof(argv[4]),
            strtoul(argv[5], NULL, 10));
    else if (argc == 2 && !strcmp(argv[1], "calibrate"))
        calibrate();
    else if (argc == 2 && !strcmp(argv[1], "calls"))
        time_calls();
    else
        return 2;
    return 0;
}
