/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured program of bench_hook.c: linked with libcuda, so that its calls go the way the
 * dynamic linker bound them. It does one short block of work for each line that it reads, and
 * answers with the nanoseconds an operation took, so that the bench can let several of these
 * programs take turns:
 *
 *   launch         kernels that take no time
 *   live N         frees all that it has and allocates N (no figure: 0)
 *   pairs N        N times one of the live ones, at random, is freed and another allocated
 *   refuse, view   refused allocations, cuMemGetInfo
 *   worst          CPU time of the dearest call on the way to a million live ones and back
 *
 * A block that takes too long, under a library that goes through a list at each free, is cut short:
 * the answer is negative.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aliquot/cuda_abi.h"

enum { CALLS = 500, MILLION = 1000000 };

#define BLOCK_NS_MAX 5000000000ull

static CUdeviceptr live[MILLION];
static uint32_t live_count;
static CUfunction kernel;

static uint64_t clock_ns(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static void need(CUresult rc, const char *what)
{
    if (rc == CUDA_SUCCESS)
        return;
    fprintf(stderr, "hook_child: %s: %d\n", what, rc);
    exit(1);
}

static double launches(void)
{
    uint64_t us = 1;
    void *params[] = {&us};
    uint64_t from = now_ns();
    for (int i = 0; i < CALLS; i++)
        need(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL), "cuLaunchKernel");
    double ns = (double)(now_ns() - from) / CALLS;
    need(cuCtxSynchronize(), "cuCtxSynchronize");
    return ns;
}

static double make_live(uint32_t count)
{
    while (live_count)
        need(cuMemFree_v2(live[--live_count]), "cuMemFree");
    for (; live_count < count && live_count < MILLION; live_count++)
        need(cuMemAlloc_v2(&live[live_count], 512), "cuMemAlloc");
    return 0;
}

static uint32_t next_random(void)
{
    static uint32_t seed = 1;
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static double pairs(uint32_t count)
{
    uint64_t from = now_ns();
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = next_random() % live_count;
        need(cuMemFree_v2(live[at]), "cuMemFree");
        need(cuMemAlloc_v2(&live[at], 512), "cuMemAlloc");
        if (i % 100 == 99 && now_ns() - from > BLOCK_NS_MAX)
            return -(double)(now_ns() - from) / (i + 1);
    }
    return (double)(now_ns() - from) / count;
}

static double refusals(void)
{
    CUdeviceptr p;
    uint64_t from = now_ns();
    for (int i = 0; i < CALLS; i++)
        if (cuMemAlloc_v2(&p, 1ull << 40) != CUDA_ERROR_OUT_OF_MEMORY)
            need(CUDA_ERROR_INVALID_VALUE, "a terabyte");
    return (double)(now_ns() - from) / CALLS;
}

static double views(void)
{
    size_t free_bytes, total_bytes;
    uint64_t from = now_ns();
    for (int i = 0; i < CALLS; i++)
        need(cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
    return (double)(now_ns() - from) / CALLS;
}

/* CPU time of this thread, so that another process on the core does not count. */
static double worst(void)
{
    uint64_t worst_ns = 0, last = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    for (uint32_t i = 0; i < 2 * MILLION; i++) {
        if (i < MILLION)
            need(cuMemAlloc_v2(&live[i], 512), "cuMemAlloc");
        else
            need(cuMemFree_v2(live[i - MILLION]), "cuMemFree");
        uint64_t now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        if (now - last > worst_ns)
            worst_ns = now - last;
        last = now;
    }
    return (double)worst_ns;
}

int main(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry busy_us(.param .u64 us)\n{\nret;\n}\n";
    char line[64], word[16];
    CUcontext context;
    CUmodule module;

    need(cuInit(0), "cuInit");
    need(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&kernel, module, "busy_us"), "cuModuleGetFunction");
    while (fgets(line, sizeof(line), stdin)) {
        uint32_t count = 0;
        double ns = 0;
        if (sscanf(line, "%15s %u", word, &count) < 1)
            return 2;
        if (!strcmp(word, "launch"))
            ns = launches();
        else if (!strcmp(word, "live"))
            ns = make_live(count);
        else if (!strcmp(word, "pairs"))
            ns = pairs(count);
        else if (!strcmp(word, "refuse"))
            ns = refusals();
        else if (!strcmp(word, "view"))
            ns = views();
        else if (!strcmp(word, "worst"))
            ns = worst();
        else
            return 2;
        printf("%.3f\n", ns);
        fflush(stdout);
    }
    return 0;
}
