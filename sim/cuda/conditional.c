/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditional nodes: values behind handles, which kernels set, and bodies that run by them. What a
 * node does is known only when its turn has come: then a thread of the driver's (callback.h)
 * launches the body on a stream of the node's own, waits for its end, and looks again if the node
 * is a loop; so long the node's stream waits. A loop whose value nobody sets to 0 goes on until its
 * process ends, as on a card.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/callback.h"
#include "cuda/graph.h"

#define BODIES_MAX 64u

/* A value. Its graph refers to it, and executable graphs whose nodes go by it. */
struct condition {
    struct condition *next;
    CUgraphConditionalHandle handle;
    uint64_t graph;
    unsigned int references;
    unsigned int initial;
    bool is_initialised; /* at each launch */
    bool has_node;
    _Atomic unsigned int value;
};

/* A node of an executable graph: that and what is in a stream refer to it. */
struct conditional {
    _Atomic unsigned int references;
    struct condition *condition;
    CUgraphConditionalNodeType type;
    unsigned int count;
    CUgraphExec *bodies;
    struct CUstream_st *stream;
    struct CUctx_st *context; /* of the stream */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct condition *conditions;

/* Values */

static struct condition *find(CUgraphConditionalHandle handle)
{
    struct condition *c;

    for (c = conditions; c && c->handle != handle; c = c->next)
        ;
    return c;
}

/* Under the lock. */
static void put(struct condition *c)
{
    struct condition **at = &conditions;

    if (--c->references)
        return;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    free(c);
}

void condition_set(CUgraphConditionalHandle handle, unsigned int value)
{
    struct condition *c;

    pthread_mutex_lock(&lock);
    c = find(handle);
    if (c)
        atomic_store(&c->value, value);
    pthread_mutex_unlock(&lock);
}

void conditions_drop(uint64_t graph)
{
    pthread_mutex_lock(&lock);
    for (struct condition *c = conditions, *after; c; c = after) {
        after = c->next;
        if (c->graph == graph) {
            c->graph = 0;
            put(c);
        }
    }
    pthread_mutex_unlock(&lock);
}

bool conditions_unused(uint64_t graph)
{
    bool is_unused = false;

    pthread_mutex_lock(&lock);
    for (struct condition *c = conditions; c; c = c->next)
        is_unused |= c->graph == graph && !c->has_node;
    pthread_mutex_unlock(&lock);
    return is_unused;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph,
                                        CUcontext context, unsigned int value, unsigned int flags)
{
    static CUgraphConditionalHandle last;
    struct condition *made;
    struct CUctx_st *c;

    TRY(graph_check(graph));
    TRY(context ? context_check(context) : current(&c));
    NEED(handle && flags <= 1, CUDA_ERROR_INVALID_VALUE);
    made = calloc(1, sizeof(*made));
    NEED(made, CUDA_ERROR_OUT_OF_MEMORY);
    made->graph = graph->id;
    made->references = 1;
    made->initial = value;
    made->is_initialised = flags;
    graph->has_conditions = true;
    pthread_mutex_lock(&lock);
    made->handle = *handle = ++last;
    made->next = conditions;
    conditions = made;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Nodes */

/* Drivers before 12.8 know one body, to run once or over and over. */
static bool is_shape_known(const CUDA_CONDITIONAL_NODE_PARAMS *api)
{
    if (driver_profile < SIM_PROFILE_13_0)
        return api->type <= CU_GRAPH_COND_TYPE_WHILE && api->size == 1;
    return api->size <= (api->type == CU_GRAPH_COND_TYPE_SWITCH ? BODIES_MAX
                         : api->type == CU_GRAPH_COND_TYPE_IF   ? 2
                                                                : 1);
}

CUresult conditional_fill(struct CUgraph_st *graph, CUDA_CONDITIONAL_NODE_PARAMS *api,
                          struct node_params *params)
{
    CUgraph *bodies;
    struct condition *c;

    NEED((unsigned int)api->type <= CU_GRAPH_COND_TYPE_SWITCH && api->size && is_shape_known(api),
         CUDA_ERROR_INVALID_VALUE);
    bodies = calloc(api->size, sizeof(CUgraph));
    NEED(bodies, CUDA_ERROR_OUT_OF_MEMORY);
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params->conditional.api = *api;
    params->conditional.api.phGraph_out = bodies;
    params->conditional.is_owner = true;
    for (unsigned int i = 0; i < api->size; i++) {
        bodies[i] = graph_new();
        if (!bodies[i]) {
            params_free(params);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        bodies[i]->is_owned = bodies[i]->is_body = true;
    }
    pthread_mutex_lock(&lock);
    c = find(api->handle);
    if (c && (c->graph != graph->id || c->has_node))
        c = NULL; /* a handle is for one node of its graph */
    if (c)
        c->has_node = true;
    pthread_mutex_unlock(&lock);
    if (!c) {
        params_free(params);
        return CUDA_ERROR_INVALID_VALUE;
    }
    api->phGraph_out = bodies; /* the node's: it outlives the call */
    return CUDA_SUCCESS;
}

void conditional_free(struct node_params *params)
{
    struct conditional_node *n = &params->conditional;

    for (unsigned int i = 0; n->is_owner && i < n->api.size; i++) {
        if (n->api.phGraph_out[i])
            graph_drop(n->api.phGraph_out[i]);
    }
    if (n->is_owner)
        free(n->api.phGraph_out);
}

/* Executable graphs */

void conditional_put(struct conditional *c)
{
    if (!c || atomic_fetch_sub(&c->references, 1) != 1)
        return;
    for (unsigned int i = 0; i < c->count; i++) {
        if (c->bodies[i])
            cuGraphExecDestroy(c->bodies[i]);
    }
    if (c->stream && c->stream->magic == MAGIC_STREAM)
        cuStreamDestroy_v2(c->stream);
    pthread_mutex_lock(&lock);
    put(c->condition);
    pthread_mutex_unlock(&lock);
    free(c->bodies);
    free(c);
}

CUresult conditional_make(const struct node_params *params, struct conditional **out,
                          CUgraphNode *error, CUgraphInstantiateResult *result)
{
    const CUDA_CONDITIONAL_NODE_PARAMS *api = &params->conditional.api;
    struct conditional *c = calloc(1, sizeof(*c));
    CUresult rc = CUDA_SUCCESS;

    if (c)
        c->bodies = calloc(api->size, sizeof(CUgraphExec));
    if (!c || !c->bodies) {
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    c->references = 1;
    c->type = api->type;
    c->count = api->size;
    pthread_mutex_lock(&lock);
    c->condition = find(api->handle);
    c->condition->references++;
    pthread_mutex_unlock(&lock);
    for (unsigned int i = 0; rc == CUDA_SUCCESS && i < c->count; i++)
        rc = exec_make(&c->bodies[i], api->phGraph_out[i], 0, error, result);
    if (rc != CUDA_SUCCESS) {
        conditional_put(c);
        return rc;
    }
    *out = c;
    return CUDA_SUCCESS;
}

static bool run_body(struct conditional *c, unsigned int which)
{
    return exec_run(c->bodies[which], c->stream) == CUDA_SUCCESS &&
           stream_wait(c->stream) == CUDA_SUCCESS;
}

/* On a thread of the driver's, when the node's turn has come. */
static void run(void *what)
{
    struct conditional *c = *(struct conditional **)what;
    unsigned int value = atomic_load(&c->condition->value);

    if (cuCtxPushCurrent_v2(c->context) == CUDA_SUCCESS) {
        if (c->type == CU_GRAPH_COND_TYPE_WHILE) {
            while (atomic_load(&c->condition->value) && run_body(c, 0))
                ;
        } else if (c->type == CU_GRAPH_COND_TYPE_SWITCH) {
            if (value < c->count)
                run_body(c, value);
        } else if (value || c->count == 2) {
            run_body(c, value ? 0 : 1);
        }
        cuCtxPopCurrent_v2(NULL);
    }
    conditional_put(c);
}

static void initialise(void *what)
{
    struct conditional *c = *(struct conditional **)what;

    atomic_store(&c->condition->value, c->condition->initial);
    conditional_put(c);
}

static CUresult push(struct conditional *c, CUstream stream, bool is_running)
{
    CUresult rc;

    atomic_fetch_add(&c->references, 1);
    rc = is_running ? effect_queue(stream, run, &c, sizeof(c))
                    : effect_push(stream, initialise, &c, sizeof(c));
    if (rc != CUDA_SUCCESS)
        conditional_put(c);
    return rc;
}

CUresult conditional_begin(struct conditional *c, CUstream stream)
{
    return c->condition->is_initialised ? push(c, stream, false) : CUDA_SUCCESS;
}

CUresult conditional_run(struct conditional *c, CUstream stream)
{
    if (!c->stream || c->context != stream->context || c->stream->magic != MAGIC_STREAM) {
        if (c->stream && c->stream->magic == MAGIC_STREAM)
            TRY(cuStreamDestroy_v2(c->stream));
        c->stream = NULL;
        TRY(cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING));
        c->context = stream->context;
    }
    return push(c, stream, true);
}
