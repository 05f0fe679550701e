/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Help, see help.h.
 */
#include "cli/help.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/client.h"

#define EXIT_STATUS "0, 1 where it could not be done, 2 where it was not understood"

static void print_options(const char *title, const struct alq_cli_option *options)
{
    if (!options || !options->name)
        return;
    printf("\n%s:\n", title);
    for (const struct alq_cli_option *o = options; o->name; o++) {
        char left[64];
        snprintf(left, sizeof(left), "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-26s %s\n", left, o->summary);
    }
}

static void print_command(const struct alq_cli_command *c)
{
    printf("usage: aliquot %s%s%s\n\n%s", c->name, *c->arguments ? " " : "", c->arguments, c->help);
    print_options("Options", c->options);
    print_options("Options of all commands", alq_cli_common_options);
    if (c->examples)
        puts("\nExamples:");
    for (const struct alq_cli_example *e = c->examples; e && e->command; e++)
        printf("  %s\n      %s\n", e->command, e->what);
}

static int is_of_family(const struct alq_cli_command *c, const char *family)
{
    return !family || (!strncmp(c->name, family, strlen(family)) && c->name[strlen(family)] == ' ');
}

static void print_all(const char *family)
{
    printf(
        "usage: aliquot %s%sCOMMAND [ARGUMENTS]\n\nShares of this machine's NVIDIA GPUs. aliquot "
        "COMMAND --help says more.\n\nCommands:\n",
        family ? family : "", family ? " " : "");
    for (const struct alq_cli_command *const *c = alq_cli_commands; *c; c++)
        if (is_of_family(*c, family))
            printf("  %-16s %s\n", (*c)->name, (*c)->summary);
    print_options("Options of all commands", alq_cli_common_options);
    puts("\nExit status: " EXIT_STATUS ".");
}

static json_t *options_json(const struct alq_cli_option *options)
{
    json_t *list = json_array();
    for (const struct alq_cli_option *o = options; o && o->name; o++) {
        const char letter[2] = {o->letter, '\0'};
        json_array_append_new(list, json_pack("{s:s, s:s*, s:s*, s:s}", "name", o->name, "letter",
                                              o->letter ? letter : NULL, "value", o->value,
                                              "summary", o->summary));
    }
    return list;
}

static json_t *command_json(const struct alq_cli_command *c)
{
    json_t *examples = json_array();
    for (const struct alq_cli_example *e = c->examples; e && e->command; e++)
        json_array_append_new(examples,
                              json_pack("{s:s, s:s}", "command", e->command, "what", e->what));
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "name", c->name, "arguments", c->arguments,
                     "summary", c->summary, "help", c->help, "options", options_json(c->options),
                     "examples", examples);
}

static int print_json(const struct alq_cli *cli)
{
    json_t *commands = json_array();
    for (const struct alq_cli_command *const *c = alq_cli_commands; *c; c++)
        if (cli->command ? *c == cli->command : is_of_family(*c, cli->family))
            json_array_append_new(commands, command_json(*c));
    alq_auto_json json_t *all =
        json_pack("{s:o, s:o, s:s}", "commands", commands, "options",
                  options_json(alq_cli_common_options), "exitStatus", EXIT_STATUS);
    if (!all)
        return alq_cli_fail("out of memory");
    alq_client_print(all);
    return ALQ_CLI_OK;
}

int alq_help_print(const struct alq_cli *cli)
{
    if (cli->is_json)
        return print_json(cli);
    if (cli->command)
        print_command(cli->command);
    else
        print_all(cli->family);
    return ALQ_CLI_OK;
}
