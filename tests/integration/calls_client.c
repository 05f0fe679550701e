/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who makes system calls while a program launches kernels: `calls_client LAUNCHES US PACE_NS` runs
 * itself under ptrace, launches so many kernels of US microseconds, one every PACE_NS (it spins, by
 * the vDSO's clock), and prints "library A driver B": calls made from inside libvgpu.so and those
 * from elsewhere, between the two getppid that stand around the launches.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/ptrace.h>

#include "aliquot/cuda_abi.h"

static const char ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                          ".visible .entry busy_us(.param .u64 us)\n{\nret;\n}\n";

static void need(int is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "calls_client: %s failed\n", what);
    exit(1);
}
#define NEED_CUDA(call) need((call) == CUDA_SUCCESS, #call)

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void launch_all(uint64_t count, uint64_t us, uint64_t pace_ns)
{
    CUcontext context;
    CUmodule module;
    CUfunction function;
    void *params[] = {&us};
    const uint64_t before = count / 10;

    NEED_CUDA(cuInit(0));
    NEED_CUDA(cuCtxCreate_v2(&context, 0, 0));
    NEED_CUDA(cuModuleLoadData(&module, ptx));
    NEED_CUDA(cuModuleGetFunction(&function, module, "busy_us"));
    need(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0, "PTRACE_TRACEME");
    raise(SIGSTOP);
    for (uint64_t i = 0; i < before + count; i++) {
        uint64_t due_ns = now_ns() + pace_ns;
        if (i == before) /* all that comes once has come */
            syscall(SYS_getppid);
        NEED_CUDA(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
        while (now_ns() < due_ns)
            continue;
    }
    syscall(SYS_getppid);
    exit(0);
}

/* Is the address in a mapping of libvgpu.so? */
static int is_of_library(pid_t pid, uint64_t address)
{
    char path[64], line[512];
    int is_of = 0;
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
    FILE *maps = fopen(path, "re");
    need(maps != NULL, path);
    while (!is_of && fgets(line, sizeof(line), maps)) {
        unsigned long long from, to;
        if (sscanf(line, "%llx-%llx", &from, &to) == 2 && address >= from && address < to)
            is_of = strstr(line, "libvgpu.so") != NULL;
    }
    fclose(maps);
    return is_of;
}

int main(int argc, char **argv)
{
    unsigned long library = 0, others = 0;
    int status, marks = 0;

    if (argc != 4)
        return 2;
    pid_t pid = fork();
    need(pid >= 0, "fork");
    if (pid == 0)
        launch_all(strtoull(argv[1], NULL, 10), strtoull(argv[2], NULL, 10),
                   strtoull(argv[3], NULL, 10));
    need(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status), "waitpid");
    need(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0,
         "PTRACE_SETOPTIONS");
    while (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0 && waitpid(pid, &status, 0) == pid &&
           !WIFEXITED(status)) {
        struct ptrace_syscall_info info;
        need(WIFSTOPPED(status) && WSTOPSIG(status) == (SIGTRAP | 0x80), "a stop at a call");
        need(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) > 0,
             "PTRACE_GET_SYSCALL_INFO");
        if (info.op != PTRACE_SYSCALL_INFO_ENTRY)
            continue;
        if (info.entry.nr == SYS_getppid)
            marks++;
        else if (marks == 1 && is_of_library(pid, info.instruction_pointer))
            library++;
        else if (marks == 1)
            others++;
    }
    need(WIFEXITED(status) && WEXITSTATUS(status) == 0 && marks == 2, "the program");
    printf("library %lu driver %lu\n", library, others);
    return 0;
}
