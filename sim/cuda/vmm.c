/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reserved addresses and what is mapped at them: cuMemAddressReserve, cuMemMap and their like, and
 * the mappings the driver makes for itself (memory of other processes). Each reservation is twice
 * its size: the addresses, which the host cannot touch, and behind them the bytes. Reservations and
 * the mappings of each are arrays in order of address, under physical_lock.
 */
#include "cuda/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct mapping {
    uint64_t base, bytes, offset; /* offset in the physical memory */
    struct physical *physical;
    uint8_t access[SIM_MAX_DEVICES]; /* CUmemAccess_flags by device */
};

struct reservation {
    uint64_t base, bytes;
    struct mapping *mappings;
    size_t count, room;
    bool is_own, is_ipc;    /* made by the driver itself, */
    uint64_t shown, extent; /* for these bytes: there may be more in the granules around */
};

static struct reservation **all;
static size_t count, room;
_Atomic uint32_t vmm_count;

/* Number of reservations whose base is not above address. */
static size_t upto(uint64_t address)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (all[middle]->base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct reservation *reservation_of(uint64_t address)
{
    size_t at = upto(address);

    return at && address - all[at - 1]->base < all[at - 1]->bytes ? all[at - 1] : NULL;
}

/* Number of mappings whose base is not above address. */
static size_t mapping_upto(const struct reservation *r, uint64_t address)
{
    size_t low = 0, high = r->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (r->mappings[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct mapping *mapping_of(const struct reservation *r, uint64_t address)
{
    size_t at = mapping_upto(r, address);
    struct mapping *m = at ? &r->mappings[at - 1] : NULL;

    return m && address - m->base < m->bytes ? m : NULL;
}

/* Whole mappings that together are exactly [address, address + bytes); the first and how many. */
static struct mapping *exactly(uint64_t address, uint64_t bytes, struct reservation **r, size_t *n)
{
    struct mapping *first;
    uint64_t at = address;

    *r = reservation_of(address);
    first = *r ? mapping_of(*r, address) : NULL;
    if (!first || first->base != address || !bytes)
        return NULL;
    for (*n = 0; at - address < bytes; (*n)++) {
        struct mapping *m = first + *n;

        if (m == (*r)->mappings + (*r)->count || m->base != at)
            return NULL;
        at += m->bytes;
    }
    return at - address == bytes ? first : NULL;
}

static bool is_host(const struct physical *p)
{
    return !p->device && !p->multicast;
}

/* Lays the mapping's bytes behind its addresses (and, of host memory, at them). */
static bool lay(const struct reservation *r, const struct mapping *m)
{
    int flags = MAP_FIXED | MAP_SHARED | MAP_NORESERVE, protection = PROT_READ | PROT_WRITE;
    off_t offset = (off_t)(m->physical->offset + m->offset);
    int file = m->physical->file;

    if (file < 0)
        return true; /* a multicast object has no bytes */
    return mmap((void *)(uintptr_t)(m->base + r->bytes), m->bytes, protection, flags, file,
                offset) != MAP_FAILED &&
           (!is_host(m->physical) || mmap((void *)(uintptr_t)m->base, m->bytes, protection, flags,
                                          file, offset) != MAP_FAILED);
}

static void unlay(const struct reservation *r, const struct mapping *m)
{
    int flags = MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

    (void)!mmap((void *)(uintptr_t)(m->base + r->bytes), m->bytes, PROT_NONE, flags, -1, 0);
    if (is_host(m->physical))
        (void)!mmap((void *)(uintptr_t)m->base, m->bytes, PROT_NONE, flags, -1, 0);
}

bool vmm_remap(const struct physical *p)
{
    if (p->fixed &&
        mmap((void *)(uintptr_t)p->fixed, p->bytes, PROT_READ | PROT_WRITE,
             MAP_FIXED | MAP_SHARED | MAP_NORESERVE, p->file, (off_t)p->offset) == MAP_FAILED)
        return false;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < all[i]->count; k++) {
            if (all[i]->mappings[k].physical == p && !lay(all[i], &all[i]->mappings[k]))
                return false;
        }
    }
    return true;
}

/* Reservations */

static CUresult reserve(uint64_t bytes, uint64_t alignment, uint64_t wish, struct reservation **out)
{
    uint64_t span = bytes * 2, more = alignment > GRANULE_BYTES ? alignment : GRANULE_BYTES;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    struct reservation *r;
    size_t at;
    char *map = MAP_FAILED;

    if (count == room) {
        struct reservation **grown =
            realloc(all, (room ? room * 2 : 16) * sizeof(struct reservation *));

        NEED(grown, CUDA_ERROR_OUT_OF_MEMORY);
        all = grown;
        room = room ? room * 2 : 16;
    }
    r = calloc(1, sizeof(*r));
    NEED(r, CUDA_ERROR_OUT_OF_MEMORY);
    if (wish && wish % more == 0) {
        map = mmap((void *)(uintptr_t)wish, span, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (map != MAP_FAILED && (uintptr_t)map != wish) { /* a kernel that takes it for a hint */
            munmap(map, span);
            map = MAP_FAILED;
        }
    }
    if (map == MAP_FAILED) {
        map = mmap(NULL, span + more, PROT_NONE, flags, -1, 0);
        if (map == MAP_FAILED) {
            free(r);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        uint64_t start = (uint64_t)(uintptr_t)map, base = (start + more - 1) / more * more;

        if (base != start)
            munmap(map, base - start);
        munmap((void *)(uintptr_t)(base + span), start + more - base);
        map = (char *)(uintptr_t)base;
    }
    r->base = (uint64_t)(uintptr_t)map;
    r->bytes = bytes;
    at = upto(r->base);
    memmove(&all[at + 1], &all[at], (count - at) * sizeof(struct reservation *));
    all[at] = r;
    count++;
    atomic_fetch_add(&vmm_count, 1);
    *out = r;
    return CUDA_SUCCESS;
}

static void unreserve(struct reservation *r)
{
    size_t at = upto(r->base) - 1;

    memmove(&all[at], &all[at + 1], (count - at - 1) * sizeof(struct reservation *));
    count--;
    atomic_fetch_sub(&vmm_count, 1);
    munmap((void *)(uintptr_t)r->base, r->bytes * 2);
    free(r->mappings);
    free(r);
}

/* Takes over a reference (as a mapping) of the physical memory. */
static CUresult map(struct reservation *r, uint64_t base, uint64_t bytes, uint64_t offset,
                    struct physical *p)
{
    struct mapping m = {base, bytes, offset, p, {0}};
    size_t at;

    if (r->count == r->room) {
        struct mapping *grown = realloc(r->mappings, (r->room ? r->room * 2 : 4) * sizeof(*grown));

        NEED(grown, CUDA_ERROR_OUT_OF_MEMORY);
        r->mappings = grown;
        r->room = r->room ? r->room * 2 : 4;
    }
    if (!lay(r, &m)) {
        unlay(r, &m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    at = mapping_upto(r, base);
    memmove(&r->mappings[at + 1], &r->mappings[at], (r->count - at) * sizeof(m));
    r->mappings[at] = m;
    r->count++;
    return CUDA_SUCCESS;
}

static void unmap(struct reservation *r, struct mapping *first, size_t n)
{
    struct mapping *end = first + n;

    for (struct mapping *m = first; m < end; m++) {
        unlay(r, m);
        physical_put(m->physical, true);
    }
    memmove(first, end, (size_t)(r->mappings + r->count - end) * sizeof(*first));
    r->count -= n;
}

CUresult vmm_map(struct physical *p, uint64_t offset, uint64_t bytes, bool is_ipc,
                 CUdeviceptr *address)
{
    struct reservation *r;
    uint64_t before = offset % GRANULE_BYTES;
    uint64_t whole = (before + bytes + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES;
    CUresult rc;

    TRY(reserve(whole, 0, 0, &r));
    r->is_own = true;
    r->is_ipc = is_ipc;
    rc = map(r, r->base, whole, offset - before, p);
    if (rc != CUDA_SUCCESS) {
        unreserve(r);
        return rc;
    }
    memset(r->mappings[0].access, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, SIM_MAX_DEVICES);
    r->shown = r->base + before;
    r->extent = bytes;
    *address = r->shown;
    return CUDA_SUCCESS;
}

CUresult vmm_unmap(CUdeviceptr address, bool is_ipc)
{
    struct reservation *r = reservation_of(address);

    NEED(r && r->is_own && r->is_ipc == is_ipc && address == r->shown, CUDA_ERROR_INVALID_VALUE);
    unmap(r, r->mappings, r->count);
    unreserve(r);
    return CUDA_SUCCESS;
}

void vmm_find(CUdeviceptr address, struct place *place)
{
    struct reservation *r;
    struct mapping *m;

    pthread_mutex_lock(&physical_lock);
    r = reservation_of(address);
    m = r ? mapping_of(r, address) : NULL;
    if (m && (!r->is_own || address - r->shown < r->extent)) {
        place->kind = r->is_own ? PLACE_IMPORTED : PLACE_MAPPED;
        place->device = m->physical->device;
        place->base = r->is_own ? r->shown : m->base;
        place->bytes = r->is_own ? r->extent : m->bytes;
        place->physical = m->physical;
        place->is_ipc = r->is_ipc;
    }
    pthread_mutex_unlock(&physical_lock);
}

/* The device whose access counts: the current context's. */
static int accessor(void)
{
    struct CUctx_st *c;

    return current(&c) == CUDA_SUCCESS ? c->device->ordinal : -1;
}

void *vmm_host(CUdeviceptr address, size_t bytes, bool is_write)
{
    int who = accessor();
    uint8_t need = is_write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    struct reservation *r;
    void *host = NULL;

    pthread_mutex_lock(&physical_lock);
    r = reservation_of(address);
    if (r && (!r->is_own ||
              (address - r->shown < r->extent && bytes <= r->extent - (address - r->shown)))) {
        struct mapping *m = mapping_of(r, address), *end = r->mappings + r->count;
        uint64_t at = address;

        /* Mappings side by side are one stretch of memory. */
        while (m && m < end && m->base <= at && m->physical->file >= 0 &&
               (who < 0 || (m->access[who] & need) == need)) {
            at = m->base + m->bytes;
            if (at - address >= bytes) {
                host = (void *)(uintptr_t)(address + r->bytes);
                break;
            }
            m++;
        }
    }
    pthread_mutex_unlock(&physical_lock);
    return host;
}

/* Entry points */

static bool is_whole(uint64_t bytes)
{
    return bytes && bytes % GRANULE_BYTES == 0;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags)
{
    struct reservation *r;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(address && is_whole(bytes) && !(alignment & (alignment - 1)) && !flags,
         CUDA_ERROR_INVALID_VALUE);
    NEED(bytes <= 1ull << 46 && alignment <= 1ull << 40, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&physical_lock);
    rc = reserve(bytes, alignment, wish, &r);
    if (rc == CUDA_SUCCESS)
        *address = r->base;
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes)
{
    struct reservation *r;
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    pthread_mutex_lock(&physical_lock);
    r = reservation_of(address);
    if (r && r->base == address && r->bytes == bytes && !r->count && !r->is_own) {
        unreserve(r);
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

/* What the properties ask for; *device NULL for the host's memory. */
static CUresult properties_check(const CUmemAllocationProp *prop, struct device **device)
{
    *device = NULL;
    NEED(prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    NEED(prop->requestedHandleTypes <= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
         CUDA_ERROR_NOT_SUPPORTED);
    switch (prop->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return device_get(prop->location.id, device);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return prop->location.id >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
    struct device *d;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(bytes && option <= CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, CUDA_ERROR_INVALID_VALUE);
    TRY(properties_check(prop, &d));
    *bytes = GRANULE_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct device *d;
    struct physical *p;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(handle && is_whole(bytes) && !flags, CUDA_ERROR_INVALID_VALUE);
    TRY(properties_check(prop, &d));
    pthread_mutex_lock(&physical_lock);
    rc = physical_new(d, bytes, &p);
    if (rc == CUDA_SUCCESS) {
        p->prop = *prop;
        *handle = (uintptr_t)p;
    }
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct physical *p;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    pthread_mutex_lock(&physical_lock);
    rc = physical_of(handle, &p);
    if (rc == CUDA_SUCCESS)
        physical_put(p, false);
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    struct reservation *r;
    struct mapping *m;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(handle, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&physical_lock);
    r = reservation_of((uintptr_t)address);
    m = r && !r->is_own ? mapping_of(r, (uintptr_t)address) : NULL;
    if (m) {
        m->physical->handles++;
        *handle = (uintptr_t)m->physical;
    }
    pthread_mutex_unlock(&physical_lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                CUmemGenericAllocationHandle handle)
{
    struct physical *p;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(prop, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&physical_lock);
    rc = physical_of(handle, &p);
    if (rc == CUDA_SUCCESS)
        *prop = p->prop;
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct reservation *r;
    struct physical *p;
    CUresult rc;
    size_t at;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(is_whole(bytes) && address % GRANULE_BYTES == 0 && !offset && !flags,
         CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&physical_lock);
    rc = physical_of(handle, &p);
    r = rc == CUDA_SUCCESS ? reservation_of(address) : NULL;
    if (r && !r->is_own && bytes <= p->bytes && bytes <= r->bytes - (address - r->base)) {
        at = mapping_upto(r, address);
        if ((at && address - r->mappings[at - 1].base < r->mappings[at - 1].bytes) ||
            (at < r->count && r->mappings[at].base - address < bytes))
            rc = CUDA_ERROR_INVALID_VALUE; /* something is mapped there */
        else
            rc = map(r, address, bytes, offset, p);
        if (rc == CUDA_SUCCESS)
            p->mappings++;
    } else {
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    struct reservation *r;
    struct mapping *m;
    size_t n;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    pthread_rwlock_wrlock(&memory_bytes_lock); /* no copy may be under way there */
    pthread_mutex_lock(&physical_lock);
    m = exactly(address, bytes, &r, &n);
    if (m && !r->is_own)
        unmap(r, m, n);
    else
        m = NULL;
    pthread_mutex_unlock(&physical_lock);
    pthread_rwlock_unlock(&memory_bytes_lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t n)
{
    struct reservation *r;
    struct mapping *m;
    struct device *d;
    size_t mappings;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(desc && n, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++) {
        NEED(desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                 desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                 desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
             CUDA_ERROR_INVALID_VALUE);
        if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            TRY(device_get(desc[i].location.id, &d));
        else
            NEED(desc[i].location.type >= CU_MEM_LOCATION_TYPE_HOST &&
                     desc[i].location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT,
                 CUDA_ERROR_INVALID_VALUE);
    }
    pthread_mutex_lock(&physical_lock);
    m = exactly(address, bytes, &r, &mappings);
    if (m && r->is_own)
        m = NULL;
    for (size_t i = 0; m && i < n * mappings; i++) {
        const CUmemAccessDesc *a = &desc[i % n];

        if (a->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            m[i / n].access[a->location.id] = (uint8_t)a->flags;
    }
    pthread_mutex_unlock(&physical_lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr address)
{
    struct reservation *r;
    struct mapping *m;
    struct device *d;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(flags && location && location->type == CU_MEM_LOCATION_TYPE_DEVICE,
         CUDA_ERROR_INVALID_VALUE);
    TRY(device_get(location->id, &d));
    pthread_mutex_lock(&physical_lock);
    r = reservation_of(address);
    m = r ? mapping_of(r, address) : NULL;
    if (m)
        *flags = m->access[location->id];
    pthread_mutex_unlock(&physical_lock);
    return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    struct physical *p;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(out && !flags, CUDA_ERROR_INVALID_VALUE);
    pthread_rwlock_wrlock(&memory_bytes_lock);
    pthread_mutex_lock(&physical_lock);
    rc = physical_of(handle, &p);
    /* Only what was made to be exported, in the way that was named then. */
    if (rc == CUDA_SUCCESS && (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
                               !(p->prop.requestedHandleTypes & type)))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS)
        rc = physical_share(p);
    if (rc == CUDA_SUCCESS)
        rc = shared_token(&p->shared, out);
    pthread_mutex_unlock(&physical_lock);
    pthread_rwlock_unlock(&memory_bytes_lock);
    return rc;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *os_handle,
                                        CUmemAllocationHandleType type)
{
    struct sim_object_answer what;
    struct physical *p;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(handle, CUDA_ERROR_INVALID_VALUE);
    NEED(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    pthread_mutex_lock(&physical_lock);
    rc = physical_join((int)(intptr_t)os_handle, 0, &p, &what);
    if (rc == CUDA_SUCCESS)
        *handle = (uintptr_t)p;
    pthread_mutex_unlock(&physical_lock);
    return rc == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_INVALID_VALUE : rc;
}
