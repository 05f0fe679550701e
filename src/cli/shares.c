/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot shares: the node's shares, their limits and what they use.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/table.h"

static uint64_t number(const json_t *share, const char *path)
{
    return (uint64_t)json_integer_value(alq_json_at(share, path));
}

static void add_share(struct alq_table *t, const json_t *share)
{
    int is_enforced = json_is_true(json_object_get(share, "enforced"));
    alq_table_add(t, "%s", alq_json_text(share, "id"));
    if (*alq_json_text(share, "claim.name"))
        alq_table_add(t, "%s/%s", alq_json_text(share, "claim.namespace"),
                      alq_json_text(share, "claim.name"));
    else
        alq_table_add(t, "-");
    alq_table_add(t, "%s", alq_json_text(share, "device"));
    if (is_enforced) {
        alq_table_add_bytes(t, number(share, "limits.memoryBytes"));
        alq_table_add(t, "%" PRIu64 "%s", number(share, "limits.cores"),
                      json_is_true(json_object_get(share, "changed")) ? " (set)" : "");
    } else {
        alq_table_add(t, "-");
        alq_table_add(t, "-");
    }
    if (json_is_object(json_object_get(share, "usage"))) {
        alq_table_add_bytes(t, number(share, "usage.countedBytes"));
        alq_table_add_bytes(t, number(share, "usage.overheadBytes"));
        alq_table_add_bytes(t, number(share, "usage.peakBytes"));
        alq_table_add(t, "%" PRIu64, number(share, "usage.processes"));
    } else {
        for (int i = 0; i < 4; i++)
            alq_table_add(t, "-");
    }
}

static int print(const json_t *list)
{
    static const char *const headings[] = {"SHARE",   "CLAIM",    "DEVICE", "MEMORY",    "CORES",
                                           "COUNTED", "OVERHEAD", "PEAK",   "PROCESSES", NULL};
    struct alq_table *t = alq_table_new(headings);
    size_t i;
    const json_t *share;
    json_array_foreach (list, i, share)
        if (t)
            add_share(t, share);
    int rc = t ? alq_table_print(t) : -1;
    alq_table_free(t);
    return rc ? alq_cli_fail("out of memory") : ALQ_CLI_OK;
}

static int run(const struct alq_cli *cli)
{
    alq_auto_json json_t *answer = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    int status;
    if (alq_client_ask(cli->socket, "GET", "/v1/shares", NULL, &status, &answer, &err))
        return alq_cli_fail("%s", err.text);
    if (cli->is_json) {
        alq_client_print(answer);
        return ALQ_CLI_OK;
    }
    alq_client_clean(answer);
    return print(json_object_get(answer, "shares"));
}

const struct alq_cli_command alq_cli_shares = {
    .name = "shares",
    .arguments = "",
    .summary = "the node's shares, their limits and what they use",
    .help =
        "One line a share. MEMORY and CORES are the limits in force, with \"(set)\" where the\n"
        "operator has changed them; COUNTED is what programs asked for, OVERHEAD what the driver\n"
        "takes on top, PEAK the highest sum of both, PROCESSES those that hold something.\n",
    .examples =
        (const struct alq_cli_example[]){
            {"aliquot shares", "all shares of this machine"},
            {"aliquot shares --output json | jq -r '.shares[].id'", "their ids"},
            {0},
        },
    .run = run,
};
