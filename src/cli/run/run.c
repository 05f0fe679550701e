/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot run: a program under a share of its own. The standalone daemon makes the share and keeps
 * it for as long as this process lives; without a daemon the limits are in the environment, and
 * nobody else is held to them. The program's own namespaces are space.c, its life tend.c.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/run/figures.h"
#include "cli/run/library.h"
#include "cli/run/space.h"
#include "cli/run/tend.h"

#define RUNS_PATH "/v1/standalone/runs"
#define CLAIM_PATH "/v1/standalone/claims/"
#define HIDDEN_MAX 64u

struct run {
    const struct alq_cli *cli;
    const char *memory, *cores; /* as given; NULL: not */
    uint64_t memory_bytes;
    uint32_t cores_pct;
    char *library; /* owned, as is what follows */
    json_t *claim; /* the daemon's answer; NULL: voluntary */
    char *dir;     /* of this run alone: the usage file without a daemon, links for --preload-env */
    struct alq_space_share shares[ALQ_RUN_GPUS_MAX]; /* of the claim */
    size_t share_count;
    unsigned hidden[HIDDEN_MAX];
    size_t hidden_count;
};

static void run_fini(struct run *r)
{
    if (r->dir)
        alq_file_remove_tree(r->dir, NULL);
    free(r->dir);
    free(r->library);
    json_decref(r->claim);
}

static int has(const struct run *r, const char *option)
{
    return alq_cli_value(r->cli, option) != NULL;
}

/* ---- what is asked ----------------------------------------------------------------------------
 */

/* "0,1": none of them may get lost on the way to the daemon. */
static int check_gpus(const struct alq_cli *cli)
{
    for (size_t i = 0; i < cli->given_count; i++) {
        const char *value = cli->given[i].value;
        if (strcmp(cli->given[i].option->name, "gpu") != 0)
            continue;
        alq_auto_json json_t *text = json_string(value);
        if (!text || *value == ',' || strstr(value, ",,") || value[strlen(value) - 1] == ',')
            return alq_cli_usage(&alq_cli_run, "--gpu: \"%.200s\" is no GPU, or list of them",
                                 value);
    }
    return 0;
}

static int parse(struct run *r)
{
    struct alq_err err = ALQ_ERR_INIT;
    r->memory = alq_cli_value(r->cli, "memory");
    r->cores = alq_cli_value(r->cli, "cores");
    if (!r->cli->argc)
        return alq_cli_usage(&alq_cli_run, "which program? write it behind --");
    if (!r->memory && !r->cores)
        return alq_cli_usage(&alq_cli_run, "how much? give --memory, --cores or both");
    if (r->memory && alq_bytes_parse(r->memory, 0, &r->memory_bytes, &err))
        return alq_cli_usage(&alq_cli_run, "--memory: %s", err.text);
    if (r->memory && r->memory_bytes < 1u << 20)
        return alq_cli_usage(&alq_cli_run, "--memory: \"%s\" is less than 1Mi", r->memory);
    int rc = r->cores ? alq_cli_cores(&alq_cli_run, r->cores, &r->cores_pct) : 0;
    if (!rc)
        rc = check_gpus(r->cli);
    if (rc)
        return rc;
    r->library = alq_run_library(alq_cli_value(r->cli, "library"), &err);
    return r->library ? 0 : alq_cli_fail("%s", err.text);
}

/* "0,1" and repeated options alike. */
static json_t *gpus_json(const struct alq_cli *cli)
{
    json_t *gpus = json_array();
    for (size_t i = 0; i < cli->given_count; i++) {
        if (strcmp(cli->given[i].option->name, "gpu") != 0)
            continue;
        for (const char *p = cli->given[i].value; *p; p += strspn(p, ",")) {
            size_t len = strcspn(p, ",");
            if (len)
                json_array_append_new(gpus, json_stringn(p, len));
            p += len;
        }
    }
    return gpus;
}

static json_t *wish_json(const struct run *r)
{
    char bytes[24];
    json_t *wish = json_pack("{s:o}", "gpus", gpus_json(r->cli));
    snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)r->memory_bytes);
    if (wish && r->memory)
        json_object_set_new(wish, "memory", json_string(bytes));
    if (wish && r->cores)
        json_object_set_new(wish, "cores", json_integer(r->cores_pct));
    return wish;
}

/* ---- who keeps it -----------------------------------------------------------------------------
 */

static void take_claim(struct run *r)
{
    size_t i;
    const json_t *item;
    json_array_foreach (json_object_get(r->claim, "devices"), i, item) {
        const char *id = alq_json_str(item, "share"), *dir = alq_json_str(item, "directory");
        if (id && dir && r->share_count < ALQ_RUN_GPUS_MAX)
            r->shares[r->share_count++] = (struct alq_space_share){id, dir};
    }
    json_array_foreach (json_object_get(r->claim, "otherMinors"), i, item)
        if (r->hidden_count < HIDDEN_MAX)
            r->hidden[r->hidden_count++] = (unsigned)json_integer_value(item);
}

/* 0 with r->claim set, or without one where the limit is voluntary. */
static int ask_daemon(struct run *r)
{
    struct alq_err err = ALQ_ERR_INIT;
    int status = 0;
    if (has(r, "voluntary"))
        return 0;
    alq_auto_json json_t *wish = wish_json(r);
    if (!wish)
        return alq_cli_fail("out of memory");
    if (!alq_client_ask(r->cli->socket, "POST", RUNS_PATH, wish, &status, &r->claim, &err)) {
        take_claim(r);
        return 0;
    }
    if (err.code == ALQ_ENOENT && status == 404 && strstr(err.text, RUNS_PATH))
        return alq_cli_fail("the aliquotd here serves a kubelet and gives shares to pods alone; "
                            "--voluntary runs the program without it");
    if (err.code == ALQ_EACCES && !status)
        return alq_cli_fail("%s; the aliquotd there is not --standalone, or not for you; "
                            "--voluntary runs the program without it",
                            err.text);
    if (status || err.code != ALQ_ENOENT)
        return alq_cli_fail("%s", err.text);
    fprintf(stderr,
            "aliquot: %s: the limit is voluntary, it holds for this program and keeps no other "
            "from the GPU\n",
            err.text);
    return 0;
}

static void end_claim(const struct run *r)
{
    const char *uid = alq_json_str(r->claim, "uid");
    alq_auto_free char *path = alq_str_printf(CLAIM_PATH "%s", uid ? uid : "");
    alq_auto_json json_t *answer = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    int status = 0;
    if (!uid || !path ||
        !alq_client_ask(r->cli->socket, "DELETE", path, NULL, &status, &answer, &err))
        return;
    if (status == 409)
        fputs("aliquot: processes that the program has left still use its share, which ends with "
              "them\n",
              stderr);
}

/* ---- the program's surroundings ---------------------------------------------------------------
 */

static int make_dir(struct run *r, struct alq_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    const char *const places[] = {runtime && *runtime == '/' ? runtime : "/dev/shm", "/tmp"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        alq_auto_free char *dir = alq_str_printf("%s/aliquot-run-XXXXXX", places[i]);
        if (dir && mkdtemp(dir)) {
            r->dir = alq_steal(&dir);
            return 0;
        }
    }
    return alq_err_errno(err, errno, "a directory in %s or %s", places[0], places[1]);
}

static int put(const char *name, const char *value, struct alq_err *err)
{
    return value && !setenv(name, value, 1) ? 0 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

/* "a,b"; NULL when out of memory. */
static void add_word(char **list, const char *word)
{
    char *longer = *list ? alq_str_printf("%s%s%s", *list, **list ? "," : "", word) : NULL;
    free(*list);
    *list = longer;
}

/* HAMi-core's variables, which the library takes where there is no share directory. */
static int set_voluntary(struct run *r, struct alq_err *err)
{
    char number[24];
    alq_auto_free char *usage = alq_str_printf("%s/usage", r->dir);
    alq_auto_json json_t *gpus = gpus_json(r->cli);
    alq_auto_free char *visible = strdup("");
    size_t i;
    const json_t *gpu;
    int rc = put("CUDA_DEVICE_MEMORY_SHARED_CACHE", usage, err);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)r->memory_bytes);
    if (!rc && r->memory)
        rc = put("CUDA_DEVICE_MEMORY_LIMIT", number, err);
    snprintf(number, sizeof(number), "%u", (unsigned)r->cores_pct);
    if (!rc && r->cores)
        rc = put("CUDA_DEVICE_SM_LIMIT", number, err);
    json_array_foreach (gpus, i, gpu) {
        const char *word = json_string_value(gpu);
        if (word[strspn(word, "0123456789")] && strncmp(word, "GPU-", 4) != 0)
            return alq_err_set(err, ALQ_EINVAL,
                               "--gpu: \"%.64s\": without a daemon give a number or a UUID", word);
        add_word(&visible, word);
    }
    if (!rc && json_array_size(gpus))
        rc = put("CUDA_DEVICE_ORDER", "PCI_BUS_ID", err); /* NVML's, by which GPUs are numbered */
    if (!rc && json_array_size(gpus))
        rc = put("CUDA_VISIBLE_DEVICES", visible, err);
    return rc;
}

/* Only the GPUs that it has a share of. */
static int set_visible(const struct run *r, struct alq_err *err)
{
    alq_auto_free char *visible = strdup("");
    size_t i;
    const json_t *device;
    json_array_foreach (json_object_get(r->claim, "devices"), i, device) {
        const char *gpu = alq_json_str(device, "gpu");
        if (!gpu || (visible && strstr(visible, gpu)))
            continue; /* two shares of one GPU */
        add_word(&visible, gpu);
    }
    return put("CUDA_VISIBLE_DEVICES", visible, err);
}

/* --preload-env: by variables alone. The share directories are where they are on the host, so a
 * directory of links has this run's and no others. */
static int set_preload(const struct run *r, struct alq_err *err)
{
    const char *have = getenv("LD_PRELOAD");
    alq_auto_free char *preload =
        alq_str_printf("%s%s%s", r->library, have && *have ? ":" : "", have ? have : "");
    int rc = put("LD_PRELOAD", preload, err);
    if (!rc && r->claim)
        rc = put("ALIQUOT_SHARE_ROOT", r->dir, err);
    for (size_t i = 0; !rc && i < r->share_count; i++) {
        alq_auto_free char *link = alq_str_printf("%s/%s", r->dir, r->shares[i].id);
        if (!link || symlink(r->shares[i].directory, link))
            rc = alq_err_errno(err, errno, "making %s", link ? link : "a link");
    }
    return rc;
}

/* In the child. */
static int prepare(void *arg, struct alq_err *err)
{
    struct run *r = arg;
    const struct alq_space space = {.library = r->library,
                                    .shares = r->shares,
                                    .share_count = r->share_count,
                                    .hidden = r->hidden,
                                    .hidden_count = r->hidden_count};
    int rc = r->claim ? set_visible(r, err) : set_voluntary(r, err);
    if (rc)
        return rc;
    return has(r, "preload-env") ? set_preload(r, err) : alq_space_enter(&space, err);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

static void print_summary(const struct run *r, int status)
{
    struct alq_run_figures figures[ALQ_RUN_GPUS_MAX];
    size_t count = 0, i;
    const json_t *device;
    memset(figures, 0, sizeof(figures));
    json_array_foreach (json_object_get(r->claim, "devices"), i, device) {
        alq_auto_free char *path = alq_str_printf("%s/usage", alq_json_str(device, "directory"));
        if (count == ALQ_RUN_GPUS_MAX)
            break;
        struct alq_run_figures *f = &figures[count++];
        snprintf(f->gpu, sizeof(f->gpu), "%s", alq_json_str(device, "gpu"));
        snprintf(f->device, sizeof(f->device), "%s", alq_json_str(device, "device"));
        f->memory_bytes = (uint64_t)json_integer_value(json_object_get(device, "memoryBytes"));
        f->cores_pct = (uint32_t)json_integer_value(json_object_get(device, "cores"));
        if (path)
            alq_run_figures_read(path, figures, &count);
    }
    if (!r->claim) {
        alq_auto_free char *path = alq_str_printf("%s/usage", r->dir);
        if (path)
            alq_run_figures_read(path, figures, &count);
    }
    alq_run_figures_print(figures, count, status, !r->claim, r->cli->is_json);
}

/* The library takes the share that it finds in the place of shares before what variables say. */
static int has_share_already(void)
{
    alq_auto_closedir DIR *dir = opendir(ALQ_SHARE_ROOT);
    for (const struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            return 1;
    return 0;
}

static int run_program(struct run *r)
{
    struct alq_err err = ALQ_ERR_INIT;
    int status = 0;
    if (has(r, "preload-env") && has_share_already())
        return alq_cli_fail("--preload-env: there is a share in " ALQ_SHARE_ROOT
                            " already, which would hold in place of this one; run it without");
    if (has(r, "preload-env"))
        fputs("aliquot: --preload-env: a program that clears its environment, or has more rights "
              "than you, is not limited\n",
              stderr);
    if ((!r->claim || has(r, "preload-env")) && make_dir(r, &err))
        return alq_cli_fail("%s", err.text);
    fflush(stdout);
    if (alq_tend(r->cli->argv, prepare, r, &status, &err)) {
        alq_cli_fail("%s", err.text);
        return status ? status : ALQ_CLI_FAILED;
    }
    if (!has(r, "quiet"))
        print_summary(r, status);
    return status;
}

static int run(const struct alq_cli *cli)
{
    struct run r = {.cli = cli};
    int rc = parse(&r);
    if (!rc)
        rc = ask_daemon(&r);
    if (!rc) {
        rc = run_program(&r);
        end_claim(&r);
    }
    run_fini(&r);
    return rc;
}

const struct alq_cli_command alq_cli_run = {
    .name = "run",
    .arguments = "[--gpu GPU]... [--memory SIZE] [--cores PERCENT] -- PROGRAM [ARGUMENT]...",
    .summary = "runs a program with a share of a GPU",
    .help = "The program and its children together get so much memory and so much of the GPU's\n"
            "time. aliquotd --standalone keeps the share for as long as this command runs; where\n"
            "no daemon answers the limit is voluntary: it holds for the program alone. The\n"
            "program sees /etc/ld.so.preload in namespaces of its own, which need no root where\n"
            "the machine lets users have them. What it used is told on stderr at its end. Of\n"
            "what is not given (memory or cores) it gets all.\n"
            "\n"
            "Exit status: the program's own; 128+N when signal N ended it; 127 when there is no\n"
            "such program, 126 when it cannot be run; 1 and 2 as for all commands before that.\n",
    .options =
        (const struct alq_cli_option[]){
            {.name = "gpu",
             .letter = 'g',
             .value = "GPU",
             .summary = "number, UUID or device; several: one share of each [any with room]",
             .words = ALQ_CLI_GPUS},
            {.name = "memory",
             .letter = 'm',
             .value = "SIZE",
             .summary = "4Gi, 4096Mi, 1.5G, or bytes"},
            {.name = "cores",
             .letter = 'c',
             .value = "PERCENT",
             .summary = "of the GPU's time, 0 to 100"},
            {.name = "voluntary", .summary = "asks no daemon"},
            {.name = "preload-env",
             .summary = "LD_PRELOAD in place of namespaces; easily lost, see docs"},
            {.name = "library",
             .value = "FILE",
             .summary = "libvgpu.so [beside this program]",
             .words = ALQ_CLI_FILES},
            {.name = "quiet", .letter = 'q', .summary = "no summary at the end"},
            {.name = NULL},
        },
    .examples =
        (const struct alq_cli_example[]){
            {"aliquot run --gpu 0 --memory 4Gi --cores 30 -- python train.py",
             "4 GiB and 30 percent of the first GPU"},
            {"aliquot run -m 8Gi -c 50 -o json -- ./bench 2>usage.json",
             "of any GPU that has so much left; the summary as JSON"},
            {"aliquot run --voluntary --memory 4Gi -- ./program", "without a daemon"},
            {0},
        },
    .takes_program = 1,
    .run = run,
};
