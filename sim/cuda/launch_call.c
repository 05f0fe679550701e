/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls that launch kernels: plain, with attributes, cooperative, and the form of before CUDA 4
 * in which the function holds the configuration. Each becomes a launch_shape, is checked against
 * what the device and the function allow, and goes to the stream or to its capture.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/module.h"

#define GRID_X_MAX 2147483647u
#define GRID_YZ_MAX 65535u
#define BLOCK_XY_MAX 1024u
#define BLOCK_Z_MAX 64u
#define BLOCK_THREADS_MAX 1024u
#define CLUSTER_BLOCKS_MAX 16u

static CUresult cluster_check(const struct CUfunc_st *f, const struct launch_shape *s)
{
    const struct sim_sm *sm = &f->module->context->device->sm;
    const int *required = &f->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH];
    uint32_t most = f->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED]
                        ? CLUSTER_BLOCKS_MAX
                        : sm->cluster_blocks;
    uint64_t blocks = 1;

    for (int i = 0; i < 3; i++) {
        unsigned int n = s->cluster[0] ? s->cluster[i] : (unsigned int)required[i];

        if (!s->cluster[0] && !required[0])
            return CUDA_SUCCESS;
        NEED(!s->cluster[0] || !required[0] || n == (unsigned int)required[i] ||
                 !f->attributes[CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET],
             CUDA_ERROR_INVALID_CLUSTER_SIZE);
        n = n ? n : 1;
        NEED(n <= CLUSTER_BLOCKS_MAX && s->grid[i] % n == 0, CUDA_ERROR_INVALID_CLUSTER_SIZE);
        blocks *= n;
    }
    NEED(sm->cluster_blocks, CUDA_ERROR_NOT_SUPPORTED);
    return blocks <= most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CLUSTER_SIZE;
}

CUresult launch_check(struct CUfunc_st *f, const struct launch_shape *s, uint32_t *per_sm)
{
    uint64_t threads = (uint64_t)s->block[0] * s->block[1] * s->block[2];
    const struct device *d = f->module->context->device;
    struct sim_kernel_need need;
    uint32_t blocks;

    NEED(s->grid[0] && s->grid[1] && s->grid[2] && threads, CUDA_ERROR_INVALID_VALUE);
    NEED(s->grid[0] <= GRID_X_MAX && s->grid[1] <= GRID_YZ_MAX && s->grid[2] <= GRID_YZ_MAX &&
             s->block[0] <= BLOCK_XY_MAX && s->block[1] <= BLOCK_XY_MAX &&
             s->block[2] <= BLOCK_Z_MAX && threads <= BLOCK_THREADS_MAX,
         CUDA_ERROR_INVALID_VALUE);
    NEED(s->shared_bytes <=
             (unsigned int)f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
         CUDA_ERROR_INVALID_VALUE);
    NEED(threads <= (uint64_t)f->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK],
         CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    TRY(cluster_check(f, s));
    need = function_need(f, (uint32_t)threads, s->shared_bytes);
    blocks = sim_blocks_per_sm(&d->sm, &need);
    NEED(blocks, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    *per_sm = blocks;
    NEED(!s->is_cooperative ||
             (uint64_t)s->grid[0] * s->grid[1] * s->grid[2] <= (uint64_t)blocks * d->info.sms,
         CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    return CUDA_SUCCESS;
}

/* Arguments */

/* The argument buffer of `extra`, or NULL. */
static CUresult extra_buffer(void **extra, const char **buffer, size_t *bytes)
{
    *bytes = SIZE_MAX;
    for (*buffer = NULL; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) {
            *buffer = extra[1];
        } else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) {
            NEED(extra[1], CUDA_ERROR_INVALID_VALUE);
            *bytes = *(size_t *)extra[1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* Where a kernel's argument is and how long: by its code, or as the built-in kernel is declared. */
static bool param_of(const struct CUfunc_st *f, uint32_t index, uint32_t after,
                     struct sim_param *param)
{
    uint32_t bytes = index < 4 && f->builtin ? f->builtin->param_bytes[index] : 0;

    if (f->info) {
        if (index < f->info->param_count)
            *param = f->info->params[index];
        return index < f->info->param_count;
    }
    if (bytes)
        *param = (struct sim_param){bytes, (after + bytes - 1) / bytes * bytes};
    return bytes != 0;
}

/* Checks that every argument is there, and reads those of a built-in kernel, widened to 64 bits. */
static CUresult read_args(const struct CUfunc_st *f, void **params, void **extra, uint64_t *args)
{
    const char *buffer;
    size_t buffer_bytes;
    struct sim_param p = {0, 0};

    NEED(!params || !extra, CUDA_ERROR_INVALID_VALUE);
    TRY(extra_buffer(extra, &buffer, &buffer_bytes));
    memset(args, 0, 4 * sizeof(*args));
    for (uint32_t i = 0; param_of(f, i, p.offset + p.bytes, &p); i++) {
        const void *from;

        if (params) {
            NEED(params[i], CUDA_ERROR_INVALID_VALUE);
            from = params[i];
        } else {
            NEED(buffer && p.offset + p.bytes <= buffer_bytes, CUDA_ERROR_INVALID_VALUE);
            from = buffer + p.offset;
        }
        if (!f->builtin || i >= 4)
            continue;
        NEED(p.bytes <= sizeof(*args), CUDA_ERROR_INVALID_VALUE);
        memcpy(&args[i], from, p.bytes);
    }
    return CUDA_SUCCESS;
}

CUresult launch_copy_args(const struct CUfunc_st *f, void **params, void **extra, void ***copy)
{
    struct sim_param p = {0, 0};
    const char *buffer;
    size_t buffer_bytes, bytes = 0;
    uint32_t count = 0;
    char *to;

    *copy = NULL;
    TRY(extra_buffer(extra, &buffer, &buffer_bytes));
    while (param_of(f, count, p.offset + p.bytes, &p)) {
        bytes += (p.bytes + 15u) / 16 * 16;
        count++;
    }
    if (!count)
        return CUDA_SUCCESS;
    *copy = malloc((count + 1) / 2 * 2 * sizeof(void *) + bytes);
    NEED(*copy, CUDA_ERROR_OUT_OF_MEMORY);
    to = (char *)(*copy + (count + 1) / 2 * 2);
    p = (struct sim_param){0, 0};
    for (uint32_t i = 0; param_of(f, i, p.offset + p.bytes, &p); i++) {
        memcpy(to, params ? params[i] : buffer + p.offset, p.bytes);
        (*copy)[i] = to;
        to += (p.bytes + 15u) / 16 * 16;
    }
    return CUDA_SUCCESS;
}

CUresult launch_prepare(struct CUfunc_st *f, const struct launch_shape *shape, void **params,
                        void **extra, struct launch *launch)
{
    TRY(launch_check(f, shape, &launch->per_sm));
    launch->builtin = f->builtin;
    launch->rule = f->rule;
    TRY(read_args(f, params, extra, launch->args));
    launch_time(f->module->context->device, shape, launch);
    f->is_loaded = true;
    return CUDA_SUCCESS;
}

/* Launching */

static CUresult launch(CUfunction function, const struct launch_shape *shape, CUstream stream,
                       void **params, void **extra)
{
    struct CUctx_st *c;
    struct CUfunc_st *f;
    struct CUstream_st *s;
    struct launch l;

    TRY(current(&c));
    TRY(function_of(function, c, &f));
    TRY(stream_get(stream, c, &s));
    NEED(s->context->root == f->module->context, CUDA_ERROR_INVALID_HANDLE);
    TRY(launch_prepare(f, shape, params, extra, &l));
    if (atomic_load_explicit(&s->capture, memory_order_relaxed))
        return capture_launch(s, f, shape, params, extra);
    if (s->is_legacy && capture_implicit(c))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return launch_run(&l, s);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra)
{
    const struct launch_shape shape = {.grid = {grid_x, grid_y, grid_z},
                                       .block = {block_x, block_y, block_z},
                                       .shared_bytes = shared_bytes};

    return launch(function, &shape, stream, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **params)
{
    const struct launch_shape shape = {.grid = {grid_x, grid_y, grid_z},
                                       .block = {block_x, block_y, block_z},
                                       .shared_bytes = shared_bytes,
                                       .is_cooperative = true};

    return launch(function, &shape, stream, params, NULL);
}

/* One on each of several devices, all of the same function and shape. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
                                              unsigned int flags)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(list && count && count <= (unsigned int)driver_device_count && !(flags & ~3u),
         CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *p = &list[i];

        NEED(p->function && p->hStream && p->hStream != CU_STREAM_LEGACY &&
                 p->hStream != CU_STREAM_PER_THREAD,
             CUDA_ERROR_INVALID_VALUE);
        NEED(p->function->magic == MAGIC_FUNCTION && p->hStream->magic == MAGIC_STREAM,
             CUDA_ERROR_INVALID_HANDLE);
        NEED(p->gridDimX == list->gridDimX && p->gridDimY == list->gridDimY &&
                 p->gridDimZ == list->gridDimZ && p->blockDimX == list->blockDimX &&
                 p->blockDimY == list->blockDimY && p->blockDimZ == list->blockDimZ &&
                 p->sharedMemBytes == list->sharedMemBytes &&
                 strcmp(p->function->name, list->function->name) == 0,
             CUDA_ERROR_INVALID_VALUE);
        for (unsigned int k = 0; k < i; k++)
            NEED(list[k].hStream->context->device != p->hStream->context->device,
                 CUDA_ERROR_INVALID_DEVICE);
    }
    for (unsigned int i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *p = &list[i];

        TRY(cuLaunchCooperativeKernel(p->function, p->gridDimX, p->gridDimY, p->gridDimZ,
                                      p->blockDimX, p->blockDimY, p->blockDimZ, p->sharedMemBytes,
                                      p->hStream, p->kernelParams));
    }
    return CUDA_SUCCESS;
}

/* An attribute of a launch, as far as it changes what happens here. */
static CUresult apply(const CUlaunchAttribute *a, struct launch_shape *shape, CUevent *after)
{
    switch (a->id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        shape->is_cooperative = a->value.cooperative;
        break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        NEED(a->value.clusterDim.x && a->value.clusterDim.y && a->value.clusterDim.z,
             CUDA_ERROR_INVALID_CLUSTER_SIZE);
        shape->cluster[0] = a->value.clusterDim.x;
        shape->cluster[1] = a->value.clusterDim.y;
        shape->cluster[2] = a->value.clusterDim.z;
        break;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        *after = a->value.programmaticEvent.event;
        break;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        *after = a->value.launchCompletionEvent.event;
        break;
    default:
        NEED((int)a->id >= 0 && a->id < CU_LAUNCH_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
        break;
    }
    return CUDA_SUCCESS;
}

static CUresult launch_ex(const CUlaunchConfig *c, CUstream stream, CUfunction function,
                          void **params, void **extra)
{
    struct launch_shape shape;
    CUevent after = NULL;

    NEED(c && (!c->numAttrs || c->attrs), CUDA_ERROR_INVALID_VALUE);
    shape = (struct launch_shape){.grid = {c->gridDimX, c->gridDimY, c->gridDimZ},
                                  .block = {c->blockDimX, c->blockDimY, c->blockDimZ},
                                  .shared_bytes = c->sharedMemBytes};
    for (unsigned int i = 0; i < c->numAttrs; i++)
        TRY(apply(&c->attrs[i], &shape, &after));
    TRY(launch(function, &shape, stream, params, extra));
    return after ? cuEventRecord(after, stream) : CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    return launch_ex(config, config ? config->hStream : NULL, function, params, extra);
}

__attribute__((visibility("default"))) CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config,
                                                                      CUfunction function,
                                                                      void **params, void **extra);

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    return launch_ex(config, config && config->hStream ? config->hStream : CU_STREAM_PER_THREAD,
                     function, params, extra);
}

/* Launches of before CUDA 4 */

static CUresult legacy_of(CUfunction function, struct CUfunc_st **f)
{
    struct CUctx_st *c;

    TRY(current(&c));
    TRY(function_of(function, c, f));
    if (!(*f)->legacy)
        (*f)->legacy = calloc(1, sizeof(*(*f)->legacy));
    return (*f)->legacy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z)
{
    struct CUfunc_st *f;

    TRY(legacy_of(function, &f));
    NEED(x > 0 && y > 0 && z > 0, CUDA_ERROR_INVALID_VALUE);
    f->legacy->block[0] = (unsigned int)x;
    f->legacy->block[1] = (unsigned int)y;
    f->legacy->block[2] = (unsigned int)z;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction function, unsigned int bytes)
{
    struct CUfunc_st *f;

    TRY(legacy_of(function, &f));
    f->legacy->shared_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetSize(CUfunction function, unsigned int bytes)
{
    struct CUfunc_st *f;

    TRY(legacy_of(function, &f));
    NEED(bytes <= LEGACY_PARAM_BYTES, CUDA_ERROR_INVALID_VALUE);
    f->legacy->param_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult cuParamSetv(CUfunction function, int offset, void *value, unsigned int bytes)
{
    struct CUfunc_st *f;

    TRY(legacy_of(function, &f));
    NEED(value && offset >= 0 && (unsigned int)offset <= LEGACY_PARAM_BYTES &&
             bytes <= LEGACY_PARAM_BYTES - (unsigned int)offset,
         CUDA_ERROR_INVALID_VALUE);
    memcpy(f->legacy->params + offset, value, bytes);
    return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned int value)
{
    return cuParamSetv(function, offset, &value, sizeof(value));
}

CUresult cuParamSetf(CUfunction function, int offset, float value)
{
    return cuParamSetv(function, offset, &value, sizeof(value));
}

static CUresult legacy_launch(CUfunction function, int width, int height, CUstream stream)
{
    struct CUfunc_st *f;
    struct launch_shape shape = {.grid = {(unsigned int)width, (unsigned int)height, 1}};
    size_t bytes;
    void *extra[5];

    TRY(legacy_of(function, &f));
    NEED(width > 0 && height > 0, CUDA_ERROR_INVALID_VALUE);
    memcpy(shape.block, f->legacy->block, sizeof(shape.block));
    shape.shared_bytes = f->legacy->shared_bytes;
    bytes = f->legacy->param_bytes;
    extra[0] = CU_LAUNCH_PARAM_BUFFER_POINTER;
    extra[1] = f->legacy->params;
    extra[2] = CU_LAUNCH_PARAM_BUFFER_SIZE;
    extra[3] = &bytes;
    extra[4] = CU_LAUNCH_PARAM_END;
    return launch(function, &shape, stream, NULL, extra);
}

CUresult cuLaunch(CUfunction function)
{
    return legacy_launch(function, 1, 1, NULL);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    return legacy_launch(function, width, height, NULL);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    return legacy_launch(function, width, height, stream);
}
