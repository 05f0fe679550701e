/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the arrays of array.h. Lists are under
 * array_lock, which is taken before a device's memory lock. A destroyed array keeps its structure
 * with another magic number.
 */
#include "cuda/array.h"
#include "cuda/memory.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t array_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUarray_st *arrays;
static struct CUmipmappedArray_st *mipmaps;

CUresult array_check(CUarray a)
{
    NEED(a && a->magic == MAGIC_ARRAY, CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

static CUresult mipmap_check(CUmipmappedArray m)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(m && m->magic == MAGIC_MIPMAP, CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

static void array_link(struct CUarray_st *a)
{
    pthread_mutex_lock(&array_lock);
    a->next = arrays;
    arrays = a;
    a->magic = MAGIC_ARRAY;
    pthread_mutex_unlock(&array_lock);
}

/* Takes one array out of the list and kills it; under array_lock. */
static void array_unlink(struct CUarray_st *a)
{
    struct CUarray_st **at = &arrays;

    while (*at && *at != a)
        at = &(*at)->next;
    if (*at)
        *at = a->next;
    a->magic = MAGIC_DEAD;
    for (int i = 0; i < 2; i++) {
        if (a->planes[i]) {
            a->planes[i]->magic = MAGIC_DEAD;
            bury(a->planes[i]);
        }
    }
    bury(a);
}

/* Arrays of a planar format hold one array for each plane, over the same memory. */
static CUresult planes_make(struct CUarray_st *a)
{
    for (unsigned int i = 0; i < 2; i++) {
        struct CUarray_st *p = calloc(1, sizeof(*p));
        CUDA_ARRAY3D_DESCRIPTOR shape = {
            .Width = a->shape.Width >> i,
            .Height = a->shape.Height >> i,
            .Format = CU_AD_FORMAT_UNSIGNED_INT8,
            .NumChannels = i + 1,
            .Flags = a->shape.Flags,
        };

        NEED(p, CUDA_ERROR_OUT_OF_MEMORY);
        TRY(array_layout(&shape, p));
        p->pitch_bytes = a->pitch_bytes;
        p->context = a->context;
        p->address = a->address + i * a->pitch_bytes * a->shape.Height;
        p->is_plane = true;
        p->magic = MAGIC_ARRAY;
        a->planes[i] = p;
    }
    return CUDA_SUCCESS;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    struct CUctx_st *c;
    struct CUarray_st *a;
    CUresult rc;

    TRY(current(&c));
    NEED(out && shape, CUDA_ERROR_INVALID_VALUE);
    NEED(!(shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)),
         CUDA_ERROR_NOT_SUPPORTED);
    TRY(capture_unsafe());
    a = calloc(1, sizeof(*a));
    NEED(a, CUDA_ERROR_OUT_OF_MEMORY);
    a->context = c;
    rc = array_layout(shape, a);
    if (rc == CUDA_SUCCESS)
        rc = memory_alloc(c, a->bytes, VA_ARRAY, &a->address);
    if (rc == CUDA_SUCCESS && shape->Format == CU_AD_FORMAT_NV12) {
        rc = planes_make(a);
        if (rc != CUDA_SUCCESS)
            (void)memory_release(a->address, VA_ARRAY);
    }
    if (rc != CUDA_SUCCESS) {
        free(a);
        return rc;
    }
    array_link(a);
    *out = a;
    return CUDA_SUCCESS;
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    return create(array, shape);
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape)
{
    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    return create(array,
                  &(CUDA_ARRAY3D_DESCRIPTOR){shape->Width, shape->Height, shape->Depth,
                                             shape->Format, shape->NumChannels, shape->Flags});
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape)
{
    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    return create(array, &(CUDA_ARRAY3D_DESCRIPTOR){shape->Width, shape->Height, 0, shape->Format,
                                                    shape->NumChannels, 0});
}

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *shape)
{
    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    return create(array, &(CUDA_ARRAY3D_DESCRIPTOR){shape->Width, shape->Height, 0, shape->Format,
                                                    shape->NumChannels, 0});
}

CUresult cuArrayDestroy(CUarray array)
{
    CUdeviceptr address;
    CUresult rc;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    TRY(array_check(array));
    (void)context_wait(array->context);
    pthread_mutex_lock(&array_lock);
    rc = array_check(array);
    address = array->address;
    if (rc == CUDA_SUCCESS && (array->is_level || array->is_plane))
        rc = CUDA_ERROR_INVALID_HANDLE; /* goes with what it is part of */
    if (rc == CUDA_SUCCESS)
        array_unlink(array);
    pthread_mutex_unlock(&array_lock);
    return rc == CUDA_SUCCESS ? memory_release(address, VA_ARRAY) : rc;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *shape, CUarray array)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    TRY(array_check(array));
    *shape = array->shape;
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR_v1 *shape, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR s;

    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    TRY(cuArray3DGetDescriptor_v2(&s, array));
    *shape = (CUDA_ARRAY3D_DESCRIPTOR_v1){(unsigned int)s.Width, (unsigned int)s.Height,
                                          (unsigned int)s.Depth, s.Format,
                                          s.NumChannels,         s.Flags};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *shape, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR s;

    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    TRY(cuArray3DGetDescriptor_v2(&s, array));
    *shape = (CUDA_ARRAY_DESCRIPTOR){s.Width, s.Height, s.Format, s.NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor(CUDA_ARRAY_DESCRIPTOR_v1 *shape, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR s;

    NEED(shape, CUDA_ERROR_INVALID_VALUE);
    TRY(cuArray3DGetDescriptor_v2(&s, array));
    *shape = (CUDA_ARRAY_DESCRIPTOR_v1){(unsigned int)s.Width, (unsigned int)s.Height, s.Format,
                                        s.NumChannels};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *need, CUarray array,
                                      CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(need, CUDA_ERROR_INVALID_VALUE);
    TRY(array_check(array));
    *need = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = array->bytes, .alignment = ARRAY_ALIGN_BYTES};
    return CUDA_SUCCESS;
}

CUresult cuArrayGetPlane(CUarray *plane, CUarray array, unsigned int index)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(plane, CUDA_ERROR_INVALID_VALUE);
    TRY(array_check(array));
    NEED(index < 2 && array->planes[index], CUDA_ERROR_INVALID_VALUE);
    *plane = array->planes[index];
    return CUDA_SUCCESS;
}

/* No array here is sparse: the device says that it has none. */
CUresult cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties, CUarray array)
{
    NEED(driver_ready() && properties, CUDA_ERROR_INVALID_VALUE);
    TRY(array_check(array));
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES *properties,
                                             CUmipmappedArray mipmap)
{
    TRY(mipmap_check(mipmap));
    (void)properties;
    return CUDA_ERROR_INVALID_VALUE;
}

/* Mipmaps */

static size_t half(size_t extent, unsigned int level)
{
    return !extent ? 0 : extent >> level ? extent >> level : 1;
}

static unsigned int levels_of(const CUDA_ARRAY3D_DESCRIPTOR *s)
{
    size_t most = s->Width > s->Height ? s->Width : s->Height;
    unsigned int levels = 1;

    if (!(s->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && s->Depth > most)
        most = s->Depth;
    for (; most > 1; most >>= 1)
        levels++;
    return levels < ARRAY_LEVELS ? levels : ARRAY_LEVELS;
}

static void mipmap_free(struct CUmipmappedArray_st *m)
{
    for (unsigned int i = 0; i < ARRAY_LEVELS; i++)
        free(m->level[i]);
    free(m);
}

/* Levels one after the other; the address of each is its offset so far. */
static CUresult mipmap_layout(struct CUctx_st *c, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                              unsigned int levels, struct CUmipmappedArray_st *m)
{
    unsigned int most = levels_of(shape);
    bool is_flat = shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);

    NEED(levels && shape->Format != CU_AD_FORMAT_NV12, CUDA_ERROR_INVALID_VALUE);
    m->levels = levels < most ? levels : most;
    m->context = c;
    m->shape = *shape;
    for (unsigned int i = 0; i < m->levels; i++) {
        struct CUarray_st *a = calloc(1, sizeof(*a));
        CUDA_ARRAY3D_DESCRIPTOR s = *shape;

        NEED(a, CUDA_ERROR_OUT_OF_MEMORY);
        m->level[i] = a;
        s.Width = half(s.Width, i);
        s.Height = half(s.Height, i);
        s.Depth = is_flat ? s.Depth : half(s.Depth, i);
        TRY(array_layout(&s, a));
        a->context = c;
        a->mipmap = m;
        a->is_level = true;
        a->address = m->bytes;
        m->bytes += a->bytes;
    }
    return CUDA_SUCCESS;
}

static void mipmap_link(struct CUmipmappedArray_st *m, CUdeviceptr address)
{
    m->address = address;
    for (unsigned int i = 0; i < m->levels; i++) {
        m->level[i]->address += address;
        array_link(m->level[i]);
    }
    pthread_mutex_lock(&array_lock);
    m->next = mipmaps;
    mipmaps = m;
    m->magic = MAGIC_MIPMAP;
    pthread_mutex_unlock(&array_lock);
}

CUresult mipmap_over(struct CUctx_st *c, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels,
                     CUdeviceptr address, uint64_t room, CUmipmappedArray *out)
{
    struct CUmipmappedArray_st *m = calloc(1, sizeof(*m));
    CUresult rc;

    NEED(m, CUDA_ERROR_OUT_OF_MEMORY);
    rc = mipmap_layout(c, shape, levels, m);
    if (rc == CUDA_SUCCESS && m->bytes > room)
        rc = CUDA_ERROR_INVALID_VALUE;
    if (rc != CUDA_SUCCESS) {
        mipmap_free(m);
        return rc;
    }
    m->is_mapped = true;
    mipmap_link(m, address);
    *out = m;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                unsigned int levels)
{
    struct CUctx_st *c;
    struct CUmipmappedArray_st *m;
    CUdeviceptr address = 0;
    CUresult rc;

    TRY(current(&c));
    NEED(out && shape, CUDA_ERROR_INVALID_VALUE);
    NEED(!(shape->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)),
         CUDA_ERROR_NOT_SUPPORTED);
    TRY(capture_unsafe());
    m = calloc(1, sizeof(*m));
    NEED(m, CUDA_ERROR_OUT_OF_MEMORY);
    rc = mipmap_layout(c, shape, levels, m);
    if (rc == CUDA_SUCCESS)
        rc = memory_alloc(c, m->bytes, VA_ARRAY, &address);
    if (rc != CUDA_SUCCESS) {
        mipmap_free(m);
        return rc;
    }
    mipmap_link(m, address);
    *out = m;
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray m)
{
    struct CUmipmappedArray_st **at = &mipmaps;
    CUresult rc;

    TRY(mipmap_check(m));
    (void)context_wait(m->context);
    pthread_mutex_lock(&array_lock);
    rc = mipmap_check(m);
    if (rc == CUDA_SUCCESS) {
        while (*at && *at != m)
            at = &(*at)->next;
        if (*at)
            *at = m->next;
        m->magic = MAGIC_DEAD;
        for (unsigned int i = 0; i < m->levels; i++)
            array_unlink(m->level[i]);
    }
    pthread_mutex_unlock(&array_lock);
    NEED(rc == CUDA_SUCCESS, rc);
    rc = m->is_mapped ? mapped_free(m->address, false) : memory_release(m->address, VA_ARRAY);
    bury(m);
    return rc;
}

CUresult cuMipmappedArrayGetLevel(CUarray *level, CUmipmappedArray m, unsigned int index)
{
    TRY(mipmap_check(m));
    NEED(level && index < m->levels, CUDA_ERROR_INVALID_VALUE);
    *level = m->level[index];
    return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *need,
                                               CUmipmappedArray m, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(need, CUDA_ERROR_INVALID_VALUE);
    TRY(mipmap_check(m));
    *need = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = m->bytes, .alignment = ARRAY_ALIGN_BYTES};
    return CUDA_SUCCESS;
}

void array_free_all(struct CUctx_st *context)
{
    struct CUarray_st **at = &arrays;
    struct CUmipmappedArray_st **m = &mipmaps;

    pthread_mutex_lock(&array_lock);
    while (*at) {
        struct CUarray_st *a = *at;

        if (a->context == context)
            array_unlink(a); /* *at is now the next */
        else
            at = &a->next;
    }
    while (*m) {
        if ((*m)->context == context) {
            struct CUmipmappedArray_st *gone = *m;

            *m = gone->next;
            gone->magic = MAGIC_DEAD;
            bury(gone);
        } else {
            m = &(*m)->next;
        }
    }
    pthread_mutex_unlock(&array_lock);
}
