/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texture and surface objects: descriptions of a resource that is checked when they are made, kept
 * and told back. No kernel here samples them. A handle is the address of its object; a destroyed
 * one stays with another magic number.
 */
#include <stdlib.h>

#include "cuda/array.h"

struct object {
    uint32_t magic;
    bool has_view;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
};

static CUresult object_of(unsigned long long handle, uint32_t magic, struct object **object)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    /* Objects are aligned, so a small number or an odd one is none. */
    NEED(handle >= 4096 && handle % 16 == 0, CUDA_ERROR_INVALID_VALUE);
    *object = (struct object *)(uintptr_t)handle;
    NEED((*object)->magic == magic, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult resource_check(const CUDA_RESOURCE_DESC *r)
{
    NEED(!r->flags, CUDA_ERROR_INVALID_VALUE);
    switch (r->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        return array_check(r->res.array.hArray);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        NEED(r->res.mipmap.hMipmappedArray && r->res.mipmap.hMipmappedArray->magic == MAGIC_MIPMAP,
             CUDA_ERROR_INVALID_HANDLE);
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_LINEAR:
        NEED(r->res.linear.devPtr % ARRAY_ALIGN_BYTES == 0 && r->res.linear.sizeInBytes &&
                 memory_host(r->res.linear.devPtr, r->res.linear.sizeInBytes, false),
             CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_PITCH2D:
        NEED(r->res.pitch2D.devPtr % ARRAY_ALIGN_BYTES == 0 && r->res.pitch2D.width &&
                 r->res.pitch2D.height && r->res.pitch2D.pitchInBytes % 32 == 0 &&
                 memory_host(r->res.pitch2D.devPtr,
                             (r->res.pitch2D.height - 1) * r->res.pitch2D.pitchInBytes + 1, false),
             CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static struct object *object_new(uint32_t magic, const CUDA_RESOURCE_DESC *resource)
{
    struct object *o = aligned_alloc(16, (sizeof(*o) + 15) / 16 * 16);

    if (o)
        *o = (struct object){.magic = magic, .resource = *resource};
    return o;
}

CUresult cuTexObjectCreate(CUtexObject *out, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view)
{
    struct CUctx_st *c;
    struct object *o;

    TRY(current(&c));
    NEED(out && resource && texture, CUDA_ERROR_INVALID_VALUE);
    TRY(resource_check(resource));
    for (int i = 0; i < 3; i++)
        NEED(texture->addressMode[i] <= CU_TR_ADDRESS_MODE_BORDER, CUDA_ERROR_INVALID_VALUE);
    NEED(texture->filterMode <= CU_TR_FILTER_MODE_LINEAR, CUDA_ERROR_INVALID_VALUE);
    /* A view is for arrays alone. */
    NEED(!view || resource->resType <= CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, CUDA_ERROR_INVALID_VALUE);
    o = object_new(MAGIC_TEXTURE, resource);
    NEED(o, CUDA_ERROR_OUT_OF_MEMORY);
    o->texture = *texture;
    o->has_view = view != NULL;
    if (view)
        o->view = *view;
    *out = (uintptr_t)o;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject texture)
{
    struct object *o;

    TRY(object_of(texture, MAGIC_TEXTURE, &o));
    o->magic = MAGIC_DEAD;
    bury(o);
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUtexObject texture)
{
    struct object *o;

    TRY(object_of(texture, MAGIC_TEXTURE, &o));
    NEED(resource, CUDA_ERROR_INVALID_VALUE);
    *resource = o->resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *out, CUtexObject texture)
{
    struct object *o;

    TRY(object_of(texture, MAGIC_TEXTURE, &o));
    NEED(out, CUDA_ERROR_INVALID_VALUE);
    *out = o->texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *view, CUtexObject texture)
{
    struct object *o;

    TRY(object_of(texture, MAGIC_TEXTURE, &o));
    NEED(view && o->has_view, CUDA_ERROR_INVALID_VALUE);
    *view = o->view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *out, const CUDA_RESOURCE_DESC *resource)
{
    struct CUctx_st *c;
    struct object *o;

    TRY(current(&c));
    NEED(out && resource && resource->resType == CU_RESOURCE_TYPE_ARRAY, CUDA_ERROR_INVALID_VALUE);
    TRY(resource_check(resource));
    NEED(resource->res.array.hArray->shape.Flags & CUDA_ARRAY3D_SURFACE_LDST,
         CUDA_ERROR_INVALID_VALUE);
    o = object_new(MAGIC_SURFACE, resource);
    NEED(o, CUDA_ERROR_OUT_OF_MEMORY);
    *out = (uintptr_t)o;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectDestroy(CUsurfObject surface)
{
    struct object *o;

    TRY(object_of(surface, MAGIC_SURFACE, &o));
    o->magic = MAGIC_DEAD;
    bury(o);
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *resource, CUsurfObject surface)
{
    struct object *o;

    TRY(object_of(surface, MAGIC_SURFACE, &o));
    NEED(resource, CUDA_ERROR_INVALID_VALUE);
    *resource = o->resource;
    return CUDA_SUCCESS;
}
