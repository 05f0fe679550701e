/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pools of pool.h: what they reserve, taking and giving, what an address is, their life.
 */
#include "cuda/pool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES (32ull << 20) /* by which a pool grows, as a driver's does */
#define WINDOW_SPARE_BYTES (16ull << 30)

pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic uint32_t pool_count;
static struct CUmemPoolHandle_st *pools;
static _Atomic bool is_dirty; /* something was freed since pools were last looked at */

CUresult pool_check(CUmemoryPool pool)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(pool && pool->magic == MAGIC_POOL && !pool->is_destroyed, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

/* What is reserved */

static bool reserve(struct CUmemPoolHandle_st *p, uint64_t bytes)
{
    struct device *d = p->device;
    bool fits;

    pthread_mutex_lock(&d->memory_lock);
    fits = sim_charge(&d->ledger, bytes, SIM_CHARGE_MEMORY);
    if (fits && p->shared.id && shared_move(&p->shared, (int64_t)bytes) != CUDA_SUCCESS) {
        sim_uncharge(&d->ledger, bytes, SIM_CHARGE_MEMORY);
        fits = false;
    }
    pthread_mutex_unlock(&d->memory_lock);
    if (!fits)
        return false;
    p->reserved_bytes += bytes;
    if (p->reserved_bytes > p->reserved_high_bytes)
        p->reserved_high_bytes = p->reserved_bytes;
    return true;
}

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Keeps what is in use, in chunks, and no less than `keep`; what was given back. */
static uint64_t release(struct CUmemPoolHandle_st *p, uint64_t keep, uint64_t unit)
{
    struct device *d = p->device;
    uint64_t want = round_up(p->granule_bytes, unit), bytes;

    want = want > round_up(keep, GRANULE_BYTES) ? want : round_up(keep, GRANULE_BYTES);
    if (p->is_imported || want >= p->reserved_bytes)
        return 0;
    bytes = p->reserved_bytes - want;
    pthread_mutex_lock(&d->memory_lock);
    if (p->shared.id)
        (void)shared_move(&p->shared, -(int64_t)bytes);
    sim_uncharge(&d->ledger, bytes, SIM_CHARGE_MEMORY);
    pthread_mutex_unlock(&d->memory_lock);
    p->reserved_bytes = want;
    return bytes;
}

static void free_now(struct CUmemPoolHandle_st *p, uint64_t address)
{
    struct va_range gone;

    va_free(&p->window, address, &gone);
    p->granule_bytes -= gone.bytes;
    p->live--;
}

/* Frees what its stream is known to have passed. */
static void settle(struct CUmemPoolHandle_st *p)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->freed_count; i++) {
        if (queue_is_done(p->freed[i].index, p->freed[i].number))
            free_now(p, p->freed[i].address);
        else
            p->freed[kept++] = p->freed[i];
    }
    p->freed_count = kept;
}

static void pool_drop(struct CUmemPoolHandle_st *p)
{
    struct CUmemPoolHandle_st **at = &pools;

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    atomic_fetch_sub(&pool_count, 1);
    p->granule_bytes = 0;
    (void)release(p, 0, GRANULE_BYTES);
    if (p->shared.id)
        p->window.file = -1; /* the object's, closed with it */
    va_close(&p->window);
    if (p->shared.id)
        shared_drop(&p->shared);
    free(p->freed);
    free(p->imports);
    p->freed = NULL;
    p->imports = NULL;
    p->magic = MAGIC_DEAD;
}

void pool_synchronised(void)
{
    if (!atomic_load_explicit(&is_dirty, memory_order_relaxed))
        return;
    pthread_mutex_lock(&pool_lock);
    atomic_store(&is_dirty, false);
    for (struct CUmemPoolHandle_st *p = pools, *next; p; p = next) {
        next = p->next;
        settle(p);
        if (p->freed_count)
            atomic_store(&is_dirty, true);
        if (p->is_destroyed && !p->live)
            pool_drop(p);
        else
            (void)release(p, p->release_threshold, CHUNK_BYTES);
    }
    pthread_mutex_unlock(&pool_lock);
}

bool pool_squeeze(struct device *d)
{
    uint64_t bytes = 0;

    if (!atomic_load_explicit(&pool_count, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&pool_lock);
    for (struct CUmemPoolHandle_st *p = pools; p; p = p->next) {
        if (p->device == d) {
            settle(p);
            bytes += release(p, 0, GRANULE_BYTES);
        }
    }
    pthread_mutex_unlock(&pool_lock);
    return bytes > 0;
}

void pool_trim(struct CUmemPoolHandle_st *p, uint64_t keep)
{
    pthread_mutex_lock(&pool_lock);
    settle(p);
    (void)release(p, keep, GRANULE_BYTES);
    pthread_mutex_unlock(&pool_lock);
}

/* Taking and giving */

static void count_used(struct CUmemPoolHandle_st *p, uint64_t bytes)
{
    p->used_bytes += sim_round_bytes(bytes);
    if (p->used_bytes > p->used_high_bytes)
        p->used_high_bytes = p->used_bytes;
}

/* One that the stream itself has freed, of the same size class. */
static CUdeviceptr take_freed(struct CUmemPoolHandle_st *p, uint64_t bytes,
                              const struct CUstream_st *stream)
{
    for (size_t i = p->freed_count; stream && i-- > 0;) {
        uint64_t base;
        struct va_record *r;

        if (p->freed[i].stream != stream->id)
            continue;
        r = va_find(&p->window, p->freed[i].address, &base);
        if (r && va_room(r->bytes) == va_room(bytes)) {
            r->bytes = bytes;
            r->kind = VA_DEVICE;
            p->freed[i] = p->freed[--p->freed_count];
            return base;
        }
    }
    return 0;
}

static bool grow(struct CUmemPoolHandle_st *p, uint64_t cost)
{
    uint64_t more;

    if (p->granule_bytes + cost <= p->reserved_bytes)
        return true;
    more = p->granule_bytes + cost - p->reserved_bytes;
    if (p->props.maxSize && p->reserved_bytes + more > p->props.maxSize)
        return false;
    if (!p->props.maxSize || p->reserved_bytes + round_up(more, CHUNK_BYTES) <= p->props.maxSize) {
        if (reserve(p, round_up(more, CHUNK_BYTES)))
            return true;
    }
    return reserve(p, more);
}

static CUdeviceptr take(struct CUmemPoolHandle_st *p, uint64_t bytes,
                        const struct CUstream_st *stream)
{
    CUdeviceptr address;
    uint64_t cost;

    settle(p);
    address = take_freed(p, bytes, stream);
    if (!address) {
        cost = va_cost(&p->window, bytes);
        if (!grow(p, cost))
            return 0;
        address = va_alloc(&p->window, bytes, 0, VA_DEVICE);
        if (!address)
            return 0;
        p->granule_bytes += cost;
        p->live++;
    }
    count_used(p, bytes);
    return address;
}

static CUdeviceptr take_locked(struct CUmemPoolHandle_st *p, uint64_t bytes,
                               const struct CUstream_st *stream)
{
    CUdeviceptr address;

    pthread_mutex_lock(&pool_lock);
    address = take(p, bytes, stream);
    pthread_mutex_unlock(&pool_lock);
    return address;
}

/* For an allocation that finds no room: waits for the oldest of what streams have freed, as the
 * stream that asked would have to. False when there is none. */
static bool wait_for_freed(struct CUmemPoolHandle_st *p)
{
    struct pool_freed oldest = {0};
    size_t count;

    pthread_mutex_lock(&pool_lock);
    count = p->freed_count;
    if (count)
        oldest = p->freed[0];
    pthread_mutex_unlock(&pool_lock);
    return count && queue_wait(oldest.index, oldest.number, 0, NULL) == CUDA_SUCCESS;
}

CUresult pool_take(struct CUmemPoolHandle_st *p, size_t bytes, struct CUstream_st *stream,
                   CUdeviceptr *address)
{
    CUdeviceptr found;

    NEED(bytes, CUDA_ERROR_INVALID_VALUE);
    NEED(bytes <= p->device->info.total_bytes, CUDA_ERROR_OUT_OF_MEMORY);
    do {
        found = take_locked(p, bytes, stream);
        if (!found && pool_squeeze(p->device))
            found = take_locked(p, bytes, stream);
    } while (!found && wait_for_freed(p));
    NEED(found, CUDA_ERROR_OUT_OF_MEMORY);
    *address = found;
    return CUDA_SUCCESS;
}

static struct CUmemPoolHandle_st *pool_around(CUdeviceptr address)
{
    struct CUmemPoolHandle_st *p;

    for (p = pools; p && !va_contains(&p->window, address); p = p->next)
        ;
    return p;
}

static struct pool_import *import_around(const struct CUmemPoolHandle_st *p, CUdeviceptr address)
{
    for (size_t i = 0; i < p->import_count; i++) {
        if (address - p->imports[i].address < p->imports[i].bytes)
            return &p->imports[i];
    }
    return NULL;
}

/* Remembers what is freed until its stream has passed; without memory for that it is freed now. */
static void defer(struct CUmemPoolHandle_st *p, struct pool_freed freed)
{
    if (p->freed_count == p->freed_room) {
        size_t room = p->freed_room ? p->freed_room * 2 : 64;
        struct pool_freed *more = realloc(p->freed, room * sizeof(*more));

        if (!more) {
            free_now(p, freed.address);
            return;
        }
        p->freed = more;
        p->freed_room = room;
    }
    p->freed[p->freed_count++] = freed;
}

/* A mark in the stream behind all that uses the memory; false when there is nothing to wait for. */
static bool mark(struct CUstream_st *stream, struct pool_freed *freed)
{
    if (!stream || (!stream->is_legacy && stream_is_done(stream)) ||
        queue_push(stream, (struct sim_op){.kind = SIM_OP_MARK}, &freed->number, NULL) !=
            CUDA_SUCCESS)
        return false;
    freed->index = atomic_load_explicit(&stream->index, memory_order_relaxed);
    freed->stream = stream->id;
    return true;
}

CUresult pool_give(CUdeviceptr address, struct CUstream_st *stream)
{
    struct pool_freed freed = {.address = address};
    bool is_later = mark(stream, &freed);
    uint64_t base;
    struct CUmemPoolHandle_st *p;
    struct pool_import *import;
    struct va_record *r;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    pthread_mutex_lock(&pool_lock);
    p = pool_around(address);
    import = p ? import_around(p, address) : NULL;
    r = p && !p->is_imported ? va_find(&p->window, address, &base) : NULL;
    if (import && import->address == address) {
        *import = p->imports[--p->import_count];
        p->live--;
        rc = CUDA_SUCCESS;
    } else if (r && base == address && r->kind != VA_FREED) {
        p->used_bytes -= sim_round_bytes(r->bytes);
        r->kind = VA_FREED;
        if (is_later)
            defer(p, freed);
        else
            free_now(p, address);
        atomic_store_explicit(&is_dirty, true, memory_order_relaxed);
        rc = CUDA_SUCCESS;
    }
    if (rc == CUDA_SUCCESS && p->is_destroyed && !p->live)
        pool_drop(p);
    pthread_mutex_unlock(&pool_lock);
    return rc;
}

CUresult pool_free(CUdeviceptr address)
{
    TRY(pool_give(address, NULL));
    pool_synchronised(); /* the caller has waited for everything */
    return CUDA_SUCCESS;
}

void pool_find(CUdeviceptr address, struct place *place)
{
    struct CUmemPoolHandle_st *p;
    struct pool_import *import;
    struct va_record *r;

    if (!atomic_load_explicit(&pool_count, memory_order_relaxed))
        return;
    pthread_mutex_lock(&pool_lock);
    p = pool_around(address);
    import = p ? import_around(p, address) : NULL;
    r = p && !p->is_imported ? va_find(&p->window, address, &place->base) : NULL;
    if (import) {
        place->base = import->address;
        place->bytes = import->bytes;
    } else if (r && r->kind != VA_FREED) {
        place->bytes = r->bytes;
    }
    if (place->bytes) {
        place->kind = PLACE_POOL;
        place->device = p->device;
        place->pool = p;
    }
    pthread_mutex_unlock(&pool_lock);
}

void *pool_host(CUdeviceptr address, size_t bytes, bool is_write)
{
    struct CUmemPoolHandle_st *p;
    struct pool_import *import;
    struct va_record *r;
    uint64_t base, left = 0;
    void *host = NULL;

    if (!atomic_load_explicit(&pool_count, memory_order_relaxed))
        return NULL;
    pthread_mutex_lock(&pool_lock);
    p = pool_around(address);
    import = p ? import_around(p, address) : NULL;
    r = p && !p->is_imported ? va_find(&p->window, address, &base) : NULL;
    if (import)
        left = import->bytes - (address - import->address);
    else if (r && r->kind != VA_FREED)
        left = r->bytes - (address - base);
    if (left && bytes <= left) {
        if (r)
            r->touched |= is_write;
        host = (void *)(uintptr_t)(address + p->window.alias);
    }
    pthread_mutex_unlock(&pool_lock);
    return host;
}

/* Life of a pool */

CUresult pool_open(struct device *d, const CUmemPoolProps *props, struct shared *imported,
                   uint64_t imported_bytes, struct CUmemPoolHandle_st **out)
{
    struct CUmemPoolHandle_st *p = calloc(1, sizeof(*p));
    uint64_t bytes = (d->info.total_bytes + WINDOW_SPARE_BYTES) & ~(GRANULE_BYTES - 1);
    int file = -1, rc;

    NEED(p, CUDA_ERROR_OUT_OF_MEMORY);
    p->device = d;
    p->props = *props;
    p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
    p->access[d->ordinal] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (imported) {
        p->is_imported = true;
        p->shared = *imported;
        bytes = imported_bytes;
    } else if (props->handleTypes) {
        CUresult made;

        pthread_mutex_lock(&d->memory_lock);
        made = shared_make(d, OBJECT_POOL, 0, bytes, NULL, 0, &p->shared);
        pthread_mutex_unlock(&d->memory_lock);
        if (made != CUDA_SUCCESS) {
            free(p);
            return made;
        }
    } else {
        file = memory_file("simgpu-pool", bytes);
    }
    rc = p->shared.id ? va_open(&p->window, bytes, p->shared.file)
         : file < 0   ? file
                      : va_open(&p->window, bytes, file);
    if (rc != 0) {
        if (file >= 0)
            close(file);
        if (p->shared.id && !imported)
            shared_drop(&p->shared);
        free(p);
        return memory_failed(rc);
    }
    pthread_mutex_lock(&pool_lock);
    p->next = pools;
    pools = p;
    p->magic = MAGIC_POOL;
    atomic_fetch_add(&pool_count, 1);
    pthread_mutex_unlock(&pool_lock);
    *out = p;
    return CUDA_SUCCESS;
}

void pool_close(struct CUmemPoolHandle_st *p)
{
    pthread_mutex_lock(&pool_lock);
    settle(p);
    p->is_destroyed = true;
    if (!p->live)
        pool_drop(p);
    else
        atomic_store(&is_dirty, true);
    pthread_mutex_unlock(&pool_lock);
}
