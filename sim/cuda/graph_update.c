/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of an executable graph: single steps by the node they were made of, or all of them by a
 * graph of the same shape. What a step does may change, not what kind it is nor what it waits for.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/graph.h"

static CUresult find(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, struct step **step)
{
    TRY(exec_check(exec));
    TRY(node_check(node));
    NEED(node->params.type == type, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < exec->count; i++) {
        if (exec->steps[i].source == node) {
            *step = &exec->steps[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static bool same_copy(const CUDA_MEMCPY3D *a, const CUDA_MEMCPY3D *b)
{
    return a->srcMemoryType == b->srcMemoryType && a->dstMemoryType == b->dstMemoryType;
}

/* Whether the new parameters are such as the step may take on. */
static CUgraphExecUpdateResult compare(const struct node_params *old, const struct node_params *new)
{
    if (old->type != new->type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    switch (old->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (old->kernel.api.ctx->device != new->kernel.api.ctx->device)
            return CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE;
        if (old->kernel.shape.is_cooperative != new->kernel.shape.is_cooperative)
            return CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
        return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return same_copy(&old->memcpy.copy, &new->memcpy.copy) &&
                       old->memcpy.context->device == new->memcpy.context->device
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return (old->memset.height > 1) == (new->memset.height > 1) &&
                       old->memset.ctx->device == new->memset.ctx->device
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return old->alloc.api.dptr == new->alloc.api.dptr
                   ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                   : CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    default:
        return CU_GRAPH_EXEC_UPDATE_SUCCESS;
    }
}

/* Takes over the parameters, in any case. */
static CUresult change(struct step *step, CUresult filled, struct node_params *params)
{
    TRY(filled);
    if (compare(&step->params, params) != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        params_free(params);
        return CUDA_ERROR_INVALID_VALUE;
    }
    params_free(&step->params);
    step->params = *params;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS_v2 *api)
{
    struct node_params params;
    struct step *step;

    TRY(find(exec, node, CU_GRAPH_NODE_TYPE_KERNEL, &step));
    return change(step, kernel_fill(api, &params), &params);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *api)
{
    CUDA_KERNEL_NODE_PARAMS_v2 newer = {0};

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(api, CUDA_ERROR_INVALID_VALUE);
    memcpy(&newer, api, sizeof(*api));
    return cuGraphExecKernelNodeSetParams_v2(exec, node, &newer);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *copy, CUcontext context)
{
    struct node_params params;
    struct step *step;

    TRY(find(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY, &step));
    return change(step, memcpy_fill(copy, context, &params), &params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS_v1 *api, CUcontext context)
{
    CUDA_MEMSET_NODE_PARAMS_v2 newer = {.ctx = context};
    struct node_params params;
    struct step *step;

    TRY(find(exec, node, CU_GRAPH_NODE_TYPE_MEMSET, &step));
    NEED(api, CUDA_ERROR_INVALID_VALUE);
    memcpy(&newer, api, sizeof(*api));
    return change(step, memset_fill(&newer, &params), &params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS *api)
{
    struct node_params params;
    struct step *step;

    TRY(find(exec, node, CU_GRAPH_NODE_TYPE_HOST, &step));
    return change(step, host_fill(api, &params), &params);
}

static CUresult event_set(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type, CUevent event)
{
    struct node_params params;
    struct step *step;

    TRY(find(exec, node, type, &step));
    return change(step, event_fill(event, type, &params), &params);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return event_set(exec, node, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event)
{
    return event_set(exec, node, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *api)
{
    struct node_params params;
    struct step *step;

    TRY(find(exec, node, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &step));
    return change(step, memop_fill(api, &params), &params);
}

/* Steps [first, first + count) take on what the new ones do; none does when one cannot. */
static CUgraphExecUpdateResult change_all(struct step *steps, struct step *new, size_t count,
                                          size_t base, size_t *wrong)
{
    for (size_t i = 0; i < count; i++) {
        CUgraphExecUpdateResult result = compare(&steps[i].params, &new[i].params);

        *wrong = i;
        if (result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            return result;
        if (steps[i].after_count != new[i].after_count)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (size_t k = 0; k < new[i].after_count; k++) {
            if (steps[i].after[k] != new[i].after[k] + base)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct node_params old = steps[i].params;

        steps[i].params = new[i].params;
        new[i].params = old;
    }
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

/* The child's steps stand before the empty step that joins them. */
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child)
{
    struct step *join, *new;
    size_t count, at, wrong, first;
    CUgraphExecUpdateResult result;

    TRY(find(exec, node, CU_GRAPH_NODE_TYPE_GRAPH, &join));
    TRY(graph_check(child));
    TRY(steps_make(child, &new, &count, NULL));
    at = (size_t)(join - exec->steps);
    result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    if (count == join->inner) {
        first = at - count;
        for (size_t i = 0; i < count;
             i++) { /* roots of the child wait for what the node waits for */
            if (!new[i].after_count && exec->steps[first + i].after_count) {
                const struct step *old = &exec->steps[first + i];

                new[i].after = calloc(old->after_count, sizeof(size_t));
                if (!new[i].after)
                    break;
                for (size_t k = 0; k < old->after_count; k++)
                    new[i].after[k] = old->after[k] - first; /* before the child: wraps, and back */
                new[i].after_count = old->after_count;
            }
        }
        result = change_all(&exec->steps[first], new, count, first, &wrong);
    }
    steps_free(new, count);
    return result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *api)
{
    struct node_params params;
    struct step *step;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(api, CUDA_ERROR_INVALID_VALUE);
    if (api->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return cuGraphExecChildGraphNodeSetParams(exec, node, api->graph.graph);
    TRY(find(exec, node, api->type, &step));
    NEED(api->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && api->type != CU_GRAPH_NODE_TYPE_MEM_FREE,
         CUDA_ERROR_NOT_SUPPORTED);
    return change(step, any_fill(api, &params), &params);
}

/* Enabling */

static CUresult toggled(CUgraphExec exec, CUgraphNode node, struct step **step)
{
    TRY(node_check(node));
    NEED(node->params.type == CU_GRAPH_NODE_TYPE_KERNEL ||
             node->params.type == CU_GRAPH_NODE_TYPE_MEMSET ||
             node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY,
         CUDA_ERROR_INVALID_VALUE);
    return find(exec, node, node->params.type, step);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int is_enabled)
{
    struct step *step;

    TRY(toggled(exec, node, &step));
    step->is_disabled = !is_enabled;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *is_enabled)
{
    struct step *step;

    TRY(toggled(exec, node, &step));
    NEED(is_enabled, CUDA_ERROR_INVALID_VALUE);
    *is_enabled = !step->is_disabled;
    return CUDA_SUCCESS;
}

/* Whole graphs */

CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    struct step *new;
    size_t count, wrong = 0;

    TRY(exec_check(exec));
    TRY(graph_check(graph));
    NEED(info, CUDA_ERROR_INVALID_VALUE);
    *info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    if (graph->has_conditions) { /* its bodies stay as they are */
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    TRY(steps_make(graph, &new, &count, NULL));
    if (count != exec->count) {
        info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    } else {
        info->result = change_all(exec->steps, new, count, 0, &wrong);
        if (info->result != CU_GRAPH_EXEC_UPDATE_SUCCESS)
            info->errorNode = new[wrong].source;
    }
    steps_free(new, count);
    return info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS
                                                        : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node,
                           CUgraphExecUpdateResult *result)
{
    CUgraphExecUpdateResultInfo info = {0};
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(error_node && result, CUDA_ERROR_INVALID_VALUE);
    rc = cuGraphExecUpdate_v2(exec, graph, &info);
    *error_node = info.errorNode;
    *result = info.result;
    return rc;
}
