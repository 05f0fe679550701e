/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA arrays and mipmaps: shapes over device memory that has no address of its own. Rows lie at a
 * pitch of 64 bytes and in groups of 8 (the block-linear units of a card), layer after layer, so
 * that the bytes an array costs are those a card would take, while a copy stays row by row.
 */
#ifndef SIM_CUDA_ARRAY_H
#define SIM_CUDA_ARRAY_H

#include "cuda/driver.h"

#define ARRAY_ALIGN_BYTES 512u
#define ARRAY_LEVELS 16u /* of the largest mipmap */

struct CUarray_st {
    uint32_t magic;
    struct CUctx_st *context;
    struct CUarray_st *next;       /* arrays of all contexts */
    CUDA_ARRAY3D_DESCRIPTOR shape; /* as created; layers in Depth */
    uint32_t element_bytes;        /* channels times their width */
    uint64_t rows, slices;         /* at least 1 */
    uint64_t pitch_bytes, slice_bytes, bytes;
    CUdeviceptr address;                /* never shown to the program */
    struct CUmipmappedArray_st *mipmap; /* whose level it is */
    struct CUarray_st *planes[2];       /* of a planar format */
    bool is_plane, is_level;
};

struct CUmipmappedArray_st {
    uint32_t magic;
    struct CUctx_st *context;
    struct CUmipmappedArray_st *next;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    unsigned int levels;
    struct CUarray_st *level[ARRAY_LEVELS];
    CUdeviceptr address;
    uint64_t bytes;
    bool is_mapped; /* of external memory, which it does not own */
};

/* Fills rows, pitch and sizes from a checked description; CUDA_ERROR_INVALID_VALUE for one that
 * CUDA does not allow. Pure. */
CUresult array_layout(const CUDA_ARRAY3D_DESCRIPTOR *shape, struct CUarray_st *array);

/* A live array of this handle. */
CUresult array_check(CUarray array);

/* Mipmap over device memory that somebody else owns (external memory). */
CUresult mipmap_over(struct CUctx_st *context, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                     unsigned int levels, CUdeviceptr address, uint64_t room,
                     CUmipmappedArray *mipmap);

#endif
