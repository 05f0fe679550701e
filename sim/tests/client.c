/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA program for the simulator's tests: does one thing named on the command line and reports in
 * lines on stdout. Loads libcuda.so.1 by its SONAME, as real programs do. Exit status 0 when all
 * went as it should, 1 with the failed call otherwise, 2 for bad usage.
 *
 *   hold BYTES          allocate, print "held", wait for the end of stdin, leave without freeing
 *   churn SECONDS SEED  allocate and free in random sizes and order until told to stop (or killed)
 *   spin SECONDS US     launch kernels of US microseconds, waiting for each tenth
 *   queue COUNT US      launch COUNT kernels, print "queued", wait for the end of stdin
 *   fork                what a child sees after the parent's cuInit
 *   fork-hold BYTES     allocate, fork a child that prints "child" and waits for stdin, exit at
 * once lookup              answers (name version flags) on stdin as cuGetProcAddress_v2 does
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aliquot/cuda_abi.h"

#define LIVE_MAX 4096

static void *library;

#define CALL(function, ...)                                                                        \
    do {                                                                                           \
        __typeof__(function) *call_ = (__typeof__(function) *)dlsym(library, #function);           \
        CUresult result_ = call_ ? call_(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND;                      \
        if (result_ != CUDA_SUCCESS) {                                                             \
            printf("%s %d\n", #function, (int)result_);                                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static const char module_text[] = ".version 8.0\n"
                                  ".target sm_50\n"
                                  ".address_size 64\n"
                                  ".visible .entry busy_us(.param .u64 us) { ret; }\n";

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void say(const char *text)
{
    puts(text);
    fflush(stdout);
}

static void wait_for_stdin(void)
{
    char byte;

    while (read(0, &byte, 1) > 0)
        ;
}

static void make_context(void)
{
    CUcontext context;

    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
}

static int hold(size_t bytes)
{
    CUdeviceptr p;

    make_context();
    CALL(cuMemAlloc_v2, &p, bytes);
    say("held");
    wait_for_stdin();
    return 0;
}

static int churn(double seconds, unsigned int seed)
{
    __typeof__(cuMemAlloc_v2) *alloc = (__typeof__(alloc))dlsym(library, "cuMemAlloc_v2");
    __typeof__(cuMemFree_v2) *release = (__typeof__(release))dlsym(library, "cuMemFree_v2");
    static CUdeviceptr live[LIVE_MAX];
    uint64_t end;
    size_t done = 0;

    make_context();
    end = now_ns() + (uint64_t)(seconds * 1e9);
    say("churning");
    while (now_ns() < end) {
        for (int i = 0; i < 1000; i++, done++) {
            size_t at = (seed = seed * 1103515245u + 12345u) / 65536 % LIVE_MAX;

            if (live[at]) {
                if (release(live[at]) != CUDA_SUCCESS)
                    return 1;
                live[at] = 0;
            } else if (alloc(&live[at], 1 + seed % (1u << (9 + seed / 256 % 14))) != CUDA_SUCCESS) {
                live[at] = 0; /* the device may well be full */
            }
        }
    }
    printf("%zu\n", done);
    return 0;
}

static CUfunction busy_function(void)
{
    CUmodule module;
    CUfunction function;

    CALL(cuModuleLoadData, &module, module_text);
    CALL(cuModuleGetFunction, &function, module, "busy_us");
    return function;
}

static int spin(double seconds, uint64_t us)
{
    void *params[] = {&us};
    CUfunction function;
    uint64_t end;
    int i = 0;

    make_context();
    function = busy_function();
    say("spinning");
    end = now_ns() + (uint64_t)(seconds * 1e9);
    while (now_ns() < end) {
        CALL(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
        if (++i % 10 == 0)
            CALL(cuCtxSynchronize);
    }
    CALL(cuCtxSynchronize);
    printf("%d\n", i);
    return 0;
}

static int queue(int count, uint64_t us)
{
    void *params[] = {&us};
    CUfunction function;

    make_context();
    function = busy_function();
    for (int i = 0; i < count; i++)
        CALL(cuLaunchKernel, function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
    say("queued");
    wait_for_stdin();
    return 0;
}

static int fork_errors(void)
{
    __typeof__(cuInit) *init = (__typeof__(init))dlsym(library, "cuInit");
    __typeof__(cuDeviceGetCount) *get_count =
        (__typeof__(get_count))dlsym(library, "cuDeviceGetCount");
    int count, status;
    pid_t child;

    CALL(cuInit, 0);
    child = fork();
    if (child == 0) {
        printf("child %d %d\n", (int)init(0), (int)get_count(&count));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
    printf("parent %d\n", (int)get_count(&count));
    return 0;
}

static int fork_hold(size_t bytes)
{
    CUdeviceptr p;

    make_context();
    CALL(cuMemAlloc_v2, &p, bytes);
    if (fork() == 0) {
        say("child");
        wait_for_stdin();
    }
    _exit(0);
}

static int lookup(void)
{
    __typeof__(cuGetProcAddress_v2) *get = (__typeof__(get))dlsym(library, "cuGetProcAddress_v2");
    char name[256];
    int version;
    unsigned int flags;

    while (scanf("%255s %d %u", name, &version, &flags) == 3) {
        CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
        void *found = NULL;
        CUresult rc = get(name, &found, version, flags, &status);
        Dl_info info = {0};

        if (found)
            dladdr(found, &info);
        printf("%s %d %u %d %d %s\n", name, version, flags, (int)rc, (int)status,
               info.dli_sname ? info.dli_sname : "-");
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (strcmp(what, "hold") == 0 && argc == 3)
        return hold(strtoull(argv[2], NULL, 0));
    if (strcmp(what, "churn") == 0 && argc == 4)
        return churn(atof(argv[2]), (unsigned int)atoi(argv[3]));
    if (strcmp(what, "spin") == 0 && argc == 4)
        return spin(atof(argv[2]), strtoull(argv[3], NULL, 0));
    if (strcmp(what, "queue") == 0 && argc == 4)
        return queue(atoi(argv[2]), strtoull(argv[3], NULL, 0));
    if (strcmp(what, "fork") == 0)
        return fork_errors();
    if (strcmp(what, "fork-hold") == 0 && argc == 3)
        return fork_hold(strtoull(argv[2], NULL, 0));
    if (strcmp(what, "lookup") == 0)
        return lookup();
    fprintf(stderr, "usage: sim-client hold|churn|spin|queue|fork|fork-hold|lookup ...\n");
    return 2;
}
