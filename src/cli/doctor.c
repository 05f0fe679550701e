/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot doctor: what the daemon finds wrong with this node, or why there is no daemon to ask.
 */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/commands.h"

/* In place of the daemon's answer. */
static json_t *no_daemon(const struct alq_cli *cli, int status, const struct alq_err *err)
{
    const char *remedy = "see its log; aliquot doctor tells more when it runs";
    if (err->code == ALQ_EACCES)
        remedy = "be root or in the group that --admin-group names";
    else if (status)
        remedy = "run aliquot and aliquotd of one version";
    else if (!strcmp(cli->socket, ALQ_CLI_SOCKET))
        remedy = "start aliquotd (systemctl start aliquotd, or its DaemonSet), or name its socket "
                 "with --socket";
    return json_pack("{s:[{s:s, s:s, s:s, s:s}]}", "findings", "id", "daemon.socket", "level",
                     "error", "text", err->text, "remedy", remedy);
}

static const char *text(const json_t *finding, const char *key)
{
    const char *value = alq_json_str(finding, key);
    return value ? value : "";
}

static void print(const json_t *findings)
{
    size_t i;
    const json_t *f;
    json_array_foreach (findings, i, f) {
        printf("%-8s %-24s %s\n", text(f, "level"), text(f, "id"), text(f, "text"));
        if (*text(f, "remedy"))
            printf("%-8s %-24s -> %s\n", "", "", text(f, "remedy"));
    }
    if (!json_array_size(findings))
        puts("nothing found");
}

static int run(const struct alq_cli *cli)
{
    alq_auto_json json_t *answer = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    int status, has_errors = 0;
    if (alq_client_ask(cli->socket, "GET", "/v1/doctor", NULL, &status, &answer, &err))
        answer = no_daemon(cli, status, &err);
    const json_t *findings = json_object_get(answer, "findings");
    size_t i;
    const json_t *f;
    json_array_foreach (findings, i, f)
        has_errors |= !strcmp(text(f, "level"), "error");
    if (cli->is_json)
        alq_client_print(answer);
    else
        print(findings);
    return has_errors ? ALQ_CLI_FAILED : ALQ_CLI_OK;
}

const struct alq_cli_command alq_cli_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "what is wrong with this node, and what to do about it",
    .help = "Prints what aliquotd finds worth knowing, worst first, with the remedy. Exit status 1 "
            "when\n"
            "there is an error among it, or no daemon to ask.\n",
    .examples =
        (const struct alq_cli_example[]){
            {"aliquot doctor", "everything that was looked at"},
            {"aliquot doctor >/dev/null || echo broken", "for a script"},
            {0},
        },
    .run = run,
};
