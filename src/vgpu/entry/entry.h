/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of cuda.def and nvml.def as C sees them: an index per row, the declarations of the
 * wrappers, and the tables of names and wrapper addresses that entry.S lays out with offsets
 * instead of pointers, so that the loader has nothing to relocate.
 */
#ifndef ALQ_VGPU_ENTRY_H
#define ALQ_VGPU_ENTRY_H

#include <stdint.h>

#include "aliquot/cuda_abi.h"
#include "aliquot/nvml_abi.h"

/* The definition of a wrapper: the only things the library exports. */
#define ALQ_HOOK __attribute__((visibility("default")))

enum alq_entry {
#define ALQ_CU(name, type, class) ALQ_CU_##name,
#define ALQ_CU_NEED(name, type) ALQ_CU_##name,
#include "vgpu/entry/cuda.def"
#undef ALQ_CU
#undef ALQ_CU_NEED
    ALQ_CU_END,
    ALQ_NVML_BEGIN = ALQ_CU_END,
    ALQ_NVML_BEFORE_FIRST = ALQ_NVML_BEGIN - 1,
#define ALQ_NVML(name, type, class) ALQ_NVML_##name,
#define ALQ_NVML_NEED(name, type) ALQ_NVML_##name,
#include "vgpu/entry/nvml.def"
#undef ALQ_NVML
#undef ALQ_NVML_NEED
    ALQ_ENTRY_COUNT
};

/* Forms that the headers declare under another name. */
#define ALQ_CU(name, type, class) __typeof__(type) name;
#define ALQ_CU_NEED(name, type) __typeof__(type) name;
#include "vgpu/entry/cuda.def"
#undef ALQ_CU
#undef ALQ_CU_NEED
#define ALQ_NVML(name, type, class) __typeof__(type) name;
#define ALQ_NVML_NEED(name, type) __typeof__(type) name;
#include "vgpu/entry/nvml.def"
#undef ALQ_NVML
#undef ALQ_NVML_NEED

/* Names that the library knows and lets pass, sorted. */
enum {
#define ALQ_CU_PASS(name, class) ALQ_PASS_##name,
#define ALQ_NVML_PASS(name, class) ALQ_PASS_##name,
#include "vgpu/entry/cuda_pass.def"
#include "vgpu/entry/nvml_pass.def"
#undef ALQ_CU_PASS
#undef ALQ_NVML_PASS
    ALQ_PASS_COUNT
};

struct alq_entry_row {
    int32_t name; /* from the address of this field to the string */
    int32_t
        code; /* from the address of this field to the wrapper; 0: the entry point is not hooked */
};

extern const struct alq_entry_row alq_entry_rows[ALQ_ENTRY_COUNT]
    __attribute__((visibility("hidden")));

extern const int32_t alq_pass_rows[ALQ_PASS_COUNT] __attribute__((visibility("hidden")));

static inline const char *alq_pass_name(uint32_t index)
{
    const int32_t *field = &alq_pass_rows[index];
    return (const char *)field + *field;
}

static inline const char *alq_entry_name(uint32_t index)
{
    const int32_t *field = &alq_entry_rows[index].name;
    return (const char *)field + *field;
}

/* NULL when the entry point is not hooked. */
static inline void *alq_entry_wrapper(uint32_t index)
{
    const int32_t *field = &alq_entry_rows[index].code;
    return *field ? (void *)((uintptr_t)field + (uintptr_t)(intptr_t)*field) : NULL;
}

#endif
