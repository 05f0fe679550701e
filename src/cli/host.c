/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine itself, see host.h.
 */
#include "cli/host.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/monotonic.h"

#define ANSWER_MS 5000 /* of a program, in all */
#define NS_PER_MS 1000000
#define SPEC_BYTES_MAX (4u << 20)

extern char **environ;

/*
 * From which version on a program is good, and what is wrong below. Rows of a program from the
 * lowest version up; the first whose bound is above the version counts. Sources: the programs'
 * release notes, and for containerd and podman what they did with a spec.
 */
static const struct {
    const char *program;
    struct alq_version below;
    const char *level, *remedy;
} rows[] = {
    {"kubelet",
     {{1, 34, 0}},
     "error",
     "Kubernetes 1.34 is the first that shares a device by capacity; update it"},
    {"containerd",
     {{1, 7, 0}},
     "warning",
     "it has no CDI reader: if the kubelet uses it, containers get no GPU; update to 1.7 or newer"},
    {"containerd",
     {{2, 0, 0}},
     "warning",
     "CDI is off unless its config.toml has enable_cdi = true in the CRI plugin's section"},
    {"crio",
     {{1, 23, 0}},
     "warning",
     "it has no CDI reader: if the kubelet uses it, containers get no GPU; update it"},
    {"podman",
     {{4, 1, 0}},
     "warning",
     "it has no CDI reader: --device of a claim is not found; update it"},
    {"docker",
     {{25, 0, 0}},
     "warning",
     "it has no CDI reader: --device of a claim is not found; update it"},
    {"docker",
     {{28, 2, 0}},
     "warning",
     "CDI is off unless daemon.json has {\"features\": {\"cdi\": true}}"},
    {"runc",
     {{1, 0, 0}},
     "warning",
     "older than any that aliquot's hook was tried with; update it"},
    {"crun",
     {{1, 0, 0}},
     "warning",
     "older than any that aliquot's hook was tried with; update it"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static char programs[][12] = {"kubelet", "containerd", "crio", "podman", "docker", "runc", "crun"};

static void add(json_t *findings, const char *id, const char *level, const char *remedy,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static void add(json_t *findings, const char *id, const char *level, const char *remedy,
                const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json_array_append_new(findings, json_pack("{s:s, s:s, s:s, s:s*}", "id", id, "level", level,
                                              "text", text, "remedy", remedy));
}

/* ---- programs ---------------------------------------------------------------------------------
 */

int alq_version_find(const char *text, struct alq_version *version)
{
    for (const char *c = text; *c; c++) {
        if (!isdigit((unsigned char)*c) ||
            (c != text && (isdigit((unsigned char)c[-1]) || c[-1] == '.')))
            continue;
        *version = (struct alq_version){0};
        if (sscanf(c, "%5d.%5d.%5d", &version->part[0], &version->part[1], &version->part[2]) >= 2)
            return 0;
    }
    return -1;
}

int alq_version_cmp(const struct alq_version *a, const struct alq_version *b)
{
    for (int i = 0; i < 3; i++)
        if (a->part[i] != b->part[i])
            return a->part[i] < b->part[i] ? -1 : 1;
    return 0;
}

const char *alq_host_judge(const char *program, const struct alq_version *version,
                           const char **remedy)
{
    for (size_t i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].program, program) && alq_version_cmp(version, &rows[i].below) < 0) {
            *remedy = rows[i].remedy;
            return rows[i].level;
        }
    *remedy = NULL;
    return "ok";
}

/* The first bytes that `program --version` writes within a time, "" where it says nothing; -1: it
 * is not there. */
static int ask_version(char *program, char *answer, size_t size)
{
    int ends[2];
    pid_t pid;
    size_t len = 0;
    char option[] = "--version", *const argv[] = {program, option, NULL};
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int rc = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    struct pollfd in = {.fd = ends[0], .events = POLLIN};
    const int64_t until_ns = alq_now_ns() + (int64_t)ANSWER_MS * NS_PER_MS;
    for (int64_t left_ns; !rc && len + 1 < size && (left_ns = until_ns - alq_now_ns()) > 0;) {
        if (poll(&in, 1, (int)(left_ns / NS_PER_MS) + 1) <= 0)
            break;
        ssize_t n = read(ends[0], answer + len, size - 1 - len);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    answer[len] = '\0';
    close(ends[0]);
    if (rc)
        return -1;
    kill(pid, SIGKILL); /* it has said enough, or nothing in all that time */
    waitpid(pid, NULL, 0);
    return 0;
}

static void look_at_programs(json_t *findings)
{
    int found = 0;
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
        char answer[512], id[64];
        struct alq_version v;
        const char *remedy, *level;
        if (ask_version(programs[i], answer, sizeof(answer)))
            continue;
        found++;
        snprintf(id, sizeof(id), "host.%.12s", programs[i]);
        if (alq_version_find(answer, &v)) {
            add(findings, id, "warning", "run it: it hangs, or is not what its name says",
                "%s --version tells no version within %d s", programs[i], ANSWER_MS / 1000);
            continue;
        }
        level = alq_host_judge(programs[i], &v, &remedy);
        add(findings, id, level, remedy, "%s is %d.%d.%d", programs[i], v.part[0], v.part[1],
            v.part[2]);
    }
    if (!found)
        add(findings, "host.runtimes", "warning", "run aliquot on the host, with its PATH",
            "no kubelet and no container runtime is in PATH here: their versions were not looked "
            "at");
}

/* ---- files ------------------------------------------------------------------------------------
 */

/* "vendor/class" with a vendor or class of one character: containerd 1.7 and podman 4.3 end with a
 * panic as they read it, whoever's it is. */
static int is_deadly(const char *kind)
{
    const char *slash = strchr(kind, '/');
    return slash && (slash - kind == 1 || strlen(slash + 1) == 1);
}

static int look_at_spec(json_t *findings, const char *dir, const char *name)
{
    alq_auto_free char *path = alq_str_printf("%s/%s", dir, name), *data = NULL;
    alq_auto_json json_t *spec = NULL;
    size_t len = 0;
    size_t end = strlen(name);
    if (!path || end < 5 || strcmp(name + end - 5, ".json") != 0)
        return 0;
    if (alq_file_read_target(path, SPEC_BYTES_MAX, &data, &len, NULL))
        return 0;
    if (alq_json_parse(data, len, path, &spec, NULL) || !alq_json_str(spec, "kind")) {
        add(findings, "host.cdi-specs", "warning",
            "whoever wrote it must write it anew, or remove it",
            "%s is no CDI spec; readers leave it out or refuse all", path);
        return 1;
    }
    if (!is_deadly(alq_json_str(spec, "kind")))
        return 0;
    add(findings, "host.cdi-specs", "error",
        "remove it, or give its kind a vendor and a class of two characters or more",
        "%s has kind \"%.80s\": containerd and podman crash on a vendor or class of one character",
        path, alq_json_str(spec, "kind"));
    return 1;
}

static void look_at_specs(json_t *findings)
{
    static const char *const dirs[] = {"/etc/cdi", "/var/run/cdi"};
    unsigned count = 0, flawed = 0;
    for (size_t i = 0; i < 2; i++) {
        alq_auto_closedir DIR *dir = opendir(dirs[i]);
        for (const struct dirent *e; dir && (e = readdir(dir)); count++)
            flawed += (unsigned)look_at_spec(findings, dirs[i], e->d_name);
    }
    if (!flawed)
        add(findings, "host.cdi-specs", "ok", NULL,
            "no CDI spec below /etc/cdi and /var/run/cdi is known to crash a reader");
}

/* Another library of the kind on the host itself. */
static void look_at_preload(json_t *findings)
{
    alq_auto_free char *data = NULL;
    size_t len;
    if (alq_file_read_target("/etc/ld.so.preload", 1 << 20, &data, &len, NULL))
        add(findings, "host.preload", "ok", NULL,
            "this machine has no /etc/ld.so.preload of its own");
    else if (strstr(data, "vgpu"))
        add(findings, "host.preload", "warning",
            "take the line out: containers get the library through CDI, aliquot run by itself",
            "/etc/ld.so.preload of this machine names a vGPU library for every process");
    else
        add(findings, "host.preload", "ok", NULL,
            "/etc/ld.so.preload of this machine names no vGPU library");
}

static void look_at_kernel(json_t *findings)
{
    static const struct alq_version least = {{4, 14, 0}};
    struct utsname name;
    struct alq_version v;
    if (uname(&name) || alq_version_find(name.release, &v))
        return;
    int is_old = alq_version_cmp(&v, &least) < 0;
    add(findings, "host.kernel", is_old ? "error" : "ok",
        is_old ? "update the kernel: 4.14 is the first with MADV_WIPEONFORK, by which a fork is "
                 "noticed"
               : NULL,
        "the kernel is %.60s", name.release);
}

void alq_host_look(json_t *findings)
{
    look_at_kernel(findings);
    look_at_programs(findings);
    look_at_specs(findings);
    look_at_preload(findings);
}
