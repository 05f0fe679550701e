/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs as such: nodes, edges, copies, and what can be asked about them.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/graph.h"

static struct CUgraphNode_st *node_alloc(void)
{
    return calloc(1, sizeof(struct CUgraphNode_st));
}

static void node_bury(struct CUgraphNode_st *n)
{
    n->magic = MAGIC_DEAD;
    params_free(&n->params);
    bury(n);
}

struct CUgraph_st *graph_new(void)
{
    static _Atomic uint64_t last_id;
    struct CUgraph_st *g = calloc(1, sizeof(*g));

    if (g) {
        g->magic = MAGIC_GRAPH;
        g->id = atomic_fetch_add(&last_id, 1) + 1;
    }
    return g;
}

CUresult graph_check(CUgraph graph)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    return graph && graph->magic == MAGIC_GRAPH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult node_check(CUgraphNode node)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    return node && node->magic == MAGIC_NODE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void graph_drop(struct CUgraph_st *g)
{
    for (struct CUgraphNode_st *n = g->first, *after; n; n = after) {
        after = n->next;
        node_bury(n);
    }
    g->first = g->last = NULL;
    g->count = g->edge_count = g->edge_room = 0;
    if (g->has_conditions)
        conditions_drop(g->id);
    free(g->edges);
    g->edges = NULL;
    users_free(g->users, g->user_count);
    g->users = NULL;
    g->user_count = 0;
    g->magic = MAGIC_DEAD;
    bury(g);
}

CUresult dependencies_check(CUgraph graph, const CUgraphNode *nodes, size_t count)
{
    NEED(!count || nodes, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        NEED(nodes[i] && nodes[i]->magic == MAGIC_NODE && nodes[i]->graph == graph,
             CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult edge_add(struct CUgraph_st *g, struct CUgraphNode_st *from, struct CUgraphNode_st *to,
                  const CUgraphEdgeData *data)
{
    if (g->edge_count == g->edge_room) {
        size_t room = g->edge_room ? g->edge_room * 2 : 16;
        struct edge *more = realloc(g->edges, room * sizeof(*more));

        NEED(more, CUDA_ERROR_OUT_OF_MEMORY);
        g->edges = more;
        g->edge_room = room;
    }
    g->edges[g->edge_count++] = (struct edge){from, to, data ? *data : (CUgraphEdgeData){0}};
    return CUDA_SUCCESS;
}

static bool has_edge(const struct CUgraph_st *g, const struct CUgraphNode_st *from,
                     const struct CUgraphNode_st *to)
{
    for (size_t i = 0; i < g->edge_count; i++) {
        if (g->edges[i].from == from && g->edges[i].to == to)
            return true;
    }
    return false;
}

static void node_link(struct CUgraph_st *g, struct CUgraphNode_st *n)
{
    n->magic = MAGIC_NODE;
    n->graph = g;
    n->previous = g->last;
    if (g->last)
        g->last->next = n;
    else
        g->first = n;
    g->last = n;
    g->count++;
    g->has_memory |= n->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
                     n->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

static void node_unlink(struct CUgraphNode_st *n)
{
    struct CUgraph_st *g = n->graph;
    size_t kept = 0;

    for (size_t i = 0; i < g->edge_count; i++) {
        if (g->edges[i].from != n && g->edges[i].to != n)
            g->edges[kept++] = g->edges[i];
    }
    g->edge_count = kept;
    if (n->previous)
        n->previous->next = n->next;
    else
        g->first = n->next;
    if (n->next)
        n->next->previous = n->previous;
    else
        g->last = n->previous;
    g->count--;
    node_bury(n);
}

CUresult node_add(struct CUgraph_st *g, const CUgraphNode *dependencies,
                  const CUgraphEdgeData *data, size_t count, struct node_params *params,
                  struct CUgraphNode_st **node)
{
    struct CUgraphNode_st *n = NULL;
    CUresult rc = dependencies_check(g, dependencies, count);

    for (size_t i = 0; rc == CUDA_SUCCESS && i < count; i++) {
        for (size_t k = 0; k < i && rc == CUDA_SUCCESS; k++)
            rc = dependencies[k] == dependencies[i] ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    if (rc == CUDA_SUCCESS && !(n = node_alloc()))
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    if (rc != CUDA_SUCCESS) {
        params_free(params);
        return rc;
    }
    n->params = *params;
    node_link(g, n);
    for (size_t i = 0; rc == CUDA_SUCCESS && i < count; i++)
        rc = edge_add(g, dependencies[i], n, data ? &data[i] : NULL);
    if (rc != CUDA_SUCCESS) {
        node_unlink(n);
        return rc;
    }
    *node = n;
    return CUDA_SUCCESS;
}

CUresult graph_copy(struct CUgraph_st *g, struct CUgraph_st **copy)
{
    struct CUgraph_st *made = graph_new();
    struct CUgraphNode_st **nodes = calloc(g->count + 1, sizeof(struct CUgraphNode_st *));
    CUresult rc = made && nodes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    size_t i = 0;

    for (struct CUgraphNode_st *n = g->first; rc == CUDA_SUCCESS && n; n = n->next) {
        struct node_params params;

        n->position = i;
        rc = params_copy(&n->params, &params);
        if (rc == CUDA_SUCCESS)
            rc = node_add(made, NULL, NULL, 0, &params, &nodes[i]);
        if (rc == CUDA_SUCCESS)
            nodes[i++]->original = n;
    }
    for (size_t e = 0; rc == CUDA_SUCCESS && e < g->edge_count; e++)
        rc = edge_add(made, nodes[g->edges[e].from->position], nodes[g->edges[e].to->position],
                      &g->edges[e].data);
    if (rc == CUDA_SUCCESS)
        rc = users_copy(g->users, g->user_count, &made->users);
    free(nodes);
    if (rc != CUDA_SUCCESS) {
        if (made)
            graph_drop(made);
        return rc;
    }
    made->user_count = g->user_count;
    *copy = made;
    return CUDA_SUCCESS;
}

/* Entry points */

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
    NEED(!graph->is_captured && !graph->is_owned, CUDA_ERROR_ILLEGAL_STATE);
    graph_drop(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph original)
{
    TRY(graph_check(original));
    NEED(clone, CUDA_ERROR_INVALID_VALUE);
    NEED(!original->has_memory && !original->has_conditions, CUDA_ERROR_NOT_SUPPORTED);
    return graph_copy(original, clone);
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
    TRY(node_check(original));
    TRY(graph_check(clone));
    NEED(node, CUDA_ERROR_INVALID_VALUE);
    for (struct CUgraphNode_st *n = clone->first; n; n = n->next) {
        if (n->original == original) {
            *node = n;
            return CUDA_SUCCESS;
        }
    }
    *node = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
    TRY(node_check(node));
    NEED(!node->graph->has_memory, CUDA_ERROR_NOT_SUPPORTED);
    node_unlink(node);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    TRY(node_check(node));
    NEED(type, CUDA_ERROR_INVALID_VALUE);
    *type = node->params.type;
    return CUDA_SUCCESS;
}

/* Lists are given as CUDA does: the number without an array, else as many as fit, NULL after. */
struct lister {
    CUgraphNode *nodes, *others;
    CUgraphEdgeData *data;
    size_t room, found;
};

static void list(struct lister *l, CUgraphNode node, CUgraphNode other, const CUgraphEdgeData *data)
{
    if (l->nodes && l->found < l->room) {
        l->nodes[l->found] = node;
        if (l->others)
            l->others[l->found] = other;
        if (l->data)
            l->data[l->found] = *data;
    }
    l->found++;
}

static void list_end(const struct lister *l, size_t *count)
{
    for (size_t i = l->found; l->nodes && i < l->room; i++) {
        l->nodes[i] = NULL;
        if (l->others)
            l->others[i] = NULL;
    }
    *count = l->nodes && l->found > l->room ? l->room : l->found;
}

static bool is_lossy(const CUgraphEdgeData *d)
{
    return d->from_port || d->to_port || d->type;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    struct lister l = {.nodes = nodes};

    TRY(graph_check(graph));
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    l.room = *count;
    for (struct CUgraphNode_st *n = graph->first; n; n = n->next)
        list(&l, n, NULL, NULL);
    list_end(&l, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    struct lister l = {.nodes = nodes};

    TRY(graph_check(graph));
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    l.room = *count;
    for (struct CUgraphNode_st *n = graph->first; n; n = n->next)
        n->position = 0;
    for (size_t i = 0; i < graph->edge_count; i++)
        graph->edges[i].to->position++;
    for (struct CUgraphNode_st *n = graph->first; n; n = n->next) {
        if (!n->position)
            list(&l, n, NULL, NULL);
    }
    list_end(&l, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *data, size_t *count)
{
    struct lister l = {.nodes = from, .others = to, .data = data};

    TRY(graph_check(graph));
    NEED(count && !from == !to && (from || !data), CUDA_ERROR_INVALID_VALUE);
    l.room = *count;
    for (size_t i = 0; i < graph->edge_count; i++) {
        const struct edge *e = &graph->edges[i];

        NEED(data || !from || !is_lossy(&e->data), CUDA_ERROR_LOSSY_QUERY);
        list(&l, e->from, e->to, &e->data);
    }
    list_end(&l, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

static CUresult neighbours(CUgraphNode node, bool is_before, CUgraphNode *nodes,
                           CUgraphEdgeData *data, size_t *count)
{
    struct lister l = {.nodes = nodes, .data = data};

    TRY(node_check(node));
    NEED(count && (nodes || !data), CUDA_ERROR_INVALID_VALUE);
    l.room = *count;
    for (size_t i = 0; i < node->graph->edge_count; i++) {
        const struct edge *e = &node->graph->edges[i];

        if ((is_before ? e->to : e->from) != node)
            continue;
        NEED(data || !nodes || !is_lossy(&e->data), CUDA_ERROR_LOSSY_QUERY);
        list(&l, is_before ? e->from : e->to, NULL, &e->data);
    }
    list_end(&l, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                       size_t *count)
{
    return neighbours(node, true, nodes, data, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return neighbours(node, true, nodes, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *nodes,
                                         CUgraphEdgeData *data, size_t *count)
{
    return neighbours(node, false, nodes, data, count);
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, size_t *count)
{
    return neighbours(node, false, nodes, NULL, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count)
{
    TRY(graph_check(graph));
    TRY(dependencies_check(graph, from, count));
    TRY(dependencies_check(graph, to, count));
    for (size_t i = 0; i < count; i++)
        NEED(from[i] != to[i] && !has_edge(graph, from[i], to[i]), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        TRY(edge_add(graph, from[i], to[i], data ? &data[i] : NULL));
    return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t count)
{
    return cuGraphAddDependencies_v2(graph, from, to, NULL, count);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count)
{
    (void)data;
    TRY(graph_check(graph));
    TRY(dependencies_check(graph, from, count));
    TRY(dependencies_check(graph, to, count));
    NEED(!graph->has_memory || !count, CUDA_ERROR_NOT_SUPPORTED);
    for (size_t i = 0; i < count; i++)
        NEED(has_edge(graph, from[i], to[i]), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;

        while (at < graph->edge_count &&
               (graph->edges[at].from != from[i] || graph->edges[at].to != to[i]))
            at++;
        if (at < graph->edge_count) {
            memmove(&graph->edges[at], &graph->edges[at + 1],
                    (graph->edge_count - at - 1) * sizeof(*graph->edges));
            graph->edge_count--;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t count)
{
    return cuGraphRemoveDependencies_v2(graph, from, to, NULL, count);
}
