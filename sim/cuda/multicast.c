/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multicast objects: which devices take part, and what memory of each is bound where. A bound piece
 * of memory lives as long as its binding. The object can be mapped like memory, but has no bytes:
 * copies to its addresses are refused, since no engine here writes to several devices at once.
 * Under physical_lock.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/memory.h"

struct binding {
    int device;
    uint64_t offset, bytes; /* in the object */
    struct physical *memory;
};

struct multicast {
    CUmulticastObjectProp prop;
    uint64_t devices; /* bit by ordinal */
    struct binding *bindings;
    size_t count, room;
};

const CUmulticastObjectProp *multicast_meta(const struct physical *p)
{
    return &p->multicast->prop;
}

bool multicast_join(struct physical *p, const void *meta)
{
    p->multicast = calloc(1, sizeof(*p->multicast));
    if (p->multicast)
        memcpy(&p->multicast->prop, meta, sizeof(p->multicast->prop));
    return p->multicast != NULL;
}

void multicast_free(struct physical *p)
{
    struct multicast *m = p->multicast;

    for (size_t i = 0; i < m->count; i++)
        physical_put(m->bindings[i].memory, true);
    free(m->bindings);
    free(m);
    p->multicast = NULL;
}

static CUresult prop_check(const CUmulticastObjectProp *prop)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(prop && prop->numDevices && prop->size && !prop->flags &&
             !(prop->handleTypes & ~(unsigned long long)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
         CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < driver_device_count; i++)
        NEED(driver_devices[i].info.cc_major >= 9, CUDA_ERROR_NOT_SUPPORTED);
    return CUDA_SUCCESS;
}

CUresult cuMulticastGetGranularity(size_t *bytes, const CUmulticastObjectProp *prop,
                                   CUmulticastGranularity_flags option)
{
    TRY(prop_check(prop));
    NEED(bytes && option <= CU_MULTICAST_GRANULARITY_RECOMMENDED, CUDA_ERROR_INVALID_VALUE);
    *bytes = GRANULE_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
{
    struct physical *p;

    TRY(prop_check(prop));
    NEED(handle && prop->size % GRANULE_BYTES == 0, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&physical_lock);
    p = physical_blank();
    if (p && !multicast_join(p, prop)) {
        physical_forget(p);
        p = NULL;
    }
    if (p) {
        p->bytes = prop->size;
        p->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        p->prop.requestedHandleTypes = (CUmemAllocationHandleType)prop->handleTypes;
        *handle = (uintptr_t)p;
    }
    pthread_mutex_unlock(&physical_lock);
    return p ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult multicast_of(CUmemGenericAllocationHandle handle, struct multicast **multicast)
{
    struct physical *p;

    TRY(physical_of(handle, &p));
    NEED(p->multicast, CUDA_ERROR_INVALID_VALUE);
    *multicast = p->multicast;
    return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice dev)
{
    struct device *d;
    struct multicast *m;
    CUresult rc;

    TRY(device_get(dev, &d));
    pthread_mutex_lock(&physical_lock);
    rc = multicast_of(handle, &m);
    if (rc == CUDA_SUCCESS && ((m->devices & 1ull << dev) || (unsigned int)__builtin_popcountll(
                                                                 m->devices) == m->prop.numDevices))
        rc = CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS)
        m->devices |= 1ull << dev;
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

/* Under the lock. */
static CUresult bind(CUmemGenericAllocationHandle handle, uint64_t offset, struct physical *memory,
                     uint64_t memory_offset, uint64_t bytes, unsigned long long flags)
{
    struct multicast *m;
    int dev;

    TRY(multicast_of(handle, &m));
    NEED(!flags && bytes && (offset | memory_offset | bytes) % GRANULE_BYTES == 0 &&
             offset < m->prop.size && bytes <= m->prop.size - offset && !memory->multicast &&
             memory_offset < memory->bytes && bytes <= memory->bytes - memory_offset,
         CUDA_ERROR_INVALID_VALUE);
    NEED(memory->device && (m->devices & 1ull << memory->device->ordinal),
         CUDA_ERROR_INVALID_DEVICE);
    dev = memory->device->ordinal;
    for (size_t i = 0; i < m->count; i++)
        NEED(m->bindings[i].device != dev ||
                 offset >= m->bindings[i].offset + m->bindings[i].bytes ||
                 m->bindings[i].offset >= offset + bytes,
             CUDA_ERROR_INVALID_VALUE);
    if (m->count == m->room) {
        struct binding *more = realloc(m->bindings, (m->room + 8) * sizeof(*more));

        NEED(more, CUDA_ERROR_OUT_OF_MEMORY);
        m->bindings = more;
        m->room += 8;
    }
    m->bindings[m->count++] = (struct binding){dev, offset, bytes, memory};
    memory->mappings++;
    return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                            unsigned long long flags)
{
    struct physical *p;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    pthread_mutex_lock(&physical_lock);
    rc = physical_of(memory, &p);
    if (rc == CUDA_SUCCESS)
        rc = bind(handle, offset, p, memory_offset, bytes, flags);
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t offset,
                             CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    struct place place = {.kind = PLACE_NONE};
    CUresult rc = CUDA_ERROR_INVALID_VALUE;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    vmm_find(address, &place);
    pthread_mutex_lock(&physical_lock);
    if (place.kind == PLACE_MAPPED)
        rc = bind(handle, offset, place.physical, address - place.base, bytes, flags);
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice dev, size_t offset,
                           size_t bytes)
{
    struct device *d;
    struct multicast *m;
    CUresult rc;

    TRY(device_get(dev, &d));
    pthread_mutex_lock(&physical_lock);
    rc = multicast_of(handle, &m);
    if (rc == CUDA_SUCCESS) {
        rc = CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < m->count; i++) {
            struct binding b = m->bindings[i];

            if (b.device == dev && b.offset == offset && b.bytes == bytes) {
                m->bindings[i] = m->bindings[--m->count];
                physical_put(b.memory, true);
                rc = CUDA_SUCCESS;
                break;
            }
        }
    }
    pthread_mutex_unlock(&physical_lock);
    return rc;
}
