/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the driver's calls for contexts, code and launches do in one process, one group of checks a
 * run: `sim-program GROUP [FILE]`. Prints "ok" with the number of checks, or the first that failed.
 * Needs two devices of compute capability 9.0.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "check.h"

#define MIB ((size_t)1 << 20)

static CUcontext context;

static size_t free_now(void)
{
    size_t bytes, total;

    OK(cuMemGetInfo_v2, &bytes, &total);
    return bytes;
}

static void open_context(void)
{
    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxRetain, &context, 0);
    OK(cuCtxSetCurrent, context);
}

/* ---- contexts ------------------------------------------------------------------------------ */

static void contexts(void)
{
    CUcontext a, b, got;
    unsigned int version, flags;
    unsigned long long one, two;
    CUdevice device;

    GIVES(CUDA_ERROR_NOT_INITIALIZED, cuCtxGetCurrent, &got);
    BAD(cuInit, 1);
    OK(cuInit, 0);
    OK(cuInit, 0);
    OK(cuCtxGetCurrent, &got);
    TRUE(!got);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxSynchronize);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxGetDevice, &device);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2, &a, 0, 9);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cuCtxCreate_v2, &a, 0, -1);
    BAD(cuCtxCreate_v2, NULL, 0, 0);
    BAD(cuCtxCreate_v2, &a, 0x100, 0);
    BAD(cuCtxCreate_v2, &a, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, 0);
    OK(cuCtxCreate_v2, &a, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST, 0);
    OK(cuCtxCreate_v2, &b, 0, 1);
    OK(cuCtxGetCurrent, &got);
    TRUE(got == b);
    OK(cuCtxGetDevice, &device);
    IS(1, device);
    OK(cuCtxPopCurrent_v2, &got);
    TRUE(got == b);
    OK(cuCtxGetFlags, &flags);
    IS(CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST, flags);
    OK(cuCtxGetApiVersion, a, &version);
    IS(3020, version);
    OK(cuCtxGetId, a, &one);
    OK(cuCtxGetId, b, &two);
    TRUE(one != two);
    OK(cuCtxPushCurrent_v2, b);
    OK(cuCtxPushCurrent_v2, b);
    OK(cuCtxDestroy_v2, b); /* leaves the top of the stack, not what is below */
    OK(cuCtxGetCurrent, &got);
    TRUE(got == b);
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize);
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxDestroy_v2, b);
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxPushCurrent_v2, b);
    OK(cuCtxPopCurrent_v2, NULL);
    OK(cuCtxGetCurrent, &got);
    TRUE(got == a);
    OK(cuCtxSetCurrent, NULL);
    OK(cuCtxGetCurrent, &got);
    TRUE(!got);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2, &got);
    OK(cuCtxSetCurrent, a);
    OK(cuCtxAttach, &got, 0);
    TRUE(got == a);
    BAD(cuCtxAttach, &got, 1);
    OK(cuCtxDetach, a);
    OK(cuCtxSynchronize);
    OK(cuCtxDetach, a);
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxPushCurrent_v2, a);
    for (int i = 0; i < 64; i++)
        OK(cuCtxCreate_v2, &a, 0, 0);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCtxCreate_v2, &a, 0, 0); /* a thread's stack has 64 places */
}

static void primary(void)
{
    CUcontext a, b;
    CUdeviceptr p;
    unsigned int flags;
    int active;

    OK(cuInit, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    IS(0, active);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuDevicePrimaryCtxSetFlags, 0, CU_CTX_SCHED_YIELD);
    OK(cuDevicePrimaryCtxRetain, &a, 0);
    OK(cuDevicePrimaryCtxRetain, &b, 0);
    TRUE(a == b);
    GIVES(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, cuDevicePrimaryCtxSetFlags, 0, 0);
    OK(cuDevicePrimaryCtxSetFlags_v2, 0, CU_CTX_SCHED_SPIN);
    BAD(cuDevicePrimaryCtxSetFlags_v2, 0, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_BLOCKING_SYNC);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    IS(1, active);
    IS(CU_CTX_SCHED_SPIN, flags);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2, a);
    OK(cuCtxSetCurrent, a);
    OK(cuMemAlloc_v2, &p, MIB);
    OK(cuDevicePrimaryCtxReset_v2, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    IS(0, active);
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuMemFree_v2, p);
    OK(cuDevicePrimaryCtxRetain, &b, 0); /* and the stack holds it again, being the same */
    BAD(cuMemFree_v2, p);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    IS(1, active); /* the two retains of before the reset, and one after, less two */
    OK(cuDevicePrimaryCtxRelease_v2, 0);
    OK(cuDevicePrimaryCtxGetState, 0, &flags, &active);
    IS(0, active);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2, 0);
}

static void limits(void)
{
    size_t value, before;
    CUfunc_cache cache;
    CUsharedconfig shared;

    open_context();
    before = free_now();
    OK(cuCtxGetLimit, &value, CU_LIMIT_STACK_SIZE);
    IS(1024, value);
    OK(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, 72 * MIB);
    IS(before - 64 * MIB, free_now());
    OK(cuCtxSetLimit, CU_LIMIT_PRINTF_FIFO_SIZE, 3 * MIB);
    IS(before - 66 * MIB, free_now());
    OK(cuCtxSetLimit, CU_LIMIT_STACK_SIZE,
       1030); /* in units of 16 bytes, of every resident thread */
    OK(cuCtxGetLimit, &value, CU_LIMIT_STACK_SIZE);
    IS(1040, value);
    IS(before - 66 * MIB - (size_t)16 * 2048 * 132, free_now());
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 256 << 10);
    OK(cuCtxGetLimit, &value, CU_LIMIT_STACK_SIZE);
    IS(1040, value);
    BAD(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 1 << 20);
    OK(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 512);
    OK(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, 0);
    OK(cuCtxSetLimit, CU_LIMIT_PRINTF_FIFO_SIZE, 0);
    IS(before, free_now());
    OK(cuCtxSetLimit, CU_LIMIT_PERSISTING_L2_CACHE_SIZE, (size_t)1 << 40);
    OK(cuCtxGetLimit, &value, CU_LIMIT_PERSISTING_L2_CACHE_SIZE);
    IS(32768000, value);
    BAD(cuCtxSetLimit, CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 129);
    GIVES(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit, CU_LIMIT_MAX, 1);
    GIVES(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxGetLimit, &value, (CUlimit)77);
    BAD(cuCtxGetLimit, NULL, CU_LIMIT_STACK_SIZE);
    OK(cuCtxSetCacheConfig, CU_FUNC_CACHE_PREFER_L1);
    OK(cuCtxGetCacheConfig, &cache);
    IS(CU_FUNC_CACHE_PREFER_L1, cache);
    BAD(cuCtxSetCacheConfig, (CUfunc_cache)4);
    OK(cuCtxSetSharedMemConfig, CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE);
    OK(cuCtxGetSharedMemConfig, &shared);
    IS(CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE, shared);
    BAD(cuCtxSetSharedMemConfig, (CUsharedconfig)3);
    GIVES(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, cuCtxGetExecAffinity,
          &(CUexecAffinityParam){.type = 0}, CU_EXEC_AFFINITY_TYPE_SM_COUNT);
}

static void green(void)
{
    CUdevResource all, group[20], rest;
    CUdevResourceDesc desc;
    CUgreenCtx g, got_green;
    CUcontext form, got;
    CUstream stream;
    CUevent event;
    unsigned int n = 0;
    CUdeviceptr p;
    int active;

    OK(cuInit, 0);
    OK(cuDeviceGetDevResource, 0, &all, CU_DEV_RESOURCE_TYPE_SM);
    IS(132, all.sm.smCount);
    GIVES(CUDA_ERROR_INVALID_RESOURCE_TYPE, cuDeviceGetDevResource, 0, &all,
          CU_DEV_RESOURCE_TYPE_INVALID);
    OK(cuDevSmResourceSplitByCount, NULL, &n, &all, NULL, 0, 20);
    IS(5, n); /* of 24, being multiples of 8 */
    n = 2;
    OK(cuDevSmResourceSplitByCount, group, &n, &all, &rest, 0, 20);
    IS(2, n);
    IS(24, group[1].sm.smCount);
    IS(132 - 48, rest.sm.smCount);
    BAD(cuDevSmResourceSplitByCount, group, &n, &all, NULL, 0, 133);
    BAD(cuDevSmResourceSplitByCount, group, &n, &all, NULL, 8, 20);
    GIVES(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, cuDevSmResourceSplitByCount, group, &n,
          &group[0], NULL, 0, 8);
    OK(cuDevResourceGenerateDesc, &desc, group, 1);
    BAD(cuGreenCtxCreate, &g, desc, 0, 0);
    BAD(cuGreenCtxCreate, &g, desc, 1, CU_GREEN_CTX_DEFAULT_STREAM);
    BAD(cuGreenCtxCreate, &g, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    OK(cuGreenCtxCreate, &g, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    OK(cuDevicePrimaryCtxGetState, 0, &n, &active);
    IS(1, active);
    OK(cuGreenCtxGetDevResource, g, &rest, CU_DEV_RESOURCE_TYPE_SM);
    IS(24, rest.sm.smCount);
    OK(cuCtxFromGreenCtx, &form, g);
    OK(cuCtxSetCurrent, form);
    OK(cuMemAlloc_v2, &p, MIB);
    OK(cuCtxGetDevResource, form, &rest, CU_DEV_RESOURCE_TYPE_SM);
    IS(24, rest.sm.smCount);
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuMemsetD8Async, p, 1, MIB, stream);
    OK(cuStreamSynchronize, stream);
    OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    OK(cuMemsetD8Async, p, 2, MIB, stream);
    OK(cuGreenCtxRecordEvent, g, event);
    OK(cuGreenCtxWaitEvent, g, event);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuGreenCtxRecordEvent, g, NULL);
    OK(cuCtxSynchronize);
    OK(cuEventQuery, event);
    OK(cuStreamGetGreenCtx, stream, &got_green);
    TRUE(got_green == g);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2, form);
    OK(cuGreenCtxDestroy, g);
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cuGreenCtxDestroy, g);
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize);
    OK(cuCtxPopCurrent_v2, &got);
    TRUE(got == form);
    OK(cuDevicePrimaryCtxGetState, 0, &n, &active);
    IS(0, active);
}

static void streams(void)
{
    CUstreamAttrValue value = {.accessPolicyWindow = {.num_bytes = 4096, .hitRatio = 0.5F}}, got;
    CUstream a, b;

    open_context();
    OK(cuStreamCreateWithPriority, &a, CU_STREAM_NON_BLOCKING, -3);
    OK(cuStreamCreate, &b, CU_STREAM_DEFAULT);
    OK(cuStreamGetAttribute, a, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got);
    IS(-3, got.priority);
    OK(cuStreamSetAttribute, a, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value);
    value.accessPolicyWindow.hitRatio = 2;
    BAD(cuStreamSetAttribute, a, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value);
    value.accessPolicyWindow = (CUaccessPolicyWindow){.num_bytes = (size_t)1 << 40};
    BAD(cuStreamSetAttribute, a, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value);
    value.syncPolicy = CU_SYNC_POLICY_SPIN;
    OK(cuStreamSetAttribute, a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value);
    value.syncPolicy = (CUsynchronizationPolicy)9;
    BAD(cuStreamSetAttribute, a, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value);
    OK(cuStreamGetAttribute, b, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got);
    IS(CU_SYNC_POLICY_AUTO, got.syncPolicy);
    OK(cuStreamCopyAttributes, b, a);
    OK(cuStreamGetAttribute, b, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got);
    IS(CU_SYNC_POLICY_SPIN, got.syncPolicy);
    OK(cuStreamGetAttribute, b, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &got);
    IS(4096, got.accessPolicyWindow.num_bytes);
    BAD(cuStreamGetAttribute, a, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &got);
    BAD(cuStreamGetAttribute, a, CU_LAUNCH_ATTRIBUTE_PRIORITY, NULL);
}

static void *use_everywhere(void *arg)
{
    static char begins[] = "a thread begins with the context of another",
                failed[] = "a call failed";
    CUcontext mine, got;
    CUdeviceptr p;

    if (DRIVER(cuCtxGetCurrent)(&got) || got)
        return begins;
    for (int i = 0; i < 200; i++) {
        if (DRIVER(cuCtxPushCurrent_v2)(context) || DRIVER(cuMemAlloc_v2)(&p, 4096) ||
            DRIVER(cuCtxCreate_v2)(&mine, 0, 1) || DRIVER(cuMemFree_v2)(p) ||
            DRIVER(cuCtxDestroy_v2)(mine) || DRIVER(cuCtxPopCurrent_v2)(&got) || got != context)
            return failed;
    }
    return arg;
}

static void threads(void)
{
    pthread_t thread[4];
    void *said;

    open_context();
    for (int i = 0; i < 4; i++)
        TRUE(pthread_create(&thread[i], NULL, use_everywhere, NULL) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], &said);
        if (said) {
            printf("%s\n", (const char *)said);
            exit(1);
        }
        check_count++;
    }
}

/* ---- code ---------------------------------------------------------------------------------- */

static const char text[] =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".global .align 4 .u32 counter = 7;\n"
    ".const .align 8 .f64 coef[3] = {0d3FF8000000000000, 0d4004000000000000};\n"
    ".global .attribute(.managed) .align 4 .s32 shared_value = -3;\n"
    ".global .u16 table[][2] = {{1, 2}, {3}, {0x10, 5}};\n"
    ".visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) { ret; }\n"
    ".visible .entry big(.param .align 8 .b8 s[100], .param .u8 c) .maxntid 128, 2, 1\n"
    "{ .shared .align 8 .b8 tile[40000]; .local .b8 depot[80]; ld.shared.f32 %f1, [tile]; ret; }\n"
    ".visible .entry none() { ret; }\n";

static void modules(void)
{
    static const char later[] = ".version 9.9\n.target sm_50\n.entry f() { ret; }";
    char log[256], info[16] = "x";
    CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof(log), info, (void *)sizeof(info)};
    CUfunction f, list[4];
    CUmodule m, other;
    CUdeviceptr p;
    size_t bytes, before;
    unsigned int n;
    double coef[3];
    uint16_t table[6];
    int value;

    open_context();
    before = free_now();
    BAD(cuModuleLoadData, NULL, text);
    BAD(cuModuleLoadData, &m, NULL);
    OK(cuModuleLoadData, &m, text);
    TRUE(free_now() < before);
    OK(cuModuleGetFunctionCount, &n, m);
    IS(3, n);
    OK(cuModuleEnumerateFunctions, list, 4, m);
    OK(cuModuleGetFunction, &f, m, "big");
    TRUE(f == list[1]);
    GIVES(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &f, m, "bigger");
    GIVES(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &f, m, "");
    BAD(cuModuleGetFunction, &f, m, NULL);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction, &f, NULL, "big");
    OK(cuModuleGetGlobal_v2, &p, &bytes, m, "counter");
    IS(4, bytes);
    OK(cuMemcpyDtoH_v2, &value, p, 4);
    IS(7, value);
    OK(cuModuleGetGlobal_v2, &p, &bytes, m, "coef");
    IS(24, bytes);
    OK(cuMemcpyDtoH_v2, coef, p, 24);
    TRUE(coef[0] == 1.5 && coef[1] == 2.5 && coef[2] == 0);
    OK(cuModuleGetGlobal_v2, &p, &bytes, m, "table");
    IS(12, bytes);
    OK(cuMemcpyDtoH_v2, table, p, 12);
    TRUE(table[0] == 1 && table[1] == 2 && table[2] == 3 && !table[3] && table[4] == 16);
    OK(cuModuleGetGlobal_v2, &p, &bytes, m, "shared_value");
    IS(-3, *(int *)(uintptr_t)p);
    GIVES(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2, &p, &bytes, m, "saxpy");
    BAD(cuModuleGetGlobal_v2, NULL, NULL, m, "counter");
    OK(cuModuleLoadData, &other, text);
    OK(cuModuleUnload, m);
    OK(cuModuleUnload, other);
    IS(before, free_now());
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload, m);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuModuleGetFunction, &f, m, "big");
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuFuncGetAttribute, &value, 0, list[0]);
    GIVES(CUDA_ERROR_INVALID_PTX, cuModuleLoadData, &m, "this is no module");
    GIVES(CUDA_ERROR_INVALID_PTX, cuModuleLoadDataEx, &m, ".version 8.0\n\n.entry f(u32)", 4, names,
          values);
    TRUE(strstr(log, "line 3") && (size_t)values[1] == strlen(log) && !values[3] && !*info);
    values[1] = (void *)sizeof(log);
    GIVES(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, cuModuleLoadDataEx, &m, later, 2, names, values);
    TRUE(strstr(log, "9.9"));
    GIVES(CUDA_ERROR_INVALID_PTX, cuModuleLoadData, &m,
          ".version 7.0\n.target sm_120\n.entry f() { ret; }");
    BAD(cuModuleLoadDataEx, &m, text, 1, NULL, NULL);
    names[0] = (CUjit_option)99;
    BAD(cuModuleLoadDataEx, &m, text, 1, names, values);
    GIVES(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad, &m, "/nonexistent.cubin");
    GIVES(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad, &m, "/tmp");
    IS(before, free_now());
}

static void libraries(void)
{
    CUcontext second;
    CUlibrary l, got;
    CUkernel k, again, list[3];
    CUfunction f, g;
    CUmodule m, n;
    CUdeviceptr p, q;
    size_t bytes, before;
    unsigned int count;
    const char *name;
    int value;

    open_context();
    before = free_now();
    OK(cuLibraryLoadData, &l, text, NULL, NULL, 0, NULL, NULL, 0);
    IS(before, free_now()); /* nothing is in a context yet */
    OK(cuLibraryGetKernel, &k, l, "big");
    OK(cuLibraryGetKernel, &again, l, "big");
    TRUE(k == again);
    GIVES(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel, &again, l, "small");
    OK(cuLibraryGetKernelCount, &count, l);
    IS(3, count);
    OK(cuLibraryEnumerateKernels, list, 3, l);
    TRUE(list[1] == k);
    OK(cuKernelGetName, &name, k);
    TRUE(strcmp(name, "big") == 0);
    OK(cuKernelGetParamInfo, k, 1, &before, &bytes);
    IS(100, before);
    IS(1, bytes);
    BAD(cuKernelGetParamInfo, k, 2, &before, &bytes);
    OK(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000, k, 0);
    OK(cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k, 0);
    IS(100000, value);
    OK(cuKernelGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, k, 1);
    IS(49152 - 40000, value);
    BAD(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448 - 39999, k,
        0);
    BAD(cuKernelSetAttribute, CU_FUNC_ATTRIBUTE_NUM_REGS, 8, k, 0);
    OK(cuKernelGetFunction, &f, k);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f);
    IS(100000, value);
    OK(cuLibraryGetModule, &m, l);
    GIVES(CUDA_ERROR_NOT_PERMITTED, cuModuleUnload, m);
    OK(cuLibraryGetGlobal, &p, &bytes, l, "counter");
    OK(cuLibraryGetManaged, &q, &bytes, l, "shared_value");
    GIVES(CUDA_ERROR_NOT_FOUND, cuLibraryGetManaged, &q, &bytes, l, "counter");
    GIVES(CUDA_ERROR_NOT_FOUND, cuLibraryGetUnifiedFunction, (void **)&f, l, "big");
    OK(cuCtxCreate_v2, &second, 0, 0); /* a second context of the device has its own */
    OK(cuLibraryGetModule, &n, l);
    TRUE(n != m);
    OK(cuKernelGetFunction, &g, k);
    TRUE(g != f);
    OK(cuLibraryGetGlobal, &q, NULL, l, "counter");
    TRUE(p != q);
    OK(cuCtxDestroy_v2, second);
    OK(cuLibraryGetModule, &n, l);
    TRUE(n == m);
    BAD(cuLibraryLoadData, &got, NULL, NULL, NULL, 0, NULL, NULL, 0);
    BAD(cuLibraryLoadData, &got, text, NULL, NULL, 0, NULL, NULL, 1);
    GIVES(CUDA_ERROR_FILE_NOT_FOUND, cuLibraryLoadFromFile, &got, "/nonexistent", NULL, NULL, 0,
          NULL, NULL, 0);
    OK(cuLibraryUnload, l);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuLibraryUnload, l);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuKernelGetFunction, &f, k);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel, (CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL,
          NULL);
}

static void linking(void)
{
    static char one[] = ".version 7.0\n.target sm_70\n.extern .global .u32 there;\n"
                        ".visible .entry first() { ret; }\n";
    static char two[] = ".version 7.0\n.target sm_70\n.visible .global .u32 there[5];\n"
                        ".visible .entry second() { ret; }\n";
    static char wrong[] = ".version 7.0\n.entry f(\n";
    static char archive[] = "!<arch>\nrest";
    char log[200];
    CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof(log)}, *image;
    CUlinkState s;
    CUmodule m;
    CUfunction f;
    CUdeviceptr p;
    size_t bytes;

    open_context();
    OK(cuLinkCreate_v2, 2, names, values, &s);
    BAD(cuLinkComplete, s, &image, &bytes); /* of nothing */
    OK(cuLinkAddData_v2, s, CU_JIT_INPUT_PTX, one, sizeof(one), "one", 0, NULL, NULL);
    GIVES(CUDA_ERROR_INVALID_PTX, cuLinkAddData_v2, s, CU_JIT_INPUT_PTX, wrong, sizeof(wrong),
          "wrong", 0, NULL, NULL);
    TRUE(strstr(log, "error") && values[1] == (void *)strlen(log));
    OK(cuLinkAddData_v2, s, CU_JIT_INPUT_PTX, two, sizeof(two) - 1, "two", 0, NULL, NULL);
    OK(cuLinkAddData_v2, s, CU_JIT_INPUT_LIBRARY, archive, sizeof(archive), "a", 0, NULL, NULL);
    GIVES(CUDA_ERROR_INVALID_IMAGE, cuLinkAddData_v2, s, CU_JIT_INPUT_CUBIN, archive,
          sizeof(archive), "c", 0, NULL, NULL);
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cuLinkAddData_v2, s, CU_JIT_INPUT_NVVM, one, sizeof(one), "n",
          0, NULL, NULL);
    GIVES(CUDA_ERROR_FILE_NOT_FOUND, cuLinkAddFile_v2, s, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL,
          NULL);
    OK(cuLinkComplete, s, &image, &bytes);
    BAD(cuLinkAddData_v2, s, CU_JIT_INPUT_PTX, one, sizeof(one), "late", 0, NULL, NULL);
    OK(cuModuleLoadData, &m, image);
    OK(cuLinkDestroy, s);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy, s);
    OK(cuModuleGetFunction, &f, m, "first");
    OK(cuModuleGetFunction, &f, m, "second");
    OK(cuModuleGetGlobal_v2, &p, &bytes, m, "there");
    IS(20, bytes);
}

/* A cubin or fatbin that the test made (tests/integration/cubin_maker.py says of what). */
static void binary(const char *path)
{
    size_t offset, bytes, before;
    CUfunction f;
    CUmodule m;
    CUdeviceptr p;
    int value;

    open_context();
    before = free_now();
    OK(cuModuleLoad, &m, path);
    OK(cuModuleGetFunction, &f, m, "kernel_one");
    OK(cuFuncGetParamInfo, f, 2, &offset, &bytes);
    IS(16, offset);
    IS(24, bytes);
    BAD(cuFuncGetParamInfo, f, 3, &offset, &bytes);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_NUM_REGS, f);
    IS(42, value);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
    IS(2048, value);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f);
    IS(96, value);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, f);
    IS(16, value);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f);
    IS(256, value);
    OK(cuFuncGetAttribute, &value, CU_FUNC_ATTRIBUTE_BINARY_VERSION, f);
    IS(90, value);
    OK(cuModuleGetGlobal_v2, &p, &bytes, m, "counter");
    IS(4, bytes);
    OK(cuMemcpyDtoH_v2, &value, p, 4);
    IS(0x01020304, value);
    OK(cuModuleGetGlobal_v2, &p, &bytes, m, "buffer");
    IS(4000, bytes);
    OK(cuMemcpyDtoH_v2, &value, p + 3996, 4);
    IS(0, value);
    OK(cuModuleGetGlobal_v2, &p, &bytes, m, "coef");
    IS(16, bytes);
    GIVES(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &f, m, "kernel_two");
    OK(cuModuleUnload, m);
    IS(before, free_now());
}

/* ---- functions and launches ---------------------------------------------------------------- */

static size_t shared_of_block(int threads)
{
    return (size_t)threads * 64;
}

static void functions(void)
{
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
    CUlaunchConfig config = {.gridDimX = 8,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 256,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &cluster,
                             .numAttrs = 1};
    CUfunctionLoadingState state;
    const char *name;
    CUfunction f, big;
    CUmodule m, got;
    size_t bytes;
    int n, block;

    open_context();
    OK(cuModuleLoadData, &m, text);
    OK(cuModuleGetFunction, &f, m, "none");
    OK(cuModuleGetFunction, &big, m, "big");
    OK(cuFuncGetModule, &got, f);
    TRUE(got == m);
    OK(cuFuncGetName, &name, f);
    TRUE(strcmp(name, "none") == 0);
    OK(cuFuncIsLoaded, &state, f);
    IS(CU_FUNCTION_LOADING_STATE_UNLOADED, state);
    OK(cuFuncLoad, f);
    OK(cuFuncIsLoaded, &state, f);
    IS(CU_FUNCTION_LOADING_STATE_LOADED, state);
    OK(cuFuncGetAttribute, &n, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, big);
    IS(256, n);
    OK(cuFuncGetAttribute, &n, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, big);
    IS(40000, n);
    OK(cuFuncGetAttribute, &n, CU_FUNC_ATTRIBUTE_PTX_VERSION, big);
    IS(80, n);
    BAD(cuFuncGetAttribute, &n, CU_FUNC_ATTRIBUTE_MAX, f);
    BAD(cuFuncGetAttribute, NULL, 0, f);
    OK(cuFuncSetAttribute, f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
    BAD(cuFuncSetAttribute, f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101);
    OK(cuFuncSetCacheConfig, f, CU_FUNC_CACHE_PREFER_SHARED);
    BAD(cuFuncSetCacheConfig, f, (CUfunc_cache)-1);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, f, 256, 0);
    IS(8, n);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, f, 33, 0);
    IS(32, n);
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, big, 256, 0);
    IS(5, n); /* 233,472 / (40,000 + 1,024, to 128) */
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, big, 512, 0);
    IS(0, n);
    BAD(cuOccupancyMaxActiveBlocksPerMultiprocessor, &n, f, 0, 0);
    BAD(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &n, f, 32, 0, 2);
    OK(cuOccupancyMaxPotentialBlockSize, &n, &block, f, NULL, 0, 0);
    IS(1024, block);
    IS(2 * 132, n);
    OK(cuOccupancyMaxPotentialBlockSize, &n, &block, f, NULL, 0, 100);
    IS(64, block); /* 32 blocks of it fill the SM, 21 of 96 do not */
    OK(cuOccupancyMaxPotentialBlockSize, &n, &block, f, shared_of_block, 0, 0);
    TRUE(block > 0 && (size_t)block * 64 <= 232448);
    OK(cuOccupancyAvailableDynamicSMemPerBlock, &bytes, f, 2, 256);
    IS(233472 / 2 - 1024, bytes);
    BAD(cuOccupancyAvailableDynamicSMemPerBlock, &bytes, f, 9, 256);
    OK(cuOccupancyMaxPotentialClusterSize, &n, f, &config);
    IS(8, n);
    cluster.value.clusterDim.x = 4;
    cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
    OK(cuOccupancyMaxActiveClusters, &n, f, &config);
    IS(8 * (16 * 8 / 4) + 4 * 8 / 4, n);
    cluster.value.clusterDim.x = 16;
    GIVES(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuOccupancyMaxActiveClusters, &n, f, &config);
    OK(cuFuncSetAttribute, f, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    OK(cuOccupancyMaxActiveClusters, &n, f, &config);
    TRUE(n > 0);
}

static void launches(void)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.clusterDim = {3, 1, 1}};
    CUlaunchConfig config = {.gridDimX = 8,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &attribute,
                             .numAttrs = 1};
    struct {
        unsigned int n;
        float a;
        CUdeviceptr x, y;
    } args = {4, 2, 0, 0};
    void *params[] = {&args.n, &args.a, &args.x, &args.y, NULL};
    size_t bytes = sizeof(args);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    CUdeviceptr far;
    CUcontext other;
    CUfunction f, saxpy, big;
    CUstream stream;
    CUmodule m;

    open_context();
    OK(cuModuleLoadData, &m, text);
    OK(cuModuleGetFunction, &f, m, "none");
    OK(cuModuleGetFunction, &saxpy, m, "saxpy");
    OK(cuModuleGetFunction, &big, m, "big");
    OK(cuLaunchKernel, f, 1, 1, 1, 1024, 1, 1, 0, NULL, NULL, NULL);
    BAD(cuLaunchKernel, f, 0, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    BAD(cuLaunchKernel, f, 1, 65536, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    BAD(cuLaunchKernel, f, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL);
    BAD(cuLaunchKernel, f, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL);
    BAD(cuLaunchKernel, f, 1, 1, 1, 0, 1, 1, 0, NULL, NULL, NULL);
    BAD(cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 49153, NULL, NULL, NULL);
    OK(cuFuncSetAttribute, f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448);
    OK(cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 232448, NULL, NULL, NULL);
    GIVES(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, cuLaunchKernel, big, 1, 1, 1, 512, 1, 1, 0, NULL,
          (void *[]){x, x}, NULL);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel, NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, (CUstream)m, NULL,
          NULL);
    OK(cuMemAlloc_v2, &args.x, sizeof(x));
    OK(cuMemAlloc_v2, &args.y, sizeof(y));
    OK(cuMemcpyHtoD_v2, args.x, x, sizeof(x));
    OK(cuMemcpyHtoD_v2, args.y, y, sizeof(y));
    BAD(cuLaunchKernel, saxpy, 1, 1, 1, 32, 1, 1, 0, NULL, params, extra);
    BAD(cuLaunchKernel, saxpy, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
    BAD(cuLaunchKernel, saxpy, 1, 1, 1, 32, 1, 1, 0, NULL, &params[4], NULL);
    OK(cuLaunchKernel, saxpy, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    OK(cuLaunchKernel, saxpy, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra);
    bytes--;
    BAD(cuLaunchKernel, saxpy, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra);
    OK(cuFuncSetBlockShape, saxpy, 32, 1, 1);
    OK(cuParamSeti, saxpy, 0, 4);
    OK(cuParamSetf, saxpy, 4, 10);
    OK(cuParamSetv, saxpy, 8, &args.x, 16);
    BAD(cuParamSetv, saxpy, 4090, &args.x, 16);
    OK(cuParamSetSize, saxpy, 24);
    OK(cuLaunch, saxpy);
    OK(cuLaunchGrid, saxpy, 1, 1);
    BAD(cuLaunchGrid, saxpy, 0, 1);
    OK(cuStreamCreate, &stream, CU_STREAM_DEFAULT);
    OK(cuLaunchGridAsync, saxpy, 1, 1, stream);
    OK(cuMemcpyDtoH_v2, y, args.y, sizeof(y));
    TRUE(y[0] == 34 && y[3] == 136);
    OK(cuLaunchCooperativeKernel, f, 132 * 64 / 32, 1, 1, 1024, 1, 1, 0, stream, NULL);
    GIVES(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel, f, 132 * 2 + 1, 1, 1,
          1024, 1, 1, 0, stream, NULL);
    GIVES(CUDA_ERROR_INVALID_CLUSTER_SIZE, cuLaunchKernelEx, &config, f, NULL, NULL);
    attribute.value.clusterDim.x = 4;
    OK(cuLaunchKernelEx, &config, f, NULL, NULL);
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    config.gridDimX = 132 * 32 + 1;
    GIVES(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchKernelEx, &config, f, NULL, NULL);
    attribute.id = (CUlaunchAttributeID)99;
    BAD(cuLaunchKernelEx, &config, f, NULL, NULL);
    BAD(cuLaunchKernelEx, NULL, f, NULL, NULL);
    OK(cuCtxCreate_v2, &other, 0, 1);
    OK(cuMemAlloc_v2, &far, 16);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    OK(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL); /* the stream's own context */
    OK(cuStreamSynchronize, stream);
}

static void together(void)
{
    CUcontext second;
    CUDA_LAUNCH_PARAMS list[2] = {{.gridDimX = 4,
                                   .gridDimY = 1,
                                   .gridDimZ = 1,
                                   .blockDimX = 32,
                                   .blockDimY = 1,
                                   .blockDimZ = 1}};
    CUmodule m;

    open_context();
    list[1] = list[0];
    OK(cuModuleLoadData, &m, text);
    OK(cuModuleGetFunction, &list[0].function, m, "none");
    OK(cuStreamCreate, &list[0].hStream, CU_STREAM_NON_BLOCKING);
    OK(cuCtxCreate_v2, &second, 0, 1);
    OK(cuModuleLoadData, &m, text);
    OK(cuModuleGetFunction, &list[1].function, m, "none");
    BAD(cuLaunchCooperativeKernelMultiDevice, list, 2, 0); /* the second has no stream */
    OK(cuStreamCreate, &list[1].hStream, CU_STREAM_NON_BLOCKING);
    OK(cuLaunchCooperativeKernelMultiDevice, list, 2, 0);
    BAD(cuLaunchCooperativeKernelMultiDevice, list, 3, 0);
    list[1].gridDimX = 5;
    BAD(cuLaunchCooperativeKernelMultiDevice, list, 2, 0);
    OK(cuStreamSynchronize, list[0].hStream);
    OK(cuStreamSynchronize, list[1].hStream);
}

/* ---- a program that makes and destroys for days --------------------------------------------- */

static void make_and_destroy(CUstream stream, CUfunction f, CUarray array)
{
    CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY, .res.array.hArray = array};
    CUDA_ARRAY_DESCRIPTOR shape = {16, 16, CU_AD_FORMAT_FLOAT, 1};
    CUDA_TEXTURE_DESC texture = {0};
    CUtexObject object;
    CUarray other;
    CUstream s;
    CUevent e;
    CUgraph graph;
    CUgraphExec exec;

    OK(cuEventCreate, &e, 0);
    OK(cuEventRecord, e, stream);
    OK(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING);
    OK(cuStreamWaitEvent, s, e, 0);
    OK(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    OK(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    OK(cuStreamEndCapture, stream, &graph);
    OK(cuGraphInstantiateWithFlags, &exec, graph, 0);
    OK(cuGraphLaunch, exec, stream);
    OK(cuArrayCreate_v2, &other, &shape);
    OK(cuTexObjectCreate, &object, &resource, &texture, NULL);
    OK(cuTexObjectDestroy, object);
    OK(cuArrayDestroy, other);
    OK(cuStreamDestroy_v2, s);
    OK(cuEventDestroy_v2, e);
    OK(cuGraphExecDestroy, exec);
    OK(cuGraphDestroy, graph);
    OK(cuStreamSynchronize, stream);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuEventQuery, e);
    GIVES(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery, s);
    BAD(cuGraphLaunch, exec, stream);
    BAD(cuGraphDestroy, graph);
}

static void growth(void)
{
    CUDA_ARRAY_DESCRIPTOR shape = {16, 16, CU_AD_FORMAT_FLOAT, 1};
    CUstream stream;
    CUfunction f;
    CUarray array;
    CUmodule m;
    size_t before = 0;

    open_context();
    OK(cuModuleLoadData, &m, text);
    OK(cuModuleGetFunction, &f, m, "none");
    OK(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    OK(cuArrayCreate_v2, &array, &shape);
    for (int i = 0; i < 4000; i++) {
        if (i == 2000)
            before = mallinfo2().uordblks;
        make_and_destroy(stream, f, array);
    }
    TRUE(mallinfo2().uordblks < before + (64u << 10));
}

static const struct check_group groups[] = {
    {"contexts", contexts},   {"primary", primary},     {"limits", limits},
    {"green", green},         {"streams", streams},     {"threads", threads},
    {"modules", modules},     {"libraries", libraries}, {"linking", linking},
    {"functions", functions}, {"launches", launches},   {"together", together},
    {"growth", growth},
};

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "binary") == 0) {
        binary(argv[2]);
        printf("ok %u\n", check_count);
        return 0;
    }
    if (argc == 2 && check_run(groups, sizeof(groups) / sizeof(groups[0]), argv[1]))
        return 0;
    fprintf(stderr, "usage: sim-program GROUP | binary FILE\n");
    return 2;
}
