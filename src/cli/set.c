/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot set: asks the daemon to change the limits of a share.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"
#include "cli/cli.h"
#include "cli/client.h"

struct wish {
    const char *share;
    json_t *body; /* {} until an option has filled it */
    int is_reset;
};

/* "--memory=4Gi" or "--memory" "4Gi"; NULL: it is not that option. */
static const char *option(const struct alq_cli *cli, int *i, const char *name)
{
    const char *arg = cli->argv[*i];
    size_t len = strlen(name);
    if (strncmp(arg, name, len) != 0 || (arg[len] && arg[len] != '='))
        return NULL;
    if (arg[len])
        return arg + len + 1;
    return *i + 1 < cli->argc ? cli->argv[++*i] : "";
}

static int take_memory(struct wish *w, const char *text)
{
    uint64_t bytes = 0;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_bytes_parse(text, 0, &bytes, &err))
        return alq_cli_usage(&alq_cli_set, "--memory: %s", err.text);
    json_object_set_new(w->body, "memory", json_integer((json_int_t)bytes));
    return 0;
}

static int take_cores(struct wish *w, const char *text)
{
    char *end;
    long cores = strtol(text, &end, 10);
    if (!*text || *end || cores < 0 || cores > 100)
        return alq_cli_usage(&alq_cli_set, "--cores: \"%s\" is no whole number from 0 to 100",
                             text);
    json_object_set_new(w->body, "cores", json_integer(cores));
    return 0;
}

static int parse(const struct alq_cli *cli, struct wish *w)
{
    int rc = 0;
    for (int i = 0; i < cli->argc && !rc; i++) {
        const char *value;
        if ((value = option(cli, &i, "--memory")))
            rc = take_memory(w, value);
        else if ((value = option(cli, &i, "--cores")))
            rc = take_cores(w, value);
        else if (!strcmp(cli->argv[i], "--reset"))
            w->is_reset = 1;
        else if (cli->argv[i][0] == '-' || w->share)
            rc = alq_cli_usage(&alq_cli_set, "unexpected argument %s", cli->argv[i]);
        else
            w->share = cli->argv[i];
    }
    if (rc)
        return rc;
    if (!w->share)
        return alq_cli_usage(&alq_cli_set, "which share? (aliquot shares lists them)");
    if (strspn(w->share, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") <
        strlen(w->share))
        return alq_cli_usage(&alq_cli_set, "\"%s\" is not the id of a share", w->share);
    if (!json_object_size(w->body) == !w->is_reset)
        return alq_cli_usage(&alq_cli_set, "either --reset, or --memory, --cores or both");
    return 0;
}

static int run(const struct alq_cli *cli)
{
    alq_auto_json json_t *body = json_object(), *nothing = json_null(), *share = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    struct wish w = {.body = body};
    int status, rc = body ? parse(cli, &w) : alq_cli_fail("out of memory");
    if (rc)
        return rc;
    alq_auto_free char *path = alq_str_printf("/v1/shares/%s", w.share);
    if (!path)
        return alq_cli_fail("out of memory");
    if (alq_client_ask(cli->socket, "PATCH", path, w.is_reset ? nothing : body, &status, &share,
                       &err))
        return alq_cli_fail("%s", err.text);
    if (cli->is_json) {
        alq_client_print(share);
        return ALQ_CLI_OK;
    }
    char memory[ALQ_QUANTITY_TEXT_BYTES];
    alq_quantity_format(alq_quantity_from_u64(
                            (uint64_t)json_integer_value(alq_json_at(share, "limits.memoryBytes"))),
                        1, memory);
    printf("%s: memory %s, cores %d\n", w.share, memory,
           (int)json_integer_value(alq_json_at(share, "limits.cores")));
    return ALQ_CLI_OK;
}

const struct alq_cli_command alq_cli_set = {
    .name = "set",
    .arguments = "SHARE [--memory SIZE] [--cores PERCENT] | SHARE --reset",
    .summary = "changes the limits of a share",
    .help =
        "Running processes have the new limits at once, and it outlasts restarts of aliquotd and\n"
        "of the kubelet, until the claim is allocated anew. More than the GPU has left is\n"
        "refused. A memory limit below what is in use takes nothing away; it lets nothing more\n"
        "in. --reset goes back to what was allocated. Needs root.\n",
    .run = run,
};
