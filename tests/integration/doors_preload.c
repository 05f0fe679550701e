/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other people's preloads, for test_doors.py. WRAPS: a tool that wraps two driver functions and
 * leads on by RTLD_NEXT or the driver's handle; DLSYM: a tool that wraps dlsym in C; VIEW: one of
 * two libraries that define the same function; NAMES: functions whose names begin as the driver's
 * do.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "aliquot/cuda_abi.h"

#ifdef WRAPS
static void *next(const char *name)
{
    void *address = dlsym(RTLD_NEXT, name);
    return address ? address : dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    CUresult result = ((__typeof__(cuMemAlloc_v2) *)next("cuMemAlloc_v2"))(out, bytes);
    fprintf(stderr, "wrapped\n");
    return result;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    CUresult result = ((__typeof__(cuGetProcAddress_v2) *)next("cuGetProcAddress_v2"))(
        symbol, pfn, version, flags, status);
    if (result == CUDA_SUCCESS && !strcmp(symbol, "cuMemAlloc"))
        *pfn = (void *)cuMemAlloc_v2;
    return result;
}
#endif

#ifdef DLSYM
void *dlsym(void *handle, const char *name)
{
    static void *(*real)(void *, const char *);
    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(handle, name);
}
#endif

#ifdef VIEW
const char *cuView(void); /* a driver-like name */
typedef const char *name_fn(void);
name_fn *FINDER(int is_next);

const char *cuView(void)
{
    return VIEW;
}

name_fn *FINDER(int is_next)
{
    return (name_fn *)dlsym(is_next ? RTLD_NEXT : RTLD_DEFAULT, "cuView");
}
#endif

#ifdef NAMES
#define NAME(n)                                                                                    \
    const char *n(void);                                                                           \
    const char *n(void)                                                                            \
    {                                                                                              \
        return #n;                                                                                 \
    }
NAME(curl_easy)
NAME(cufft)
NAME(cu)
NAME(c)
NAME(cu_thing)
NAME(nvm)
NAME(nvmlx)
#endif
