/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work given to a capturing stream: the node that each call becomes. Memory's is in capture.c,
 * since its address depends on what stands before it.
 */
#include "cuda/graph.h"

CUresult capture_launch(struct CUstream_st *s, struct CUfunc_st *f,
                        const struct launch_shape *shape, void **arguments, void **extra)
{
    const CUDA_KERNEL_NODE_PARAMS_v2 api = {.func = f,
                                            .gridDimX = shape->grid[0],
                                            .gridDimY = shape->grid[1],
                                            .gridDimZ = shape->grid[2],
                                            .blockDimX = shape->block[0],
                                            .blockDimY = shape->block[1],
                                            .blockDimZ = shape->block[2],
                                            .sharedMemBytes = shape->shared_bytes,
                                            .kernelParams = arguments,
                                            .extra = extra,
                                            .ctx = f->module->context};
    const CUlaunchAttributeValue yes = {.cooperative = 1};
    struct node_params params;
    CUgraphNode node;

    TRY(kernel_fill(&api, &params));
    TRY(capture_add(s, &params, &node));
    return shape->is_cooperative
               ? cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &yes)
               : CUDA_SUCCESS;
}

/* A fill or copy as its call described it. */
CUresult capture_copy(struct CUstream_st *s, const struct copy *copy)
{
    struct node_params params;

    if (copy->kind == COPY_FILL) {
        const CUDA_MEMSET_NODE_PARAMS_v2 fill = {.dst = copy->to_address,
                                                 .pitch = copy->to_pitch,
                                                 .value = (unsigned int)copy->value,
                                                 .elementSize = copy->element,
                                                 .width = copy->width / copy->element,
                                                 .height = copy->rows,
                                                 .ctx = s->context->root};

        TRY(memset_fill(&fill, &params));
    } else if (copy->shape) {
        TRY(memcpy_fill(copy->shape, s->context->root, &params));
    } else {
        const CUDA_MEMCPY3D line = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                                    .srcDevice = copy->from_address,
                                    .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                    .dstDevice = copy->to_address,
                                    .WidthInBytes = copy->width,
                                    .Height = 1,
                                    .Depth = 1};

        TRY(memcpy_fill(&line, s->context->root, &params));
    }
    return capture_add(s, &params, NULL);
}

CUresult capture_host(struct CUstream_st *s, CUhostFn function, void *data)
{
    struct node_params params;

    TRY(host_fill(&(CUDA_HOST_NODE_PARAMS){function, data}, &params));
    return capture_add(s, &params, NULL);
}

CUresult capture_child(struct CUstream_st *s, CUgraph child)
{
    struct node_params params;

    TRY(child_fill(child, &params));
    return capture_add(s, &params, NULL);
}

CUresult capture_memops(struct CUstream_st *s, unsigned int count,
                        const CUstreamBatchMemOpParams *ops)
{
    const CUDA_BATCH_MEM_OP_NODE_PARAMS api = {s->context->root, count,
                                               (CUstreamBatchMemOpParams *)(uintptr_t)ops, 0};
    struct node_params params;

    TRY(memop_fill(&api, &params));
    return capture_add(s, &params, NULL);
}

CUresult capture_semaphores(struct CUstream_st *s, CUgraphNodeType type,
                            const CUexternalSemaphore *semaphores, const void *values,
                            unsigned int count)
{
    struct node_params params;

    TRY(semaphore_fill(type, semaphores, values, count, &params));
    return capture_add(s, &params, NULL);
}
