/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/context.h"

#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/export.h"
#include "vgpu/memory/pool.h"
#include "vgpu/memory/spill.h"
#include "vgpu/memory/table.h"
#include "vgpu/process.h"
#include "vgpu/submit.h"

#define CONTEXTS 255u

struct context {
    _Atomic uintptr_t handle; /* 0: free */
    uint64_t charged_bytes;
    uint64_t grown_bytes; /* heaps and code that came later, charged too */
    uint32_t attaches;    /* cuCtxAttach without its cuCtxDetach */
    struct alq_dev *dev;
};

/* Entry i has number i + 1. Written under lock_context; handles are searched without it. */
static struct context contexts[CONTEXTS];
static_assert(CONTEXTS <= UINT8_MAX, "a number fits struct alq_entry_value");
static _Atomic uint32_t used_high;

/* What is charged for each device's primary context, and its number; under lock_context. */
static struct {
    uint64_t charged_bytes;
    uint16_t number;
    bool is_charged;
} primary[ALQ_DEVICES_MAX];

static uint16_t number_of(CUcontext handle)
{
    uint32_t high = atomic_load_explicit(&used_high, memory_order_acquire);
    for (uint32_t i = 0; i < high; i++)
        if (atomic_load_explicit(&contexts[i].handle, memory_order_acquire) == (uintptr_t)handle)
            return (uint16_t)(i + 1);
    return 0;
}

/* Caller holds lock_context. 0 when there is no room. */
static uint16_t learn(CUcontext handle, struct alq_dev *dev, uint64_t charged_bytes)
{
    uint16_t number = number_of(handle);
    if (number == 0) {
        for (uint32_t i = 0; i < CONTEXTS && number == 0; i++)
            if (atomic_load_explicit(&contexts[i].handle, memory_order_relaxed) == 0)
                number = (uint16_t)(i + 1);
        if (number == 0)
            return 0;
        contexts[number - 1].charged_bytes = 0;
        contexts[number - 1].grown_bytes = 0;
        contexts[number - 1].attaches = 0;
    }
    contexts[number - 1].dev = dev;
    contexts[number - 1].charged_bytes += charged_bytes;
    atomic_store_explicit(&contexts[number - 1].handle, (uintptr_t)handle, memory_order_release);
    if (atomic_load_explicit(&used_high, memory_order_relaxed) < number)
        atomic_store_explicit(&used_high, number, memory_order_release);
    return number;
}

struct alq_here alq_context_here(void)
{
    struct alq_here here = {NULL, 0, CUDA_SUCCESS};
    CUcontext handle = NULL;

    alq_core_renew();
    if (!ALQ_HAS(cuCtxGetCurrent))
        return here;
    CUresult result = ALQ_CALL(cuCtxGetCurrent, &handle);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_INITIALIZED)
        here.error = result;
    if (result != CUDA_SUCCESS || !handle)
        return here;
    here.context = number_of(handle);
    if (here.context) {
        here.dev = contexts[here.context - 1].dev;
        return here;
    }
    here.error = alq_dev_find_current(&here.dev);
    if (here.dev) {
        alq_lock_take(&alq_process_page()->lock_context);
        here.context = learn(handle, here.dev, 0);
        alq_lock_drop(&alq_process_page()->lock_context);
    }
    return here;
}

CUresult alq_context_find_dev_of_stream(CUstream stream, struct alq_dev **dev)
{
    CUcontext context = NULL;

    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD ||
        !ALQ_HAS(cuStreamGetCtx) || ALQ_CALL(cuStreamGetCtx, stream, &context) != CUDA_SUCCESS)
        return alq_dev_find_current(dev);
    uint16_t number = number_of(context);
    if (number == 0)
        return alq_dev_find_current(dev);
    *dev = contexts[number - 1].dev;
    return CUDA_SUCCESS;
}

void alq_context_each(void (*with)(CUcontext context, void *data), void *data)
{
    uint32_t high = atomic_load_explicit(&used_high, memory_order_acquire);
    for (uint32_t i = 0; i < high; i++) {
        uintptr_t handle =
            (uintptr_t)atomic_load_explicit(&contexts[i].handle, memory_order_acquire);
        if (handle)
            with((CUcontext)handle, data);
    }
}

void alq_context_forget(void)
{
    for (uint32_t i = 0; i < CONTEXTS; i++) {
        atomic_store_explicit(&contexts[i].handle, 0, memory_order_relaxed);
        contexts[i].charged_bytes = 0;
        contexts[i].grown_bytes = 0;
    }
    atomic_store_explicit(&used_high, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < ALQ_DEVICES_MAX; i++) {
        primary[i].charged_bytes = 0;
        primary[i].number = 0;
        primary[i].is_charged = false;
    }
}

struct sum {
    uint64_t counted_bytes;
    uint64_t overhead_bytes;
    uint64_t spilled_bytes;
    uint64_t exported_bytes; /* counted ones that others may have */
    int imports;
};

static void add_up(uint64_t handle, const struct alq_entry_value *value, void *data)
{
    struct sum *sum = data;
    (void)handle;
    if (value->kind == ALQ_KIND_SPILLED) {
        sum->spilled_bytes += value->counted_bytes;
    } else if (value->kind == ALQ_KIND_IMPORT) {
        sum->imports++;
    } else {
        *(value->kind == ALQ_KIND_EXPORTED ? &sum->exported_bytes : &sum->counted_bytes) +=
            value->counted_bytes;
        sum->overhead_bytes += value->overhead_bytes;
    }
}

/* The driver has ended the context: what lived in it is free. */
static void end(struct alq_dev *dev, uint16_t number, uint64_t charged_bytes)
{
    struct sum sum = {.overhead_bytes = charged_bytes};
    if (number) {
        alq_table_take_context(number, add_up, &sum);
        alq_lock_take(&alq_process_page()->lock_context);
        sum.overhead_bytes += contexts[number - 1].grown_bytes;
        contexts[number - 1].grown_bytes = 0;
        alq_lock_drop(&alq_process_page()->lock_context);
    }
    struct alq_parting part = {.dev = NULL};
    part.plain_bytes[dev->index] = sum.counted_bytes;
    part.exported_bytes[dev->index] = sum.exported_bytes;
    alq_part_end(&part);
    alq_uncharge(dev, 0, sum.overhead_bytes);
    if (sum.imports)
        alq_export_opened(dev, -sum.imports);
    alq_spill_give_back(dev, sum.spilled_bytes);
    if (charged_bytes)
        alq_charge_contexts(dev, -1);
}

/* ---- contexts of the program ----------------------------------------------------------------- */

/* Reserves for a context on a device. CUDA_SUCCESS with *dev NULL: nothing to charge. */
static CUresult reserve(CUdevice ordinal, struct alq_dev **dev, uint64_t *bytes)
{
    *dev = NULL;
    *bytes = 0;
    if (!alq_core_is_on())
        return CUDA_SUCCESS;
    if (alq_core_mode() == ALQ_MODE_BROKEN)
        return CUDA_ERROR_NOT_PERMITTED;
    struct alq_dev *found;
    CUresult result = alq_dev_find(ordinal, &found);
    if (!found)
        return result;
    *bytes = alq_dev_context_bytes(found);
    if (!alq_admit(found, ALQ_FAMILY_CONTEXT, 0, *bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    *dev = found;
    return CUDA_SUCCESS;
}

/* With a second context, whose a default stream is has to be asked. */
static void tell_gate_made(CUcontext handle)
{
    struct alq_compute *compute = alq_core_is_on() ? alq_submit_now() : NULL;
    if (compute)
        alq_compute_context_made(compute, handle);
}

static CUresult created(CUresult result, CUcontext *handle, struct alq_dev *dev, uint64_t bytes)
{
    if (!dev)
        return result;
    if (result != CUDA_SUCCESS) {
        alq_uncharge(dev, 0, bytes);
        return result;
    }
    alq_lock_take(&alq_process_page()->lock_context);
    learn(*handle, dev, bytes);
    alq_lock_drop(&alq_process_page()->lock_context);
    alq_charge_contexts(dev, 1);
    tell_gate_made(*handle);
    return result;
}

#define CREATE(name, params, args)                                                                 \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct alq_dev *charged;                                                                   \
        uint64_t bytes;                                                                            \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        CUresult refused = reserve(dev, &charged, &bytes);                                         \
        return refused ? refused : created(ALQ_CALL(name, args), ctx, charged, bytes);             \
    }
#define ARGS(...) __VA_ARGS__

CREATE(cuCtxCreate, (CUcontext * ctx, unsigned int flags, CUdevice dev), ARGS(ctx, flags, dev))
CREATE(cuCtxCreate_v2, (CUcontext * ctx, unsigned int flags, CUdevice dev), ARGS(ctx, flags, dev))
CREATE(cuCtxCreate_v3,
       (CUcontext * ctx, CUexecAffinityParam *affinity, int affinity_count, unsigned int flags,
        CUdevice dev),
       ARGS(ctx, affinity, affinity_count, flags, dev))
CREATE(cuCtxCreate_v4,
       (CUcontext * ctx, CUctxCreateParams *params, unsigned int flags, CUdevice dev),
       ARGS(ctx, params, flags, dev))
CREATE(cuGLCtxCreate, (CUcontext * ctx, unsigned int flags, CUdevice dev), ARGS(ctx, flags, dev))
CREATE(cuGLCtxCreate_v2, (CUcontext * ctx, unsigned int flags, CUdevice dev), ARGS(ctx, flags, dev))
CREATE(cuVDPAUCtxCreate,
       (CUcontext * ctx, unsigned int flags, CUdevice dev, unsigned int vdpau, void *vdpau_proc),
       ARGS(ctx, flags, dev, vdpau, vdpau_proc))
CREATE(cuVDPAUCtxCreate_v2,
       (CUcontext * ctx, unsigned int flags, CUdevice dev, unsigned int vdpau, void *vdpau_proc),
       ARGS(ctx, flags, dev, vdpau, vdpau_proc))

/* Before the driver may end it: the gate's events in it end with it. */
static void tell_gate(CUcontext handle)
{
    struct alq_compute *compute = alq_core_is_on() ? alq_submit_now() : NULL;
    if (compute && handle)
        alq_compute_context_gone(compute, handle);
}

static CUresult destroyed(CUresult result, CUcontext handle)
{
    struct context gone = {.dev = NULL};

    if (result != CUDA_SUCCESS || alq_core_mode() != ALQ_MODE_LIMITED)
        return result;
    alq_core_renew();
    uint16_t number = number_of(handle);
    if (number == 0)
        return result;
    gone.dev = contexts[number - 1].dev;
    end(gone.dev, number, contexts[number - 1].charged_bytes);
    alq_lock_take(&alq_process_page()->lock_context);
    contexts[number - 1].charged_bytes = 0;
    atomic_store_explicit(&contexts[number - 1].handle, 0, memory_order_release);
    alq_lock_drop(&alq_process_page()->lock_context);
    return result;
}

#define DESTROY(name)                                                                              \
    ALQ_HOOK CUresult name(CUcontext ctx)                                                          \
    {                                                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        tell_gate(ctx);                                                                            \
        return destroyed(ALQ_CALL(name, ctx), ctx);                                                \
    }

DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

ALQ_HOOK CUresult cuCtxAttach(CUcontext *ctx, unsigned int flags)
{
    if (!ALQ_HAS(cuCtxAttach))
        return alq_absent(ALQ_CU_cuCtxAttach);
    CUresult result = ALQ_CALL(cuCtxAttach, ctx, flags);
    if (result == CUDA_SUCCESS && ctx && alq_core_is_on()) {
        alq_core_renew();
        alq_lock_take(&alq_process_page()->lock_context);
        uint16_t number = number_of(*ctx);
        if (number)
            contexts[number - 1].attaches++;
        alq_lock_drop(&alq_process_page()->lock_context);
    }
    return result;
}

static bool has_attach(CUcontext ctx, uint32_t drop)
{
    alq_lock_take(&alq_process_page()->lock_context);
    uint16_t number = number_of(ctx);
    bool has = number && contexts[number - 1].attaches;
    if (has)
        contexts[number - 1].attaches -= drop;
    alq_lock_drop(&alq_process_page()->lock_context);
    return has;
}

/* Ends the context with the last one. */
ALQ_HOOK CUresult cuCtxDetach(CUcontext ctx)
{
    if (!ALQ_HAS(cuCtxDetach))
        return alq_absent(ALQ_CU_cuCtxDetach);
    if (!alq_core_is_on())
        return ALQ_CALL(cuCtxDetach, ctx);
    alq_core_renew();
    bool is_last = !has_attach(ctx, 0);
    if (is_last)
        tell_gate(ctx);
    CUresult result = ALQ_CALL(cuCtxDetach, ctx);
    if (is_last)
        return destroyed(result, ctx);
    if (result == CUDA_SUCCESS)
        has_attach(ctx, 1);
    return result;
}

/* ---- what grows in a context ----------------------------------------------------------------- */

static void grow(uint16_t number, int64_t bytes)
{
    alq_lock_take(&alq_process_page()->lock_context);
    contexts[number - 1].grown_bytes += (uint64_t)bytes;
    alq_lock_drop(&alq_process_page()->lock_context);
}

void alq_context_grown(struct alq_here here, uint64_t bytes)
{
    if (!here.dev || !here.context || bytes == 0)
        return;
    alq_charge_taken(here.dev, 0, bytes);
    grow(here.context, (int64_t)bytes);
}

/* Device memory that a limit of a context stands for; 0 for those that take none. */
static uint64_t limit_bytes(const struct alq_dev *dev, CUlimit limit, uint64_t value)
{
    int processors = 0, threads = 0;
    uint64_t bytes;

    if (limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE)
        return value;
    if (limit != CU_LIMIT_STACK_SIZE || !ALQ_HAS(cuDeviceGetAttribute) ||
        ALQ_CALL(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                 dev->ordinal) != CUDA_SUCCESS ||
        ALQ_CALL(cuDeviceGetAttribute, &threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                 dev->ordinal) != CUDA_SUCCESS)
        return 0;
    return __builtin_mul_overflow(value, (uint64_t)processors * (uint64_t)threads, &bytes)
               ? UINT64_MAX
               : bytes;
}

static bool get_limit(const struct alq_dev *dev, CUlimit limit, uint64_t *bytes)
{
    size_t value;
    if (!ALQ_HAS(cuCtxGetLimit) || ALQ_CALL(cuCtxGetLimit, &value, limit) != CUDA_SUCCESS)
        return false;
    *bytes = limit_bytes(dev, limit, value);
    return true;
}

/* To what the limit is now; what every context has from the start is part of its estimate. */
static void settle_limit(struct alq_here here, uint64_t before, uint64_t after, uint64_t reserved)
{
    uint64_t want = after > before ? after - before : 0;
    alq_lock_take(&alq_process_page()->lock_context);
    uint64_t grown = contexts[here.context - 1].grown_bytes, less = before - after;
    if (after > before)
        less = 0;
    if (less > grown)
        less = grown;
    contexts[here.context - 1].grown_bytes = grown + want - less;
    alq_lock_drop(&alq_process_page()->lock_context);
    if (want > reserved)
        alq_charge_taken(here.dev, 0, want - reserved);
    else
        alq_uncharge(here.dev, 0, reserved - want + less);
}

ALQ_HOOK CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    uint64_t before = 0, after = 0;

    if (!ALQ_HAS(cuCtxSetLimit))
        return alq_absent(ALQ_CU_cuCtxSetLimit);
    struct alq_here here = {NULL, 0, CUDA_SUCCESS};
    if (alq_core_is_on())
        here = alq_context_here();
    if (here.error != CUDA_SUCCESS)
        return here.error;
    if (!here.dev || !here.context || !get_limit(here.dev, limit, &before))
        return ALQ_CALL(cuCtxSetLimit, limit, value);
    uint64_t asked = limit_bytes(here.dev, limit, value);
    uint64_t reserved = asked > before ? asked - before : 0;
    if (reserved && !alq_admit(here.dev, ALQ_FAMILY_CONTEXT, 0, reserved))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = ALQ_CALL(cuCtxSetLimit, limit, value);
    if (result != CUDA_SUCCESS)
        after = before;
    else if (!get_limit(here.dev, limit, &after))
        after = asked;
    settle_limit(here, before, after, reserved);
    return result;
}

/* ---- primary contexts ------------------------------------------------------------------------ */
/* One per process and device, charged while the driver says that it is active. */

static bool is_active(CUdevice ordinal)
{
    unsigned int flags = 0;
    int active = 0;
    return ALQ_HAS(cuDevicePrimaryCtxGetState) &&
           ALQ_CALL(cuDevicePrimaryCtxGetState, ordinal, &flags, &active) == CUDA_SUCCESS && active;
}

static bool has_charge(const struct alq_dev *dev)
{
    alq_lock_take(&alq_process_page()->lock_context);
    bool is_charged = primary[dev->index].is_charged;
    alq_lock_drop(&alq_process_page()->lock_context);
    return is_charged;
}

/* Before what retains the primary context: what it may cost, unless it is charged already. */
static CUresult retain_begin(CUdevice ordinal, struct alq_dev **charged, uint64_t *bytes)
{
    *charged = NULL;
    *bytes = 0;
    if (!alq_core_is_on())
        return CUDA_SUCCESS;
    alq_core_renew();
    struct alq_dev *found = alq_dev_of(ordinal);
    if (found && has_charge(found))
        return CUDA_SUCCESS;
    CUresult refused = reserve(ordinal, charged, bytes);
    /* It may stand already, made through a door of the driver's own: then there is nothing to
     * refuse. */
    return refused == CUDA_ERROR_OUT_OF_MEMORY && is_active(ordinal) ? CUDA_SUCCESS : refused;
}

/* handle NULL: not known yet. */
static void retain_end(CUresult result, CUcontext handle, struct alq_dev *dev, uint64_t bytes)
{
    bool is_first = false;

    if (!dev)
        return;
    if (result == CUDA_SUCCESS) {
        alq_lock_take(&alq_process_page()->lock_context);
        is_first = !primary[dev->index].is_charged;
        if (is_first) {
            primary[dev->index].is_charged = true;
            primary[dev->index].charged_bytes = bytes;
            primary[dev->index].number = handle ? learn(handle, dev, 0) : 0;
        }
        alq_lock_drop(&alq_process_page()->lock_context);
    }
    if (!is_first)
        alq_uncharge(dev, 0, bytes);
    else
        alq_charge_contexts(dev, 1);
    if (is_first && handle)
        tell_gate_made(handle);
}

ALQ_HOOK CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev)
{
    struct alq_dev *charged;
    uint64_t bytes;

    if (!ALQ_HAS(cuDevicePrimaryCtxRetain))
        return alq_absent(ALQ_CU_cuDevicePrimaryCtxRetain);
    CUresult result = retain_begin(dev, &charged, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = ALQ_CALL(cuDevicePrimaryCtxRetain, ctx, dev);
    retain_end(result, result == CUDA_SUCCESS ? *ctx : NULL, charged, bytes);
    return result;
}

ALQ_HOOK CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc desc, CUdevice dev,
                                   unsigned int flags)
{
    struct alq_dev *charged;
    uint64_t bytes;

    if (!ALQ_HAS(cuGreenCtxCreate))
        return alq_absent(ALQ_CU_cuGreenCtxCreate);
    CUresult result = retain_begin(dev, &charged, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    result = ALQ_CALL(cuGreenCtxCreate, green, desc, dev, flags);
    retain_end(result, NULL, charged, bytes);
    return result;
}

static void tell_gate_of_primary(CUdevice ordinal)
{
    struct alq_dev *dev = alq_core_is_on() ? alq_dev_of(ordinal) : NULL;
    uint16_t number = 0;
    if (!dev)
        return;
    alq_lock_take(&alq_process_page()->lock_context);
    number = primary[dev->index].number;
    alq_lock_drop(&alq_process_page()->lock_context);
    if (number)
        tell_gate(
            (CUcontext)atomic_load_explicit(&contexts[number - 1].handle, memory_order_relaxed));
}

/* Green contexts are the primary one under another handle, and are gone with it. */
static void end_forms(struct alq_dev *dev)
{
    uint32_t high = atomic_load_explicit(&used_high, memory_order_acquire);
    for (uint32_t i = 0; i < high; i++) {
        alq_lock_take(&alq_process_page()->lock_context);
        bool is_form = atomic_load_explicit(&contexts[i].handle, memory_order_relaxed) &&
                       contexts[i].dev == dev && contexts[i].charged_bytes == 0;
        if (is_form)
            atomic_store_explicit(&contexts[i].handle, 0, memory_order_release);
        alq_lock_drop(&alq_process_page()->lock_context);
        if (is_form)
            end(dev, (uint16_t)(i + 1), 0);
    }
}

/* After a release or a reset: gives the charge back once the driver has let the context go. */
static CUresult released(CUresult result, CUdevice ordinal)
{
    if (result != CUDA_SUCCESS || alq_core_mode() != ALQ_MODE_LIMITED)
        return result;
    alq_core_renew();
    struct alq_dev *dev = alq_dev_of(ordinal);
    if (!dev || is_active(ordinal))
        return result;
    alq_lock_take(&alq_process_page()->lock_context);
    bool was_charged = primary[dev->index].is_charged;
    uint64_t bytes = primary[dev->index].charged_bytes;
    uint16_t number = primary[dev->index].number;
    primary[dev->index].is_charged = false;
    primary[dev->index].charged_bytes = 0;
    primary[dev->index].number = 0;
    alq_lock_drop(&alq_process_page()->lock_context);
    if (!was_charged)
        return result;
    end(dev, number, bytes);
    end_forms(dev);
    if (number) {
        alq_lock_take(&alq_process_page()->lock_context);
        atomic_store_explicit(&contexts[number - 1].handle, 0, memory_order_release);
        alq_lock_drop(&alq_process_page()->lock_context);
    }
    return result;
}

#define PRIMARY_END(name)                                                                          \
    ALQ_HOOK CUresult name(CUdevice dev)                                                           \
    {                                                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        tell_gate_of_primary(dev);                                                                 \
        return released(ALQ_CALL(name, dev), dev);                                                 \
    }

PRIMARY_END(cuDevicePrimaryCtxRelease)
PRIMARY_END(cuDevicePrimaryCtxRelease_v2)
PRIMARY_END(cuDevicePrimaryCtxReset)
PRIMARY_END(cuDevicePrimaryCtxReset_v2)

/* It may have been the last to hold its device's primary context. */
ALQ_HOOK CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    const struct alq_dev *dev;

    if (!ALQ_HAS(cuGreenCtxDestroy))
        return alq_absent(ALQ_CU_cuGreenCtxDestroy);
    CUresult result = ALQ_CALL(cuGreenCtxDestroy, green);
    for (uint32_t i = 0; alq_core_is_on() && (dev = alq_dev_at(i)); i++)
        released(result, dev->ordinal);
    return result;
}
