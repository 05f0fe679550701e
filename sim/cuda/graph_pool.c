/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that a device's graphs share: blocks of addresses, and the physical memory they are
 * bound to (graph_memory.h). What is reserved grows by what a launch lacks and shrinks only when
 * the program trims: no other allocation gets it meanwhile, as on a card.
 */
#include "cuda/graph_memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/callback.h"
#include "cuda/pool.h"

#define CHUNK_BYTES (32ull << 20) /* by which it grows, while the device has that */
#define PIECE_UNIT 512u
#define PACKED_MAX (1ull << 20) /* larger pieces have a block of their own */

struct graph_pool {
    struct device *device;
    struct va_window window;     /* base 0: nothing was allocated yet */
    struct graph_block **blocks; /* by address */
    size_t count;
    uint64_t bound_bytes, bound_high_bytes;
    uint64_t reserved_bytes, reserved_high_bytes;
};

pthread_mutex_t graph_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic bool is_graph_memory_used;
static struct graph_pool pools[SIM_MAX_DEVICES];

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

struct device *block_device(const struct graph_block *b)
{
    return b->pool->device;
}

/* Blocks */

/* The position of the first block behind the address. */
static size_t position(const struct graph_pool *p, CUdeviceptr address)
{
    size_t low = 0, high = p->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (p->blocks[middle]->address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct graph_block *block_around(CUdeviceptr address)
{
    for (int i = 0; i < driver_device_count; i++) {
        struct graph_pool *p = &pools[i];
        size_t at;

        if (!p->window.base || !va_contains(&p->window, address))
            continue;
        at = position(p, address);
        return at && address - p->blocks[at - 1]->address < p->blocks[at - 1]->bytes
                   ? p->blocks[at - 1]
                   : NULL;
    }
    return NULL;
}

char *block_host(struct graph_block *b, bool is_write)
{
    struct va_window *w = &b->pool->window;
    uint64_t base;
    struct va_record *r = va_find(w, b->address, &base);

    r->touched |= is_write;
    return (char *)(uintptr_t)(b->address + w->alias);
}

static CUresult pool_open_window(struct graph_pool *p, struct device *d)
{
    /* Several times the device's size: graphs that share memory have addresses of their own. */
    uint64_t bytes = round_up(d->info.total_bytes * 16, GRANULE_BYTES);
    int file, rc;

    if (p->window.base)
        return CUDA_SUCCESS;
    file = memory_file("simgpu-graphs", bytes);
    NEED(file >= 0, memory_failed(file));
    rc = va_open(&p->window, bytes, file);
    if (rc != 0) {
        close(file);
        return memory_failed(rc);
    }
    p->device = d;
    atomic_store(&is_graph_memory_used, true);
    return CUDA_SUCCESS;
}

static CUresult block_new(struct graph_pool *p, uint64_t graph, uint64_t bytes,
                          struct graph_block **block)
{
    struct graph_block *b = calloc(1, sizeof(*b)), **more;
    size_t at;

    NEED(b, CUDA_ERROR_OUT_OF_MEMORY);
    more = realloc(p->blocks, (p->count + 1) * sizeof(*more));
    if (more)
        p->blocks = more;
    b->address = more ? va_alloc(&p->window, bytes, 0, VA_DEVICE) : 0;
    if (!b->address) {
        free(b);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    b->pool = p;
    b->graph = graph;
    b->bytes = bytes;
    at = position(p, b->address);
    memmove(&p->blocks[at + 1], &p->blocks[at], (p->count - at) * sizeof(*p->blocks));
    p->blocks[at] = b;
    p->count++;
    *block = b;
    return CUDA_SUCCESS;
}

CUresult block_take(struct device *d, uint64_t graph, uint64_t bytes, struct graph_block **block,
                    CUdeviceptr *address)
{
    struct graph_pool *p = &pools[d->ordinal];
    uint64_t room = round_up(bytes, PIECE_UNIT);
    bool is_packed = room <= PACKED_MAX;

    NEED(bytes <= d->info.total_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    TRY(pool_open_window(p, d));
    *block = NULL;
    for (size_t i = p->count; is_packed && i-- > 0 && !*block;) {
        struct graph_block *b = p->blocks[i];

        if (b->graph == graph && b->bytes - b->filled >= room)
            *block = b;
    }
    if (!*block)
        TRY(block_new(p, graph, round_up(room, GRANULE_BYTES), block));
    *address = (*block)->address + (*block)->filled;
    (*block)->filled += is_packed ? room : (*block)->bytes;
    return CUDA_SUCCESS;
}

/* Binding */

/* Whether another may have its physical memory now, or, for work on that stream, then. */
static bool is_idle(const struct graph_block *b, const struct CUstream_st *stream)
{
    return !b->live && !b->is_starting &&
           (!b->last.number || queue_is_done(b->last.index, b->last.number) ||
            (stream && stream->id == b->last.stream));
}

static void unbind(struct graph_block *b)
{
    b->is_bound = false;
    b->pool->bound_bytes -= b->bytes;
    if (!effect_is_due()) /* what the host still has to do may be to read it */
        va_empty(&b->pool->window, b->address);
}

static void bind(struct graph_block *b)
{
    struct graph_pool *p = b->pool;

    b->is_bound = true;
    p->bound_bytes += b->bytes;
    if (p->bound_bytes > p->bound_high_bytes)
        p->bound_high_bytes = p->bound_bytes;
}

void block_settle(struct graph_block *b)
{
    struct graph_pool *p = b->pool;
    struct va_range gone;
    size_t at;

    if (b->is_instantiated || !is_idle(b, NULL))
        return;
    if (b->is_bound)
        unbind(b);
    if (b->pieces)
        return;
    va_free(&p->window, b->address, &gone);
    at = position(p, b->address) - 1;
    memmove(&p->blocks[at], &p->blocks[at + 1], (--p->count - at) * sizeof(*p->blocks));
    free(b);
}

static void settle(struct graph_pool *p)
{
    for (size_t i = p->count; i-- > 0;)
        block_settle(p->blocks[i]);
}

/* Unbinds idle blocks until so many bytes are free of what is reserved. */
static void make_free(struct graph_pool *p, uint64_t bytes, const struct CUstream_st *stream)
{
    for (size_t i = 0; i < p->count && p->reserved_bytes - p->bound_bytes < bytes; i++) {
        if (p->blocks[i]->is_bound && is_idle(p->blocks[i], stream))
            unbind(p->blocks[i]);
    }
}

static bool charge(struct graph_pool *p, uint64_t bytes)
{
    bool fits;

    pthread_mutex_lock(&p->device->memory_lock);
    fits = sim_charge(&p->device->ledger, bytes, SIM_CHARGE_MEMORY);
    pthread_mutex_unlock(&p->device->memory_lock);
    if (fits)
        p->reserved_bytes += bytes;
    return fits;
}

static void give_back(struct graph_pool *p, uint64_t keep)
{
    uint64_t bytes;

    if (keep < p->bound_bytes)
        keep = p->bound_bytes;
    if (p->reserved_bytes <= keep)
        return;
    bytes = p->reserved_bytes - keep;
    pthread_mutex_lock(&p->device->memory_lock);
    sim_uncharge(&p->device->ledger, bytes, SIM_CHARGE_MEMORY);
    pthread_mutex_unlock(&p->device->memory_lock);
    p->reserved_bytes = keep;
}

static bool grow(struct graph_pool *p, uint64_t lack)
{
    bool fits = charge(p, round_up(lack, CHUNK_BYTES)) || charge(p, lack);

    if (!fits && pool_squeeze(p->device)) /* memory pools give theirs up, graphs do not */
        fits = charge(p, lack);
    return fits;
}

/* Lets go of the lock until some graph is over that runs in another stream; false: none does. */
static bool wait_for_other(struct graph_pool *p)
{
    struct graph_use use;
    bool is_over;

    for (size_t i = 0; i < p->count; i++) {
        const struct graph_block *b = p->blocks[i];

        if (!b->is_bound || b->live || b->is_starting || is_idle(b, NULL))
            continue;
        use = b->last;
        pthread_mutex_unlock(&graph_lock);
        is_over = queue_wait(use.index, use.number, 0, NULL) == CUDA_SUCCESS;
        pthread_mutex_lock(&graph_lock);
        return is_over;
    }
    return false;
}

/* `lack` bytes of the pool's that nothing is bound to. */
static bool provide(struct graph_pool *p, uint64_t lack, const struct CUstream_st *stream)
{
    uint64_t has;

    settle(p);
    do {
        make_free(p, lack, NULL); /* what is over, before what is yet to be */
        make_free(p, lack, stream);
        has = p->reserved_bytes - p->bound_bytes;
        if (has >= lack || grow(p, lack - has))
            return true;
    } while (wait_for_other(p));
    return false;
}

static uint64_t lack_of(const struct graph_pool *p, struct graph_block **blocks, size_t count)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        if (blocks[i]->pool == p && !blocks[i]->is_bound)
            bytes += blocks[i]->bytes;
    }
    return bytes;
}

CUresult blocks_bind(struct graph_block **blocks, size_t count, const struct CUstream_st *stream)
{
    uint64_t lack;

    for (size_t i = 0; i < count; i++)
        blocks[i]->is_starting = true;
    for (size_t i = 0; i < count; i++) {
        struct graph_pool *p = blocks[i]->pool;

        lack = lack_of(p, blocks, count);
        if (lack && !provide(p, lack, stream)) {
            for (size_t k = 0; k < count; k++)
                blocks[k]->is_starting = false;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (p->reserved_bytes > p->reserved_high_bytes)
            p->reserved_high_bytes = p->reserved_bytes;
        for (size_t k = i; lack && k < count; k++) {
            if (blocks[k]->pool == p && !blocks[k]->is_bound)
                bind(blocks[k]);
        }
    }
    return CUDA_SUCCESS;
}

/* Entry points */

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    struct graph_pool *p;
    struct device *d;
    uint64_t n;

    TRY(device_get(dev, &d));
    NEED(value && (int)attribute >= 0 && attribute <= CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
         CUDA_ERROR_INVALID_VALUE);
    p = &pools[dev];
    pthread_mutex_lock(&graph_lock);
    settle(p);
    n = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT       ? p->bound_bytes
        : attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH        ? p->bound_high_bytes
        : attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT ? p->reserved_bytes
                                                              : p->reserved_high_bytes;
    pthread_mutex_unlock(&graph_lock);
    memcpy(value, &n, sizeof(n));
    return CUDA_SUCCESS;
}

/* High-water marks can be set back, to zero: they start again from what is there. */
CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attribute, void *value)
{
    struct graph_pool *p;
    struct device *d;
    uint64_t zero;

    TRY(device_get(dev, &d));
    NEED(value && (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH ||
                   attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH),
         CUDA_ERROR_INVALID_VALUE);
    memcpy(&zero, value, sizeof(zero));
    NEED(!zero, CUDA_ERROR_INVALID_VALUE);
    p = &pools[dev];
    pthread_mutex_lock(&graph_lock);
    settle(p);
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        p->bound_high_bytes = p->bound_bytes;
    else
        p->reserved_high_bytes = p->reserved_bytes;
    pthread_mutex_unlock(&graph_lock);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
    struct graph_pool *p;
    struct device *d;

    TRY(device_get(dev, &d));
    p = &pools[dev];
    if (!p->window.base)
        return CUDA_SUCCESS;
    TRY(queue_refresh());
    pthread_mutex_lock(&graph_lock);
    settle(p);
    make_free(p, UINT64_MAX, NULL);
    give_back(p, 0);
    pthread_mutex_unlock(&graph_lock);
    return CUDA_SUCCESS;
}
