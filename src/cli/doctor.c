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
#include "cli/host.h"
#include "cli/term.h"

/* In place of the daemon's answer. */
static json_t *no_daemon(const struct alq_cli *cli, int status, const struct alq_err *err)
{
    const char *remedy = "see its log; aliquot doctor tells more when it runs";
    if (err->code == ALQ_EACCES)
        remedy = "sudo aliquot doctor, or add yourself to that group";
    else if (status)
        remedy = "run aliquot and aliquotd of one version";
    else if (!strcmp(cli->socket, ALQ_CLI_SOCKET))
        remedy = "systemctl start aliquotd or aliquotd-standalone, or see its DaemonSet";
    return json_pack("{s:[{s:s, s:s, s:s, s:s}]}", "findings", "id", "daemon.socket", "level",
                     "error", "text", err->text, "remedy", remedy);
}

/* The worst first; equals as they came. */
static json_t *in_order(const json_t *findings)
{
    static const char *const levels[] = {"error", "warning", "ok"};
    json_t *out = json_array();
    size_t i;
    json_t *f;
    for (size_t l = 0; l < sizeof(levels) / sizeof(levels[0]); l++)
        json_array_foreach (findings, i, f)
            if (!strcmp(alq_json_text(f, "level"), levels[l]))
                json_array_append(out, f);
    return out;
}

static void print(const json_t *findings)
{
    const int has_colours = alq_term_has_colours();
    size_t i;
    const json_t *f;
    json_array_foreach (findings, i, f) {
        const char *level = alq_json_text(f, "level");
        const char *colour = *level == 'e' ? "31" : *level == 'w' ? "33" : "32";
        if (has_colours)
            printf("\033[%sm%-8s\033[0m", colour, level);
        else
            printf("%-8s", level);
        printf(" %-24s %s\n", alq_json_text(f, "id"), alq_json_text(f, "text"));
        if (*alq_json_text(f, "remedy"))
            printf("%-8s %-24s -> %s\n", "", "", alq_json_text(f, "remedy"));
    }
}

static int run(const struct alq_cli *cli)
{
    alq_auto_json json_t *answer = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    int status, has_errors = 0;
    if (alq_client_ask(cli->socket, "GET", "/v1/doctor", NULL, &status, &answer, &err))
        answer = no_daemon(cli, status, &err);
    alq_host_look(json_object_get(answer, "findings"));
    json_object_set_new(answer, "findings", in_order(json_object_get(answer, "findings")));
    const json_t *findings = json_object_get(answer, "findings");
    size_t i;
    const json_t *f;
    json_array_foreach (findings, i, f)
        has_errors |= !strcmp(alq_json_text(f, "level"), "error");
    if (cli->is_json) {
        alq_client_print(answer);
    } else {
        alq_client_clean(answer);
        print(findings);
    }
    return has_errors ? ALQ_CLI_FAILED : ALQ_CLI_OK;
}

const struct alq_cli_command alq_cli_doctor = {
    .name = "doctor",
    .arguments = "",
    .summary = "what is wrong with this node, and what to do about it",
    .help =
        "Prints what was looked at, the worst first, with the remedy where it is not well: what\n"
        "aliquotd knows (GPUs, driver, device nodes, libraries, kubelet, slices, usage files,\n"
        "settings), and what is looked at here (kernel, versions of kubelet and container\n"
        "runtimes, CDI specs of others, /etc/ld.so.preload). Exit status 1 when there is an\n"
        "error among it, or no daemon to ask.\n",
    .examples =
        (const struct alq_cli_example[]){
            {"aliquot doctor", "everything that was looked at"},
            {"aliquot doctor >/dev/null || echo broken", "for a script"},
            {0},
        },
    .run = run,
};
