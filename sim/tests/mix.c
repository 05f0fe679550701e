/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that does a bit of everything in random order until it is killed, and a crowd of small
 * ones, for the simulator's tests of deaths.
 *
 *   mix SEED        contexts, modules, streams, events, allocations of every kind, copies, launches
 *                   and graphs; prints "mixing" first, never ends by itself
 *   crowd COUNT     COUNT fork children, each with a context and 4096 bytes; prints "held COUNT"
 *                   when all have, and ends with all of them at the end of stdin
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aliquot/cuda_abi.h"

#define LIVE 32

static void *library;

/* Errors are part of the mix: the device is full now and then, a handle is gone. */
#define TRY(function, ...) (((__typeof__(function) *)symbol(#function))(__VA_ARGS__))

static void *symbol(const char *name)
{
    void *found = dlsym(library, name);

    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(1);
    }
    return found;
}

static const char module_text[] = ".version 8.0\n"
                                  ".target sm_90\n"
                                  ".address_size 64\n"
                                  ".global .align 4 .b8 table[65536];\n"
                                  ".visible .entry busy_us(.param .u64 us) { ret; }\n";

static uint32_t seed;

static uint32_t pick(uint32_t below)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % below;
}

static void context_make(void)
{
    CUcontext context;

    if (TRY(cuInit, 0) != CUDA_SUCCESS ||
        TRY(cuDevicePrimaryCtxRetain, &context, 0) != CUDA_SUCCESS ||
        TRY(cuCtxSetCurrent, context) != CUDA_SUCCESS) {
        puts("no context");
        exit(1);
    }
}

static CUdeviceptr live[LIVE];
static int how[LIVE]; /* which kind of allocation it is */

static void allocate(uint32_t at)
{
    size_t bytes = 1 + pick(1 << 20), pitch;
    void *host = NULL;

    how[at] = (int)pick(5);
    live[at] = 0;
    if (how[at] == 0)
        TRY(cuMemAlloc_v2, &live[at], bytes);
    else if (how[at] == 1)
        TRY(cuMemAllocAsync, &live[at], bytes, NULL);
    else if (how[at] == 2)
        TRY(cuMemAllocManaged, &live[at], bytes, CU_MEM_ATTACH_GLOBAL);
    else if (how[at] == 3)
        TRY(cuMemAllocPitch_v2, &live[at], &pitch, 1000, 1 + bytes / 1024, 4);
    else if (TRY(cuMemHostAlloc, &host, bytes, 0) == CUDA_SUCCESS)
        live[at] = (CUdeviceptr)(uintptr_t)host;
}

static void release(uint32_t at)
{
    if (how[at] == 1)
        TRY(cuMemFreeAsync, live[at], NULL);
    else if (how[at] == 4)
        TRY(cuMemFreeHost, (void *)(uintptr_t)live[at]);
    else
        TRY(cuMemFree_v2, live[at]);
    live[at] = 0;
}

static void use_module(CUstream stream)
{
    uint64_t us = pick(200);
    void *params[] = {&us};
    CUmodule module;
    CUfunction function;

    if (TRY(cuModuleLoadData, &module, module_text) != CUDA_SUCCESS)
        return;
    if (TRY(cuModuleGetFunction, &function, module, "busy_us") == CUDA_SUCCESS)
        TRY(cuLaunchKernel, function, 1 + pick(200), 1, 1, 32, 1, 1, 0, stream, params, NULL);
    if (pick(2))
        TRY(cuModuleUnload, module);
}

static void use_graph(CUstream stream)
{
    CUgraph graph = NULL;
    CUgraphExec exec = NULL;

    if (TRY(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED) != CUDA_SUCCESS)
        return;
    if (live[0] && how[0] == 0)
        TRY(cuMemsetD8Async, live[0], 1, 1, stream);
    TRY(cuStreamEndCapture, stream, &graph);
    if (graph && TRY(cuGraphInstantiateWithFlags, &exec, graph, 0) == CUDA_SUCCESS) {
        TRY(cuGraphLaunch, exec, stream);
        TRY(cuGraphExecDestroy, exec);
    }
    if (graph)
        TRY(cuGraphDestroy, graph);
}

static void use_context(void)
{
    CUcontext other;
    CUdeviceptr p;

    if (TRY(cuCtxCreate_v2, &other, 0, 0) != CUDA_SUCCESS)
        return;
    TRY(cuMemAlloc_v2, &p, 1 + pick(1 << 20));
    TRY(cuCtxDestroy_v2, other);
}

static void mix(void)
{
    char bytes[256];
    CUstream stream = NULL;
    CUevent event;

    context_make();
    puts("mixing");
    fflush(stdout);
    for (;;) {
        uint32_t at = pick(LIVE), what = pick(16);

        if (what < 8 && !live[at])
            allocate(at);
        else if (what < 6)
            release(at);
        else if (what < 9 && live[at] && how[at] != 4)
            TRY(cuMemcpyDtoH_v2, bytes, live[at], 1);
        else if (what == 9 && !stream)
            TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
        else if (what == 10 && stream && TRY(cuStreamDestroy_v2, stream) == CUDA_SUCCESS)
            stream = NULL;
        else if (what == 11)
            use_module(stream);
        else if (what == 12 && stream)
            use_graph(stream);
        else if (what == 13)
            use_context();
        else if (what == 14 && TRY(cuEventCreate, &event, 0) == CUDA_SUCCESS) {
            TRY(cuEventRecord, event, stream);
            TRY(cuEventDestroy_v2, event);
        } else if (what == 15)
            TRY(cuCtxSynchronize);
    }
}

static int crowd(int count)
{
    int ready[2], held = 0;
    char byte;

    if (pipe(ready) != 0)
        return 1;
    for (int i = 0; i < count; i++) {
        pid_t child = fork();

        if (child < 0)
            return 1;
        if (child == 0) {
            CUdeviceptr p;

            prctl(PR_SET_PDEATHSIG, SIGKILL);
            context_make();
            if (TRY(cuMemAlloc_v2, &p, 4096) != CUDA_SUCCESS || write(ready[1], "", 1) != 1)
                _exit(1);
            while (pause())
                ;
        }
    }
    close(ready[1]);
    while (held < count && read(ready[0], &byte, 1) == 1)
        held++;
    printf("held %d\n", held);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}

int main(int argc, char **argv)
{
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (argc == 3 && strcmp(argv[1], "mix") == 0) {
        seed = (uint32_t)strtoul(argv[2], NULL, 0);
        mix();
    }
    if (argc == 3 && strcmp(argv[1], "crowd") == 0)
        return crowd(atoi(argv[2]));
    fprintf(stderr, "usage: sim-mix mix SEED | crowd COUNT\n");
    return 2;
}
