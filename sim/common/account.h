/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory as counters that survive the death of any client at any instruction.
 *
 * A charge changes three places: the device's word, the group's word and the client's own
 * held_bytes. The client first writes what it means to do (intent), then swaps each word, leaving
 * its slot and sequence in it. Whoever replaces a word first notes in the ack table that the
 * operation named in it took effect. So for a dead client's intent simgpud can say of each word
 * whether it was applied: the word still bears its name, or the ack does. Nobody ever waits for
 * anybody: a stopped client holds up nobody.
 *
 * A client makes one charge per device at a time (its own lock); simgpud is slot 0 and
 * single-threaded. Pure functions over shared memory, no system calls.
 */
#ifndef SIM_COMMON_ACCOUNT_H
#define SIM_COMMON_ACCOUNT_H

#include <stdbool.h>

#include "common/layout.h"

/* Everything one client needs to charge one device. */
struct sim_ledger {
    struct sim_account *account; /* NULL for simgpud's own corrections */
    struct sim_node_device *device;
    struct sim_group_device *group;
    struct sim_acks *device_ack;
    struct sim_acks *group_ack;
    uint32_t slot;
};

enum sim_charge_kind { SIM_CHARGE_MEMORY, SIM_CHARGE_CONTEXT, SIM_CHARGE_MODULE };

/* Rounded up to what the device hands out. */
static inline uint64_t sim_round_bytes(uint64_t bytes)
{
    return (bytes + SIM_UNIT_BYTES - 1) / SIM_UNIT_BYTES * SIM_UNIT_BYTES;
}

/* A word that nobody wrote. */
static inline uint64_t sim_word_of(uint64_t bytes)
{
    return bytes / SIM_UNIT_BYTES << 28;
}

static inline uint64_t sim_word_bytes(uint64_t word)
{
    return (word >> 28) * SIM_UNIT_BYTES;
}

/* What clients may hold of a device, all of them together. */
static inline uint64_t sim_usable_bytes(const struct sim_node_device *device)
{
    uint64_t withheld = atomic_load_explicit(&device->withheld_bytes, memory_order_relaxed);

    return withheld < device->capacity_bytes ? device->capacity_bytes - withheld : 0;
}

/* Takes bytes (a multiple of 512) of the device; false, with nothing changed, when fewer are free.
 */
bool sim_charge(const struct sim_ledger *ledger, uint64_t bytes, enum sim_charge_kind kind);

/* Gives them back. */
void sim_uncharge(const struct sim_ledger *ledger, uint64_t bytes, enum sim_charge_kind kind);

/* simgpud, for bytes that belong to no client's account (any more): takes them out of the device's
 * and the group's word. */
void sim_release(const struct sim_ledger *ledger, uint64_t bytes, uint32_t *sequence);

/* simgpud, for a client that is gone: takes all it held out of the device's and the group's word,
 * an unfinished operation included. ledger is the dead client's; sequence is simgpud's counter. */
void sim_settle_dead(const struct sim_ledger *ledger, uint32_t *sequence);

#endif
