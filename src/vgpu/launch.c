/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers of the entry points that put work on the GPU: each passes the gate of src/vgpu/compute
 * on its way to the driver. Without a share a wrapper is a load, a compare and a call.
 */
#include "vgpu/context.h"
#include "vgpu/gated.h"
#include "vgpu/memory/graph.h"

CUresult alq_gated_before(struct alq_gated *gated, const void *handle, enum alq_estimate_kind kind,
                          uint32_t size_class, CUstream stream, bool is_joined)
{
    struct alq_dev *dev;
    CUresult result = alq_dev_find_current(&dev);

    gated->compute = dev ? alq_submit_begin() : NULL;
    if (!gated->compute)
        return result;
    gated->at = (struct alq_compute_launch){
        .device = dev->index,
        .stream = stream,
        .thread = (uintptr_t)__builtin_thread_pointer(),
        .handle = handle,
        .kind = kind,
        .size_class = size_class,
        .is_joined = is_joined,
    };
    alq_compute_before(gated->compute, &gated->at, &gated->ticket);
    return CUDA_SUCCESS;
}

static uint64_t product(unsigned int x, unsigned int y, unsigned int z)
{
    return alq_product((uint64_t)x * y, z);
}

#define LAUNCH(name, params, args, handle, class_, stream, is_joined)                              \
    ALQ_GATED(name, ALQ_ARGS(params), ALQ_ARGS(args),                                              \
              alq_gated_before(&gated, handle, ALQ_ESTIMATE_FUNCTION, class_, stream, is_joined))

#define KERNEL_PARAMS                                                                              \
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,             \
     unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,        \
     void **extra)
#define KERNEL_ARGS ALQ_ARGS(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra)
#define KERNEL_CLASS alq_size_class(alq_product(product(gx, gy, gz), product(bx, by, bz)))
LAUNCH(cuLaunchKernel, KERNEL_PARAMS, KERNEL_ARGS, f, KERNEL_CLASS, stream, false)
LAUNCH(cuLaunchKernel_ptsz, KERNEL_PARAMS, KERNEL_ARGS, f, KERNEL_CLASS, alq_per_thread(stream),
       false)

#define COOPERATIVE_PARAMS                                                                         \
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,             \
     unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params)
#define COOPERATIVE_ARGS ALQ_ARGS(f, gx, gy, gz, bx, by, bz, shared, stream, params)
LAUNCH(cuLaunchCooperativeKernel, COOPERATIVE_PARAMS, COOPERATIVE_ARGS, f, KERNEL_CLASS, stream,
       false)
LAUNCH(cuLaunchCooperativeKernel_ptsz, COOPERATIVE_PARAMS, COOPERATIVE_ARGS, f, KERNEL_CLASS,
       alq_per_thread(stream), false)

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
    (config ? alq_size_class(                                                                      \
                  alq_product(product(config->gridDimX, config->gridDimY, config->gridDimZ),       \
                              product(config->blockDimX, config->blockDimY, config->blockDimZ)))   \
            : 0)
#define EX_STREAM (config ? config->hStream : NULL)
#define EX_JOINED (config && is_joined(config))
LAUNCH(cuLaunchKernelEx, EX_PARAMS, ALQ_ARGS(config, f, params, extra), f, EX_CLASS, EX_STREAM,
       EX_JOINED)
LAUNCH(cuLaunchKernelEx_ptsz, EX_PARAMS, ALQ_ARGS(config, f, params, extra), f, EX_CLASS,
       alq_per_thread(EX_STREAM), EX_JOINED)

/* The block's size was set before by cuFuncSetBlockShape and is not known here: one class for each
 * grid. */
#define GRID_CLASS alq_size_class(product((unsigned int)gx, (unsigned int)gy, 1))
LAUNCH(cuLaunch, (CUfunction f), ALQ_ARGS(f), f, 0, NULL, false)
LAUNCH(cuLaunchGrid, (CUfunction f, int gx, int gy), ALQ_ARGS(f, gx, gy), f, GRID_CLASS, NULL,
       false)
LAUNCH(cuLaunchGridAsync, (CUfunction f, int gx, int gy, CUstream stream),
       ALQ_ARGS(f, gx, gy, stream), f, GRID_CLASS, stream, false)

/* A graph's own memory is reserved before its turn. */
#define LAUNCH_GRAPH(name, of_stream)                                                              \
    static CUresult at_gate_##name(CUgraphExec graph, CUstream stream)                             \
    {                                                                                              \
        struct alq_gated launch;                                                                   \
        CUresult known =                                                                           \
            alq_gated_before(&launch, graph, ALQ_ESTIMATE_GRAPH, 0, of_stream, false);             \
        return known == CUDA_SUCCESS ? alq_gated_after(&launch, ALQ_CALL(name, graph, stream))     \
                                     : known;                                                      \
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
LAUNCH_GRAPH(cuGraphLaunch_ptsz, alq_per_thread(stream))

/* Kernels of several devices in one call: each passes the gate of its own, as its stream's context
 * tells. */
#define MULTI_MAX 16u

__typeof__(cuLaunchCooperativeKernelMultiDevice) alq_gated_cuLaunchCooperativeKernelMultiDevice
    __attribute__((visibility("hidden")));

CUresult alq_gated_cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list,
                                                        unsigned int count, unsigned int flags)
{
    struct alq_gated launches[MULTI_MAX];
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
        struct alq_gated *launch = &launches[gated];
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
            .size_class =
                alq_size_class(alq_product(product(p->gridDimX, p->gridDimY, p->gridDimZ),
                                           product(p->blockDimX, p->blockDimY, p->blockDimZ))),
            .is_joined = true, /* measured by estimate alone: the launches wait for one another */
        };
        alq_compute_before(launch->compute, &launch->at, &launch->ticket);
    }
    if (result == CUDA_SUCCESS)
        result = ALQ_CALL(cuLaunchCooperativeKernelMultiDevice, list, count, flags);
    for (unsigned int i = 0; i < gated; i++)
        alq_gated_after(&launches[i], result);
    return result;
}
