/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be asked and set of a function.
 */
#include "cuda/module.h"

#define REGISTERS_UNKNOWN 32 /* of code in PTX, which does not say */
#define SHARED_DEFAULT_BYTES 49152
#define CLUSTER_BLOCKS_MAX 16 /* not portable */

void function_describe(struct CUfunc_st *f)
{
    const struct device *d = f->module->context->device;
    const struct image *image = f->module->image;
    int cc = (int)(d->info.cc_major * 10 + d->info.cc_minor), *a = f->attributes;
    uint32_t registers = REGISTERS_UNKNOWN, most;

    if (f->info && f->info->registers)
        registers = f->info->registers;
    most = sim_threads_by_registers(&d->sm, registers);
    if (f->info && f->info->max_threads && f->info->max_threads < most)
        most = f->info->max_threads;
    a[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = (int)most;
    a[CU_FUNC_ATTRIBUTE_NUM_REGS] = (int)registers;
    a[CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES] = (int)image->code.constant_bytes;
    a[CU_FUNC_ATTRIBUTE_PTX_VERSION] = image->code.cc ? (int)image->code.cc : cc;
    a[CU_FUNC_ATTRIBUTE_BINARY_VERSION] =
        image->code.cc && !image->code.ptx_version ? (int)image->code.cc : cc;
    a[CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT] = -1;
    a[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = SHARED_DEFAULT_BYTES;
    if (!f->info)
        return;
    a[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] = (int)f->info->shared_bytes;
    a[CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES] = (int)f->info->local_bytes;
    a[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] =
        f->info->shared_bytes < SHARED_DEFAULT_BYTES
            ? SHARED_DEFAULT_BYTES - (int)f->info->shared_bytes
            : 0;
    a[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET] = f->info->cluster[0] != 0;
    for (int i = 0; i < 3; i++)
        a[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i] = (int)f->info->cluster[i];
}

static CUresult checked(CUfunction handle, struct CUfunc_st **function)
{
    struct CUctx_st *c;

    TRY(current(&c));
    return function_of(handle, c, function);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(value && (int)attribute >= 0 && attribute < CU_FUNC_ATTRIBUTE_MAX,
         CUDA_ERROR_INVALID_VALUE);
    *value = f->attributes[attribute];
    return CUDA_SUCCESS;
}

CUresult attribute_set(int *a, const struct device *d, CUfunction_attribute attribute, int value)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        NEED(value >= 0 && (int64_t)value + a[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] <=
                               (int64_t)d->sm.shared_optin_bytes,
             CUDA_ERROR_INVALID_VALUE);
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        NEED(value >= -1 && value <= 100, CUDA_ERROR_INVALID_VALUE);
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        NEED(!a[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET], CUDA_ERROR_NOT_PERMITTED);
        NEED(d->sm.cluster_blocks && value >= 0 && value <= CLUSTER_BLOCKS_MAX,
             CUDA_ERROR_INVALID_VALUE);
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        NEED(value == 0 || value == 1, CUDA_ERROR_INVALID_VALUE);
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        NEED(value >= 0 && value <= CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING,
             CUDA_ERROR_INVALID_VALUE);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    a[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    return attribute_set(f->attributes, f->module->context->device, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED((int)config >= 0 && config <= CU_FUNC_CACHE_PREFER_EQUAL, CUDA_ERROR_INVALID_VALUE);
    f->cache = config;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED((int)config >= 0 && config <= CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE,
         CUDA_ERROR_INVALID_VALUE);
    f->shared_config = config;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(module, CUDA_ERROR_INVALID_VALUE);
    *module = f->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(name, CUDA_ERROR_INVALID_VALUE);
    *name = f->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(offset && f->info && index < f->info->param_count, CUDA_ERROR_INVALID_VALUE);
    *offset = f->info->params[index].offset;
    if (bytes)
        *bytes = f->info->params[index].bytes;
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    CUmoduleLoadingMode mode;
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(state, CUDA_ERROR_INVALID_VALUE);
    TRY(cuModuleGetLoadingMode(&mode));
    *state = f->is_loaded || mode == CU_MODULE_EAGER_LOADING ? CU_FUNCTION_LOADING_STATE_LOADED
                                                             : CU_FUNCTION_LOADING_STATE_UNLOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    f->is_loaded = true;
    return CUDA_SUCCESS;
}
