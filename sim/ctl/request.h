/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simctl's questions to simgpud: one connection, one JSON answer each.
 */
#ifndef SIM_CTL_REQUEST_H
#define SIM_CTL_REQUEST_H

#include <jansson.h>

#include "base/err.h"
#include "client/client.h"

/* Connects as the control client; ALQ_EIO with the remedy when no simgpud is there. */
int sim_ctl_connect(struct sim_connection *connection, struct alq_err *err);

/* The answer to SIM_ORACLE or SIM_LIST; caller's reference. */
int sim_ctl_report(const struct sim_connection *connection, uint32_t type, json_t **answer,
                   struct alq_err *err);

/* The answer to a command of daemon/command.h; its "error" is this function's. */
int sim_ctl_command(const struct sim_connection *connection, const json_t *command, json_t **answer,
                    struct alq_err *err);

/* simgpud's oracle starts anew: groups without processes go, busy time and peaks are zeroed. */
int sim_ctl_reset(const struct sim_connection *connection, struct alq_err *err);

/* Sends simgpud that signal. */
int sim_ctl_kill(const struct sim_connection *connection, int signal, struct alq_err *err);

#endif
