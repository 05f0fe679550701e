/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers of the entry points that put work on the GPU: each passes the gate of src/vgpu/compute
 * on its way to the driver. Without a share a wrapper is a load, a compare and a call.
 */
#include "vgpu/context.h"
#include "vgpu/driver.h"
#include "vgpu/memory/graph.h"
#include "vgpu/submit.h"

struct launch {
    struct alq_compute *compute; /* NULL: not at the gate */
    struct alq_compute_launch at;
    struct alq_compute_ticket ticket;
};

/* log2 of blocks * threads, rounded down; 0 for what has no grid. */
static uint32_t size_class(uint64_t blocks, uint64_t threads)
{
    uint64_t all;
    if (__builtin_mul_overflow(blocks, threads, &all))
        return 63;
    return all ? 63u - (uint32_t)__builtin_clzll(all) : 0;
}

static uint64_t product(unsigned int x, unsigned int y, unsigned int z)
{
    uint64_t all;
    return __builtin_mul_overflow((uint64_t)x * y, z, &all) ? UINT64_MAX : all;
}

static CUstream per_thread(CUstream stream)
{
    return stream ? stream : CU_STREAM_PER_THREAD;
}

/* An error: the driver does not say which device is meant, and it may be one with a share. */
static CUresult before(struct launch *launch, const void *handle, enum alq_estimate_kind kind,
                       uint32_t class_, CUstream stream, bool is_joined)
{
    struct alq_dev *dev;
    CUresult result = alq_dev_find_current(&dev);

    launch->compute = dev ? alq_submit_begin() : NULL;
    if (!launch->compute)
        return result;
    launch->at = (struct alq_compute_launch){
        .device = dev->index,
        .stream = stream,
        .thread = (uintptr_t)__builtin_thread_pointer(),
        .handle = handle,
        .kind = kind,
        .size_class = class_,
        .is_joined = is_joined,
    };
    alq_compute_before(launch->compute, &launch->at, &launch->ticket);
    return CUDA_SUCCESS;
}

static inline CUresult after(struct launch *launch, CUresult result)
{
    if (launch->compute)
        alq_compute_after(launch->compute, &launch->at, &launch->ticket, result);
    return result;
}

#define ARGS(...) __VA_ARGS__

/*
 * One launch: handle, kind, size class, stream, joined. The exported name itself is a jump to the
 * driver's function while no share is in force (entry/pass.h), else to this.
 */
#define LAUNCH(name, params, args, ...)                                                            \
    __typeof__(name) alq_gated_##name __attribute__((visibility("hidden")));                       \
    CUresult alq_gated_##name params                                                               \
    {                                                                                              \
        struct launch launch;                                                                      \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, args);                                                           \
        if (alq_core_mode() == ALQ_MODE_BROKEN)                                                    \
            return CUDA_ERROR_NOT_PERMITTED;                                                       \
        CUresult known = before(&launch, __VA_ARGS__);                                             \
        return known == CUDA_SUCCESS ? after(&launch, ALQ_CALL(name, args)) : known;               \
    }

#define KERNEL_PARAMS                                                                              \
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,             \
     unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,        \
     void **extra)
#define KERNEL_ARGS ARGS(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra)
#define KERNEL_CLASS size_class(product(gx, gy, gz), product(bx, by, bz))
LAUNCH(cuLaunchKernel, KERNEL_PARAMS, KERNEL_ARGS, f, ALQ_ESTIMATE_FUNCTION, KERNEL_CLASS, stream,
       false)
LAUNCH(cuLaunchKernel_ptsz, KERNEL_PARAMS, KERNEL_ARGS, f, ALQ_ESTIMATE_FUNCTION, KERNEL_CLASS,
       per_thread(stream), false)

#define COOPERATIVE_PARAMS                                                                         \
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,             \
     unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params)
#define COOPERATIVE_ARGS ARGS(f, gx, gy, gz, bx, by, bz, shared, stream, params)
LAUNCH(cuLaunchCooperativeKernel, COOPERATIVE_PARAMS, COOPERATIVE_ARGS, f, ALQ_ESTIMATE_FUNCTION,
       KERNEL_CLASS, stream, false)
LAUNCH(cuLaunchCooperativeKernel_ptsz, COOPERATIVE_PARAMS, COOPERATIVE_ARGS, f,
       ALQ_ESTIMATE_FUNCTION, KERNEL_CLASS, per_thread(stream), false)

/* A launch that may start before the one ahead of it ends: nothing may be put between them. */
static bool is_joined(const CUlaunchConfig *config)
{
    for (unsigned int i = 0; config->attrs && i < config->numAttrs; i++) {
        const CUlaunchAttribute *attr = &config->attrs[i];
        if ((attr->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
             attr->value.programmaticStreamSerializationAllowed) ||
            attr->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
            return true;
    }
    return false;
}

#define EX_PARAMS (const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
#define EX_CLASS                                                                                   \
    (config ? size_class(product(config->gridDimX, config->gridDimY, config->gridDimZ),            \
                         product(config->blockDimX, config->blockDimY, config->blockDimZ))         \
            : 0)
#define EX_STREAM (config ? config->hStream : NULL)
#define EX_JOINED (config && is_joined(config))
LAUNCH(cuLaunchKernelEx, EX_PARAMS, ARGS(config, f, params, extra), f, ALQ_ESTIMATE_FUNCTION,
       EX_CLASS, EX_STREAM, EX_JOINED)
LAUNCH(cuLaunchKernelEx_ptsz, EX_PARAMS, ARGS(config, f, params, extra), f, ALQ_ESTIMATE_FUNCTION,
       EX_CLASS, per_thread(EX_STREAM), EX_JOINED)

/* The block's size was set before by cuFuncSetBlockShape and is not known here: one class for each
 * grid. */
#define GRID_CLASS size_class(product((unsigned int)gx, (unsigned int)gy, 1), 1)
LAUNCH(cuLaunch, (CUfunction f), ARGS(f), f, ALQ_ESTIMATE_FUNCTION, 0, NULL, false)
LAUNCH(cuLaunchGrid, (CUfunction f, int gx, int gy), ARGS(f, gx, gy), f, ALQ_ESTIMATE_FUNCTION,
       GRID_CLASS, NULL, false)
LAUNCH(cuLaunchGridAsync, (CUfunction f, int gx, int gy, CUstream stream), ARGS(f, gx, gy, stream),
       f, ALQ_ESTIMATE_FUNCTION, GRID_CLASS, stream, false)

/* A graph's own memory is reserved before its turn. */
#define LAUNCH_GRAPH(name, of_stream)                                                              \
    static CUresult at_gate_##name(CUgraphExec graph, CUstream stream)                             \
    {                                                                                              \
        struct launch launch;                                                                      \
        CUresult known = before(&launch, graph, ALQ_ESTIMATE_GRAPH, 0, of_stream, false);          \
        return known == CUDA_SUCCESS ? after(&launch, ALQ_CALL(name, graph, stream)) : known;      \
    }                                                                                              \
    __typeof__(name) alq_gated_##name __attribute__((visibility("hidden")));                       \
    CUresult alq_gated_##name(CUgraphExec graph, CUstream stream)                                  \
    {                                                                                              \
        struct alq_graph_launch memory;                                                            \
        if (!ALQ_HAS(name))                                                                        \
            return alq_absent(ALQ_CU_##name);                                                      \
        if (!alq_core_is_on())                                                                     \
            return ALQ_CALL(name, graph, stream);                                                  \
        if (alq_core_mode() == ALQ_MODE_BROKEN)                                                    \
            return CUDA_ERROR_NOT_PERMITTED;                                                       \
        if (atomic_load_explicit(&alq_graph_count, memory_order_relaxed) == 0)                     \
            return at_gate_##name(graph, stream);                                                  \
        CUresult result = alq_graph_begin(graph, &memory);                                         \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        result = at_gate_##name(graph, stream);                                                    \
        alq_graph_end(graph, &memory, result);                                                     \
        return result;                                                                             \
    }

LAUNCH_GRAPH(cuGraphLaunch, stream)
LAUNCH_GRAPH(cuGraphLaunch_ptsz, per_thread(stream))

/* Kernels of several devices in one call: each passes the gate of its own, as its stream's context
 * tells. */
#define MULTI_MAX 16u

__typeof__(cuLaunchCooperativeKernelMultiDevice) alq_gated_cuLaunchCooperativeKernelMultiDevice
    __attribute__((visibility("hidden")));

CUresult alq_gated_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list,
                                                        unsigned int count, unsigned int flags)
{
    struct launch launches[MULTI_MAX];
    struct alq_dev *dev;
    CUresult result = CUDA_SUCCESS;
    unsigned int gated = 0;

    if (!ALQ_HAS(cuLaunchCooperativeKernelMultiDevice))
        return alq_absent(ALQ_CU_cuLaunchCooperativeKernelMultiDevice);
    if (!alq_core_is_on() || !list)
        return ALQ_CALL(cuLaunchCooperativeKernelMultiDevice, list, count, flags);
    if (alq_core_mode() == ALQ_MODE_BROKEN)
        return CUDA_ERROR_NOT_PERMITTED;
    for (; result == CUDA_SUCCESS && gated < count && gated < MULTI_MAX; gated++) {
        const CUDA_LAUNCH_PARAMS *p = &list[gated];
        struct launch *launch = &launches[gated];
        result = alq_context_find_dev_of_stream(p->hStream, &dev);
        launch->compute = dev ? alq_submit_begin() : NULL;
        if (!launch->compute)
            continue;
        launch->at = (struct alq_compute_launch){
            .device = dev->index,
            .stream = p->hStream,
            .thread = (uintptr_t)__builtin_thread_pointer(),
            .handle = p->function,
            .kind = ALQ_ESTIMATE_FUNCTION,
            .size_class = size_class(product(p->gridDimX, p->gridDimY, p->gridDimZ),
                                     product(p->blockDimX, p->blockDimY, p->blockDimZ)),
            .is_joined = true, /* measured by estimate alone: the launches wait for one another */
        };
        alq_compute_before(launch->compute, &launch->at, &launch->ticket);
    }
    if (result == CUDA_SUCCESS)
        result = ALQ_CALL(cuLaunchCooperativeKernelMultiDevice, list, count, flags);
    for (unsigned int i = 0; i < gated; i++)
        after(&launches[i], result);
    return result;
}
