/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's memory calls do in one process, one group of checks a run: `sim-memory GROUP`.
 * Prints "ok" with the number of checks, or the first that failed. Needs two devices.
 */
#include "memory.h"

CUcontext context;
size_t before;

size_t free_now(void)
{
    size_t bytes, total;

    OK(cuMemGetInfo_v2, &bytes, &total);
    return bytes;
}

void open_context(void)
{
    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    before = free_now();
}

CUmemAllocationProp prop_of(int device, bool is_exportable)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            is_exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
}

CUmemAccessDesc access_of(int device, CUmemAccess_flags flags)
{
    return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
}

static void fill_host(unsigned char *to, size_t n, unsigned int seed)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)(i * 7 + i / 251 + seed);
}

/* ---- linear, pitched, managed -------------------------------------------------------------- */

static void linear(void)
{
    CUdeviceptr p, q, base;
    size_t pitch, size;
    char bytes[16];

    open_context();
    BAD(cuMemAlloc_v2, NULL, 16);
    BAD(cuMemAlloc_v2, &p, 0);
    OK(cuMemAlloc_v2, &p, 1);
    OK(cuMemAlloc_v2, &q, 3 * MIB + 1);
    IS(0, p % 512);
    TRUE(before > free_now());
    OK(cuMemGetAddressRange_v2, &base, &size, q + 2 * MIB);
    IS(q, base);
    IS(3 * MIB + 1, size);
    OK(cuMemGetAddressRange_v2, NULL, NULL, q);
    GIVES(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2, &base, &size, (CUdeviceptr)(uintptr_t)&p);
    GIVES(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2, &base, &size, q + 4 * MIB);
    BAD(cuMemFree_v2, q + 512);
    BAD(cuMemFree_v2, (CUdeviceptr)(uintptr_t)bytes);
    OK(cuMemFree_v2, 0);
    OK(cuMemFree_v2, p);
    BAD(cuMemFree_v2, p);
    OK(cuMemFree_v2, q);
    BAD(cuMemcpyHtoD_v2, q, bytes, 16);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &p, (size_t)1 << 62);

    for (unsigned int element = 4; element <= 16; element *= 2) {
        OK(cuMemAllocPitch_v2, &p, &pitch, 1000, 10, element);
        IS(1024, pitch);
        OK(cuMemFree_v2, p);
    }
    BAD(cuMemAllocPitch_v2, &p, &pitch, 1000, 10, 0);
    BAD(cuMemAllocPitch_v2, &p, &pitch, 1000, 10, 5);
    BAD(cuMemAllocPitch_v2, &p, &pitch, 0, 10, 4);
    BAD(cuMemAllocPitch_v2, &p, NULL, 1000, 10, 4);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2, &p, &pitch, (size_t)1 << 40,
          (size_t)1 << 40, 4);
    IS(before, free_now());
}

static void managed(void)
{
    CUdeviceptr p, q;
    int value = 5, many[3];
    unsigned int type = 0;
    void *data[2] = {&value, many};
    size_t sizes[2] = {sizeof(value), sizeof(many)};
    CUmem_range_attribute attributes[2] = {CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                           CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY};
    CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0}, second = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
                  none = {0};
    CUstream stream;

    open_context();
    BAD(cuMemAllocManaged, &p, MIB, 0);
    BAD(cuMemAllocManaged, &p, 0, CU_MEM_ATTACH_GLOBAL);
    OK(cuMemAllocManaged, &p, MIB, CU_MEM_ATTACH_GLOBAL);
    OK(cuMemAlloc_v2, &q, MIB);
    strcpy((char *)(uintptr_t)p, "written by the host");
    OK(cuMemcpyDtoD_v2, q, p, MIB);
    OK(cuMemsetD8_v2, p, 0, MIB);
    IS(0, *(char *)(uintptr_t)p);
    OK(cuMemcpyDtoD_v2, p, q, MIB);
    IS('w', *(char *)(uintptr_t)p);

    OK(cuMemRangeGetAttribute, &value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p,
       MIB);
    IS(-2, value);
    OK(cuMemAdvise, p, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
    OK(cuMemAdvise, p, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, -1);
    OK(cuMemAdvise_v2, p, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, second);
    OK(cuMemAdvise_v2, p, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, host);
    OK(cuMemRangeGetAttributes, data, sizes, attributes, 2, p, MIB);
    IS(1, value);
    TRUE(many[0] == 1 && many[1] == -1 && many[2] == -2);
    OK(cuMemRangeGetAttribute, &value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p,
       MIB);
    IS(-1, value);
    OK(cuMemRangeGetAttribute, &type, sizeof(type), CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
       p, MIB);
    IS(CU_MEM_LOCATION_TYPE_HOST, type);
    OK(cuMemAdvise_v2, p, MIB, CU_MEM_ADVISE_UNSET_ACCESSED_BY, second);
    OK(cuMemRangeGetAttribute, many, sizeof(many), CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, MIB);
    TRUE(many[0] == -1 && many[1] == -2);
    BAD(cuMemAdvise, q, MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
    BAD(cuMemAdvise, p, 2 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemAdvise, p, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 7);
    BAD(cuMemAdvise_v2, p, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, none);
    BAD(cuMemRangeGetAttribute, &value, 3, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, MIB);

    OK(cuMemPrefetchAsync, p, MIB, 1, NULL);
    OK(cuMemRangeGetAttribute, &value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
       p, MIB);
    IS(1, value);
    OK(cuMemPrefetchAsync_v2, p, MIB, host, 0, NULL);
    OK(cuMemRangeGetAttribute, &value, sizeof(value),
       CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, p, MIB);
    IS(CU_MEM_LOCATION_TYPE_HOST, value);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuMemPrefetchAsync, p, MIB, 9, NULL);
    BAD(cuMemPrefetchAsync, q, MIB, 0, NULL);
    BAD(cuMemPrefetchAsync_v2, p, MIB, host, 1, NULL);

    OK(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    OK(cuStreamAttachMemAsync, stream, p, 0, CU_MEM_ATTACH_SINGLE);
    BAD(cuStreamAttachMemAsync, NULL, p, 0, CU_MEM_ATTACH_SINGLE);
    BAD(cuStreamAttachMemAsync, stream, q, 0, CU_MEM_ATTACH_HOST);
    OK(cuMemFree_v2, p);
    OK(cuMemAllocManaged, &p, MIB, CU_MEM_ATTACH_HOST);
    OK(cuMemRangeGetAttribute, &value, sizeof(value), CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, MIB);
    IS(0, value); /* advice went with the allocation it was for */
    OK(cuMemFree_v2, p);
    OK(cuMemFree_v2, q);
    IS(before, free_now());
}

/* ---- host memory --------------------------------------------------------------------------- */

static void host(void)
{
    void *p, *q;
    CUdeviceptr d;
    unsigned int flags;
    static char area[64 * 1024];

    open_context();
    BAD(cuMemHostAlloc, NULL, MIB, 0);
    BAD(cuMemHostAlloc, &p, 0, 0);
    BAD(cuMemHostAlloc, &p, MIB, 8);
    OK(cuMemHostAlloc, &p, MIB, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_WRITECOMBINED);
    OK(cuMemHostGetFlags, &flags, p);
    IS(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED, flags);
    OK(cuMemHostGetDevicePointer_v2, &d, (char *)p + 100, 0);
    IS((uintptr_t)p + 100, d);
    BAD(cuMemHostGetDevicePointer_v2, &d, p, 1);
    BAD(cuMemHostGetDevicePointer_v2, NULL, p, 0);
    BAD(cuMemHostGetDevicePointer_v2, &d, area, 0);
    BAD(cuMemHostGetFlags, &flags, area);
    OK(cuMemsetD8_v2, d, 7, 10);
    IS(7, ((char *)p)[100]);
    IS(0, ((char *)p)[110]);
    OK(cuMemAllocHost_v2, &q, 1);
    BAD(cuMemFreeHost, (char *)q + 64);
    OK(cuMemFreeHost, q);
    BAD(cuMemFreeHost, q);
    OK(cuMemFreeHost, NULL);
    BAD(cuMemHostRegister_v2, NULL, 4096, 0);
    BAD(cuMemHostRegister_v2, area, 0, 0);
    BAD(cuMemHostRegister_v2, area, 4096, 16);
    BAD(cuMemHostRegister_v2, area, ~(size_t)0, 0);
    BAD(cuMemHostRegister_v2, area, ~(size_t)0 - (uintptr_t)area, 0);
    BAD(cuMemHostRegister_v2, (void *)4096, 4096, 0); /* nothing is there */
    OK(cuMemHostRegister_v2, area, sizeof(area), CU_MEMHOSTREGISTER_PORTABLE);
    GIVES(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2, area + 4096, 4096, 0);
    OK(cuMemHostGetDevicePointer_v2, &d, area + 5, 0);
    IS((uintptr_t)area + 5, d);
    BAD(cuMemFreeHost, area);
    GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, area + 4096);
    OK(cuMemHostUnregister, area);
    GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, area);
    GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, p);
    OK(cuMemFreeHost, p);
    IS(before, free_now());
}

/* ---- arrays -------------------------------------------------------------------------------- */

static void arrays(void)
{
    static unsigned char in[64 * 48 * 4], out[64 * 48 * 4];
    CUDA_ARRAY_DESCRIPTOR flat = {64, 48, CU_AD_FORMAT_UNSIGNED_INT8, 4}, flat_back;
    CUDA_ARRAY3D_DESCRIPTOR deep = {8, 6, 4, CU_AD_FORMAT_FLOAT, 1, 0}, deep_back, bad;
    CUDA_ARRAY_MEMORY_REQUIREMENTS need;
    CUDA_MEMCPY2D copy = {0};
    CUarray a, b, row, plane;
    CUdeviceptr p;

    open_context();
    fill_host(in, sizeof(in), 1);
    BAD(cuArrayCreate_v2, NULL, &flat);
    BAD(cuArrayCreate_v2, &a, NULL);
    OK(cuArrayCreate_v2, &a, &flat);
    TRUE(before - free_now() >= 64 * 48 * 4);
    OK(cuArrayGetDescriptor_v2, &flat_back, a);
    IS(0, memcmp(&flat, &flat_back, sizeof(flat)));
    OK(cuArrayGetMemoryRequirements, &need, a, 0);
    TRUE(need.size >= 64 * 48 * 4 && need.alignment >= 512 && need.size % need.alignment == 0);
    OK(cuMemAlloc_v2, &p, sizeof(in));

    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = in,
                           .srcPitch = 256,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .dstArray = a,
                           .WidthInBytes = 256,
                           .Height = 48};
    OK(cuMemcpy2D_v2, &copy);
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = a,
                           .srcXInBytes = 16,
                           .srcY = 2,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = p,
                           .dstPitch = 256,
                           .WidthInBytes = 100,
                           .Height = 40};
    OK(cuMemcpy2DUnaligned_v2, &copy);
    OK(cuMemcpyDtoH_v2, out, p, sizeof(out));
    for (int y = 0; y < 40; y++)
        IS(0, memcmp(out + y * 256, in + (y + 2) * 256 + 16, 100));
    copy.Height = 47; /* beyond the last row */
    BAD(cuMemcpy2D_v2, &copy);
    copy.Height = 1;
    copy.WidthInBytes = 244;
    BAD(cuMemcpy2D_v2, &copy);
    copy.WidthInBytes = 98; /* half an element */
    BAD(cuMemcpy2D_v2, &copy);
    BAD(cuMemcpyAtoH_v2, out, a, 0, 64); /* not of one dimension */

    OK(cuArrayCreate_v2, &b, &flat);
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = a,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .dstArray = b,
                           .WidthInBytes = 256,
                           .Height = 48};
    OK(cuMemcpy2DAsync_v2, &copy, NULL);
    copy = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = b,
                           .dstMemoryType = CU_MEMORYTYPE_HOST,
                           .dstHost = out,
                           .WidthInBytes = 256,
                           .Height = 48};
    memset(out, 0, sizeof(out));
    OK(cuMemcpy2D_v2, &copy);
    IS(0, memcmp(in, out, sizeof(in)));
    OK(cuArrayDestroy, b);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, b);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuMemcpy2D_v2, &copy);

    flat = (CUDA_ARRAY_DESCRIPTOR){1000, 0, CU_AD_FORMAT_UNSIGNED_INT16, 1};
    OK(cuArrayCreate_v2, &row, &flat);
    OK(cuMemcpyHtoA_v2, row, 10, in, 500);
    OK(cuMemcpyAtoD_v2, p, row, 10, 500);
    OK(cuMemcpyDtoA_v2, row, 600, p, 500);
    OK(cuMemcpyAtoA_v2, row, 1200, row, 600, 400);
    memset(out, 0, sizeof(out));
    OK(cuMemcpyAtoH_v2, out, row, 1200, 400);
    IS(0, memcmp(in, out, 400));
    OK(cuMemcpyHtoAAsync_v2, row, 0, in + 1, 100, NULL);
    OK(cuMemcpyAtoHAsync_v2, out, row, 0, 100, NULL);
    OK(cuCtxSynchronize, );
    IS(0, memcmp(in + 1, out, 100));
    BAD(cuMemcpyHtoA_v2, row, 1990, in, 12);
    OK(cuArrayDestroy, row);

    OK(cuArray3DCreate_v2, &b, &deep);
    OK(cuArray3DGetDescriptor_v2, &deep_back, b);
    TRUE(deep_back.Width == 8 && deep_back.Height == 6 && deep_back.Depth == 4 &&
         deep_back.Format == CU_AD_FORMAT_FLOAT && deep_back.NumChannels == 1);
    CUDA_MEMCPY3D cube = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = in,
                          .srcPitch = 32,
                          .srcHeight = 6,
                          .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                          .dstArray = b,
                          .WidthInBytes = 32,
                          .Height = 6,
                          .Depth = 4};
    OK(cuMemcpy3D_v2, &cube);
    cube = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                           .srcArray = b,
                           .srcXInBytes = 8,
                           .srcY = 1,
                           .srcZ = 2,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = p,
                           .dstPitch = 64,
                           .dstHeight = 10,
                           .WidthInBytes = 16,
                           .Height = 5,
                           .Depth = 2};
    OK(cuMemcpy3DAsync_v2, &cube, NULL);
    OK(cuMemcpyDtoH_v2, out, p, sizeof(out));
    for (int z = 0; z < 2; z++)
        for (int y = 0; y < 5; y++)
            IS(0, memcmp(out + z * 640 + y * 64, in + (z + 2) * 192 + (y + 1) * 32 + 8, 16));
    cube.Depth = 3;
    BAD(cuMemcpy3D_v2, &cube);
    OK(cuArrayDestroy, b);

    bad = (CUDA_ARRAY3D_DESCRIPTOR){16, 16, 6, CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_CUBEMAP};
    OK(cuArray3DCreate_v2, &b, &bad);
    OK(cuArrayDestroy, b);
    bad.Depth = 5;
    BAD(cuArray3DCreate_v2, &b, &bad);
    bad = (CUDA_ARRAY3D_DESCRIPTOR){16, 0, 7, CU_AD_FORMAT_HALF, 2, CUDA_ARRAY3D_LAYERED};
    OK(cuArray3DCreate_v2, &b, &bad);
    OK(cuArrayDestroy, b);
    bad.NumChannels = 3;
    BAD(cuArray3DCreate_v2, &b, &bad);
    bad = (CUDA_ARRAY3D_DESCRIPTOR){16, 0, 7, CU_AD_FORMAT_HALF, 2, 0};
    BAD(cuArray3DCreate_v2, &b, &bad);
    bad = (CUDA_ARRAY3D_DESCRIPTOR){16, 16, 0, 99, 1, 0};
    BAD(cuArray3DCreate_v2, &b, &bad);
    bad = (CUDA_ARRAY3D_DESCRIPTOR){0, 16, 0, CU_AD_FORMAT_HALF, 1, 0};
    BAD(cuArray3DCreate_v2, &b, &bad);
    bad = (CUDA_ARRAY3D_DESCRIPTOR){32, 16, 0, CU_AD_FORMAT_NV12, 3, 0};
    OK(cuArray3DCreate_v2, &b, &bad);
    OK(cuArrayGetPlane, &plane, b, 1);
    OK(cuArray3DGetDescriptor_v2, &deep_back, plane);
    TRUE(deep_back.Width == 16 && deep_back.Height == 8 && deep_back.NumChannels == 2);
    BAD(cuArrayGetPlane, &plane, b, 2);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, plane);
    OK(cuArrayDestroy, b);
    BAD(cuArrayGetPlane, &plane, a, 0);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, NULL);
    OK(cuArrayDestroy, a);
    OK(cuMemFree_v2, p);
    IS(before, free_now());
}

static void mipmaps(void)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {100, 60, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4, 0}, back;
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY}, got;
    CUDA_TEXTURE_DESC texture = {.maxAnisotropy = 4}, texture_back;
    CUDA_RESOURCE_VIEW_DESC view = {.width = 100}, view_back;
    CUDA_ARRAY_MEMORY_REQUIREMENTS need;
    CUmipmappedArray m;
    CUarray level, again;
    CUtexObject object;
    CUsurfObject surface;
    CUdeviceptr p;

    open_context();
    BAD(cuMipmappedArrayCreate, &m, &shape, 0);
    OK(cuMipmappedArrayCreate, &m, &shape, 99); /* as many as there are: 7 */
    OK(cuMipmappedArrayGetLevel, &level, m, 6);
    BAD(cuMipmappedArrayGetLevel, &level, m, 7);
    OK(cuMipmappedArrayGetLevel, &level, m, 3);
    OK(cuMipmappedArrayGetLevel, &again, m, 3);
    TRUE(level == again);
    OK(cuArray3DGetDescriptor_v2, &back, level);
    TRUE(back.Width == 12 && back.Height == 7);
    OK(cuMipmappedArrayGetMemoryRequirements, &need, m, 0);
    TRUE(need.size > 100 * 60 * 4);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, level);

    resource.res.mipmap.hMipmappedArray = m;
    OK(cuTexObjectCreate, &object, &resource, &texture, &view);
    OK(cuTexObjectGetResourceDesc, &got, object);
    TRUE(got.res.mipmap.hMipmappedArray == m);
    OK(cuTexObjectGetTextureDesc, &texture_back, object);
    IS(4, texture_back.maxAnisotropy);
    OK(cuTexObjectGetResourceViewDesc, &view_back, object);
    IS(100, view_back.width);
    OK(cuTexObjectDestroy, object);
    BAD(cuTexObjectDestroy, object);
    OK(cuTexObjectCreate, &object, &resource, &texture, NULL);
    BAD(cuTexObjectGetResourceViewDesc, &view_back, object);
    OK(cuTexObjectDestroy, object);
    BAD(cuSurfObjectCreate, &surface, &resource);
    texture.filterMode = 7;
    BAD(cuTexObjectCreate, &object, &resource, &texture, NULL);
    texture.filterMode = CU_TR_FILTER_MODE_LINEAR;

    OK(cuMipmappedArrayDestroy, m);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy, m);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuTexObjectCreate, &object, &resource, &texture, NULL);
    OK(cuMemAlloc_v2, &p, 4096);
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = p;
    resource.res.linear.sizeInBytes = 4096;
    OK(cuTexObjectCreate, &object, &resource, &texture, NULL);
    OK(cuTexObjectDestroy, object);
    resource.res.linear.sizeInBytes = 5000;
    BAD(cuTexObjectCreate, &object, &resource, &texture, NULL);
    OK(cuMemFree_v2, p);

    shape.Flags = CUDA_ARRAY3D_SURFACE_LDST;
    OK(cuArray3DCreate_v2, &level, &shape);
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = level;
    OK(cuSurfObjectCreate, &surface, &resource);
    OK(cuSurfObjectGetResourceDesc, &got, surface);
    TRUE(got.res.array.hArray == level);
    OK(cuSurfObjectDestroy, surface);
    OK(cuArrayDestroy, level);
    IS(before, free_now());

    /* Arrays go with their context. */
    CUcontext other;
    OK(cuCtxCreate_v2, &other, 0, 0);
    OK(cuArray3DCreate_v2, &level, &shape);
    OK(cuMipmappedArrayCreate, &m, &shape, 2);
    OK(cuCtxDestroy_v2, other);
    OK(cuCtxSetCurrent, context);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, level);
    IS(before, free_now());
}

/* ---- peers --------------------------------------------------------------------------------- */

static void peers(void)
{
    CUcontext other;
    CUdeviceptr p, q;
    char text[32] = "over the link", back[32];
    int value;
    CUDA_MEMCPY3D_PEER copy;

    open_context();
    OK(cuDeviceCanAccessPeer, &value, 0, 1);
    IS(1, value);
    OK(cuDeviceCanAccessPeer, &value, 0, 0);
    IS(0, value);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer, &value, 0, 5);
    OK(cuDeviceGetP2PAttribute, &value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1);
    IS(1, value);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetP2PAttribute, &value,
          CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0);
    BAD(cuDeviceGetP2PAttribute, &value, 99, 0, 1);
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    GIVES(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess, other);
    BAD(cuCtxEnablePeerAccess, other, 1);
    OK(cuCtxEnablePeerAccess, other, 0);
    GIVES(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess, other, 0);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess, context, 0);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxEnablePeerAccess, NULL, 0);

    OK(cuMemAlloc_v2, &p, MIB);
    OK(cuCtxPushCurrent_v2, other);
    OK(cuMemAlloc_v2, &q, MIB);
    OK(cuCtxPopCurrent_v2, NULL);
    OK(cuMemcpyHtoD_v2, p, text, sizeof(text));
    OK(cuMemcpyPeer, q, other, p, context, sizeof(text));
    OK(cuMemcpyDtoH_v2, back, q, sizeof(back));
    IS(0, strcmp(text, back));
    copy = (CUDA_MEMCPY3D_PEER){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = q,
                                .srcContext = other,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = p + 4096,
                                .dstContext = context,
                                .WidthInBytes = 32,
                                .Height = 1,
                                .Depth = 1};
    OK(cuMemcpy3DPeer, &copy);
    OK(cuMemcpy3DPeerAsync, &copy, NULL);
    OK(cuMemcpyPeerAsync, p + 8192, context, p + 4096, context, 32, NULL);
    OK(cuMemcpyDtoH_v2, back, p + 8192, sizeof(back));
    IS(0, strcmp(text, back));
    copy.dstContext = NULL;
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuMemcpy3DPeer, &copy);
    BAD(cuMemcpyPeer, q + MIB - 8, other, p, context, 16);
    OK(cuMemFree_v2, p);
    OK(cuMemFree_v2, q);
    OK(cuCtxDisablePeerAccess, other);
    GIVES(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess, other);
    OK(cuCtxEnablePeerAccess, other, 0);
    OK(cuDevicePrimaryCtxRelease_v2, 1);
    OK(cuDevicePrimaryCtxRetain, &other, 1);
    OK(cuCtxEnablePeerAccess, other, 0); /* the wish went with the old context */
}

/* ---- costs, and big things on a small machine ----------------------------------------------- */

static long resident_kib(void)
{
    char line[256];
    long kib = 0, n;
    FILE *f = fopen("/proc/self/status", "r");

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "VmRSS: %ld", &n) == 1)
            kib = n;
    }
    if (f)
        fclose(f);
    return kib;
}

static void big(void)
{
    CUdeviceptr p, q;
    CUmemAllocationProp prop = prop_of(0, false);
    CUmemAccessDesc rw = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUmemGenericAllocationHandle handle;
    size_t size = (size_t)60 << 30, n = 4 * MIB;
    char *data = malloc(n), got[8];
    long start;

    open_context();
    memset(data, 1, n);
    start = resident_kib();
    OK(cuMemAlloc_v2, &p, size);
    OK(cuMemcpyHtoD_v2, p + size - n, data, n);
    OK(cuMemcpyHtoD_v2, p, data, n);
    OK(cuMemsetD8_v2, p, 0, size); /* clears more than this machine may have */
    OK(cuMemcpyHtoD_v2, p + size / 2, data, n);
    OK(cuMemcpyDtoH_v2, got, p + size / 2 + n - 4, 8);
    IS(0, memcmp(got, "\1\1\1\1\0\0\0\0", 8));
    TRUE(resident_kib() - start < 64 * 1024);
    OK(cuMemFree_v2, p);
    TRUE(resident_kib() - start < 8 * 1024);

    OK(cuMemCreate, &handle, size, &prop, 0);
    OK(cuMemAddressReserve, &q, size, 0, 0, 0);
    OK(cuMemMap, q, size, 0, handle, 0);
    OK(cuMemSetAccess, q, size, &rw, 1);
    OK(cuMemcpyHtoD_v2, q + size - n, data, n);
    TRUE(resident_kib() - start < 64 * 1024);
    OK(cuMemUnmap, q, size);
    OK(cuMemRelease, handle);
    TRUE(resident_kib() - start < 8 * 1024);
    OK(cuMemAddressFree, q, size);
    IS(before, free_now());
}

static void granules(void)
{
    CUdeviceptr many[100], p;

    open_context();
    for (int i = 0; i < 100; i++)
        OK(cuMemAlloc_v2, &many[i], 256);
    IS(before - 2 * MIB, free_now()); /* all in one */
    for (int i = 0; i < 100; i++)
        OK(cuMemFree_v2, many[i]);
    IS(before, free_now());
    OK(cuMemAlloc_v2, &p, 2 * MIB + 1);
    IS(before - 4 * MIB, free_now());
    OK(cuMemFree_v2, p);
    IS(before, free_now());
}

static void attributes(void)
{
    CUdeviceptr p, q, start;
    CUmemorytype type;
    CUcontext of;
    unsigned int one = 1, get;
    int value;
    size_t size;
    unsigned long long types;
    void *host_pointer;
    CUpointer_attribute names[2] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[2] = {&type, &value};

    open_context();
    OK(cuMemAlloc_v2, &p, MIB);
    OK(cuMemAllocManaged, &q, MIB, CU_MEM_ATTACH_GLOBAL);
    OK(cuPointerGetAttribute, &of, CU_POINTER_ATTRIBUTE_CONTEXT, p + 5);
    TRUE(of == context);
    OK(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
    IS(CU_MEMORYTYPE_DEVICE, type);
    OK(cuPointerGetAttribute, &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 77);
    IS(p, start);
    OK(cuPointerGetAttribute, &size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p + 77);
    IS(MIB, size);
    BAD(cuPointerGetAttribute, &host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, p);
    OK(cuPointerGetAttribute, &host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, q);
    IS(q, (uintptr_t)host_pointer);
    OK(cuPointerGetAttribute, &value, CU_POINTER_ATTRIBUTE_IS_MANAGED, q);
    IS(1, value);
    OK(cuPointerGetAttribute, &value, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p);
    IS(1, value);
    OK(cuPointerGetAttribute, &types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, p);
    IS(0, types);
    OK(cuPointerSetAttribute, &one, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    OK(cuPointerGetAttribute, &get, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    IS(1, get);
    BAD(cuPointerSetAttribute, &one, CU_POINTER_ATTRIBUTE_MAPPED, p);
    BAD(cuPointerGetAttribute, &value, CU_POINTER_ATTRIBUTE_MAPPED, (CUdeviceptr)(uintptr_t)&p);
    OK(cuPointerGetAttributes, 2, names, data, (CUdeviceptr)(uintptr_t)&p);
    TRUE(type == 0 && value == -2);
    OK(cuMemFree_v2, p);
    OK(cuMemAlloc_v2, &p, MIB);
    OK(cuPointerGetAttribute, &get, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p);
    IS(0, get);
    OK(cuMemFree_v2, p);
    OK(cuMemFree_v2, q);
}

static const struct check_group groups[] = {
    {"linear", linear}, {"managed", managed},         {"host", host},
    {"arrays", arrays}, {"mipmaps", mipmaps},         {"peers", peers},
    {"vmm", vmm},       {"export", export},           {"multicast", multicast},
    {"pools", pools},   {"descriptors", descriptors}, {"threads", threads},
    {"big", big},       {"granules", granules},       {"attributes", attributes},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, groups, sizeof(groups) / sizeof(groups[0]));
}
