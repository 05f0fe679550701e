/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/graph.h"

#include "vgpu/context.h"
#include "vgpu/driver.h"
#include "vgpu/memory/alloc.h"
#include "vgpu/memory/charge.h"
#include "vgpu/sys.h"

#define DEPTH_MAX 8 /* of graphs in graphs */

_Atomic uint32_t alq_graph_count;
_Atomic uint32_t alq_graph_trims = 1;

static _Atomic bool has_memory_nodes; /* one was ever made in this process */

/* GRAPH: counted_bytes = what its nodes ask for on the device, overhead_bytes = alq_graph_trims
 * when they were last given it, 0 for never. */
static uint64_t key_of(CUgraphExec exec, uint32_t device)
{
    return (uint64_t)(uintptr_t)exec << 4 | device;
}
static_assert(ALQ_DEVICES_MAX <= 16, "a device fits the key");

void alq_graph_grown(struct alq_dev *dev)
{
    atomic_store_explicit(&has_memory_nodes, true, memory_order_relaxed);
    for (uint32_t i = 0; alq_dev_at(i); i++)
        if (!dev || dev->index == i)
            alq_pool_settle(alq_pool_of_graphs(alq_dev_at(i)));
}

/* ---- what an executable graph asks for ------------------------------------------------------- */

static void add_node(CUgraphNode node, uint64_t *bytes, int depth);

static void add_graph(CUgraph graph, uint64_t *bytes, int depth)
{
    size_t count = 0;

    if (depth == DEPTH_MAX || ALQ_CALL(cuGraphGetNodes, graph, NULL, &count) != CUDA_SUCCESS ||
        count == 0)
        return;
    CUgraphNode *nodes = alq_sys_anon(count * sizeof(CUgraphNode));
    if (!nodes)
        return;
    size_t room = count;
    if (ALQ_CALL(cuGraphGetNodes, graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count && i < room; i++)
            add_node(nodes[i], bytes, depth);
    alq_sys_munmap(nodes, room * sizeof(CUgraphNode));
}

static void add_node(CUgraphNode node, uint64_t *bytes, int depth)
{
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUgraphNodeType type;
    CUgraph child;

    if (ALQ_CALL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && ALQ_HAS(cuGraphChildGraphNodeGetGraph) &&
        ALQ_CALL(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS)
        add_graph(child, bytes, depth + 1);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !ALQ_HAS(cuGraphMemAllocNodeGetParams) ||
        ALQ_CALL(cuGraphMemAllocNodeGetParams, node, &alloc) != CUDA_SUCCESS)
        return;
    struct alq_dev *dev = alq_dev_of(alloc.poolProps.location.id);
    uint64_t size = alloc.bytesize + alq_slack(alloc.bytesize);
    if (dev && __builtin_add_overflow(bytes[dev->index], size, &bytes[dev->index]))
        bytes[dev->index] = UINT64_MAX;
}

static void instantiated(CUresult result, CUgraph graph, const CUgraphExec *exec)
{
    uint64_t bytes[ALQ_DEVICES_MAX] = {0};

    if (result != CUDA_SUCCESS || !alq_core_is_on() ||
        !atomic_load_explicit(&has_memory_nodes, memory_order_relaxed) ||
        !ALQ_HAS(cuGraphGetNodes) || !ALQ_HAS(cuGraphNodeGetType))
        return;
    alq_core_renew();
    add_graph(graph, bytes, 0);
    for (uint32_t i = 0; i < ALQ_DEVICES_MAX; i++) {
        struct alq_entry_value value = {bytes[i], 0, 0, (uint8_t)i, ALQ_KIND_GRAPH};
        if (bytes[i] && alq_table_put(key_of(*exec, i), &value))
            atomic_fetch_add_explicit(&alq_graph_count, 1, memory_order_relaxed);
        if (bytes[i])
            alq_pool_settle(alq_pool_of_graphs(alq_dev_at(i)));
    }
}

void alq_graph_gone(CUgraphExec exec)
{
    struct alq_entry_value value;

    if (atomic_load_explicit(&alq_graph_count, memory_order_relaxed) == 0)
        return;
    alq_core_renew();
    for (uint32_t i = 0; alq_dev_at(i); i++)
        if (alq_table_take(key_of(exec, i), ALQ_KIND_GRAPH, &value))
            atomic_fetch_sub_explicit(&alq_graph_count, 1, memory_order_relaxed);
}

/* ---- launches -------------------------------------------------------------------------------- */

static bool begin_on(struct alq_dev *dev, const struct alq_entry_value *graph,
                     struct alq_pool_call *call)
{
    struct alq_pool *pool = alq_pool_of_graphs(dev);
    bool is_backed =
        graph->overhead_bytes == atomic_load_explicit(&alq_graph_trims, memory_order_relaxed);

    alq_pool_settle(pool);
    if (!is_backed && alq_charge_is_over(dev)) {
        alq_charge_refused(dev, ALQ_FAMILY_GRAPH, graph->counted_bytes, 0);
        return false;
    }
    return alq_pool_begin(pool, is_backed ? 0 : graph->counted_bytes, call);
}

CUresult alq_graph_begin(CUgraphExec exec, struct alq_graph_launch *launch)
{
    struct alq_entry_value graph;
    struct alq_dev *dev;

    alq_core_renew();
    for (uint32_t i = 0; i < ALQ_DEVICES_MAX; i++)
        launch->call[i].pool = NULL;
    for (uint32_t i = 0; (dev = alq_dev_at(i)); i++) {
        if (!alq_table_get(key_of(exec, i), ALQ_KIND_GRAPH, &graph) ||
            begin_on(dev, &graph, &launch->call[i]))
            continue;
        launch->call[i].pool = NULL;
        alq_graph_end(exec, launch, CUDA_ERROR_OUT_OF_MEMORY);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

void alq_graph_end(CUgraphExec exec, const struct alq_graph_launch *launch, CUresult result)
{
    struct alq_entry_value graph;

    for (uint32_t i = 0; i < ALQ_DEVICES_MAX; i++) {
        if (!launch->call[i].pool)
            continue;
        alq_pool_end(&launch->call[i], result == CUDA_SUCCESS);
        if (result == CUDA_SUCCESS && alq_table_take(key_of(exec, i), ALQ_KIND_GRAPH, &graph)) {
            graph.overhead_bytes = atomic_load_explicit(&alq_graph_trims, memory_order_relaxed);
            alq_table_put(key_of(exec, i), &graph); /* room was just made */
        }
    }
}

#define UPLOAD(name)                                                                               \
    ALQ_HOOK CUresult name(CUgraphExec exec, CUstream stream)                                      \
    {                                                                                              \
        struct alq_graph_launch launch;                                                            \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on() ||                                                                   \
            atomic_load_explicit(&alq_graph_count, memory_order_relaxed) == 0)                     \
            return ALQ_CALL(name, exec, stream);                                                   \
        CUresult result = alq_graph_begin(exec, &launch);                                          \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = ALQ_CALL(name, exec, stream);                                                     \
        alq_graph_end(exec, &launch, result);                                                      \
        return result;                                                                             \
    }

UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

/* ---- making them ----------------------------------------------------------------------------- */

#define INSTANTIATE(name, params, args)                                                            \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        CUresult result = ALQ_CALL(name, args);                                                    \
        instantiated(result, graph, exec);                                                         \
        return result;                                                                             \
    }

INSTANTIATE(cuGraphInstantiate,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes),
            ARGS(exec, graph, node, log, bytes))
INSTANTIATE(cuGraphInstantiate_v2,
            (CUgraphExec * exec, CUgraph graph, CUgraphNode *node, char *log, size_t bytes),
            ARGS(exec, graph, node, log, bytes))
INSTANTIATE(cuGraphInstantiateWithFlags,
            (CUgraphExec * exec, CUgraph graph, unsigned long long flags), ARGS(exec, graph, flags))
INSTANTIATE(cuGraphInstantiateWithParams,
            (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
            ARGS(exec, graph, params))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz,
            (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params),
            ARGS(exec, graph, params))

#define ADD(name, params, args, device)                                                            \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        CUresult result = ALQ_CALL(name, args);                                                    \
        if (result == CUDA_SUCCESS && alq_core_is_on())                                            \
            added(device);                                                                         \
        return result;                                                                             \
    }

static void added(const CUDA_MEM_ALLOC_NODE_PARAMS *alloc)
{
    alq_core_renew();
    struct alq_dev *dev = alloc ? alq_dev_of(alloc->poolProps.location.id) : NULL;
    if (dev)
        alq_graph_grown(dev);
}

static const CUDA_MEM_ALLOC_NODE_PARAMS *alloc_of(const CUgraphNodeParams *node)
{
    return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? &node->alloc : NULL;
}

ADD(cuGraphAddMemAllocNode,
    (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
     CUDA_MEM_ALLOC_NODE_PARAMS *node),
    ARGS(out, graph, after, count, node), node)
ADD(cuGraphAddNode,
    (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, size_t count,
     CUgraphNodeParams *node),
    ARGS(out, graph, after, count, node), alloc_of(node))
ADD(cuGraphAddNode_v2,
    (CUgraphNode * out, CUgraph graph, const CUgraphNode *after, const CUgraphEdgeData *edges,
     size_t count, CUgraphNodeParams *node),
    ARGS(out, graph, after, edges, count, node), alloc_of(node))

ALQ_HOOK CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    if (!ALQ_HAS(cuDeviceGraphMemTrim))
        return alq_absent(ALQ_CU_cuDeviceGraphMemTrim);
    CUresult result = ALQ_CALL(cuDeviceGraphMemTrim, device);
    struct alq_dev *dev = result == CUDA_SUCCESS && alq_core_is_on() ? alq_dev_of(device) : NULL;
    if (dev) {
        atomic_fetch_add_explicit(&alq_graph_trims, 1, memory_order_relaxed);
        alq_pool_settle(alq_pool_of_graphs(dev));
    }
    return result;
}
