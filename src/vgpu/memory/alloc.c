/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear and pitched memory. A refusal is CUDA_ERROR_OUT_OF_MEMORY with every output untouched;
 * every other answer is the driver's own. A pointer that is not remembered goes to the driver.
 */
#include "vgpu/memory/alloc.h"

#include "vgpu/arith.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/pool.h"
#include "vgpu/memory/spill.h"

CUresult alq_ticket_take_somewhere(struct alq_ticket *t, enum alq_family family,
                                   uint64_t counted_bytes, uint64_t overhead_bytes,
                                   uint64_t spill_bytes)
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
    enum alq_place place =
        alq_admit_somewhere(here.dev, family, counted_bytes, overhead_bytes, spill_bytes);
    if (place == ALQ_PLACE_NONE)
        return CUDA_ERROR_OUT_OF_MEMORY;
    t->dev = here.dev;
    t->context = here.context;
    t->is_on_host = place == ALQ_PLACE_HOST;
    if (t->is_on_host) {
        t->counted_bytes = spill_bytes;
        t->overhead_bytes = 0;
    }
    return CUDA_SUCCESS;
}

CUresult alq_ticket_take(struct alq_ticket *t, enum alq_family family, uint64_t counted_bytes,
                         uint64_t overhead_bytes)
{
    return alq_ticket_take_somewhere(t, family, counted_bytes, overhead_bytes, 0);
}

void alq_ticket_give_back(const struct alq_ticket *t)
{
    if (t->dev && t->is_on_host)
        alq_spill_give_back(t->dev, t->counted_bytes);
    else if (t->dev)
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
    alq_freed_measured(result, handle, value, NULL);
}

/* What others may still have is told by the measure. */
static void freed_exported(const struct alq_entry_value *value, struct alq_parting *part)
{
    struct alq_parting unmeasured;

    if (!part) {
        unmeasured = (struct alq_parting){.dev = NULL};
        part = &unmeasured;
    }
    part->exported_bytes[value->device] = value->counted_bytes;
    alq_part_end(part);
    alq_uncharge(alq_dev_at(value->device), 0, value->overhead_bytes);
}

void alq_freed_measured(CUresult result, uint64_t handle, const struct alq_entry_value *value,
                        struct alq_parting *part)
{
    if (result != CUDA_SUCCESS) {
        alq_table_put(handle, value);
    } else if (value->kind == ALQ_KIND_EXPORTED) {
        freed_exported(value, part);
    } else if (value->kind == ALQ_KIND_POOL) {
        alq_pool_freed(value->overhead_bytes, value->counted_bytes);
    } else if (value->kind == ALQ_KIND_SPILLED) {
        alq_spill_give_back(alq_dev_at(value->device), value->counted_bytes);
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

#define ALLOC_LINEAR(name, ptr_type, size_type)                                                    \
    ALQ_HOOK CUresult name(ptr_type *out, size_type bytes)                                         \
    {                                                                                              \
        struct alq_ticket t;                                                                       \
        CUdeviceptr spilled;                                                                       \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on() || !out)                                                             \
            return ALQ_CALL(name, out, bytes);                                                     \
        CUresult result =                                                                          \
            alq_ticket_take_somewhere(&t, ALQ_FAMILY_LINEAR, bytes, alq_slack(bytes), bytes);      \
        if (result == CUDA_SUCCESS && t.is_on_host) {                                              \
            result = alq_spill_serve(&t, (ptr_type)-1, &spilled);                                  \
            if (result == CUDA_SUCCESS)                                                            \
                *out = (ptr_type)spilled;                                                          \
        } else if (result == CUDA_SUCCESS) {                                                       \
            result = ALQ_CALL(name, out, bytes);                                                   \
            ALQ_ALLOCATED(result, t, *out, ALQ_KIND_LINEAR, free_linear(*out));                    \
        }                                                                                          \
        return result;                                                                             \
    }

ALLOC_LINEAR(cuMemAlloc, CUdeviceptr_v1, unsigned int)
ALLOC_LINEAR(cuMemAlloc_v2, CUdeviceptr, size_t)

ALQ_HOOK CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
    struct alq_ticket t;

    if (!ALQ_HAS(cuMemAllocManaged))
        return alq_absent(ALQ_CU_cuMemAllocManaged);
    if (!alq_core_is_on() || !out)
        return ALQ_CALL(cuMemAllocManaged, out, bytes, flags);
    CUresult result = alq_ticket_take(&t, ALQ_FAMILY_MANAGED, bytes, alq_slack(bytes));
    if (result != CUDA_SUCCESS)
        return result;
    result = ALQ_CALL(cuMemAllocManaged, out, bytes, flags);
    ALQ_ALLOCATED(result, t, *out, ALQ_KIND_LINEAR, free_linear(*out));
    return result;
}

/* Rows are padded to the driver's pitch, which it tells only afterwards: reserved with the granule,
 * settled with the truth. */
static CUresult settle_pitch(CUresult result, struct alq_ticket *t, CUdeviceptr ptr, uint64_t pitch,
                             uint64_t height)
{
    if (!t->dev)
        return result;
    if (result != CUDA_SUCCESS) {
        alq_ticket_give_back(t);
        return result;
    }
    const uint64_t truth = alq_product(pitch, height);
    /* One kind alone is moved, so the slack of a pitched allocation is counted with it. */
    uint64_t had = t->counted_bytes, want = truth + alq_slack(truth);
    bool fits =
        want >= truth && (want <= had || alq_admit(t->dev, ALQ_FAMILY_LINEAR, want - had, 0));
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

/* Rows as far apart as every card so far has them; the driver has no pitched memory on the host. */
static uint64_t spill_pitch(uint64_t width)
{
    return width + alq_slack(width);
}

static bool is_element(unsigned int bytes)
{
    return bytes == 4 || bytes == 8 || bytes == 16;
}

#define ALLOC_PITCH(name, ptr_type, size_type)                                                     \
    ALQ_HOOK CUresult name(ptr_type *out, size_type *pitch, size_type width, size_type height,     \
                           unsigned int element)                                                   \
    {                                                                                              \
        struct alq_ticket t;                                                                       \
        CUdeviceptr spilled;                                                                       \
        uint64_t guess = 0;                                                                        \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on() || !out || !pitch)                                                   \
            return ALQ_CALL(name, out, pitch, width, height, element);                             \
        if (!pitch_guess(width, height, &guess))                                                   \
            guess = UINT64_MAX;                                                                    \
        CUresult result = alq_ticket_take_somewhere(                                               \
            &t, ALQ_FAMILY_LINEAR, guess, 0,                                                       \
            is_element(element) && spill_pitch(width) <= (size_type)-1 ? guess : 0);               \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        if (t.is_on_host) {                                                                        \
            result = alq_spill_serve(&t, (ptr_type)-1, &spilled);                                  \
            if (result != CUDA_SUCCESS)                                                            \
                return result;                                                                     \
            *out = (ptr_type)spilled;                                                              \
            *pitch = (size_type)spill_pitch(width);                                                \
            return result;                                                                         \
        }                                                                                          \
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
        struct alq_taking taking;                                                                  \
        struct alq_parting part;                                                                   \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, handle);                                                         \
        alq_core_renew();                                                                          \
        alq_table_take_begin(handle, ALQ_KIND_LINEAR, &taking);                                    \
        bool is_measured = alq_export_is_any();                                                    \
        if (is_measured)                                                                           \
            alq_part_begin(&part);                                                                 \
        CUresult result = ALQ_CALL(name, handle);                                                  \
        if (alq_table_take_end(&taking, result == CUDA_SUCCESS, &value))                           \
            alq_freed_measured(CUDA_SUCCESS, handle, &value, is_measured ? &part : NULL);          \
        alq_pool_synced();                                                                         \
        return result;                                                                             \
    }

FREE_LINEAR(cuMemFree, CUdeviceptr_v1)
FREE_LINEAR(cuMemFree_v2, CUdeviceptr)
