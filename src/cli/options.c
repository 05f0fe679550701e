/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments, see options.h.
 */
#include "cli/options.h"

#include <string.h>

#include "cli/commands.h"

static int is_named(const char *name, const char *first, const char *second)
{
    size_t len = strlen(first);
    if (strncmp(name, first, len) != 0)
        return 0;
    return second ? name[len] == ' ' && !strcmp(name + len + 1, second) : !name[len];
}

const struct alq_cli_command *alq_options_command(char *const *words, size_t count,
                                                  size_t *words_used)
{
    for (const struct alq_cli_command *const *c = alq_cli_commands; *c && count; c++)
        for (size_t used = 1; used <= 2 && used <= count; used++)
            if (is_named((*c)->name, words[0], used == 2 ? words[1] : NULL)) {
                *words_used = used;
                return *c;
            }
    return NULL;
}

static const struct alq_cli_option *find_in(const struct alq_cli_option *options, const char *arg,
                                            const char **value)
{
    for (const struct alq_cli_option *o = options; o && o->name; o++) {
        size_t len = strlen(o->name);
        *value = NULL;
        if (arg[1] == '-' && !strncmp(arg + 2, o->name, len) &&
            (!arg[2 + len] || arg[2 + len] == '=')) {
            if (arg[2 + len])
                *value = arg + len + 3;
            return o;
        }
        if (o->letter && arg[1] == o->letter && (o->value || !arg[2])) {
            if (arg[2])
                *value = arg + (arg[2] == '=' ? 3 : 2);
            return o;
        }
    }
    return NULL;
}

const struct alq_cli_option *alq_options_find(const struct alq_cli_command *command,
                                              const char *arg, const char **value)
{
    const struct alq_cli_option *o = NULL;
    if (arg[0] != '-' || !arg[1])
        return NULL;
    if (command)
        o = find_in(command->options, arg, value);
    return o ? o : find_in(alq_cli_common_options, arg, value);
}

/* The letters at the start that both have, and whether what remains is one letter more, less, other
 * or two exchanged: the slips of a hand. */
static int is_slip(const char *typed, const char *meant)
{
    size_t same = 0;
    while (typed[same] && typed[same] == meant[same])
        same++;
    const char *a = typed + same, *b = meant + same;
    if (strlen(typed) < 3)
        return 0;
    return (*a && !strcmp(a + 1, b)) || (*b && !strcmp(a, b + 1)) ||
           (*a && *b && !strcmp(a + 1, b + 1)) ||
           (*a && *b && a[0] == b[1] && a[1] == b[0] && !strcmp(a + 2, b + 2));
}

static const char *near_option(const struct alq_cli_option *options, const char *typed)
{
    for (const struct alq_cli_option *o = options; o && o->name; o++)
        if (is_slip(typed, o->name))
            return o->name;
    return NULL;
}

static int unknown_option(const struct alq_cli_command *command, const char *arg)
{
    const char *near = NULL;
    if (!strncmp(arg, "--", 2)) {
        near = command ? near_option(command->options, arg + 2) : NULL;
        if (!near)
            near = near_option(alq_cli_common_options, arg + 2);
    }
    return alq_cli_usage(command, "unknown option %s%s%s%s", arg, near ? "; did you mean --" : "",
                         near ? near : "", near ? "?" : "");
}

static int is_family(const char *word)
{
    for (const struct alq_cli_command *const *c = alq_cli_commands; *c; c++)
        if (!strncmp((*c)->name, word, strlen(word)) && (*c)->name[strlen(word)] == ' ')
            return 1;
    return 0;
}

static int is_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h");
}

static int unknown_command(struct alq_cli *cli, char *const *words, size_t count, int *wants_help)
{
    if (is_family(words[0])) {
        if (count == 1)
            return alq_cli_usage(NULL, "%s what?", words[0]);
        if (!is_help(words[1]))
            return alq_cli_usage(NULL, "there is no command %s %s", words[0], words[1]);
        cli->family = words[0];
        *wants_help = 1;
        return 0;
    }
    const char *near = NULL;
    for (const struct alq_cli_command *const *c = alq_cli_commands; *c && !near; c++)
        near = is_slip(words[0], (*c)->name) ? (*c)->name : NULL;
    return alq_cli_usage(NULL, "there is no command %s%s%s%s", words[0],
                         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int take(struct alq_cli *cli, const struct alq_cli_option *o, const char *value,
                int *wants_help)
{
    if (!strcmp(o->name, "help")) {
        *wants_help = 1;
    } else if (!strcmp(o->name, "socket")) {
        cli->socket = value;
    } else if (!strcmp(o->name, "output")) {
        if (strcmp(value, "text") != 0 && strcmp(value, "json") != 0)
            return alq_cli_usage(cli->command, "--output: \"%s\" is neither text nor json", value);
        cli->is_json = *value == 'j';
    } else {
        if (cli->given_count == ALQ_CLI_GIVEN_MAX)
            return alq_cli_usage(cli->command, "more than %d options", ALQ_CLI_GIVEN_MAX);
        cli->given[cli->given_count].option = o;
        cli->given[cli->given_count++].value = value;
    }
    return 0;
}

/* argv[*i] is an option; moves *i to its last argument. */
static int take_option(int argc, char **argv, int *i, struct alq_cli *cli, int *wants_help)
{
    const char *value = NULL;
    const struct alq_cli_option *o = alq_options_find(cli->command, argv[*i], &value);
    if (!o)
        return unknown_option(cli->command, argv[*i]);
    if (!o->value && value)
        return alq_cli_usage(cli->command, "--%s takes no value", o->name);
    if (o->value && !value && *i + 1 < argc)
        value = argv[++*i];
    if (o->value && (!value || !*value))
        return alq_cli_usage(cli->command, "--%s needs a value: %s", o->name, o->value);
    return take(cli, o, value ? value : "", wants_help);
}

int alq_options_parse(int argc, char **argv, struct alq_cli *cli, int *wants_help)
{
    int i = 1, rc = 0, is_over = 0;
    cli->argv = argv;
    for (; i < argc && !rc && !is_over; i++) {
        if (!strcmp(argv[i], "--") && cli->command) {
            is_over = 1;
        } else if (!cli->command && !strcmp(argv[i], "--version")) {
            cli->command = &alq_cli_version;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            rc = take_option(argc, argv, &i, cli, wants_help);
        } else if (!cli->command) {
            size_t used = 0, left = (size_t)(argc - i);
            cli->command = alq_options_command(argv + i, left, &used);
            if (!cli->command)
                return unknown_command(cli, argv + i, left, wants_help);
            i += (int)used - 1;
        } else if (cli->command->takes_program) {
            break;
        } else {
            argv[cli->argc++] = argv[i];
        }
    }
    for (; i < argc && !rc; i++)
        argv[cli->argc++] = argv[i];
    argv[cli->argc] = NULL; /* a program is executed with them */
    if (!rc && !*wants_help && !cli->command)
        rc = alq_cli_usage(NULL, "which command?");
    if (!rc && !*wants_help && !cli->command->takes_program &&
        (size_t)cli->argc > cli->command->operands_max)
        rc =
            alq_cli_usage(cli->command, "unexpected argument %s", argv[cli->command->operands_max]);
    return rc;
}

const char *alq_cli_value(const struct alq_cli *cli, const char *name)
{
    for (size_t i = cli->given_count; i; i--)
        if (!strcmp(cli->given[i - 1].option->name, name))
            return cli->given[i - 1].value;
    return NULL;
}
