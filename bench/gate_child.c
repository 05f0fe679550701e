/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured program of bench_gate.c: kernels of 1 to 10 us in rounds of 5 ms of work, with
 * pauses that keep the demand at a third of the GPU. Prints "launch min median" in ns a launch.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "aliquot/cuda_abi.h"

enum { ROUNDS = 61, LAUNCHES = 500, PAUSE_NS = 5000000 };

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

static void need(CUresult rc, const char *what)
{
    if (rc == CUDA_SUCCESS)
        return;
    fprintf(stderr, "gate_child: %s: %d\n", what, (int)rc);
    exit(1);
}

int main(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry busy_us(.param .u64 us)\n{\nret;\n}\n";
    static const uint64_t lengths[] = {1, 2, 5, 10};
    double rounds[ROUNDS];
    CUcontext context;
    CUmodule module;
    CUfunction function;

    need(cuInit(0), "cuInit");
    need(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
    need(cuModuleLoadData(&module, ptx), "cuModuleLoadData");
    need(cuModuleGetFunction(&function, module, "busy_us"), "cuModuleGetFunction");
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t us = lengths[round % 4];
        void *params[] = {&us};
        /* One size class for each length, as kernels of one size mostly take one time. */
        unsigned int blocks = 1u << round % 4;
        uint64_t from = now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            need(cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, NULL, params, NULL),
                 "cuLaunchKernel");
        rounds[round] = (double)(now_ns() - from) / LAUNCHES;
        need(cuCtxSynchronize(), "cuCtxSynchronize");
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    qsort(rounds, ROUNDS, sizeof(rounds[0]), by_value);
    printf("launch %.3f %.3f\n", rounds[0], rounds[ROUNDS / 2]);
    return 0;
}
