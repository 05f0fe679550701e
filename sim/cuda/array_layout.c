/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which shapes an array of array.h may have, and what they cost. Pure.
 */
#include "cuda/array.h"

#define ROW_UNIT_BYTES 64u /* a block-linear unit: 64 bytes by 8 rows */
#define ROW_UNIT 8u
#define FLAGS 0x3fu /* all that say what an array is for; not sparse, not deferred */

/* The largest of each kind of shape, as cuDeviceGetAttribute tells. */
#define MAX_1D 131072u
#define MAX_2D_WIDTH 131072u
#define MAX_2D_HEIGHT 65536u
#define MAX_3D 16384u
#define MAX_LAYERED 32768u
#define MAX_LAYERS 2048u

static uint32_t format_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    case CU_AD_FORMAT_NV12:
        return 1;
    default:
        return 0;
    }
}

static bool is_allowed(const CUDA_ARRAY3D_DESCRIPTOR *s)
{
    bool is_layered = s->Flags & CUDA_ARRAY3D_LAYERED, is_cube = s->Flags & CUDA_ARRAY3D_CUBEMAP;

    if (!format_bytes(s->Format) || s->Flags > FLAGS || !s->Width)
        return false;
    if (s->Format == CU_AD_FORMAT_NV12)
        return s->NumChannels == 3 && s->Height && !s->Depth && !(s->Width % 2) &&
               !(s->Height % 2) && s->Width <= MAX_2D_WIDTH && s->Height <= MAX_2D_HEIGHT;
    if (s->NumChannels != 1 && s->NumChannels != 2 && s->NumChannels != 4)
        return false;
    if ((s->Flags & CUDA_ARRAY3D_TEXTURE_GATHER) && (!s->Height || s->Depth))
        return false;
    if (is_cube)
        return s->Width == s->Height && s->Width <= MAX_LAYERED &&
               (is_layered ? s->Depth && s->Depth % 6 == 0 && s->Depth <= MAX_LAYERS
                           : s->Depth == 6);
    if (is_layered)
        return s->Depth && s->Depth <= MAX_LAYERS && s->Width <= MAX_LAYERED &&
               s->Height <= MAX_LAYERED;
    if (s->Depth)
        return s->Height && s->Width <= MAX_3D && s->Height <= MAX_3D && s->Depth <= MAX_3D;
    return s->Height ? s->Width <= MAX_2D_WIDTH && s->Height <= MAX_2D_HEIGHT : s->Width <= MAX_1D;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

CUresult array_layout(const CUDA_ARRAY3D_DESCRIPTOR *s, struct CUarray_st *a)
{
    NEED(is_allowed(s), CUDA_ERROR_INVALID_VALUE);
    a->shape = *s;
    a->element_bytes =
        format_bytes(s->Format) * (s->Format == CU_AD_FORMAT_NV12 ? 1 : s->NumChannels);
    a->rows = s->Height ? s->Height : 1;
    if (s->Format == CU_AD_FORMAT_NV12)
        a->rows += s->Height / 2; /* the second plane: half as many rows of pairs */
    a->slices = s->Depth ? s->Depth : 1;
    a->pitch_bytes = round_up(s->Width * a->element_bytes, ROW_UNIT_BYTES);
    a->slice_bytes = a->pitch_bytes * (a->rows > 1 ? round_up(a->rows, ROW_UNIT) : 1);
    a->bytes = round_up(a->slice_bytes * a->slices, ARRAY_ALIGN_BYTES);
    return CUDA_SUCCESS;
}
