/* SPDX-License-Identifier: Apache-2.0 */
/* A library linked with libcuda that finds driver functions for vgpu_client.c: by RTLD_NEXT, or by
 * its own linkage. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "aliquot/cuda_abi.h"

void *helper_find(const char *name);

void *helper_find(const char *name)
{
#ifdef BY_LINKAGE
    /* What the dynamic linker bound for this object, as a plugin calls it. */
    if (!strcmp(name, "cuMemAlloc_v2"))
        return (void *)cuMemAlloc_v2;
    if (!strcmp(name, "cuMemFree_v2"))
        return (void *)cuMemFree_v2;
    if (!strcmp(name, "cuInit"))
        return (void *)cuInit;
    return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);
#else
    return dlsym(RTLD_NEXT, name);
#endif
}
