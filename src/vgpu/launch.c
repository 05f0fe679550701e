/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrappers of the entry points that put kernels on the GPU: each passes the gate of src/vgpu/compute on its way to the driver.
 * Without a share a wrapper is a load, a compare and a call.
 */
#include "vgpu/driver.h"

#define ARGS(...) __VA_ARGS__

#define LAUNCH(name, params, args)                                                                                        \
    ALQ_HOOK CUresult name params                                                                                         \
    {                                                                                                                     \
        if (!ALQ_HAS(name))                                                                                               \
            return alq_absent(ALQ_CU_##name);                                                                             \
        return ALQ_CALL(name, args);                                                                                      \
    }

#define KERNEL_PARAMS                                                                                                     \
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,  \
     unsigned int shared, CUstream stream, void **params, void **extra)
#define KERNEL_ARGS ARGS(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra)
LAUNCH(cuLaunchKernel, KERNEL_PARAMS, KERNEL_ARGS)
LAUNCH(cuLaunchKernel_ptsz, KERNEL_PARAMS, KERNEL_ARGS)

#define EX_PARAMS (const CUlaunchConfig *config, CUfunction f, void **params, void **extra)
LAUNCH(cuLaunchKernelEx, EX_PARAMS, ARGS(config, f, params, extra))
LAUNCH(cuLaunchKernelEx_ptsz, EX_PARAMS, ARGS(config, f, params, extra))

#define COOPERATIVE_PARAMS                                                                                                \
    (CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz,  \
     unsigned int shared, CUstream stream, void **params)
#define COOPERATIVE_ARGS ARGS(f, gx, gy, gz, bx, by, bz, shared, stream, params)
LAUNCH(cuLaunchCooperativeKernel, COOPERATIVE_PARAMS, COOPERATIVE_ARGS)
LAUNCH(cuLaunchCooperativeKernel_ptsz, COOPERATIVE_PARAMS, COOPERATIVE_ARGS)
LAUNCH(cuLaunchCooperativeKernelMultiDevice, (CUDA_LAUNCH_PARAMS * list, unsigned int count, unsigned int flags),
       ARGS(list, count, flags))

LAUNCH(cuLaunch, (CUfunction f), ARGS(f))
LAUNCH(cuLaunchGrid, (CUfunction f, int gx, int gy), ARGS(f, gx, gy))
LAUNCH(cuLaunchGridAsync, (CUfunction f, int gx, int gy, CUstream stream), ARGS(f, gx, gy, stream))

LAUNCH(cuGraphLaunch, (CUgraphExec graph, CUstream stream), ARGS(graph, stream))
LAUNCH(cuGraphLaunch_ptsz, (CUgraphExec graph, CUstream stream), ARGS(graph, stream))
