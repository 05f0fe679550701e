/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What nodes hold: checked copies of what the program passed. Nothing of the caller's memory is
 * looked at after the call, except host memory that copies name, and the arguments of a kernel of
 * which nobody says how many it has.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/callback.h"
#include "cuda/graph.h"

#define MEMOPS_MAX 256u

static CUresult context_or_current(CUcontext given, struct CUctx_st **context)
{
    if (!given)
        return current(context);
    *context = given;
    return context_check(given);
}

/* Kernels */

static CUresult shape_attribute(struct kernel_node *k, CUlaunchAttributeID id)
{
    const CUlaunchAttributeValue *v = &k->attributes[id];

    if (id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE) {
        k->shape.is_cooperative = v->cooperative;
    } else if (id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
        k->shape.cluster[0] = v->clusterDim.x;
        k->shape.cluster[1] = v->clusterDim.y;
        k->shape.cluster[2] = v->clusterDim.z;
    }
    return CUDA_SUCCESS;
}

CUresult kernel_fill(const CUDA_KERNEL_NODE_PARAMS_v2 *api, struct node_params *params)
{
    struct kernel_node *k = &params->kernel;
    struct CUctx_st *c;
    struct CUfunc_st *f;

    NEED(api, CUDA_ERROR_INVALID_VALUE);
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_KERNEL;
    TRY(context_or_current(api->ctx, &c));
    TRY(function_of(api->func ? api->func : (CUfunction)api->kern, c, &f));
    k->api = *api;
    k->shape = (struct launch_shape){.grid = {api->gridDimX, api->gridDimY, api->gridDimZ},
                                     .block = {api->blockDimX, api->blockDimY, api->blockDimZ},
                                     .shared_bytes = api->sharedMemBytes};
    TRY(launch_prepare(f, &k->shape, api->kernelParams, api->extra, &k->launch));
    TRY(launch_copy_args(f, api->kernelParams, api->extra, &k->args));
    k->api.func = f;
    k->api.ctx = f->module->context;
    if (k->args) {
        k->api.kernelParams = k->args;
        k->api.extra = NULL;
    }
    return CUDA_SUCCESS;
}

static CUresult kernel_copy(const struct kernel_node *from, struct kernel_node *to)
{
    *to = *from;
    to->args = NULL;
    to->attributes = NULL;
    if (from->attributes) {
        to->attributes = malloc(CU_LAUNCH_ATTRIBUTE_MAX * sizeof(*to->attributes));
        NEED(to->attributes, CUDA_ERROR_OUT_OF_MEMORY);
        memcpy(to->attributes, from->attributes, CU_LAUNCH_ATTRIBUTE_MAX * sizeof(*to->attributes));
    }
    if (from->args) {
        CUresult rc = launch_copy_args(from->api.func, from->args, NULL, &to->args);

        if (rc != CUDA_SUCCESS) {
            free(to->attributes);
            return rc;
        }
        to->api.kernelParams = to->args;
    }
    return CUDA_SUCCESS;
}

/* Other kinds */

CUresult memcpy_fill(const CUDA_MEMCPY3D *copy, CUcontext context, struct node_params *params)
{
    struct copy described;
    struct CUctx_st *c;

    NEED(copy, CUDA_ERROR_INVALID_VALUE);
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_MEMCPY;
    TRY(context_or_current(context, &c));
    NEED(copy->WidthInBytes && copy->Height && copy->Depth, CUDA_ERROR_INVALID_VALUE);
    TRY(copy_describe(copy, &described));
    params->memcpy.copy = *copy;
    params->memcpy.context = c;
    return CUDA_SUCCESS;
}

CUresult memset_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *api, struct node_params *params)
{
    struct CUctx_st *c;
    size_t row, rest = 0;

    NEED(api, CUDA_ERROR_INVALID_VALUE);
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_MEMSET;
    TRY(context_or_current(api->ctx, &c));
    NEED((api->elementSize == 1 || api->elementSize == 2 || api->elementSize == 4) && api->width &&
             api->height && api->dst && api->dst % api->elementSize == 0,
         CUDA_ERROR_INVALID_VALUE);
    NEED(!__builtin_mul_overflow(api->width, api->elementSize, &row) &&
             (api->height == 1 ||
              (api->pitch >= row && !__builtin_mul_overflow(api->pitch, api->height - 1, &rest))) &&
             row + rest >= row,
         CUDA_ERROR_INVALID_VALUE);
    NEED(!memory_device(api->dst) || memory_host(api->dst, row + rest, false),
         CUDA_ERROR_INVALID_VALUE);
    params->memset = *api;
    params->memset.ctx = c;
    return CUDA_SUCCESS;
}

CUresult host_fill(const CUDA_HOST_NODE_PARAMS *api, struct node_params *params)
{
    NEED(api && api->fn, CUDA_ERROR_INVALID_VALUE);
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_HOST;
    params->host = *api;
    return CUDA_SUCCESS;
}

CUresult event_fill(CUevent event, CUgraphNodeType type, struct node_params *params)
{
    NEED(event && event->magic == MAGIC_EVENT, CUDA_ERROR_INVALID_VALUE);
    memset(params, 0, sizeof(*params));
    params->type = type;
    params->event = event;
    return CUDA_SUCCESS;
}

CUresult child_fill(CUgraph child, struct node_params *params)
{
    TRY(graph_check(child));
    NEED(!child->is_captured, CUDA_ERROR_ILLEGAL_STATE);
    NEED(!child->has_memory && !child->has_conditions, CUDA_ERROR_NOT_SUPPORTED);
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_GRAPH;
    TRY(graph_copy(child, &params->child));
    params->child->is_owned = true;
    return CUDA_SUCCESS;
}

CUresult memop_fill(const CUDA_BATCH_MEM_OP_NODE_PARAMS *api, struct node_params *params)
{
    struct CUctx_st *c;

    NEED(api && api->count && api->count <= MEMOPS_MAX && api->paramArray && !api->flags,
         CUDA_ERROR_INVALID_VALUE);
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    TRY(context_or_current(api->ctx, &c));
    TRY(memops_check(api->count, api->paramArray));
    params->memop.ops = malloc(api->count * sizeof(*api->paramArray));
    NEED(params->memop.ops, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(params->memop.ops, api->paramArray, api->count * sizeof(*api->paramArray));
    params->memop.context = c;
    params->memop.count = api->count;
    params->memop.flags = api->flags;
    return CUDA_SUCCESS;
}

CUresult any_fill(const CUgraphNodeParams *api, struct node_params *params)
{
    switch (api->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_fill(&api->kernel, params);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        NEED(!api->memcpy.flags, CUDA_ERROR_INVALID_VALUE);
        return memcpy_fill(&api->memcpy.copyParams, api->memcpy.copyCtx, params);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return memset_fill(&api->memset, params);
    case CU_GRAPH_NODE_TYPE_HOST:
        return host_fill(&api->host, params);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return child_fill(api->graph.graph, params);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        *params = (struct node_params){.type = CU_GRAPH_NODE_TYPE_EMPTY};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return event_fill(api->event, api->type, params);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return memop_fill(&api->memOp, params);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: /* both have one layout */
        return semaphore_fill(api->type, api->extSemSignal.extSemArray,
                              api->extSemSignal.paramsArray, api->extSemSignal.numExtSems, params);
    default:
        return (int)api->type >= 0 && api->type <= CU_GRAPH_NODE_TYPE_CONDITIONAL
                   ? CUDA_ERROR_NOT_SUPPORTED
                   : CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult params_copy(const struct node_params *from, struct node_params *to)
{
    *to = *from;
    switch (from->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_copy(&from->kernel, &to->kernel);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        TRY(graph_copy(from->child, &to->child));
        to->child->is_owned = true;
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        to->memop.ops = malloc(from->memop.count * sizeof(*from->memop.ops));
        NEED(to->memop.ops, CUDA_ERROR_OUT_OF_MEMORY);
        memcpy(to->memop.ops, from->memop.ops, from->memop.count * sizeof(*from->memop.ops));
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return semaphore_copy(to);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        memory_get(to->alloc.memory);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        to->conditional.is_owner = false;
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

void params_free(struct node_params *p)
{
    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        free(p->kernel.args);
        free(p->kernel.attributes);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (p->child)
            graph_drop(p->child);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        free(p->memop.ops);
        break;
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        free(p->semaphore.semaphores);
        free((void *)(uintptr_t)p->semaphore.params);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        memory_put(p->alloc.memory);
        break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        conditional_free(p);
        break;
    default:
        break;
    }
    *p = (struct node_params){.type = p->type};
}

/* Adding */

/* `fill` has run: the node is added, or what it filled is freed. */
static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                    const CUgraphEdgeData *data, size_t count, struct node_params *params)
{
    return node_add(graph, dependencies, data, count, params, node);
}

#define ADD(fill)                                                                                  \
    do {                                                                                           \
        struct node_params params_;                                                                \
        TRY(graph_check(graph));                                                                   \
        NEED(node, CUDA_ERROR_INVALID_VALUE);                                                      \
        TRY(dependencies_check(graph, dependencies, count));                                       \
        TRY(fill);                                                                                 \
        return add(node, graph, dependencies, NULL, count, &params_);                              \
    } while (0)

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count)
{
    const CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};

    ADD(any_fill(&empty, &params_));
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
    ADD(kernel_fill(params, &params_));
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS_v2 newer = {0};

    NEED(params, CUDA_ERROR_INVALID_VALUE);
    memcpy(&newer, params, sizeof(*params));
    ADD(kernel_fill(&newer, &params_));
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_MEMCPY3D *copy, CUcontext context)
{
    ADD(memcpy_fill(copy, context, &params_));
}

static CUDA_MEMSET_NODE_PARAMS_v2 newer_memset(const CUDA_MEMSET_NODE_PARAMS_v1 *params,
                                               CUcontext context)
{
    CUDA_MEMSET_NODE_PARAMS_v2 newer = {.ctx = context};

    memcpy(&newer, params, sizeof(*params));
    return newer;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS_v1 *params,
                              CUcontext context)
{
    CUDA_MEMSET_NODE_PARAMS_v2 newer;

    NEED(params, CUDA_ERROR_INVALID_VALUE);
    newer = newer_memset(params, context);
    ADD(memset_fill(&newer, &params_));
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count, const CUDA_HOST_NODE_PARAMS *params)
{
    ADD(host_fill(params, &params_));
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, CUgraph child)
{
    NEED(graph != child, CUDA_ERROR_INVALID_VALUE);
    ADD(child_fill(child, &params_));
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph,
                                   const CUgraphNode *dependencies, size_t count, CUevent event)
{
    ADD(event_fill(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &params_));
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, CUevent event)
{
    ADD(event_fill(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &params_));
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                  size_t count, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)
{
    ADD(memop_fill(params, &params_));
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    ADD(memory_fill_alloc(graph, dependencies, count, params, &params_));
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                               size_t count, CUdeviceptr address)
{
    ADD(memory_fill_free(graph, address, &params_));
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *api)
{
    struct node_params params;
    CUresult rc;

    TRY(graph_check(graph));
    NEED(node && api, CUDA_ERROR_INVALID_VALUE);
    TRY(dependencies_check(graph, dependencies, count));
    if (api->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        rc = memory_fill_alloc(graph, dependencies, count, &api->alloc, &params);
    else if (api->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        rc = memory_fill_free(graph, api->free.dptr, &params);
    else if (api->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        rc = conditional_fill(graph, &api->conditional, &params);
    else
        rc = any_fill(api, &params);
    return rc == CUDA_SUCCESS ? add(node, graph, dependencies, data, count, &params) : rc;
}

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                        size_t count, CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(node, graph, dependencies, NULL, count, params);
}

/* Reading and changing */

static CUresult typed(CUgraphNode node, CUgraphNodeType type, const void *out)
{
    TRY(node_check(node));
    NEED(out && node->params.type == type, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult replace(CUgraphNode node, CUresult filled, struct node_params *params)
{
    TRY(filled);
    if (params->type == CU_GRAPH_NODE_TYPE_KERNEL) {
        struct kernel_node *k = &params->kernel, *old = &node->params.kernel;

        k->attributes = old->attributes; /* they stay */
        k->attributes_set = old->attributes_set;
        old->attributes = NULL;
        for (int i = 0; i < CU_LAUNCH_ATTRIBUTE_MAX; i++) {
            if (k->attributes_set & 1u << i)
                TRY(shape_attribute(k, (CUlaunchAttributeID)i));
        }
    }
    params_free(&node->params);
    node->params = *params;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
    TRY(typed(node, CU_GRAPH_NODE_TYPE_KERNEL, params));
    *params = node->params.kernel.api;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    TRY(typed(node, CU_GRAPH_NODE_TYPE_KERNEL, params));
    memcpy(params, &node->params.kernel.api, sizeof(*params));
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v2 *api)
{
    struct node_params params;

    TRY(typed(node, CU_GRAPH_NODE_TYPE_KERNEL, api));
    return replace(node, kernel_fill(api, &params), &params);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *api)
{
    CUDA_KERNEL_NODE_PARAMS_v2 newer = {0};

    TRY(typed(node, CU_GRAPH_NODE_TYPE_KERNEL, api));
    memcpy(&newer, api, sizeof(*api));
    return cuGraphKernelNodeSetParams_v2(node, &newer);
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       const CUkernelNodeAttrValue *value)
{
    struct kernel_node *k;

    TRY(typed(node, CU_GRAPH_NODE_TYPE_KERNEL, value));
    NEED((int)id > 0 && id < CU_LAUNCH_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    k = &node->params.kernel;
    if (!k->attributes)
        k->attributes = calloc(CU_LAUNCH_ATTRIBUTE_MAX, sizeof(*k->attributes));
    NEED(k->attributes, CUDA_ERROR_OUT_OF_MEMORY);
    k->attributes[id] = *value;
    k->attributes_set |= 1u << id;
    return shape_attribute(k, id);
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID id,
                                       CUkernelNodeAttrValue *value)
{
    TRY(typed(node, CU_GRAPH_NODE_TYPE_KERNEL, value));
    NEED((int)id > 0 && id < CU_LAUNCH_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    memset(value, 0, sizeof(*value));
    if (node->params.kernel.attributes)
        *value = node->params.kernel.attributes[id];
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
    TRY(typed(to, CU_GRAPH_NODE_TYPE_KERNEL, from));
    TRY(typed(from, CU_GRAPH_NODE_TYPE_KERNEL, to));
    for (int i = 1; i < CU_LAUNCH_ATTRIBUTE_MAX; i++) {
        if (from->params.kernel.attributes_set & 1u << i)
            TRY(cuGraphKernelNodeSetAttribute(to, (CUlaunchAttributeID)i,
                                              &from->params.kernel.attributes[i]));
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *copy)
{
    TRY(typed(node, CU_GRAPH_NODE_TYPE_MEMCPY, copy));
    *copy = node->params.memcpy.copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
    struct node_params params;

    TRY(typed(node, CU_GRAPH_NODE_TYPE_MEMCPY, copy));
    return replace(node, memcpy_fill(copy, node->params.memcpy.context, &params), &params);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v1 *api)
{
    TRY(typed(node, CU_GRAPH_NODE_TYPE_MEMSET, api));
    memcpy(api, &node->params.memset, sizeof(*api));
    return CUDA_SUCCESS;
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1 *api)
{
    CUDA_MEMSET_NODE_PARAMS_v2 newer;
    struct node_params params;

    TRY(typed(node, CU_GRAPH_NODE_TYPE_MEMSET, api));
    newer = newer_memset(api, node->params.memset.ctx);
    return replace(node, memset_fill(&newer, &params), &params);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *api)
{
    TRY(typed(node, CU_GRAPH_NODE_TYPE_HOST, api));
    *api = node->params.host;
    return CUDA_SUCCESS;
}

CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *api)
{
    struct node_params params;

    TRY(typed(node, CU_GRAPH_NODE_TYPE_HOST, api));
    return replace(node, host_fill(api, &params), &params);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
    TRY(typed(node, CU_GRAPH_NODE_TYPE_GRAPH, graph));
    *graph = node->params.child;
    return CUDA_SUCCESS;
}

static CUresult event_get(CUgraphNode node, CUgraphNodeType type, CUevent *event)
{
    TRY(typed(node, type, event));
    *event = node->params.event;
    return CUDA_SUCCESS;
}

static CUresult event_set(CUgraphNode node, CUgraphNodeType type, CUevent event)
{
    struct node_params params;

    TRY(typed(node, type, event));
    return replace(node, event_fill(event, type, &params), &params);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *event)
{
    return event_get(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event)
{
    return event_set(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *event)
{
    return event_get(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event)
{
    return event_set(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS *api)
{
    TRY(typed(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, api));
    *api = (CUDA_BATCH_MEM_OP_NODE_PARAMS){node->params.memop.context, node->params.memop.count,
                                           node->params.memop.ops, node->params.memop.flags};
    return CUDA_SUCCESS;
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *api)
{
    struct node_params params;

    TRY(typed(node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, api));
    return replace(node, memop_fill(api, &params), &params);
}

CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *api)
{
    struct node_params params;

    TRY(node_check(node));
    NEED(api && api->type == node->params.type, CUDA_ERROR_INVALID_VALUE);
    NEED(api->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && api->type != CU_GRAPH_NODE_TYPE_MEM_FREE &&
             api->type != CU_GRAPH_NODE_TYPE_CONDITIONAL,
         CUDA_ERROR_NOT_SUPPORTED);
    return replace(node, any_fill(api, &params), &params);
}
