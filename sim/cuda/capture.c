/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream capture. A capture has a graph, the stream it began on, and every stream that joined it by
 * waiting for an event of it; each of these knows the nodes that its next one will depend on.
 * Under capture_lock, outside which only a stream's or event's capture pointer is read. The capture
 * itself is buried when it has ended: events that were recorded into it still point to it.
 */
#include "cuda/graph.h"

#include <stdlib.h>
#include <string.h>

/* A set of nodes that something depends on. */
struct front {
    CUgraphNode *nodes;
    CUgraphEdgeData *data; /* as many, of the default */
    size_t count;
};

struct member {
    struct member *next;
    struct CUstream_st *stream;
    struct front front;
};

struct mark {
    struct mark *next;
    const struct CUevent_st *event;
    struct front front;
};

struct capture {
    struct CUgraph_st *graph;
    bool is_graph_given;
    struct CUstream_st *origin;
    struct member *members;
    struct mark *marks;
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

/* Fronts */

static void front_free(struct front *f)
{
    free(f->nodes);
    free(f->data);
    *f = (struct front){0};
}

static CUresult front_set(struct front *f, const CUgraphNode *nodes, size_t count)
{
    CUgraphNode *copy = calloc(count + 1, sizeof(CUgraphNode));
    CUgraphEdgeData *data = calloc(count + 1, sizeof(*data));

    if (!copy || !data) {
        free(copy);
        free(data);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (count)
        memcpy(copy, nodes, count * sizeof(CUgraphNode));
    front_free(f);
    f->nodes = copy;
    f->data = data;
    f->count = count;
    return CUDA_SUCCESS;
}

/* Those of both, each once. */
static CUresult front_join(struct front *f, const CUgraphNode *nodes, size_t count)
{
    CUgraphNode *both = calloc(f->count + count + 1, sizeof(CUgraphNode));
    size_t n = f->count;
    CUresult rc;

    NEED(both, CUDA_ERROR_OUT_OF_MEMORY);
    if (n)
        memcpy(both, f->nodes, n * sizeof(CUgraphNode));
    for (size_t i = 0; i < count; i++) {
        size_t k = 0;

        while (k < n && both[k] != nodes[i])
            k++;
        if (k == n)
            both[n++] = nodes[i];
    }
    rc = front_set(f, both, n);
    free(both);
    return rc;
}

static struct member *member_of(const struct capture *c, const struct CUstream_st *s)
{
    struct member *m;

    for (m = c->members; m && m->stream != s; m = m->next)
        ;
    return m;
}

static struct member *member_add(struct capture *c, struct CUstream_st *s)
{
    struct member *m = calloc(1, sizeof(*m));

    if (m) {
        m->stream = s;
        m->next = c->members;
        c->members = m;
    }
    return m;
}

/* Work given to a capturing stream */

/* The stream's place in its capture, under capture_lock; NULL when that is spoilt, or over. */
static struct member *member_open(const struct CUstream_st *s, struct CUgraph_st **graph)
{
    const struct capture *c = atomic_load(&s->capture);

    if (!c || c->is_invalid)
        return NULL;
    *graph = c->graph;
    return member_of(c, s);
}

static CUresult add_locked(struct member *m, struct CUgraph_st *graph, struct node_params *params)
{
    CUgraphNode node;

    TRY(node_add(graph, m->front.nodes, NULL, m->front.count, params, &node));
    return front_set(&m->front, &node, 1);
}

CUresult capture_add(struct CUstream_st *s, struct node_params *params, CUgraphNode *node)
{
    CUresult rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct CUgraph_st *graph;
    struct member *m;

    pthread_mutex_lock(&capture_lock);
    m = member_open(s, &graph);
    if (m)
        rc = add_locked(m, graph, params);
    else
        params_free(params);
    if (rc == CUDA_SUCCESS && node)
        *node = m->front.nodes[0];
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

CUresult capture_alloc(struct CUstream_st *s, const CUmemPoolProps *props, size_t bytes,
                       CUdeviceptr *address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS api = {.poolProps = *props, .bytesize = bytes};
    CUresult rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct node_params params;
    struct CUgraph_st *graph;
    struct member *m;

    pthread_mutex_lock(&capture_lock);
    m = member_open(s, &graph);
    if (m)
        rc = memory_fill_alloc(graph, m->front.nodes, m->front.count, &api, &params);
    if (rc == CUDA_SUCCESS)
        rc = add_locked(m, graph, &params);
    pthread_mutex_unlock(&capture_lock);
    if (rc == CUDA_SUCCESS)
        *address = api.dptr;
    return rc;
}

CUresult capture_free(struct CUstream_st *s, CUdeviceptr address)
{
    CUresult rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct node_params params;
    struct CUgraph_st *graph;
    struct member *m;

    pthread_mutex_lock(&capture_lock);
    m = member_open(s, &graph);
    if (m)
        rc = memory_fill_free(graph, address, &params);
    if (rc == CUDA_SUCCESS)
        rc = add_locked(m, graph, &params);
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

/* Events */

static CUresult mark_event(struct capture *c, const struct front *front,
                           const struct CUevent_st *event)
{
    struct mark *m;

    for (m = c->marks; m && m->event != event; m = m->next)
        ;
    if (!m) {
        m = calloc(1, sizeof(*m));
        NEED(m, CUDA_ERROR_OUT_OF_MEMORY);
        m->event = event;
        m->next = c->marks;
        c->marks = m;
    }
    return front_set(&m->front, front->nodes, front->count);
}

CUresult capture_event_record(struct CUstream_st *s, struct CUevent_st *event, bool is_external)
{
    struct node_params params;
    struct capture *c;
    CUresult rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

    if (is_external) {
        TRY(event_fill(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &params));
        return capture_add(s, &params, NULL);
    }
    pthread_mutex_lock(&capture_lock);
    c = atomic_load(&s->capture);
    if (c && !c->is_invalid) {
        rc = mark_event(c, &member_of(c, s)->front, event);
        if (rc == CUDA_SUCCESS)
            atomic_store(&event->capture, c);
    }
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

/* The stream, which may not capture yet, goes on behind what the event marks. */
static CUresult join(struct capture *c, struct CUstream_st *s, const struct CUevent_st *event)
{
    struct member *m = member_of(c, s);
    const struct mark *mark;

    for (mark = c->marks; mark && mark->event != event; mark = mark->next)
        ;
    NEED(mark, CUDA_ERROR_CAPTURED_EVENT);
    if (!m) {
        m = member_add(c, s);
        NEED(m, CUDA_ERROR_OUT_OF_MEMORY);
        atomic_store(&s->capture, c);
    }
    return front_join(&m->front, mark->front.nodes, mark->front.count);
}

/* A stream that waits for an event of a capture joins that capture. */
CUresult capture_event_wait(struct CUstream_st *s, struct CUevent_st *event, bool is_external)
{
    struct capture *of_stream, *of_event, *c;
    struct node_params params;
    CUresult rc = CUDA_SUCCESS;

    if (is_external && atomic_load(&s->capture)) {
        TRY(event_fill(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &params));
        return capture_add(s, &params, NULL);
    }
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
    else if (of_event && of_event->is_invalid)
        rc = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (of_event)
        rc = join(of_event, s, event);
    if (rc != CUDA_SUCCESS && of_stream)
        of_stream->is_invalid = true;
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

/* What may not be done meanwhile */

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

/* Beginning and ending */

static CUresult capturable(CUstream handle, struct CUstream_st **stream)
{
    struct CUctx_st *c = NULL;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        TRY(current(&c));
    return stream_get(handle, c, stream);
}

/* Off the list and off all streams, which forget what they depended on; the graph is kept, or goes
 * unless the program gave it. */
static void capture_close(struct capture *c, bool is_kept)
{
    struct capture **at = &captures;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    atomic_fetch_sub(&open_count, 1);
    for (struct member *m = c->members, *after; m; m = after) {
        after = m->next;
        atomic_store(&m->stream->capture, NULL);
        front_free(&m->front);
        free(m);
    }
    for (struct mark *m = c->marks, *after; m; m = after) {
        after = m->next;
        front_free(&m->front);
        free(m);
    }
    c->graph->is_captured = false;
    if (!is_kept && !c->is_graph_given)
        graph_drop(c->graph);
    bury(c);
}

static CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                      CUstreamCaptureMode mode)
{
    struct CUstream_st *s;
    struct capture *c;
    CUresult rc = CUDA_SUCCESS;

    TRY(capturable(stream, &s));
    NEED(mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    NEED(!s->is_legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    c = calloc(1, sizeof(*c));
    NEED(c, CUDA_ERROR_OUT_OF_MEMORY);
    c->graph = graph ? graph : graph_new();
    c->is_graph_given = graph != NULL;
    c->origin = s;
    c->mode = mode;
    c->thread = pthread_self();
    if (!c->graph || !member_add(c, s))
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (rc == CUDA_SUCCESS)
        rc = front_set(&c->members->front, dependencies, count);
    pthread_mutex_lock(&capture_lock);
    if (rc == CUDA_SUCCESS && (atomic_load(&s->capture) || c->graph->is_captured))
        rc = CUDA_ERROR_ILLEGAL_STATE;
    if (rc == CUDA_SUCCESS) {
        c->graph->is_captured = true;
        c->id = ++last_id;
        c->next = captures;
        captures = c;
        atomic_store(&s->capture, c);
        atomic_fetch_add(&open_count, 1);
    }
    pthread_mutex_unlock(&capture_lock);
    if (rc != CUDA_SUCCESS) {
        if (c->members)
            front_free(&c->members->front);
        free(c->members);
        if (!graph)
            free(c->graph);
        free(c);
    }
    return rc;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    return begin(stream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCapture(CUstream stream)
{
    return begin(stream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *dependencies, const CUgraphEdgeData *data,
                                     size_t count, CUstreamCaptureMode mode)
{
    (void)data;
    TRY(graph_check(graph));
    TRY(dependencies_check(graph, dependencies, count));
    return begin(stream, graph, dependencies, count, mode);
}

void capture_abandon(struct CUstream_st *s)
{
    struct capture *c;

    if (!atomic_load(&s->capture))
        return;
    pthread_mutex_lock(&capture_lock);
    c = atomic_load(&s->capture);
    if (c && c->origin == s) {
        capture_close(c, false);
    } else if (c) {
        struct member **at = &c->members, *m;

        while (*at && (*at)->stream != s)
            at = &(*at)->next;
        if ((m = *at)) {
            *at = m->next;
            front_free(&m->front);
            free(m);
        }
        atomic_store(&s->capture, NULL);
        c->is_invalid = true;
    }
    pthread_mutex_unlock(&capture_lock);
}

/* Marks (position 1) the nodes that lead to a front. */
static CUresult mark_before(struct CUgraph_st *g, const struct front *front)
{
    CUgraphNode *stack = calloc(g->count + 1, sizeof(CUgraphNode));
    size_t depth = 0;

    NEED(stack, CUDA_ERROR_OUT_OF_MEMORY);
    for (struct CUgraphNode_st *n = g->first; n; n = n->next)
        n->position = 0;
    for (size_t i = 0; i < front->count; i++) {
        if (!front->nodes[i]->position) {
            front->nodes[i]->position = 1;
            stack[depth++] = front->nodes[i];
        }
    }
    while (depth) {
        const struct CUgraphNode_st *n = stack[--depth];

        for (size_t i = 0; i < g->edge_count; i++) {
            struct CUgraphNode_st *before = g->edges[i].from;

            if (g->edges[i].to == n && !before->position) {
                before->position = 1;
                stack[depth++] = before;
            }
        }
    }
    free(stack);
    return CUDA_SUCCESS;
}

/* Whether everything that other streams captured has come back to the first one. */
static CUresult joined(const struct capture *c)
{
    if (!c->members->next)
        return CUDA_SUCCESS;
    TRY(mark_before(c->graph, &member_of(c, c->origin)->front));
    for (const struct member *m = c->members; m; m = m->next) {
        for (size_t i = 0; i < m->front.count; i++)
            NEED(m->front.nodes[i]->position, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    return CUDA_SUCCESS;
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
        rc = c->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : joined(c);
        if (rc == CUDA_SUCCESS)
            *graph = c->graph;
        capture_close(c, rc == CUDA_SUCCESS);
    }
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

/* Asking */

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

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **data, size_t *count)
{
    const struct member *m = NULL;
    struct CUstream_st *s;
    struct capture *c;

    TRY(cuStreamIsCapturing(stream, status));
    TRY(capturable(stream, &s));
    pthread_mutex_lock(&capture_lock);
    c = atomic_load(&s->capture);
    if (c && !c->is_invalid)
        m = member_of(c, s);
    if (id)
        *id = c ? c->id : 0;
    if (graph)
        *graph = m ? c->graph : NULL;
    if (dependencies)
        *dependencies = m ? m->front.nodes : NULL;
    if (data)
        *data = m ? m->front.data : NULL;
    if (count)
        *count = m ? m->front.count : 0;
    pthread_mutex_unlock(&capture_lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, NULL, count);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes,
                                              const CUgraphEdgeData *data, size_t count,
                                              unsigned int flags)
{
    struct CUstream_st *s;
    struct capture *c;
    CUresult rc;

    (void)data;
    TRY(capturable(stream, &s));
    NEED(flags <= CU_STREAM_SET_CAPTURE_DEPENDENCIES, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&capture_lock);
    c = atomic_load(&s->capture);
    rc = !c              ? CUDA_ERROR_ILLEGAL_STATE
         : c->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                         : dependencies_check(c->graph, nodes, count);
    if (rc == CUDA_SUCCESS) {
        struct front *front = &member_of(c, s)->front;

        rc = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? front_set(front, nodes, count)
                                                         : front_join(front, nodes, count);
    }
    pthread_mutex_unlock(&capture_lock);
    return rc;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count,
                                           unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_v2(stream, nodes, NULL, count, flags);
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
