/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program under a filter of system calls, for test_surroundings.py.
 *   surroundings_client strict        all but a plain program's calls kill; then it is a plain
 * program surroundings_client CALL:ERRNO... these fail so; then it initialises CUDA and asks for 2
 * GiB
 */
#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "aliquot/cuda_abi.h"

#define F_OFD_GETLK_ 36
#define F_OFD_SETLK_ 37
#define MAX 256

static struct sock_filter program[MAX];
static unsigned short length;

static void add(unsigned code, unsigned k, unsigned yes, unsigned no)
{
    program[length++] =
        (struct sock_filter){(unsigned short)code, (unsigned char)yes, (unsigned char)no, k};
}

static void load_number(void)
{
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
}

static void answer_to(long call, unsigned answer)
{
    add(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1);
    add(BPF_RET | BPF_K, answer, 0, 0);
}

static int enforce(void)
{
    struct sock_fprog filter = {length, program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* The call is refused with this argument alone. */
static void answer_to_argument(long call, unsigned argument, unsigned value, unsigned answer)
{
    add(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 4);
    add(BPF_LD | BPF_W | BPF_ABS,
        (unsigned)(offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t)), 0, 0);
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    add(BPF_RET | BPF_K, answer, 0, 0);
    load_number();
}

static int strict(void)
{
    static const long plain[] = {SYS_read,  SYS_write,      SYS_openat,    SYS_close,
                                 SYS_fstat, SYS_mmap,       SYS_mprotect,  SYS_munmap,
                                 SYS_brk,   SYS_newfstatat, SYS_futex,     SYS_pread64,
                                 SYS_lseek, SYS_getrandom,  SYS_exit_group};
    load_number();
    for (unsigned i = 0; i < sizeof(plain) / sizeof(*plain); i++)
        answer_to(plain[i], SECCOMP_RET_ALLOW);
    add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    if (enforce())
        return 77;
    void *libm = dlopen("libm.so.6", RTLD_NOW);
    double (*root)(double) = libm ? (double (*)(double))dlsym(libm, "sqrt") : NULL;
    printf("strict %d %d\n", root ? (int)root(49) : 0, dlsym(libm, "curl_easy_init") == NULL);
    return 0;
}

static int with_cuda(int count, char **calls)
{
    static const struct {
        const char *name;
        long call;
    } known[] = {{"membarrier", SYS_membarrier},
                 {"fallocate", SYS_fallocate},
                 {"readlinkat", SYS_readlinkat},
                 {"clock_gettime", SYS_clock_gettime}};
    CUcontext context;
    CUdeviceptr p;

    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    load_number();
    for (int i = 0; i < count; i++) {
        char *colon = strchr(calls[i], ':');
        unsigned answer = SECCOMP_RET_ERRNO | (unsigned)atoi(colon + 1);
        *colon = '\0';
        if (!strcmp(calls[i], "ofd")) {
            answer_to_argument(SYS_fcntl, 1, F_OFD_GETLK_, answer);
            answer_to_argument(SYS_fcntl, 1, F_OFD_SETLK_, answer);
        }
        if (!strcmp(calls[i], "wipeonfork"))
            answer_to_argument(SYS_madvise, 2, MADV_WIPEONFORK, answer);
        for (unsigned n = 0; n < sizeof(known) / sizeof(*known); n++)
            if (!strcmp(calls[i], known[n].name))
                answer_to(known[n].call, answer);
    }
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    if (enforce())
        return 77;
#define FIND(name) ((__typeof__(name) *)dlsym(cuda, #name))
    int rc = (int)FIND(cuInit)(0);
    if (rc == 0)
        rc = (int)FIND(cuCtxCreate_v2)(&context, 0, 0);
    printf("cuda %d", rc);
    printf(" %d\n", rc ? -1 : (int)FIND(cuMemAlloc_v2)(&p, (size_t)2 << 30));
    return 0;
}

int main(int argc, char **argv)
{
    return argc > 1 && !strcmp(argv[1], "strict") ? strict() : with_cuda(argc - 1, argv + 1);
}
