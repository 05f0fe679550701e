/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that several processes hold: a sealed memfd with the bytes, and what it costs on a device.
 * Each holder (a process, or a descriptor on its way to one) has one end of a socket pair, simgpud
 * the other: the kernel tells when the last copy of a holder's end is closed, however that came
 * about, and with the last holder the object goes. An object's bytes are charged to the group of
 * the process that made it and shown with that process while it lives; afterwards they are the
 * device's alone. simgpud's only thread.
 */
#ifndef SIM_DAEMON_OBJECT_H
#define SIM_DAEMON_OBJECT_H

#include "daemon/server.h"

struct sim_hold {
    struct sim_hold *next;
    struct sim_object *object;
    int fd;
    uint64_t inode; /* of the holder's end, by which an imported descriptor is recognised */
    bool is_owner;
};

struct sim_object {
    struct sim_object *next;
    uint64_t id; /* random: who knows it may open it */
    uint32_t device, kind;
    uint64_t bytes, file_bytes;
    int file;
    struct sim_client_entry *owner; /* NULL when gone */
    struct sim_group_entry *group;
    struct sim_hold *holds;
    unsigned char meta[SIM_META_BYTES];
};

/* 0 or a negative errno. */
int sim_objects_open(struct sim_server *server);
void sim_objects_close(struct sim_server *server);

/* Answers one of SIM_SHARE to SIM_RELEASE; fd is the descriptor that came along, or -1. Non-zero
 * when the client must go. */
int sim_object_message(struct sim_server *server, struct sim_client_entry *client,
                       const struct sim_ask_object *ask, int fd);

/* Lets go of what nobody holds any more. */
void sim_objects_reap(struct sim_server *server);

/* The client is about to go: its objects live on without an owner. */
void sim_objects_leave(struct sim_server *server, const struct sim_client_entry *client);

/* Bytes on the device of the objects of a client, or of a group (the other one NULL). */
uint64_t sim_objects_bytes(const struct sim_server *server, const struct sim_client_entry *client,
                           const struct sim_group_entry *group, uint32_t device);

#endif
