/* SPDX-License-Identifier: Apache-2.0 */
/*
 * External semaphores, one group of checks a run: `sim-semaphore GROUP`. Prints "ok" with the
 * number of checks, or the first that failed. Needs a device of compute capability 7.0 or newer.
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static CUcontext context;
static CUstream stream, other;

static void begin(void)
{
    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuStreamCreate, &other, CU_STREAM_NON_BLOCKING);
}

static int new_file(void)
{
    int fd = memfd_create("semaphore", MFD_CLOEXEC);

    TRUE(fd >= 0);
    return fd;
}

/* The semaphore takes a copy of the descriptor. */
static CUexternalSemaphore import(int fd, CUexternalSemaphoreHandleType type)
{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {.type = type, .handle.fd = dup(fd)};
    CUexternalSemaphore semaphore;

    OK(cuImportExternalSemaphore, &semaphore, &desc);
    return semaphore;
}

static CUexternalSemaphore timeline(int fd)
{
    return import(fd, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD);
}

static void raise_to(CUexternalSemaphore semaphore, unsigned long long value, CUstream s)
{
    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS params = {.params.fence.value = value};

    OK(cuSignalExternalSemaphoresAsync, &semaphore, &params, 1, s);
}

static void wait_for(CUexternalSemaphore semaphore, unsigned long long value, CUstream s)
{
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS params = {.params.fence.value = value};

    OK(cuWaitExternalSemaphoresAsync, &semaphore, &params, 1, s);
}

static void streams(void)
{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
                                                .handle.fd = -1};
    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS low = {.params.fence.value = 3};
    int fd = new_file(), second = new_file(), ends[2];
    CUexternalSemaphore a, b, binary;

    begin();
    BAD(cuImportExternalSemaphore, &a, &desc);
    TRUE(pipe(ends) == 0);
    desc.handle.fd = ends[0]; /* not a file that can be mapped */
    BAD(cuImportExternalSemaphore, &a, &desc);
    a = timeline(fd);
    b = timeline(fd); /* the same semaphore */
    binary = import(second, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD);
    /* A wait waits for a value that is not there, and for none that is. */
    wait_for(a, 5, stream);
    usleep(5000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    raise_to(b, 4, other);
    OK(cuStreamSynchronize, other);
    BAD(cuSignalExternalSemaphoresAsync, &a, &low, 1, other); /* it only goes up */
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    raise_to(b, 7, other);
    OK(cuStreamSynchronize, stream);
    wait_for(a, 6, stream);
    OK(cuStreamSynchronize, stream);
    /* A signal comes in stream order: behind this wait. */
    wait_for(binary, 0, stream);
    raise_to(a, 10, stream);
    wait_for(b, 10, other);
    usleep(5000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, other);
    raise_to(binary, 0, CU_STREAM_PER_THREAD);
    OK(cuStreamSynchronize, other);
    /* A binary one is taken by one wait. */
    wait_for(binary, 0, stream);
    usleep(5000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, stream);
    raise_to(binary, 0, other);
    OK(cuStreamSynchronize, stream);
    /* What waits goes on when the handle is gone. */
    wait_for(a, 20, stream);
    OK(cuDestroyExternalSemaphore, a);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalSemaphore, a);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuSignalExternalSemaphoresAsync, &a, &low, 1, other);
    raise_to(b, 20, other);
    OK(cuStreamSynchronize, stream);
    OK(cuDestroyExternalSemaphore, b);
    OK(cuDestroyExternalSemaphore, binary);
}

static void graphs(void)
{
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS up = {.params.fence.value = 1};
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS down = {.params.fence.value = 0};
    int fd = new_file(), second = new_file();
    CUexternalSemaphore in, out;
    CUDA_EXT_SEM_SIGNAL_NODE_PARAMS signal_params = {&out, &up, 1}, got;
    CUDA_EXT_SEM_WAIT_NODE_PARAMS wait_params = {&in, &down, 1};
    CUgraphNode waiting, signalling, node;
    CUgraphNodeType type;
    CUgraphExec exec;
    CUgraph g, clone;
    size_t count;

    begin();
    in = import(fd, CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD);
    out = timeline(second);
    OK(cuGraphCreate, &g, 0);
    wait_params.numExtSems = 0;
    BAD(cuGraphAddExternalSemaphoresWaitNode, &waiting, g, NULL, 0, &wait_params);
    wait_params.numExtSems = 1;
    OK(cuGraphAddExternalSemaphoresWaitNode, &waiting, g, NULL, 0, &wait_params);
    OK(cuGraphAddExternalSemaphoresSignalNode, &signalling, g, &waiting, 1, &signal_params);
    OK(cuGraphNodeGetType, signalling, &type);
    IS(CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, type);
    BAD(cuGraphExternalSemaphoresSignalNodeGetParams, waiting, &got);
    up.params.fence.value = 2;
    OK(cuGraphExternalSemaphoresSignalNodeGetParams, signalling, &got);
    TRUE(got.numExtSems == 1 && got.extSemArray[0] == out);
    IS(1, got.paramsArray[0].params.fence.value); /* its own copy */
    OK(cuGraphExternalSemaphoresSignalNodeSetParams, signalling, &signal_params);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphLaunch, exec, stream);
    wait_for(out, 2, other);
    usleep(5000);
    GIVES(CUDA_ERROR_NOT_READY, cuStreamQuery, other);
    raise_to(in, 0, CU_STREAM_PER_THREAD);
    OK(cuStreamSynchronize, other);
    OK(cuStreamSynchronize, stream);
    up.params.fence.value = 9;
    OK(cuGraphExecExternalSemaphoresSignalNodeSetParams, exec, signalling, &signal_params);
    OK(cuGraphExecExternalSemaphoresWaitNodeSetParams, exec, waiting, &wait_params);
    OK(cuGraphLaunch, exec, stream);
    raise_to(in, 0, CU_STREAM_PER_THREAD);
    wait_for(out, 9, other);
    OK(cuStreamSynchronize, other);
    OK(cuGraphClone, &clone, g);
    OK(cuGraphDestroy, g);
    OK(cuGraphDestroy, clone);
    OK(cuGraphExecDestroy, exec);
    /* Captured. */
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    wait_for(in, 0, stream);
    raise_to(out, 12, stream);
    OK(cuStreamEndCapture, stream, &g);
    count = 1;
    OK(cuGraphGetRootNodes, g, &node, &count);
    OK(cuGraphNodeGetType, node, &type);
    IS(CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, type);
    OK(cuGraphInstantiateWithFlags, &exec, g, 0);
    OK(cuGraphLaunch, exec, stream);
    raise_to(in, 0, CU_STREAM_PER_THREAD);
    wait_for(out, 12, other);
    OK(cuStreamSynchronize, other);
    OK(cuDestroyExternalSemaphore, out);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuGraphLaunch, exec, stream);
    raise_to(in, 0, other);
    OK(cuStreamSynchronize, stream);
}

/* Two processes with one file answer each other, a hundred times. */
static void processes(void)
{
    int fd = new_file(), status;
    pid_t child = fork();
    CUexternalSemaphore semaphore;

    begin();
    semaphore = timeline(fd);
    for (unsigned long long i = child ? 0 : 1; i < 200; i += 2) {
        if (i)
            wait_for(semaphore, i, stream);
        raise_to(semaphore, i + 1, stream);
    }
    OK(cuStreamSynchronize, stream);
    if (!child)
        _exit(0);
    wait_for(semaphore, 200, stream);
    OK(cuStreamSynchronize, stream);
    TRUE(waitpid(child, &status, 0) == child && status == 0);
}

static const struct check_group groups[] = {
    {"streams", streams}, {"graphs", graphs}, {"processes", processes}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, groups, sizeof(groups) / sizeof(groups[0]));
}
