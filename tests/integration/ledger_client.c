/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that come, race at a limit, live oddly and die, for test_ledger.py. Knows nothing of
 * libvgpu.so; the parent of "race" and "come" never calls the driver, so that each of its children
 * starts as a new process would.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aliquot/cuda_abi.h"

#define MIB ((uint64_t)1 << 20)
#define FAIL 90 /* exit status: an answer that nobody may get */

static void *cuda;
static __typeof__(cuInit) *init;
static __typeof__(cuCtxCreate_v2) *ctx_create;
static __typeof__(cuCtxSetCurrent) *ctx_set;
static __typeof__(cuMemAlloc_v2) *mem_alloc;
static __typeof__(cuMemFree_v2) *mem_free;
static __typeof__(cuMemGetInfo_v2) *mem_info;
static CUcontext context;

static void load(void)
{
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
#define FIND(variable, name) variable = (__typeof__(name) *)dlsym(cuda, #name)
    FIND(init, cuInit);
    FIND(ctx_create, cuCtxCreate_v2);
    FIND(ctx_set, cuCtxSetCurrent);
    FIND(mem_alloc, cuMemAlloc_v2);
    FIND(mem_free, cuMemFree_v2);
    FIND(mem_info, cuMemGetInfo_v2);
}

/* What this process can have that fits: 0, or the step that failed. */
static int enter(uint64_t bytes, CUdeviceptr *p)
{
    if (init(0) != CUDA_SUCCESS)
        return FAIL + 1;
    if (ctx_create(&context, 0, 0) != CUDA_SUCCESS)
        return FAIL + 2;
    return bytes && mem_alloc(p, bytes) != CUDA_SUCCESS ? FAIL + 3 : 0;
}

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- race: all at the limit ------------------------------------------------------------------ */

struct arena {
    pthread_barrier_t barrier;
    _Atomic int admitted, stop;
    _Atomic uint64_t allocations, refusals;
};

/* Allocates and frees at random, so much that all together would pass the limit by far. */
static void churn(struct arena *arena, uint64_t room, uint32_t *seed)
{
    CUdeviceptr live[8] = {0};
    for (int i = 0; i < 400; i++) {
        CUdeviceptr *at = &live[next_random(seed) % 8];
        if (*at && mem_free(*at) != CUDA_SUCCESS)
            _exit(FAIL + 4);
        *at = 0;
        uint64_t bytes = 1 + next_random(seed) % (room / MIB / 3) * MIB;
        CUresult rc = mem_alloc(at, bytes);
        if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_OUT_OF_MEMORY)
            _exit(FAIL + 5);
        atomic_fetch_add(rc == CUDA_SUCCESS ? &arena->allocations : &arena->refusals, 1);
    }
    for (int i = 0; i < 8; i++)
        if (live[i] && mem_free(live[i]) != CUDA_SUCCESS)
            _exit(FAIL + 4);
}

/* All ask at once for bytes of which exactly `fit` have room: so many get them, no more and no
 * fewer. */
static void ask_at_once(struct arena *arena, uint64_t bytes, int fit)
{
    CUdeviceptr p = 0;
    bool is_first = pthread_barrier_wait(&arena->barrier) == PTHREAD_BARRIER_SERIAL_THREAD;
    if (is_first)
        atomic_store(&arena->admitted, 0);
    pthread_barrier_wait(&arena->barrier);
    bool has = mem_alloc(&p, bytes) == CUDA_SUCCESS;
    if (has)
        atomic_fetch_add(&arena->admitted, 1);
    pthread_barrier_wait(&arena->barrier);
    if (atomic_load(&arena->admitted) != fit) {
        if (is_first)
            fprintf(stderr, "%d of %d admitted\n", atomic_load(&arena->admitted), fit);
        _exit(FAIL + 6);
    }
    if (has && mem_free(p) != CUDA_SUCCESS)
        _exit(FAIL + 4);
    pthread_barrier_wait(&arena->barrier);
}

static void racer(struct arena *arena, uint32_t number, uint64_t room, int rounds, double until_s)
{
    uint32_t seed = number * 7919 + 1;
    int failed = enter(0, NULL);
    if (failed)
        _exit(failed);
    pthread_barrier_wait(&arena->barrier);
    for (int i = 0; !atomic_load(&arena->stop); i++) {
        churn(arena, room, &seed);
        ask_at_once(arena, room, 1);
        ask_at_once(arena, room / 3, 3);
        if (number == 0 && (i + 1 >= rounds) && now_s() >= until_s)
            atomic_store(&arena->stop, 1);
        pthread_barrier_wait(&arena->barrier);
    }
    _exit(0);
}

static struct arena *arena_new(unsigned processes)
{
    pthread_barrierattr_t shared;
    struct arena *arena =
        mmap(NULL, sizeof(*arena), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED)
        exit(3);
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&arena->barrier, &shared, processes);
    return arena;
}

static int race(int processes, uint64_t room, int rounds, double seconds)
{
    struct arena *arena = arena_new((unsigned)processes);
    pid_t pids[64];
    int worst = 0, status;

    for (int i = 0; i < processes; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            racer(arena, (uint32_t)i, room, rounds, now_s() + seconds);
    }
    for (int i = 0; i < processes; i++) {
        pid_t ended = waitpid(-1, &status, 0);
        int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (code && !worst) { /* the others wait at the barrier for ever */
            worst = code;
            for (int k = 0; k < processes; k++)
                if (pids[k] != ended)
                    kill(pids[k], SIGKILL);
        }
    }
    printf("race %d %" PRIu64 " %" PRIu64 "\n", worst, atomic_load(&arena->allocations),
           atomic_load(&arena->refusals));
    return 0;
}

/* ---- come: many, a few at a time, each with room for it -------------------------------------- */

static void passer_by(uint32_t number, uint64_t bytes)
{
    CUdeviceptr p = 0;
    uint32_t seed = number;
    int failed = enter(bytes, &p);
    if (failed)
        _exit(failed);
    for (uint32_t i = next_random(&seed) % 50; i > 0; i--)
        if (mem_free(p) != CUDA_SUCCESS || mem_alloc(&p, bytes) != CUDA_SUCCESS)
            _exit(FAIL + 7);
    if (number % 3 == 0)
        raise(SIGKILL);
    if (number % 3 == 1 && mem_free(p) != CUDA_SUCCESS)
        _exit(FAIL + 4);
    _exit(0);
}

static int come(int total, int at_once, uint64_t bytes)
{
    int living = 0, refused = 0, killed = 0, status;
    for (int i = 0; i < total || living;) {
        if (i < total && living < at_once) {
            if (fork() == 0)
                passer_by((uint32_t)i, bytes);
            i++;
            living++;
            continue;
        }
        wait(&status);
        living--;
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (WIFSIGNALED(status) ? WTERMSIG(status) != SIGKILL : WEXITSTATUS(status) != 0) {
            refused++;
            fprintf(stderr, "status %x\n", (unsigned)status);
        }
    }
    printf("come %d %d\n", refused, killed);
    return 0;
}

/* ---- lives: one process with bytes does something odd ---------------------------------------- */

static CUdeviceptr held;

static int wait_code(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int alloc_and_free(void *unused)
{
    CUdeviceptr p;
    (void)unused;
    return mem_alloc(&p, MIB) != CUDA_SUCCESS || mem_free(p) != CUDA_SUCCESS;
}

static _Atomic int over;

static void *allocate_until_over(void *unused)
{
    (void)unused;
    if (ctx_set(context) != CUDA_SUCCESS)
        return (void *)1;
    while (!atomic_load(&over))
        if (alloc_and_free(NULL))
            return (void *)1;
    return NULL;
}

/* Forks from this thread while four others allocate: each child comes to the driver and ends. */
static int fork_among_threads(int count, int *child_says)
{
    pthread_t threads[4];
    int odd = 0;
    void *bad;
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, allocate_until_over, NULL);
    for (int i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60); /* a lock that was held at the fork is never let go */
            _exit(init(0) & 127);
        }
        int code = wait_code(pid);
        odd += i > 0 && code != *child_says;
        *child_says = code;
    }
    atomic_store(&over, 1);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &bad);
        odd += bad != NULL;
    }
    return odd;
}

/* A second process that leads the parent's life on: the parent ends, the child waits for a signal.
 */
static void leave_a_child(bool closes_all)
{
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork())
            _exit(0);
        printf("life %d\n", getpid());
        fflush(stdout);
        if (closes_all)
            syscall(SYS_close_range, 0u, ~0u, 0u);
        for (;;)
            pause();
    }
    wait_code(pid);
    _exit(0);
}

static int live(const char *how, char **rest)
{
    int answer = 0, code = 0;
    if (!strcmp(how, "daemon") || !strcmp(how, "daemon-closed")) {
        leave_a_child(!strcmp(how, "daemon-closed"));
    } else if (!strcmp(how, "closed")) {
        printf("life %d\n", getpid());
        fflush(stdout);
        syscall(SYS_close_range, 0u, ~0u, 0u);
        for (;;)
            pause();
    } else if (!strcmp(how, "exec")) {
        execvp(rest[0], rest);
        return 3;
    } else if (!strcmp(how, "fork")) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(init(0) & 127);
        code = wait_code(pid);
    } else if (!strcmp(how, "clone")) {
        long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0)
            _exit(init(0) & 127);
        code = wait_code((pid_t)pid);
    } else if (!strcmp(how, "clone-vm")) {
        size_t bytes = 1 << 20;
        char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int pid = clone(alloc_and_free, stack + bytes, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
        code = wait_code(pid);
    } else if (!strcmp(how, "vfork")) {
        pid_t pid = vfork();
        if (pid == 0) {
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        code = wait_code(pid);
    } else if (!strcmp(how, "spawn")) {
        pid_t pid;
        char *args[] = {"true", NULL};
        answer = posix_spawn(&pid, "/bin/true", NULL, NULL, args, environ);
        code = answer ? 0 : wait_code(pid);
    } else if (!strcmp(how, "fork-threads")) {
        answer = fork_among_threads(100, &code);
    } else {
        return 3;
    }
    /* The life goes on: what it held is its own, and it can have more. */
    size_t free_bytes = 0, total = 0;
    if (!answer)
        answer = alloc_and_free(NULL) || mem_info(&free_bytes, &total) != CUDA_SUCCESS;
    printf("life %d %d %zu\n", answer, code, free_bytes);
    fflush(stdout);
    getchar();
    return mem_free(held) != CUDA_SUCCESS;
}

int main(int argc, char **argv)
{
    load();
    if (argc > 5 && !strcmp(argv[1], "race"))
        return race(atoi(argv[2]), strtoull(argv[3], NULL, 10), atoi(argv[4]), atof(argv[5]));
    if (argc > 4 && !strcmp(argv[1], "come"))
        return come(atoi(argv[2]), atoi(argv[3]), strtoull(argv[4], NULL, 10));
    if (argc > 3 && !strcmp(argv[1], "live")) {
        int failed = enter(strtoull(argv[3], NULL, 10), &held);
        return failed ? failed : live(argv[2], argv + 4);
    }
    return 3;
}
