/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel launches. How long a kernel takes comes from its name and arguments (the built-in ones) or
 * from its grid: a wave of one block per SM takes 20 us. Built-in kernels compute on the device's
 * bytes, at launch; the clock says when a program may see that.
 */
#include "cuda/driver.h"

#include <string.h>

#define WAVE_NS 20000ull

/* What the built-in kernels compute */

static uint64_t busy_us_duration(const uint64_t *args)
{
    return args[0] > UINT64_MAX / 2000 ? UINT64_MAX / 2 : args[0] * 1000;
}

/* vector_add(const float *a, const float *b, float *c, n) */
static void vector_add(const uint64_t *args)
{
    uint64_t bytes = args[3] * sizeof(float);
    const float *a, *b;
    float *c;

    if (args[3] > UINT64_MAX / 8 || !(a = memory_host(args[0], bytes, false)) ||
        !(b = memory_host(args[1], bytes, false)) || !(c = memory_host(args[2], bytes, true)))
        return;
    for (uint64_t i = 0; i < args[3]; i++)
        c[i] = a[i] + b[i];
}

/* saxpy(n, float alpha, const float *x, float *y) */
static void saxpy(const uint64_t *args)
{
    uint64_t bytes = args[0] * sizeof(float);
    uint32_t bits = (uint32_t)args[1];
    const float *x;
    float *y, alpha;

    memcpy(&alpha, &bits, sizeof(alpha));
    if (args[0] > UINT64_MAX / 8 || !(x = memory_host(args[2], bytes, false)) ||
        !(y = memory_host(args[3], bytes, true)))
        return;
    for (uint64_t i = 0; i < args[0]; i++)
        y[i] = alpha * x[i] + y[i];
}

/* fill(uint32_t *to, uint32_t value, n) */
static void fill(const uint64_t *args)
{
    uint32_t *to;

    if (args[2] > UINT64_MAX / 8 || !(to = memory_host(args[0], args[2] * sizeof(*to), true)))
        return;
    for (uint64_t i = 0; i < args[2]; i++)
        to[i] = (uint32_t)args[1];
}

static const struct builtin builtins[] = {
    {"busy_us", {8}, busy_us_duration, NULL},
    {"vector_add", {8, 8, 8, 8}, NULL, vector_add},
    {"saxpy", {8, 4, 8, 8}, NULL, saxpy},
    {"fill", {8, 4, 8}, NULL, fill},
};

const struct builtin *builtin_find(const char *name)
{
    for (size_t i = 0; i < sizeof(builtins) / sizeof(builtins[0]); i++) {
        if (strcmp(name, builtins[i].name) == 0)
            return &builtins[i];
    }
    return NULL;
}

/* Launching */

CUresult launch_check(struct CUfunc_st *f, const unsigned int grid[3], const unsigned int block[3],
                      unsigned int shared_bytes)
{
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];

    NEED(grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2],
         CUDA_ERROR_INVALID_VALUE);
    NEED(grid[0] <= 2147483647u && grid[1] <= 65535 && grid[2] <= 65535 && block[0] <= 1024 &&
             block[1] <= 1024 && block[2] <= 64 && threads <= 1024,
         CUDA_ERROR_INVALID_VALUE);
    NEED(shared_bytes <=
             (unsigned int)f->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES],
         CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

/* The argument buffer of `extra`, or NULL. */
static CUresult extra_buffer(void **extra, const char **buffer, size_t *bytes)
{
    *bytes = SIZE_MAX;
    for (*buffer = NULL; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            *buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *bytes = *(size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* Reads a built-in kernel's arguments, each widened to 64 bits. */
static CUresult read_args(const struct kernel_info *k, void **params, void **extra, uint64_t *args)
{
    const char *buffer;
    size_t buffer_bytes;
    uint32_t at = 0;

    TRY(extra_buffer(extra, &buffer, &buffer_bytes));
    memset(args, 0, 4 * sizeof(*args));
    for (uint32_t i = 0; i < 4 && (k->has_params ? i < k->param_count : k->builtin->param_bytes[i]);
         i++) {
        uint32_t bytes = k->has_params ? k->param_bytes[i] : k->builtin->param_bytes[i];
        uint32_t offset = k->has_params ? k->param_offset[i] : (at + bytes - 1) / bytes * bytes;

        NEED(bytes <= sizeof(*args), CUDA_ERROR_INVALID_VALUE);
        at = offset + bytes;
        if (params) {
            NEED(params[i], CUDA_ERROR_INVALID_VALUE);
            memcpy(&args[i], params[i], bytes);
        } else {
            NEED(buffer && at <= buffer_bytes, CUDA_ERROR_INVALID_VALUE);
            memcpy(&args[i], buffer + offset, bytes);
        }
    }
    return CUDA_SUCCESS;
}

CUresult launch_prepare(struct CUfunc_st *f, const unsigned int grid[3],
                        const unsigned int block[3], void **params, void **extra,
                        struct launch *launch)
{
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2], waves;
    uint32_t sms = f->module->context->device->info.sms;

    (void)block;
    NEED(!params || !extra, CUDA_ERROR_INVALID_VALUE);
    launch->builtin = f->info.builtin;
    if (launch->builtin)
        TRY(read_args(&f->info, params, extra, launch->args));
    if (launch->builtin && launch->builtin->duration_ns) {
        launch->duration_ns = launch->builtin->duration_ns(launch->args);
        return CUDA_SUCCESS;
    }
    waves = (blocks + sms - 1) / sms;
    launch->duration_ns = waves > UINT64_MAX / 2 / WAVE_NS ? UINT64_MAX / 2 : waves * WAVE_NS;
    return CUDA_SUCCESS;
}

void launch_compute(const struct launch *launch)
{
    if (launch->builtin && launch->builtin->run)
        launch->builtin->run(launch->args);
}

void launch_run(const struct launch *launch, struct CUstream_st *stream)
{
    launch_compute(launch);
    stream_launch(stream, launch->duration_ns, 1);
}

static CUresult launch(CUfunction function, const unsigned int grid[3], const unsigned int block[3],
                       unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
    struct CUctx_st *c;
    struct CUfunc_st *f;
    struct CUstream_st *s;
    struct launch l;

    TRY(current(&c));
    TRY(function_of(function, c, &f));
    TRY(stream_get(stream, c, &s));
    NEED(s->context->device == c->device, CUDA_ERROR_INVALID_HANDLE);
    TRY(launch_check(f, grid, block, shared_bytes));
    TRY(launch_prepare(f, grid, block, params, extra, &l));
    if (atomic_load_explicit(&s->capture, memory_order_relaxed))
        return capture_launch(s, f, &l);
    if (s->is_legacy && capture_implicit(c))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    launch_run(&l, s);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                        void **params, void **extra)
{
    const unsigned int grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};

    return launch(function, grid, block, shared_bytes, stream, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params,
                          void **extra)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(config && (!config->numAttrs || config->attrs), CUDA_ERROR_INVALID_VALUE);
    for (unsigned int i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
            config->attrs[i].value.cooperative)
            return cuLaunchCooperativeKernel(function, config->gridDimX, config->gridDimY,
                                             config->gridDimZ, config->blockDimX, config->blockDimY,
                                             config->blockDimZ, config->sharedMemBytes,
                                             config->hStream, params);
    }
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ,
                          config->blockDimX, config->blockDimY, config->blockDimZ,
                          config->sharedMemBytes, config->hStream, params, extra);
}

__attribute__((visibility("default"))) CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config,
                                                                      CUfunction function,
                                                                      void **params, void **extra);

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params,
                               void **extra)
{
    CUlaunchConfig copy;

    NEED(config, CUDA_ERROR_INVALID_VALUE);
    copy = *config;
    if (!copy.hStream)
        copy.hStream = CU_STREAM_PER_THREAD;
    return cuLaunchKernelEx(&copy, function, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                   unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                   unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                   void **params)
{
    const unsigned int grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    uint64_t threads = (uint64_t)block_x * block_y * block_z;
    struct CUctx_st *c;

    TRY(current(&c));
    /* All blocks must be resident at once. */
    if (threads && threads <= 1024 && grid_x && grid_y && grid_z) {
        uint64_t each = 2048 / threads < 32 ? 2048 / threads : 32;

        NEED((uint64_t)grid_x * grid_y * grid_z <= each * c->device->info.sms,
             CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }
    return launch(function, grid, block, shared_bytes, stream, params, NULL);
}
