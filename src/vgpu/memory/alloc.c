/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers of the entry points that allocate and free: reserve, call the driver, give back on
 * failure, remember on success. A refusal is CUDA_ERROR_OUT_OF_MEMORY with every output untouched;
 * every other answer is the driver's own. A pointer that is not remembered goes to the driver. No
 * lock is held over a driver call.
 */
#include "vgpu/context.h"
#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/table.h"

/* What an allocation is about to cost, and where. dev NULL: it is not limited. */
struct ticket {
    struct alq_dev *dev;
    uint64_t counted_bytes;
    uint32_t overhead_bytes;
    uint16_t context;
};

/* CUDA_SUCCESS: go on, with t->dev set where something was reserved. Else the answer to the
 * program. */
static CUresult reserve(struct ticket *t, uint64_t counted, uint64_t overhead)
{
    *t = (struct ticket){.counted_bytes = counted, .overhead_bytes = (uint32_t)overhead};
    if (alq_core_mode() == ALQ_MODE_BROKEN)
        return CUDA_ERROR_NOT_PERMITTED;
    struct alq_here here = alq_context_here();
    if (here.error != CUDA_SUCCESS)
        return here.error;
    /* Without a context, or for nothing, the driver has its own answer. */
    if (!here.dev || counted == 0)
        return CUDA_SUCCESS;
    if (!alq_charge(here.dev, counted, overhead))
        return CUDA_ERROR_OUT_OF_MEMORY;
    t->dev = here.dev;
    t->context = here.context;
    return CUDA_SUCCESS;
}

static void give_back(const struct ticket *t)
{
    if (t->dev)
        alq_uncharge(t->dev, t->counted_bytes, t->overhead_bytes);
}

static bool remember(const struct ticket *t, uint64_t handle, enum alq_kind kind)
{
    struct alq_entry_value value = {
        .counted_bytes = t->counted_bytes,
        .overhead_bytes = t->overhead_bytes,
        .context = kind == ALQ_KIND_POOL ? 0 : t->context,
        .device = (uint8_t)t->dev->index,
        .kind = (uint8_t)kind,
    };
    if (!alq_table_put(handle, &value))
        return false;
    alq_charge_tend(t->dev);
    return true;
}

/* ---- linear memory --------------------------------------------------------------------------- */

static CUresult free_linear(CUdeviceptr ptr)
{
    if (ALQ_HAS(cuMemFree_v2))
        ALQ_CALL(cuMemFree_v2, ptr);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The end of every allocation of linear memory: free_it undoes it when it cannot be remembered. */
#define ALLOCATED(result, ticket, ptr, kind, free_it)                                              \
    do {                                                                                           \
        if ((ticket).dev && (result) != CUDA_SUCCESS) {                                            \
            give_back(&(ticket));                                                                  \
        } else if ((ticket).dev && !remember(&(ticket), (uint64_t)(ptr), kind)) {                  \
            (result) = free_it; /* before others may have its bytes */                             \
            give_back(&(ticket));                                                                  \
        }                                                                                          \
    } while (0)

/* `bytes` names what is asked for; the driver writes to *out. */
#define ALLOC(name, kind, params, args, free_it)                                                   \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct ticket t;                                                                           \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, args);                                                           \
        CUresult result = reserve(&t, bytes, alq_slack(bytes));                                    \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = ALQ_CALL(name, args);                                                             \
        ALLOCATED(result, t, *out, kind, free_it);                                                 \
        return result;                                                                             \
    }
#define ARGS(...) __VA_ARGS__

ALLOC(cuMemAlloc, ALQ_KIND_LINEAR, (CUdeviceptr_v1 * out, unsigned int bytes), ARGS(out, bytes),
      free_linear(*out))
ALLOC(cuMemAlloc_v2, ALQ_KIND_LINEAR, (CUdeviceptr * out, size_t bytes), ARGS(out, bytes),
      free_linear(*out))
ALLOC(cuMemAllocManaged, ALQ_KIND_LINEAR, (CUdeviceptr * out, size_t bytes, unsigned int flags),
      ARGS(out, bytes, flags), free_linear(*out))

static CUresult free_async(CUdeviceptr ptr, CUstream stream)
{
    if (ALQ_HAS(cuMemFreeAsync))
        ALQ_CALL(cuMemFreeAsync, ptr, stream);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

ALLOC(cuMemAllocAsync, ALQ_KIND_POOL, (CUdeviceptr * out, size_t bytes, CUstream stream),
      ARGS(out, bytes, stream), free_async(*out, stream))
ALLOC(cuMemAllocAsync_ptsz, ALQ_KIND_POOL, (CUdeviceptr * out, size_t bytes, CUstream stream),
      ARGS(out, bytes, stream), free_async(*out, stream))
ALLOC(cuMemAllocFromPoolAsync, ALQ_KIND_POOL,
      (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream),
      ARGS(out, bytes, pool, stream), free_async(*out, stream))
ALLOC(cuMemAllocFromPoolAsync_ptsz, ALQ_KIND_POOL,
      (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream stream),
      ARGS(out, bytes, pool, stream), free_async(*out, stream))

/* Rows are padded to the driver's pitch, which it tells only afterwards: reserved with the granule,
 * settled with the truth. */
static CUresult settle_pitch(CUresult result, struct ticket *t, CUdeviceptr ptr, uint64_t pitch,
                             uint64_t height)
{
    uint64_t truth;

    if (!t->dev)
        return result;
    if (result != CUDA_SUCCESS) {
        give_back(t);
        return result;
    }
    if (__builtin_mul_overflow(pitch, height, &truth))
        truth = UINT64_MAX;
    /* One kind alone is moved, so the slack of a pitched allocation is counted with it. */
    uint64_t had = t->counted_bytes, want = truth + alq_slack(truth);
    bool fits = want >= truth && (want <= had || alq_charge(t->dev, want - had, 0));
    if (fits && want < had)
        alq_uncharge(t->dev, had - want, 0);
    if (fits)
        t->counted_bytes = want;
    if (fits && remember(t, ptr, ALQ_KIND_LINEAR))
        return result;
    give_back(t);
    return free_linear(ptr);
}

static bool pitch_guess(uint64_t width, uint64_t height, uint64_t *bytes)
{
    return !__builtin_add_overflow(width, alq_slack(width), &width) &&
           !__builtin_mul_overflow(width, height, bytes);
}

#define ALLOC_PITCH(name, ptr_type, size_type)                                                     \
    ALQ_HOOK CUresult name(ptr_type *out, size_type *pitch, size_type width, size_type height,     \
                           unsigned int element)                                                   \
    {                                                                                              \
        struct ticket t;                                                                           \
        uint64_t guess = 0;                                                                        \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, out, pitch, width, height, element);                             \
        if (!pitch_guess(width, height, &guess))                                                   \
            guess = UINT64_MAX;                                                                    \
        CUresult result = reserve(&t, guess, 0);                                                   \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = ALQ_CALL(name, out, pitch, width, height, element);                               \
        return t.dev && result == CUDA_SUCCESS ? settle_pitch(result, &t, *out, *pitch, height)    \
                                               : settle_pitch(result, &t, 0, 0, 0);                \
    }

ALLOC_PITCH(cuMemAllocPitch, CUdeviceptr_v1, unsigned int)
ALLOC_PITCH(cuMemAllocPitch_v2, CUdeviceptr, size_t)

/*
 * Taken out of the table before the driver frees it, for another thread may be given the same
 * address at once; put back when the driver says no. The bytes stay charged until it has said yes.
 */
#define FREE(name, kind_, params, args)                                                            \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct alq_entry_value value;                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, args);                                                           \
        alq_core_renew();                                                                          \
        bool is_ours = alq_table_take((uint64_t)handle, kind_, &value);                            \
        CUresult result = ALQ_CALL(name, args);                                                    \
        if (is_ours)                                                                               \
            freed(result, (uint64_t)handle, &value);                                               \
        return result;                                                                             \
    }

static void freed(CUresult result, uint64_t handle, const struct alq_entry_value *value)
{
    if (result == CUDA_SUCCESS)
        alq_uncharge(alq_dev_at(value->device), value->counted_bytes, value->overhead_bytes);
    else
        alq_table_put(handle, value);
}

FREE(cuMemFree, ALQ_KIND_LINEAR, (CUdeviceptr_v1 handle), ARGS(handle))
FREE(cuMemFree_v2, ALQ_KIND_LINEAR, (CUdeviceptr handle), ARGS(handle))
FREE(cuMemFreeAsync, ALQ_KIND_POOL, (CUdeviceptr handle, CUstream stream), ARGS(handle, stream))
FREE(cuMemFreeAsync_ptsz, ALQ_KIND_POOL, (CUdeviceptr handle, CUstream stream),
     ARGS(handle, stream))

/* ---- arrays ---------------------------------------------------------------------------------- */

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
        struct ticket t;                                                                           \
        uint64_t guess = 0;                                                                        \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on() || !desc)                                                            \
            return ALQ_CALL(name, args);                                                           \
        if (!array_guess(desc->Width, desc->Height, depth_,                                        \
                         element_bytes(desc->Format, desc->NumChannels), levels_, &guess))         \
            guess = UINT64_MAX;                                                                    \
        CUresult result = reserve(&t, guess, guess == UINT64_MAX ? 0 : alq_slack(guess));          \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = ALQ_CALL(name, args);                                                             \
        if (t.dev && result == CUDA_SUCCESS)                                                       \
            settle_array(&t, array_truth_##handle_type(*out, t.dev->ordinal));                     \
        ALLOCATED(result, t, (uintptr_t)*out, ALQ_KIND_ARRAY, destroy_##handle_type(*out));        \
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
static void settle_array(struct ticket *t, uint64_t truth)
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

FREE(cuArrayDestroy, ALQ_KIND_ARRAY, (CUarray handle), ARGS(handle))
FREE(cuMipmappedArrayDestroy, ALQ_KIND_ARRAY, (CUmipmappedArray handle), ARGS(handle))
