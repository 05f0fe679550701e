/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library that comes to the driver in one way of many, for test_doors.py; BY says which. try_it
 * allocates twice a share's bytes and returns the driver's answer.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "aliquot/cuda_abi.h"

#define LINK 1      /* its own linkage; lazy where libcuda is not among what it needs */
#define OPEN 2      /* dlopen of DRIVER, dlsym of its handle */
#define NEXT 3      /* dlsym(RTLD_NEXT) */
#define DEFAULT 4   /* dlsym(RTLD_DEFAULT), libcuda opened globally */
#define PROCADDR 5  /* cuGetProcAddress of a handle */
#define VERSIONED 6 /* dlvsym, dlsym where the driver has no versions */
#define ISOLATED 7  /* dlmopen into a namespace of its own */
#define DEEPER 8    /* the next plugin, NEXT_PLUGIN, RTLD_LOCAL */

#ifndef DRIVER
#define DRIVER "libcuda.so.1"
#endif
#define GIB ((size_t)1 << 30)

int try_it(void);
int InitializeInjection(void);

#if BY == LINK
#define FIND(name) name
#else
#define FIND(name) ((__typeof__(name) *)find(#name))
static void *find(const char *name)
{
#if BY == OPEN
    return dlsym(dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL), name);
#elif BY == NEXT
    return dlsym(RTLD_NEXT, name);
#elif BY == DEFAULT
    dlopen(DRIVER, RTLD_NOW | RTLD_GLOBAL);
    return dlsym(RTLD_DEFAULT, name);
#elif BY == VERSIONED
    void *handle = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    void *address = dlvsym(handle, name, "NO_SUCH_VERSION");
    return address ? address : dlsym(handle, name);
#elif BY == ISOLATED
    static void *handle;
    if (!handle)
        handle = dlmopen(LM_ID_NEWLM, DRIVER, RTLD_NOW | RTLD_LOCAL);
    return handle ? dlsym(handle, name) : NULL;
#elif BY == PROCADDR
    void *address = NULL;
    __typeof__(cuGetProcAddress_v2) *get = (__typeof__(cuGetProcAddress_v2) *)dlsym(
        dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL), "cuGetProcAddress_v2");
    char base[64];
    int n = 0;
    for (; name[n] && n < 63 && !(name[n] == '_' && name[n + 1] == 'v'); n++)
        base[n] = name[n];
    base[n] = '\0';
    get(base, &address, 11030, 0, NULL);
    return address;
#else
    return NULL;
#endif
}
#endif

int try_it(void)
{
#if BY == DEEPER
    void *handle = dlopen(NEXT_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    int (*next)(void) = handle ? (int (*)(void))dlsym(handle, "try_it") : NULL;
    return next ? next() : -3;
#else
    CUcontext context;
    CUdeviceptr p;
    if (!FIND(cuInit))
        return -1;
    if (FIND(cuInit)(0) != CUDA_SUCCESS || FIND(cuCtxCreate_v2)(&context, 0, 0) != CUDA_SUCCESS)
        return -2;
    return (int)FIND(cuMemAlloc_v2)(&p, 2 * GIB);
#endif
}

/* As a tool: what it gets of the driver from inside a call of the program it has been put into. */
static void report(const char *tool)
{
    printf("%s %d\n", tool, try_it());
    fflush(stdout);
}

/* A profiler that the driver loads in cuInit, by CUDA_INJECTION64_PATH. */
int InitializeInjection(void)
{
    report("profiler");
    return 1;
}

/* A tool that the NVTX header in a program loads at the first range, by NVTX_INJECTION64_PATH. It
 * puts its functions into the tables that the header shows it. */
static int push(const char *name)
{
    report(name);
    return 0;
}

typedef int push_fn(const char *);

int InitializeInjectionNvtx2(push_fn **(*table)(unsigned id))
{
    *table(1) = push;
    return 1;
}
