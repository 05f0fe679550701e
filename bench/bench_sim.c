/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's own cost: one cuLaunchKernel, cuMemAlloc, cuEventRecord and cuEventQuery on the
 * bare stand-in driver, in nanoseconds. Starts a simgpud of its own in a temporary directory. With
 * --json prints the list that bench/run.py collects, else a table. Single-threaded; exit status 1
 * with the reason on stderr when something does not run.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "aliquot/cuda_abi.h"

#define BATCHES 21
#define CALLS 20000
#define ALLOCATIONS 2000

static const char machine[] = "{\"devices\":[{\"name\":\"NVIDIA H100 80GB "
                              "HBM3\",\"memory\":\"80Gi\",\"profile\":\"550\"}]}\n";

static pid_t daemon_pid;
static char dir[] = "/tmp/bench-sim-XXXXXX";

/* The driver's entry points, as a program that looks them up once calls them. */
static struct {
    __typeof__(cuLaunchKernel) *launch;
    __typeof__(cuMemAlloc_v2) *alloc;
    __typeof__(cuMemFree_v2) *release;
    __typeof__(cuEventRecord) *record;
    __typeof__(cuEventQuery) *query;
    __typeof__(cuEventSynchronize) *await;
    __typeof__(cuCtxSynchronize) *synchronize;
} cu;

static void clean_up(void)
{
    static const char *const files[] = {"machine.json", "simgpud.sock"};
    char path[64];

    if (daemon_pid > 0) {
        kill(daemon_pid, SIGTERM);
        waitpid(daemon_pid, NULL, 0);
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        unlink(path);
    }
    rmdir(dir);
}

__attribute__((noreturn)) static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_sim: %s: %s\n", what, why);
    exit(1);
}

/* build/sim, from ALIQUOT_BUILD or beside this program's folder. */
static void sim_dir(char *path, size_t size)
{
    const char *build = getenv("ALIQUOT_BUILD");
    char self[PATH_MAX];
    ssize_t n;

    if (build && *build) {
        snprintf(path, size, "%s/sim", build);
        return;
    }
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        die("/proc/self/exe", strerror(errno));
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(path, size, "%.4000s/../sim", self);
}

static void start_daemon(const char *sim)
{
    char config[64], program[PATH_MAX], socket[64], line[256] = "";
    int out[2];
    FILE *f;

    if (!mkdtemp(dir))
        die(dir, strerror(errno));
    atexit(clean_up);
    snprintf(config, sizeof(config), "%s/machine.json", dir);
    f = fopen(config, "we");
    if (!f || fputs(machine, f) < 0 || fclose(f) != 0 || pipe(out) != 0)
        die(config, strerror(errno));
    snprintf(program, sizeof(program), "%.4000s/simgpud", sim);
    daemon_pid = fork();
    if (daemon_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        dup2(out[1], 1);
        execl(program, program, "--config", config, "--run-dir", dir, (char *)NULL);
        fprintf(stderr, "bench_sim: %s: %s\n", program, strerror(errno));
        _exit(1);
    }
    close(out[1]);
    if (daemon_pid < 0 || read(out[0], line, sizeof(line) - 1) <= 0)
        die(program, "did not start");
    snprintf(socket, sizeof(socket), "%s/simgpud.sock", dir);
    setenv("SIMGPU_SOCKET", socket, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

static void *entry(void *library, const char *name)
{
    void *function = dlsym(library, name);

    if (!function)
        die(name, "is not exported");
    return function;
}

static void must(CUresult rc, const char *what)
{
    char text[32];

    if (rc != CUDA_SUCCESS) {
        snprintf(text, sizeof(text), "CUDA error %d", (int)rc);
        die(what, text);
    }
}

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void report(const char *name, double *batch, int is_json, int is_last)
{
    qsort(batch, BATCHES, sizeof(*batch), ascending);
    if (is_json)
        printf(
            "  {\"name\": \"%s\", \"unit\": \"ns\", \"value_min\": %.1f, \"value_median\": %.1f, "
            "\"reference\": null, \"ratio\": null}%s\n",
            name, batch[0], batch[BATCHES / 2], is_last ? "" : ",");
    else
        printf("%-24s min %8.1f  median %8.1f ns\n", name, batch[0], batch[BATCHES / 2]);
}

static void measure(CUfunction function, CUevent event, int is_json)
{
    static double launch[BATCHES], alloc[BATCHES], record[BATCHES], query[BATCHES];
    static CUdeviceptr p[ALLOCATIONS];
    unsigned long long us = 0;
    void *params[] = {&us};

    for (int b = 0; b < BATCHES; b++) {
        double begun = now_ns();

        for (int i = 0; i < CALLS; i++)
            must(cu.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL), "cuLaunchKernel");
        launch[b] = (now_ns() - begun) / CALLS;
        must(cu.synchronize(), "cuCtxSynchronize");
        begun = now_ns();
        for (int i = 0; i < ALLOCATIONS; i++)
            must(cu.alloc(&p[i], 512u << i % 12), "cuMemAlloc_v2");
        alloc[b] = (now_ns() - begun) / ALLOCATIONS;
        for (int i = 0; i < ALLOCATIONS; i++)
            must(cu.release(p[i]), "cuMemFree_v2");
        begun = now_ns();
        for (int i = 0; i < CALLS; i++)
            must(cu.record(event, NULL), "cuEventRecord");
        record[b] = (now_ns() - begun) / CALLS;
        must(cu.await(event), "cuEventSynchronize");
        begun = now_ns();
        for (int i = 0; i < CALLS; i++)
            must(cu.query(event), "cuEventQuery");
        query[b] = (now_ns() - begun) / CALLS;
    }
    if (is_json)
        puts("[");
    report("sim.launch_ns", launch, is_json, 0);
    report("sim.alloc_ns", alloc, is_json, 0);
    report("sim.event_record_ns", record, is_json, 0);
    report("sim.event_query_ns", query, is_json, 1);
    if (is_json)
        puts("]");
}

int main(int argc, char **argv)
{
    int is_json = argc == 2 && strcmp(argv[1], "--json") == 0;
    char sim[PATH_MAX], path[PATH_MAX];
    CUcontext context;
    CUmodule module;
    CUfunction function;
    CUevent event;
    void *library;

    if (argc > 2 || (argc == 2 && !is_json)) {
        fputs("usage: bench_sim [--json]\n", stderr);
        return 1;
    }
    sim_dir(sim, sizeof(sim));
    start_daemon(sim);
    snprintf(path, sizeof(path), "%.4000s/libsimcuda-550.so", sim);
    library = dlopen(path, RTLD_NOW);
    if (!library)
        die(path, dlerror());
    cu.launch = (__typeof__(cu.launch))entry(library, "cuLaunchKernel");
    cu.alloc = (__typeof__(cu.alloc))entry(library, "cuMemAlloc_v2");
    cu.release = (__typeof__(cu.release))entry(library, "cuMemFree_v2");
    cu.record = (__typeof__(cu.record))entry(library, "cuEventRecord");
    cu.query = (__typeof__(cu.query))entry(library, "cuEventQuery");
    cu.await = (__typeof__(cu.await))entry(library, "cuEventSynchronize");
    cu.synchronize = (__typeof__(cu.synchronize))entry(library, "cuCtxSynchronize");
#define CALL(name, ...) must(((__typeof__(name) *)entry(library, #name))(__VA_ARGS__), #name)
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    CALL(cuModuleLoadData, &module, ".version 8.0\n.entry busy_us(.param .u64 us) { ret; }\n");
    CALL(cuModuleGetFunction, &function, module, "busy_us");
    CALL(cuEventCreate, &event, 0);
    measure(function, event, is_json);
    return 0;
}
