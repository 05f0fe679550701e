/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a process instruction by instruction through an operation of the ledger and kills it there,
 * or leaves it stopped, at every STRIDE-th; each time a neighbour must have the room at once.
 *
 *   ledger_steps attach|context|reserve|release|reap|overtaken STRIDE USAGE_FILE
 *
 * Prints "steps POINTS INSTRUCTIONS LONGEST_NS". The tracer itself takes no slot.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aliquot/cuda_abi.h"
#include "aliquot/share.h"

#define MIB ((uint64_t)1 << 20)
/* test_ledger_steps.py makes the share so. */
#define LIMIT (1000 * MIB)
#define CONTEXT_BYTES (1 * MIB)
#define NEIGHBOUR (100 * MIB + CONTEXT_BYTES)
#define DEAD (600 * MIB)
#define WANTED (400 * MIB) /* does not fit while the dead one's bytes are there */

static __typeof__(cuInit) *init;
static __typeof__(cuCtxCreate_v2) *ctx_create;
static __typeof__(cuMemAlloc_v2) *mem_alloc;
static __typeof__(cuMemFree_v2) *mem_free;
static const struct alq_usage_section *section;

static void fail(const char *what, uint64_t at, uint64_t detail)
{
    fprintf(stderr, "%s at instruction %" PRIu64 ": %" PRIu64 "\n", what, at, detail);
    exit(1);
}

static void load(const char *usage_path)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int fd = open(usage_path, O_RDONLY | O_CLOEXEC);
    void *usage = mmap(NULL, ALQ_USAGE_BYTES(1), PROT_READ, MAP_SHARED, fd, 0);
    if (!cuda || usage == MAP_FAILED)
        fail("cannot start", 0, 0);
    section = (const struct alq_usage_section *)((const char *)usage + ALQ_USAGE_HEADER_BYTES);
    init = (__typeof__(init))dlsym(cuda, "cuInit");
    ctx_create = (__typeof__(ctx_create))dlsym(cuda, "cuCtxCreate_v2");
    mem_alloc = (__typeof__(mem_alloc))dlsym(cuda, "cuMemAlloc_v2");
    mem_free = (__typeof__(mem_free))dlsym(cuda, "cuMemFree_v2");
}

static void enter(uint64_t bytes, CUdeviceptr *p)
{
    CUcontext context;
    if (init(0) != CUDA_SUCCESS || ctx_create(&context, 0, 0) != CUDA_SUCCESS ||
        (bytes && mem_alloc(p, bytes) != CUDA_SUCCESS))
        _exit(90);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- the neighbour: holds its bytes, and takes and frees as many as it is told to ------------ */

static int to_neighbour[2], from_neighbour[2];

static void neighbour(void)
{
    CUdeviceptr held, p;
    uint64_t bytes, answer[2];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    enter(NEIGHBOUR - CONTEXT_BYTES, &held);
    while (read(to_neighbour[0], &bytes, sizeof(bytes)) == sizeof(bytes)) {
        uint64_t start = now_ns();
        answer[0] = (uint64_t)mem_alloc(&p, bytes);
        answer[1] = now_ns() - start;
        if (answer[0] == CUDA_SUCCESS)
            mem_free(p);
        if (write(from_neighbour[1], answer, sizeof(answer)) != sizeof(answer))
            break;
    }
    _exit(0);
}

/* The neighbour gets them at the first try; how long it took. */
static uint64_t neighbour_gets(uint64_t bytes, uint64_t at)
{
    struct pollfd ready = {.fd = from_neighbour[0], .events = POLLIN};
    uint64_t answer[2];
    if (write(to_neighbour[1], &bytes, sizeof(bytes)) != sizeof(bytes) ||
        poll(&ready, 1, 20000) != 1 ||
        read(from_neighbour[0], answer, sizeof(answer)) != sizeof(answer))
        fail("the neighbour waits", at, 0);
    if (answer[0] != CUDA_SUCCESS)
        fail("the neighbour is refused", at, answer[0]);
    return answer[1];
}

/* ---- the victim ------------------------------------------------------------------------------ */

static void mark(void)
{
    kill(getpid(), SIGSTOP);
}

static void victim(const char *scenario)
{
    CUdeviceptr p = 0;
    CUcontext context;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    if (!strcmp(scenario, "attach")) {
        mark();
        init(0);
    } else if (!strcmp(scenario, "context")) {
        init(0);
        mark();
        ctx_create(&context, 0, 0);
    } else if (!strcmp(scenario, "release")) {
        enter(50 * MIB, &p);
        mark();
        mem_free(p);
    } else if (!strcmp(scenario, "reserve")) {
        enter(50 * MIB, &p);
        mark();
        mem_alloc(&p, 70 * MIB);
    } else { /* reap, overtaken */
        enter(0, NULL);
        mark();
        if (mem_alloc(&p, WANTED) != CUDA_SUCCESS)
            _exit(91);
    }
    mark();
    _exit(0);
}

static void await(pid_t pid, int signal_wanted, uint64_t at)
{
    int status;
    waitpid(pid, &status, 0);
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != signal_wanted)
        fail("the victim does not stop", at, (uint64_t)status);
}

static void bury_alive(void)
{
    CUdeviceptr p;
    pid_t pid = fork();
    if (pid == 0) {
        enter(DEAD - CONTEXT_BYTES, &p);
        raise(SIGKILL);
    }
    waitpid(pid, NULL, 0);
}

/* Steps so often, fewer when the operation ends before. */
static uint64_t walk(pid_t pid, uint64_t steps)
{
    int status;
    for (uint64_t i = 0; i < steps; i++) {
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) || waitpid(pid, &status, 0) != pid)
            fail("cannot step", i, 0);
        if (!WIFSTOPPED(status))
            fail("the victim ended", i, (uint64_t)status);
        if (WSTOPSIG(status) == SIGSTOP)
            return i;
        if (WSTOPSIG(status) != SIGTRAP)
            fail("the victim got a signal", i, (uint64_t)WSTOPSIG(status));
    }
    return steps;
}

/* All that is in the books is the neighbour's. */
static void check_books(uint64_t at)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < ALQ_SLOTS; i++)
        sum += __atomic_load_n(&section->slots[i].done.value, __ATOMIC_ACQUIRE);
    if (sum != NEIGHBOUR || __atomic_load_n(&section->total.value, __ATOMIC_ACQUIRE) != NEIGHBOUR)
        fail("bytes lost or left over", at, sum);
}

int main(int argc, char **argv)
{
    uint64_t points = 0, longest_ns = 0, instructions = 0, took_ns;
    if (argc < 4)
        return 3;
    const char *scenario = argv[1];
    uint64_t stride = strtoull(argv[2], NULL, 10);
    bool is_overtaken = !strcmp(scenario, "overtaken");
    bool has_dead = is_overtaken || !strcmp(scenario, "reap");

    load(argv[3]);
    if (pipe(to_neighbour) || pipe(from_neighbour))
        return 3;
    if (fork() == 0)
        neighbour();
    for (uint64_t at = 0;; at += stride) {
        pid_t pid = fork();
        if (pid == 0)
            victim(scenario);
        await(pid, SIGSTOP, at);
        if (has_dead)
            bury_alive();
        uint64_t walked = walk(pid, at);
        /* What is there for others whether or not the victim has what it wants, and too much while
         * the dead one has its bytes. */
        if (is_overtaken) {
            took_ns = neighbour_gets(LIMIT - NEIGHBOUR - CONTEXT_BYTES - WANTED, at);
            longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
        }
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        took_ns = neighbour_gets(LIMIT - NEIGHBOUR, at);
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
        check_books(at);
        points++;
        if (walked < at) {
            instructions = walked;
            break;
        }
    }
    printf("steps %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", points, instructions, longest_ns);
    return 0;
}
