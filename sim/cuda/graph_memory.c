/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory nodes: pieces of the device's graph pool. A piece has its address, and physical memory,
 * from when its node is added until the last graph or executable graph with it is gone; it counts
 * as used from the launch of its allocation to that of its free. Counts are under its lock.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/graph.h"
#include "cuda/pool.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct graph_usage {
    uint64_t used, used_high, reserved_high;
} usage[SIM_MAX_DEVICES];

static struct graph_memory **pieces; /* all that live */
static size_t piece_count;

static struct graph_memory *find(CUdeviceptr address)
{
    for (size_t i = 0; i < piece_count; i++) {
        if (pieces[i]->address == address)
            return pieces[i];
    }
    return NULL;
}

static CUresult reserved(struct device *d, uint64_t *bytes)
{
    struct CUmemPoolHandle_st *pool;

    TRY(pool_of_graphs(d, &pool));
    pthread_mutex_lock(&pool_lock);
    *bytes = pool->reserved_bytes;
    pthread_mutex_unlock(&pool_lock);
    return CUDA_SUCCESS;
}

CUresult memory_fill_alloc(CUDA_MEM_ALLOC_NODE_PARAMS *api, struct node_params *params)
{
    struct CUmemPoolHandle_st *pool;
    struct graph_memory *m, **more;
    struct device *d;
    CUresult rc;
    uint64_t all;

    NEED(api && api->bytesize && (!api->accessDescCount || api->accessDescs),
         CUDA_ERROR_INVALID_VALUE);
    NEED(api->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_PINNED &&
             api->poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
             !api->poolProps.handleTypes,
         CUDA_ERROR_INVALID_VALUE);
    TRY(device_get(api->poolProps.location.id, &d));
    TRY(pool_of_graphs(d, &pool));
    m = calloc(1, sizeof(*m));
    NEED(m, CUDA_ERROR_OUT_OF_MEMORY);
    *m = (struct graph_memory){.device = d, .bytes = api->bytesize, .references = 1};
    rc = pool_take(pool, api->bytesize, NULL, &m->address);
    if (rc != CUDA_SUCCESS) {
        free(m);
        return rc;
    }
    pthread_mutex_lock(&lock);
    more = realloc(pieces, (piece_count + 1) * sizeof(*more));
    if (more) {
        pieces = more;
        pieces[piece_count++] = m;
    }
    pthread_mutex_unlock(&lock);
    if (!more) {
        pool_give(m->address, NULL);
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (reserved(d, &all) == CUDA_SUCCESS && all > usage[d->ordinal].reserved_high)
        usage[d->ordinal].reserved_high = all;
    api->dptr = m->address;
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    params->alloc.api = *api;
    params->alloc.api.accessDescs = NULL;
    params->alloc.api.accessDescCount = 0;
    params->alloc.memory = m;
    return CUDA_SUCCESS;
}

/* What a free node frees need not be of a graph: it may come from a stream. */
CUresult memory_fill_free(CUdeviceptr address, struct node_params *params)
{
    NEED(address, CUDA_ERROR_INVALID_VALUE);
    memset(params, 0, sizeof(*params));
    params->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
    params->alloc.api.dptr = address;
    pthread_mutex_lock(&lock);
    params->alloc.memory = find(address);
    if (params->alloc.memory)
        params->alloc.memory->references++;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

void memory_get(struct graph_memory *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&lock);
    m->references++;
    pthread_mutex_unlock(&lock);
}

/* Memory that is live when its graphs are gone is the program's to free, as any of a pool. */
void memory_put(struct graph_memory *m)
{
    bool is_last;

    if (!m)
        return;
    pthread_mutex_lock(&lock);
    is_last = --m->references == 0;
    for (size_t i = 0; is_last && i < piece_count; i++) {
        if (pieces[i] == m)
            pieces[i] = pieces[--piece_count];
    }
    if (is_last && m->is_live)
        usage[m->device->ordinal].used -= m->bytes;
    pthread_mutex_unlock(&lock);
    if (!is_last)
        return;
    if (!m->is_live)
        pool_give(m->address, NULL);
    free(m);
}

CUresult memory_start(struct graph_memory *m, bool is_auto_free)
{
    struct graph_usage *u = &usage[m->device->ordinal];
    CUresult rc = CUDA_SUCCESS;

    pthread_mutex_lock(&lock);
    if (m->is_live && !is_auto_free) {
        rc = CUDA_ERROR_INVALID_VALUE; /* of an earlier launch, and not freed since */
    } else if (!m->is_live) {
        m->is_live = true;
        u->used += m->bytes;
        if (u->used > u->used_high)
            u->used_high = u->used;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

bool graph_memory_has(CUdeviceptr address)
{
    bool found;

    pthread_mutex_lock(&lock);
    found = find(address) != NULL;
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult graph_memory_end(CUdeviceptr address)
{
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    struct graph_memory *m;

    pthread_mutex_lock(&lock);
    m = find(address);
    if (m && m->is_live) {
        m->is_live = false;
        usage[m->device->ordinal].used -= m->bytes;
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

CUresult memory_end(struct graph_memory *m, CUdeviceptr address, CUstream stream)
{
    return m ? graph_memory_end(address) : cuMemFreeAsync(address, stream);
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

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    struct device *d;
    uint64_t now, n;

    TRY(device_get(dev, &d));
    NEED(value && (int)attribute >= 0 && attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
         CUDA_ERROR_INVALID_VALUE);
    TRY(reserved(d, &now));
    pthread_mutex_lock(&lock);
    n = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT       ? usage[dev].used
        : attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH        ? usage[dev].used_high
        : attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? now
                                                              : usage[dev].reserved_high;
    pthread_mutex_unlock(&lock);
    memcpy(value, &n, sizeof(n));
    return CUDA_SUCCESS;
}

/* High-water marks can be set back, to zero: they start again from what is there. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    struct device *d;
    uint64_t now, zero;

    TRY(device_get(dev, &d));
    NEED(value && (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                   attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH),
         CUDA_ERROR_INVALID_VALUE);
    memcpy(&zero, value, sizeof(zero));
    NEED(!zero, CUDA_ERROR_INVALID_VALUE);
    TRY(reserved(d, &now));
    pthread_mutex_lock(&lock);
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        usage[dev].used_high = usage[dev].used;
    else
        usage[dev].reserved_high = now;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
    struct CUmemPoolHandle_st *pool;
    struct device *d;

    TRY(device_get(dev, &d));
    TRY(pool_of_graphs(d, &pool));
    pool_trim(pool, 0);
    return CUDA_SUCCESS;
}
