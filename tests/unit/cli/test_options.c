/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments against a table of commands that has one of each kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/options.h"

static const struct alq_cli_option options[] = {
    {.name = "memory", .value = "SIZE", .letter = 'm'}, {.name = "reset"}, {.name = NULL}};
static const struct alq_cli_command set = {.name = "set", .options = options, .operands_max = 1};
static const struct alq_cli_command run = {.name = "run", .options = options, .takes_program = 1};
static const struct alq_cli_command apply = {.name = "claim apply", .options = options};
static const struct alq_cli_command list = {.name = "claim list"};
const struct alq_cli_command alq_cli_version = {.name = "version"};
const struct alq_cli_command *const alq_cli_commands[] = {
    &set, &run, &apply, &list, &alq_cli_version, NULL};
const struct alq_cli_option alq_cli_common_options[] = {
    {.name = "socket", .value = "PATH"},
    {.name = "output", .value = "FORMAT", .letter = 'o'},
    {.name = "help", .letter = 'h'},
    {.name = NULL}};
static char said[256];

int alq_cli_usage(const struct alq_cli_command *command, const char *fmt, ...)
{
    va_list ap;
    (void)command;
    va_start(ap, fmt);
    vsnprintf(said, sizeof(said), fmt, ap);
    va_end(ap);
    return ALQ_CLI_USAGE;
}

static struct alq_cli cli;
static int wants_help;

/* Words with blanks between them. */
static int parse(const char *line)
{
    static char text[256];
    static char *argv[32];
    int argc = 1;
    snprintf(text, sizeof(text), "%s", line);
    argv[0] = text + sizeof(text) - 1;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    cli = (struct alq_cli){0};
    wants_help = 0;
    *said = '\0';
    return alq_options_parse(argc, argv, &cli, &wants_help);
}

static void assert_refused(const char *line, const char *words)
{
    assert_int_equal(parse(line), ALQ_CLI_USAGE);
    if (!strstr(said, words))
        fail_msg("%s: %s", line, said);
}

static void parse_options_in_every_form_are_taken(void **state)
{
    (void)state;
    static const char *const lines[] = {"set x --memory 4Gi", "set --memory=4Gi x", "set -m 4Gi x",
                                        "set -m4Gi x", "set x --memory 1 --memory 4Gi"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        assert_int_equal(parse(lines[i]), 0);
        assert_ptr_equal(cli.command, &set);
        assert_string_equal(alq_cli_value(&cli, "memory"), "4Gi");
        assert_null(alq_cli_value(&cli, "reset"));
        assert_int_equal(cli.argc, 1);
        assert_string_equal(cli.argv[0], "x");
    }
}

static void parse_common_options_stand_anywhere(void **state)
{
    (void)state;
    assert_int_equal(parse("--socket /s set -o json x --reset"), 0);
    assert_string_equal(cli.socket, "/s");
    assert_int_equal(cli.is_json, 1);
    assert_string_equal(alq_cli_value(&cli, "reset"), "");
}

static void parse_a_program_has_its_arguments_untouched(void **state)
{
    (void)state;
    assert_int_equal(parse("run --memory 1Gi -- python --memory 2 -- --help"), 0);
    assert_int_equal(cli.argc, 5);
    assert_string_equal(cli.argv[0], "python");
    assert_string_equal(cli.argv[4], "--help");
    assert_string_equal(alq_cli_value(&cli, "memory"), "1Gi");
    assert_int_equal(parse("run python --help"), 0);
    assert_int_equal(wants_help, 0);
    assert_int_equal(cli.argc, 2);
}

static void parse_commands_of_two_words_are_found(void **state)
{
    (void)state;
    assert_int_equal(parse("claim apply --reset"), 0);
    assert_ptr_equal(cli.command, &apply);
    assert_int_equal(parse("claim --help"), 0);
    assert_string_equal(cli.family, "claim");
    assert_int_equal(wants_help, 1);
    assert_refused("claim", "claim what?");
    assert_refused("claim aply", "there is no command claim aply");
}

static void parse_slips_are_named(void **state)
{
    (void)state;
    assert_refused("", "which command?");
    assert_refused("ste x", "there is no command ste; did you mean set?");
    assert_refused("set x --memry 4Gi", "unknown option --memry; did you mean --memory?");
    assert_refused("set x --zzz", "unknown option --zzz");
    assert_refused("set x --memory", "--memory needs a value: SIZE");
    assert_refused("set x --reset=1", "--reset takes no value");
    assert_refused("set x y", "unexpected argument y");
    assert_refused("set x -o xml", "neither text nor json");
}

static void parse_more_options_than_there_is_room_for_is_refused(void **state)
{
    (void)state;
    static char program[] = "aliquot", name[] = "set", reset[] = "--reset";
    char *argv[ALQ_CLI_GIVEN_MAX + 3] = {program, name};
    for (int i = 2; i < ALQ_CLI_GIVEN_MAX + 3; i++)
        argv[i] = reset;
    cli = (struct alq_cli){0};
    assert_int_equal(alq_options_parse(ALQ_CLI_GIVEN_MAX + 3, argv, &cli, &wants_help),
                     ALQ_CLI_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parse_options_in_every_form_are_taken),
        cmocka_unit_test(parse_common_options_stand_anywhere),
        cmocka_unit_test(parse_a_program_has_its_arguments_untouched),
        cmocka_unit_test(parse_commands_of_two_words_are_found),
        cmocka_unit_test(parse_slips_are_named),
        cmocka_unit_test(parse_more_options_than_there_is_room_for_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
