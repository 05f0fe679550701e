/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuIpc: linear memory of one process, opened by another. The blocks around the allocation become a
 * shared object; a handle names it by number, so it can be opened for as long as its maker holds
 * it. What is open stays until it is closed, whatever its maker does. Under physical_lock.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/memory.h"

static const char magic[8] = "simgpu1";

struct handle {
    char magic[8];
    uint64_t id, offset, bytes; /* the object, and the allocation in it */
    uint32_t slot;              /* of the process that made it */
};

static_assert(sizeof(struct handle) <= CU_IPC_HANDLE_SIZE, "fits");

struct opened {
    struct opened *next;
    uint64_t id, offset;
    uint32_t context;
    unsigned int references;
    CUdeviceptr address;
};

static struct opened *all;

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    struct handle h = {.slot = driver_connection.slot};
    struct physical *p;
    struct CUctx_st *c;

    TRY(current(&c));
    NEED(out && address, CUDA_ERROR_INVALID_VALUE);
    TRY(memory_share(address, &p, &h.offset, &h.bytes));
    memcpy(h.magic, magic, sizeof(magic));
    h.id = p->shared.id;
    memset(out, 0, sizeof(*out));
    memcpy(out, &h, sizeof(h));
    return CUDA_SUCCESS;
}

/* Under physical_lock. */
static CUresult open_new(const struct handle *h, uint32_t context, CUdeviceptr *address)
{
    struct opened *o = calloc(1, sizeof(*o));
    struct sim_object_answer what;
    struct physical *p;
    CUresult rc;

    NEED(o, CUDA_ERROR_OUT_OF_MEMORY);
    rc = physical_join(-1, h->id, &p, &what);
    if (rc != CUDA_SUCCESS) {
        free(o);
        return rc;
    }
    p->mappings++;
    if (h->offset >= p->bytes || h->bytes > p->bytes - h->offset) {
        p->mappings--;
        rc = CUDA_ERROR_INVALID_VALUE;
    } else {
        rc = vmm_map(p, h->offset, h->bytes, true, &o->address);
        if (rc != CUDA_SUCCESS)
            p->mappings--;
    }
    physical_put(p, false);
    if (rc != CUDA_SUCCESS) {
        free(o);
        return rc;
    }
    o->id = h->id;
    o->offset = h->offset;
    o->context = context;
    o->references = 1;
    o->next = all;
    all = o;
    *address = o->address;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    struct CUctx_st *c;
    struct handle h;
    struct opened *o;
    CUresult rc = CUDA_SUCCESS;

    TRY(current(&c));
    NEED(address && flags == CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, CUDA_ERROR_INVALID_VALUE);
    memcpy(&h, &handle, sizeof(h));
    NEED(memcmp(h.magic, magic, sizeof(magic)) == 0 && h.id, CUDA_ERROR_INVALID_HANDLE);
    NEED(h.slot != driver_connection.slot, CUDA_ERROR_INVALID_CONTEXT); /* this process's own */
    pthread_mutex_lock(&physical_lock);
    for (o = all; o; o = o->next) {
        if (o->id == h.id && o->offset == h.offset && o->context == c->id)
            break;
    }
    if (o) {
        o->references++;
        *address = o->address;
    } else {
        rc = open_new(&h, c->id, address);
    }
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    struct CUctx_st *c;
    struct opened **at, *o = NULL;

    TRY(current(&c));
    pthread_rwlock_wrlock(&memory_bytes_lock);
    pthread_mutex_lock(&physical_lock);
    for (at = &all; *at; at = &(*at)->next) {
        if ((*at)->address == address) {
            o = *at;
            break;
        }
    }
    if (o && --o->references == 0) {
        *at = o->next;
        (void)vmm_unmap(o->address, true);
        free(o);
    }
    pthread_mutex_unlock(&physical_lock);
    pthread_rwlock_unlock(&memory_bytes_lock);
    return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void ipc_forget(struct CUctx_st *context)
{
    pthread_rwlock_wrlock(&memory_bytes_lock);
    pthread_mutex_lock(&physical_lock);
    for (struct opened **at = &all; *at;) {
        struct opened *o = *at;

        if (o->context == context->id) {
            *at = o->next;
            (void)vmm_unmap(o->address, true);
            free(o);
        } else {
            at = &o->next;
        }
    }
    pthread_mutex_unlock(&physical_lock);
    pthread_rwlock_unlock(&memory_bytes_lock);
}
