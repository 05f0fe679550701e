/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear and pitched memory. A refusal is CUDA_ERROR_OUT_OF_MEMORY with every output untouched;
 * every other answer is the driver's own. A pointer that is not remembered goes to the driver.
 */
#include "vgpu/memory/alloc.h"

#include "vgpu/memory/charge.h"
#include "vgpu/memory/pool.h"

CUresult alq_ticket_take(struct alq_ticket *t, uint64_t counted_bytes, uint64_t overhead_bytes)
{
    *t = (struct alq_ticket){.counted_bytes = counted_bytes,
                             .overhead_bytes = (uint32_t)overhead_bytes};
    if (alq_core_mode() == ALQ_MODE_BROKEN)
        return CUDA_ERROR_NOT_PERMITTED;
    struct alq_here here = alq_context_here();
    if (here.error != CUDA_SUCCESS)
        return here.error;
    /* Without a context, or for nothing, the driver has its own answer. */
    if (!here.dev || counted_bytes == 0)
        return CUDA_SUCCESS;
    if (!alq_admit(here.dev, counted_bytes, overhead_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    t->dev = here.dev;
    t->context = here.context;
    return CUDA_SUCCESS;
}

void alq_ticket_give_back(const struct alq_ticket *t)
{
    if (t->dev)
        alq_uncharge(t->dev, t->counted_bytes, t->overhead_bytes);
}

bool alq_ticket_remember(const struct alq_ticket *t, uint64_t handle, enum alq_kind kind)
{
    struct alq_entry_value value = {
        .counted_bytes = t->counted_bytes,
        .overhead_bytes = t->overhead_bytes,
        .context = t->context,
        .device = (uint8_t)t->dev->index,
        .kind = (uint8_t)kind,
    };
    if (!alq_table_put(handle, &value))
        return false;
    alq_charge_tend(t->dev);
    return true;
}

void alq_freed(CUresult result, uint64_t handle, const struct alq_entry_value *value)
{
    if (result != CUDA_SUCCESS) {
        alq_table_put(handle, value);
    } else if (value->kind == ALQ_KIND_POOL) {
        alq_pool_freed(value->overhead_bytes, value->counted_bytes);
    } else {
        alq_uncharge(alq_dev_at(value->device), value->counted_bytes, value->overhead_bytes);
    }
}

/* ---- linear memory --------------------------------------------------------------------------- */

static CUresult free_linear(CUdeviceptr ptr)
{
    if (ALQ_HAS(cuMemFree_v2))
        ALQ_CALL(cuMemFree_v2, ptr);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* `bytes` names what is asked for; the driver writes to *out. */
#define ALLOC(name, kind, params, args, free_it)                                                   \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct alq_ticket t;                                                                       \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on() || !out)                                                             \
            return ALQ_CALL(name, args);                                                           \
        CUresult result = alq_ticket_take(&t, bytes, alq_slack(bytes));                            \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = ALQ_CALL(name, args);                                                             \
        ALQ_ALLOCATED(result, t, *out, kind, free_it);                                             \
        return result;                                                                             \
    }

ALLOC(cuMemAlloc, ALQ_KIND_LINEAR, (CUdeviceptr_v1 * out, unsigned int bytes), ARGS(out, bytes),
      free_linear(*out))
ALLOC(cuMemAlloc_v2, ALQ_KIND_LINEAR, (CUdeviceptr * out, size_t bytes), ARGS(out, bytes),
      free_linear(*out))
ALLOC(cuMemAllocManaged, ALQ_KIND_LINEAR, (CUdeviceptr * out, size_t bytes, unsigned int flags),
      ARGS(out, bytes, flags), free_linear(*out))

/* Rows are padded to the driver's pitch, which it tells only afterwards: reserved with the granule,
 * settled with the truth. */
static CUresult settle_pitch(CUresult result, struct alq_ticket *t, CUdeviceptr ptr, uint64_t pitch,
                             uint64_t height)
{
    uint64_t truth;

    if (!t->dev)
        return result;
    if (result != CUDA_SUCCESS) {
        alq_ticket_give_back(t);
        return result;
    }
    if (__builtin_mul_overflow(pitch, height, &truth))
        truth = UINT64_MAX;
    /* One kind alone is moved, so the slack of a pitched allocation is counted with it. */
    uint64_t had = t->counted_bytes, want = truth + alq_slack(truth);
    bool fits = want >= truth && (want <= had || alq_admit(t->dev, want - had, 0));
    if (fits && want < had)
        alq_uncharge(t->dev, had - want, 0);
    if (fits)
        t->counted_bytes = want;
    if (fits && alq_ticket_remember(t, ptr, ALQ_KIND_LINEAR))
        return result;
    alq_ticket_give_back(t);
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
        struct alq_ticket t;                                                                       \
        uint64_t guess = 0;                                                                        \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on() || !out || !pitch)                                                   \
            return ALQ_CALL(name, out, pitch, width, height, element);                             \
        if (!pitch_guess(width, height, &guess))                                                   \
            guess = UINT64_MAX;                                                                    \
        CUresult result = alq_ticket_take(&t, guess, 0);                                           \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = ALQ_CALL(name, out, pitch, width, height, element);                               \
        return t.dev && result == CUDA_SUCCESS ? settle_pitch(result, &t, *out, *pitch, height)    \
                                               : settle_pitch(result, &t, 0, 0, 0);                \
    }

ALLOC_PITCH(cuMemAllocPitch, CUdeviceptr_v1, unsigned int)
ALLOC_PITCH(cuMemAllocPitch_v2, CUdeviceptr, size_t)

/* Waits for the device, as the driver's own does, so its pools may have been trimmed. */
#define FREE_LINEAR(name, type)                                                                    \
    ALQ_HOOK CUresult name(type handle)                                                            \
    {                                                                                              \
        struct alq_entry_value value;                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, handle);                                                         \
        alq_core_renew();                                                                          \
        bool is_ours = alq_table_take(handle, ALQ_KIND_LINEAR, &value);                            \
        CUresult result = ALQ_CALL(name, handle);                                                  \
        if (is_ours)                                                                               \
            alq_freed(result, handle, &value);                                                     \
        alq_pool_synced();                                                                         \
        return result;                                                                             \
    }

FREE_LINEAR(cuMemFree, CUdeviceptr_v1)
FREE_LINEAR(cuMemFree_v2, CUdeviceptr)
