/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory nodes: which piece each has (graph_memory.h), and what a launch makes of them. A piece's
 * address is taken when its node is added; one that the graph has freed before serves again.
 */
#include "cuda/graph_memory.h"

#include <stdlib.h>
#include <string.h>

static bool is_memory(const struct node_params *p)
{
    return p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || p->type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

static struct graph_memory *around(CUdeviceptr address)
{
    struct graph_block *b = block_around(address);
    struct graph_memory *m;

    for (m = b ? b->pieces : NULL; m && address - m->address >= m->bytes; m = m->next)
        ;
    return m;
}

static struct graph_memory *find(CUdeviceptr address)
{
    struct graph_memory *m = around(address);

    return m && m->address == address ? m : NULL;
}

/* It goes when neither a node nor the program has it. */
static void forget(struct graph_memory *m)
{
    struct graph_memory **at = &m->block->pieces;

    if (m->references || m->is_live)
        return;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    block_settle(m->block);
    free(m);
}

/* Nodes */

/* Sets `position` to 1 in the dependencies and all nodes before them, to 0 in others. */
static void mark_before(struct CUgraph_st *g, const CUgraphNode *dependencies, size_t count)
{
    bool is_more = true;

    for (struct CUgraphNode_st *n = g->first; n; n = n->next)
        n->position = 0;
    for (size_t i = 0; i < count; i++)
        dependencies[i]->position = 1;
    while (is_more) { /* edges to later nodes stand behind those to earlier ones, mostly */
        is_more = false;
        for (size_t i = g->edge_count; i-- > 0;) {
            if (g->edges[i].to->position && !g->edges[i].from->position) {
                g->edges[i].from->position = 1;
                is_more = true;
            }
        }
    }
}

/* Whether a node after the graph's node n has the piece of n. */
static bool is_used_after(const struct CUgraphNode_st *n)
{
    const struct graph_memory *m = n->params.alloc.memory;

    for (n = n->next; n; n = n->next) {
        if (is_memory(&n->params) && n->params.alloc.memory == m)
            return true;
    }
    return false;
}

/* A piece of that graph which is free again where the new node stands: its addresses serve two. */
static struct graph_memory *reusable(struct CUgraph_st *g, const CUgraphNode *dependencies,
                                     size_t count, const struct device *d, uint64_t bytes)
{
    bool is_marked = false;

    for (struct CUgraphNode_st *n = g->last; n && count; n = n->previous) {
        struct graph_memory *m = n->params.alloc.memory;

        if (n->params.type != CU_GRAPH_NODE_TYPE_MEM_FREE || m->block->graph != g->id ||
            m->bytes != bytes || block_device(m->block) != d || is_used_after(n))
            continue;
        if (!is_marked)
            mark_before(g, dependencies, count);
        is_marked = true;
        if (n->position)
            return m;
    }
    return NULL;
}

static CUresult piece_new(struct device *d, uint64_t graph, uint64_t bytes,
                          struct graph_memory **piece)
{
    struct graph_memory *m = calloc(1, sizeof(*m));
    CUresult rc;

    NEED(m, CUDA_ERROR_OUT_OF_MEMORY);
    rc = block_take(d, graph, bytes, &m->block, &m->address);
    if (rc != CUDA_SUCCESS) {
        free(m);
        return rc;
    }
    m->bytes = bytes;
    m->next = m->block->pieces;
    m->block->pieces = m;
    *piece = m;
    return CUDA_SUCCESS;
}

CUresult memory_fill_alloc(struct CUgraph_st *graph, const CUgraphNode *dependencies, size_t count,
                           CUDA_MEM_ALLOC_NODE_PARAMS *api, struct node_params *params)
{
    struct graph_memory *m;
    struct device *d;
    CUresult rc = CUDA_SUCCESS;

    NEED(api && api->bytesize && (!api->accessDescCount || api->accessDescs),
         CUDA_ERROR_INVALID_VALUE);
    NEED(api->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
             api->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
             !api->poolProps.handleTypes,
         CUDA_ERROR_INVALID_VALUE);
    TRY(device_get(api->poolProps.location.id, &d));
    pthread_mutex_lock(&graph_lock);
    m = reusable(graph, dependencies, count, d, api->bytesize);
    if (!m)
        rc = piece_new(d, graph->id, api->bytesize, &m);
    if (rc == CUDA_SUCCESS)
        m->references++;
    pthread_mutex_unlock(&graph_lock);
    TRY(rc);
    api->dptr = m->address;
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    params->alloc.api = *api;
    params->alloc.api.accessDescs = NULL;
    params->alloc.api.accessDescCount = 0;
    params->alloc.memory = m;
    return CUDA_SUCCESS;
}

/* Whether the graph frees the piece already, and does not allocate it again. */
static bool is_freed(const struct CUgraph_st *g, const struct graph_memory *m)
{
    for (const struct CUgraphNode_st *n = g->last; n; n = n->previous) {
        if (is_memory(&n->params) && n->params.alloc.memory == m)
            return n->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    }
    return false;
}

CUresult memory_fill_free(struct CUgraph_st *graph, CUdeviceptr address, struct node_params *params)
{
    struct graph_memory *m;

    pthread_mutex_lock(&graph_lock);
    m = find(address);
    if (m && is_freed(graph, m))
        m = NULL;
    if (m)
        m->references++;
    pthread_mutex_unlock(&graph_lock);
    NEED(m, CUDA_ERROR_INVALID_VALUE);
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    params->alloc.api.dptr = address;
    params->alloc.memory = m;
    return CUDA_SUCCESS;
}

void memory_get(struct graph_memory *m)
{
    pthread_mutex_lock(&graph_lock);
    m->references++;
    pthread_mutex_unlock(&graph_lock);
}

void memory_put(struct graph_memory *m)
{
    pthread_mutex_lock(&graph_lock);
    m->references--;
    forget(m);
    pthread_mutex_unlock(&graph_lock);
}

/* Executable graphs */

/* The blocks that the executable graph allocates in, each once; the caller's to free. */
static CUresult blocks_of(const struct CUgraphExec_st *e, struct graph_block ***blocks,
                          size_t *count)
{
    *count = 0;
    *blocks = calloc(e->count + 1, sizeof(struct graph_block *));
    NEED(*blocks, CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; i < e->count; i++) {
        const struct node_params *p = &e->steps[i].params;
        size_t k = *count;

        if (p->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            continue;
        while (k > 0 && (*blocks)[k - 1] != p->alloc.memory->block)
            k--;
        if (!k)
            (*blocks)[(*count)++] = p->alloc.memory->block;
    }
    return CUDA_SUCCESS;
}

CUresult memory_instantiate(struct CUgraphExec_st *e)
{
    CUresult rc = CUDA_SUCCESS;

    for (size_t i = 0; i < e->count; i++)
        e->has_memory |= is_memory(&e->steps[i].params);
    if (!e->has_memory)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&graph_lock);
    for (size_t i = 0; i < e->count; i++) {
        if (e->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC &&
            e->steps[i].params.alloc.memory->block->is_instantiated)
            rc = CUDA_ERROR_NOT_SUPPORTED;
    }
    for (size_t i = 0; rc == CUDA_SUCCESS && i < e->count; i++) {
        if (e->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            e->steps[i].params.alloc.memory->block->is_instantiated = true;
    }
    pthread_mutex_unlock(&graph_lock);
    if (rc != CUDA_SUCCESS)
        e->has_memory = false; /* it is another's */
    return rc;
}

void memory_deinstantiate(struct CUgraphExec_st *e)
{
    if (!e->has_memory)
        return;
    pthread_mutex_lock(&graph_lock);
    for (size_t i = 0; i < e->count; i++) {
        if (e->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            e->steps[i].params.alloc.memory->block->is_instantiated = false;
            block_settle(e->steps[i].params.alloc.memory->block);
        }
    }
    pthread_mutex_unlock(&graph_lock);
}

/* What will be live after a launch. CUDA_ERROR_INVALID_VALUE for an allocation of what is live, and
 * a free of what is not. */
static CUresult plan(const struct CUgraphExec_st *e)
{
    bool is_auto_free = e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;

    for (size_t i = 0; i < e->count; i++) {
        if (is_memory(&e->steps[i].params))
            e->steps[i].params.alloc.memory->will_live = e->steps[i].params.alloc.memory->is_live;
    }
    for (size_t i = 0; i < e->count && is_auto_free; i++) {
        if (e->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            e->steps[i].params.alloc.memory->will_live = false;
    }
    for (size_t i = 0; i < e->count; i++) {
        bool is_alloc = e->steps[i].params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;

        if (!is_memory(&e->steps[i].params))
            continue;
        NEED(e->steps[i].params.alloc.memory->will_live != is_alloc, CUDA_ERROR_INVALID_VALUE);
        e->steps[i].params.alloc.memory->will_live = is_alloc;
    }
    return CUDA_SUCCESS;
}

static void set_live(struct graph_memory *m, bool is_live)
{
    if (is_live && !m->is_live)
        m->block->live++;
    else if (!is_live && m->is_live)
        m->block->live--;
    m->is_live = is_live;
}

CUresult memory_start(struct CUgraphExec_st *e, const struct CUstream_st *stream, bool is_launch)
{
    struct graph_block **blocks;
    size_t count;
    CUresult rc;

    if (!e->has_memory)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&graph_lock);
    rc = is_launch ? plan(e) : CUDA_SUCCESS;
    if (rc == CUDA_SUCCESS)
        rc = blocks_of(e, &blocks, &count);
    if (rc == CUDA_SUCCESS) {
        rc = blocks_bind(blocks, count, stream);
        free(blocks);
    }
    for (size_t i = 0; rc == CUDA_SUCCESS && is_launch && i < e->count; i++) {
        if (is_memory(&e->steps[i].params))
            set_live(e->steps[i].params.alloc.memory, e->steps[i].params.alloc.memory->will_live);
    }
    pthread_mutex_unlock(&graph_lock);
    return rc;
}

void memory_started(struct CUgraphExec_st *e, const struct CUstream_st *s)
{
    struct graph_use use = {atomic_load(&s->pushed), atomic_load(&s->index), s->id};

    if (!e->has_memory)
        return;
    pthread_mutex_lock(&graph_lock);
    for (size_t i = 0; i < e->count; i++) {
        if (is_memory(&e->steps[i].params)) {
            e->steps[i].params.alloc.memory->block->last = use;
            e->steps[i].params.alloc.memory->block->is_starting = false;
        }
    }
    pthread_mutex_unlock(&graph_lock);
}

/* For the rest of the driver */

CUresult graph_memory_free(CUdeviceptr address, struct CUstream_st *stream)
{
    struct graph_use use = {0};
    struct graph_memory *m;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    if (stream && stream_mark(stream) == CUDA_SUCCESS)
        use = (struct graph_use){atomic_load(&stream->pushed), atomic_load(&stream->index),
                                 stream->id};
    pthread_mutex_lock(&graph_lock);
    m = find(address);
    if (m && m->is_live) {
        set_live(m, false);
        if (use.number)
            m->block->last = use;
        block_settle(m->block);
        forget(m);
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&graph_lock);
    return rc;
}

void graph_memory_find(CUdeviceptr address, struct place *place)
{
    struct graph_memory *m;

    pthread_mutex_lock(&graph_lock);
    m = around(address);
    if (m)
        *place = (struct place){.kind = PLACE_GRAPH,
                                .device = block_device(m->block),
                                .base = m->address,
                                .bytes = m->bytes};
    pthread_mutex_unlock(&graph_lock);
}

void *graph_memory_host(CUdeviceptr address, size_t bytes, bool is_write)
{
    struct graph_memory *m;
    char *host = NULL;

    pthread_mutex_lock(&graph_lock);
    m = around(address);
    if (m && bytes <= m->bytes - (address - m->address))
        host = block_host(m->block, is_write) + (address - m->block->address);
    pthread_mutex_unlock(&graph_lock);
    return host;
}

/* Entry points */

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    TRY(node_check(node));
    NEED(params && node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC, CUDA_ERROR_INVALID_VALUE);
    *params = node->params.alloc.api;
    return CUDA_SUCCESS;
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *address)
{
    TRY(node_check(node));
    NEED(address && node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE, CUDA_ERROR_INVALID_VALUE);
    *address = node->params.alloc.api.dptr;
    return CUDA_SUCCESS;
}
