/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of sizes: what does not fit into 64 bits is UINT64_MAX, which no limit lets in. */
#ifndef ALQ_VGPU_ARITH_H
#define ALQ_VGPU_ARITH_H

#include <stdint.h>

static inline uint64_t alq_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t alq_sum(uint64_t a, uint64_t b)
{
    uint64_t all;
    return __builtin_add_overflow(a, b, &all) ? UINT64_MAX : all;
}

static inline uint64_t alq_product(uint64_t a, uint64_t b)
{
    uint64_t all;
    return __builtin_mul_overflow(a, b, &all) ? UINT64_MAX : all;
}

#endif
