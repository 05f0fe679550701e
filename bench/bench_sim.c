/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's own cost: one cuLaunchKernel, cuMemAlloc, cuEventRecord and cuEventQuery on the
 * bare stand-in driver, in nanoseconds; how late a launch and its wait come back; how many launches
 * a second one process and eight make; and how long a minute of mixed load takes in virtual time,
 * in milliseconds of this process. Starts a simgpud of its own in a temporary directory. With
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
#include "model/model.h"

#define BATCHES 21
#define CALLS 20000
#define ALLOCATIONS 2000
#define WAIT_US 100
#define WAITS 50
#define RATE_RUNS 5
#define RATE_NS 300e6
#define MINUTES 5

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

static void report(const char *name, const char *unit, double *value, int count, double reference,
                   int is_json, int is_last)
{
    qsort(value, (size_t)count, sizeof(*value), ascending);
    if (is_json) {
        printf(
            "  {\"name\": \"%s\", \"unit\": \"%s\", \"value_min\": %.1f, \"value_median\": %.1f, ",
            name, unit, value[0], value[count / 2]);
        if (reference > 0)
            printf("\"reference\": %.1f, \"ratio\": %.3f}", reference,
                   value[count / 2] / reference);
        else
            printf("\"reference\": null, \"ratio\": null}");
        puts(is_last ? "" : ",");
    } else {
        printf("%-24s min %12.1f  median %12.1f %s\n", name, value[0], value[count / 2], unit);
    }
}

/* The driver in this process, with a context and the kernel that is busy for its argument. */
static CUfunction open_driver(void *library)
{
    CUcontext context;
    CUmodule module;
    CUfunction function;

#define CALL(name, ...) must(((__typeof__(name) *)entry(library, #name))(__VA_ARGS__), #name)
    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    CALL(cuModuleLoadData, &module, ".version 8.0\n.entry busy_us(.param .u64 us) { ret; }\n");
    CALL(cuModuleGetFunction, &function, module, "busy_us");
    return function;
}

/* Launches of kernels that take no time, a second, of so many processes together. */
static double launch_rate(void *library, int processes)
{
    int ready[2], go[2], done[2];
    long sum = 0, count;
    char byte = 0;

    if (pipe(ready) != 0 || pipe(go) != 0 || pipe(done) != 0)
        die("pipe", strerror(errno));
    for (int i = 0; i < processes; i++) {
        pid_t pid = fork();

        if (pid < 0)
            die("fork", strerror(errno));
        if (pid == 0) {
            CUfunction function = open_driver(library);
            unsigned long long us = 0;
            void *params[] = {&us};
            double end;

            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
                _exit(1);
            end = now_ns() + RATE_NS;
            for (count = 0; now_ns() < end; count += 64) {
                for (int k = 0; k < 64; k++)
                    must(cu.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL),
                         "cuLaunchKernel");
            }
            must(cu.synchronize(), "cuCtxSynchronize");
            _exit(write(done[1], &count, sizeof(count)) != sizeof(count));
        }
    }
    for (int i = 0; i < processes; i++) {
        if (read(ready[0], &byte, 1) != 1)
            die("launch_rate", "a process did not start");
    }
    for (int i = 0; i < processes; i++) {
        if (write(go[1], &byte, 1) != 1)
            die("launch_rate", strerror(errno));
    }
    for (int i = 0; i < processes; i++) {
        if (read(done[0], &count, sizeof(count)) != sizeof(count))
            die("launch_rate", "a process failed");
        sum += count;
    }
    for (int i = 0; i < processes; i++)
        wait(NULL);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(go[i]);
        close(done[i]);
    }
    return (double)sum / RATE_NS * 1e9;
}

static void measure_rates(void *library, int is_json)
{
    double one[RATE_RUNS], eight[RATE_RUNS];

    for (int i = 0; i < RATE_RUNS; i++) {
        one[i] = launch_rate(library, 1);
        eight[i] = launch_rate(library, 8);
    }
    report("sim.launches_1_process", "1/s", one, RATE_RUNS, 0, is_json, 0);
    report("sim.launches_8_processes", "1/s", eight, RATE_RUNS, one[RATE_RUNS / 2], is_json, 0);
}

/* A minute of two contexts that take turns with kernels of 3 ms and 700 us, and a third on another
 * device whose two streams share its SMs every millisecond: 276,000 operations. */
static double virtual_minute_ms(void)
{
    static const struct sim_model_device device = {132, 3};
    struct sim_model *model = sim_model_new(2, 0, NULL);
    struct sim_model_client *client[3];
    uint64_t pushed[3] = {0};
    double begun = now_ns();

    if (!model || sim_model_device_set(model, 0, &device) ||
        sim_model_device_set(model, 1, &device))
        die("sim_model", "out of memory");
    for (uint32_t i = 0; i < 4; i++) {
        struct sim_op open = {.kind = SIM_OP_OPEN,
                              .stream = i / 3,
                              .blocks = i / 2,
                              .flags = SIM_STREAM_NON_BLOCKING,
                              .value = SIM_PRIORITY_ZERO};

        if (i < 3)
            client[i] = sim_model_client_new(model, NULL);
        if (sim_model_push(client[i < 3 ? i : 2], &open, 0) != 0)
            die("sim_model", "open");
    }
    for (uint64_t now = 0; now < 60000000000ull; now += 100000000) {
        struct sim_op op = {.kind = SIM_OP_KERNEL, .blocks = 100, .submit_ns = now};

        for (op.value = 3000000; pushed[0] * op.value < now + 200000000; pushed[0]++)
            sim_model_push(client[0], &op, UINT64_MAX);
        for (op.value = 700000; pushed[1] * op.value < now + 200000000; pushed[1]++)
            sim_model_push(client[1], &op, UINT64_MAX);
        for (; pushed[2] * 1000000 < now + 100000000; pushed[2]++) {
            op.submit_ns = pushed[2] * 1000000;
            op.value = 100000;
            op.stream = 0;
            sim_model_push(client[2], &op, UINT64_MAX);
            op.stream = 1;
            sim_model_push(client[2], &op, UINT64_MAX);
        }
        sim_model_advance(model, now + 100000000);
    }
    if (sim_model_device_usage(model, 0)->busy_ns != 60000000000ull)
        die("sim_model", "the minute was not busy");
    sim_model_free(model);
    return (now_ns() - begun) / 1e6;
}

static void measure(CUfunction function, CUevent event, int is_json)
{
    static double launch[BATCHES], alloc[BATCHES], record[BATCHES], query[BATCHES], late[BATCHES];
    double minute[MINUTES];
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
        us = WAIT_US;
        begun = now_ns();
        for (int i = 0; i < WAITS; i++) {
            must(cu.launch(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL), "cuLaunchKernel");
            must(cu.synchronize(), "cuCtxSynchronize");
        }
        late[b] = (now_ns() - begun) / WAITS - WAIT_US * 1000;
        us = 0;
    }
    for (int i = 0; i < MINUTES; i++)
        minute[i] = virtual_minute_ms();
    report("sim.launch_ns", "ns", launch, BATCHES, 0, is_json, 0);
    report("sim.alloc_ns", "ns", alloc, BATCHES, 0, is_json, 0);
    report("sim.event_record_ns", "ns", record, BATCHES, 0, is_json, 0);
    report("sim.event_query_ns", "ns", query, BATCHES, 0, is_json, 0);
    report("sim.wait_late_ns", "ns", late, BATCHES, 0, is_json, 0);
    report("sim.virtual_minute_ms", "ms", minute, MINUTES, 0, is_json, 1);
}

int main(int argc, char **argv)
{
    int is_json = argc == 2 && strcmp(argv[1], "--json") == 0;
    char sim[PATH_MAX], path[PATH_MAX];
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
    if (is_json)
        puts("[");
    fflush(stdout);
    measure_rates(library, is_json); /* before cuInit: a fork child could not use it after */
    function = open_driver(library);
    CALL(cuEventCreate, &event, 0);
    measure(function, event, is_json);
    if (is_json)
        puts("]");
    return 0;
}
