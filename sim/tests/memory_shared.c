/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of virtual memory management, exports, multicast objects and pools, for sim-memory.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "memory.h"

/* ---- virtual memory management ------------------------------------------------------------- */

void vmm(void)
{
    CUmemAllocationProp prop = prop_of(0, false), back, bad;
    CUmemAccessDesc rw = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
                    ro = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CUmemGenericAllocationHandle a, b, again;
    CUdeviceptr at, other, base;
    size_t granule, size;
    unsigned long long flags;
    char text[4096] = "far apart", got[4096];

    open_context();
    OK(cuMemGetAllocationGranularity, &granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    IS(2 * MIB, granule);
    OK(cuMemGetAllocationGranularity, &granule, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    IS(2 * MIB, granule);
    BAD(cuMemGetAllocationGranularity, NULL, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    BAD(cuMemAddressReserve, &at, 0, 0, 0, 0);
    BAD(cuMemAddressReserve, &at, MIB, 0, 0, 0);
    BAD(cuMemAddressReserve, &at, 8 * MIB, 3, 0, 0);
    BAD(cuMemAddressReserve, &at, 8 * MIB, 0, 0, 1);
    OK(cuMemAddressReserve, &at, 8 * MIB, 64 * MIB, 0, 0);
    IS(0, at % (64 * MIB));
    IS(before, free_now()); /* addresses cost nothing */
    BAD(cuMemCreate, &a, MIB, &prop, 0);
    BAD(cuMemCreate, &a, 0, &prop, 0);
    BAD(cuMemCreate, &a, 2 * MIB, &prop, 1);
    bad = prop;
    bad.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    BAD(cuMemCreate, &a, 2 * MIB, &bad, 0);
    bad = prop_of(9, false);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemCreate, &a, 2 * MIB, &bad, 0);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate, &a, (size_t)1 << 40, &prop, 0);
    OK(cuMemCreate, &a, 4 * MIB, &prop, 0);
    OK(cuMemCreate, &b, 2 * MIB, &prop, 0);
    IS(before - 6 * MIB, free_now());

    BAD(cuMemMap, at, 4 * MIB, 2 * MIB, a, 0);
    BAD(cuMemMap, at, 6 * MIB, 0, a, 0);
    BAD(cuMemMap, at + MIB, 4 * MIB, 0, a, 0);
    BAD(cuMemMap, at + 6 * MIB, 4 * MIB, 0, a, 0);
    BAD(cuMemMap, at, 4 * MIB, 0, 12345, 0);
    BAD(cuMemMap, at, 4 * MIB, 0, 0x123450, 0); /* as a pointer it would lead nowhere */
    BAD(cuMemMap, at, 4 * MIB, 0, a + 16, 0);
    BAD(cuMemRelease, 0x123450);
    BAD(cuMemRelease, ~0xfull);
    OK(cuMemMap, at, 4 * MIB, 0, a, 0);
    BAD(cuMemMap, at + 2 * MIB, 2 * MIB, 0, b, 0);
    OK(cuMemMap, at + 4 * MIB, 2 * MIB, 0, b, 0);
    BAD(cuMemcpyHtoD_v2, at, text, sizeof(text)); /* nobody may reach it yet */
    BAD(cuMemSetAccess, at, 8 * MIB, &rw, 1);
    BAD(cuMemSetAccess, at, 2 * MIB, &rw, 1);
    OK(cuMemSetAccess, at, 6 * MIB, &rw, 1);
    OK(cuMemGetAccess, &flags, &rw.location, at + 5 * MIB);
    IS(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, flags);
    BAD(cuMemGetAccess, &flags, &rw.location, at + 6 * MIB);
    /* One stretch over two pieces. */
    OK(cuMemcpyHtoD_v2, at + 4 * MIB - 2048, text, sizeof(text));
    OK(cuMemcpyDtoH_v2, got, at + 4 * MIB - 2048, sizeof(got));
    IS(0, memcmp(text, got, sizeof(text)));
    OK(cuMemSetAccess, at + 4 * MIB, 2 * MIB, &ro, 1);
    BAD(cuMemcpyHtoD_v2, at + 4 * MIB, text, 16);
    OK(cuMemcpyDtoH_v2, got, at + 4 * MIB, 16);
    OK(cuMemGetAddressRange_v2, &base, &size, at + 5 * MIB);
    TRUE(base == at + 4 * MIB && size == 2 * MIB);
    BAD(cuMemFree_v2, at);

    /* The same memory at two addresses. */
    OK(cuMemAddressReserve, &other, 4 * MIB, 0, 0, 0);
    OK(cuMemMap, other, 4 * MIB, 0, a, 0);
    OK(cuMemSetAccess, other, 4 * MIB, &rw, 1);
    OK(cuMemcpyHtoD_v2, other + 100, "alias", 6);
    OK(cuMemcpyDtoH_v2, got, at + 100, 6);
    IS(0, strcmp(got, "alias"));
    OK(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)(other + 3 * MIB));
    IS(a, again);
    BAD(cuMemRetainAllocationHandle, &again, got);
    OK(cuMemGetAllocationPropertiesFromHandle, &back, a);
    IS(0, memcmp(&back, &prop, sizeof(prop)));
    OK(cuMemRelease, a);
    OK(cuMemRelease, a);
    BAD(cuMemRelease, a); /* two references, both gone */
    OK(cuMemRelease, b);
    IS(before - 6 * MIB, free_now()); /* mappings hold it */
    BAD(cuMemUnmap, at, 2 * MIB);
    BAD(cuMemUnmap, at, 8 * MIB);
    BAD(cuMemAddressFree, at, 8 * MIB);
    OK(cuMemUnmap, at, 6 * MIB);
    IS(before - 4 * MIB, free_now());
    BAD(cuMemcpyDtoH_v2, got, at, 16);
    OK(cuMemcpyDtoH_v2, got, other + 100, 6);
    IS(0, strcmp(got, "alias"));
    OK(cuMemUnmap, other, 4 * MIB);
    IS(before, free_now());
    BAD(cuMemAddressFree, at, 4 * MIB);
    OK(cuMemAddressFree, at, 8 * MIB);
    BAD(cuMemAddressFree, at, 8 * MIB);
    OK(cuMemAddressReserve, &base, 4 * MIB, 0, at, 0);
    IS(at, base); /* a wish that can be met */
    OK(cuMemAddressFree, base, 4 * MIB);
    OK(cuMemAddressFree, other, 4 * MIB);

    /* Memory of the host's is no device's, and the host reaches it. */
    bad = prop;
    bad.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, 0};
    OK(cuMemCreate, &a, 2 * MIB, &bad, 0);
    IS(before, free_now());
    OK(cuMemAddressReserve, &at, 2 * MIB, 0, 0, 0);
    OK(cuMemMap, at, 2 * MIB, 0, a, 0);
    OK(cuMemSetAccess, at, 2 * MIB, &rw, 1);
    strcpy((char *)(uintptr_t)at, "host");
    OK(cuMemcpyDtoH_v2, got, at, 5);
    IS(0, strcmp(got, "host"));
    OK(cuMemUnmap, at, 2 * MIB);
    OK(cuMemRelease, a);
    OK(cuMemAddressFree, at, 2 * MIB);
    bad = prop;
    bad.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemCreate, &a, 2 * MIB, &bad, 0);
}

/* Exports that stay in the process: a descriptor holds memory like a handle does. */
void export(void)
{
    CUmemAllocationProp prop = prop_of(1, true), back;
    CUmemAccessDesc rw = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemGenericAllocationHandle a, b;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC external = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD};
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.offset = 4096, .size = 8192};
    CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC map = {
        .arrayDesc = {64, 64, 0, CU_AD_FORMAT_FLOAT, 1, 0}, .numLevels = 3};
    CUexternalMemory memory;
    CUmipmappedArray mipmap;
    CUdeviceptr at, other, p;
    size_t before_1;
    CUcontext second;
    char got[32];
    int fd, fd_2, null;

    open_context();
    OK(cuDevicePrimaryCtxRetain, &second, 1);
    OK(cuCtxSetCurrent, second);
    before_1 = free_now();
    OK(cuMemCreate, &a, 4 * MIB, &prop, 0);
    OK(cuMemAddressReserve, &at, 4 * MIB, 0, 0, 0);
    OK(cuMemMap, at, 4 * MIB, 0, a, 0);
    rw.location.id = 1;
    OK(cuMemSetAccess, at, 4 * MIB, &rw, 1);
    OK(cuMemcpyHtoD_v2, at + 3 * MIB, "before the export", 18);
    BAD(cuMemExportToShareableHandle, &fd, a, CU_MEM_HANDLE_TYPE_FABRIC, 0);
    BAD(cuMemExportToShareableHandle, NULL, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuMemExportToShareableHandle, &fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuMemExportToShareableHandle, &fd_2, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuMemcpyDtoH_v2, got, at + 3 * MIB, 18);
    IS(0, strcmp(got, "before the export"));
    IS(before_1 - 4 * MIB, free_now());
    OK(cuMemUnmap, at, 4 * MIB);
    OK(cuMemRelease, a);
    IS(before_1 - 4 * MIB, free_now());
    close(fd_2);
    OK(cuMemImportFromShareableHandle, &b, (void *)(intptr_t)fd,
       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    null = dup(0);
    BAD(cuMemImportFromShareableHandle, &a, (void *)(intptr_t)null,
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    BAD(cuMemImportFromShareableHandle, &a, (void *)(intptr_t)-1,
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuMemImportFromShareableHandle, &a, (void *)(intptr_t)fd,
          CU_MEM_HANDLE_TYPE_FABRIC);
    OK(cuMemGetAllocationPropertiesFromHandle, &back, b);
    IS(1, back.location.id);
    OK(cuMemMap, at, 4 * MIB, 0, b, 0);
    OK(cuMemSetAccess, at, 4 * MIB, &rw, 1);
    memset(got, 0, sizeof(got));
    OK(cuMemcpyDtoH_v2, got, at + 3 * MIB, 18);
    IS(0, strcmp(got, "before the export"));
    OK(cuMemRelease, b);
    OK(cuMemUnmap, at, 4 * MIB);
    IS(before_1 - 4 * MIB, free_now()); /* the descriptor alone */

    external.handle.fd = fd;
    external.size = 8 * MIB;
    BAD(cuImportExternalMemory, &memory, &external);
    external.size = 4 * MIB;
    external.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD;
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory, &memory, &external);
    external.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
    OK(cuImportExternalMemory, &memory, &external); /* takes the descriptor */
    buffer.offset = 3 * MIB - 4096;
    OK(cuExternalMemoryGetMappedBuffer, &other, memory, &buffer);
    OK(cuMemcpyDtoH_v2, got, other + 4096, 18);
    IS(0, strcmp(got, "before the export"));
    buffer.size = 2 * MIB;
    BAD(cuExternalMemoryGetMappedBuffer, &p, memory, &buffer);
    OK(cuExternalMemoryGetMappedMipmappedArray, &mipmap, memory, &map);
    map.offset = 4 * MIB - 4096;
    BAD(cuExternalMemoryGetMappedMipmappedArray, &mipmap, memory, &map);
    OK(cuMipmappedArrayDestroy, mipmap);
    OK(cuDestroyExternalMemory, memory);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory, memory);
    IS(before_1 - 4 * MIB, free_now());
    BAD(cuIpcCloseMemHandle, other);
    BAD(cuMemFree_v2, other + 512);
    BAD(cuMemcpyDtoH_v2, got, other + 8192 - 8, 16); /* beyond what was mapped */
    OK(cuMemFree_v2, other);
    IS(before_1, free_now());
    OK(cuMemAddressFree, at, 4 * MIB);

    /* What was not made to be exported cannot be. */
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    OK(cuMemCreate, &a, 2 * MIB, &prop, 0);
    BAD(cuMemExportToShareableHandle, &fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    OK(cuMemRelease, a);
    IS(before_1, free_now());
}

void multicast(void)
{
    CUmulticastObjectProp prop = {.numDevices = 2, .size = 4 * MIB};
    CUmemAllocationProp memory = prop_of(0, false);
    CUmemGenericAllocationHandle group, a, b;
    CUdeviceptr at;
    size_t granule;

    open_context();
    OK(cuMulticastGetGranularity, &granule, &prop, CU_MULTICAST_GRANULARITY_RECOMMENDED);
    IS(2 * MIB, granule);
    OK(cuMulticastCreate, &group, &prop);
    prop.size = 3 * MIB;
    BAD(cuMulticastCreate, &a, &prop);
    IS(before, free_now());
    OK(cuMulticastAddDevice, group, 0);
    BAD(cuMulticastAddDevice, group, 0);
    OK(cuMemCreate, &a, 4 * MIB, &memory, 0);
    memory.location.id = 1;
    OK(cuMemCreate, &b, 4 * MIB, &memory, 0);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMulticastBindMem, group, 0, b, 0, 2 * MIB, 0);
    OK(cuMulticastAddDevice, group, 1);
    OK(cuMulticastBindMem, group, 0, b, 0, 2 * MIB, 0);
    OK(cuMulticastBindMem, group, 0, a, 2 * MIB, 2 * MIB, 0);
    BAD(cuMulticastBindMem, group, 0, a, 0, 4 * MIB, 0);
    BAD(cuMulticastBindMem, group, 4 * MIB, a, 0, 2 * MIB, 0);
    OK(cuMemAddressReserve, &at, 4 * MIB, 0, 0, 0);
    OK(cuMemMap, at, 4 * MIB, 0, a, 0);
    OK(cuMulticastBindAddr, group, 2 * MIB, at, 2 * MIB, 0);
    BAD(cuMulticastUnbind, group, 0, 0, 4 * MIB);
    OK(cuMulticastUnbind, group, 0, 2 * MIB, 2 * MIB);
    OK(cuMemUnmap, at, 4 * MIB);
    OK(cuMemRelease, a);
    IS(before - 4 * MIB, free_now()); /* bound */
    OK(cuMulticastUnbind, group, 0, 0, 2 * MIB);
    IS(before, free_now());
    OK(cuMemMap, at, 4 * MIB, 0, group, 0);
    OK(cuMemUnmap, at, 4 * MIB);
    BAD(cuMulticastAddDevice, b, 0);
    OK(cuMemRelease, b);
    OK(cuMemRelease, group); /* and with it what device 1 had bound */
    OK(cuMemAddressFree, at, 4 * MIB);
}

/* ---- pools --------------------------------------------------------------------------------- */

static cuuint64_t figure(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value;

    OK(cuMemPoolGetAttribute, pool, attribute, &value);
    return value;
}

#define RESERVED(pool) figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
#define USED(pool) figure(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT)

static CUfunction busy_function(CUmodule *module)
{
    CUfunction f;

    OK(cuModuleLoadData, module,
       ".version 6.0\n.target sm_70\n.address_size 64\n"
       ".visible .entry busy_us(.param .u64 us) { ret; }\n");
    OK(cuModuleGetFunction, &f, *module, "busy_us");
    return f;
}

void pools(void)
{
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemAccessDesc desc = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CUmemAccess_flags access;
    CUmemoryPool pool, own, got;
    CUdeviceptr p, q, r;
    CUstream one, two;
    CUmodule module;
    CUfunction busy;
    cuuint64_t value = 64 * MIB;
    unsigned long long us = 200000;
    void *args[] = {&us};
    char text[16];
    int flag;

    open_context();
    OK(cuDeviceGetDefaultMemPool, &pool, 0);
    OK(cuDeviceGetMemPool, &got, 0);
    TRUE(got == pool);
    BAD(cuMemPoolDestroy, pool);
    IS(0, RESERVED(pool));
    OK(cuStreamCreate, &one, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &two, CU_STREAM_NON_BLOCKING);
    BAD(cuMemAllocAsync, &p, 0, one);
    BAD(cuMemAllocAsync, NULL, 16, one);
    OK(cuMemAllocAsync, &p, 1000, one);
    IS(1024, USED(pool));
    IS(32 * MIB, RESERVED(pool));
    IS(before - 32 * MIB, free_now());
    OK(cuMemAllocAsync, &q, 40 * MIB, one);
    IS(64 * MIB, RESERVED(pool));
    OK(cuMemcpyHtoDAsync_v2, q, "pool", 5, one);
    OK(cuMemcpyDtoHAsync_v2, text, q, 5, one);
    OK(cuStreamSynchronize, one);
    IS(0, strcmp(text, "pool"));
    OK(cuMemFreeAsync, q, one);
    BAD(cuMemFreeAsync, q, one);
    BAD(cuMemcpyHtoD_v2, q, text, 5);
    IS(1024, USED(pool));
    IS(64 * MIB, RESERVED(pool)); /* until somebody synchronises */
    OK(cuStreamSynchronize, one);
    IS(32 * MIB, RESERVED(pool));
    IS(64 * MIB, figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
    IS(40 * MIB + 1024, figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    BAD(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value);
    BAD(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value);
    value = 0;
    OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value);
    OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &value);
    IS(1024, figure(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH));
    IS(32 * MIB, figure(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH));
    BAD(cuMemPoolGetAttribute, pool, 99, &value);
    OK(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &flag);
    IS(1, flag);
    OK(cuMemFree_v2, p); /* a pool's memory, too */
    IS(0, USED(pool));
    IS(0, RESERVED(pool));
    IS(before, free_now());

    /* Below the threshold memory stays, and trim or a shortage takes it. */
    value = 64 * MIB;
    OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
    IS(value, figure(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD));
    OK(cuMemAllocAsync, &p, 60 * MIB, one);
    OK(cuMemFreeAsync, p, one);
    OK(cuCtxSynchronize, );
    IS(64 * MIB, RESERVED(pool));
    OK(cuMemPoolTrimTo, pool, 10 * MIB);
    IS(10 * MIB, RESERVED(pool));
    OK(cuMemPoolTrimTo, pool, 0);
    IS(before, free_now());
    OK(cuMemAllocAsync, &p, 60 * MIB, one);
    OK(cuMemFreeAsync, p, one);
    OK(cuCtxSynchronize, );
    OK(cuMemAlloc_v2, &p, before / (2 * MIB) * (2 * MIB));
    IS(0, RESERVED(pool));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync, &q, 4 * MIB, one);
    OK(cuMemFree_v2, p);

    /* What a stream frees, it may have again at once; another waits for it. */
    busy = busy_function(&module);
    OK(cuMemAllocAsync, &p, 4 * MIB, one);
    OK(cuLaunchKernel, busy, 1, 1, 1, 1, 1, 1, 0, one, args, NULL);
    OK(cuMemFreeAsync, p, one);
    OK(cuMemAllocAsync, &q, 4 * MIB, two);
    TRUE(q != p);
    OK(cuMemAllocAsync, &r, 4 * MIB - 100, one);
    IS(p, r);
    OK(cuMemFreeAsync, r, one);
    OK(cuStreamSynchronize, one);
    OK(cuMemAllocAsync, &r, 4 * MIB, two);
    IS(p, r);
    OK(cuMemFreeAsync, r, two);
    OK(cuMemFreeAsync, q, two);
    OK(cuStreamSynchronize, two);

    BAD(cuMemPoolCreate, NULL, &props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    BAD(cuMemPoolCreate, &own, &props);
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location.id = 9;
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemPoolCreate, &own, &props);
    props.location.id = 0;
    props.maxSize = 8 * MIB;
    OK(cuMemPoolCreate, &own, &props);
    OK(cuMemPoolGetAccess, &access, own, &desc.location);
    IS(CU_MEM_ACCESS_FLAGS_PROT_NONE, access);
    OK(cuMemPoolSetAccess, own, &desc, 1);
    OK(cuMemPoolGetAccess, &access, own, &desc.location);
    IS(CU_MEM_ACCESS_FLAGS_PROT_READ, access);
    desc.location.id = 0;
    BAD(cuMemPoolSetAccess, own, &desc, 1);
    OK(cuMemAllocFromPoolAsync, &p, 6 * MIB, own, one);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync, &q, 4 * MIB, own, one);
    OK(cuMemAllocFromPoolAsync, &q, 2 * MIB, own, one);
    OK(cuPointerGetAttribute, &got, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p);
    TRUE(got == own);
    OK(cuDeviceSetMemPool, 0, own);
    BAD(cuDeviceSetMemPool, 1, own);
    OK(cuDeviceGetMemPool, &got, 0);
    TRUE(got == own);
    OK(cuMemFreeAsync, q, one);
    OK(cuMemPoolDestroy, own);
    BAD(cuMemAllocFromPoolAsync, &q, 2 * MIB, own, one);
    OK(cuDeviceGetMemPool, &got, 0);
    TRUE(got == pool);
    OK(cuMemsetD8Async, p, 1, 6 * MIB, one); /* what it gave out lives on */
    OK(cuMemFreeAsync, p, one);
    OK(cuStreamSynchronize, one);
    OK(cuMemPoolTrimTo, pool, 0);
    OK(cuModuleUnload, module);
    IS(before, free_now());
    OK(cuMemAlloc_v2, &p, MIB);
    OK(cuMemFreeAsync, p, one); /* and of cuMemAlloc */
    IS(before, free_now());
}

/* A process without descriptors to spare is told so, and nothing is lost or half made. */
void descriptors(void)
{
    CUmemAllocationProp prop = prop_of(0, true);
    CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    CUmemGenericAllocationHandle a, b;
    CUipcMemHandle handle;
    CUmemoryPool pool;
    CUdeviceptr p;
    CUcontext other;
    struct rlimit all, none;
    char got[8];
    int fd;

    open_context();
    getrlimit(RLIMIT_NOFILE, &all);
    none = all;
    fd = dup(0);
    close(fd);
    none.rlim_cur = (rlim_t)fd;
    OK(cuMemAlloc_v2, &p, MIB);
    OK(cuMemcpyHtoD_v2, p, "kept", 5);
    setrlimit(RLIMIT_NOFILE, &none);
    GIVES(CUDA_ERROR_OPERATING_SYSTEM, cuMemCreate, &a, 2 * MIB, &prop, 0);
    GIVES(CUDA_ERROR_OPERATING_SYSTEM, cuDevicePrimaryCtxRetain, &other, 1);
    GIVES(CUDA_ERROR_OPERATING_SYSTEM, cuMemPoolCreate, &pool, &props);
    GIVES(CUDA_ERROR_OPERATING_SYSTEM, cuIpcGetMemHandle, &handle, p);
    props.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    GIVES(CUDA_ERROR_OPERATING_SYSTEM, cuMemPoolCreate, &pool, &props);
    IS(before - 2 * MIB, free_now());
    setrlimit(RLIMIT_NOFILE, &all);
    OK(cuMemCreate, &a, 2 * MIB, &prop, 0);
    setrlimit(RLIMIT_NOFILE, &none);
    OK(cuMemRelease, a);
    setrlimit(RLIMIT_NOFILE, &all);
    OK(cuMemCreate, &a, 2 * MIB, &prop, 0);
    OK(cuMemExportToShareableHandle, &fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    none.rlim_cur = (rlim_t)fd + 1;
    setrlimit(RLIMIT_NOFILE, &none);
    GIVES(CUDA_ERROR_OPERATING_SYSTEM, cuMemImportFromShareableHandle, &b, (void *)(intptr_t)fd,
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    setrlimit(RLIMIT_NOFILE, &all);
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    OK(cuIpcGetMemHandle, &handle, p);
    OK(cuMemcpyDtoH_v2, got, p, 5);
    IS(0, strcmp(got, "kept"));
    close(fd);
    OK(cuMemRelease, a);
    OK(cuMemFree_v2, p);
    IS(before, free_now());
}

/* Threads copy next to memory that another is exporting, whose place changes under the same
 * address: nothing written may be lost, and nobody may wait for ever. */
#define WRITERS 3
#define ROUNDS 400

static _Atomic bool is_over;

static void *copy_all_the_time(void *arg)
{
    uint32_t value = (uint32_t)(uintptr_t)arg << 24, back = 0;
    CUdeviceptr p;

    OK(cuCtxSetCurrent, context);
    OK(cuMemAlloc_v2, &p, 1024);
    while (!atomic_load(&is_over)) {
        value++;
        OK(cuMemcpyHtoD_v2, p, &value, sizeof(value));
        OK(cuMemcpyDtoH_v2, &back, p, sizeof(back));
        if (back != value) {
            printf("%08x was written, %08x read\n", value, back);
            exit(1);
        }
    }
    OK(cuMemFree_v2, p);
    return NULL;
}

void threads(void)
{
    CUmemAllocationProp prop = prop_of(0, true);
    CUmemAccessDesc rw = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemGenericAllocationHandle handle;
    CUipcMemHandle ipc;
    pthread_t writers[WRITERS];
    CUdeviceptr p, q, at;
    int fd;

    open_context();
    OK(cuMemAddressReserve, &at, 2 * MIB, 0, 0, 0);
    for (uintptr_t i = 0; i < WRITERS; i++)
        TRUE(pthread_create(&writers[i], NULL, copy_all_the_time, (void *)(i + 1)) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        /* Once the writers' granule is shared, exports make new ones. */
        OK(cuMemAlloc_v2, &p, i % 2 ? 1024 : 3 * MIB);
        OK(cuIpcGetMemHandle, &ipc, p);
        OK(cuMemAllocAsync, &q, 4096, NULL);
        OK(cuMemCreate, &handle, 2 * MIB, &prop, 0);
        OK(cuMemMap, at, 2 * MIB, 0, handle, 0);
        OK(cuMemSetAccess, at, 2 * MIB, &rw, 1);
        OK(cuMemcpyDtoDAsync_v2, at, p, 1024, NULL);
        OK(cuMemExportToShareableHandle, &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        close(fd);
        OK(cuMemFreeAsync, q, NULL);
        OK(cuMemUnmap, at, 2 * MIB);
        OK(cuMemRelease, handle);
        OK(cuMemFree_v2, p);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    OK(cuMemAddressFree, at, 2 * MIB);
    OK(cuCtxSynchronize, );
    IS(before, free_now());
}
