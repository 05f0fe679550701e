/* SPDX-License-Identifier: Apache-2.0 */
/*
 * External memory: what cuMemExportToShareableHandle exported, from this or another process; the
 * simulator knows no other API that allocates.
 */
#include <stdlib.h>
#include <unistd.h>

#include "cuda/array.h"
#include "cuda/memory.h"

struct CUextMemory_st {
    uint32_t magic;
    struct physical *physical;
    uint64_t bytes;
};

static CUresult memory_check(CUexternalMemory memory)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(memory && memory->magic == MAGIC_EXTERNAL, CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

CUresult cuImportExternalMemory(CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
    struct CUextMemory_st *m;
    struct sim_object_answer what;
    struct physical *p = NULL;
    struct CUctx_st *c;
    CUresult rc;

    TRY(current(&c));
    NEED(out && desc && desc->size && desc->flags <= CUDA_EXTERNAL_MEMORY_DEDICATED,
         CUDA_ERROR_INVALID_VALUE);
    NEED(desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, CUDA_ERROR_NOT_SUPPORTED);
    m = calloc(1, sizeof(*m));
    NEED(m, CUDA_ERROR_OUT_OF_MEMORY);
    pthread_mutex_lock(&physical_lock);
    rc = physical_join(desc->handle.fd, 0, &p, &what);
    if (rc == CUDA_SUCCESS && (desc->size > p->bytes || p->multicast)) {
        physical_put(p, false);
        rc = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&physical_lock);
    if (rc != CUDA_SUCCESS) {
        free(m);
        return rc;
    }
    (void)close(desc->handle.fd); /* the driver's from now on, which holds the memory otherwise */
    m->physical = p;
    m->bytes = desc->size;
    m->magic = MAGIC_EXTERNAL;
    *out = m;
    return CUDA_SUCCESS;
}

static CUresult map(CUexternalMemory memory, uint64_t offset, uint64_t bytes, CUdeviceptr *address)
{
    CUresult rc;

    NEED(bytes && offset < memory->bytes && bytes <= memory->bytes - offset,
         CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&physical_lock);
    memory->physical->mappings++;
    rc = vmm_map(memory->physical, offset, bytes, false, address);
    if (rc != CUDA_SUCCESS)
        memory->physical->mappings--;
    pthread_mutex_unlock(&physical_lock);
    return rc;
}

CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *address, CUexternalMemory memory,
                                         const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
    TRY(memory_check(memory));
    NEED(address && desc && !desc->flags, CUDA_ERROR_INVALID_VALUE);
    return map(memory, desc->offset, desc->size, address);
}

CUresult
cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory memory,
                                        const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc)
{
    struct CUctx_st *c;
    CUdeviceptr address;
    CUresult rc;

    TRY(current(&c));
    TRY(memory_check(memory));
    NEED(mipmap && desc && desc->offset < memory->bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(map(memory, desc->offset, memory->bytes - desc->offset, &address));
    rc = mipmap_over(c, &desc->arrayDesc, desc->numLevels, address, memory->bytes - desc->offset,
                     mipmap);
    if (rc != CUDA_SUCCESS)
        (void)mapped_free(address, false);
    return rc;
}

/* What is mapped of it stays until it is freed itself. */
CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    TRY(memory_check(memory));
    memory->magic = MAGIC_DEAD;
    pthread_mutex_lock(&physical_lock);
    physical_put(memory->physical, false);
    pthread_mutex_unlock(&physical_lock);
    bury(memory);
    return CUDA_SUCCESS;
}
