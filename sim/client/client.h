/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in library's connection to simgpud. The descriptor is close-on-exec and survives fork, as
 * an open /dev/nvidia* would: what a process holds lives until the last fork child without exec is
 * gone. Not thread-safe: the caller serialises.
 */
#ifndef SIM_CLIENT_CLIENT_H
#define SIM_CLIENT_CLIENT_H

#include "common/wire.h"

struct sim_connection {
    int fd;                      /* -1 when not connected */
    struct sim_control *control; /* stays mapped, whatever becomes of the connection */
    struct sim_node *node;
    struct sim_group *group;
    struct sim_client *client;
    uint32_t slot;
    uint32_t pid; /* as simgpud sees us */
    struct sim_kernel_rule rule[SIM_KERNEL_RULES];
    uint32_t device_count;
    struct sim_device_info device[SIM_MAX_DEVICES]; /* those this process may see, in order */
};

/*
 * Connects through SIMGPU_SOCKET or /run/simgpu/simgpud.sock and says hello. Devices are those
 * whose node is there, when the simulated driver's nodes are (<dir>/nvidiactl is a null device; dir
 * is SIMGPU_DEV_DIR or /dev): a container sees the devices that were given to it. Without such
 * nodes all devices are seen. 0, or a negative errno: -ENOENT and -ECONNREFUSED mean that no
 * simgpud runs, -EPROTO that it speaks another version, -EBUSY that it can take no more clients.
 */
int sim_connect(struct sim_connection *connection, enum sim_client_kind kind);

void sim_disconnect(struct sim_connection *connection);

/* Maps the control page over a connection of its own, made without a hello; *pid is this process
 * as simgpud sees it. 0 or a negative errno. */
int sim_control_fetch(struct sim_control **control, uint32_t *pid);

/* Sends one request and waits for its answer of at most max bytes; its length or a negative errno.
 */
int sim_call(const struct sim_connection *connection, const void *request, uint32_t bytes,
             void *answer, uint32_t max);

/* As sim_call for an answer with a descriptor, which is the caller's; -EIO without one. */
int sim_call_fd(const struct sim_connection *connection, const void *request, uint32_t bytes);

/* Asks about shared memory, with a descriptor unless send_fd is -1. 0 with the answer and the
 * descriptors that came (-1 without), which are the caller's; a negative errno: -ENOENT for an
 * object that is not there, -ENOMEM when simgpud lacks memory or descriptors, -EPROTO for a request
 * it refuses, others when it is gone. */
int sim_call_object(const struct sim_connection *connection, const struct sim_ask_object *ask,
                    int send_fd, struct sim_object_answer *answer, int *hold, int *file);

/* Non-zero when simgpud has gone away. */
int sim_connection_lost(const struct sim_connection *connection);

#endif
