/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that keeps the GPU as busy as it is let: launches kernels of so many microseconds,
 * eager or as graphs of four, or fills memory for about as long each, over one or more streams, and
 * waits for its streams after every so many launches.
 *
 *   gate_client SECONDS MICROSECONDS eager|graph|fill STREAMS SYNC_EVERY [BLOCKS]
 *
 * Prints "ready" when its context is there, starts at a line on stdin, and ends with the number of
 * launches.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aliquot/cuda_abi.h"

#define STREAMS_MAX 16
#define GRAPH_KERNELS 4
#define FILL_BYTES_PER_US 1000000u /* of the simulated GPU */

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry busy_us(.param .u64 us)\n{\nret;\n}\n";

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void need(CUresult rc, const char *what)
{
    if (rc == CUDA_SUCCESS)
        return;
    fprintf(stderr, "gate_client: %s: %d\n", what, (int)rc);
    exit(1);
}
#define NEED(call) need(call, #call)

int main(int argc, char **argv)
{
    CUstream streams[STREAMS_MAX];
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUgraph graph;
    CUgraphExec exec = NULL;
    CUdeviceptr area = 0;
    uint64_t us, launches = 0;
    void *params[] = {&us};
    char line[16];

    if (argc < 6 || argc > 7 || atoi(argv[4]) < 1 || atoi(argv[4]) > STREAMS_MAX)
        return 2;
    us = strtoull(argv[2], NULL, 10);
    int stream_count = atoi(argv[4]), sync_every = atoi(argv[5]);
    unsigned int blocks = argc > 6 ? (unsigned int)atoi(argv[6]) : 1;
    NEED(cuInit(0));
    NEED(cuCtxCreate_v2(&context, 0, 0));
    NEED(cuModuleLoadData(&module, ptx));
    NEED(cuModuleGetFunction(&function, module, "busy_us"));
    streams[0] = NULL;
    for (int i = stream_count > 1 || !strcmp(argv[3], "graph") ? 0 : 1; i < stream_count; i++)
        NEED(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    if (!strcmp(argv[3], "graph")) {
        NEED(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int i = 0; i < GRAPH_KERNELS; i++)
            NEED(cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, streams[0], params, NULL));
        NEED(cuStreamEndCapture(streams[0], &graph));
        NEED(cuGraphInstantiateWithFlags(&exec, graph, 0));
    }
    if (!strcmp(argv[3], "fill"))
        NEED(cuMemAlloc_v2(&area, us * FILL_BYTES_PER_US));
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        return 1;
    uint64_t until = now_ns() + (uint64_t)(atof(argv[1]) * 1e9);
    while (now_ns() < until) {
        CUstream stream = streams[launches % (uint64_t)stream_count];
        if (exec)
            NEED(cuGraphLaunch(exec, stream));
        else if (area)
            NEED(cuMemsetD8Async(area, 0, us * FILL_BYTES_PER_US, stream));
        else
            NEED(cuLaunchKernel(function, blocks, 1, 1, 32, 1, 1, 0, stream, params, NULL));
        if (++launches % (uint64_t)sync_every == 0)
            NEED(cuStreamSynchronize(stream));
    }
    NEED(cuCtxSynchronize());
    printf("%llu\n", (unsigned long long)launches);
    return 0;
}
