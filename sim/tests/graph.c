/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs, captures, host functions and stream memory operations of the driver, one group of checks
 * a run: `sim-graph GROUP`. Prints "ok" with the number of checks, or the first that failed. Needs
 * a device of compute capability 7.0 or newer.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "check.h"

static const char text[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) { ret; }\n"
    ".visible .entry busy_us(.param .u64 us) { ret; }\n"
    ".visible .entry spin_until(.param .u64 flag) { ret; }\n";

static CUcontext context;
static CUmodule module;
static CUfunction saxpy, busy, spin;
static CUstream stream, other;
static CUdeviceptr x, y;

static CUdeviceptr memory(size_t bytes)
{
    CUdeviceptr p;

    OK(cuMemAlloc_v2, &p, bytes);
    OK(cuMemsetD8_v2, p, 0, bytes);
    return p;
}

static void begin(void)
{
    const float ones[4] = {1, 1, 1, 1};

    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    OK(cuModuleLoadData, &module, text);
    OK(cuModuleGetFunction, &saxpy, module, "saxpy");
    OK(cuModuleGetFunction, &busy, module, "busy_us");
    OK(cuModuleGetFunction, &spin, module, "spin_until");
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
    x = memory(16);
    y = memory(16);
    OK(cuMemcpyHtoD_v2, x, ones, 16);
}

static float first(CUdeviceptr p)
{
    float value;

    OK(cuMemcpyDtoH_v2, &value, p, sizeof(value));
    return value;
}

static CUDA_KERNEL_NODE_PARAMS_v2 kernel(CUfunction f, void **params)
{
    return (CUDA_KERNEL_NODE_PARAMS_v2){.func = f,
                                        .gridDimX = 1,
                                        .gridDimY = 1,
                                        .gridDimZ = 1,
                                        .blockDimX = 32,
                                        .blockDimY = 1,
                                        .blockDimZ = 1,
                                        .kernelParams = params};
}

/* y += a * x, as a node */
static CUgraphNode saxpy_node(CUgraph graph, const CUgraphNode *after, size_t count, float a)
{
    unsigned int n = 4;
    void *params[] = {&n, &a, &x, &y};
    CUDA_KERNEL_NODE_PARAMS_v2 p = kernel(saxpy, params);
    CUgraphNode node;

    OK(cuGraphAddKernelNode_v2, &node, graph, after, count, &p);
    return node;
}

static void launch_saxpy(CUstream s, float a)
{
    unsigned int n = 4;
    void *params[] = {&n, &a, &x, &y};

    OK(cuLaunchKernel, saxpy, 1, 1, 1, 32, 1, 1, 0, s, params, NULL);
}

static void launch_busy(CUstream s, uint64_t us)
{
    void *params[] = {&us};

    OK(cuLaunchKernel, busy, 1, 1, 1, 32, 1, 1, 0, s, params, NULL);
}

/* ---- structure ----------------------------------------------------------------------------- */

static void structure(void)
{
    CUgraph g, clone, h;
    CUgraphNode a, b, c, got[4], to[4];
    CUgraphNodeType type;
    CUgraphExec exec;
    size_t n;

    begin();
    BAD(cuGraphCreate, &g, 1);
    BAD(cuGraphCreate, NULL, 0);
    OK(cuGraphCreate, &g, 0);
    OK(cuGraphAddEmptyNode, &a, g, NULL, 0);
    OK(cuGraphAddEmptyNode, &b, g, &a, 1);
    OK(cuGraphAddEmptyNode, &c, g, (CUgraphNode[]){a, b}, 2);
    BAD(cuGraphAddEmptyNode, &c, g, (CUgraphNode[]){a, a}, 2);
    BAD(cuGraphAddEmptyNode, &c, g, NULL, 1);
    BAD(cuGraphAddEmptyNode, NULL, g, NULL, 0);
    BAD(cuGraphAddEmptyNode, &c, NULL, NULL, 0);
    OK(cuGraphNodeGetType, c, &type);
    IS(CU_GRAPH_NODE_TYPE_EMPTY, type);
    OK(cuGraphGetNodes, g, NULL, &n);
    IS(3, n);
    n = 4;
    OK(cuGraphGetNodes, g, got, &n);
    IS(3, n);
    TRUE(got[0] == a && got[2] == c && !got[3]);
    n = 4;
    OK(cuGraphGetRootNodes, g, got, &n);
    IS(1, n);
    TRUE(got[0] == a);
    n = 4;
    OK(cuGraphGetEdges, g, got, to, &n);
    IS(3, n);
    TRUE(got[0] == a && to[0] == b && got[2] == b && to[2] == c);
    n = 1;
    OK(cuGraphNodeGetDependencies, c, got, &n);
    IS(1, n); /* as many as fit */
    OK(cuGraphNodeGetDependentNodes, a, NULL, &n);
    IS(2, n);
    BAD(cuGraphAddDependencies, g, &a, &b, 1); /* there already */
    BAD(cuGraphAddDependencies, g, &a, &a, 1);
    OK(cuGraphRemoveDependencies, g, &a, &c, 1);
    BAD(cuGraphRemoveDependencies, g, &a, &c, 1);
    OK(cuGraphClone, &clone, g);
    OK(cuGraphNodeFindInClone, &got[0], b, clone);
    TRUE(got[0] && got[0] != b);
    BAD(cuGraphNodeFindInClone, &got[0], b, g);
    OK(cuGraphAddDependencies, g, &c, &a, 1); /* a circle */
    BAD(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphInstantiateWithFlags, &exec, clone, 0);
    OK(cuGraphExecDestroy, exec);
    BAD(cuGraphExecDestroy, exec);
    BAD(cuGraphInstantiateWithFlags, &exec, clone, 64);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithFlags, &exec, clone,
          CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    OK(cuGraphDestroyNode, b);
    BAD(cuGraphNodeGetType, b, &type);
    OK(cuGraphGetEdges, g, NULL, NULL, &n);
    IS(1, n);
    OK(cuGraphCreate, &h, 0);
    BAD(cuGraphAddEmptyNode, &b, h, &a, 1); /* another graph's */
    OK(cuGraphDestroy, g);
    BAD(cuGraphDestroy, g);
    BAD(cuGraphNodeGetType, a, &type);
    OK(cuGraphDestroy, clone);
    for (int i = 0; i < 10000; i++) { /* their memory is used again */
        OK(cuGraphAddEmptyNode, &b, h, NULL, 0);
        OK(cuGraphDestroyNode, b);
    }
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void nodes(void)
{
    CUDA_MEMSET_NODE_PARAMS_v1 fill = {
        .value = 0x40400000, .elementSize = 4, .width = 4, .height = 1};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .WidthInBytes = 16,
                          .Height = 1,
                          .Depth = 1};
    CUDA_KERNEL_NODE_PARAMS_v2 got;
    CUlaunchAttributeValue value = {.priority = -2};
    CUDA_MEMSET_NODE_PARAMS_v1 got_fill;
    CUDA_MEMCPY3D got_copy;
    float out[4] = {0}, a = 5;
    unsigned int n = 4, enabled;
    void *params[] = {&n, &a, &x, &y};
    CUgraphNode set, add, get;
    CUgraphExec exec;
    CUgraph g;

    begin();
    fill.dst = y;
    copy.srcDevice = y;
    copy.dstHost = out;
    OK(cuGraphCreate, &g, 0);
    OK(cuGraphAddMemsetNode, &set, g, NULL, 0, &fill, context);
    fill.elementSize = 3;
    BAD(cuGraphAddMemsetNode, &add, g, NULL, 0, &fill, context);
    fill.elementSize = 4;
    fill.width = 5;
    BAD(cuGraphAddMemsetNode, &add, g, NULL, 0, &fill, context);
    add = saxpy_node(g, &set, 1, 2);
    OK(cuGraphAddMemcpyNode, &get, g, &add, 1, &copy, context);
    copy.WidthInBytes = 17;
    BAD(cuGraphAddMemcpyNode, &get, g, &add, 1, &copy, context);
    OK(cuGraphKernelNodeGetParams_v2, add, &got);
    TRUE(got.func == saxpy && *(float *)got.kernelParams[1] == 2 && got.blockDimX == 32);
    OK(cuGraphMemsetNodeGetParams, set, &got_fill);
    TRUE(got_fill.dst == y && got_fill.width == 4);
    OK(cuGraphMemcpyNodeGetParams, get, &got_copy);
    TRUE(got_copy.dstHost == out && got_copy.WidthInBytes == 16);
    BAD(cuGraphMemcpyNodeGetParams, set, &got_copy);
    OK(cuGraphKernelNodeSetAttribute, add, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
    value.priority = 0;
    OK(cuGraphKernelNodeGetAttribute, add, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
    IS(-2, value.priority);
    BAD(cuGraphKernelNodeSetAttribute, add, CU_LAUNCH_ATTRIBUTE_MAX, &value);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(out[0] == 5 && out[3] == 5); /* 3 + 2 * 1 */
    got = kernel(saxpy, params);
    OK(cuGraphKernelNodeSetParams_v2, add, &got); /* of the graph, not of what was made of it */
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(out[0] == 5);
    OK(cuGraphExecKernelNodeSetParams_v2, exec, add, &got);
    a = 100; /* the arguments were copied */
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(out[0] == 8);
    OK(cuGraphNodeSetEnabled, exec, add, 0);
    OK(cuGraphNodeGetEnabled, exec, add, &enabled);
    IS(0, enabled);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(out[0] == 3);
    OK(cuGraphNodeSetEnabled, exec, add, 1);
    fill.width = 4;
    fill.value = 0x41200000; /* 10 */
    OK(cuGraphExecMemsetNodeSetParams, exec, set, &fill, context);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(out[0] == 15);
    BAD(cuGraphExecMemsetNodeSetParams, exec, add, &fill, context);
    copy.WidthInBytes = 4;
    copy.dstHost = &out[3];
    OK(cuGraphExecMemcpyNodeSetParams, exec, get, &copy, context);
    out[3] = 0;
    OK(cuGraphUpload, exec, stream);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(out[3] == 15);
    got.blockDimX = 2048;
    BAD(cuGraphKernelNodeSetParams_v2, add, &got);
    OK(cuGraphExecDestroy, exec);
    BAD(cuGraphLaunch, exec, stream);
    OK(cuGraphDestroy, g);
}

static void children(void)
{
    CUgraph inner, outer, own;
    CUgraphNode child, after, node;
    CUgraphExec exec;
    CUevent event;
    CUgraphNode record;
    float ms = 0;
    CUevent start;

    begin();
    OK(cuGraphCreate, &inner, 0);
    node = saxpy_node(inner, NULL, 0, 1);
    saxpy_node(inner, &node, 1, 2);
    OK(cuGraphCreate, &outer, 0);
    OK(cuGraphAddChildGraphNode, &child, outer, NULL, 0, inner);
    BAD(cuGraphAddChildGraphNode, &after, outer, NULL, 0, outer);
    after = saxpy_node(outer, &child, 1, 4);
    OK(cuGraphChildGraphNodeGetGraph, child, &own);
    TRUE(own != inner);
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy, own);
    OK(cuGraphInstantiateWithFlags, &exec, outer, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(first(y) == 7);
    OK(cuGraphDestroy, inner);
    OK(cuGraphCreate, &inner, 0);
    node = saxpy_node(inner, NULL, 0, 10);
    BAD(cuGraphExecChildGraphNodeSetParams, exec, child, inner); /* another shape */
    saxpy_node(inner, &node, 1, 20);
    OK(cuGraphExecChildGraphNodeSetParams, exec, child, inner);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(first(y) == 41);
    OK(cuEventCreate, &start, CU_EVENT_DEFAULT);
    OK(cuEventCreate, &event, CU_EVENT_DEFAULT);
    OK(cuGraphAddEventRecordNode, &record, outer, &after, 1, event);
    OK(cuGraphAddEventWaitNode, &node, outer, NULL, 0, start);
    BAD(cuGraphEventWaitNodeGetEvent, record, &start);
    OK(cuGraphInstantiateWithFlags, &exec, outer, 0);
    OK(cuEventRecord, start, other);
    OK(cuGraphLaunch, exec, stream);
    OK(cuEventSynchronize, event);
    OK(cuEventElapsedTime, &ms, start, event);
    TRUE(ms > 0);
}

static void branches(void)
{
    uint64_t us = 20000;
    void *params[] = {&us};
    CUDA_KERNEL_NODE_PARAMS_v2 p;
    CUgraphNode node[8], join;
    CUevent start, end;
    CUgraphExec exec;
    CUgraph g;
    float ms;

    begin();
    p = kernel(busy, params);
    OK(cuGraphCreate, &g, 0);
    for (int i = 0; i < 8; i++)
        OK(cuGraphAddKernelNode_v2, &node[i], g, NULL, 0, &p);
    OK(cuGraphAddKernelNode_v2, &join, g, node, 8, &p);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuEventCreate, &start, CU_EVENT_DEFAULT);
    OK(cuEventCreate, &end, CU_EVENT_DEFAULT);
    OK(cuEventRecord, start, stream);
    OK(cuGraphLaunch, exec, stream);
    OK(cuEventRecord, end, stream);
    OK(cuEventSynchronize, end);
    OK(cuEventElapsedTime, &ms, start, end);
    /* Eight beside each other, then one: not nine in a row. */
    TRUE(ms >= 39.9F && ms < 179);
    OK(cuEventRecord, start, stream);
    OK(cuGraphLaunch, exec, stream);
    OK(cuGraphLaunch, exec, other); /* launches of one graph follow each other */
    OK(cuEventRecord, end, other);
    OK(cuEventSynchronize, end);
    OK(cuEventElapsedTime, &ms, start, end);
    TRUE(ms >= 79.9F);
}

static void updates(void)
{
    CUgraphExecUpdateResultInfo info;
    CUgraphExecUpdateResult result;
    CUgraphNode a, b, error;
    CUgraphExec exec;
    CUgraph g, h;

    begin();
    OK(cuGraphCreate, &g, 0);
    a = saxpy_node(g, NULL, 0, 1);
    b = saxpy_node(g, &a, 1, 1);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphCreate, &h, 0);
    a = saxpy_node(h, NULL, 0, 10);
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2, exec, h, &info);
    IS(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
    b = saxpy_node(h, NULL, 0, 20); /* without the edge */
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2, exec, h, &info);
    IS(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
    TRUE(info.errorNode == b);
    OK(cuGraphAddDependencies, h, &a, &b, 1);
    OK(cuGraphExecUpdate_v2, exec, h, &info);
    IS(CU_GRAPH_EXEC_UPDATE_SUCCESS, info.result);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(first(y) == 30);
    OK(cuGraphDestroyNode, b);
    OK(cuGraphAddEmptyNode, &b, h, &a, 1);
    GIVES(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate, exec, h, &error, &result);
    IS(CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, result);
    TRUE(error == b);
    BAD(cuGraphExecUpdate_v2, exec, h, NULL);
}

/* ---- capture ------------------------------------------------------------------------------- */

static void capture(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUgraphNodeType type;
    const CUgraphNode *deps;
    CUstreamCaptureStatus status;
    CUgraphNode got[8];
    CUgraph g, same;
    CUgraphExec exec;
    CUevent fork, join;
    CUdeviceptr p;
    cuuint64_t id;
    float out = 0;
    size_t n;

    begin();
    OK(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING);
    OK(cuEventCreate, &join, CU_EVENT_DISABLE_TIMING);
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture, stream, &g);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2, NULL,
          CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuMemsetD32Async, y, 0x40000000, 4, stream); /* 2 */
    OK(cuEventRecord, fork, stream);
    OK(cuStreamWaitEvent, other, fork, 0);
    launch_saxpy(stream, 3);
    OK(cuMemsetD8Async, x, 0, 0, other);
    launch_busy(other, 10);
    OK(cuEventRecord, join, other);
    GIVES(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery, join);
    OK(cuStreamGetCaptureInfo_v2, other, &status, &id, &same, &deps, &n);
    IS(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
    IS(1, n);
    OK(cuStreamWaitEvent, stream, join, 0);
    OK(cuStreamGetCaptureInfo_v2, stream, &status, &id, &same, &deps, &n);
    IS(2, n);
    OK(cuMemcpyDtoHAsync_v2, &out, y, 4, stream);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture, other, &g);
    OK(cuStreamEndCapture, stream, &g);
    TRUE(g == same);
    OK(cuStreamIsCapturing, other, &status);
    IS(CU_STREAM_CAPTURE_STATUS_NONE, status);
    OK(cuGraphGetNodes, g, NULL, &n);
    IS(4, n);
    n = 8;
    OK(cuGraphGetEdges, g, got, got, &n);
    IS(4, n);
    TRUE(out == 0); /* nothing ran */
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(out == 5);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    OK(cuEventRecord, fork, stream);
    OK(cuStreamWaitEvent, other, fork, 0);
    launch_busy(other, 10);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture, stream, &g);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2, &p, 16);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &g);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuThreadExchangeStreamCaptureMode, &mode);
    IS(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    OK(cuMemAlloc_v2, &p, 16);
    OK(cuThreadExchangeStreamCaptureMode, &mode);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize, stream);
    GIVES(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, stream, &g);
    OK(cuGraphCreate, &g, 0);
    got[0] = saxpy_node(g, NULL, 0, 1);
    OK(cuStreamBeginCaptureToGraph, stream, g, got, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED);
    launch_saxpy(stream, 1);
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy, g);
    OK(cuStreamUpdateCaptureDependencies, stream, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    launch_saxpy(stream, 1); /* a root */
    OK(cuStreamEndCapture, stream, &same);
    TRUE(same == g);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(cuGraphLaunch, exec, stream); /* becomes a child graph */
    OK(cuStreamEndCapture, stream, &same);
    n = 8;
    OK(cuGraphGetNodes, same, got, &n);
    IS(1, n);
    OK(cuGraphNodeGetType, got[0], &type);
    IS(CU_GRAPH_NODE_TYPE_GRAPH, type);
    OK(cuGraphInstantiateWithFlags, &exec, same, 0);
    out = 0;
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(out == 5);
    OK(cuGraphGetRootNodes, g, NULL, &n);
    IS(2, n);
}

/* ---- host functions ------------------------------------------------------------------------ */

static _Atomic int said;
static _Atomic CUresult inside;
static int order[64];
static _Atomic int order_count;

static void note_down(void *data)
{
    order[atomic_fetch_add(&order_count, 1)] = (int)(intptr_t)data;
}

static void try_cuda(void *data)
{
    CUdeviceptr p;

    atomic_store(&inside, DRIVER(cuMemAlloc_v2)(&p, 16));
    atomic_store((_Atomic int *)data, 1);
}

static _Atomic bool is_open;

/* Once the program lets it. */
static void fill_buffer(void *data)
{
    while (!atomic_load(&is_open))
        usleep(100);
    *(float *)data = 7;
}

static void told(CUstream s, CUresult status, void *data)
{
    atomic_store((_Atomic int *)data, s == stream && status == CUDA_SUCCESS ? 1 : 2);
}

static void callbacks(void)
{
    float *pinned;

    begin();
    BAD(cuLaunchHostFunc, stream, NULL, NULL);
    OK(cuLaunchHostFunc, stream, try_cuda, &said);
    OK(cuStreamSynchronize, stream);
    IS(1, atomic_load(&said));
    IS(CUDA_ERROR_NOT_PERMITTED, atomic_load(&inside));
    atomic_store(&said, 0);
    BAD(cuStreamAddCallback, stream, told, &said, 1);
    launch_busy(stream, 3000);
    OK(cuStreamAddCallback, stream, told, &said, 0);
    OK(cuStreamSynchronize, stream);
    IS(1, atomic_load(&said));
    for (int i = 0; i < 20; i++) {
        launch_busy(stream, 100);
        OK(cuLaunchHostFunc, stream, note_down, (void *)(intptr_t)i);
    }
    OK(cuStreamSynchronize, stream);
    IS(20, atomic_load(&order_count));
    for (int i = 0; i < 20; i++)
        IS(i, order[i]);
    /* A copy after a host function takes what that wrote. */
    OK(cuMemHostAlloc, (void **)&pinned, 4096, 0);
    *pinned = 1;
    OK(cuLaunchHostFunc, stream, fill_buffer, pinned);
    OK(cuMemcpyHtoDAsync_v2, y, pinned, 16, stream);
    launch_saxpy(stream, 1);
    OK(cuMemcpyDtoHAsync_v2, &pinned[8], y, 4, stream);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    atomic_store(&is_open, true);
    OK(cuStreamSynchronize, stream);
    TRUE(pinned[8] == 8);
    OK(cuLaunchHostFunc, NULL, fill_buffer, &pinned[4]);
    OK(cuCtxSynchronize);
    TRUE(pinned[4] == 7);
    OK(cuLaunchHostFunc, CU_STREAM_PER_THREAD, fill_buffer, &pinned[5]);
    OK(cuStreamSynchronize, CU_STREAM_PER_THREAD);
    TRUE(pinned[5] == 7);
}

static void host_nodes(void)
{
    CUDA_HOST_NODE_PARAMS note = {note_down, (void *)1}, got;
    CUgraphNode a, b;
    CUgraphExec exec;
    CUgraph g;

    begin();
    OK(cuGraphCreate, &g, 0);
    OK(cuGraphAddHostNode, &a, g, NULL, 0, &note);
    note.userData = (void *)2;
    OK(cuGraphAddHostNode, &b, g, &a, 1, &note);
    note.fn = NULL;
    BAD(cuGraphAddHostNode, &b, g, &a, 1, &note);
    OK(cuGraphHostNodeGetParams, a, &got);
    TRUE(got.fn == note_down);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    IS(2, atomic_load(&order_count));
    TRUE(order[0] == 1 && order[1] == 2);
    got.userData = (void *)3;
    OK(cuGraphExecHostNodeSetParams, exec, a, &got);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(order[2] == 3 && order[3] == 2);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuLaunchHostFunc, stream, note_down, (void *)9);
    OK(cuStreamEndCapture, stream, &g);
    IS(4, atomic_load(&order_count));
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    IS(9, order[4]);
}

/* ---- memory operations --------------------------------------------------------------------- */

static void memops(void)
{
    CUstreamBatchMemOpParams ops[2] = {
        {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .value = 3}},
        {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                       .value = 5,
                       .flags = CU_STREAM_WAIT_VALUE_EQ}}};
    CUDA_BATCH_MEM_OP_NODE_PARAMS node_params = {.count = 2, .paramArray = ops};
    volatile uint32_t *word;
    void *params[1];
    CUgraphNode node;
    CUgraphExec exec;
    CUgraph g;
    CUdeviceptr managed;
    int supported;

    begin();
    OK(cuDeviceGetAttribute, &supported, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 0);
    IS(1, supported);
    OK(cuMemHostAlloc, (void **)(uintptr_t)&word, 4096, 0);
    word[0] = 0;
    BAD(cuStreamWaitValue32_v2, stream, (CUdeviceptr)(uintptr_t)&supported, 1, 0);
    BAD(cuStreamWaitValue32_v2, stream, (CUdeviceptr)(uintptr_t)word + 2, 1, 0);
    BAD(cuStreamWaitValue64_v2, stream, (CUdeviceptr)(uintptr_t)word + 4, 1, 0);
    BAD(cuStreamWaitValue32_v2, stream, (CUdeviceptr)(uintptr_t)word, 1, 4);
    OK(cuStreamWaitValue32_v2, stream, (CUdeviceptr)(uintptr_t)word, 10, CU_STREAM_WAIT_VALUE_GEQ);
    OK(cuStreamWriteValue32_v2, stream, (CUdeviceptr)(uintptr_t)&word[1], 77, 0);
    usleep(10000);
    IS(0, word[1]);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    word[0] = 11;
    OK(cuStreamSynchronize, stream);
    IS(77, word[1]);
    OK(cuStreamWriteValue64_v2, stream, y, 0x100000002ull, 0);
    OK(cuStreamWaitValue64_v2, stream, y, 0x100000002ull, CU_STREAM_WAIT_VALUE_EQ);
    OK(cuStreamSynchronize, stream);
    ops[0].writeValue.address = (CUdeviceptr)(uintptr_t)&word[2];
    ops[1].waitValue.address = (CUdeviceptr)(uintptr_t)&word[3];
    OK(cuGraphCreate, &g, 0);
    OK(cuGraphAddBatchMemOpNode, &node, g, NULL, 0, &node_params);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphLaunch, exec, stream);
    while (word[2] != 3)
        usleep(100);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    word[3] = 5;
    OK(cuStreamSynchronize, stream);
    /* A kernel that spins until a flag of managed memory is set keeps its stream. */
    OK(cuMemAllocManaged, &managed, 4096, CU_MEM_ATTACH_GLOBAL);
    word = (volatile uint32_t *)(uintptr_t)managed;
    word[0] = 0;
    params[0] = &managed;
    OK(cuLaunchKernel, spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
    usleep(10000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    word[0] = 1;
    OK(cuStreamSynchronize, stream);
}

/* ---- user objects, pictures ---------------------------------------------------------------- */

static void count_down(void *data)
{
    --*(int *)data;
}

static void objects(void)
{
    CUuserObject object;
    CUgraph g, clone;
    CUgraphExec exec;
    int left = 1;

    begin();
    BAD(cuUserObjectCreate, &object, &left, count_down, 1, 0);
    OK(cuUserObjectCreate, &object, &left, count_down, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    OK(cuUserObjectRetain, object, 1);
    OK(cuUserObjectRelease, object, 1);
    BAD(cuUserObjectRelease, object, 2);
    OK(cuGraphCreate, &g, 0);
    OK(cuGraphRetainUserObject, g, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    BAD(cuGraphReleaseUserObject, g, object, 2);
    OK(cuGraphClone, &clone, g);
    saxpy_node(g, NULL, 0, 1);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphDestroy, g);
    OK(cuGraphDestroy, clone);
    IS(1, left); /* the executable graph has it still */
    OK(cuGraphExecDestroy, exec);
    IS(0, left);
    BAD(cuUserObjectRetain, object, 1);
}

static void pictures(void)
{
    char path[] = "/tmp/simgraphXXXXXX", line[256] = "";
    CUgraph g, inner;
    CUgraphNode node;
    bool has_kernel = false, has_edge = false;
    FILE *file;

    begin();
    OK(cuGraphCreate, &g, 0);
    node = saxpy_node(g, NULL, 0, 1);
    OK(cuGraphCreate, &inner, 0);
    OK(cuGraphAddChildGraphNode, &node, g, &node, 1, inner);
    close(mkstemp(path));
    OK(cuGraphDebugDotPrint, g, path, 0);
    file = fopen(path, "r");
    TRUE(file != NULL);
    while (fgets(line, sizeof(line), file)) {
        has_kernel |= strstr(line, "saxpy") != NULL;
        has_edge |= strstr(line, "->") != NULL;
    }
    fclose(file);
    unlink(path);
    TRUE(has_kernel && has_edge);
    GIVES(CUDA_ERROR_OPERATING_SYSTEM, cuGraphDebugDotPrint, g, "/nonexistent/dot", 0);
    BAD(cuGraphDebugDotPrint, g, NULL, 0);
}

/* Two threads capture and launch at once, each on its own stream. */
static void *capture_and_launch(void *arg)
{
    CUstream mine;
    CUgraphExec exec;
    CUgraph g;
    uint64_t us = 10;
    void *params[] = {&us};

    if (DRIVER(cuCtxSetCurrent)(context) || DRIVER(cuStreamCreate)(&mine, CU_STREAM_NON_BLOCKING))
        return arg;
    for (int i = 0; i < 100; i++) {
        if (DRIVER(cuStreamBeginCapture_v2)(mine, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
            return arg;
        for (int k = 0; k < 5; k++) {
            if (DRIVER(cuLaunchKernel)(busy, 1, 1, 1, 32, 1, 1, 0, mine, params, NULL))
                return arg;
        }
        if (DRIVER(cuStreamEndCapture)(mine, &g) ||
            DRIVER(cuGraphInstantiateWithFlags)(&exec, g, 0) || DRIVER(cuGraphDestroy)(g) ||
            DRIVER(cuGraphLaunch)(exec, mine) || DRIVER(cuGraphExecDestroy)(exec))
            return arg;
    }
    return DRIVER(cuStreamSynchronize)(mine) ? arg : NULL;
}

static void threads(void)
{
    pthread_t thread[3];
    void *failed;

    begin();
    for (int i = 0; i < 3; i++)
        TRUE(pthread_create(&thread[i], NULL, capture_and_launch, thread) == 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(thread[i], &failed);
        TRUE(!failed);
    }
}

static const struct check_group groups[] = {
    {"structure", structure}, {"nodes", nodes},           {"children", children},
    {"branches", branches},   {"updates", updates},       {"capture", capture},
    {"callbacks", callbacks}, {"host_nodes", host_nodes}, {"memops", memops},
    {"objects", objects},     {"pictures", pictures},     {"threads", threads},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, groups, sizeof(groups) / sizeof(groups[0]));
}
