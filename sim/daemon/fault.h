/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault rules: from a command's description to the control page that clients read. simgpud's
 * thread only.
 */
#ifndef SIM_DAEMON_FAULT_H
#define SIM_DAEMON_FAULT_H

#include "daemon/server.h"

/* Puts a rule in force; *id names it. The keys are those of the command "fault" (command.h). */
int sim_fault_add(struct sim_server *server, json_t *description, uint32_t *id,
                  struct alq_err *err);

/* Takes one rule, or all of them (id 0), out of force. ALQ_ENOENT. */
int sim_fault_clear(struct sim_server *server, uint32_t id, struct alq_err *err);

/* Tells clients which entry points the rules in force mark. */
void sim_fault_arm(struct sim_server *server);

/* Every rule in force with what it has done so far. */
json_t *sim_fault_list(const struct sim_server *server);

#endif
