/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated machine of the library's benchmarks; see machine.h. */
#include "machine.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define UUID "GPU-11111111-2222-3333-4444-555555555555"

static const char *bench_name = "bench";
static char build[PATH_MAX - 256];
static char directory[64];
static const char *peer; /* another library in place of ours, or NULL */
static uint32_t share_pct;
static pid_t simgpud;

void bench_machine_close(void)
{
    char command[128];
    if (simgpud > 0) {
        kill(simgpud, SIGTERM);
        waitpid(simgpud, NULL, 0);
    }
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    if (directory[0] && system(command))
        fprintf(stderr, "%s: %s failed\n", bench_name, command);
}

void bench_die(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", bench_name, what, strerror(errno));
    bench_machine_close();
    exit(1);
}

static void write_file(const char *name, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f))
        bench_die(path);
}

/* from: absolute, or in the build. */
static void link_library(const char *from, const char *to)
{
    char target[PATH_MAX], path[PATH_MAX];
    snprintf(target, sizeof(target), from[0] == '/' ? "%.0s%s" : "%s/%s", build, from);
    snprintf(path, sizeof(path), "%s/lib/%s", directory, to);
    if (symlink(target, path))
        bench_die(path);
}

bool bench_is_peer(void)
{
    return peer != NULL;
}

static void find_peer(void)
{
    static char path[PATH_MAX];
    const char *env = getenv("PEER_LIBVGPU");
    if (!env || !*env)
        return;
    peer = realpath(env, path);
    if (!peer)
        bench_die(env);
}

static void find_build(void)
{
    const char *env = getenv("ALIQUOT_BUILD");
    char self[PATH_MAX];

    if (env) {
        snprintf(build, sizeof(build), "%s", env);
        return;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        bench_die("/proc/self/exe");
    self[n] = '\0';
    snprintf(build, sizeof(build), "%.3800s", dirname(dirname(self)));
}

void bench_machine_open(const char *name)
{
    static const char devices[] =
        "{\"devices\":[{\"name\":\"NVIDIA H100 80GB HBM3\",\"memory\":\"16Gi\",\"sms\":132,"
        "\"uuid\":\"" UUID "\",\"minor\":0}]}";
    static const char *const folders[] = {"lib", "shares", "shares/bench-0", "none"};
    char path[PATH_MAX], program[PATH_MAX], line[256];
    int ends[2];

    bench_name = name;
    find_build();
    find_peer();
    strcpy(directory, "/tmp/alq-bench-XXXXXX");
    if (!mkdtemp(directory)) {
        directory[0] = '\0';
        bench_die("a folder under /tmp");
    }
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, folders[i]);
        if (mkdir(path, 0755))
            bench_die(path);
    }
    write_file("devices.json", devices, sizeof(devices) - 1);
    link_library("sim/libsimcuda-550.so", "libcuda.so.1");
    link_library("sim/libsimnvml-550.so", "libnvidia-ml.so.1");
    link_library(peer ? peer : "src/vgpu/libvgpu.so", "libvgpu.so"); /* LD_PRELOAD takes no blank */
    snprintf(path, sizeof(path), "%s/devices.json", directory);
    snprintf(program, sizeof(program), "%s/sim/simgpud", build);
    if (pipe(ends))
        bench_die("pipe");
    simgpud = fork();
    if (simgpud == 0) {
        dup2(ends[1], 1);
        execl(program, program, "--config", path, "--run-dir", directory, NULL);
        _exit(127);
    }
    close(ends[1]);
    if (read(ends[0], line, sizeof(line)) <= 0)
        bench_die("simgpud did not start");
}

void bench_share_make(uint32_t compute_pct)
{
    static struct alq_control control;
    static char usage[ALQ_USAGE_BYTES(1)];
    struct alq_usage_header *header = (struct alq_usage_header *)(void *)usage;
    control.magic = ALQ_CONTROL_MAGIC;
    control.version = ALQ_SHARE_VERSION;
    control.bytes = ALQ_CONTROL_BYTES;
    strcpy(control.gpu_uuid, UUID);
    control.values[0].memory_limit_bytes = 4ull << 30;
    control.values[0].compute_limit_pct = compute_pct;
    header->magic = ALQ_USAGE_MAGIC;
    header->version = ALQ_SHARE_VERSION;
    header->header_bytes = ALQ_USAGE_HEADER_BYTES;
    header->section_bytes = sizeof(struct alq_usage_section);
    header->section_count = 1;
    header->slot_count = ALQ_SLOTS;
    header->slot_bytes = sizeof(struct alq_slot);
    write_file("shares/bench-0/control", &control, sizeof(control));
    write_file("shares/bench-0/usage", usage, sizeof(usage));
    share_pct = compute_pct;
}

void bench_share_counters(struct alq_counters *out)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/shares/bench-0/usage", directory);
    int fd = open(path, O_RDONLY);
    off_t at = (off_t)(ALQ_USAGE_HEADER_BYTES + offsetof(struct alq_usage_section, counters));
    if (fd < 0 || pread(fd, out, sizeof(*out), at) != sizeof(*out))
        bench_die(path);
    close(fd);
}

/* The share as HAMi-core's environment has it; `env` has room for 4. */
static void tell_peer(enum bench_mode mode, char **env)
{
    static char cache[PATH_MAX], percent[64], quiet[] = "LIBCUDA_LOG_LEVEL=0";
    static char memory[] = "CUDA_DEVICE_MEMORY_LIMIT=4096m";
    /* A file for each share and none, so that a limit that it remembers is not another's. */
    snprintf(cache, sizeof(cache), "CUDA_DEVICE_MEMORY_SHARED_CACHE=%s/%d-%u.cache", directory,
             (int)mode, share_pct);
    snprintf(percent, sizeof(percent), "CUDA_DEVICE_SM_LIMIT=%u", share_pct);
    *env++ = cache;
    *env++ = quiet;
    if (mode == BENCH_SHARE) {
        *env++ = memory;
        *env++ = percent;
    }
}

/* The process becomes the program with these as its standard input and output. */
static void become(const char *program, char *argument, enum bench_mode mode, int input, int output)
{
    char path[PATH_MAX], libraries[PATH_MAX], socket[PATH_MAX], root[PATH_MAX], preload[PATH_MAX];
    char *env[8] = {libraries, socket};

    if (program[0] == '/')
        snprintf(path, sizeof(path), "%s", program);
    else
        snprintf(path, sizeof(path), "%s/bench/%s", build, program);
    snprintf(libraries, sizeof(libraries), "LD_LIBRARY_PATH=%s/lib", directory);
    snprintf(socket, sizeof(socket), "SIMGPU_SOCKET=%s/simgpud.sock", directory);
    snprintf(root, sizeof(root), "ALIQUOT_SHARE_ROOT=%s/%s", directory,
             mode == BENCH_SHARE ? "shares" : "none");
    snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/lib/libvgpu.so", directory);
    if (mode != BENCH_BARE) {
        env[2] = preload;
        if (peer)
            tell_peer(mode, env + 3);
        else
            env[3] = root;
    }
    char *args[] = {path, argument, NULL};
    if (peer && mode != BENCH_BARE) /* it may write a line for each refusal */
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
    dup2(input, 0);
    dup2(output, 1);
    execve(path, args, env);
    _exit(127);
}

struct bench_child bench_child_start(const char *program, char *argument, enum bench_mode mode)
{
    int input[2], output[2];

    if (pipe2(input, O_CLOEXEC) || pipe2(output, O_CLOEXEC))
        bench_die("pipe");
    pid_t pid = fork();
    if (pid == 0)
        become(program, argument, mode, input[0], output[1]);
    close(input[0]);
    close(output[1]);
    struct bench_child child = {fdopen(input[1], "w"), fdopen(output[0], "r"), pid};
    if (pid < 0 || !child.to || !child.from)
        bench_die(program);
    return child;
}

double bench_cpu_us(const char *program, char *argument, enum bench_mode mode, unsigned count)
{
    double us = 0;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), status, failed = 0;
    struct rusage usage;

    for (unsigned i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid == 0)
            become(program, argument, mode, null, null);
        if (pid < 0)
            bench_die("fork");
    }
    for (unsigned i = 0; i < count; i++) {
        if (wait4(-1, &status, 0, &usage) < 0)
            bench_die("wait4");
        failed |= status;
        us += (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
              (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    }
    close(null);
    if (failed) {
        fprintf(stderr, "%s: %s ended with wait status %d\n", bench_name, program, failed);
        bench_machine_close();
        exit(1);
    }
    return us / count;
}

void bench_child_end(const struct bench_child *child)
{
    int status = 0;
    fclose(child->to);
    fclose(child->from);
    if (waitpid(child->pid, &status, 0) != child->pid)
        bench_die("waitpid");
    if (status) {
        fprintf(stderr, "%s: the measured program ended with wait status %d\n", bench_name, status);
        bench_machine_close();
        exit(1);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void bench_sort(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), by_value);
}
