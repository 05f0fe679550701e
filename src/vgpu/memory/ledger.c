/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/ledger.h"

#include <stdbool.h>

#include "vgpu/atomics.h"

/* The unit test compiles this file with a step function and kills the process in it. */
#ifndef ALQ_LEDGER_STEP
#define ALQ_LEDGER_STEP(n) ((void)0)
#endif

#define SEQ_BITS 48
#define SEQ_MASK ((1ull << SEQ_BITS) - 1)

static uint64_t tag_of(uint32_t slot, uint64_t seq)
{
    return (uint64_t)slot << SEQ_BITS | seq;
}

/* Brings the operation that the tag names into its slot, unless somebody has. */
static void settle(struct alq_usage_section *section, uint64_t tag)
{
    uint64_t number = tag >> SEQ_BITS, seq = tag & SEQ_MASK;

    if (tag == 0 ||
        number >= ALQ_SLOTS) /* the file is in the tenant's hands: no index is believed */
        return;
    struct alq_slot *slot = &section->slots[number];
    struct alq_pair done = alq_pair_load(&slot->done);
    if (((done.tag + 1) & SEQ_MASK) != seq)
        return;
    /* The owner writes op before its tag can be seen and not again before done has this seq. Should
     * both have happened since the load above, delta is of a later operation, and the CAS fails. */
    uint64_t delta = __atomic_load_n(&slot->op.value, __ATOMIC_ACQUIRE);
    ALQ_LEDGER_STEP(0);
    alq_pair_cas(&slot->done, done, (struct alq_pair){done.value + delta, seq});
}

struct change {
    uint64_t min_bytes, max_bytes; /* to take */
    uint64_t ceiling_bytes;
    uint64_t give_bytes; /* to give back, when not 0 */
};

/* The operation's delta for a sum; false: do nothing. */
static bool delta_for(const struct change *change, uint64_t sum, uint64_t *delta)
{
    if (change->give_bytes) {
        *delta = 0 - (change->give_bytes < sum ? change->give_bytes : sum);
        return true;
    }
    uint64_t room = sum < change->ceiling_bytes ? change->ceiling_bytes - sum : 0;
    *delta = room < change->max_bytes ? room : change->max_bytes;
    return *delta != 0 && *delta >= change->min_bytes;
}

/* One operation of the slot, whose last one is settled. Returns the delta, 0 when nothing was done.
 */
static uint64_t operate(struct alq_usage_section *section, uint32_t number,
                        const struct change *change)
{
    struct alq_slot *slot = &section->slots[number];
    uint64_t seq = (__atomic_load_n(&slot->done.tag, __ATOMIC_ACQUIRE) + 1) & SEQ_MASK;
    uint64_t tag = tag_of(number, seq), delta;

    for (;; alq_pause()) {
        struct alq_pair total = alq_pair_load(&section->total);
        ALQ_LEDGER_STEP(1);
        settle(section, total.tag);
        ALQ_LEDGER_STEP(2);
        if (!delta_for(change, total.value, &delta))
            return 0;
        __atomic_store_n(&slot->op.tag, seq, __ATOMIC_RELEASE);
        ALQ_LEDGER_STEP(3);
        __atomic_store_n(&slot->op.value, delta, __ATOMIC_RELEASE);
        ALQ_LEDGER_STEP(4);
        if (alq_pair_cas(&section->total, total, (struct alq_pair){total.value + delta, tag}))
            break;
    }
    ALQ_LEDGER_STEP(5);
    settle(section, tag);
    ALQ_LEDGER_STEP(6);
    return delta;
}

uint64_t alq_ledger_take(struct alq_usage_section *section, uint32_t slot, uint64_t min_bytes,
                         uint64_t max_bytes, uint64_t ceiling_bytes)
{
    struct change change = {
        .min_bytes = min_bytes, .max_bytes = max_bytes, .ceiling_bytes = ceiling_bytes};
    uint64_t taken = operate(section, slot, &change);
    uint64_t sum = __atomic_load_n(&section->total.value, __ATOMIC_RELAXED);

    uint64_t peak = __atomic_load_n(&section->counters.peak_bytes, __ATOMIC_RELAXED);

    while (taken && sum > peak &&
           !__atomic_compare_exchange_n(&section->counters.peak_bytes, &peak, sum, true,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return taken;
}

void alq_ledger_give(struct alq_usage_section *section, uint32_t slot, uint64_t bytes)
{
    uint64_t held = alq_ledger_held(section, slot);
    struct change change = {.give_bytes = bytes < held ? bytes : held};
    if (change.give_bytes)
        operate(section, slot, &change);
}

struct alq_pair alq_ledger_look(struct alq_usage_section *section, uint32_t number)
{
    uint64_t last = __atomic_load_n(&section->total.tag, __ATOMIC_ACQUIRE);

    /* An operation of this slot that is in the sum but not in the slot is named by the tag, or has
     * been settled by who replaced it. */
    if (last >> SEQ_BITS == number)
        settle(section, last);
    ALQ_LEDGER_STEP(7);
    return alq_pair_load(&section->slots[number].done);
}

/* What the next operation of a dead owner's slot gives back; 0: none. */
static uint64_t next_burial(const struct alq_slot *slot, uint64_t held, bool keeps_exported)
{
    uint64_t exported = __atomic_load_n(&slot->exported_bytes, __ATOMIC_RELAXED);
    if (held > exported)
        return held - exported;
    return keeps_exported ? 0 : held;
}

/* The operation that follows `done`, and gives back so much of it. False: another reaper, or the
 * next owner, has made it. */
static bool bury_once(struct alq_usage_section *section, uint32_t number, struct alq_pair done,
                      uint64_t bytes)
{
    struct alq_slot *slot = &section->slots[number];
    uint64_t seq = (done.tag + 1) & SEQ_MASK, tag = tag_of(number, seq);

    for (;; alq_pause()) {
        struct alq_pair op = alq_pair_load(&slot->op);
        ALQ_LEDGER_STEP(8);
        struct alq_pair total = alq_pair_load(&section->total);
        ALQ_LEDGER_STEP(9);
        settle(section, total.tag);
        ALQ_LEDGER_STEP(10);
        /* Unmoved, it was also read in one piece. */
        if (__atomic_load_n(&slot->done.tag, __ATOMIC_ACQUIRE) != done.tag)
            return false;
        ALQ_LEDGER_STEP(11);
        if (!alq_pair_cas(&slot->op, op, (struct alq_pair){0 - bytes, seq}))
            continue;
        ALQ_LEDGER_STEP(12);
        if (alq_pair_cas(&section->total, total, (struct alq_pair){total.value - bytes, tag}))
            break;
    }
    ALQ_LEDGER_STEP(13);
    settle(section, tag);
    return true;
}

uint64_t alq_ledger_bury(struct alq_usage_section *section, uint32_t number, struct alq_pair done,
                         bool keeps_exported)
{
    uint64_t first = next_burial(&section->slots[number], done.value, keeps_exported);
    uint64_t rest = done.value - first;

    if (!first || !bury_once(section, number, done, first))
        return 0;
    done = (struct alq_pair){rest, (done.tag + 1) & SEQ_MASK};
    return rest && !keeps_exported && bury_once(section, number, done, rest) ? first + rest : first;
}

void alq_ledger_forget(struct alq_usage_section *section, uint32_t number)
{
    struct alq_slot *slot = &section->slots[number];
    uint64_t held = alq_ledger_held(section, number);
    __atomic_store_n(&slot->counted_bytes, held, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->overhead_bytes, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->contexts, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->pid, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->imports, 0, __ATOMIC_RELAXED);
    if (!held)
        __atomic_store_n(&slot->exported_bytes, 0, __ATOMIC_RELAXED);
}

uint64_t alq_ledger_held(const struct alq_usage_section *section, uint32_t slot)
{
    return __atomic_load_n(&section->slots[slot].done.value, __ATOMIC_ACQUIRE);
}

uint64_t alq_ledger_total(const struct alq_usage_section *section)
{
    return __atomic_load_n(&section->total.value, __ATOMIC_ACQUIRE);
}
