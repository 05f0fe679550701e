/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured program of bench_hook.c: linked with libcuda, so that its calls go the way the
 * dynamic linker bound them. Prints lines "name min median" in nanoseconds an operation, over
 * rounds short enough that a quiet one is among them.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aliquot/cuda_abi.h"

enum { ROUNDS = 61, LIVE = 10, MILLION = 1000000 };

/* What a measure with a million live allocations may take: a library that goes through a list at
 * each free would need days. It is cut short then, and what comes after is not measured. */
#define BUDGET_NS 30000000000ull

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print(const char *name, double *rounds, int count)
{
    qsort(rounds, (size_t)count, sizeof(*rounds), by_value);
    printf("%s %.3f %.3f\n", name, rounds[0], rounds[count / 2]);
}

static void need(CUresult rc, const char *what)
{
    if (rc == CUDA_SUCCESS)
        return;
    fprintf(stderr, "hook_child: %s: %d\n", what, rc);
    exit(1);
}

static void launches(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry busy_us(.param .u64 us)\n{\nret;\n}\n";
    enum { LAUNCHES = 500 };
    double rounds[ROUNDS];
    uint64_t us = 1;
    void *params[] = {&us};
    CUmodule module;
    CUfunction function;
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "busy_us"), "cuModuleGetFunction");
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t from = now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            need(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL),
                 "cuLaunchKernel");
        rounds[round] = (double)(now_ns() - from) / LAUNCHES;
        need(cuCtxSynchronize(), "cuCtxSynchronize");
    }
    print("launch", rounds, ROUNDS);
}

static uint32_t next_random(void)
{
    static uint32_t seed = 1;
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* CPU time of this thread, so that another process on the core does not count. */
static uint64_t cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* The dearest single allocation and free on the way to a million live ones and back, over a few
 * ways. */
static void worst(void)
{
    static CUdeviceptr all[MILLION];
    double worst_ns[3];
    uint64_t end = now_ns() + BUDGET_NS;
    for (int way = 0; way < 3; way++) {
        worst_ns[way] = 0;
        uint64_t last = cpu_ns();
        for (int i = 0; i < 2 * MILLION; i++) {
            if (i < MILLION)
                need(cuMemAlloc_v2(&all[i], 512), "cuMemAlloc");
            else
                need(cuMemFree_v2(all[i - MILLION]), "cuMemFree");
            uint64_t now = cpu_ns();
            if ((double)(now - last) > worst_ns[way])
                worst_ns[way] = (double)(now - last);
            last = now;
            if (i % 1000 == 0 && now_ns() > end) {
                print("worst.1000000", worst_ns, way + 1);
                exit(0);
            }
        }
    }
    print("worst.1000000", worst_ns, 3);
}

/* One of the live ones, at random, is freed and another made; `live` of them all the time. */
static void allocations(const char *name, uint32_t live, int rounds_wanted, int pairs)
{
    CUdeviceptr *all = calloc(live, sizeof(*all));
    double rounds[ROUNDS];
    uint64_t end = now_ns() + BUDGET_NS;
    for (uint32_t i = 0; i < live; i++)
        need(cuMemAlloc_v2(&all[i], 512), "cuMemAlloc");
    for (int round = 0; round < rounds_wanted; round++) {
        uint64_t from = now_ns();
        for (int i = 0; i < pairs; i++) {
            uint32_t at = next_random() % live;
            need(cuMemFree_v2(all[at]), "cuMemFree");
            need(cuMemAlloc_v2(&all[at], 512), "cuMemAlloc");
            if (i % 1000 == 999 && now_ns() > end) {
                rounds[round] = (double)(now_ns() - from) / (i + 1);
                print(name, rounds, round + 1);
                exit(0);
            }
        }
        rounds[round] = (double)(now_ns() - from) / pairs;
    }
    print(name, rounds, rounds_wanted);
    for (uint32_t i = 0; i < live; i++)
        cuMemFree_v2(all[i]);
    free(all);
}

static void refusals(void)
{
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        CUdeviceptr p;
        uint64_t from = now_ns();
        for (int i = 0; i < 500; i++)
            if (cuMemAlloc_v2(&p, 1ull << 40) != CUDA_ERROR_OUT_OF_MEMORY)
                exit(1);
        rounds[round] = (double)(now_ns() - from) / 500;
    }
    print("refuse", rounds, ROUNDS);
}

static void views(void)
{
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        size_t free_bytes, total_bytes;
        uint64_t from = now_ns();
        for (int i = 0; i < 500; i++)
            need(cuMemGetInfo_v2(&free_bytes, &total_bytes), "cuMemGetInfo");
        rounds[round] = (double)(now_ns() - from) / 500;
    }
    print("view", rounds, ROUNDS);
}

int main(int argc, char **argv)
{
    CUcontext context;
    need(cuInit(0), "cuInit");
    need(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
    launches();
    allocations("alloc_free.10", LIVE, ROUNDS, 500);
    refusals();
    views();
    if (argc > 1 && !strcmp(argv[1], "million")) {
        allocations("alloc_free.1000000", MILLION, 11, 20000);
        worst();
    }
    return 0;
}
