/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that signal external semaphores or wait for them: their copies of what the program passed.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/graph.h"
#include "cuda/semaphore.h"

static_assert(sizeof(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS) ==
                  sizeof(CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS),
              "one copy for both");

static CUresult copy_lists(struct semaphore_node *n)
{
    size_t list = n->count * sizeof(CUexternalSemaphore);
    size_t params = n->count * sizeof(CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS);
    void *semaphores = malloc(list), *values = malloc(params);

    if (!semaphores || !values) {
        free(semaphores);
        free(values);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(semaphores, n->semaphores, list);
    memcpy(values, n->params, params);
    n->semaphores = semaphores;
    n->params = values;
    return CUDA_SUCCESS;
}

CUresult semaphore_fill(CUgraphNodeType type, const CUexternalSemaphore *semaphores,
                        const void *values, unsigned int count, struct node_params *params)
{
    TRY(semaphores_check(semaphores, values, count));
    memset(params, 0, sizeof(*params));
    params->type = type;
    params->semaphore =
        (struct semaphore_node){count, (CUexternalSemaphore *)(uintptr_t)semaphores, values};
    return copy_lists(&params->semaphore);
}

CUresult semaphore_copy(struct node_params *params)
{
    return copy_lists(&params->semaphore);
}

CUresult semaphore_run(const struct node_params *p, CUstream stream)
{
    const struct semaphore_node *n = &p->semaphore;

    return p->type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL
               ? semaphores_signal(stream, n->semaphores, n->params, n->count)
               : semaphores_wait(stream, n->semaphores, n->params, n->count);
}

/* Entry points */

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                    CUgraphNodeParams *api)
{
    return cuGraphAddNode_v2(node, graph, dependencies, NULL, count, api);
}

CUresult cuGraphAddExternalSemaphoresSignalNode(CUgraphNode *node, CUgraph graph,
                                                const CUgraphNode *dependencies, size_t count,
                                                const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    CUgraphNodeParams api = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL};

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    api.extSemSignal = *params;
    return add(node, graph, dependencies, count, &api);
}

CUresult cuGraphExternalSemaphoresSignalNodeGetParams(CUgraphNode node,
                                                      CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    const struct semaphore_node *n;

    TRY(node_check(node));
    NEED(params && node->params.type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
         CUDA_ERROR_INVALID_VALUE);
    n = &node->params.semaphore;
    *params = (CUDA_EXT_SEM_SIGNAL_NODE_PARAMS){n->semaphores, n->params, n->count};
    return CUDA_SUCCESS;
}

CUresult cuGraphExternalSemaphoresSignalNodeSetParams(CUgraphNode node,
                                                      const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    CUgraphNodeParams api = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL};

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    api.extSemSignal = *params;
    return cuGraphNodeSetParams(node, &api);
}

CUresult
cuGraphExecExternalSemaphoresSignalNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                 const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS *params)
{
    CUgraphNodeParams api = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL};

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    api.extSemSignal = *params;
    return cuGraphExecNodeSetParams(exec, node, &api);
}

CUresult cuGraphAddExternalSemaphoresWaitNode(CUgraphNode *node, CUgraph graph,
                                              const CUgraphNode *dependencies, size_t count,
                                              const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
    CUgraphNodeParams api = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT};

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    api.extSemWait = *params;
    return add(node, graph, dependencies, count, &api);
}

CUresult cuGraphExternalSemaphoresWaitNodeGetParams(CUgraphNode node,
                                                    CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
    const struct semaphore_node *n;

    TRY(node_check(node));
    NEED(params && node->params.type == CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
         CUDA_ERROR_INVALID_VALUE);
    n = &node->params.semaphore;
    *params = (CUDA_EXT_SEM_WAIT_NODE_PARAMS){n->semaphores, n->params, n->count};
    return CUDA_SUCCESS;
}

CUresult cuGraphExternalSemaphoresWaitNodeSetParams(CUgraphNode node,
                                                    const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
    CUgraphNodeParams api = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT};

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    api.extSemWait = *params;
    return cuGraphNodeSetParams(node, &api);
}

CUresult cuGraphExecExternalSemaphoresWaitNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                        const CUDA_EXT_SEM_WAIT_NODE_PARAMS *params)
{
    CUgraphNodeParams api = {.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT};

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    api.extSemWait = *params;
    return cuGraphExecNodeSetParams(exec, node, &api);
}
