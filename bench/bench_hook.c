/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libvgpu.so adds to a call: hook_child on the simulated driver, bare, with the library and no
 * share, and with a share, in turns in one run. A figure is "with" less "bare", of the smallest and
 * of the median round; reference is the bare call.
 *
 *   bench_hook [--json]      ALIQUOT_BUILD or the program's own place says where the build is
 */
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aliquot/share.h"

enum { BARE, NONE, LIMIT, MODES };
enum { LAUNCH, ALLOC_10, REFUSE, VIEW, ALLOC_MILLION, MEASURES };

#define TURNS 5
#define UUID "GPU-11111111-2222-3333-4444-555555555555"

static const char *const measure_names[MEASURES] = {"launch", "alloc_free.10", "refuse", "view",
                                                    "alloc_free.1000000"};

static char build[PATH_MAX - 256];
static char directory[64];
static pid_t simgpud;

static void die(const char *what)
{
    fprintf(stderr, "bench_hook: %s: %s\n", what, strerror(errno));
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

static void link_library(const char *from, const char *to)
{
    char target[PATH_MAX], path[PATH_MAX];
    snprintf(target, sizeof(target), "%s/%s", build, from);
    snprintf(path, sizeof(path), "%s/lib/%s", directory, to);
    if (symlink(target, path))
        die(path);
}

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
    control.values[0].compute_limit_pct = 100;
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

static void set_up(void)
{
    static const char devices[] =
        "{\"devices\":[{\"name\":\"NVIDIA H100 80GB HBM3\",\"memory\":\"16Gi\",\"sms\":132,"
        "\"uuid\":\"" UUID "\",\"minor\":0}]}";
    static const char *const folders[] = {"lib", "shares", "shares/bench-0", "none"};
    char path[PATH_MAX], program[PATH_MAX], line[256];
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
    link_library("sim/libsimcuda-550.so", "libcuda.so.1");
    link_library("src/vgpu/libvgpu.so", "libvgpu.so"); /* LD_PRELOAD takes no blank */
    make_share();
    snprintf(path, sizeof(path), "%s/devices.json", directory);
    snprintf(program, sizeof(program), "%s/sim/simgpud", build);
    if (pipe(ends))
        die("pipe");
    simgpud = fork();
    if (simgpud == 0) {
        dup2(ends[1], 1);
        execl(program, program, "--config", path, "--run-dir", directory, NULL);
        die(program);
    }
    close(ends[1]);
    if (read(ends[0], line, sizeof(line)) <= 0)
        die("simgpud did not start");
}

static void tear_down(void)
{
    char command[128];
    kill(simgpud, SIGTERM);
    waitpid(simgpud, NULL, 0);
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    if (system(command))
        die(command);
}

struct figure {
    double min, median;
};

/* One process of a mode; fills what it prints. */
static void measure(int mode, bool has_million, struct figure out[MEASURES])
{
    char program[PATH_MAX], libraries[PATH_MAX], socket[PATH_MAX], root[PATH_MAX],
        preload[PATH_MAX], line[256];
    char million[] = "million";
    int ends[2], status;

    snprintf(program, sizeof(program), "%s/bench/hook_child", build);
    snprintf(libraries, sizeof(libraries), "LD_LIBRARY_PATH=%s/lib", directory);
    snprintf(socket, sizeof(socket), "SIMGPU_SOCKET=%s/simgpud.sock", directory);
    snprintf(root, sizeof(root), "ALIQUOT_SHARE_ROOT=%s/%s", directory,
             mode == LIMIT ? "shares" : "none");
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/lib/libvgpu.so", directory);
    char *env[] = {libraries, socket, root, mode == BARE ? NULL : preload, NULL};
    char *args[] = {program, has_million ? million : NULL, NULL};
    if (pipe(ends))
        die("pipe");
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execve(program, args, env);
        die(program);
    }
    close(ends[1]);
    FILE *f = fdopen(ends[0], "r");
    while (f && fgets(line, sizeof(line), f)) {
        char name[64];
        struct figure figure;
        if (sscanf(line, "%63s %lf %lf", name, &figure.min, &figure.median) != 3)
            continue;
        for (int i = 0; i < MEASURES; i++)
            if (!strcmp(name, measure_names[i]))
                out[i] = figure;
    }
    if (f)
        fclose(f);
    if (waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "bench_hook: %s ended with status %d\n", program, status);
        tear_down();
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Over the turns of a mode: the smallest minimum, the median of medians. */
static struct figure over_turns(struct figure all[TURNS][MODES][MEASURES], int turns, int mode,
                                int what)
{
    double mins[TURNS], medians[TURNS];
    for (int i = 0; i < turns; i++) {
        mins[i] = all[i][mode][what].min;
        medians[i] = all[i][mode][what].median;
    }
    qsort(mins, (size_t)turns, sizeof(*mins), by_value);
    qsort(medians, (size_t)turns, sizeof(*medians), by_value);
    return (struct figure){mins[0], medians[turns / 2]};
}

static void show(bool json, bool *is_first, const char *name, struct figure with,
                 struct figure bare, bool is_added)
{
    double min = is_added ? with.min - bare.min : with.min;
    double median = is_added ? with.median - bare.median : with.median;
    if (min < 0)
        min = 0; /* below what the machine's noise lets see */
    if (median < 0)
        median = 0;
    double reference = is_added ? bare.median : 0;
    double ratio = is_added && bare.median > 0 ? with.median / bare.median : 0;
    if (json) {
        printf(
            "%s{\"name\": \"%s\", \"unit\": \"ns\", \"value_min\": %.1f, \"value_median\": %.1f, ",
            *is_first ? "[" : ",\n ", name, min, median);
        if (is_added)
            printf("\"reference\": %.1f, \"ratio\": %.3f}", reference, ratio);
        else
            printf("\"reference\": null, \"ratio\": null}");
    } else {
        printf("%-28s %9.1f %9.1f ns   bare %9.1f\n", name, min, median, reference);
    }
    *is_first = false;
}

int main(int argc, char **argv)
{
    static struct figure all[TURNS][MODES][MEASURES];
    bool json = argc > 1 && !strcmp(argv[1], "--json"), is_first = true;
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
    for (int turn = 0; turn < TURNS; turn++)
        for (int mode = 0; mode < MODES; mode++)
            measure(mode, turn < 2 && mode != NONE, all[turn][mode]);
    tear_down();

    struct figure figures[MODES][MEASURES];
    for (int mode = 0; mode < MODES; mode++)
        for (int what = 0; what < MEASURES; what++)
            figures[mode][what] = over_turns(all, what == ALLOC_MILLION ? 2 : TURNS, mode, what);
    show(json, &is_first, "hook.none.launch_ns", figures[NONE][LAUNCH], figures[BARE][LAUNCH],
         true);
    show(json, &is_first, "hook.alloc_free_ns.10", figures[LIMIT][ALLOC_10],
         figures[BARE][ALLOC_10], true);
    show(json, &is_first, "hook.alloc_free_ns.1000000", figures[LIMIT][ALLOC_MILLION],
         figures[BARE][ALLOC_MILLION], true);
    show(json, &is_first, "hook.refuse_ns", figures[LIMIT][REFUSE], figures[BARE][REFUSE], false);
    show(json, &is_first, "hook.view_ns", figures[LIMIT][VIEW], figures[BARE][VIEW], true);
    if (json)
        printf("]\n");
    return 0;
}
