/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a wrapper takes its call through the gate: alq_gated_before, the driver's function,
 * alq_gated_after. The struct is on the caller's stack. Any thread.
 */
#ifndef ALQ_VGPU_GATED_H
#define ALQ_VGPU_GATED_H

#include "vgpu/arith.h"
#include "vgpu/driver.h"
#include "vgpu/submit.h"

struct alq_gated {
    struct alq_compute *compute; /* NULL: not at the gate */
    struct alq_compute_launch at;
    struct alq_compute_ticket ticket;
};

/* log2 of how much is asked for, rounded down; 0 for what has no size. */
static inline uint32_t alq_size_class(uint64_t amount)
{
    return amount ? 63u - (uint32_t)__builtin_clzll(amount) : 0;
}

/* The stream that NULL means in the _ptsz and _ptds forms. */
static inline CUstream alq_per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* Waits for the turn of work of the current context. An error: the driver does not say which device
 * is meant, and it may be one with a share; the call must not go on. */
CUresult alq_gated_before(struct alq_gated *gated, const void *handle, enum alq_estimate_kind kind,
                          uint32_t size_class, CUstream stream, bool is_joined);

/* Hands the driver's answer on. */
static inline CUresult alq_gated_after(struct alq_gated *gated, CUresult result)
{
    if (gated->compute)
        alq_compute_after(gated->compute, &gated->at, &gated->ticket, result);
    return result;
}

#define ALQ_ARGS(...) __VA_ARGS__

/*
 * One wrapper; `before` is its way through the gate, with a struct alq_gated named gated. The
 * exported name itself is a jump to the driver's function while no share is in force
 * (entry/pass.h), else to this.
 */
#define ALQ_GATED(name, params, args, before)                                                      \
    __typeof__(name) alq_gated_##name __attribute__((visibility("hidden")));                       \
    CUresult alq_gated_##name params                                                               \
    {                                                                                              \
        struct alq_gated gated;                                                                    \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, args);                                                           \
        if (alq_core_mode() == ALQ_MODE_BROKEN)                                                    \
            return CUDA_ERROR_NOT_PERMITTED;                                                       \
        CUresult known = before;                                                                   \
        return known == CUDA_SUCCESS ? alq_gated_after(&gated, ALQ_CALL(name, args)) : known;      \
    }

#endif
