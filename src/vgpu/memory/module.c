/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules and libraries. Their variables are counted as the image has them, from the load to the
 * end, also where the driver makes them later. Code is overhead: what the driver's free figure
 * falls by around the load beyond the variables; the most it may be, the image rounded up twice to
 * the driver's chunk, is reserved before. Another process may move that figure meanwhile: a change
 * that cannot be this load's counts as the most. Code that the driver brings in later (lazy
 * loading) is measured around the calls that ask for it, and else seen by the daemon's correction.
 */
#include "vgpu/context.h"
#include "vgpu/driver.h"
#include "vgpu/memory/charge.h"
#include "vgpu/memory/image.h"
#include "vgpu/memory/pool.h"
#include "vgpu/memory/table.h"
#include "vgpu/submit.h"

#define CHUNK_BYTES (2ull << 20)
#define GROWTH_MOST_BYTES (256ull << 20) /* of code that one call may bring in */

struct load {
    struct alq_here here; /* dev NULL: nothing to charge */
    uint64_t variable_bytes, most_bytes;
    size_t free_before;
};

static CUresult load_begin(struct load *load, struct alq_image image)
{
    size_t total;

    *load = (struct load){.most_bytes = 0};
    if (alq_core_mode() == ALQ_MODE_BROKEN)
        return CUDA_ERROR_NOT_PERMITTED;
    struct alq_here here = alq_context_here();
    if (here.error != CUDA_SUCCESS)
        return here.error;
    if (!here.dev || !ALQ_HAS(cuMemGetInfo_v2) || image.bytes > UINT32_MAX / 2)
        return CUDA_SUCCESS;
    load->variable_bytes = image.variable_bytes;
    load->most_bytes = (image.bytes + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES + CHUNK_BYTES;
    if (load->variable_bytes) /* a chunk of their own, begun */
        load->most_bytes += CHUNK_BYTES;
    if (!alq_admit(here.dev, ALQ_FAMILY_MODULE, load->variable_bytes, load->most_bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    load->here = here;
    if (ALQ_CALL(cuMemGetInfo_v2, &load->free_before, &total) != CUDA_SUCCESS)
        load->free_before = 0;
    return CUDA_SUCCESS;
}

/* Of a fall of the driver's free figure, what is not the variables'. */
static uint64_t beyond_variables(uint64_t fell, uint64_t variable_bytes)
{
    return fell >= variable_bytes ? fell - variable_bytes : fell;
}

static void load_end(const struct load *load, CUresult result, const void *handle)
{
    size_t after = 0, total;
    uint64_t took = load->most_bytes;

    if (!load->here.dev)
        return;
    if (result == CUDA_SUCCESS && load->free_before &&
        ALQ_CALL(cuMemGetInfo_v2, &after, &total) == CUDA_SUCCESS && after <= load->free_before) {
        uint64_t code = beyond_variables(load->free_before - after, load->variable_bytes);
        took = code <= load->most_bytes ? code : took;
    }
    struct alq_entry_value value = {load->variable_bytes, (uint32_t)took, load->here.context,
                                    (uint8_t)load->here.dev->index, ALQ_KIND_MODULE};
    /* What cannot be followed is not charged for ever: the module stays. */
    bool is_kept = result == CUDA_SUCCESS && (took || load->variable_bytes) &&
                   alq_table_put((uintptr_t)handle, &value);
    if (is_kept)
        alq_uncharge(load->here.dev, 0, load->most_bytes - took);
    else
        alq_uncharge(load->here.dev, load->variable_bytes, load->most_bytes);
}

#define ARGS(...) __VA_ARGS__

/* ---- lazy loading ---------------------------------------------------------------------------- */

struct growth {
    struct alq_here here;
    size_t free_before;
};

static void growth_begin(struct growth *growth)
{
    size_t total;

    *growth = (struct growth){.free_before = 0};
    if (alq_core_mode() != ALQ_MODE_LIMITED || !ALQ_HAS(cuMemGetInfo_v2))
        return;
    growth->here = alq_context_here();
    if (!growth->here.dev ||
        ALQ_CALL(cuMemGetInfo_v2, &growth->free_before, &total) != CUDA_SUCCESS)
        growth->free_before = 0;
}

/* Adds to what the module or library holds; false: it is not known, or of another device. */
static bool add_to(const void *handle, const struct growth *growth, uint64_t bytes)
{
    struct alq_entry_value value;
    uint8_t device = (uint8_t)growth->here.dev->index;

    if (!handle || bytes > UINT32_MAX)
        return false;
    if (!alq_table_take((uintptr_t)handle, ALQ_KIND_MODULE, &value))
        value = (struct alq_entry_value){0, 0, growth->here.context, device, ALQ_KIND_MODULE};
    uint32_t sum;
    bool ok = value.device == device &&
              !__builtin_add_overflow(value.overhead_bytes, (uint32_t)bytes, &sum);
    if (ok)
        value.overhead_bytes = sum;
    return alq_table_put((uintptr_t)handle, &value) && ok;
}

/* A fall of the driver's free figure by more than a few chunks is another process's. */
static void growth_end(const struct growth *growth, CUresult result, const void *handle)
{
    size_t after, total;

    if (result != CUDA_SUCCESS || !growth->free_before ||
        ALQ_CALL(cuMemGetInfo_v2, &after, &total) != CUDA_SUCCESS || after >= growth->free_before)
        return;
    struct alq_entry_value value = {.counted_bytes = 0};
    if (handle)
        alq_table_get((uintptr_t)handle, ALQ_KIND_MODULE, &value);
    uint64_t took = beyond_variables(growth->free_before - after, value.counted_bytes);
    if (took > GROWTH_MOST_BYTES)
        took = CHUNK_BYTES;
    if (add_to(handle, growth, took))
        alq_charge_taken(growth->here.dev, 0, took);
    else
        alq_context_grown(growth->here, took);
}

static const void *library_of(CUkernel kernel)
{
    CUlibrary library;
    return ALQ_HAS(cuKernelGetLibrary) &&
                   ALQ_CALL(cuKernelGetLibrary, &library, kernel) == CUDA_SUCCESS
               ? library
               : NULL;
}

static const void *module_of(CUfunction function)
{
    CUmodule module;
    return ALQ_HAS(cuFuncGetModule) && ALQ_CALL(cuFuncGetModule, &module, function) == CUDA_SUCCESS
               ? module
               : NULL;
}

#define LAZY(name, owner, params, args)                                                            \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct growth growth;                                                                      \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        growth_begin(&growth);                                                                     \
        CUresult result = ALQ_CALL(name, args);                                                    \
        growth_end(&growth, result, growth.free_before ? owner : NULL);                            \
        return result;                                                                             \
    }

LAZY(cuFuncLoad, module_of(function), (CUfunction function), ARGS(function))
LAZY(cuKernelGetFunction, library_of(kernel), (CUfunction * out, CUkernel kernel),
     ARGS(out, kernel))
LAZY(cuLibraryGetGlobal, library,
     (CUdeviceptr * out, size_t *bytes, CUlibrary library, const char *name_),
     ARGS(out, bytes, library, name_))
LAZY(cuLibraryGetManaged, library,
     (CUdeviceptr * out, size_t *bytes, CUlibrary library, const char *name_),
     ARGS(out, bytes, library, name_))
LAZY(cuLibraryGetModule, library, (CUmodule * out, CUlibrary library), ARGS(out, library))
LAZY(cuLibraryGetUnifiedFunction, library, (void **out, CUlibrary library, const char *name_),
     ARGS(out, library, name_))
LAZY(cuModuleGetFunction, module, (CUfunction * out, CUmodule module, const char *name_),
     ARGS(out, module, name_))

/* ---- loading --------------------------------------------------------------------------------- */

#define LOAD(name, image_expr, params, args)                                                       \
    ALQ_HOOK CUresult name params                                                                  \
    {                                                                                              \
        struct load load;                                                                          \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, args);                                                           \
        CUresult result = load_begin(&load, image_expr);                                           \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = ALQ_CALL(name, args);                                                             \
        load_end(&load, result, result == CUDA_SUCCESS ? *out : NULL);                             \
        return result;                                                                             \
    }
LOAD(cuModuleLoad, alq_image_measure_file(path), (CUmodule * out, const char *path),
     ARGS(out, path))
LOAD(cuModuleLoadData, alq_image_measure(image), (CUmodule * out, const void *image),
     ARGS(out, image))
LOAD(cuModuleLoadDataEx, alq_image_measure(image),
     (CUmodule * out, const void *image, unsigned int count, CUjit_option *options, void **values),
     ARGS(out, image, count, options, values))
LOAD(cuModuleLoadFatBinary, alq_image_measure(image), (CUmodule * out, const void *image),
     ARGS(out, image))
LOAD(cuLibraryLoadData, alq_image_measure(image),
     (CUlibrary * out, const void *image, CUjit_option *jit, void **jit_values,
      unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count),
     ARGS(out, image, jit, jit_values, jit_count, options, values, count))
LOAD(cuLibraryLoadFromFile, alq_image_measure_file(path),
     (CUlibrary * out, const char *path, CUjit_option *jit, void **jit_values,
      unsigned int jit_count, CUlibraryOption *options, void **values, unsigned int count),
     ARGS(out, path, jit, jit_values, jit_count, options, values, count))

/* Functions at the same addresses may soon be others. */
static void forget_functions(void)
{
    struct alq_compute *compute = alq_submit_now();
    if (compute)
        alq_compute_functions_gone(compute);
}

#define UNLOAD(name, handle_type)                                                                  \
    ALQ_HOOK CUresult name(handle_type handle)                                                     \
    {                                                                                              \
        struct alq_entry_value value;                                                              \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, handle);                                                         \
        alq_core_renew();                                                                          \
        bool is_ours = alq_table_take((uintptr_t)handle, ALQ_KIND_MODULE, &value);                 \
        forget_functions();                                                                        \
        CUresult result = ALQ_CALL(name, handle);                                                  \
        if (is_ours && result == CUDA_SUCCESS)                                                     \
            alq_uncharge(alq_dev_at(value.device), value.counted_bytes, value.overhead_bytes);     \
        else if (is_ours)                                                                          \
            alq_table_put((uintptr_t)handle, &value);                                              \
        return result;                                                                             \
    }

UNLOAD(cuModuleUnload, CUmodule)
UNLOAD(cuLibraryUnload, CUlibrary)
