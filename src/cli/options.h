/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was typed, held against the table of commands. Pure but for what it says on stderr.
 */
#ifndef ALQ_CLI_OPTIONS_H
#define ALQ_CLI_OPTIONS_H

#include "cli/cli.h"

/*
 * Fills cli with what argv[1..argc) says; argv is put in another order, so that the operands lie
 * together. *wants_help: --help was among it; the command may then be NULL. 0, or ALQ_CLI_USAGE
 * when it has said what is wrong.
 */
int alq_options_parse(int argc, char **argv, struct alq_cli *cli, int *wants_help);

/* The command that words[0], or words[0] and words[1], name; *words_used is 1 or 2. NULL: none. */
const struct alq_cli_command *alq_options_command(char *const *words, size_t count,
                                                  size_t *words_used);

/* The option that arg ("--memory", "--memory=4Gi", "-f", "-fx") names, of the command or of all;
 * *value: what stands in the same argument, or NULL. */
const struct alq_cli_option *alq_options_find(const struct alq_cli_command *command,
                                              const char *arg, const char **value);

#endif
