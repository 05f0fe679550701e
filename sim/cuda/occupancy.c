/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Occupancy queries, by the rules of common/sm.h. Clusters are placed on clusters of SMs (GPCs) of
 * 16 or, what is left, fewer: a cluster's blocks run on one of them.
 */
#include "cuda/module.h"

#define GPC_SMS 16u
#define CLUSTER_BLOCKS_MAX 16u
#define BLOCK_THREADS_MAX 1024

static CUresult checked(CUfunction handle, struct CUfunc_st **function)
{
    struct CUctx_st *c;

    TRY(current(&c));
    return function_of(handle, c, function);
}

struct sim_kernel_need function_need(const struct CUfunc_st *f, uint32_t threads,
                                     uint64_t dynamic_bytes)
{
    return (struct sim_kernel_need){
        .threads = threads,
        .registers = (uint32_t)f->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS],
        .shared_bytes =
            (uint32_t)f->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES] + dynamic_bytes};
}

static int blocks_per_sm(const struct CUfunc_st *f, int threads, size_t dynamic_bytes)
{
    struct sim_kernel_need need = function_need(f, (uint32_t)threads, dynamic_bytes);

    if (threads > f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] ||
        dynamic_bytes > UINT32_MAX)
        return 0;
    return (int)sim_blocks_per_sm(&f->module->context->device->sm, &need);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function,
                                                              int threads, size_t shared,
                                                              unsigned int flags)
{
    struct CUfunc_st *f;

    TRY(checked(function, &f));
    NEED(blocks && threads > 0 && !(flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE),
         CUDA_ERROR_INVALID_VALUE);
    *blocks = blocks_per_sm(f, threads, shared);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads,
                                                     size_t shared)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared,
                                                                0);
}

/* The largest block among those that fill an SM best. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of, size_t shared,
                                                   int limit, unsigned int flags)
{
    struct CUfunc_st *f;
    int best = 0, best_block = 0, most;

    TRY(checked(function, &f));
    NEED(grid && block && limit >= 0 &&
             !(flags & ~(unsigned int)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE),
         CUDA_ERROR_INVALID_VALUE);
    most = f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
    if (limit > 0 && limit < most)
        most = limit;
    for (int aligned = (most + 31) / 32 * 32; aligned > 0; aligned -= 32) {
        int threads = aligned < most ? aligned : most;
        int blocks = blocks_per_sm(f, threads, shared_of ? shared_of(threads) : shared);

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
    const struct sim_sm *sm;
    struct CUfunc_st *f;
    int most;

    TRY(checked(function, &f));
    NEED(bytes && blocks > 0 && threads > 0, CUDA_ERROR_INVALID_VALUE);
    most = blocks_per_sm(f, threads, 0);
    NEED(blocks <= most, CUDA_ERROR_INVALID_VALUE);
    sm = &f->module->context->device->sm;
    *bytes = sim_shared_left(sm, (uint32_t)blocks,
                             (uint64_t)f->attributes[CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES]);
    return CUDA_SUCCESS;
}

/* Clusters */

static uint32_t threads_of(const CUlaunchConfig *config)
{
    uint64_t plane = (uint64_t)config->blockDimX * config->blockDimY;

    return plane > BLOCK_THREADS_MAX || plane * config->blockDimZ > BLOCK_THREADS_MAX
               ? 0
               : (uint32_t)(plane * config->blockDimZ);
}

/* The cluster's blocks, by the configuration or the function; 0 when neither says. */
static uint32_t cluster_blocks(const struct CUfunc_st *f, const CUlaunchConfig *config)
{
    const int *required = &f->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];

    for (unsigned int i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *a = &config->attrs[i];

        if (a->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && a->value.clusterDim.x <= 64 &&
            a->value.clusterDim.y <= 64 && a->value.clusterDim.z <= 64)
            return a->value.clusterDim.x * a->value.clusterDim.y * a->value.clusterDim.z;
    }
    return (uint32_t)(required[0] * (required[1] ? required[1] : 1) *
                      (required[2] ? required[2] : 1));
}

static CUresult cluster_check(CUfunction function, const CUlaunchConfig *config,
                              struct CUfunc_st **f)
{
    TRY(checked(function, f));
    NEED(config && (!config->numAttrs || config->attrs) && threads_of(config),
         CUDA_ERROR_INVALID_VALUE);
    NEED((*f)->module->context->device->sm.cluster_blocks, CUDA_ERROR_NOT_SUPPORTED);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int *size, CUfunction function,
                                            const CUlaunchConfig *config)
{
    struct CUfunc_st *f;
    uint32_t blocks;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(size, CUDA_ERROR_INVALID_VALUE);
    TRY(cluster_check(function, config, &f));
    blocks = (uint32_t)blocks_per_sm(f, (int)threads_of(config), config->sharedMemBytes);
    if (!blocks)
        *size = 0;
    else
        *size = f->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED]
                    ? (int)CLUSTER_BLOCKS_MAX
                    : (int)f->module->context->device->sm.cluster_blocks;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                      const CUlaunchConfig *config)
{
    struct CUfunc_st *f;
    uint32_t size, each, sms, most;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(clusters, CUDA_ERROR_INVALID_VALUE);
    TRY(cluster_check(function, config, &f));
    size = cluster_blocks(f, config);
    most = f->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED]
               ? CLUSTER_BLOCKS_MAX
               : f->module->context->device->sm.cluster_blocks;
    NEED(size && size <= most, CUDA_ERROR_INVALID_CLUSTER_SIZE);
    each = (uint32_t)blocks_per_sm(f, (int)threads_of(config), config->sharedMemBytes);
    sms = f->module->context->device->info.sms;
    *clusters = (int)(sms / GPC_SMS * (GPC_SMS * each / size) + sms % GPC_SMS * each / size);
    return CUDA_SUCCESS;
}
