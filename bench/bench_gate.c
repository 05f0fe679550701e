/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the compute gate adds to a launch that does not wait: gate_child on the simulated driver,
 * bare and under a share of 90 percent, in turns; and how many driver calls of its own it made.
 *
 *   bench_gate [--json]      ALIQUOT_BUILD or the program's own place says where the build is
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aliquot/share.h"

#define TURNS 5
#define UUID "GPU-11111111-2222-3333-4444-555555555555"

static char build[PATH_MAX - 256];
static char directory[64];
static pid_t simgpud;

static void tear_down(void)
{
    char command[128];
    if (simgpud > 0) {
        kill(simgpud, SIGTERM);
        waitpid(simgpud, NULL, 0);
    }
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    if (directory[0] && system(command))
        fprintf(stderr, "bench_gate: %s failed\n", command);
}

static void die(const char *what)
{
    fprintf(stderr, "bench_gate: %s: %s\n", what, strerror(errno));
    tear_down();
    exit(1);
}

static void write_file(const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f))
        die(path);
}

/* A fresh share each turn, so that its counters are of one process. */
static void make_share(void)
{
    static struct alq_control control;
    static char usage[ALQ_USAGE_BYTES(1)];
    struct alq_usage_header *header = (struct alq_usage_header *)(void *)usage;
    control.magic = ALQ_CONTROL_MAGIC;
    control.version = ALQ_SHARE_VERSION;
    control.bytes = ALQ_CONTROL_BYTES;
    strcpy(control.gpu_uuid, UUID);
    control.values[0].memory_limit_bytes = 4ull << 30;
    control.values[0].compute_limit_pct = 90;
    header->magic = ALQ_USAGE_MAGIC;
    header->version = ALQ_SHARE_VERSION;
    header->header_bytes = ALQ_USAGE_HEADER_BYTES;
    header->section_bytes = sizeof(struct alq_usage_section);
    header->section_count = 1;
    header->slot_count = ALQ_SLOTS;
    header->slot_bytes = sizeof(struct alq_slot);
    write_file("shares/bench-0/control", &control, sizeof(control));
    write_file("shares/bench-0/usage", usage, sizeof(usage));
}

static void read_counters(struct alq_counters *out)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/shares/bench-0/usage", directory);
    int fd = open(path, O_RDONLY);
    off_t at = (off_t)(ALQ_USAGE_HEADER_BYTES + offsetof(struct alq_usage_section, counters));
    if (fd < 0 || pread(fd, out, sizeof(*out), at) != sizeof(*out))
        die(path);
    close(fd);
}

static void set_up(void)
{
    static const char devices[] =
        "{\"devices\":[{\"name\":\"NVIDIA H100 80GB HBM3\",\"memory\":\"16Gi\",\"sms\":132,"
        "\"uuid\":\"" UUID "\",\"minor\":0}]}";
    static const char *const folders[] = {"lib", "shares", "shares/bench-0"};
    char path[PATH_MAX], target[PATH_MAX], line[256];
    int ends[2];

    strcpy(directory, "/tmp/alq-bench-XXXXXX");
    if (!mkdtemp(directory))
        die(directory);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, folders[i]);
        if (mkdir(path, 0755))
            die(path);
    }
    write_file("devices.json", devices, sizeof(devices) - 1);
    snprintf(target, sizeof(target), "%s/sim/libsimcuda-550.so", build);
    snprintf(path, sizeof(path), "%s/lib/libcuda.so.1", directory);
    if (symlink(target, path))
        die(path);
    snprintf(target, sizeof(target), "%s/src/vgpu/libvgpu.so", build);
    snprintf(path, sizeof(path), "%s/lib/libvgpu.so", directory);
    if (symlink(target, path))
        die(path);
    snprintf(path, sizeof(path), "%s/devices.json", directory);
    snprintf(target, sizeof(target), "%s/sim/simgpud", build);
    if (pipe(ends))
        die("pipe");
    simgpud = fork();
    if (simgpud == 0) {
        dup2(ends[1], 1);
        execl(target, target, "--config", path, "--run-dir", directory, NULL);
        _exit(127);
    }
    close(ends[1]);
    if (read(ends[0], line, sizeof(line)) <= 0)
        die("simgpud did not start");
}

/* One process; its minimum and median. */
static void measure(bool has_library, double *min, double *median)
{
    char program[PATH_MAX], libraries[PATH_MAX], socket[PATH_MAX], root[PATH_MAX],
        preload[PATH_MAX];
    int ends[2], status;

    snprintf(program, sizeof(program), "%s/bench/gate_child", build);
    snprintf(libraries, sizeof(libraries), "LD_LIBRARY_PATH=%s/lib", directory);
    snprintf(socket, sizeof(socket), "SIMGPU_SOCKET=%s/simgpud.sock", directory);
    snprintf(root, sizeof(root), "ALIQUOT_SHARE_ROOT=%s/shares", directory);
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/lib/libvgpu.so", directory);
    char *env[] = {libraries, socket, root, has_library ? preload : NULL, NULL};
    char *args[] = {program, NULL};
    if (pipe(ends))
        die("pipe");
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execve(program, args, env);
        _exit(127);
    }
    close(ends[1]);
    FILE *f = fdopen(ends[0], "r");
    int fields = f ? fscanf(f, "launch %lf %lf", min, median) : 0;
    if (f)
        fclose(f);
    if (waitpid(child, &status, 0) != child || status != 0 || fields != 2)
        die(program);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    double mins[2][TURNS], medians[2][TURNS], calls[TURNS];
    bool json = argc > 1 && !strcmp(argv[1], "--json");
    const char *env = getenv("ALIQUOT_BUILD");
    char self[PATH_MAX];

    if (env) {
        snprintf(build, sizeof(build), "%s", env);
    } else {
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        if (n < 0)
            die("/proc/self/exe");
        self[n] = '\0';
        snprintf(build, sizeof(build), "%.3800s", dirname(dirname(self)));
    }
    set_up();
    for (int turn = 0; turn < TURNS; turn++) {
        struct alq_counters counters;
        measure(false, &mins[0][turn], &medians[0][turn]);
        make_share();
        measure(true, &mins[1][turn], &medians[1][turn]);
        read_counters(&counters);
        if (counters.launches == 0)
            die("no launch passed the gate");
        calls[turn] = (double)counters.gate_calls / (double)counters.launches;
        if (counters.throttled_ns)
            fprintf(stderr,
                    "bench_gate: a launch waited %.3f ms: the demand was to be below the limit\n",
                    (double)counters.throttled_ns * 1e-6);
    }
    tear_down();
    for (int i = 0; i < 2; i++) {
        qsort(mins[i], TURNS, sizeof(double), by_value);
        qsort(medians[i], TURNS, sizeof(double), by_value);
    }
    qsort(calls, TURNS, sizeof(double), by_value);
    double bare = medians[0][TURNS / 2], with = medians[1][TURNS / 2];
    double min = mins[1][0] > mins[0][0] ? mins[1][0] - mins[0][0] : 0;
    double median = with > bare ? with - bare : 0;
    if (json)
        printf("[{\"name\": \"hook.limit.launch_ns\", \"unit\": \"ns\", \"value_min\": %.1f, "
               "\"value_median\": %.1f, \"reference\": %.1f, \"ratio\": %.3f},\n"
               " {\"name\": \"hook.driver_calls_per_launch\", \"unit\": \"calls\", \"value_min\": "
               "%.4f, "
               "\"value_median\": %.4f, \"reference\": null, \"ratio\": null}]\n",
               min, median, bare, with / bare, calls[0], calls[TURNS / 2]);
    else
        printf("hook.limit.launch_ns          %9.1f %9.1f ns   bare %9.1f\n"
               "hook.driver_calls_per_launch  %9.4f %9.4f\n",
               min, median, bare, calls[0], calls[TURNS / 2]);
    return 0;
}
