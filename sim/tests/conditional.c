/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditional nodes of graphs, one group of checks a run: `sim-conditional GROUP`. Prints "ok" with
 * the number of checks, or the first that failed. Needs a device of compute capability 7.0 or
 * newer; "choices" the 13.0 profile, others an older one.
 */
#include <unistd.h>

#include "check.h"

static const char text[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry fill(.param .u64 to, .param .u32 value, .param .u64 n) { ret; }\n"
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) { ret; }\n"
    ".visible .entry spin_until(.param .u64 flag) { ret; }\n"
    ".visible .entry set_conditional(.param .u64 handle, .param .u32 value) { ret; }\n"
    ".visible .entry count_down(.param .u64 handle, .param .u64 left) { ret; }\n";

static CUcontext context;
static CUfunction fill, saxpy, spin, set, count_down;
static CUstream stream;
static CUdeviceptr x, y; /* of one float */

static void begin(void)
{
    CUmodule module;

    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    OK(cuModuleLoadData, &module, text);
    OK(cuModuleGetFunction, &fill, module, "fill");
    OK(cuModuleGetFunction, &saxpy, module, "saxpy");
    OK(cuModuleGetFunction, &spin, module, "spin_until");
    OK(cuModuleGetFunction, &set, module, "set_conditional");
    OK(cuModuleGetFunction, &count_down, module, "count_down");
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuMemAlloc_v2, &x, 16);
    OK(cuMemAlloc_v2, &y, 16);
    OK(cuMemsetD32_v2, x, 0x3f800000, 4); /* 1.0 */
    OK(cuMemsetD32_v2, y, 0, 4);
}

static float value_of(CUdeviceptr p)
{
    float value;

    OK(cuMemcpyDtoH_v2, &value, p, sizeof(value));
    return value;
}

static CUgraphNode kernel(CUgraph g, const CUgraphNode *after, CUfunction f, void **params)
{
    const CUDA_KERNEL_NODE_PARAMS_v2 api = {.func = f,
                                            .gridDimX = 1,
                                            .gridDimY = 1,
                                            .gridDimZ = 1,
                                            .blockDimX = 32,
                                            .blockDimY = 1,
                                            .blockDimZ = 1,
                                            .kernelParams = params};
    CUgraphNode node;

    OK(cuGraphAddKernelNode_v2, &node, g, after, after ? 1 : 0, &api);
    return node;
}

/* y += by */
static CUgraphNode adding(CUgraph g, const CUgraphNode *after, float by)
{
    unsigned int n = 1;
    void *params[] = {&n, &by, &x, &y};

    return kernel(g, after, saxpy, params);
}

static CUgraphNode setting(CUgraph g, const CUgraphNode *after, CUgraphConditionalHandle handle,
                           unsigned int value)
{
    void *params[] = {&handle, &value};

    return kernel(g, after, set, params);
}

static CUgraph *conditional(CUgraph g, const CUgraphNode *after, CUgraphConditionalHandle handle,
                            CUgraphConditionalNodeType type, unsigned int size, CUgraphNode *node)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL,
                                .conditional = {handle, type, size, NULL, context}};

    OK(cuGraphAddNode, node, g, after, after ? 1 : 0, &params);
    return params.conditional.phGraph_out;
}

static CUgraphConditionalHandle handle_of(CUgraph g, unsigned int value, unsigned int flags)
{
    CUgraphConditionalHandle handle;

    OK(cuGraphConditionalHandleCreate, &handle, g, context, value, flags);
    return handle;
}

static void nodes(void)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUDA_GRAPH_INSTANTIATE_PARAMS wanted = {0};
    CUgraphConditionalHandle handle, unused;
    CUgraph g, clone, *bodies;
    CUgraphExec exec;
    CUgraphNode node, inner;
    CUevent event;

    begin();
    OK(cuGraphCreate, &g, 0);
    BAD(cuGraphConditionalHandleCreate, &handle, g, context, 1, 2);
    handle = handle_of(g, 1, 1);
    params.conditional =
        (CUDA_CONDITIONAL_NODE_PARAMS){handle + 1000, CU_GRAPH_COND_TYPE_IF, 1, NULL, context};
    BAD(cuGraphAddNode, &node, g, NULL, 0, &params);
    params.conditional.handle = handle;
    params.conditional.type = CU_GRAPH_COND_TYPE_SWITCH; /* of a later driver */
    BAD(cuGraphAddNode, &node, g, NULL, 0, &params);
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 2;
    BAD(cuGraphAddNode, &node, g, NULL, 0, &params);
    params.conditional.size = 1;
    OK(cuGraphAddNode, &node, g, NULL, 0, &params);
    bodies = params.conditional.phGraph_out;
    BAD(cuGraphAddNode, &inner, g, NULL, 0, &params); /* one node a handle */
    GIVES(CUDA_ERROR_ILLEGAL_STATE, cuGraphDestroy, bodies[0]);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone, &clone, g);
    OK(cuGraphCreate, &clone, 0);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddChildGraphNode, &inner, clone, NULL, 0, g);
    /* A handle that no node goes by. */
    unused = handle_of(g, 0, 0);
    BAD(cuGraphInstantiateWithParams, &exec, g, &wanted);
    IS(CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, wanted.result_out);
    conditional(g, &node, unused, CU_GRAPH_COND_TYPE_WHILE, 1, &inner);
    OK(cuGraphInstantiateWithParams, &exec, g, &wanted);
    OK(cuGraphExecDestroy, exec);
    /* What a body may not do. */
    OK(cuEventCreate, &event, 0);
    OK(cuGraphAddEventRecordNode, &inner, bodies[0], NULL, 0, event);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuGraphInstantiateWithParams, &exec, g, &wanted);
    IS(CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED, wanted.result_out);
    TRUE(wanted.hErrNode_out == inner);
    OK(cuGraphDestroy, g);
    OK(cuGraphDestroy, clone);
}

/* y is `want` after a launch. */
static void launched(CUgraphExec exec, float want)
{
    OK(cuMemsetD32_v2, y, 0, 1);
    OK(cuGraphLaunch, exec, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(value_of(y) == want);
}

static void runs(void)
{
    CUgraphConditionalHandle handle, nested;
    CUdeviceptr left;
    unsigned int *flag;
    uint64_t one = 1;
    uint32_t three = 3;
    void *down[] = {&handle, &left}, *filling[] = {&left, &three, &one}, *spinning[] = {&flag};
    CUgraphNode node, setter, inner;
    CUgraph g, *bodies, *deeper;
    CUgraphExec exec, repeated;

    begin();
    /* The default holds at each launch, until a kernel says otherwise. */
    OK(cuGraphCreate, &g, 0);
    handle = handle_of(g, 1, 1);
    bodies = conditional(g, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &node);
    inner = adding(bodies[0], NULL, 2);
    setting(bodies[0], &inner, handle, 0);
    adding(g, &node, 10); /* behind the body */
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    launched(exec, 12);
    launched(exec, 12);
    OK(cuGraphDestroy, g);
    launched(exec, 12); /* what it is made of is its own */
    OK(cuGraphExecDestroy, exec);
    /* Without a default the value stays what it was set to. */
    OK(cuGraphCreate, &g, 0);
    handle = handle_of(g, 0, 1);
    setter = setting(g, NULL, handle, 1);
    bodies = conditional(g, &setter, handle, CU_GRAPH_COND_TYPE_IF, 1, &node);
    adding(bodies[0], NULL, 3);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    launched(exec, 3);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, g);
    OK(cuGraphCreate, &g, 0);
    bodies = conditional(g, NULL, handle_of(g, 0, 1), CU_GRAPH_COND_TYPE_IF, 1, &node);
    adding(bodies[0], NULL, 4);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    launched(exec, 0);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, g);
    /* A loop of three turns, with a choice in it that comes true in each. */
    OK(cuMemAlloc_v2, &left, 16);
    OK(cuGraphCreate, &g, 0);
    handle = handle_of(g, 1, 1);
    setter = kernel(g, NULL, fill, filling);
    bodies = conditional(g, &setter, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &node);
    inner = adding(bodies[0], NULL, 1);
    inner = kernel(bodies[0], &inner, count_down, down);
    nested = handle_of(bodies[0], 1, 1);
    deeper = conditional(bodies[0], &inner, nested, CU_GRAPH_COND_TYPE_IF, 1, &inner);
    adding(deeper[0], NULL, 100);
    OK(cuGraphInstantiateWithFlags, &repeated, g, 0);
    OK(cuGraphDestroy, g);
    launched(repeated, 303);
    launched(repeated, 303);
    /* A value that comes late is waited for, by a graph that is gone by then. */
    OK(cuMemHostAlloc, (void **)&flag, sizeof(*flag), 0);
    *flag = 0;
    OK(cuGraphCreate, &g, 0);
    handle = handle_of(g, 0, 1);
    setter = kernel(g, NULL, spin, spinning);
    setter = setting(g, &setter, handle, 1);
    bodies = conditional(g, &setter, handle, CU_GRAPH_COND_TYPE_IF, 1, &node);
    adding(bodies[0], NULL, 5);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuMemsetD32_v2, y, 0, 1);
    OK(cuGraphLaunch, exec, stream);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, g);
    usleep(5000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    *(volatile unsigned int *)flag = 1;
    OK(cuStreamSynchronize, stream);
    TRUE(value_of(y) == 5);
    OK(cuGraphExecDestroy, repeated);
}

static void choices(void)
{
    CUgraphConditionalHandle handle;
    CUgraphNode node, setter;
    CUgraph g, *bodies;
    CUgraphExec exec;

    begin();
    for (unsigned int value = 0; value < 5; value++) {
        OK(cuGraphCreate, &g, 0);
        handle = handle_of(g, 0, 0);
        setter = setting(g, NULL, handle, value);
        bodies = conditional(g, &setter, handle, CU_GRAPH_COND_TYPE_SWITCH, 4, &node);
        for (unsigned int i = 0; i < 4; i++)
            adding(bodies[i], NULL, (float)(i + 1));
        OK(cuGraphInstantiateWithFlags, &exec, g, 0);
        launched(exec, value < 4 ? (float)(value + 1) : 0); /* no body: nothing */
        OK(cuGraphExecDestroy, exec);
        OK(cuGraphDestroy, g);
    }
    for (unsigned int value = 0; value < 2; value++) {
        OK(cuGraphCreate, &g, 0);
        bodies = conditional(g, NULL, handle_of(g, value, 1), CU_GRAPH_COND_TYPE_IF, 2, &node);
        adding(bodies[0], NULL, 1);
        adding(bodies[1], NULL, 2);
        OK(cuGraphInstantiateWithFlags, &exec, g, 0);
        launched(exec, value ? 1 : 2);
        OK(cuGraphExecDestroy, exec);
        OK(cuGraphDestroy, g);
    }
}

static const struct check_group groups[] = {{"nodes", nodes}, {"runs", runs}, {"choices", choices}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, groups, sizeof(groups) / sizeof(groups[0]));
}
