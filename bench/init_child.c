/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The measured program of bench_init.c. "init": loads the driver as the CUDA runtime does, by
 * dlopen and dlsym, and calls cuInit. "rss": then makes a context and ten allocations, and prints
 * the resident memory of the process in KiB.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aliquot/cuda_abi.h"

static void need(int is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "init_child: %s\n", what);
    exit(1);
}

static long rss_kib(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    need(f && fscanf(f, "%*d %ld", &pages) == 1, "/proc/self/statm");
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE) / 1024;
}

int main(int argc, char **argv)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    need(driver != NULL, "libcuda.so.1");
#define SYMBOL(name) __typeof__(name) *name##_at = (__typeof__(name) *)dlsym(driver, #name)
    SYMBOL(cuInit);
    SYMBOL(cuDevicePrimaryCtxRetain);
    SYMBOL(cuCtxSetCurrent);
    SYMBOL(cuMemAlloc_v2);
    need(cuInit_at && cuInit_at(0) == CUDA_SUCCESS, "cuInit");
    if (argc < 2 || strcmp(argv[1], "rss") != 0)
        return 0;
    CUcontext context;
    CUdeviceptr ptr;
    need(cuDevicePrimaryCtxRetain_at(&context, 0) == CUDA_SUCCESS &&
             cuCtxSetCurrent_at(context) == CUDA_SUCCESS,
         "a context");
    for (int i = 0; i < 10; i++)
        need(cuMemAlloc_v2_at(&ptr, 1 << 20) == CUDA_SUCCESS, "cuMemAlloc");
    printf("%ld\n", rss_kib());
    return 0;
}
