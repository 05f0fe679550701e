/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph as a picture in the DOT language.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "cuda/graph.h"

static const char *const kinds[] = {"KERNEL",       "MEMCPY",     "MEMSET",     "HOST",
                                    "GRAPH",        "EMPTY",      "EVENT_WAIT", "EVENT_RECORD",
                                    "EXT_SIGNAL",   "EXT_WAIT",   "MEM_ALLOC",  "MEM_FREE",
                                    "BATCH_MEM_OP", "CONDITIONAL"};

static void label(FILE *out, const struct CUgraphNode_st *n)
{
    const struct node_params *p = &n->params;

    fprintf(out, "%zu %s", n->position, kinds[p->type]);
    if (p->type == CU_GRAPH_NODE_TYPE_KERNEL)
        fprintf(out, "\\n%s\\n<<<(%u,%u,%u),(%u,%u,%u),%u>>>", p->kernel.api.func->name,
                p->kernel.api.gridDimX, p->kernel.api.gridDimY, p->kernel.api.gridDimZ,
                p->kernel.api.blockDimX, p->kernel.api.blockDimY, p->kernel.api.blockDimZ,
                p->kernel.api.sharedMemBytes);
    else if (p->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        fprintf(out, "\\n%zu x %zu x %zu bytes", p->memcpy.copy.WidthInBytes, p->memcpy.copy.Height,
                p->memcpy.copy.Depth);
    else if (p->type == CU_GRAPH_NODE_TYPE_MEMSET)
        fprintf(out, "\\n0x%llx = %u, %zu x %zu of %u bytes", p->memset.dst, p->memset.value,
                p->memset.width, p->memset.height, p->memset.elementSize);
    else if (p->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        fprintf(out, "\\n0x%llx, %zu bytes", p->alloc.api.dptr, p->alloc.api.bytesize);
    else if (p->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        fprintf(out, "\\n0x%llx", p->alloc.api.dptr);
}

static void body(FILE *out, struct CUgraph_st *g, unsigned int *number)
{
    unsigned int mine = (*number)++;
    size_t at = 0;

    fprintf(out, "subgraph cluster_%u {\nlabel=\"graph_%u\"\n", mine, mine);
    for (struct CUgraphNode_st *n = g->first; n; n = n->next) {
        n->position = at++;
        fprintf(out, "\"graph_%u_node_%zu\" [label=\"", mine, n->position);
        label(out, n);
        fprintf(out, "\"];\n");
    }
    for (size_t i = 0; i < g->edge_count; i++)
        fprintf(out, "\"graph_%u_node_%zu\" -> \"graph_%u_node_%zu\";\n", mine,
                g->edges[i].from->position, mine, g->edges[i].to->position);
    for (struct CUgraphNode_st *n = g->first; n; n = n->next) {
        if (n->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
            body(out, n->params.child, number);
    }
    fprintf(out, "}\n");
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
    unsigned int number = 0;
    FILE *out;
    int failed;

    TRY(graph_check(graph));
    NEED(path && !(flags >> 16), CUDA_ERROR_INVALID_VALUE);
    out = fopen(path, "we");
    NEED(out, CUDA_ERROR_OPERATING_SYSTEM);
    fprintf(out, "digraph dot {\n");
    body(out, graph, &number);
    fprintf(out, "}\n");
    failed = ferror(out);
    return fclose(out) == 0 && !failed ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
