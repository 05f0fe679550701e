/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Executable graphs. Steps that wait for each other in a chain share a lane; the first lane is the
 * stream that a launch goes to, others are streams of the graph's own, so that what the edges leave
 * free runs side by side. A launch gives every step to its lane at once; when each happens is the
 * device model's to say.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/callback.h"
#include "cuda/graph.h"

#define LANES_MAX 16u

CUresult exec_check(CUgraphExec exec)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    return exec && exec->magic == MAGIC_EXEC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Steps */

struct flat {
    struct step *steps;
    size_t count, room;
};

void steps_free(struct step *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        params_free(&steps[i].params);
        conditional_put(steps[i].conditional);
        free(steps[i].after);
    }
    free(steps);
}

/* A step at the end; takes over `after`, and the parameters. */
static CUresult step_add(struct flat *f, struct CUgraphNode_st *source, struct node_params *params,
                         size_t *after, size_t after_count)
{
    if (f->count == f->room) {
        size_t room = f->room ? f->room * 2 : 16;
        struct step *more = realloc(f->steps, room * sizeof(*more));

        if (!more) {
            params_free(params);
            free(after);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        f->steps = more;
        f->room = room;
    }
    f->steps[f->count++] = (struct step){
        .source = source, .params = *params, .after = after, .after_count = after_count};
    return CUDA_SUCCESS;
}

/* A graph's edges by their ends, nodes by their position. */
struct order {
    struct CUgraphNode_st **nodes; /* in an order the edges allow */
    size_t *in_start, *in;         /* positions before a node */
    size_t *out_degree;
    size_t *step; /* of a node */
};

static void order_free(struct order *o)
{
    free(o->nodes);
    free(o->in_start);
    free(o->in);
    free(o->out_degree);
    free(o->step);
}

static CUresult order_make(struct CUgraph_st *g, struct order *o, CUgraphNode *error)
{
    size_t n = 0, done = 0, ready = 0, *left, *out_start, *out;

    memset(o, 0, sizeof(*o));
    for (struct CUgraphNode_st *node = g->first; node; node = node->next)
        node->position = n++;
    o->nodes = calloc(n + 1, sizeof(struct CUgraphNode_st *));
    o->in_start = calloc(n + 2, sizeof(size_t));
    o->in = calloc(g->edge_count + 1, sizeof(size_t));
    o->out_degree = calloc(n + 1, sizeof(size_t));
    o->step = calloc(n + 1, sizeof(size_t));
    left = calloc(n + 1, sizeof(size_t));
    out_start = calloc(n + 2, sizeof(size_t));
    out = calloc(g->edge_count + 1, sizeof(size_t));
    if (!o->nodes || !o->in_start || !o->in || !o->out_degree || !o->step || !left || !out_start ||
        !out) {
        free(left);
        free(out_start);
        free(out);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < g->edge_count; i++) {
        o->in_start[g->edges[i].to->position + 1]++;
        out_start[g->edges[i].from->position + 1]++;
    }
    for (size_t i = 0; i < n; i++) {
        left[i] = o->in_start[i + 1];
        o->out_degree[i] = out_start[i + 1];
        o->in_start[i + 1] += o->in_start[i];
        out_start[i + 1] += out_start[i];
    }
    for (size_t i = g->edge_count; i-- > 0;) { /* from the back: starts are where ends were */
        const struct edge *e = &g->edges[i];

        o->in[--o->in_start[e->to->position + 1]] = e->from->position;
        out[--out_start[e->from->position + 1]] = e->to->position;
    }
    /* Now a node's own start stands one place further on: put it back. */
    memmove(o->in_start, o->in_start + 1, n * sizeof(size_t));
    o->in_start[n] = g->edge_count;
    memmove(out_start, out_start + 1, n * sizeof(size_t));
    out_start[n] = g->edge_count;
    {
        struct CUgraphNode_st **by_position = calloc(n + 1, sizeof(struct CUgraphNode_st *));

        for (struct CUgraphNode_st *node = by_position ? g->first : NULL; node; node = node->next) {
            by_position[node->position] = node;
            if (!left[node->position])
                o->nodes[ready++] = node;
        }
        while (done < ready) {
            size_t at = o->nodes[done++]->position;

            for (size_t i = out_start[at]; i < out_start[at + 1]; i++) {
                if (--left[out[i]] == 0)
                    o->nodes[ready++] = by_position[out[i]];
            }
        }
        for (size_t i = 0; by_position && ready < n && i < n; i++) {
            if (left[i] && error)
                *error = by_position[i];
        }
        done = by_position ? ready : n + 1;
        free(by_position);
    }
    free(left);
    free(out_start);
    free(out);
    return done == n  ? CUDA_SUCCESS
           : done > n ? CUDA_ERROR_OUT_OF_MEMORY
                      : CUDA_ERROR_INVALID_VALUE;
}

/* The steps a node waits for: those of the nodes before it, or what the whole graph waits for. */
static CUresult waits_of(const struct order *o, const struct CUgraphNode_st *n,
                         const size_t *before, size_t before_count, size_t **after, size_t *count)
{
    size_t from = o->in_start[n->position], own = o->in_start[n->position + 1] - from;

    *count = own ? own : before_count;
    *after = calloc(*count + 1, sizeof(size_t));
    NEED(*after, CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; i < *count; i++)
        (*after)[i] = own ? o->step[o->in[from + i]] : before[i];
    return CUDA_SUCCESS;
}

/* Appends the graph's steps, the first ones after `before`; *leaves are the last ones (the
 * caller's to free). */
static CUresult flatten(struct CUgraph_st *g, const size_t *before, size_t before_count,
                        struct flat *f, size_t **leaves, size_t *leaf_count, CUgraphNode *error)
{
    struct order o;
    CUresult rc = order_make(g, &o, error);

    *leaf_count = 0;
    *leaves = calloc(g->count + 1, sizeof(size_t));
    if (rc == CUDA_SUCCESS && !*leaves)
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; rc == CUDA_SUCCESS && i < g->count; i++) {
        struct CUgraphNode_st *n = o.nodes[i];
        struct node_params params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
        size_t *after, count, begun = f->count;

        rc = waits_of(&o, n, before, before_count, &after, &count);
        if (rc == CUDA_SUCCESS && n->params.type == CU_GRAPH_NODE_TYPE_GRAPH) {
            size_t *inner, inner_count;

            rc = flatten(n->params.child, after, count, f, &inner, &inner_count, error);
            if (inner_count) { /* an empty step joins what the child ends with */
                free(after);
                after = inner;
                count = inner_count;
            } else {
                free(inner);
            }
        } else if (rc == CUDA_SUCCESS) {
            rc = params_copy(&n->params, &params);
        }
        if (rc != CUDA_SUCCESS) {
            free(after);
            break;
        }
        rc = step_add(f, n, &params, after, count);
        if (rc == CUDA_SUCCESS)
            f->steps[f->count - 1].inner = f->count - 1 - begun;
        o.step[n->position] = f->count - 1;
        if (rc == CUDA_SUCCESS && !o.out_degree[n->position])
            (*leaves)[(*leaf_count)++] = f->count - 1;
    }
    order_free(&o);
    return rc;
}

CUresult steps_make(struct CUgraph_st *graph, struct step **steps, size_t *count,
                    CUgraphNode *error)
{
    struct flat f = {0};
    size_t *leaves, leaf_count;
    CUresult rc = flatten(graph, NULL, 0, &f, &leaves, &leaf_count, error);

    free(leaves);
    if (rc != CUDA_SUCCESS) {
        steps_free(f.steps, f.count);
        return rc;
    }
    *steps = f.steps;
    *count = f.count;
    return CUDA_SUCCESS;
}

/* A step follows the first step it waits for, when nothing else does yet. */
static CUresult lanes_assign(struct CUgraphExec_st *e)
{
    size_t tail[LANES_MAX];

    e->lanes = 0;
    for (size_t i = 0; i < e->count; i++) {
        struct step *s = &e->steps[i];
        size_t lane = LANES_MAX;

        for (size_t k = 0; k < s->after_count && lane == LANES_MAX; k++) {
            if (tail[e->steps[s->after[k]].lane] == s->after[k])
                lane = e->steps[s->after[k]].lane;
        }
        if (lane == LANES_MAX)
            lane = e->lanes < LANES_MAX ? e->lanes++ : i % LANES_MAX;
        s->lane = lane;
        tail[lane] = i;
    }
    if (!e->lanes)
        e->lanes = 1;
    e->streams = calloc(e->lanes, sizeof(CUstream));
    return e->streams ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Making */

/* What the body of a conditional node may do. */
static bool is_for_body(CUgraphNodeType type)
{
    return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           type == CU_GRAPH_NODE_TYPE_MEMSET || type == CU_GRAPH_NODE_TYPE_EMPTY ||
           type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

/* Steps that need more than their parameters. */
static CUresult steps_complete(struct CUgraphExec_st *e, const struct CUgraph_st *graph,
                               CUgraphNode *error, CUgraphInstantiateResult *result)
{
    for (size_t i = 0; i < e->count; i++) {
        struct step *s = &e->steps[i];

        if (graph->is_body && !is_for_body(s->params.type)) {
            *error = s->source;
            *result = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        if (s->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            TRY(conditional_make(&s->params, &s->conditional, error, result));
    }
    return CUDA_SUCCESS;
}

CUresult exec_make(CUgraphExec *exec, CUgraph graph, unsigned long long flags, CUgraphNode *error,
                   CUgraphInstantiateResult *result)
{
    struct CUgraphExec_st *e;
    CUresult rc;

    *result = CUDA_GRAPH_INSTANTIATE_ERROR;
    TRY(graph_check(graph));
    NEED(exec, CUDA_ERROR_INVALID_VALUE);
    NEED(!(flags & ~15ull), CUDA_ERROR_INVALID_VALUE);
    NEED(!graph->is_captured, CUDA_ERROR_ILLEGAL_STATE);
    NEED(!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
    if (graph->has_conditions && conditions_unused(graph->id)) {
        *result = CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
        return CUDA_ERROR_INVALID_VALUE;
    }
    e = calloc(1, sizeof(*e));
    NEED(e, CUDA_ERROR_OUT_OF_MEMORY);
    rc = steps_make(graph, &e->steps, &e->count, error);
    if (rc == CUDA_ERROR_INVALID_VALUE)
        *result = CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    if (rc == CUDA_SUCCESS)
        rc = steps_complete(e, graph, error, result);
    if (rc == CUDA_SUCCESS)
        rc = lanes_assign(e);
    if (rc == CUDA_SUCCESS)
        rc = memory_instantiate(e);
    if (rc == CUDA_SUCCESS)
        rc = users_copy(graph->users, graph->user_count, &e->users);
    if (rc != CUDA_SUCCESS) {
        if (*result == CUDA_GRAPH_INSTANTIATE_SUCCESS) /* of a body */
            *result = CUDA_GRAPH_INSTANTIATE_ERROR;
        memory_deinstantiate(e);
        steps_free(e->steps, e->steps ? e->count : 0);
        free(e->streams);
        free(e);
        return rc;
    }
    e->user_count = graph->user_count;
    e->flags = flags;
    e->magic = MAGIC_EXEC;
    *exec = e;
    *result = CUDA_GRAPH_INSTANTIATE_SUCCESS;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    CUgraphInstantiateResult result;
    CUgraphNode error;

    NEED(!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD), CUDA_ERROR_INVALID_VALUE);
    return exec_make(exec, graph, flags, &error, &result);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(params, CUDA_ERROR_INVALID_VALUE);
    params->hErrNode_out = NULL;
    TRY(exec_make(exec, graph, params->flags, &params->hErrNode_out, &params->result_out));
    return params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD
               ? cuGraphUpload(*exec, params->hUploadStream)
               : CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                            size_t log_bytes)
{
    CUgraphInstantiateResult result;
    CUgraphNode error = NULL;
    CUresult rc = exec_make(exec, graph, 0, &error, &result);

    if (error_node)
        *error_node = error;
    if (log && log_bytes)
        *log = '\0';
    return rc;
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                               size_t log_bytes)
{
    return cuGraphInstantiate(exec, graph, error_node, log, log_bytes);
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    TRY(exec_check(exec));
    NEED(flags, CUDA_ERROR_INVALID_VALUE);
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

static void streams_drop(struct CUgraphExec_st *e)
{
    for (size_t i = 1; i < e->lanes; i++) {
        if (e->streams[i] && e->streams[i]->magic == MAGIC_STREAM)
            cuStreamDestroy_v2(e->streams[i]);
        e->streams[i] = NULL;
    }
    e->streams_of = NULL;
}

/* What was launched goes on to its end. */
CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    TRY(exec_check(exec));
    exec->magic = MAGIC_DEAD;
    streams_drop(exec);
    memory_deinstantiate(exec);
    steps_free(exec->steps, exec->count);
    users_free(exec->users, exec->user_count);
    free(exec->streams);
    exec->steps = NULL;
    exec->users = NULL;
    exec->streams = NULL;
    exec->count = exec->user_count = 0;
    bury(exec);
    return CUDA_SUCCESS;
}

/* Launching */

static CUresult stream_meant(CUstream handle, struct CUstream_st **stream)
{
    struct CUctx_st *c = NULL;

    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        TRY(current(&c));
    return stream_get(handle, c, stream);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    struct CUstream_st *s;

    TRY(exec_check(exec));
    TRY(stream_meant(stream, &s));
    TRY(memory_start(exec, s, false));
    memory_started(exec, s);
    return CUDA_SUCCESS;
}

static CUresult run_memset(const CUDA_MEMSET_NODE_PARAMS_v2 *p, CUstream lane)
{
    size_t pitch = p->height > 1 ? p->pitch : p->width * p->elementSize;

    if (p->elementSize == 1)
        return cuMemsetD2D8Async(p->dst, pitch, (unsigned char)p->value, p->width, p->height, lane);
    if (p->elementSize == 2)
        return cuMemsetD2D16Async(p->dst, pitch, (unsigned short)p->value, p->width, p->height,
                                  lane);
    return cuMemsetD2D32Async(p->dst, pitch, p->value, p->width, p->height, lane);
}

static CUresult run_step(struct step *step, CUstream lane)
{
    struct node_params *p = &step->params;
    struct copy copy;

    switch (p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return launch_run(&p->kernel.launch, lane);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        TRY(copy_describe(&p->memcpy.copy, &copy));
        return copy_submit(&copy, lane, true);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return run_memset(&p->memset, lane);
    case CU_GRAPH_NODE_TYPE_HOST:
        return callback_push(lane, p->host.fn, p->host.userData);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuEventRecord(p->event, lane);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuStreamWaitEvent(lane, p->event, 0);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return memops_push(lane, p->memop.count, p->memop.ops);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return semaphore_run(p, lane);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return conditional_run(step->conditional, lane);
    default:
        return CUDA_SUCCESS;
    }
}

static CUresult open_lanes(struct CUgraphExec_st *e, struct CUctx_st *context)
{
    if (e->streams_of == context && (e->lanes == 1 || e->streams[1]->magic == MAGIC_STREAM))
        return CUDA_SUCCESS;
    streams_drop(e);
    for (size_t i = 1; i < e->lanes; i++)
        TRY(cuStreamCreate(&e->streams[i], CU_STREAM_NON_BLOCKING));
    e->streams_of = context;
    return CUDA_SUCCESS;
}

/* Behind all that the stream was given so far. */
static CUresult follow(struct CUstream_st *stream, const struct CUstream_st *other)
{
    uint32_t index = atomic_load(&other->index);

    return index == STREAM_UNUSED || stream == other
               ? CUDA_SUCCESS
               : stream_depend(stream, index, atomic_load(&other->pushed));
}

static CUresult run_steps(struct CUgraphExec_st *e)
{
    for (size_t i = 0; i < e->count; i++) {
        struct step *step = &e->steps[i];
        struct CUstream_st *lane = e->streams[step->lane];

        for (size_t k = 0; k < step->after_count; k++) {
            const struct step *before = &e->steps[step->after[k]];

            if (before->lane != step->lane && before->index != STREAM_UNUSED)
                TRY(stream_depend(lane, before->index, before->number));
        }
        if (!step->is_disabled)
            TRY(run_step(step, lane));
        step->index = atomic_load(&lane->index);
        step->number = atomic_load(&lane->pushed);
    }
    return CUDA_SUCCESS;
}

static CUresult run(struct CUgraphExec_st *e, struct CUstream_st *s)
{
    e->streams[0] = s;
    if (e->last_number)
        TRY(stream_depend(s, e->last_index, e->last_number)); /* launches of one graph in a row */
    for (size_t i = 0; i < e->count; i++) {
        if (e->steps[i].conditional)
            TRY(conditional_begin(e->steps[i].conditional, s));
    }
    if (e->lanes > 1)
        TRY(stream_mark(s)); /* for the others to start behind */
    for (size_t i = 1; i < e->lanes; i++)
        TRY(follow(e->streams[i], s));
    TRY(run_steps(e));
    for (size_t i = 1; i < e->lanes; i++)
        TRY(follow(s, e->streams[i]));
    e->last_index = atomic_load(&s->index);
    e->last_number = atomic_load(&s->pushed);
    return CUDA_SUCCESS;
}

CUresult exec_run(struct CUgraphExec_st *e, struct CUstream_st *s)
{
    CUresult rc;

    TRY(open_lanes(e, s->context));
    TRY(memory_start(e, s, true));
    rc = run(e, s);
    memory_started(e, s);
    return rc;
}

/* The steps as a graph again, for a capture that launches it: the child's. */
static CUresult graph_of(const struct CUgraphExec_st *e, struct CUgraph_st **graph)
{
    struct CUgraphNode_st **nodes = calloc(e->count + 1, sizeof(struct CUgraphNode_st *));
    struct CUgraph_st *g = graph_new();
    CUresult rc = nodes && g ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    for (size_t i = 0; rc == CUDA_SUCCESS && i < e->count; i++) {
        const struct step *s = &e->steps[i];
        struct node_params params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};

        if (!s->is_disabled)
            rc = params_copy(&s->params, &params);
        if (rc == CUDA_SUCCESS)
            rc = node_add(g, NULL, NULL, 0, &params, &nodes[i]);
        for (size_t k = 0; rc == CUDA_SUCCESS && k < s->after_count; k++)
            rc = edge_add(g, nodes[s->after[k]], nodes[i], NULL);
    }
    free(nodes);
    if (rc != CUDA_SUCCESS && g)
        graph_drop(g);
    if (rc == CUDA_SUCCESS)
        *graph = g;
    return rc;
}

static CUresult launch_captured(struct CUgraphExec_st *e, struct CUstream_st *s)
{
    struct CUgraph_st *g;
    CUresult rc;

    TRY(graph_of(e, &g));
    rc = capture_child(s, g);
    graph_drop(g);
    return rc;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    struct CUstream_st *s;
    CUresult rc;

    TRY(exec_check(exec));
    TRY(stream_meant(stream, &s));
    if (atomic_load(&s->capture))
        return launch_captured(exec, s);
    if (s->is_legacy && capture_implicit(s->context))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    TRY(cuCtxPushCurrent_v2(s->context));
    rc = exec_run(exec, s);
    cuCtxPopCurrent_v2(NULL);
    return rc;
}
