/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs: what their files need of each other. A graph is nodes in the order they were added, and
 * edges between them; an executable graph is a copy of the nodes in an order that its edges allow,
 * child graphs laid out flat. CUDA leaves the use of one graph by several threads to the program;
 * only captures, which streams of any thread reach, have a lock.
 */
#ifndef SIM_CUDA_GRAPH_H
#define SIM_CUDA_GRAPH_H

#include "cuda/module.h"

struct graph_memory; /* graph_memory.h */

struct conditional; /* conditional.c */

struct kernel_node {
    CUDA_KERNEL_NODE_PARAMS_v2 api; /* its arguments are the node's own copy */
    void **args;                    /* pointers, then what they point to; NULL: the caller's */
    struct launch_shape shape;
    struct launch launch;
    uint32_t attributes_set; /* a bit of each */
    CUlaunchAttributeValue *attributes;
};

struct memop_node {
    CUcontext context;
    unsigned int count, flags;
    CUstreamBatchMemOpParams *ops;
};

struct semaphore_node {
    unsigned int count;
    CUexternalSemaphore *semaphores;
    const void *params; /* of signals, or of waits */
};

struct conditional_node {
    CUDA_CONDITIONAL_NODE_PARAMS api;
    bool is_owner; /* of the bodies' graphs: not in an executable graph */
};

struct alloc_node {
    CUDA_MEM_ALLOC_NODE_PARAMS api;
    struct graph_memory *memory; /* of a free node, too */
};

struct node_params {
    CUgraphNodeType type;
    union {
        struct kernel_node kernel;
        struct {
            CUDA_MEMCPY3D copy;
            CUcontext context;
        } memcpy;
        CUDA_MEMSET_NODE_PARAMS_v2 memset;
        CUDA_HOST_NODE_PARAMS host;
        struct CUgraph_st *child; /* the node's own */
        CUevent event;
        struct memop_node memop;
        struct semaphore_node semaphore; /* signal and wait */
        struct alloc_node alloc;         /* alloc and free */
        struct conditional_node conditional;
    };
};

struct CUgraphNode_st {
    uint32_t magic;
    struct CUgraph_st *graph;
    struct CUgraphNode_st *next, *previous;
    struct CUgraphNode_st *original; /* of a clone's node */
    size_t position;                 /* scratch of whoever walks the graph */
    struct node_params params;
};

struct edge {
    struct CUgraphNode_st *from, *to;
    CUgraphEdgeData data;
};

struct user_reference {
    struct CUuserObject_st *object;
    unsigned int count;
};

struct CUgraph_st {
    uint32_t magic;
    struct CUgraphNode_st *first, *last;
    size_t count;
    struct edge *edges;
    size_t edge_count, edge_room;
    struct user_reference *users;
    size_t user_count;
    uint64_t id;     /* no other graph's, ever */
    bool has_memory; /* nodes: then it stays one, and nothing is taken from it */
    bool has_conditions;
    bool is_body;     /* of a conditional node */
    bool is_captured; /* owned by a capture until that ends */
    bool is_owned;    /* by a child graph node or a conditional one */
};

/* One node of an executable graph. */
struct step {
    struct CUgraphNode_st *source; /* the node it was made of */
    struct node_params params;
    size_t *after; /* steps it waits for */
    size_t after_count;
    size_t lane;  /* 0: the stream of the launch */
    size_t inner; /* of a child graph: how many steps before this one are the child's */
    bool is_disabled;
    struct conditional *conditional; /* of a conditional node */
    uint32_t index; /* where its last launch ended: a stream and an operation of it */
    uint64_t number;
};

struct CUgraphExec_st {
    uint32_t magic;
    unsigned long long flags;
    bool has_memory; /* memory steps */
    struct step *steps;
    size_t count;
    size_t lanes;
    CUstream *streams; /* of lanes 1 and up, made at the first launch in a context */
    struct CUctx_st *streams_of;
    uint32_t last_index; /* where the last launch ends: a stream and an operation of it */
    uint64_t last_number;
    struct user_reference *users;
    size_t user_count;
};

/* graph.c */
struct CUgraph_st *graph_new(void);
CUresult graph_check(CUgraph graph);
CUresult node_check(CUgraphNode node);
void graph_drop(struct CUgraph_st *graph);
CUresult graph_copy(struct CUgraph_st *graph, struct CUgraph_st **copy);
/* A node with these parameters, which it takes over also on failure, after its dependencies, whose
 * edges may have no data. */
CUresult node_add(struct CUgraph_st *graph, const CUgraphNode *dependencies,
                  const CUgraphEdgeData *data, size_t count, struct node_params *params,
                  struct CUgraphNode_st **node);
CUresult edge_add(struct CUgraph_st *graph, struct CUgraphNode_st *from, struct CUgraphNode_st *to,
                  const CUgraphEdgeData *data);
CUresult dependencies_check(CUgraph graph, const CUgraphNode *nodes, size_t count);

/* graph_node.c: a node's own copy of what the program passed, checked. */
CUresult kernel_fill(const CUDA_KERNEL_NODE_PARAMS_v2 *api, struct node_params *params);
CUresult memcpy_fill(const CUDA_MEMCPY3D *copy, CUcontext context, struct node_params *params);
CUresult memset_fill(const CUDA_MEMSET_NODE_PARAMS_v2 *api, struct node_params *params);
CUresult host_fill(const CUDA_HOST_NODE_PARAMS *api, struct node_params *params);
CUresult event_fill(CUevent event, CUgraphNodeType type, struct node_params *params);
CUresult child_fill(CUgraph child, struct node_params *params);
CUresult memop_fill(const CUDA_BATCH_MEM_OP_NODE_PARAMS *api, struct node_params *params);
CUresult any_fill(const CUgraphNodeParams *api, struct node_params *params); /* no memory */
CUresult params_copy(const struct node_params *from, struct node_params *to);
void params_free(struct node_params *params);

/* graph_memory.c: after the dependencies; a piece of the graph that it frees before may serve
 * again. */
CUresult memory_fill_alloc(struct CUgraph_st *graph, const CUgraphNode *dependencies, size_t count,
                           CUDA_MEM_ALLOC_NODE_PARAMS *api, struct node_params *params);
CUresult memory_fill_free(struct CUgraph_st *graph, CUdeviceptr address,
                          struct node_params *params);
void memory_get(struct graph_memory *memory);
void memory_put(struct graph_memory *memory);
/* Memory nodes run in one executable graph at a time, else CUDA_ERROR_NOT_SUPPORTED. */
CUresult memory_instantiate(struct CUgraphExec_st *exec);
void memory_deinstantiate(struct CUgraphExec_st *exec);
/* Before a launch or upload into the stream, physical memory for it, and what it leaves allocated;
 * `started` after. CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_INVALID_VALUE for memory that is still
 * allocated, or not at all. */
CUresult memory_start(struct CUgraphExec_st *exec, const struct CUstream_st *stream,
                      bool is_launch);
void memory_started(struct CUgraphExec_st *exec, const struct CUstream_st *stream);

/* graph_semaphore.c */
CUresult semaphore_fill(CUgraphNodeType type, const CUexternalSemaphore *semaphores,
                        const void *values, unsigned int count, struct node_params *params);
/* The parameters are a copy of another's: they get lists of their own. */
CUresult semaphore_copy(struct node_params *params);
CUresult semaphore_run(const struct node_params *params, CUstream stream);

/* graph_exec.c */
/* The graph flat, in an order its edges allow. CUDA_ERROR_INVALID_VALUE for a cycle, with a node of
 * it. */
CUresult steps_make(struct CUgraph_st *graph, struct step **steps, size_t *count,
                    CUgraphNode *error);
void steps_free(struct step *steps, size_t count);
CUresult exec_check(CUgraphExec exec);
CUresult exec_make(CUgraphExec *exec, CUgraph graph, unsigned long long flags, CUgraphNode *error,
                   CUgraphInstantiateResult *result);
/* Launches it; the stream's context is the current one. */
CUresult exec_run(struct CUgraphExec_st *exec, struct CUstream_st *stream);

/* conditional.c: nodes, */
CUresult conditional_fill(struct CUgraph_st *graph, CUDA_CONDITIONAL_NODE_PARAMS *api,
                          struct node_params *params);
void conditional_free(struct node_params *params);
/* steps: before the graph's others, and when theirs has come; */
CUresult conditional_make(const struct node_params *params, struct conditional **conditional,
                          CUgraphNode *error, CUgraphInstantiateResult *result);
CUresult conditional_begin(struct conditional *conditional, CUstream stream);
CUresult conditional_run(struct conditional *conditional, CUstream stream);
void conditional_put(struct conditional *conditional);
/* values: the graph goes; whether it has one that no node goes by. */
void conditions_drop(uint64_t graph);
bool conditions_unused(uint64_t graph);

/* capture.c: a node at the stream's place in its capture. Takes over the parameters; *node unless
 * NULL. */
CUresult capture_add(struct CUstream_st *stream, struct node_params *params, CUgraphNode *node);
/* capture_work.c: the graph is copied. */
CUresult capture_child(struct CUstream_st *stream, CUgraph child);

/* user_object.c */
CUresult users_copy(const struct user_reference *from, size_t count, struct user_reference **to);
void users_free(struct user_reference *users, size_t count);

#endif
