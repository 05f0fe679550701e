/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program for test_gate_manners.py, which knows nothing of libvgpu.so. Errors that it does not
 * expect end it with 1.
 *
 *   manners_client forms          every form of a launch once; prints each with the driver's
 * answer, the nodes of a captured graph, and what events say of a kernel manners_client spin ROUNDS
 * a kernel that spins until the tenth later launch manners_client wait SECONDS   launches that wait
 * long, with a timer's signals meanwhile; prints how often they were handled inside a launch, and
 * how many launches returned; another thread ends the program then manners_client fork prints what
 * a child gets from the driver, when a line comes
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aliquot/cuda_abi.h"

#define KERNEL_US 1000u
#define WAIT_KERNEL_US 100000u
#define AHEAD_US 300000u
#define LATER 10

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry busy_us(.param .u64 us)\n{\nret;\n}\n"
                          ".visible .entry spin_until(.param .u64 flag)\n{\nret;\n}\n"
                          ".visible .entry fill(.param .u64 to, .param .u32 value, .param .u64 n)\n"
                          "{\nret;\n}\n";

__typeof__(cuLaunchKernel) cuLaunchKernel_ptsz;
__typeof__(cuLaunchKernelEx) cuLaunchKernelEx_ptsz;
__typeof__(cuLaunchCooperativeKernel) cuLaunchCooperativeKernel_ptsz;
__typeof__(cuGraphLaunch) cuGraphLaunch_ptsz;

static void need(CUresult rc, const char *what)
{
    if (rc == CUDA_SUCCESS)
        return;
    fprintf(stderr, "manners_client: %s: %d\n", what, (int)rc);
    exit(1);
}
#define NEED(call) need(call, #call)

struct device {
    CUcontext context;
    CUstream stream;
    CUfunction busy, spin, fill;
};

static struct device open_device(int ordinal)
{
    struct device d;
    CUmodule module;
    NEED(cuCtxCreate_v2(&d.context, 0, ordinal));
    NEED(cuModuleLoadData(&module, ptx));
    NEED(cuModuleGetFunction(&d.busy, module, "busy_us"));
    NEED(cuModuleGetFunction(&d.spin, module, "spin_until"));
    NEED(cuModuleGetFunction(&d.fill, module, "fill"));
    NEED(cuStreamCreate(&d.stream, CU_STREAM_NON_BLOCKING));
    return d;
}

static CUresult busy(const struct device *d, CUstream stream, uint64_t us)
{
    void *params[] = {&us};
    return cuLaunchKernel(d->busy, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
}

static void show(const char *name, CUresult rc)
{
    printf("%s %d\n", name, (int)rc);
}
#define SHOW(name, ...) show(#name, name(__VA_ARGS__))

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A kernel behind another, which has to be long enough for all of this to be on the GPU before it
 * ends: where this thread lost the processor meanwhile, once more. */
static void show_elapsed(const struct device *d)
{
    CUevent from, to;
    uint64_t took_ns = UINT64_MAX;
    float ms = 0;
    NEED(cuEventCreate(&from, CU_EVENT_DEFAULT));
    NEED(cuEventCreate(&to, CU_EVENT_DEFAULT));
    while (took_ns > AHEAD_US * 1000u * 2 / 3) {
        took_ns = now_ns();
        NEED(busy(d, d->stream, AHEAD_US));
        NEED(cuEventRecord(from, d->stream));
        NEED(busy(d, d->stream, 5000));
        NEED(cuEventRecord(to, d->stream));
        took_ns = now_ns() - took_ns;
        NEED(cuEventSynchronize(to));
        NEED(cuEventElapsedTime(&ms, from, to));
    }
    printf("elapsed_us %d\n", (int)(ms * 1000));
}

static CUgraphExec captured(const struct device *d)
{
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    NEED(cuStreamBeginCapture_v2(d->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 4; i++)
        NEED(busy(d, d->stream, KERNEL_US));
    NEED(cuStreamEndCapture(d->stream, &graph));
    NEED(cuGraphGetNodes(graph, NULL, &nodes));
    NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    printf("nodes %zu\n", nodes);
    return exec;
}

static void forms(void)
{
    const struct device other = open_device(1), d = open_device(0);
    uint64_t us = KERNEL_US;
    void *params[] = {&us};
    const CUlaunchConfig config = {.gridDimX = 1,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 32,
                                   .blockDimY = 1,
                                   .blockDimZ = 1};
    CUDA_LAUNCH_PARAMS each[2];

    SHOW(cuLaunchKernel, d.busy, 1, 1, 1, 32, 1, 1, 0, d.stream, params, NULL);
    SHOW(cuLaunchKernel_ptsz, d.busy, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    SHOW(cuLaunchKernelEx, &config, d.busy, params, NULL);
    SHOW(cuLaunchKernelEx_ptsz, &config, d.busy, params, NULL);
    SHOW(cuLaunchCooperativeKernel, d.busy, 1, 1, 1, 32, 1, 1, 0, d.stream, params);
    SHOW(cuLaunchCooperativeKernel_ptsz, d.busy, 1, 1, 1, 32, 1, 1, 0, d.stream, params);
    NEED(cuFuncSetBlockShape(d.busy, 32, 1, 1));
    NEED(cuParamSetSize(d.busy, sizeof(us)));
    NEED(cuParamSetv(d.busy, 0, &us, sizeof(us)));
    SHOW(cuLaunch, d.busy);
    SHOW(cuLaunchGrid, d.busy, 1, 1);
    SHOW(cuLaunchGridAsync, d.busy, 1, 1, d.stream);
    for (int i = 0; i < 2; i++)
        each[i] = (CUDA_LAUNCH_PARAMS){.function = i ? other.busy : d.busy,
                                       .gridDimX = 1,
                                       .gridDimY = 1,
                                       .gridDimZ = 1,
                                       .blockDimX = 32,
                                       .blockDimY = 1,
                                       .blockDimZ = 1,
                                       .hStream = i ? other.stream : d.stream,
                                       .kernelParams = params};
    SHOW(cuLaunchCooperativeKernelMultiDevice, each, 2, 0);
    CUgraphExec exec = captured(&d);
    SHOW(cuGraphLaunch, exec, d.stream);
    SHOW(cuGraphLaunch_ptsz, exec, d.stream);
    NEED(cuCtxSynchronize());
    /* Wrong: the driver's own answers. */
    show("no-grid", cuLaunchKernel(d.busy, 0, 1, 1, 32, 1, 1, 0, d.stream, params, NULL));
    show("no-function", cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, d.stream, params, NULL));
    show("no-graph", cuGraphLaunch(NULL, d.stream));
    show_elapsed(&d);
}

static void spin(int rounds)
{
    const struct device d = open_device(0);
    CUstream later;
    CUdeviceptr flags;
    uint32_t one = 1;
    uint64_t count = 1;
    NEED(cuStreamCreate(&later, CU_STREAM_NON_BLOCKING));
    NEED(cuMemAlloc_v2(&flags, (size_t)rounds * sizeof(one)));
    NEED(cuMemsetD8_v2(flags, 0, (size_t)rounds * sizeof(one)));
    for (int i = 0; i < rounds; i++) {
        CUdeviceptr flag = flags + (CUdeviceptr)i * sizeof(one);
        void *spins[] = {&flag}, *sets[] = {&flag, &one, &count};
        NEED(cuLaunchKernel(d.spin, 1, 1, 1, 32, 1, 1, 0, d.stream, spins, NULL));
        for (int k = 1; k < LATER; k++)
            NEED(busy(&d, later, KERNEL_US));
        NEED(cuLaunchKernel(d.fill, 1, 1, 1, 32, 1, 1, 0, later, sets, NULL));
        NEED(cuStreamSynchronize(d.stream));
    }
    printf("rounds %d\n", rounds);
}

static volatile sig_atomic_t is_inside, handled;
static _Atomic int returned;

static void on_alarm(int number)
{
    (void)number;
    handled += is_inside;
}

static void *end_later(void *seconds)
{
    usleep((useconds_t)(atof(seconds) * 1e6));
    printf("handled %d returned %d\n", (int)handled, returned);
    exit(0);
}

static void wait_long(char *seconds)
{
    const struct device d = open_device(0);
    const struct itimerval often = {{0, 20000}, {0, 20000}};
    const struct sigaction action = {.sa_handler = on_alarm};
    sigset_t alarms;
    pthread_t thread;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    pthread_create(&thread, NULL, end_later, seconds);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        is_inside = 1;
        NEED(busy(&d, d.stream, WAIT_KERNEL_US));
        is_inside = 0;
        returned++;
    }
}

static void in_child(void)
{
    const struct device d = open_device(0);
    char line[16];
    for (int i = 0; i < 50; i++)
        NEED(busy(&d, d.stream, KERNEL_US));
    NEED(cuCtxSynchronize());
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        CUevent event;
        for (int i = 0; i < 20; i++)
            busy(&d, d.stream, KERNEL_US);
        show("launch", busy(&d, d.stream, KERNEL_US));
        show("query", cuStreamQuery(d.stream));
        show("synchronize", cuCtxSynchronize());
        show("event", cuEventCreate(&event, CU_EVENT_DEFAULT));
        fflush(stdout);
        _exit(0);
    }
    int status = 1;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        exit(1);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    NEED(cuInit(0));
    if (!strcmp(what, "forms"))
        forms();
    else if (!strcmp(what, "spin") && argc == 3)
        spin(atoi(argv[2]));
    else if (!strcmp(what, "wait") && argc == 3)
        wait_long(argv[2]);
    else if (!strcmp(what, "fork"))
        in_child();
    else
        return 2;
    return 0;
}
