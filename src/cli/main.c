/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquot: the commands as a table, and the options that all of them take, before or after the
 * command's name.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static const struct alq_cli_command *const commands[] = {&alq_cli_doctor, &alq_cli_shares,
                                                         &alq_cli_set, &alq_cli_version};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

int alq_cli_usage(const struct alq_cli_command *command, const char *fmt, ...)
{
    va_list ap;
    fputs("aliquot: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\nsee aliquot %s%s--help\n", command ? command->name : "", command ? " " : "");
    return ALQ_CLI_USAGE;
}

int alq_cli_fail(const char *fmt, ...)
{
    va_list ap;
    fputs("aliquot: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return ALQ_CLI_FAILED;
}

int alq_cli_no_arguments(const struct alq_cli_command *command, const struct alq_cli *cli)
{
    return cli->argc ? alq_cli_usage(command, "unexpected argument %s", cli->argv[0]) : 0;
}

static void print_options(void)
{
    puts("  --socket PATH         the daemon's admin socket [" ALQ_CLI_SOCKET "]\n"
         "  --output text|json    json: as the daemon gives it (docs/admin.md) [text]\n"
         "  --help");
}

static int help(const struct alq_cli_command *command)
{
    if (command) {
        printf("usage: aliquot %s%s%s\n\n%s\n", command->name, *command->arguments ? " " : "",
               command->arguments, command->help);
        print_options();
        return ALQ_CLI_OK;
    }
    puts("usage: aliquot COMMAND [ARGUMENTS]\n\nShares of this node's NVIDIA GPUs.\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("  %-21s %s\n", commands[i]->name, commands[i]->summary);
    putchar('\n');
    print_options();
    puts("\nExit status: 0, 1 where it could not be done, 2 where it was not understood.");
    return ALQ_CLI_OK;
}

static const struct alq_cli_command *find(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

/* "--name=value" or "--name" "value", moved past; NULL: another argument. */
static const char *option(int argc, char **argv, int *i, const char *name)
{
    size_t len = strlen(name);
    if (strncmp(argv[*i], name, len) != 0 || (argv[*i][len] && argv[*i][len] != '='))
        return NULL;
    if (argv[*i][len])
        return argv[*i] + len + 1;
    return *i + 1 < argc ? argv[++*i] : "";
}

int main(int argc, char **argv)
{
    const struct alq_cli_command *command = NULL;
    struct alq_cli cli = {.socket = getenv("ALIQUOT_SOCKET"), .argv = argv};
    int wants_help = 0;
    if (!cli.socket || !*cli.socket)
        cli.socket = ALQ_CLI_SOCKET;
    /* What is the command's own is kept at the front of argv. */
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            wants_help = 1;
        } else if ((value = option(argc, argv, &i, "--socket"))) {
            if (!*value)
                return alq_cli_usage(command, "--socket needs a path");
            cli.socket = value;
        } else if ((value = option(argc, argv, &i, "--output")) ||
                   (value = option(argc, argv, &i, "-o"))) {
            if (strcmp(value, "text") != 0 && strcmp(value, "json") != 0)
                return alq_cli_usage(command, "--output: \"%s\" is neither text nor json", value);
            cli.is_json = *value == 'j';
        } else if (!command) {
            command = find(argv[i]);
            if (!command && argv[i][0] == '-')
                return alq_cli_usage(NULL, "unknown option %s", argv[i]);
            if (!command)
                return alq_cli_usage(NULL, "there is no command %s", argv[i]);
        } else {
            argv[cli.argc++] = argv[i];
        }
    }
    if (wants_help)
        return help(command);
    if (!command)
        return alq_cli_usage(NULL, "which command?");
    int rc = command->run(&cli);
    return fflush(stdout) ? alq_cli_fail("writing the output: %m") : rc;
}
