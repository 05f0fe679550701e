/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays and mipmapped arrays: reserved by the description, settled by the size that the driver
 * tells of the finished one. A sparse one, or one whose mapping is deferred, has no memory of its
 * own: what is mapped into it is counted where it was made (piece.h).
 */
#include "vgpu/memory/alloc.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/piece.h"
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

static bool has_own_memory(unsigned int flags)
{
    return !(flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING));
}

/* The description can be missing (NULL): then there is nothing to reserve for, and the driver says
 * what it thinks. */
#define ARRAY_CREATE(name, handle_type, params, args, depth_, levels_, flags_)                     \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct alq_ticket t;                                                                       \
        uint64_t guess = 0;                                                                        \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on() || !desc || !out || !has_own_memory(flags_))                         \
            return ALQ_CALL(name, args);                                                           \
        if (!array_guess(desc->Width, desc->Height, depth_,                                        \
                         element_bytes(desc->Format, desc->NumChannels), levels_, &guess))         \
            guess = UINT64_MAX;                                                                    \
        CUresult result = alq_ticket_take(&t, ALQ_FAMILY_ARRAY, guess,                             \
                                          guess == UINT64_MAX ? 0 : alq_slack(guess));             \
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
             ARGS(out, desc), 1, 1, 0)
ARRAY_CREATE(cuArrayCreate_v2, CUarray, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR *desc),
             ARGS(out, desc), 1, 1, 0)
ARRAY_CREATE(cuArray3DCreate, CUarray, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc),
             ARGS(out, desc), desc->Depth, 1, desc->Flags)
ARRAY_CREATE(cuArray3DCreate_v2, CUarray, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR *desc),
             ARGS(out, desc), desc->Depth, 1, desc->Flags)
ARRAY_CREATE(cuMipmappedArrayCreate, CUmipmappedArray,
             (CUmipmappedArray * out, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels),
             ARGS(out, desc, levels), desc->Depth, levels, desc->Flags)

#define ARRAY_DESTROY(name, handle_type)                                                           \
    ALQ_HOOK CUresult name(handle_type handle)                                                     \
    {                                                                                              \
        struct alq_entry_value value;                                                              \
        struct alq_parting part;                                                                   \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, handle);                                                         \
        alq_core_renew();                                                                          \
        bool is_ours = alq_table_take((uintptr_t)handle, ALQ_KIND_ARRAY, &value);                  \
        alq_part_begin(&part);                                                                     \
        CUresult result = ALQ_CALL(name, handle);                                                  \
        if (is_ours)                                                                               \
            alq_freed(result, (uintptr_t)handle, &value);                                          \
        if (result == CUDA_SUCCESS && alq_binding_count)                                           \
            alq_bindings_end_all((uintptr_t)handle, &part);                                        \
        alq_part_end(&part);                                                                       \
        return result;                                                                             \
    }

ARRAY_DESTROY(cuArrayDestroy, CUarray)
ARRAY_DESTROY(cuMipmappedArrayDestroy, CUmipmappedArray)
