/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands' rows, each defined in the file of its name.
 */
#ifndef ALQ_CLI_COMMANDS_H
#define ALQ_CLI_COMMANDS_H

#include "cli/cli.h"

extern const struct alq_cli_command alq_cli_claim_apply, alq_cli_claim_delete,
    alq_cli_claim_describe, alq_cli_claim_list, alq_cli_doctor, alq_cli_explain, alq_cli_run,
    alq_cli_set, alq_cli_shares, alq_cli_top, alq_cli_version;

#endif
