/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses the GPU on command, for test_vgpu.py: one line in, one line out. The first
 * argument says by which door it comes to the driver: linked, dlsym, procaddr, next (RTLD_NEXT from
 * a library of its own) or deepbind (a plugin). It knows nothing of libvgpu.so.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aliquot/cuda_abi.h"
#include "aliquot/nvml_abi.h"

#define MAX 4096

static const char *door;
static void *cuda, *nvml, *helper;

static void *find_raw(void *handle, const char *name)
{
    return dlsym(handle, name);
}

static void *lookup(const char *name)
{
    typedef void *finder(const char *);
    if (!strcmp(door, "linked"))
        return dlsym(RTLD_DEFAULT, name); /* only for what the program does not name itself */
    if (!strcmp(door, "next") || !strcmp(door, "deepbind"))
        return ((finder *)find_raw(helper, "helper_find"))(name);
    if (!strcmp(door, "procaddr")) {
        static __typeof__(cuGetProcAddress_v2) *get;
        CUdriverProcAddressQueryResult status;
        void *address = NULL;
        char base[64];
        if (!get)
            get = find_raw(cuda, "cuGetProcAddress_v2");
        snprintf(base, sizeof(base), "%s", name);
        char *suffix = strstr(base, "_v2");
        if (suffix && strncmp(name, "cuGetProc", 9))
            *suffix = '\0';
        /* 11030: the version whose forms the client calls by (cuCtxCreate is _v2, cuMemAllocAsync
         * exists). */
        if (get(base, &address, 11030, 0, &status) != CUDA_SUCCESS)
            return NULL;
        return address;
    }
    return find_raw(cuda, name);
}

#define CU(name) ((__typeof__(name) *)lookup(#name))
#define NV(name) ((__typeof__(name) *)find_raw(nvml, #name))

static CUdeviceptr pointers[MAX];
static CUcontext contexts[64];
static int pointer_count, context_count;

/* Direct calls, so that the linker binds them. */
#ifdef LINKED
#define ALLOC(p, n) cuMemAlloc_v2(p, n)
#define FREE(p) cuMemFree_v2(p)
#else
#define ALLOC(p, n) CU(cuMemAlloc_v2)(p, n)
#define FREE(p) CU(cuMemFree_v2)(p)
#endif

static CUfunction load_busy(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                              ".visible .entry busy_us(.param .u64 us)\n{\nret;\n}\n";
    CUmodule module;
    CUfunction function = NULL;
    if (CU(cuModuleLoadData)(&module, ptx) == CUDA_SUCCESS)
        CU(cuModuleGetFunction)(&function, module, "busy_us");
    return function;
}

/* Bisects for the largest sum that can be had, in ever smaller pieces. */
static uint64_t bisect(void)
{
    uint64_t sum = 0;
    for (uint64_t size = 1ull << 40; size; size /= 2) {
        CUdeviceptr p;
        while (pointer_count < MAX && ALLOC(&p, size) == CUDA_SUCCESS) {
            pointers[pointer_count++] = p;
            sum += size;
        }
    }
    return sum;
}

static void report(const char *what, int rc, uint64_t a, uint64_t b)
{
    printf("%s %d %" PRIu64 " %" PRIu64 "\n", what, rc, a, b);
}

static void *churn(void *data)
{
    CUdeviceptr live[16] = {0};
    uint32_t seed = (uint32_t)(uintptr_t)data;
    __typeof__(cuMemAlloc_v2) *alloc = CU(cuMemAlloc_v2);
    __typeof__(cuMemFree_v2) *release = CU(cuMemFree_v2);
    if (CU(cuCtxSetCurrent)(contexts[0]) != CUDA_SUCCESS)
        return data;
    for (int i = 0; i < 5000; i++) {
        seed = seed * 1664525u + 1013904223u;
        CUdeviceptr *at = &live[seed >> 28];
        if (*at && release(*at) != CUDA_SUCCESS)
            return data;
        *at = 0;
        int rc = (int)alloc(at, 1 + (seed >> 4));
        if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_OUT_OF_MEMORY)
            return data;
    }
    for (int i = 0; i < 16; i++)
        if (live[i] && release(live[i]) != CUDA_SUCCESS)
            return data;
    return NULL;
}

/* Threads that allocate and free at the limit; the number of those that got an unexpected answer.
 */
static uint64_t threads(uint64_t count)
{
    pthread_t all[64];
    uint64_t failed = 0;
    for (uint64_t i = 0; i < count; i++)
        pthread_create(&all[i], NULL, churn, (void *)(uintptr_t)(i + 1));
    for (uint64_t i = 0; i < count; i++) {
        void *bad;
        pthread_join(all[i], &bad);
        failed += bad != NULL;
    }
    return failed;
}

static nvmlDevice_t nvml_device(unsigned index)
{
    nvmlDevice_t device = NULL;
    NV(nvmlDeviceGetHandleByIndex_v2)(index, &device);
    return device;
}

static void command(char *line)
{
    char word[64] = "";
    uint64_t a = 0, b = 0;
    size_t x = 0, y = 0;
    CUdeviceptr p = 0x1234567;
    sscanf(line, "%63s %" SCNu64 " %" SCNu64, word, &a, &b);
#define IS(w) (!strcmp(word, w))
    if (IS("init")) {
#ifdef LINKED
        report(word, cuInit(0), 0, 0);
#else
        report(word, CU(cuInit)(0), 0, 0);
#endif
    } else if (IS("count")) {
        int n = 0, rc = CU(cuDeviceGetCount)(&n);
        report(word, rc, (uint64_t)n, 0);
    } else if (IS("sync")) {
        report(word, (int)CU(cuCtxSynchronize)(), 0, 0);
    } else if (IS("ctx")) {
        int rc = CU(cuCtxCreate_v2)(&contexts[context_count], 0, (CUdevice)a);
        report(word, rc, (uint64_t)(rc ? context_count : context_count++), 0);
    } else if (IS("ctx-destroy")) {
        report(word, CU(cuCtxDestroy_v2)(contexts[a]), 0, 0);
    } else if (IS("set")) {
        report(word, CU(cuCtxSetCurrent)(contexts[a]), 0, 0);
    } else if (IS("retain")) {
        CUcontext ctx = NULL;
        int rc = CU(cuDevicePrimaryCtxRetain)(&ctx, (CUdevice)a);
        if (rc == 0)
            rc = CU(cuCtxSetCurrent)(ctx);
        report(word, rc, 0, 0);
    } else if (IS("release")) {
        report(word, CU(cuDevicePrimaryCtxRelease_v2)((CUdevice)a), 0, 0);
    } else if (IS("reset")) {
        report(word, CU(cuDevicePrimaryCtxReset_v2)((CUdevice)a), 0, 0);
    } else if (IS("alloc") || IS("managed") || IS("async")) {
        int rc = IS("alloc")     ? (int)ALLOC(&p, a)
                 : IS("managed") ? (int)CU(cuMemAllocManaged)(&p, a, 1)
                                 : (int)CU(cuMemAllocAsync)(&p, a, NULL);
        if (rc && p != 0x1234567)
            rc = 9999; /* an output was touched by a refusal */
        if (!rc)
            pointers[pointer_count] = p;
        report(word, rc, (uint64_t)(rc ? pointer_count : pointer_count++), 0);
    } else if (IS("pitch")) {
        size_t pitch = 77;
        int rc = CU(cuMemAllocPitch_v2)(&p, &pitch, a, b, 4);
        if (!rc)
            pointers[pointer_count] = p;
        report(word, rc, (uint64_t)(rc ? pointer_count : pointer_count++), pitch);
    } else if (IS("free")) {
        report(word, FREE(pointers[a]), 0, 0);
    } else if (IS("free-async")) {
        report(word, CU(cuMemFreeAsync)(pointers[a], NULL), 0, 0);
    } else if (IS("free-unknown")) {
        report(word, FREE(a), 0, 0);
    } else if (IS("bisect")) {
        report(word, 0, bisect(), 0);
    } else if (IS("threads")) {
        report(word, (int)threads(a), 0, 0);
    } else if (IS("vmm")) { /* create, map, release: the mapping keeps the memory */
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .location = {CU_MEM_LOCATION_TYPE_DEVICE, (int)b}};
        CUmemGenericAllocationHandle handle;
        int rc = CU(cuMemCreate)(&handle, a, &prop, 0);
        if (rc == 0)
            rc = CU(cuMemAddressReserve)(&p, a, 0, 0, 0);
        if (rc == 0)
            rc = CU(cuMemMap)(p, a, 0, handle, 0);
        if (rc == 0)
            rc = CU(cuMemRelease)(handle);
        if (!rc)
            pointers[pointer_count] = p;
        report(word, rc, (uint64_t)(rc ? pointer_count : pointer_count++), 0);
    } else if (IS("unmap")) {
        report(word, CU(cuMemUnmap)(pointers[a], b), 0, 0);
    } else if (IS("module")) {
        static CUmodule modules[16];
        static int count;
        static const char ptx[] =
            ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
        int rc = CU(cuModuleLoadData)(&modules[count], ptx);
        report(word, rc, (uint64_t)count++, 0);
    } else if (IS("array")) {
        CUDA_ARRAY_DESCRIPTOR desc = {
            .Width = a, .Height = b, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
        CUarray array = NULL;
        int rc = CU(cuArrayCreate_v2)(&array, &desc);
        pointers[pointer_count] = (CUdeviceptr)(uintptr_t)array;
        report(word, rc, (uint64_t)(rc ? pointer_count : pointer_count++), 0);
    } else if (IS("array-destroy")) {
        report(word, CU(cuArrayDestroy)((CUarray)(uintptr_t)pointers[a]), 0, 0);
    } else if (IS("info")) {
        int rc = CU(cuMemGetInfo_v2)(&x, &y);
        report(word, rc, x, y);
    } else if (IS("info-total-only")) {
        int rc = CU(cuMemGetInfo_v2)(NULL, &y);
        report(word, rc, 0, y);
    } else if (IS("total")) {
        int rc = CU(cuDeviceTotalMem_v2)(&x, (CUdevice)a);
        report(word, rc, x, 0);
    } else if (IS("uuid")) {
        CUuuid uuid;
        int rc = CU(cuDeviceGetUuid)(&uuid, (CUdevice)a);
        printf("%s %d ", word, rc);
        for (int i = 0; i < 16; i++)
            printf("%02x", (unsigned char)uuid.bytes[i]);
        printf("\n");
    } else if (IS("nvml-init")) {
        nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        report(word, nvml ? (int)NV(nvmlInit_v2)() : -1, 0, 0);
    } else if (IS("nvml1")) {
        nvmlMemory_t m = {0};
        int rc = (int)NV(nvmlDeviceGetMemoryInfo)(nvml_device((unsigned)a), &m);
        printf("%s %d %llu %llu %llu\n", word, rc, m.total, m.free, m.used);
    } else if (IS("nvml2")) {
        nvmlMemory_v2_t m = {.version = nvmlMemory_v2};
        int rc = (int)NV(nvmlDeviceGetMemoryInfo_v2)(nvml_device((unsigned)a), &m);
        printf("%s %d %llu %llu %llu %llu\n", word, rc, m.total, m.free, m.used, m.reserved);
    } else if (IS("nvml-processes")) {
        nvmlProcessInfo_v2_t list[64];
        unsigned n = 64;
        int rc =
            (int)NV(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_device((unsigned)a), &n, list);
        printf("%s %d %u", word, rc, n);
        for (unsigned i = 0; rc == 0 && i < n; i++)
            printf(" %u:%llu", list[i].pid, list[i].usedGpuMemory);
        printf("\n");
    } else if (IS("busy")) { /* a launches of b microseconds each, then waits for them */
        CUfunction busy = load_busy();
        void *params[] = {&b};
        int rc = busy ? 0 : -1;
        for (uint64_t i = 0; i < a && rc == 0; i++)
            rc = CU(cuLaunchKernel)(busy, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
        if (rc == 0)
            rc = CU(cuCtxSynchronize)();
        report(word, rc, 0, 0);
    } else if (IS("fork")) { /* a child's first call, and what it and its parent hold */
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            int rc = CU(cuInit)(0);
            _exit(rc & 127);
        }
        int status = 0;
        waitpid(child, &status, 0);
        report(word, WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), 0, 0);
    } else if (IS("has")) { /* has NAME: what the driver offers */
        char name[64] = "";
        sscanf(line, "%*s %63s", name);
        report(word, 0, lookup(name) != NULL, 0);
    } else {
        printf("unknown %s\n", word);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char line[256];
    door = argc > 1 ? argv[1] : "dlsym";
    if (!strcmp(door, "next"))
        helper = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
    else if (!strcmp(door, "deepbind"))
        helper = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    else if (strcmp(door, "linked"))
        cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda && !helper && strcmp(door, "linked")) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    printf("ready %d\n", getpid());
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin))
        command(line);
    return 0;
}
