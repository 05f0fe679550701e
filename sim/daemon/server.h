/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simgpud's state and its clients: the part a kernel module plays for a real driver. One thread,
 * one epoll loop. Clients are untrusted: a malformed message costs its sender the connection and
 * nobody else anything.
 */
#ifndef SIM_DAEMON_SERVER_H
#define SIM_DAEMON_SERVER_H

#include <jansson.h>

#include "base/err.h"
#include "common/account.h"
#include "common/devfile.h"
#include "common/wire.h"
#include "daemon/pidns.h"
#include "model/model.h"

/* A label's totals. Lives from its first client to a reset without clients. */
struct sim_group_entry {
    struct sim_group_entry *next;
    char name[SIM_GROUP_BYTES];
    int fd;
    struct sim_group *map;
    uint32_t clients, objects;
    struct {
        uint64_t busy_ns;  /* of clients that are gone; less what a reset took away (wraps) */
        uint64_t launches; /* likewise */
    } past[SIM_MAX_DEVICES];
};

struct sim_client_entry {
    struct sim_client_entry *next;
    int fd;
    uint32_t kind; /* enum sim_client_kind; 0 before the hello */
    pid_t pid;
    struct sim_pidns pidns;
    uint32_t slot;
    struct sim_client *map;
    uint32_t devices;                    /* bits: places it was told of */
    uint64_t watched[SIM_MAX_DEVICES];   /* event types */
    uint8_t frozen_pct[SIM_MAX_DEVICES]; /* while the device is frozen */
    struct sim_group_entry *group;
    struct sim_model_client *model; /* schedule.c has these */
    uint64_t taken, tail;           /* operations of its queue, and those there at the pass */
    uint32_t *signalled;            /* streams with an operation that the client ends */
    uint32_t signalled_count, signalled_room;
    bool has_asked, has_signalled;
};

/* What simctl made of a device. */
struct sim_health {
    enum sim_condition condition;
    uint64_t withheld_bytes;
    uint64_t ecc_corrected, ecc_uncorrected;
    uint32_t recovery_action;
    uint32_t last_xid; /* 0: none */
    uint32_t frozen_pct;
    bool is_frozen;
};

struct sim_server {
    struct sim_machine machine;
    int listener, epoll, node_fd, control_fd, spare_fd;
    struct sim_node *node;
    struct sim_control *control;
    struct sim_model *model;
    bool is_asked; /* a pass is wanted */
    struct sim_health health[SIM_MAX_DEVICES];
    uint64_t faults; /* bits: rules of the control page in force */
    struct sim_client_entry *clients;
    struct sim_group_entry *groups;
    struct sim_object *objects;         /* object.h */
    int holds;                          /* epoll set of their holders */
    uint32_t sequence;                  /* of simgpud's own changes to words */
    uint64_t slots[SIM_MAX_SLOTS / 64]; /* taken ones */
    uint32_t slot_sequence[SIM_MAX_SLOTS];
    uint64_t unsupported[SIM_MAX_ENTRIES]; /* calls of clients that are gone */
};

/* Makes the node, binds run_dir/simgpud.sock (mode 0666; a stale socket of a dead simgpud is
 * replaced, a live one refused with ALQ_EBUSY). */
int sim_server_open(struct sim_server *server, const char *run_dir, struct alq_err *err);

/* Serves until one of SIGTERM and SIGINT arrives on signal_fd. */
int sim_server_run(struct sim_server *server, int signal_fd, struct alq_err *err);

/* Drops all clients and removes the socket. */
void sim_server_close(struct sim_server *server, const char *run_dir);

/* A sealed memfd of that size, mapped when map is not NULL; -1 with errno. */
int sim_shared_memory(const char *name, size_t bytes, void **map);

/* What the clients' kernels took of a device since the last reset, up to the last pass. */
uint64_t sim_server_device_busy(const struct sim_server *server, uint32_t device);

/* What a client holds of a device, shared memory that it made included. */
uint64_t sim_server_client_bytes(const struct sim_server *server,
                                 const struct sim_client_entry *client, uint32_t device);

/* CLOCK_MONOTONIC. */
uint64_t sim_now_ns(void);

/* report.c: the JSON of simctl. NULL when out of memory. */
json_t *sim_report_oracle(const struct sim_server *server);
json_t *sim_report_list(const struct sim_server *server);
json_t *sim_report_device(const struct sim_server *server, uint32_t device);
json_t *sim_report_processes(const struct sim_server *server);

/* Name of an entry point of a profile's library by the index that clients count with, NULL beyond
 * the last, "" for a variable; generated from sim/data. */
const char *sim_entry_name(enum sim_profile profile, enum sim_library library, uint32_t index);

#endif
