/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays and mipmapped arrays: reserved by the description, settled by the size that the driver
 * tells of the finished one. A sparse one has no memory of its own: what is mapped into it is
 * counted where it was made (vmm.c).
 */
#include "vgpu/memory/alloc.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/pool.h"

static uint64_t element_bytes(CUarray_format format, unsigned int channels)
{
    uint64_t bytes;
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        bytes = 1;
        break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        bytes = 2;
        break;
    default:
        bytes =
            4; /* the widest channel of the plain formats; packed and compressed ones need less */
        break;
    }
    return bytes * (channels ? channels : 1);
}

/* By the description; a dimension of 0 does not multiply. False on overflow. */
static bool array_guess(uint64_t width, uint64_t height, uint64_t depth, uint64_t element,
                        unsigned int levels, uint64_t *bytes)
{
    uint64_t one, sum = 0;
    for (unsigned int level = 0; level < (levels ? levels : 1) && level < 32; level++) {
        if (__builtin_mul_overflow(width ? width : 1, height ? height : 1, &one) ||
            __builtin_mul_overflow(one, depth ? depth : 1, &one) ||
            __builtin_mul_overflow(one, element, &one) || __builtin_add_overflow(sum, one, &sum))
            return false;
        width = width > 1 ? width / 2 : width;
        height = height > 1 ? height / 2 : height;
        depth = depth > 1 ? depth / 2 : depth;
    }
    *bytes = sum;
    return true;
}

/* The description can be missing (NULL): then there is nothing to reserve for, and the driver says
 * what it thinks. */
#define ARRAY_CREATE(name, handle_type, params, args, depth_, levels_)                             \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct alq_ticket t;                                                                       \
        uint64_t guess = 0;                                                                        \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on() || !desc || !out)                                                    \
            return ALQ_CALL(name, args);                                                           \
        if (!array_guess(desc->Width, desc->Height, depth_,                                        \
                         element_bytes(desc->Format, desc->NumChannels), levels_, &guess))         \
            guess = UINT64_MAX;                                                                    \
        CUresult result = alq_ticket_take(&t, guess, guess == UINT64_MAX ? 0 : alq_slack(guess));  \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = ALQ_CALL(name, args);                                                             \
        if (t.dev && result == CUDA_SUCCESS)                                                       \
            settle_array(&t, array_truth_##handle_type(*out, t.dev->ordinal));                     \
        ALQ_ALLOCATED(result, t, (uintptr_t)*out, ALQ_KIND_ARRAY, destroy_##handle_type(*out));    \
        return result;                                                                             \
    }

static uint64_t array_truth_CUarray(CUarray array, CUdevice device)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS need = {.size = 0};
    if (ALQ_HAS(cuArrayGetMemoryRequirements) &&
        ALQ_CALL(cuArrayGetMemoryRequirements, &need, array, device) == CUDA_SUCCESS)
        return need.size;
    return 0;
}

static uint64_t array_truth_CUmipmappedArray(CUmipmappedArray array, CUdevice device)
{
    CUDA_ARRAY_MEMORY_REQUIREMENTS need = {.size = 0};
    if (ALQ_HAS(cuMipmappedArrayGetMemoryRequirements) &&
        ALQ_CALL(cuMipmappedArrayGetMemoryRequirements, &need, array, device) == CUDA_SUCCESS)
        return need.size;
    return 0;
}

/* To the driver's real size, where it tells one and it still fits. */
static void settle_array(struct alq_ticket *t, uint64_t truth)
{
    uint64_t had = t->counted_bytes;
    if (truth == 0 || truth == had)
        return;
    if (truth < had)
        alq_uncharge(t->dev, had - truth, 0);
    else if (!alq_charge(t->dev, truth - had, 0))
        return;
    t->counted_bytes = truth;
}

static CUresult destroy_CUarray(CUarray array)
{
    if (ALQ_HAS(cuArrayDestroy))
        ALQ_CALL(cuArrayDestroy, array);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult destroy_CUmipmappedArray(CUmipmappedArray array)
{
    if (ALQ_HAS(cuMipmappedArrayDestroy))
        ALQ_CALL(cuMipmappedArrayDestroy, array);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

ARRAY_CREATE(cuArrayCreate, CUarray, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR_v1 *desc),
             ARGS(out, desc), 1, 1)
ARRAY_CREATE(cuArrayCreate_v2, CUarray, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR *desc),
             ARGS(out, desc), 1, 1)
ARRAY_CREATE(cuArray3DCreate, CUarray, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc),
             ARGS(out, desc), desc->Depth, 1)
ARRAY_CREATE(cuArray3DCreate_v2, CUarray, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR *desc),
             ARGS(out, desc), desc->Depth, 1)
ARRAY_CREATE(cuMipmappedArrayCreate, CUmipmappedArray,
             (CUmipmappedArray * out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels),
             ARGS(out, desc, levels), desc->Depth, levels)

ALQ_FREE(cuArrayDestroy, ALQ_KIND_ARRAY, (CUarray handle), ARGS(handle), false)
ALQ_FREE(cuMipmappedArrayDestroy, ALQ_KIND_ARRAY, (CUmipmappedArray handle), ARGS(handle), false)
