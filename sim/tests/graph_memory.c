/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory nodes of graphs, one group of checks a run: `sim-graph-memory GROUP`. Prints "ok" with the
 * number of checks, or the first that failed. Needs a device of 2 GiB and compute capability 7.0 or
 * newer. The footprints are those that CUDA's guide and samples describe.
 */
#include <stdbool.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)
#define PIECE (64 * MIB)

static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .entry spin_until(.param .u64 flag) { ret; }\n";

static CUcontext context;
static CUfunction spin;
static CUstream stream, other;
static unsigned int *flag;
static size_t free_at_start;

static size_t free_bytes(void)
{
    size_t left, total;

    OK(cuMemGetInfo_v2, &left, &total);
    return left;
}

static void begin(void)
{
    CUmodule module;

    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    OK(cuModuleLoadData, &module, text);
    OK(cuModuleGetFunction, &spin, module, "spin_until");
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    OK(cuMemHostAlloc, (void **)&flag, sizeof(*flag), 0);
    *flag = 0;
    free_at_start = free_bytes();
}

static uint64_t figure(CUgraphMem_attribute attribute)
{
    uint64_t value;

    OK(cuDeviceGetGraphMemAttribute, 0, attribute, &value);
    return value;
}

#define USED figure(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)
#define USED_HIGH figure(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
#define RESERVED figure(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)
#define RESERVED_HIGH figure(CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)

/* The device has lost that much since the start, and it is all the graphs'. */
static void footprint(uint64_t bytes)
{
    IS(bytes, RESERVED);
    IS(free_at_start - bytes, free_bytes());
}

static CUDA_MEM_ALLOC_NODE_PARAMS wish(size_t bytes)
{
    return (CUDA_MEM_ALLOC_NODE_PARAMS){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        .bytesize = bytes};
}

static CUgraphNode alloc_node(CUgraph g, const CUgraphNode *after, size_t bytes,
                              CUdeviceptr *address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS p = wish(bytes);
    CUgraphNode node;

    OK(cuGraphAddMemAllocNode, &node, g, after, after ? 1 : 0, &p);
    *address = p.dptr;
    return node;
}

static CUgraphNode free_node(CUgraph g, const CUgraphNode *after, CUdeviceptr address)
{
    CUgraphNode node;

    OK(cuGraphAddMemFreeNode, &node, g, after, after ? 1 : 0, address);
    return node;
}

/* Allocates, then waits for the flag when it is to, then frees when it is to. */
static CUgraphExec graph_exec(size_t bytes, bool is_spinning, bool is_freeing, CUdeviceptr *address)
{
    void *params[] = {&flag};
    const CUDA_KERNEL_NODE_PARAMS_v2 kernel = {.func = spin,
                                               .gridDimX = 1,
                                               .gridDimY = 1,
                                               .gridDimZ = 1,
                                               .blockDimX = 32,
                                               .blockDimY = 1,
                                               .blockDimZ = 1,
                                               .kernelParams = params};
    CUgraph g;
    CUgraphNode node;
    CUgraphExec exec;

    OK(cuGraphCreate, &g, 0);
    node = alloc_node(g, NULL, bytes, address);
    if (is_spinning)
        OK(cuGraphAddKernelNode_v2, &node, g, &node, 1, &kernel);
    if (is_freeing)
        free_node(g, &node, *address);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphDestroy, g);
    return exec;
}

static void nothing_left(void)
{
    OK(cuStreamSynchronize, stream);
    OK(cuStreamSynchronize, other);
    OK(cuDeviceGraphMemTrim, 0);
    IS(0, USED);
    footprint(0);
}

/* What the calls take and refuse. */
static void nodes(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS p = wish(0), got;
    CUgraphNode alloc, fill, release, node;
    CUDA_MEMSET_NODE_PARAMS_v1 set = {.value = 1, .elementSize = 1, .height = 1, .width = 8 * MIB};
    CUdeviceptr q, base, linear;
    CUgraphExec exec, second;
    CUgraph g, clone;
    size_t bytes;

    begin();
    OK(cuGraphCreate, &g, 0);
    BAD(cuGraphAddMemAllocNode, &alloc, g, NULL, 0, &p);
    p = wish(8 * MIB);
    OK(cuGraphAddMemAllocNode, &alloc, g, NULL, 0, &p);
    OK(cuGraphMemAllocNodeGetParams, alloc, &got);
    IS(p.dptr, got.dptr);
    OK(cuMemGetAddressRange_v2, &base, &bytes, p.dptr + MIB);
    IS(p.dptr, base);
    IS(8 * MIB, bytes);
    set.dst = p.dptr;
    OK(cuGraphAddMemsetNode, &fill, g, &alloc, 1, &set, context);
    OK(cuGraphAddMemFreeNode, &release, g, &fill, 1, p.dptr);
    BAD(cuGraphAddMemFreeNode, &node, g, &fill, 1, p.dptr); /* a second time */
    BAD(cuGraphAddMemFreeNode, &node, g, &fill, 1, p.dptr + 1);
    OK(cuMemAlloc_v2, &linear, MIB);
    BAD(cuGraphAddMemFreeNode, &node, g, &fill, 1, linear); /* of no graph */
    OK(cuMemFree_v2, linear);
    OK(cuGraphMemFreeNodeGetParams, release, &q);
    IS(p.dptr, q);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone, &clone, g);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode, alloc);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode, fill);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphRemoveDependencies, g, &alloc, &fill, 1);
    OK(cuGraphCreate, &clone, 0);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode, &node, clone, NULL, 0, g);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags, &second, g, 0);
    BAD(cuMemFree_v2, p.dptr); /* nothing was allocated yet */
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, g);
    footprint(0);
    BAD(cuMemFree_v2, p.dptr);
    BAD(cuDeviceGetGraphMemAttribute, 0, (CUgraphMem_attribute)4, &bytes);
    BAD(cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes);
}

/* Physical memory comes with the launch, or an upload, and goes with a trim. */
static void launches(void)
{
    uint64_t zero = 0;
    CUdeviceptr p;
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
    CUgraph g;

    begin();
    exec = graph_exec(PIECE, false, true, &p);
    footprint(0);
    OK(cuGraphLaunch, exec, stream);
    footprint(PIECE);
    IS(PIECE, USED);
    OK(cuGraphLaunch, exec, stream);
    OK(cuGraphLaunch, exec, other);
    OK(cuCtxSynchronize);
    footprint(PIECE);
    OK(cuDeviceGraphMemTrim, 0);
    footprint(0);
    IS(0, USED);
    IS(PIECE, USED_HIGH);
    IS(PIECE, RESERVED_HIGH);
    OK(cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero);
    OK(cuDeviceSetGraphMemAttribute, 0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero);
    IS(0, USED_HIGH);
    IS(0, RESERVED_HIGH);
    OK(cuGraphUpload, exec, stream);
    footprint(PIECE);
    OK(cuGraphLaunch, exec, stream);
    footprint(PIECE);
    OK(cuStreamSynchronize, stream);
    OK(cuGraphExecDestroy, exec); /* what it had is not its any more, but still the graphs' */
    IS(0, USED);
    footprint(PIECE);
    nothing_left();
    OK(cuGraphCreate, &g, 0);
    alloc_node(g, NULL, MIB, &p);
    params.hUploadStream = stream;
    OK(cuGraphInstantiateWithParams, &exec, g, &params);
    footprint(32 * MIB); /* by which it grows */
    IS(2 * MIB, USED);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, g);
    nothing_left();
}

/* Graphs of one stream share memory; those that run at once in two do not. */
static void sharing(void)
{
    CUgraphExec exec[4];
    CUdeviceptr p[4];

    begin();
    for (int i = 0; i < 4; i++) {
        exec[i] = graph_exec(PIECE, true, true, &p[i]);
        for (int k = 0; k < i; k++)
            TRUE(p[i] != p[k]);
    }
    for (int i = 0; i < 3; i++) {
        OK(cuGraphLaunch, exec[i], stream);
        footprint(PIECE);
    }
    OK(cuGraphLaunch, exec[3], other);
    footprint(2 * PIECE);
    OK(cuDeviceGraphMemTrim, 0); /* they run */
    footprint(2 * PIECE);
    *flag = 1;
    OK(cuCtxSynchronize);
    for (int i = 0; i < 4; i++) { /* whichever is over, its memory serves */
        OK(cuGraphLaunch, exec[i], i % 2 ? stream : other);
        OK(cuCtxSynchronize);
        footprint(2 * PIECE);
    }
    /* An executable graph that is destroyed while it runs keeps what it runs on. */
    *flag = 0;
    OK(cuGraphLaunch, exec[0], stream);
    for (int i = 0; i < 4; i++)
        OK(cuGraphExecDestroy, exec[i]);
    OK(cuDeviceGraphMemTrim, 0);
    footprint(PIECE);
    *flag = 1;
    nothing_left();
}

/* Nodes of one graph whose lifetimes follow each other have one address, others do not. */
static void reuse(void)
{
    CUdeviceptr a, b, c, d;
    CUgraphNode node, released, side;
    CUgraphExec exec;
    CUgraph g;

    begin();
    OK(cuGraphCreate, &g, 0);
    node = alloc_node(g, NULL, PIECE, &a);
    released = free_node(g, &node, a);
    node = alloc_node(g, &released, PIECE, &b);
    IS(a, b);
    side = alloc_node(g, &released, PIECE, &c); /* beside b */
    TRUE(c != a);
    alloc_node(g, NULL, PIECE, &d); /* beside all */
    TRUE(d != a && d != c);
    free_node(g, &node, b);
    free_node(g, &side, c);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphLaunch, exec, stream);
    footprint(3 * PIECE);
    BAD(cuMemFreeAsync, a, stream); /* the graph did */
    OK(cuMemFreeAsync, d, stream);
    OK(cuGraphLaunch, exec, stream);
    OK(cuMemFree_v2, d);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, g);
    nothing_left();
    /* Captured. */
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemAllocAsync, &a, PIECE, stream);
    OK(cuMemsetD8Async, a, 1, PIECE, stream);
    OK(cuMemFreeAsync, a, stream);
    OK(cuMemAllocAsync, &b, PIECE, stream);
    OK(cuMemFreeAsync, b, stream);
    OK(cuStreamEndCapture, stream, &g);
    IS(a, b);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    footprint(0);
    OK(cuGraphLaunch, exec, stream);
    footprint(PIECE);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, g);
    nothing_left();
}

/* Memory that a graph leaves allocated is the program's until it frees it. */
static void unfreed(void)
{
    unsigned char bytes[16];
    CUgraphExec exec[3], release;
    CUdeviceptr p[3];
    CUgraph g;
    CUgraphNode node;

    begin();
    for (int i = 0; i < 3; i++) {
        exec[i] = graph_exec(PIECE, false, false, &p[i]);
        OK(cuGraphLaunch, exec[i], stream);
        footprint((size_t)(i + 1) * PIECE);
        OK(cuMemsetD8Async, p[i], (unsigned char)(i + 1), PIECE, stream);
    }
    BAD(cuGraphLaunch, exec[0], stream); /* what it allocates is allocated */
    OK(cuDeviceGraphMemTrim, 0);
    footprint(3 * PIECE);
    for (unsigned int i = 0; i < 3; i++) {
        OK(cuMemcpyDtoH_v2, bytes, p[i] + PIECE - 16, 16);
        IS(i + 1, bytes[15]);
    }
    OK(cuMemFreeAsync, p[0], stream);
    OK(cuMemFree_v2, p[1]);
    BAD(cuMemFree_v2, p[1]);
    OK(cuGraphCreate, &g, 0);
    node = free_node(g, NULL, p[2]); /* another graph may free it, too */
    OK(cuGraphInstantiateWithFlags, &release, g, 0);
    OK(cuGraphLaunch, release, stream);
    BAD(cuGraphLaunch, release, stream); /* only once */
    OK(cuGraphNodeGetType, node, &(CUgraphNodeType){0});
    OK(cuStreamSynchronize, stream);
    footprint(3 * PIECE);
    OK(cuDeviceGraphMemTrim, 0);
    footprint(0);
    /* It is mapped anew, and outlives its executable graph. */
    OK(cuGraphLaunch, exec[0], stream);
    OK(cuMemsetD8Async, p[0], 7, PIECE, stream);
    for (int i = 0; i < 3; i++)
        OK(cuGraphExecDestroy, exec[i]);
    OK(cuGraphExecDestroy, release);
    OK(cuGraphDestroy, g);
    OK(cuStreamSynchronize, stream);
    OK(cuDeviceGraphMemTrim, 0);
    footprint(PIECE);
    OK(cuMemcpyDtoH_v2, bytes, p[0], 16);
    IS(7, bytes[0]);
    OK(cuMemFree_v2, p[0]);
    nothing_left();
    BAD(cuMemFree_v2, p[0]);
}

static void auto_free(void)
{
    CUdeviceptr p;
    CUgraphExec exec;
    CUgraph g;

    begin();
    OK(cuGraphCreate, &g, 0);
    alloc_node(g, NULL, PIECE, &p);
    OK(cuGraphInstantiateWithFlags, &exec, g, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    OK(cuGraphLaunch, exec, stream);
    OK(cuGraphLaunch, exec, stream);
    footprint(PIECE);
    OK(cuMemFreeAsync, p, stream);
    OK(cuGraphLaunch, exec, stream);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, g);
    OK(cuStreamSynchronize, stream);
    OK(cuDeviceGraphMemTrim, 0);
    footprint(PIECE); /* the last launch's is not freed by that */
    OK(cuMemFree_v2, p);
    nothing_left();
}

static void raise_flag(void *data)
{
    usleep(20000);
    *(volatile unsigned int *)data = 1;
}

/* A launch that finds no room says so; what the graphs keep is nobody else's until it is trimmed.
 */
static void room(void)
{
    CUgraphExec large, small, running;
    CUdeviceptr p, rest, again;
    CUstream third;
    size_t left;

    begin();
    left = free_at_start / MIB / 64 * 64 * MIB;
    large = graph_exec(left - PIECE, false, true, &p);
    small = graph_exec(2 * PIECE, false, true, &p);
    OK(cuMemAlloc_v2, &rest, PIECE + 2 * MIB + free_at_start % PIECE);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch, large, stream);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuGraphUpload, large, stream);
    IS(0, RESERVED);
    OK(cuGraphLaunch, small, stream);
    IS(2 * PIECE, RESERVED);
    OK(cuMemFree_v2, rest);
    OK(cuStreamSynchronize, stream);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &rest, left - PIECE);
    OK(cuDeviceGraphMemTrim, 0);
    OK(cuMemAlloc_v2, &rest, left - PIECE);
    OK(cuMemFree_v2, rest);
    OK(cuGraphLaunch, large, stream);
    /* Its memory serves the small one, in another stream as soon as it is over. */
    OK(cuGraphLaunch, small, other);
    OK(cuCtxSynchronize);
    OK(cuDeviceGraphMemTrim, 0);
    footprint(0);
    /* A launch waits for a graph that runs in another stream, when only that has what it needs. */
    OK(cuGraphExecDestroy, small);
    small = graph_exec(2 * PIECE, true, true, &p);
    OK(cuGraphLaunch, small, other);
    OK(cuStreamCreate, &third, CU_STREAM_NON_BLOCKING);
    OK(cuLaunchHostFunc, third, raise_flag, flag);
    OK(cuGraphLaunch, large, stream);
    OK(cuCtxSynchronize);
    OK(cuDeviceGraphMemTrim, 0);
    footprint(0);
    /* A pool's unused memory serves, too. */
    OK(cuMemAllocAsync, &again, 8 * PIECE, stream);
    OK(cuMemFreeAsync, again, stream);
    OK(cuGraphLaunch, large, stream);
    OK(cuGraphExecDestroy, large);
    OK(cuGraphExecDestroy, small);
    running = graph_exec(PIECE, false, true, &p);
    OK(cuGraphLaunch, running, stream);
    OK(cuGraphExecDestroy, running);
    nothing_left();
}

/* Small pieces of a graph lie in one granule, of two graphs in two. */
static void packing(void)
{
    CUdeviceptr p[64], q;
    CUgraphNode node = NULL;
    CUgraphExec exec, second;
    CUgraph g, h;
    unsigned char byte;

    begin();
    OK(cuGraphCreate, &g, 0);
    for (int i = 0; i < 64; i++) {
        CUDA_MEMSET_NODE_PARAMS_v1 set = {
            .value = (unsigned int)i, .elementSize = 1, .height = 1, .width = 1000};

        node = alloc_node(g, node ? &node : NULL, 1000, &p[i]);
        set.dst = p[i];
        OK(cuGraphAddMemsetNode, &node, g, &node, 1, &set, context);
    }
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphCreate, &h, 0);
    alloc_node(h, NULL, 1000, &q);
    OK(cuGraphInstantiateWithFlags, &second, h, 0);
    OK(cuGraphLaunch, exec, stream);
    IS(2 * MIB, USED);
    OK(cuGraphLaunch, second, stream);
    IS(4 * MIB, USED);
    OK(cuStreamSynchronize, stream);
    for (unsigned int i = 0; i < 64; i++) {
        OK(cuMemcpyDtoH_v2, &byte, p[i] + 999, 1);
        IS(i, byte);
        BAD(cuMemcpyDtoH_v2, &byte, p[i] + 1000, 1);
    }
    for (int i = 0; i < 63; i++)
        OK(cuMemFree_v2, p[i]);
    OK(cuDeviceGraphMemTrim, 0);
    footprint(4 * MIB);
    OK(cuMemFree_v2, p[63]);
    OK(cuMemFree_v2, q);
    nothing_left();
}

static const struct check_group groups[] = {
    {"nodes", nodes},     {"launches", launches},   {"sharing", sharing}, {"reuse", reuse},
    {"unfreed", unfreed}, {"auto_free", auto_free}, {"room", room},       {"packing", packing},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, groups, sizeof(groups) / sizeof(groups[0]));
}
