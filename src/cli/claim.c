/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot claim: ResourceClaims on a machine without a cluster. aliquotd --standalone reads the
 * manifests and keeps the claims; this sends files and prints what comes back.
 */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/table.h"

#define API_PATH "/v1/standalone"
#define CLAIMS_PATH API_PATH "/claims"
#define NAMES_PATH API_PATH "/names"
#define FILE_MAX_BYTES 65536u

/* ---- asking -----------------------------------------------------------------------------------
 */

static int ask(const struct alq_cli *cli, const char *method, const char *path, const char *body,
               json_t **answer)
{
    struct alq_err err = ALQ_ERR_INIT;
    int status = 0;
    if (!alq_client_send(cli->socket, method, path, body, &status, answer, &err)) {
        if (!cli->is_json)
            alq_client_clean(*answer);
        return 0;
    }
    if (status == 404 && strstr(err.text, API_PATH))
        return alq_cli_fail("the aliquotd here serves a kubelet: claims are the API server's "
                            "(kubectl apply)");
    if (!status && (err.code == ALQ_ENOENT || err.code == ALQ_EACCES))
        return alq_cli_fail("%s; claims need aliquotd --standalone (systemctl start "
                            "aliquotd-standalone)",
                            err.text);
    return alq_cli_fail("%s", err.text);
}

static int read_stream(FILE *file, const char *name, char **text)
{
    size_t len = 0;
    char *data = malloc(FILE_MAX_BYTES + 1);
    if (!data)
        return alq_cli_fail("out of memory");
    len = fread(data, 1, FILE_MAX_BYTES + 1, file);
    if (ferror(file) || len > FILE_MAX_BYTES || memchr(data, '\0', len)) {
        const char *why = ferror(file)           ? strerror(errno)
                          : len > FILE_MAX_BYTES ? "more than 64 KiB; split it"
                                                 : "this is no YAML file";
        free(data);
        return alq_cli_fail("%s: %s", name, why);
    }
    data[len] = '\0';
    *text = data;
    return 0;
}

static int read_file(const char *name, char **text)
{
    if (!strcmp(name, "-"))
        return read_stream(stdin, "standard input", text);
    alq_auto_fclose FILE *file = fopen(name, "re");
    return file ? read_stream(file, name, text) : alq_cli_fail("%s: %s", name, strerror(errno));
}

/* All that -f names, as one stream of documents. */
static int read_files(const struct alq_cli *cli, char **text)
{
    for (size_t i = 0; i < cli->given_count; i++) {
        alq_auto_free char *more = NULL, *before = alq_steal(text);
        if (strcmp(cli->given[i].option->name, "filename") != 0) {
            *text = alq_steal(&before);
            continue;
        }
        int rc = read_file(cli->given[i].value, &more);
        if (rc)
            return rc;
        *text = alq_str_printf("%s%s%s", before ? before : "", before ? "\n---\n" : "", more);
        if (!*text)
            return alq_cli_fail("out of memory");
    }
    if (!*text)
        return alq_cli_usage(cli->command, "which file? give -f FILE");
    return strlen(*text) > FILE_MAX_BYTES ? alq_cli_fail("more than 64 KiB in all; split it") : 0;
}

/* ---- printing ---------------------------------------------------------------------------------
 */

static const char *bytes_text(const json_t *device, char *buf)
{
    alq_quantity_format(
        alq_quantity_from_u64((uint64_t)json_integer_value(json_object_get(device, "memoryBytes"))),
        1, buf);
    return buf;
}

static void print_devices(const json_t *claim)
{
    size_t i;
    const json_t *device;
    char memory[ALQ_QUANTITY_TEXT_BYTES];
    json_array_foreach (json_object_get(claim, "devices"), i, device)
        printf("  --device %s    # %s: %s, %d %% of %s\n", alq_json_text(device, "cdi"),
               alq_json_text(device, "request"), bytes_text(device, memory),
               (int)json_integer_value(json_object_get(device, "cores")),
               alq_json_text(device, "device"));
}

static const char *owner_of(const json_t *claim, char *buf, size_t size)
{
    unsigned uid = (unsigned)json_integer_value(json_object_get(claim, "owner"));
    const struct passwd *user = getpwuid((uid_t)uid);
    if (user)
        snprintf(buf, size, "%s", user->pw_name);
    else
        snprintf(buf, size, "%u", uid);
    return buf;
}

/* ---- apply ------------------------------------------------------------------------------------
 */

static int print_result(const json_t *result)
{
    const char *what = alq_json_text(result, "result"), *note = alq_json_text(result, "note");
    if (!strcmp(what, "failed")) {
        fprintf(stderr, "aliquot: %s %s: %s\n", alq_json_text(result, "kind"),
                alq_json_text(result, "name"), alq_json_text(result, "error"));
        return ALQ_CLI_FAILED;
    }
    printf("%s %s %s%s%s\n", alq_json_text(result, "kind"), alq_json_text(result, "name"), what,
           *note ? ": " : "", note);
    print_devices(json_object_get(result, "claim"));
    return ALQ_CLI_OK;
}

static int run_apply(const struct alq_cli *cli)
{
    alq_auto_free char *files = NULL;
    alq_auto_json json_t *answer = NULL;
    size_t i;
    const json_t *result;
    int rc = read_files(cli, &files);
    if (!rc)
        rc = ask(cli, "POST", CLAIMS_PATH, files, &answer);
    if (rc)
        return rc;
    if (cli->is_json)
        alq_client_print(answer);
    json_array_foreach (json_object_get(answer, "results"), i, result)
        rc |= cli->is_json ? !strcmp(alq_json_text(result, "result"), "failed")
                           : print_result(result);
    return rc;
}

/* ---- list and describe ------------------------------------------------------------------------
 */

static int list(const struct alq_cli *cli, json_t **answer)
{
    return ask(cli, "GET", CLAIMS_PATH, NULL, answer);
}

static void add_rows(struct alq_table *t, const json_t *claim)
{
    size_t i;
    const json_t *device, *devices = json_object_get(claim, "devices");
    char owner[64];
    if (!json_array_size(devices)) {
        alq_table_add(t, "%s", alq_json_text(claim, "name"));
        alq_table_add(t, "%s", owner_of(claim, owner, sizeof(owner)));
        for (int k = 0; k < 3; k++)
            alq_table_add(t, "-");
        alq_table_add(t, "not prepared");
    }
    json_array_foreach (devices, i, device) {
        alq_table_add(t, "%s", alq_json_text(claim, "name"));
        alq_table_add(t, "%s", owner_of(claim, owner, sizeof(owner)));
        alq_table_add(t, "%s", alq_json_text(device, "device"));
        alq_table_add_bytes(t,
                            (uint64_t)json_integer_value(json_object_get(device, "memoryBytes")));
        alq_table_add(t, "%d", (int)json_integer_value(json_object_get(device, "cores")));
        alq_table_add(t, "%s", alq_json_text(device, "cdi"));
    }
}

/* Claims of files are found by their names; the daemon's YAML is the one that there is, so it is
 * asked what the files hold. */
static int names_of_files(const struct alq_cli *cli, json_t **names)
{
    alq_auto_free char *files = NULL;
    int rc = read_files(cli, &files);
    return rc ? rc : ask(cli, "POST", NAMES_PATH, files, names);
}

static int has_name(const json_t *names, const json_t *claim)
{
    size_t i;
    const json_t *name;
    json_array_foreach (names, i, name)
        if (!strcmp(json_string_value(name), alq_json_text(claim, "name")))
            return 1;
    return 0;
}

/* What is listed: all, or those of the files. */
static int list_wanted(const struct alq_cli *cli, json_t **answer)
{
    alq_auto_json json_t *names = NULL;
    int rc = list(cli, answer);
    if (rc || !alq_cli_value(cli, "filename"))
        return rc;
    rc = names_of_files(cli, &names);
    json_t *claims = json_object_get(*answer, "claims");
    for (size_t i = json_array_size(claims); !rc && i; i--)
        if (!has_name(json_object_get(names, "names"), json_array_get(claims, i - 1)))
            json_array_remove(claims, i - 1);
    return rc;
}

static int run_list(const struct alq_cli *cli)
{
    static const char *const headings[] = {"CLAIM", "OWNER",  "GPU", "MEMORY",
                                           "CORES", "DEVICE", NULL};
    alq_auto_json json_t *answer = NULL;
    size_t i;
    const json_t *claim;
    int rc = list_wanted(cli, &answer);
    if (rc)
        return rc;
    if (cli->is_json) {
        alq_client_print(answer);
        return ALQ_CLI_OK;
    }
    struct alq_table *t = alq_table_new(headings);
    json_array_foreach (json_object_get(answer, "claims"), i, claim)
        if (t)
            add_rows(t, claim);
    rc = t ? alq_table_print(t) : -1;
    alq_table_free(t);
    return rc ? alq_cli_fail("out of memory") : ALQ_CLI_OK;
}

/* The uid of a claim by its name or uid: one's own first, else the only one of the name. */
static int find(const json_t *answer, const char *name, const char **uid)
{
    size_t i;
    const json_t *claim, *found = NULL;
    int count = 0;
    json_array_foreach (json_object_get(answer, "claims"), i, claim) {
        int is_own = (uid_t)json_integer_value(json_object_get(claim, "owner")) == geteuid();
        int is_named = !strcmp(alq_json_text(claim, "name"), name);
        if (!strcmp(alq_json_text(claim, "uid"), name) || (is_named && is_own)) {
            *uid = alq_json_text(claim, "uid");
            return 0;
        }
        if (is_named)
            found = claim;
        count += is_named;
    }
    if (count > 1)
        return alq_cli_fail("%d users have a claim %s; give its uid (aliquot claim list -o json)",
                            count, name);
    if (!found)
        return alq_cli_fail("there is no claim %s; aliquot claim list shows those there are", name);
    *uid = alq_json_text(found, "uid");
    return 0;
}

/* Every claim that operands and files name. */
static int each_named(const struct alq_cli *cli,
                      int (*each)(const struct alq_cli *cli, const char *name, const char *uid))
{
    alq_auto_json json_t *all = NULL, *names = NULL;
    size_t i;
    const json_t *name;
    const char *uid = NULL;
    int rc = 0;
    if (!cli->argc && !alq_cli_value(cli, "filename"))
        return alq_cli_usage(cli->command, "which claim? give names, or -f FILE");
    if (alq_cli_value(cli, "filename"))
        rc = names_of_files(cli, &names);
    if (!rc)
        rc = list(cli, &all);
    if (rc)
        return rc;
    for (int k = 0; k < cli->argc; k++)
        rc |= find(all, cli->argv[k], &uid) || each(cli, cli->argv[k], uid);
    json_array_foreach (json_object_get(names, "names"), i, name)
        rc |= find(all, json_string_value(name), &uid) || each(cli, json_string_value(name), uid);
    return rc;
}

static void describe(const json_t *claim)
{
    size_t i;
    const json_t *device;
    char buf[64];
    printf("Claim:    %s\nUID:      %s\nOwner:    %s\n", alq_json_text(claim, "name"),
           alq_json_text(claim, "uid"), owner_of(claim, buf, sizeof(buf)));
    if (json_object_get(claim, "process"))
        printf("Process:  %d (aliquot run; the claim ends with it)\n",
               (int)json_integer_value(json_object_get(claim, "process")));
    printf("Prepared: %s\n", json_is_true(json_object_get(claim, "prepared"))
                                 ? "yes"
                                 : "no; aliquotd tries again, see its log");
    json_array_foreach (json_object_get(claim, "devices"), i, device)
        printf("Request %s:\n  GPU:    %s (%s)\n  Memory: %s\n  Cores:  %d %%\n  Share:  %s\n"
               "  podman, docker, nerdctl: --device %s\n",
               alq_json_text(device, "request"), alq_json_text(device, "device"),
               alq_json_text(device, "gpu"), bytes_text(device, buf),
               (int)json_integer_value(json_object_get(device, "cores")),
               alq_json_text(device, "share"), alq_json_text(device, "cdi"));
}

static int describe_one(const struct alq_cli *cli, const char *name, const char *uid)
{
    (void)name;
    alq_auto_json json_t *claim = NULL;
    alq_auto_free char *path = alq_str_printf(CLAIMS_PATH "/%s", uid);
    int rc = path ? ask(cli, "GET", path, NULL, &claim) : alq_cli_fail("out of memory");
    if (!rc && cli->is_json)
        alq_client_print(claim);
    else if (!rc)
        describe(claim);
    return rc;
}

static int run_describe(const struct alq_cli *cli)
{
    return each_named(cli, describe_one);
}

/* ---- delete -----------------------------------------------------------------------------------
 */

static int delete_one(const struct alq_cli *cli, const char *name, const char *uid)
{
    alq_auto_json json_t *answer = NULL;
    alq_auto_free char *path = alq_str_printf(CLAIMS_PATH "/%s", uid);
    int rc = path ? ask(cli, "DELETE", path, NULL, &answer) : alq_cli_fail("out of memory");
    if (!rc && !cli->is_json)
        printf("ResourceClaim %s deleted\n", name);
    else if (!rc)
        printf("{\"deleted\": \"%s\"}\n", uid);
    return rc;
}

static int run_delete(const struct alq_cli *cli)
{
    return each_named(cli, delete_one);
}

/* ---- rows -------------------------------------------------------------------------------------
 */

#define FILE_OPTION                                                                                \
    {                                                                                              \
        .name = "filename", .letter = 'f', .value = "FILE",                                        \
        .summary = "manifests; - is standard input; may be repeated", .words = ALQ_CLI_FILES       \
    }

const struct alq_cli_command alq_cli_claim_apply = {
    .name = "claim apply",
    .arguments = "-f FILE...",
    .summary = "makes the claims of a file, without a cluster",
    .help =
        "The files are those of a cluster: ResourceClaims, and DeviceClasses for them, several\n"
        "documents in one. Other kinds are left out with a word. aliquotd --standalone finds\n"
        "a GPU for each by the scheduler's rules, and keeps the claims over restarts and\n"
        "reboots until they are deleted. What is printed goes behind podman run, docker run\n"
        "or nerdctl run. A claim that is there already stays as it is.\n",
    .options = (const struct alq_cli_option[]){FILE_OPTION, {.name = NULL}},
    .examples =
        (const struct alq_cli_example[]){
            {"aliquot claim apply -f claims.yaml", "all claims of the file"},
            {"podman run --device k8s.hami-core-gpu.project-hami.io/claim=3f0c9a1e-0 IMAGE",
             "a container with one of them"},
            {0},
        },
    .run = run_apply,
};

const struct alq_cli_command alq_cli_claim_list = {
    .name = "claim list",
    .arguments = "[-f FILE]...",
    .summary = "the claims of all users of this machine",
    .help =
        "One line a share. Those of aliquot run are among them. With -f the claims of a file.\n",
    .options = (const struct alq_cli_option[]){FILE_OPTION, {.name = NULL}},
    .examples = (const struct alq_cli_example[]){{"aliquot claim list", "all claims"}, {0}},
    .run = run_list,
};

const struct alq_cli_command alq_cli_claim_describe = {
    .name = "claim describe",
    .arguments = "CLAIM... | -f FILE...",
    .summary = "claims, and how a container gets them",
    .help = "CLAIM is a name or a uid.\n",
    .options = (const struct alq_cli_option[]){FILE_OPTION, {.name = NULL}},
    .examples =
        (const struct alq_cli_example[]){{"aliquot claim describe training", "one claim"}, {0}},
    .operand_words = ALQ_CLI_CLAIMS,
    .operands_max = ALQ_CLI_GIVEN_MAX,
    .run = run_describe,
};

const struct alq_cli_command alq_cli_claim_delete = {
    .name = "claim delete",
    .arguments = "CLAIM... | -f FILE...",
    .summary = "deletes claims",
    .help =
        "One's own; root may delete any. A claim that programs use is refused: end them first.\n",
    .options = (const struct alq_cli_option[]){FILE_OPTION, {.name = NULL}},
    .examples =
        (const struct alq_cli_example[]){
            {"aliquot claim delete training", "one claim"},
            {"aliquot claim delete -f claims.yaml", "the claims of a file"},
            {0},
        },
    .operand_words = ALQ_CLI_CLAIMS,
    .operands_max = ALQ_CLI_GIVEN_MAX,
    .run = run_delete,
};
