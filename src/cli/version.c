/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot version: of the tool, and of the daemon where one answers.
 */
#include <stdio.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/commands.h"

static int run(const struct alq_cli *cli)
{
    alq_auto_json json_t *daemon = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    int status;
    alq_client_ask(cli->socket, "GET", "/v1/version", NULL, &status, &daemon, &err);
    if (cli->is_json) {
        alq_auto_json json_t *both =
            json_pack("{s:s, s:O?}", "aliquot", ALQ_VERSION, "aliquotd", daemon);
        alq_client_print(both);
        return ALQ_CLI_OK;
    }
    printf("aliquot %s\n", ALQ_VERSION);
    const char *version = alq_json_str(daemon, "version");
    if (version)
        printf("aliquotd %s (driver %s)\n", version, alq_json_str(daemon, "driver"));
    else
        printf("aliquotd: %s\n", err.text);
    return ALQ_CLI_OK;
}

const struct alq_cli_command alq_cli_version = {
    .name = "version",
    .arguments = "",
    .summary = "of this tool and of the daemon",
    .help = "Prints the version of this tool, and of aliquotd where one answers.\n",
    .examples = (const struct alq_cli_example[]){{"aliquot version", "both, one a line"}, {0}},
    .run = run,
};
