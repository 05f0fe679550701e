/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs in their first form: kernel, memset, copy and empty nodes, by stream capture or added one
 * by one, run in the order they were added (a valid order of any dependencies, since a node can
 * only depend on earlier ones). An instantiated graph is a copy; its kernels are given to the
 * device back to back. Captures are under capture_lock, outside which only a stream's capture
 * pointer is read.
 */
#include "cuda/driver.h"

#include <stdlib.h>
#include <string.h>

struct CUgraphNode_st {
    uint32_t magic;
    CUgraphNodeType type;
    struct CUgraph_st *graph;
    struct CUgraphNode_st *next;
    struct launch launch; /* KERNEL */
    CUfunction function;
    CUDA_KERNEL_NODE_PARAMS_v2 params;
    struct copy copy; /* MEMCPY, MEMSET */
};

struct CUgraph_st {
    uint32_t magic;
    size_t count;
    struct CUgraphNode_st *first, **last;
    bool is_captured; /* owned by a capture until that ends */
};

struct step {
    CUgraphNodeType type;
    struct launch launch;
    struct copy copy;
};

struct CUgraphExec_st {
    uint32_t magic;
    size_t count;
    struct step *steps;
};

struct capture {
    struct CUgraph_st *graph;
    struct CUstream_st *origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    unsigned long long id;
    bool is_invalid;
    struct capture *next;
};

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture *captures;        /* those that are open */
static _Atomic unsigned int open_count; /* and how many */
static unsigned long long last_id;

static struct CUgraph_st *graph_new(void)
{
    struct CUgraph_st *g = calloc(1, sizeof(*g));

    if (g) {
        g->magic = MAGIC_GRAPH;
        g->last = &g->first;
    }
    return g;
}

static struct CUgraphNode_st *node_add(struct CUgraph_st *g, CUgraphNodeType type)
{
    struct CUgraphNode_st *n = calloc(1, sizeof(*n));

    if (n) {
        n->magic = MAGIC_NODE;
        n->type = type;
        n->graph = g;
        *g->last = n;
        g->last = &n->next;
        g->count++;
    }
    return n;
}

static void graph_drop(struct CUgraph_st *g)
{
    for (struct CUgraphNode_st *n = g->first; n; n = n->next)
        n->magic = MAGIC_DEAD;
    g->magic = MAGIC_DEAD;
}

/* Capture */

CUresult capture_launch(struct CUstream_st *s, struct CUfunc_st *f, const struct launch *launch)
{
    struct CUgraphNode_st *n = NULL;
    struct capture *c;
    CUresult rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

    pthread_mutex_lock(&capture_lock);
    c = atomic_load(&s->capture);
    if (c && !c->is_invalid) {
        n = node_add(c->graph, CU_GRAPH_NODE_TYPE_KERNEL);
        rc = n ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (n) {
        n->launch = *launch;
        n->function = f;
    }
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

CUresult capture_copy(struct CUstream_st *s, const struct copy *copy)
{
    struct CUgraphNode_st *n = NULL;
    struct capture *c;
    CUresult rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

    pthread_mutex_lock(&capture_lock);
    c = atomic_load(&s->capture);
    if (c && !c->is_invalid) {
        n = node_add(c->graph, copy->kind == COPY_FILL ? CU_GRAPH_NODE_TYPE_MEMSET
                                                       : CU_GRAPH_NODE_TYPE_MEMCPY);
        rc = n ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (n)
        n->copy = *copy;
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

CUresult capture_unsafe(void)
{
    CUstreamCaptureMode mode = thread_state.capture_mode;
    CUresult rc = CUDA_SUCCESS;

    if (!atomic_load_explicit(&open_count, memory_order_relaxed) ||
        mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&capture_lock);
    for (struct capture *c = captures; c; c = c->next) {
        bool is_own = pthread_equal(c->thread, pthread_self());

        if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
            (is_own ||
             (c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL))) {
            c->is_invalid = true;
            rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

bool capture_implicit(struct CUctx_st *context)
{
    bool found = false;

    if (!atomic_load_explicit(&open_count, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&capture_lock);
    for (struct capture *c = captures; c; c = c->next) {
        if (c->origin->context == context && !(c->origin->flags & CU_STREAM_NON_BLOCKING)) {
            c->is_invalid = true;
            found = true;
        }
    }
    pthread_mutex_unlock(&capture_lock);
    return found;
}

CUresult capture_event_record(struct CUstream_st *s, struct CUevent_st *event)
{
    pthread_mutex_lock(&capture_lock);
    atomic_store(&event->capture, atomic_load(&s->capture));
    pthread_mutex_unlock(&capture_lock);
    return CUDA_SUCCESS;
}

/* A stream that waits for an event of a capture joins that capture. */
CUresult capture_event_wait(struct CUstream_st *s, struct CUevent_st *event)
{
    struct capture *of_stream, *of_event, *c;
    CUresult rc = CUDA_SUCCESS;

    pthread_mutex_lock(&capture_lock);
    of_stream = atomic_load(&s->capture);
    of_event = atomic_load(&event->capture);
    for (c = captures; c && c != of_event; c = c->next)
        ;
    if (of_event && !c)
        rc = CUDA_ERROR_CAPTURED_EVENT; /* of a capture that has ended */
    else if (of_event && of_stream && of_event != of_stream)
        rc = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    else if (of_event && s->is_legacy)
        rc = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    else if (!of_event && of_stream)
        rc = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    else if (of_event)
        atomic_store(&s->capture, of_event);
    if (rc != CUDA_SUCCESS && of_stream)
        of_stream->is_invalid = true;
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

void capture_invalidate(struct CUstream_st *s)
{
    struct capture *c;

    if (!atomic_load(&s->capture))
        return;
    pthread_mutex_lock(&capture_lock);
    c = atomic_load(&s->capture);
    if (c)
        c->is_invalid = true;
    pthread_mutex_unlock(&capture_lock);
}

static CUresult capturable(CUstream handle, struct CUstream_st **stream)
{
    struct CUctx_st *c = NULL;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        TRY(current(&c));
    return stream_get(handle, c, stream);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    struct CUstream_st *s;
    struct capture *c;
    CUresult rc = CUDA_SUCCESS;

    TRY(capturable(stream, &s));
    NEED(mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    NEED(!s->is_legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    c = calloc(1, sizeof(*c));
    NEED(c, CUDA_ERROR_OUT_OF_MEMORY);
    c->graph = graph_new();
    if (!c->graph) {
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    c->graph->is_captured = true;
    c->origin = s;
    c->mode = mode;
    c->thread = pthread_self();
    pthread_mutex_lock(&capture_lock);
    if (atomic_load(&s->capture)) {
        rc = CUDA_ERROR_ILLEGAL_STATE;
    } else {
        c->id = ++last_id;
        c->next = captures;
        captures = c;
        atomic_store(&s->capture, c);
        atomic_fetch_add(&open_count, 1);
    }
    pthread_mutex_unlock(&capture_lock);
    if (rc != CUDA_SUCCESS) {
        free(c->graph);
        free(c);
    }
    return rc;
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

/* Takes the capture off the list and off all streams that joined it. */
static void capture_close(struct capture *c)
{
    struct capture **at = &captures;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    atomic_fetch_sub(&open_count, 1);
    pthread_mutex_lock(&driver_lock);
    for (struct CUstream_st *s = c->origin->context->streams; s; s = s->next) {
        if (atomic_load(&s->capture) == c)
            atomic_store(&s->capture, NULL);
    }
    pthread_mutex_unlock(&driver_lock);
    atomic_store(&c->origin->capture, NULL);
}

void capture_abandon(struct CUstream_st *s)
{
    struct capture *c;

    if (!atomic_load(&s->capture))
        return;
    pthread_mutex_lock(&capture_lock);
    c = atomic_load(&s->capture);
    if (c && c->origin == s) {
        capture_close(c);
        graph_drop(c->graph);
    } else if (c) {
        c->is_invalid = true;
    }
    pthread_mutex_unlock(&capture_lock);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    struct CUstream_st *s;
    struct capture *c;
    CUresult rc = CUDA_SUCCESS;

    TRY(capturable(stream, &s));
    NEED(graph, CUDA_ERROR_INVALID_VALUE);
    *graph = NULL;
    pthread_mutex_lock(&capture_lock);
    c = atomic_load(&s->capture);
    if (!c)
        rc = CUDA_ERROR_ILLEGAL_STATE;
    else if (c->origin != s)
        rc = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    else if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        rc = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    else {
        capture_close(c);
        if (c->is_invalid) {
            rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
            graph_drop(c->graph);
        } else {
            c->graph->is_captured = false;
            *graph = c->graph;
        }
        /* The capture itself stays: events that were recorded into it still point to it. */
    }
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    struct CUstream_st *s;
    struct capture *c;

    TRY(capturable(stream, &s));
    NEED(status, CUDA_ERROR_INVALID_VALUE);
    if (s->is_legacy && capture_implicit(s->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    c = atomic_load(&s->capture);
    *status = !c              ? CU_STREAM_CAPTURE_STATUS_NONE
              : c->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                              : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    struct CUstream_st *s;
    struct capture *c;

    TRY(cuStreamIsCapturing(stream, status));
    TRY(capturable(stream, &s));
    c = atomic_load(&s->capture);
    if (id)
        *id = c ? c->id : 0;
    if (graph)
        *graph = c ? c->graph : NULL;
    if (dependencies)
        *dependencies = NULL;
    if (count)
        *count = 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *count)
{
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode old = thread_state.capture_mode;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(mode && *mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    thread_state.capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* Graphs */

static CUresult graph_check(CUgraph graph)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(graph && graph->magic == MAGIC_GRAPH, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult dependencies_check(CUgraph graph, const CUgraphNode *nodes, size_t count)
{
    NEED(!count || nodes, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        NEED(nodes[i] && nodes[i]->magic == MAGIC_NODE && nodes[i]->graph == graph,
             CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(graph && !flags, CUDA_ERROR_INVALID_VALUE);
    *graph = graph_new();
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    TRY(graph_check(graph));
    NEED(!graph->is_captured, CUDA_ERROR_ILLEGAL_STATE);
    graph_drop(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count)
{
    TRY(graph_check(graph));
    NEED(node, CUDA_ERROR_INVALID_VALUE);
    TRY(dependencies_check(graph, dependencies, count));
    *node = node_add(graph, CU_GRAPH_NODE_TYPE_EMPTY);
    return *node ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Fills a kernel's launch from its node parameters. */
static CUresult kernel_params(const CUDA_KERNEL_NODE_PARAMS_v2 *p, struct CUfunc_st **function,
                              struct launch *launch)
{
    const struct launch_shape shape = {.grid = {p->gridDimX, p->gridDimY, p->gridDimZ},
                                       .block = {p->blockDimX, p->blockDimY, p->blockDimZ},
                                       .shared_bytes = p->sharedMemBytes};
    struct CUctx_st *c;

    if (p->ctx) {
        c = p->ctx;
        TRY(context_check(c));
    } else {
        TRY(current(&c));
    }
    TRY(function_of(p->func ? p->func : (CUfunction)p->kern, c, function));
    return launch_prepare(*function, &shape, p->kernelParams, p->extra, launch);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS_v2 *params)
{
    struct CUfunc_st *f;
    struct launch launch;

    TRY(graph_check(graph));
    NEED(node && params, CUDA_ERROR_INVALID_VALUE);
    TRY(dependencies_check(graph, dependencies, count));
    TRY(kernel_params(params, &f, &launch));
    *node = node_add(graph, CU_GRAPH_NODE_TYPE_KERNEL);
    NEED(*node, CUDA_ERROR_OUT_OF_MEMORY);
    (*node)->launch = launch;
    (*node)->function = f;
    (*node)->params = *params;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_KERNEL_NODE_PARAMS_v1 *params)
{
    CUDA_KERNEL_NODE_PARAMS_v2 newer = {0};

    NEED(params, CUDA_ERROR_INVALID_VALUE);
    memcpy(&newer, params, sizeof(*params));
    return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &newer);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS_v1 *p, CUcontext context)
{
    struct copy copy = {.kind = COPY_FILL};
    size_t pitch;

    TRY(graph_check(graph));
    TRY(context_check(context));
    NEED(node && p && (p->elementSize == 1 || p->elementSize == 2 || p->elementSize == 4) &&
             p->width && p->height && p->width <= SIZE_MAX / 8,
         CUDA_ERROR_INVALID_VALUE);
    TRY(dependencies_check(graph, dependencies, count));
    copy.width = p->width * p->elementSize;
    copy.rows = p->height;
    pitch = p->height > 1 ? p->pitch : 0;
    NEED(p->height == 1 || (pitch >= copy.width && p->height - 1 <= SIZE_MAX / 2 / pitch),
         CUDA_ERROR_INVALID_VALUE);
    copy.to_pitch = pitch;
    copy.value = p->value;
    copy.element = p->elementSize;
    copy.to = memory_host(p->dst, (copy.rows - 1) * pitch + copy.width, true);
    NEED(copy.to, CUDA_ERROR_INVALID_VALUE);
    *node = node_add(graph, CU_GRAPH_NODE_TYPE_MEMSET);
    NEED(*node, CUDA_ERROR_OUT_OF_MEMORY);
    (*node)->copy = copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    size_t n = 0;

    TRY(graph_check(graph));
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    if (nodes) {
        for (struct CUgraphNode_st *at = graph->first; at && n < *count; at = at->next)
            nodes[n++] = at;
        for (size_t i = n; i < *count; i++)
            nodes[i] = NULL;
        *count = n;
    } else {
        *count = graph->count;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(node && node->magic == MAGIC_NODE && type, CUDA_ERROR_INVALID_VALUE);
    *type = node->type;
    return CUDA_SUCCESS;
}

/* Executable graphs */

static CUresult instantiate(CUgraphExec *exec, CUgraph graph)
{
    struct CUgraphExec_st *e;
    size_t i = 0;

    TRY(graph_check(graph));
    NEED(exec, CUDA_ERROR_INVALID_VALUE);
    NEED(!graph->is_captured, CUDA_ERROR_ILLEGAL_STATE);
    e = calloc(1, sizeof(*e));
    NEED(e, CUDA_ERROR_OUT_OF_MEMORY);
    e->steps = calloc(graph->count + 1, sizeof(*e->steps));
    if (!e->steps) {
        free(e);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (struct CUgraphNode_st *n = graph->first; n; n = n->next)
        e->steps[i++] = (struct step){n->type, n->launch, n->copy};
    e->count = i;
    e->magic = MAGIC_EXEC;
    *exec = e;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    NEED(!(flags & ~(unsigned long long)(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                         CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)),
         CUDA_ERROR_INVALID_VALUE);
    return instantiate(exec, graph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult rc;

    NEED(params, CUDA_ERROR_INVALID_VALUE);
    rc = instantiate(exec, graph);
    params->hErrNode_out = NULL;
    params->result_out =
        rc == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return rc;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_bytes)
{
    if (error_node)
        *error_node = NULL;
    if (log && log_bytes)
        *log = '\0';
    return instantiate(exec, graph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_bytes)
{
    return cuGraphInstantiate(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(exec && exec->magic == MAGIC_EXEC, CUDA_ERROR_INVALID_VALUE);
    exec->magic = MAGIC_DEAD;
    free(exec->steps);
    exec->steps = NULL;
    exec->count = 0;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    struct CUstream_st *s;

    TRY(capturable(stream, &s));
    NEED(exec && exec->magic == MAGIC_EXEC, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    struct CUstream_st *s;

    TRY(capturable(stream, &s));
    NEED(exec && exec->magic == MAGIC_EXEC, CUDA_ERROR_INVALID_VALUE);
    NEED(!atomic_load(&s->capture), CUDA_ERROR_NOT_SUPPORTED);
    for (size_t i = 0; i < exec->count; i++) {
        const struct step *step = &exec->steps[i];

        if (step->type == CU_GRAPH_NODE_TYPE_KERNEL) {
            TRY(launch_run(&step->launch, s));
        } else if (step->type != CU_GRAPH_NODE_TYPE_EMPTY) {
            copy_run(&step->copy);
            if (step->copy.kind == COPY_HOST)
                TRY(stream_copy(s, copy_duration_ns(&step->copy)));
            else
                TRY(stream_fill(s, copy_duration_ns(&step->copy)));
        }
    }
    return CUDA_SUCCESS;
}
