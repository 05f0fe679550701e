/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's condition, from outside: made present, lost, recovered or removed; its events; what
 * clients are made to believe of it. simgpud's thread only.
 */
#ifndef SIM_DAEMON_DEVICE_H
#define SIM_DAEMON_DEVICE_H

#include "daemon/server.h"

#define SIM_XID_FALLEN_OFF_BUS 79

/* Gives the control page and the node the machine's devices. */
void sim_devices_open(struct sim_server *server);

/* Bytes that programs can have. */
uint64_t sim_device_capacity(const struct sim_server *server, uint32_t device);

/* Writes what clients are told of a device into the memory that they share, or rights it there. */
void sim_device_publish(struct sim_server *server, uint32_t device);

static inline bool sim_device_is_present(const struct sim_server *s, uint32_t d)
{
    return d < s->machine.device_count && !(s->machine.absent >> d & 1);
}

/* Adds a device as the device file describes one, in the first free place; *place is its index. */
int sim_device_add(struct sim_server *server, json_t *description, uint32_t *place,
                   struct alq_err *err);

/* Contexts on the device fail with code from now on. */
void sim_device_fail_contexts(struct sim_server *server, uint32_t device, uint32_t code);
/* XID 79, then lost for everybody. */
void sim_device_lose(struct sim_server *server, uint32_t device);
/* As after a reset: usable again, old contexts stay broken. */
void sim_device_recover(struct sim_server *server, uint32_t device);
void sim_device_remove(struct sim_server *server, uint32_t device);

/* Tells whoever watches the device for that type (an nvmlEventType* bit). One who does not read
 * misses events. */
void sim_device_event(struct sim_server *server, uint32_t device, uint64_t type, uint64_t data);

/* Utilisation, of the device and of each process, stays as it is now, or at percent for the device
 * when that is not negative. */
void sim_device_freeze(struct sim_server *server, uint32_t device, int percent);

#endif
