/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Help from the table of commands, as text and as JSON; the latter is what aliquot(1) is made of.
 */
#ifndef ALQ_CLI_HELP_H
#define ALQ_CLI_HELP_H

#include "cli/cli.h"

/* Of cli->command, or of all commands (of cli->family) where there is none. ALQ_CLI_OK, or
 * ALQ_CLI_FAILED. */
int alq_help_print(const struct alq_cli *cli);

#endif
