/* SPDX-License-Identifier: Apache-2.0 */
/*
 * User objects: things of the program's that graphs keep alive. When the last reference goes, the
 * program's destructor is called, which may not use CUDA.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/callback.h"
#include "cuda/graph.h"

struct CUuserObject_st {
    uint32_t magic;
    _Atomic unsigned int references;
    CUhostFn destroy;
    void *value;
};

static CUresult object_check(CUuserObject object)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    return object && object->magic == MAGIC_USER ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void object_put(struct CUuserObject_st *object, unsigned int count)
{
    if (atomic_fetch_sub(&object->references, count) != count)
        return;
    object->magic = MAGIC_DEAD;
    callback_run(object->destroy, object->value);
    bury(object);
}

CUresult users_copy(const struct user_reference *from, size_t count, struct user_reference **to)
{
    *to = NULL;
    if (!count)
        return CUDA_SUCCESS;
    *to = calloc(count, sizeof(**to));
    NEED(*to, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(*to, from, count * sizeof(**to));
    for (size_t i = 0; i < count; i++) {
        (*to)[i].count = 1;
        atomic_fetch_add(&from[i].object->references, 1);
    }
    return CUDA_SUCCESS;
}

void users_free(struct user_reference *users, size_t count)
{
    for (size_t i = 0; i < count; i++)
        object_put(users[i].object, users[i].count);
    free(users);
}

CUresult cuUserObjectCreate(CUuserObject *object, void *value, CUhostFn destroy,
                            unsigned int references, unsigned int flags)
{
    struct CUuserObject_st *o;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(object && destroy && references && references <= INT_MAX &&
             flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC,
         CUDA_ERROR_INVALID_VALUE);
    o = calloc(1, sizeof(*o));
    NEED(o, CUDA_ERROR_OUT_OF_MEMORY);
    o->magic = MAGIC_USER;
    atomic_store(&o->references, references);
    o->destroy = destroy;
    o->value = value;
    *object = o;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    TRY(object_check(object));
    NEED(count && count <= INT_MAX, CUDA_ERROR_INVALID_VALUE);
    atomic_fetch_add(&object->references, count);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    TRY(object_check(object));
    NEED(count && count <= atomic_load(&object->references), CUDA_ERROR_INVALID_VALUE);
    object_put(object, count);
    return CUDA_SUCCESS;
}

static struct user_reference *find(const struct CUgraph_st *graph, CUuserObject object)
{
    for (size_t i = 0; i < graph->user_count; i++) {
        if (graph->users[i].object == object)
            return &graph->users[i];
    }
    return NULL;
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags)
{
    struct user_reference *r;

    TRY(graph_check(graph));
    TRY(object_check(object));
    NEED(count && count <= INT_MAX && !(flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE),
         CUDA_ERROR_INVALID_VALUE);
    NEED(!(flags & CU_GRAPH_USER_OBJECT_MOVE) || count <= atomic_load(&object->references),
         CUDA_ERROR_INVALID_VALUE);
    r = find(graph, object);
    if (!r) {
        r = realloc(graph->users, (graph->user_count + 1) * sizeof(*r));
        NEED(r, CUDA_ERROR_OUT_OF_MEMORY);
        graph->users = r;
        r = &graph->users[graph->user_count++];
        *r = (struct user_reference){object, 0};
    }
    r->count += count;
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
        atomic_fetch_add(&object->references, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    struct user_reference *r;

    TRY(graph_check(graph));
    TRY(object_check(object));
    r = find(graph, object);
    NEED(r && count && count <= r->count, CUDA_ERROR_INVALID_VALUE);
    r->count -= count;
    if (!r->count)
        *r = graph->users[--graph->user_count];
    object_put(object, count);
    return CUDA_SUCCESS;
}
