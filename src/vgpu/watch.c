/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers that change nothing for the program: at the return of its own waits and queries the gate
 * reads its measurements back, inside a capture it puts no event into a stream, and of what is
 * destroyed it forgets what it knew.
 */
#include "vgpu/driver.h"
#include "vgpu/memory/graph.h"
#include "vgpu/submit.h"

#define ARGS(...) __VA_ARGS__

static inline struct alq_compute *gate(void)
{
    return alq_core_is_on() ? alq_submit_now() : NULL;
}

#define SYNC(name, params, args, what)                                                             \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct alq_compute *compute;                                                               \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        CUresult result = ALQ_CALL(name, args);                                                    \
        if (result == CUDA_SUCCESS && (compute = gate()))                                          \
            alq_compute_synced(compute, what);                                                     \
        alq_pool_synced();                                                                         \
        return result;                                                                             \
    }

SYNC(cuCtxSynchronize, (void), ARGS(), ALQ_SYNCED_CONTEXT)
SYNC(cuCtxSynchronize_v2, (CUcontext context), ARGS(context), ALQ_SYNCED_CONTEXT)
SYNC(cuEventQuery, (CUevent event), ARGS(event), ALQ_SYNCED_EVENT)
SYNC(cuEventSynchronize, (CUevent event), ARGS(event), ALQ_SYNCED_EVENT)
SYNC(cuStreamQuery, (CUstream stream), ARGS(stream), ALQ_SYNCED_STREAM)
SYNC(cuStreamQuery_ptsz, (CUstream stream), ARGS(stream), ALQ_SYNCED_STREAM)
SYNC(cuStreamSynchronize, (CUstream stream), ARGS(stream), ALQ_SYNCED_STREAM)
SYNC(cuStreamSynchronize_ptsz, (CUstream stream), ARGS(stream), ALQ_SYNCED_STREAM)

/* A capture can begin before the first launch: the gate must know of it then too. */
static inline struct alq_compute *gate_for_capture(void)
{
    return alq_core_mode() == ALQ_MODE_LIMITED ? alq_submit_begin() : NULL;
}

#define CAPTURE(name, params, args)                                                                \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        struct alq_compute *compute = gate_for_capture();                                          \
        if (!compute)                                                                              \
            return ALQ_CALL(name, args);                                                           \
        alq_compute_capture_begin(compute, stream);                                                \
        CUresult result = ALQ_CALL(name, args);                                                    \
        alq_compute_capture_began(compute, stream, result);                                        \
        return result;                                                                             \
    }

CAPTURE(cuStreamBeginCapture, (CUstream stream), ARGS(stream))
CAPTURE(cuStreamBeginCapture_ptsz, (CUstream stream), ARGS(stream))
CAPTURE(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), ARGS(stream, mode))
CAPTURE(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode),
        ARGS(stream, mode))
#define TO_GRAPH_PARAMS                                                                            \
    (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges,       \
     size_t count, CUstreamCaptureMode mode)
CAPTURE(cuStreamBeginCaptureToGraph, TO_GRAPH_PARAMS,
        ARGS(stream, graph, nodes, edges, count, mode))
CAPTURE(cuStreamBeginCaptureToGraph_ptsz, TO_GRAPH_PARAMS,
        ARGS(stream, graph, nodes, edges, count, mode))

#define CAPTURE_END(name)                                                                          \
    ALQ_HOOK CUresult name(CUstream stream, CUgraph *graph)                                        \
    {                                                                                              \
        struct alq_compute *compute;                                                               \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        CUresult result = ALQ_CALL(name, stream, graph);                                           \
        if ((compute = gate()))                                                                    \
            alq_compute_capture_ended(compute, stream, result);                                    \
        return result;                                                                             \
    }

CAPTURE_END(cuStreamEndCapture)
CAPTURE_END(cuStreamEndCapture_ptsz)

#define GONE(name, handle_type, tell)                                                              \
    ALQ_HOOK CUresult name(handle_type handle)                                                     \
    {                                                                                              \
        struct alq_compute *compute;                                                               \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (handle && (compute = gate()))                                                          \
            tell(compute, handle);                                                                 \
        return ALQ_CALL(name, handle);                                                             \
    }

GONE(cuStreamDestroy, CUstream, alq_compute_stream_gone)
GONE(cuStreamDestroy_v2, CUstream, alq_compute_stream_gone)

static void graph_gone(struct alq_compute *compute, CUgraphExec exec)
{
    if (compute)
        alq_compute_graph_gone(compute, exec);
    alq_graph_gone(exec);
}

ALQ_HOOK CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    if (!ALQ_HAS(cuGraphExecDestroy))
        return alq_absent(ALQ_CU_cuGraphExecDestroy);
    if (exec && alq_core_is_on())
        graph_gone(alq_submit_now(), exec);
    return ALQ_CALL(cuGraphExecDestroy, exec);
}
