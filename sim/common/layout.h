/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client of the simulated driver and simgpud share through memory, so that no allocation,
 * launch, record or query needs a round trip. Three sealed memfds, all made by simgpud:
 *
 *   node    one per simgpud, mapped by every CUDA client: used memory and the end of the queue of
 * each device group   one per group label, mapped by its members: used memory and its peak client
 * one per connection, mapped by that client and simgpud: what it holds, when it was busy
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
#include <stdint.h>

#define SIM_LAYOUT_VERSION 1u
#define SIM_MAX_DEVICES 32u
#define SIM_MAX_SLOTS 4096u /* clients; slot 0 is simgpud itself */
#define SIM_UNIT_BYTES 512u
#define SIM_SPANS 2048u
#define SIM_MAX_ENTRIES 768u /* entry points of one library profile */

typedef _Atomic uint64_t sim_word; /* units:36 | slot:12 | sequence:16 */

struct sim_node_device {
    sim_word used;           /* all clients, by account.h */
    uint64_t capacity_bytes; /* simgpud, before anyone maps: physical less the driver's reserve */
    _Atomic uint64_t free_at_ns; /* all clients by compare-and-swap: when the device's queue ends */
    _Atomic uint64_t withheld_bytes; /* simgpud: taken out of the free ones by simctl */
    uint64_t reserved[4];
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

/* Kernels ran between start and end for busy nanoseconds of it; cumulative counts all spans before.
 */
struct sim_span {
    _Atomic uint64_t start_ns, end_ns, busy_ns, cumulative_ns;
};

/* One writer (the client under its lock), readers by the sequence lock (timeline.h). */
struct sim_timeline {
    _Atomic uint32_t lock; /* odd while the writer is inside */
    uint32_t reserved;
    _Atomic uint64_t count; /* spans ever begun; the newest is (count - 1) % SIM_SPANS */
    _Atomic uint64_t launches;
    uint64_t padding[5];
    struct sim_span span[SIM_SPANS];
};

struct sim_client_device {
    struct sim_account account;
    struct sim_timeline timeline;
};

struct sim_client {
    uint32_t version;
    uint32_t slot;
    uint64_t reserved[7];
    _Atomic uint32_t
        unsupported[SIM_MAX_ENTRIES]; /* calls answered "not supported", by entry index */
    struct sim_client_device device[SIM_MAX_DEVICES]; /* pages nobody touched cost nothing */
};

#define SIM_CLIENT_BYTES sizeof(struct sim_client)

static_assert(sizeof(struct sim_node_device) == 64 && sizeof(struct sim_group_device) == 64,
              "lines");
static_assert(sizeof(struct sim_account) == 64 && sizeof(struct sim_span) == 32, "records");
static_assert(sizeof(struct sim_timeline) == 64 + 32 * SIM_SPANS, "timeline");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "words are shared between processes");

#endif
