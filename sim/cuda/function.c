/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be asked and set of a function or kernel, and occupancy by the limits of a data-centre
 * SM (2,048 threads, 32 blocks, 65,536 registers at 32 each, 228 KiB of shared memory).
 */
#include "cuda/driver.h"

#define SM_THREADS 2048
#define SM_BLOCKS 32
#define SM_SHARED_BYTES 233472u
#define BLOCK_SHARED_BYTES 1024u /* what the system takes of each block's */

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

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        NEED(value >= 0 && value <= 232448, CUDA_ERROR_INVALID_VALUE);
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        NEED(value >= -1 && value <= 100, CUDA_ERROR_INVALID_VALUE);
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    f->attributes[attribute] = value;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice dev)
{
    CUfunction f;
    struct device *d;

    TRY(device_get(dev, &d));
    TRY(cuKernelGetFunction(&f, kernel));
    return cuFuncGetAttribute(value, attribute, f);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice dev)
{
    CUfunction f;
    struct device *d;

    TRY(device_get(dev, &d));
    TRY(cuKernelGetFunction(&f, kernel));
    return cuFuncSetAttribute(f, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    f->cache = config;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config)
{
    struct CUfunc_st *f;

    (void)config;
    return checked(function, &f);
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
    *name = f->info.name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(offset && index < f->info.param_count, CUDA_ERROR_INVALID_VALUE);
    *offset = f->info.param_offset[index];
    if (bytes)
        *bytes = f->info.param_bytes[index];
    return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(state, CUDA_ERROR_INVALID_VALUE);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function)
{
    struct CUfunc_st *f;

    return checked(function, &f);
}

/* Occupancy */

static int blocks_per_sm(int threads, size_t dynamic_shared)
{
    int blocks = SM_THREADS / ((threads + 31) / 32 * 32);
    size_t by_shared = SM_SHARED_BYTES / (dynamic_shared + BLOCK_SHARED_BYTES);

    if (blocks > SM_BLOCKS)
        blocks = SM_BLOCKS;
    return by_shared < (size_t)blocks ? (int)by_shared : blocks;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int threads, size_t shared,
                                                              unsigned int flags)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(blocks && threads > 0 && !(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    *blocks = threads > 1024 ? 0 : blocks_per_sm(threads, shared);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared,
                                                                0);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared,
                                                   int limit, unsigned int flags)
{
    struct CUfunc_st *f;
    int best = 0, best_block = 0;

    TRY(checked(function, &f));
    NEED(grid && block && !(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    if (limit <= 0 || limit > 1024)
        limit = 1024;
    for (int threads = limit >= 32 ? limit / 32 * 32 : limit; threads > 0; threads -= 32) {
        int blocks = blocks_per_sm(threads, shared_of ? shared_of(threads) : shared);

        if (blocks * threads > best) {
            best = blocks * threads;
            best_block = threads;
        }
    }
    *block = best_block;
    *grid = best_block ? best / best_block * (int)f->module->context->device->info.sms : 0;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t shared, int limit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, block, function, shared_of, shared,
                                                     limit, 0);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks,
                                                 int threads)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(bytes && blocks > 0 && blocks <= SM_BLOCKS && threads > 0, CUDA_ERROR_INVALID_VALUE);
    *bytes = SM_SHARED_BYTES / (unsigned int)blocks - BLOCK_SHARED_BYTES;
    return CUDA_SUCCESS;
}
