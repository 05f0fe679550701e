/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client of the simulated driver and simgpud share through memory, so that no allocation,
 * launch, record or query needs a round trip. Three sealed memfds, all made by simgpud:
 *
 *   node    one per simgpud, mapped by every CUDA client: used memory of each device
 *   group   one per group label, mapped by its members: used memory and its peak
 *   client  one per connection, mapped by that client and simgpud: what it holds, the operations it
 *           gives to its streams, and which of them are done (sim/model/README.md)
 *
 * A "word" holds a count of 512-byte units together with who wrote it last, so that simgpud can
 * tell after a client's death in mid-update what took effect (account.h has the protocol). simgpud
 * trusts nothing here beyond its own safety: every number is bounded when read. Fixed width,
 * little endian, versioned by SIM_LAYOUT_VERSION together with the messages of wire.h.
 */
#ifndef SIM_COMMON_LAYOUT_H
#define SIM_COMMON_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "model/op.h"

#define SIM_LAYOUT_VERSION 2u
#define SIM_MAX_DEVICES 32u
#define SIM_MAX_SLOTS 4096u /* clients; slot 0 is simgpud itself */
#define SIM_UNIT_BYTES 512u
#define SIM_RING 8192u       /* operations of a client that simgpud has not taken yet */
#define SIM_EVENTS 131072u   /* of a client */
#define SIM_WAITS 64u        /* threads of a client that sleep at once */
#define SIM_MAX_ENTRIES 768u /* entry points of one library profile */

typedef _Atomic uint64_t sim_word; /* units:36 | slot:12 | sequence:16 */

struct sim_node_device {
    sim_word used;           /* all clients, by account.h */
    uint64_t capacity_bytes; /* simgpud, before anyone maps: physical less the driver's reserve */
    _Atomic uint64_t withheld_bytes; /* simgpud: taken out of the free ones by simctl */
    uint64_t reserved[5];
};

/* "The operation of this slot with this sequence took effect", per device. */
struct sim_acks {
    _Atomic uint32_t sequence[SIM_MAX_SLOTS];
};

struct sim_node {
    uint32_t version;
    uint32_t device_count;
    uint64_t reserved[7];
    struct sim_node_device device[SIM_MAX_DEVICES];
    struct sim_acks device_ack[SIM_MAX_DEVICES];
    struct sim_acks group_ack[SIM_MAX_DEVICES];
};

struct sim_group_device {
    sim_word used;
    _Atomic uint64_t peak_bytes; /* members, only ever raised; simgpud lowers it on reset */
    uint64_t reserved[6];
};

struct sim_group {
    struct sim_group_device device[SIM_MAX_DEVICES];
};

/* Written by the client under its lock; intent says what is under way (account.h). */
struct sim_account {
    _Atomic uint64_t held_bytes;
    _Atomic uint64_t before_bytes; /* held_bytes before the operation in intent */
    _Atomic uint64_t intent;       /* 0, or valid:1 | sequence:16 | signed units:40 */
    _Atomic uint64_t context_bytes;
    _Atomic uint64_t module_bytes;
    _Atomic uint32_t context_count;
    uint32_t sequence;
    uint64_t reserved[2];
};

struct sim_client_device {
    struct sim_account account;
};

/* Which operations of a stream are done: of a stream's index, also of later streams that use it. */
struct sim_stream_cell {
    _Atomic uint64_t done;   /* simgpud: so many; release */
    _Atomic uint64_t signal; /* client: host operations up to this number are finished; release */
    _Atomic uint64_t signal_ns; /* client, before signal: since then */
    uint64_t reserved;
};

/* simgpud: that record of an event was reached then; the time first, the record with release. */
struct sim_event_cell {
    _Atomic uint64_t record;
    _Atomic uint64_t time_ns;
};

/* A thread that waits for an operation. */
struct sim_wait {
    _Atomic uint64_t number; /* client, before its bit of waits */
    _Atomic uint32_t stream; /* likewise */
    uint32_t reserved;
    _Atomic uint64_t earliest_ns; /* simgpud: not done before then; the client's 0: not answered */
    uint64_t padding;
};

struct sim_queue {
    _Atomic uint64_t tail; /* client: operations ever appended; release, after their entries */
    uint64_t padding0[7];
    _Atomic uint64_t head; /* simgpud: operations ever taken; release, after reading them */
    _Atomic uint32_t
        passes; /* simgpud, futex: answers to SIM_ASK; release, after waits and cells */
    _Atomic uint32_t hurries; /* simgpud, futex: answers given may be too late, ask again */
    uint64_t padding1[6];
    _Atomic uint64_t waits;    /* client: bits, entries of wait[] in use; release */
    _Atomic uint32_t asked;    /* client: SIM_ASK is under way; simgpud: 0 before it looks */
    _Atomic uint32_t sleepers; /* client: threads inside a futex call */
    uint64_t padding2[6];
    struct sim_wait wait[SIM_WAITS];
    struct sim_op op[SIM_RING]; /* client; number n at n % SIM_RING */
    struct sim_stream_cell stream[SIM_STREAMS];
    struct sim_event_cell event[SIM_EVENTS];
};

struct sim_client {
    uint32_t version;
    uint32_t slot;
    uint64_t reserved[7];
    _Atomic uint32_t
        unsupported[SIM_MAX_ENTRIES]; /* calls answered "not supported", by entry index */
    struct sim_client_device device[SIM_MAX_DEVICES];
    struct sim_queue queue; /* pages nobody touched cost nothing */
};

#define SIM_CLIENT_BYTES sizeof(struct sim_client)

static_assert(sizeof(struct sim_node_device) == 64 && sizeof(struct sim_group_device) == 64,
              "lines");
static_assert(sizeof(struct sim_account) == 64 && sizeof(struct sim_stream_cell) == 32 &&
                  sizeof(struct sim_event_cell) == 16 && sizeof(struct sim_wait) == 32,
              "records");
static_assert(offsetof(struct sim_queue, wait) == 192, "one line for each writer");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "words are shared between processes");

#endif
