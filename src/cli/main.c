/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot: the table of commands, and what is common to them. A command is a file of its own with
 * one row, named here.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/client.h"
#include "cli/commands.h"
#include "cli/complete.h"
#include "cli/help.h"
#include "cli/options.h"

#define TEXT_BYTES 2048

const struct alq_cli_command *const alq_cli_commands[] = {
    &alq_cli_run,          &alq_cli_claim_apply, &alq_cli_claim_list, &alq_cli_claim_describe,
    &alq_cli_claim_delete, &alq_cli_shares,      &alq_cli_top,        &alq_cli_set,
    &alq_cli_explain,      &alq_cli_doctor,      &alq_cli_version,    NULL,
};

const struct alq_cli_option alq_cli_common_options[] = {
    {.name = "socket",
     .value = "PATH",
     .summary = "aliquotd's admin socket (ALIQUOT_SOCKET) [" ALQ_CLI_SOCKET "]",
     .words = ALQ_CLI_FILES},
    {.name = "output",
     .letter = 'o',
     .value = "FORMAT",
     .summary = "text, or json with the fields of docs/cli.md [text]",
     .words = "text json"},
    {.name = "help", .letter = 'h', .summary = "this"},
    {.name = NULL},
};

/* One line of bounded length, whatever the arguments and files that it quotes hold. */
static void say(const char *fmt, va_list ap, const char *end) __attribute__((format(printf, 1, 0)));
static void say(const char *fmt, va_list ap, const char *end)
{
    char text[TEXT_BYTES];
    if (vsnprintf(text, sizeof(text), fmt, ap) >= (int)sizeof(text))
        memcpy(text + sizeof(text) - 4, "...", 4);
    alq_client_clean_text(text);
    fprintf(stderr, "aliquot: %s%s\n", text, end);
}

int alq_cli_usage(const struct alq_cli_command *command, const char *fmt, ...)
{
    char end[64];
    va_list ap;
    snprintf(end, sizeof(end), " (see aliquot %s%s--help)", command ? command->name : "",
             command ? " " : "");
    va_start(ap, fmt);
    say(fmt, ap, end);
    va_end(ap);
    return ALQ_CLI_USAGE;
}

int alq_cli_cores(const struct alq_cli_command *command, const char *text, uint32_t *pct)
{
    unsigned long cores = strtoul(text, NULL, 10);
    if (text[strspn(text, "0123456789")] || cores > 100)
        return alq_cli_usage(command, "--cores: \"%s\" is no whole number from 0 to 100", text);
    *pct = (uint32_t)cores;
    return 0;
}

int alq_cli_fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say(fmt, ap, "");
    va_end(ap);
    return ALQ_CLI_FAILED;
}

int main(int argc, char **argv)
{
    struct alq_cli cli = {.socket = getenv("ALIQUOT_SOCKET")};
    int wants_help = 0;
    if (!cli.socket || !*cli.socket)
        cli.socket = ALQ_CLI_SOCKET;
    if (argc > 1 && !strcmp(argv[1], "__complete"))
        return alq_complete_print(cli.socket, argc - 2, argv + 2);
    int rc = alq_options_parse(argc, argv, &cli, &wants_help);
    if (rc)
        return rc;
    rc = wants_help ? alq_help_print(&cli) : cli.command->run(&cli);
    /* An earlier write may have failed, and the last one not. */
    return fflush(stdout) || ferror(stdout) ? alq_cli_fail("writing the output: %m") : rc;
}
