/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From simctl's words to the JSON commands of daemon/command.h.
 */
#ifndef SIM_CTL_COMMAND_H
#define SIM_CTL_COMMAND_H

#include <jansson.h>

#include "base/err.h"

/* What --return, --delay and their like gave; NULL where not given. */
struct sim_ctl_options {
    const char *result, *delay, *call, *times, *pid, *group, *caller, *own, *fail;
};

/* Builds the command `words[0]` with its arguments. ALQ_ENOENT when there is no such command,
 * ALQ_EINVAL when an argument is wrong. The caller owns *command. */
int sim_ctl_build(int count, char **words, const struct sim_ctl_options *options, json_t **command,
                  struct alq_err *err);

#endif
