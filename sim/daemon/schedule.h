/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time in simgpud: takes the operations of its clients' queues, moves the model of sim/model to now
 * and publishes what is done. A pass does this for all clients; it is made when somebody needs one.
 * Nothing a client writes can do more than spoil its own schedule or cost it the connection.
 */
#ifndef SIM_DAEMON_SCHEDULE_H
#define SIM_DAEMON_SCHEDULE_H

#include "daemon/server.h"

/* The machine's devices at this time. 0 or ALQ_ENOMEM. */
int sim_schedule_open(struct sim_server *server, struct alq_err *err);
void sim_schedule_close(struct sim_server *server);

/* A device has come into that place; false without memory, or while streams are open on the old
 * one.
 */
bool sim_schedule_device(struct sim_server *server, uint32_t device);

/* A client has its memory; false without memory here. */
bool sim_schedule_attach(struct sim_server *server, struct sim_client_entry *client);

/* It is gone: all up to now counts, the rest never happens, and the others get on faster. */
void sim_schedule_detach(struct sim_server *server, struct sim_client_entry *client);

/* It sent SIM_ASK; sim_schedule_pass answers. */
void sim_schedule_ask(struct sim_server *server, struct sim_client_entry *client);

void sim_schedule_pass(struct sim_server *server);

/* Milliseconds until a pass should be made unasked, for epoll_wait: -1 when nothing is pending. */
int sim_schedule_timeout_ms(const struct sim_server *server);

/* Up to the last pass: busy nanoseconds and kernels given, and the percent of the last sample
 * period that is over in which kernels ran. */
uint64_t sim_schedule_busy_ns(const struct sim_client_entry *client, uint32_t device);
uint64_t sim_schedule_launches(const struct sim_client_entry *client, uint32_t device);
uint32_t sim_schedule_client_pct(const struct sim_client_entry *client, uint32_t device);
uint32_t sim_schedule_device_pct(const struct sim_server *server, uint32_t device);

#endif
