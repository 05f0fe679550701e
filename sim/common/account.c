/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The charge protocol of account.h. The words are swapped with acquire-release order: who sees a
 * slot's name in a word also sees its intent; an ack is stored before the swap that erases the
 * name, so a reader that misses the name finds the ack.
 */
#include "common/account.h"

#define SEQUENCE_MASK 0xffffu
#define SLOT_SHIFT 16
#define UNITS_SHIFT 28
#define UNITS_MAX ((1ull << 36) - 1)
#define INTENT_VALID (1ull << 63)
#define INTENT_UNITS_BITS 40

static uint32_t word_slot(uint64_t word)
{
    return (uint32_t)(word >> SLOT_SHIFT) & (SIM_MAX_SLOTS - 1);
}

static uint32_t word_sequence(uint64_t word)
{
    return (uint32_t)word & SEQUENCE_MASK;
}

/* Later of two sequence numbers wins, so that a helper that was held up cannot set the clock back.
 */
static void ack(struct sim_acks *acks, uint32_t slot, uint32_t sequence)
{
    uint32_t seen = atomic_load_explicit(&acks->sequence[slot], memory_order_relaxed);

    while ((int16_t)(uint16_t)(sequence - seen) > 0) {
        if (atomic_compare_exchange_weak_explicit(&acks->sequence[slot], &seen, sequence,
                                                  memory_order_release, memory_order_relaxed))
            return;
    }
}

/* Adds units to the word unless it would go beyond limit_units; the new count is put in *units_out.
 */
static bool word_add(sim_word *word, struct sim_acks *acks, uint32_t slot, uint32_t sequence,
                     int64_t units, uint64_t limit_units, uint64_t *units_out)
{
    uint64_t old = atomic_load_explicit(word, memory_order_acquire);

    for (;;) {
        uint64_t have = old >> UNITS_SHIFT, now;

        if (units >= 0) {
            if ((uint64_t)units > limit_units || have > limit_units - (uint64_t)units)
                return false;
            now = have + (uint64_t)units;
        } else {
            now = have >= (uint64_t)-units ? have - (uint64_t)-units : 0;
        }
        ack(acks, word_slot(old), word_sequence(old));
        if (atomic_compare_exchange_weak_explicit(
                word, &old, now << UNITS_SHIFT | (uint64_t)slot << SLOT_SHIFT | sequence,
                memory_order_acq_rel, memory_order_acquire)) {
            *units_out = now;
            return true;
        }
    }
}

static void raise_peak(struct sim_group_device *group, uint64_t bytes)
{
    uint64_t seen = atomic_load_explicit(&group->peak_bytes, memory_order_relaxed);

    while (bytes > seen &&
           !atomic_compare_exchange_weak_explicit(&group->peak_bytes, &seen, bytes,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

static bool change(const struct sim_ledger *l, int64_t units, enum sim_charge_kind kind)
{
    struct sim_account *a = l->account;
    uint32_t sequence = (a->sequence + 1) & SEQUENCE_MASK;
    uint64_t before = atomic_load_explicit(&a->held_bytes, memory_order_relaxed);
    uint64_t limit = sim_usable_bytes(l->device) / SIM_UNIT_BYTES, count;
    int64_t bytes = units * (int64_t)SIM_UNIT_BYTES;

    a->sequence = sequence;
    atomic_store_explicit(&a->before_bytes, before, memory_order_relaxed);
    atomic_store_explicit(&a->intent,
                          INTENT_VALID | (uint64_t)sequence << INTENT_UNITS_BITS |
                              ((uint64_t)units & ((1ull << INTENT_UNITS_BITS) - 1)),
                          memory_order_release);
    if (!word_add(&l->device->used, l->device_ack, l->slot, sequence, units, limit, &count)) {
        atomic_store_explicit(&a->intent, 0, memory_order_release);
        return false;
    }
    (void)word_add(&l->group->used, l->group_ack, l->slot, sequence, units, UNITS_MAX, &count);
    if (units > 0)
        raise_peak(l->group, count * SIM_UNIT_BYTES);
    if (kind == SIM_CHARGE_CONTEXT)
        atomic_fetch_add_explicit(&a->context_bytes, (uint64_t)bytes, memory_order_relaxed);
    else if (kind == SIM_CHARGE_MODULE)
        atomic_fetch_add_explicit(&a->module_bytes, (uint64_t)bytes, memory_order_relaxed);
    atomic_store_explicit(&a->held_bytes, before + (uint64_t)bytes, memory_order_relaxed);
    atomic_store_explicit(&a->intent, 0, memory_order_release);
    return true;
}

bool sim_charge(const struct sim_ledger *ledger, uint64_t bytes, enum sim_charge_kind kind)
{
    if (bytes > ledger->device->capacity_bytes)
        return false;
    return change(ledger, (int64_t)(bytes / SIM_UNIT_BYTES), kind);
}

void sim_uncharge(const struct sim_ledger *ledger, uint64_t bytes, enum sim_charge_kind kind)
{
    (void)change(ledger, -(int64_t)(bytes / SIM_UNIT_BYTES), kind);
}

static bool took_effect(sim_word *word, struct sim_acks *acks, uint32_t slot, uint32_t sequence)
{
    uint64_t now = atomic_load_explicit(word, memory_order_acquire);

    if (word_slot(now) == slot && word_sequence(now) == sequence)
        return true;
    return (atomic_load_explicit(&acks->sequence[slot], memory_order_acquire) & SEQUENCE_MASK) ==
           sequence;
}

static void settle_word(sim_word *word, struct sim_acks *acks, uint64_t bytes, uint32_t *sequence)
{
    uint64_t units = bytes / SIM_UNIT_BYTES, count;

    if (units > UNITS_MAX)
        units = UNITS_MAX;
    *sequence = (*sequence + 1) & SEQUENCE_MASK;
    (void)word_add(word, acks, 0, *sequence, -(int64_t)units, UNITS_MAX, &count);
}

void sim_release(const struct sim_ledger *ledger, uint64_t bytes, uint32_t *sequence)
{
    settle_word(&ledger->device->used, ledger->device_ack, bytes, sequence);
    settle_word(&ledger->group->used, ledger->group_ack, bytes, sequence);
}

void sim_settle_dead(const struct sim_ledger *ledger, uint32_t *sequence)
{
    struct sim_account *a = ledger->account;
    uint64_t intent = atomic_load_explicit(&a->intent, memory_order_acquire);
    uint64_t on_device, on_group;

    if (intent & INTENT_VALID) {
        uint64_t before = atomic_load_explicit(&a->before_bytes, memory_order_relaxed);
        uint32_t of = (uint32_t)(intent >> INTENT_UNITS_BITS) & SEQUENCE_MASK;
        int64_t units = (int64_t)(intent << (64 - INTENT_UNITS_BITS)) >> (64 - INTENT_UNITS_BITS);
        uint64_t after = before + (uint64_t)(units * (int64_t)SIM_UNIT_BYTES);

        on_device = took_effect(&ledger->device->used, ledger->device_ack, ledger->slot, of)
                        ? after
                        : before;
        on_group =
            took_effect(&ledger->group->used, ledger->group_ack, ledger->slot, of) ? after : before;
    } else {
        on_device = on_group = atomic_load_explicit(&a->held_bytes, memory_order_relaxed);
    }
    settle_word(&ledger->device->used, ledger->device_ack, on_device, sequence);
    settle_word(&ledger->group->used, ledger->group_ack, on_group, sequence);
}
