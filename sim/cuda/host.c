/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page-locked memory of host.h. Nothing is really locked: the simulated device reads it with plain
 * loads.
 */
#include "cuda/host.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/driver.h"

#define PAGE_BYTES 4096ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct host_range *ranges;
static size_t count, room;

/* Number of ranges whose base is not above address. */
static size_t upto(uint64_t address)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (ranges[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static CUresult add(struct host_range range)
{
    size_t at;

    if (count == room) {
        struct host_range *more = realloc(ranges, (room ? room * 2 : 64) * sizeof(*ranges));

        NEED(more, CUDA_ERROR_OUT_OF_MEMORY);
        ranges = more;
        room = room ? room * 2 : 64;
    }
    at = upto(range.base);
    if ((at > 0 && ranges[at - 1].base + ranges[at - 1].bytes > range.base) ||
        (at < count && range.base + range.bytes > ranges[at].base))
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    memmove(&ranges[at + 1], &ranges[at], (count - at) * sizeof(*ranges));
    ranges[at] = range;
    count++;
    return CUDA_SUCCESS;
}

/* Takes out the range that starts at the address and is of that kind. */
static bool take(uint64_t base, bool is_registered, struct host_range *range)
{
    size_t at;
    bool found;

    pthread_mutex_lock(&lock);
    at = upto(base);
    found = at > 0 && ranges[at - 1].base == base && ranges[at - 1].is_registered == is_registered;
    if (found) {
        *range = ranges[at - 1];
        memmove(&ranges[at - 1], &ranges[at], (count - at) * sizeof(*ranges));
        count--;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool host_find(uint64_t address, struct host_range *range)
{
    size_t at;
    bool found;

    pthread_mutex_lock(&lock);
    at = upto(address);
    found = at > 0 && address - ranges[at - 1].base < ranges[at - 1].bytes;
    if (found)
        *range = ranges[at - 1];
    pthread_mutex_unlock(&lock);
    return found;
}

CUresult cuMemHostAlloc(void **p, size_t bytes, unsigned int flags)
{
    struct CUctx_st *c;
    struct host_range range;
    void *map;
    CUresult rc;

    TRY(current(&c));
    NEED(p && bytes && !(flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    map = mmap(NULL, (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1), PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(map != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    range = (struct host_range){.base = (uint64_t)(uintptr_t)map,
                                .bytes = bytes,
                                .flags = flags,
                                .device = (uint32_t)c->device->ordinal,
                                .context = c};
    pthread_mutex_lock(&lock);
    rc = add(range);
    pthread_mutex_unlock(&lock);
    if (rc != CUDA_SUCCESS) {
        munmap(map, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *p = map;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **p, size_t bytes)
{
    return cuMemHostAlloc(p, bytes, 0);
}

CUresult cuMemAllocHost(void **p, unsigned int bytes)
{
    return cuMemHostAlloc(p, bytes, 0);
}

CUresult cuMemFreeHost(void *p)
{
    struct CUctx_st *c;
    struct host_range range;

    TRY(current(&c));
    if (!p)
        return CUDA_SUCCESS;
    NEED(take((uint64_t)(uintptr_t)p, false, &range), CUDA_ERROR_INVALID_VALUE);
    TRY(context_wait(c));
    munmap(p, range.bytes);
    return CUDA_SUCCESS;
}

/* Whether the process has memory there; MS_ASYNC does nothing else than look. */
static bool is_mapped(uint64_t address, uint64_t bytes)
{
    uint64_t page = address & ~(PAGE_BYTES - 1);

    return bytes <= UINT64_MAX - address && address + bytes <= UINT64_MAX - PAGE_BYTES &&
           msync((void *)(uintptr_t)page, address + bytes - page, MS_ASYNC) == 0;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
    struct CUctx_st *c;
    CUresult rc;

    TRY(current(&c));
    NEED(p && bytes && !(flags & ~15u), CUDA_ERROR_INVALID_VALUE);
    NEED(!(flags & CU_MEMHOSTREGISTER_IOMEMORY), CUDA_ERROR_NOT_SUPPORTED);
    NEED(is_mapped((uint64_t)(uintptr_t)p, bytes), CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&lock);
    rc = add((struct host_range){.base = (uint64_t)(uintptr_t)p,
                                 .bytes = bytes,
                                 .flags = flags,
                                 .is_registered = true,
                                 .device = (uint32_t)c->device->ordinal,
                                 .context = c});
    pthread_mutex_unlock(&lock);
    return rc;
}

CUresult cuMemHostRegister(void *p, size_t bytes, unsigned int flags)
{
    return cuMemHostRegister_v2(p, bytes, flags);
}

CUresult cuMemHostUnregister(void *p)
{
    struct CUctx_st *c;
    struct host_range range;

    TRY(current(&c));
    NEED(p, CUDA_ERROR_INVALID_VALUE);
    NEED(take((uint64_t)(uintptr_t)p, true, &range), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *p, unsigned int flags)
{
    struct CUctx_st *c;
    struct host_range range;

    TRY(current(&c));
    NEED(address && p && flags == 0, CUDA_ERROR_INVALID_VALUE);
    NEED(host_find((uint64_t)(uintptr_t)p, &range), CUDA_ERROR_INVALID_VALUE);
    *address = (CUdeviceptr)(uintptr_t)p;
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
    struct CUctx_st *c;
    struct host_range range;

    TRY(current(&c));
    NEED(flags && host_find((uint64_t)(uintptr_t)p, &range), CUDA_ERROR_INVALID_VALUE);
    *flags = range.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}
