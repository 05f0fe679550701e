/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory: linear and managed allocation, what an address leads to, and the figures of
 * cuMemGetInfo. Each device's windows and account are under its memory lock. A card hands out
 * granules of 2 MiB: an allocation is charged when it opens blocks, and small ones share them.
 */
#include "cuda/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda/host.h"
#include "cuda/pool.h"

#define PITCH_BYTES 512u
#define WINDOW_SPARE_BYTES (64ull << 30)

pthread_rwlock_t memory_bytes_lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

int memory_file(const char *name, uint64_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC);

    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0) {
        int saved = errno;

        close(fd);
        return -saved;
    }
    return fd < 0 ? -errno : fd;
}

CUresult memory_failed(int rc)
{
    return rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult memory_open(struct device *d)
{
    /* Several times the device's size, so that addresses do not run out first. */
    uint64_t bytes = (d->info.total_bytes * 4 + WINDOW_SPARE_BYTES) & ~(VA_BLOCK_BYTES - 1);
    int rc, file;

    if (!d->memory.base) {
        file = memory_file("simgpu-device", bytes);
        NEED(file >= 0, memory_failed(file));
        rc = va_open(&d->memory, bytes, file);
        if (rc != 0) {
            close(file);
            return memory_failed(rc);
        }
    }
    if (!d->managed.base) {
        rc = va_open(&d->managed, bytes, -1);
        NEED(rc == 0, memory_failed(rc));
    }
    return CUDA_SUCCESS;
}

static struct device *window_device(CUdeviceptr address)
{
    for (int i = 0; i < driver_device_count; i++) {
        struct device *d = &driver_devices[i];

        if (va_contains(&d->memory, address) || va_contains(&d->managed, address))
            return d;
    }
    return NULL;
}

static struct va_window *window_of(struct device *d, CUdeviceptr address)
{
    return va_contains(&d->memory, address) ? &d->memory : &d->managed;
}

/* Whether the address may be one of a pool or a mapping. */
static bool is_elsewhere(void)
{
    return atomic_load_explicit(&vmm_count, memory_order_relaxed) ||
           atomic_load_explicit(&is_graph_memory_used, memory_order_relaxed) ||
           atomic_load_explicit(&pool_count, memory_order_relaxed);
}

void memory_find(CUdeviceptr address, struct place *place)
{
    struct device *d = window_device(address);

    *place = (struct place){.kind = PLACE_NONE};
    if (d) {
        struct va_record *r;

        pthread_mutex_lock(&d->memory_lock);
        r = va_find(window_of(d, address), address, &place->base);
        if (r && r->kind != VA_ARRAY) {
            place->kind = r->kind == VA_MANAGED ? PLACE_MANAGED : PLACE_LINEAR;
            place->of = r->kind;
            place->device = d;
            place->bytes = r->bytes;
            place->owner = r->owner;
            place->is_synchronous = r->touched & VA_SYNCHRONOUS;
        }
        pthread_mutex_unlock(&d->memory_lock);
    } else if (is_elsewhere()) {
        pool_find(address, place);
        if (place->kind == PLACE_NONE)
            graph_memory_find(address, place);
        if (place->kind == PLACE_NONE)
            vmm_find(address, place);
    }
}

void memory_set_synchronous(CUdeviceptr address, bool is_synchronous)
{
    struct device *d = window_device(address);
    struct va_record *r;
    uint64_t base;

    if (!d)
        return;
    pthread_mutex_lock(&d->memory_lock);
    r = va_find(window_of(d, address), address, &base);
    if (r && is_synchronous)
        r->touched |= VA_SYNCHRONOUS;
    else if (r)
        r->touched &= (uint8_t)~VA_SYNCHRONOUS;
    pthread_mutex_unlock(&d->memory_lock);
}

struct device *memory_device(CUdeviceptr address)
{
    struct device *d = window_device(address);
    struct place place;

    if (d || !is_elsewhere())
        return d;
    memory_find(address, &place);
    /* Mapped memory of the host's is device memory all the same. */
    return place.kind == PLACE_NONE ? NULL : place.device ? place.device : &driver_devices[0];
}

/* is_hosted: it has blocks of its own, which are the host's and cost the device nothing. */
static uint64_t alloc_once(struct CUctx_st *context, size_t bytes, enum va_kind kind,
                           bool is_hosted)
{
    struct device *d = context->device;
    struct va_window *w = kind == VA_MANAGED ? &d->managed : &d->memory;
    uint64_t cost, base, address = 0;

    pthread_mutex_lock(&d->memory_lock);
    cost = is_hosted ? 0 : va_cost(w, bytes);
    if (!cost || sim_charge(&d->ledger, cost, SIM_CHARGE_MEMORY)) {
        address = va_alloc(w, bytes, context->id, kind);
        if (!address && cost)
            sim_uncharge(&d->ledger, cost, SIM_CHARGE_MEMORY);
        if (address && is_hosted)
            va_find(w, address, &base)->touched |= VA_HOSTED;
    }
    pthread_mutex_unlock(&d->memory_lock);
    return address;
}

void managed_move(CUdeviceptr address, bool is_to_host)
{
    struct device *d = window_device(address);
    struct va_record *r;
    uint64_t base, bytes;

    if (!d)
        return;
    pthread_mutex_lock(&d->memory_lock);
    r = va_find(&d->managed, address, &base);
    bytes = r ? va_own_bytes(r->bytes) : 0;
    if (bytes && is_to_host && !(r->touched & VA_HOSTED)) {
        sim_uncharge(&d->ledger, bytes, SIM_CHARGE_MEMORY);
        r->touched |= VA_HOSTED;
    } else if (bytes && !is_to_host && (r->touched & VA_HOSTED) &&
               sim_charge(&d->ledger, bytes, SIM_CHARGE_MEMORY)) {
        r->touched &= (uint8_t)~VA_HOSTED;
    }
    pthread_mutex_unlock(&d->memory_lock);
}

CUresult memory_alloc(struct CUctx_st *context, size_t bytes, enum va_kind kind, CUdeviceptr *out)
{
    uint64_t address;

    NEED(bytes, CUDA_ERROR_INVALID_VALUE);
    NEED(kind == VA_MANAGED || bytes <= context->device->info.total_bytes,
         CUDA_ERROR_OUT_OF_MEMORY);
    address = alloc_once(context, bytes, kind, false);
    if (!address && pool_squeeze(context->device))
        address = alloc_once(context, bytes, kind, false);
    if (!address && kind == VA_MANAGED && va_own_bytes(bytes))
        address = alloc_once(context, bytes, kind, true);
    NEED(address, CUDA_ERROR_OUT_OF_MEMORY);
    *out = address;
    return CUDA_SUCCESS;
}

static bool is_of(const struct va_record *r, bool is_any_linear, enum va_kind kind)
{
    return is_any_linear ? r->kind == VA_DEVICE || r->kind == VA_MANAGED : r->kind == kind;
}

/* Under the memory lock: the allocation goes, and what it alone lay in. Shared memory is another
 * matter: the caller drops *shared once it holds no lock. */
static void give_locked(struct device *d, struct va_window *w, uint64_t base, enum va_kind kind,
                        struct physical **shared)
{
    struct va_range gone;
    uint64_t at;
    bool is_hosted = va_find(w, base, &at)->touched & VA_HOSTED;

    *shared = NULL;
    if (kind == VA_MANAGED)
        managed_forget(base);
    va_free(w, base, &gone);
    if (gone.shared) {
        *shared = gone.shared;
        (void)va_restore(w, &gone);
    } else if (gone.bytes && !is_hosted) {
        sim_uncharge(&d->ledger, gone.bytes, SIM_CHARGE_MEMORY);
    }
}

static void drop(struct physical *shared)
{
    if (!shared)
        return;
    pthread_mutex_lock(&physical_lock);
    shared->fixed = 0;
    physical_put(shared, false);
    pthread_mutex_unlock(&physical_lock);
}

static CUresult give(CUdeviceptr address, bool is_any_linear, enum va_kind kind)
{
    struct device *d = window_device(address);
    struct physical *shared = NULL;
    struct va_record *r;
    uint64_t base;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    NEED(d, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&d->memory_lock);
    r = va_find(window_of(d, address), address, &base);
    if (r && base == address && is_of(r, is_any_linear, kind)) {
        give_locked(d, window_of(d, address), base, r->kind, &shared);
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&d->memory_lock);
    drop(shared);
    return rc;
}

CUresult memory_free(CUdeviceptr address)
{
    struct place place;

    if (window_device(address))
        return give(address, true, VA_DEVICE);
    memory_find(address, &place);
    if (place.kind == PLACE_POOL)
        return pool_free(address);
    if (place.kind == PLACE_GRAPH)
        return graph_memory_free(address, NULL);
    NEED(place.kind == PLACE_IMPORTED, CUDA_ERROR_INVALID_VALUE);
    return mapped_free(address, false);
}

CUresult memory_release(CUdeviceptr address, enum va_kind kind)
{
    return give(address, false, kind);
}

CUresult mapped_free(CUdeviceptr address, bool is_ipc)
{
    CUresult rc;

    pthread_rwlock_wrlock(&memory_bytes_lock);
    pthread_mutex_lock(&physical_lock);
    rc = vmm_unmap(address, is_ipc);
    pthread_mutex_unlock(&physical_lock);
    pthread_rwlock_unlock(&memory_bytes_lock);
    return rc;
}

struct owned {
    struct device *device;
    struct va_window *window;
    struct physical *shared; /* linked through `next` */
};

static void free_one(uint64_t base, struct va_record *record, void *arg)
{
    struct owned *o = arg;
    struct physical *shared;

    give_locked(o->device, o->window, base, record->kind, &shared);
    if (shared) {
        shared->next = o->shared;
        o->shared = shared;
    }
}

void memory_free_owned(struct CUctx_st *context)
{
    struct device *d = context->device;
    struct owned o = {d, &d->memory, NULL};

    pthread_mutex_lock(&d->memory_lock);
    va_each(&d->memory, context->id, free_one, &o);
    o.window = &d->managed;
    va_each(&d->managed, context->id, free_one, &o);
    pthread_mutex_unlock(&d->memory_lock);
    while (o.shared) {
        struct physical *next = o.shared->next;

        drop(o.shared);
        o.shared = next;
    }
}

CUresult memory_share(CUdeviceptr address, struct physical **physical, uint64_t *offset,
                      uint64_t *bytes)
{
    struct device *d = window_device(address);
    struct va_record *r;
    struct va_range range;
    struct physical *p = NULL;
    uint64_t base;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    NEED(d && va_contains(&d->memory, address), CUDA_ERROR_INVALID_VALUE);
    pthread_rwlock_wrlock(&memory_bytes_lock);
    pthread_mutex_lock(&physical_lock);
    pthread_mutex_lock(&d->memory_lock);
    r = va_find(&d->memory, address, &base);
    if (r && r->kind == VA_DEVICE) {
        void **slot = va_sharing(&d->memory, base, &range);

        rc = CUDA_SUCCESS;
        p = range.shared;
        if (!p) {
            p = physical_blank();
            rc = p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (rc == CUDA_SUCCESS && !range.shared) {
            p->device = d;
            p->bytes = range.bytes;
            p->file = d->memory.file;
            p->offset = range.base - d->memory.base;
            p->fixed = range.base + d->memory.alias;
            rc = physical_share_locked(p);
            if (rc == CUDA_SUCCESS)
                *slot = p;
            else
                physical_forget(p);
        }
        *offset = base - range.base;
        *bytes = r->bytes;
    }
    pthread_mutex_unlock(&d->memory_lock);
    pthread_mutex_unlock(&physical_lock);
    pthread_rwlock_unlock(&memory_bytes_lock);
    *physical = p;
    return rc;
}

void *memory_host(CUdeviceptr address, size_t bytes, bool is_write)
{
    struct device *d = window_device(address);
    struct va_window *w;
    struct va_record *r;
    uint64_t base, host = 0;

    if (!d) {
        void *found;

        if (!is_elsewhere())
            return NULL;
        found = pool_host(address, bytes, is_write);
        if (!found)
            found = graph_memory_host(address, bytes, is_write);
        return found ? found : vmm_host(address, bytes, is_write);
    }
    w = window_of(d, address);
    pthread_mutex_lock(&d->memory_lock);
    r = va_find(w, address, &base);
    if (r && bytes <= r->bytes - (address - base)) {
        r->touched |= is_write;
        host = address + w->alias;
    }
    pthread_mutex_unlock(&d->memory_lock);
    return (void *)(uintptr_t)host;
}

/* Entry points */

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(address, CUDA_ERROR_INVALID_VALUE);
    TRY(capture_unsafe());
    return memory_alloc(c, bytes, VA_DEVICE, address);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                            unsigned int element)
{
    struct CUctx_st *c;
    size_t row = (width + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES, bytes;

    TRY(current(&c));
    NEED(address && pitch && width && height && (element == 4 || element == 8 || element == 16) &&
             row >= width,
         CUDA_ERROR_INVALID_VALUE);
    NEED(!__builtin_mul_overflow(row, height, &bytes), CUDA_ERROR_OUT_OF_MEMORY);
    TRY(capture_unsafe());
    TRY(memory_alloc(c, bytes, VA_DEVICE, address));
    *pitch = row;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags)
{
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(address && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST),
         CUDA_ERROR_INVALID_VALUE);
    TRY(capture_unsafe());
    return memory_alloc(c, bytes, VA_MANAGED, address);
}

CUresult cuMemFree_v2(CUdeviceptr address)
{
    struct CUctx_st *c;

    TRY(current(&c));
    if (!address)
        return CUDA_SUCCESS;
    /* As on a card, memory is not taken away under running kernels. */
    TRY(context_wait(c));
    return memory_free(address);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    struct CUctx_st *c;
    uint64_t used, total;

    TRY(current(&c));
    NEED(free_bytes && total_bytes, CUDA_ERROR_INVALID_VALUE);
    used = sim_word_bytes(atomic_load(&c->device->shared->used));
    total = c->device->shared->capacity_bytes;
    *total_bytes = total;
    total = sim_usable_bytes(c->device->shared);
    *free_bytes = used < total ? total - used : 0;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
    size_t f, t;

    NEED(free_bytes && total_bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(cuMemGetInfo_v2(&f, &t));
    *free_bytes = f > UINT32_MAX ? UINT32_MAX : (unsigned int)f;
    *total_bytes = t > UINT32_MAX ? UINT32_MAX : (unsigned int)t;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address)
{
    struct CUctx_st *c;
    struct place place;

    TRY(current(&c));
    memory_find(address, &place);
    NEED(place.kind != PLACE_NONE, CUDA_ERROR_NOT_FOUND);
    if (base)
        *base = place.base;
    if (bytes)
        *bytes = place.bytes;
    return CUDA_SUCCESS;
}
