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
#include "cli/commands.h"

#define SHARE_ID_MAX 128u

struct wish {
    const char *share;
    json_t *body; /* {} until an option has filled it */
    int is_reset;
};

static int take_memory(struct wish *w, const char *text)
{
    uint64_t bytes = 0;
    struct alq_err err = ALQ_ERR_INIT;
    if (alq_bytes_parse(text, 0, &bytes, &err))
        return alq_cli_usage(&alq_cli_set, "--memory: %s", err.text);
    if (bytes < 1 << 20)
        return alq_cli_usage(&alq_cli_set, "--memory: \"%s\" is less than a share can be, 1Mi",
                             text);
    json_object_set_new(w->body, "memory", json_integer((json_int_t)bytes));
    return 0;
}

static int take_cores(struct wish *w, const char *text)
{
    uint32_t cores = 0;
    int rc = alq_cli_cores(&alq_cli_set, text, &cores);
    if (!rc)
        json_object_set_new(w->body, "cores", json_integer(cores));
    return rc;
}

static int parse(const struct alq_cli *cli, struct wish *w)
{
    const char *memory = alq_cli_value(cli, "memory"), *cores = alq_cli_value(cli, "cores");
    int rc = 0;
    w->is_reset = alq_cli_value(cli, "reset") != NULL;
    if (!cli->argc)
        return alq_cli_usage(&alq_cli_set, "which share? aliquot shares lists them");
    w->share = cli->argv[0];
    if (!*w->share || strlen(w->share) > SHARE_ID_MAX ||
        strspn(w->share, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") <
            strlen(w->share))
        return alq_cli_usage(&alq_cli_set, "\"%.200s\" is not the id of a share", w->share);
    if ((memory || cores) == w->is_reset)
        return alq_cli_usage(&alq_cli_set, "either --reset, or --memory, --cores or both");
    if (memory)
        rc = take_memory(w, memory);
    if (cores && !rc)
        rc = take_cores(w, cores);
    return rc;
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
    .help = "Running processes have the new limits at once. They last until the claim is\n"
            "allocated anew, over restarts of aliquotd and of the kubelet. More than the GPU has\n"
            "left is refused. A memory limit below what is in use takes nothing away; it lets\n"
            "nothing more in. Needs root.\n",
    .options =
        (const struct alq_cli_option[]){
            {.name = "memory", .value = "SIZE", .summary = "6Gi, 6144Mi, 1.5G, or bytes"},
            {.name = "cores", .value = "PERCENT", .summary = "of the GPU's time, 0 to 100"},
            {.name = "reset", .summary = "back to what was allocated"},
            {.name = NULL},
        },
    .examples =
        (const struct alq_cli_example[]){
            {"aliquot set 3f0c9a1e-0 --memory 6Gi --cores 50", "both limits"},
            {"aliquot set 3f0c9a1e-0 --reset", "what the scheduler allocated"},
            {0},
        },
    .operand_words = ALQ_CLI_SHARES,
    .operands_max = 1,
    .run = run,
};
