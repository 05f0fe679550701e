/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/charge.h"

#include "vgpu/arith.h"
#include "vgpu/clock.h"
#include "vgpu/doors/known.h"
#include "vgpu/log.h"
#include "vgpu/memory/ledger.h"
#include "vgpu/process.h"
#include "vgpu/usage.h"

#define TEND_INTERVAL_NS 500000000u
#define ATTEMPTS 4

enum book { BOOK_DEVICE, BOOK_HOST };

/* NULL: the share has no such book. */
static struct alq_usage_section *section_of(const struct alq_share *share, enum book book)
{
    return book == BOOK_HOST ? share->host_section : share->section;
}

/* What the sum of a share may reach: on the device its limit less the daemon's correction. */
static uint64_t ceiling_of(const struct alq_share *share, enum book book)
{
    const struct alq_control_values *values = alq_control_now(share);
    if (book == BOOK_HOST)
        return share->host_section ? __atomic_load_n(&values->memory_spill_bytes, __ATOMIC_RELAXED)
                                   : 0;
    uint64_t limit = __atomic_load_n(&values->memory_limit_bytes, __ATOMIC_RELAXED);
    int64_t correction = __atomic_load_n(&values->overhead_correction_bytes, __ATOMIC_RELAXED);
    uint64_t ceiling;

    if (correction >= 0)
        return limit > (uint64_t)correction ? limit - (uint64_t)correction : 0;
    return __builtin_add_overflow(limit, 0 - (uint64_t)correction, &ceiling) ? UINT64_MAX : ceiling;
}

static struct alq_slot *slot_of(const struct alq_share *share, enum book book, uint32_t *number)
{
    *number = atomic_load_explicit(&share->file->slot, memory_order_acquire);
    return &section_of(share, book)->slots[*number];
}

static void show(struct alq_slot *slot, uint64_t counted, uint64_t overhead)
{
    __atomic_store_n(&slot->counted_bytes, slot->counted_bytes + counted, __ATOMIC_RELAXED);
    __atomic_store_n(&slot->overhead_bytes, slot->overhead_bytes + overhead, __ATOMIC_RELAXED);
}

/* Caller holds lock_ledger. The figures of a kind, summed over the shares, are the process's, so
 * both parts are found. */
static void give(struct alq_dev *dev, enum book book, uint64_t counted, uint64_t overhead)
{
    for (uint32_t i = dev->share_count; i-- > 0 && (counted || overhead);) {
        struct alq_usage_section *section = section_of(dev->share[i], book);
        if (!section)
            continue;
        uint32_t number;
        struct alq_slot *slot = slot_of(dev->share[i], book, &number);
        uint64_t c = alq_min(counted, slot->counted_bytes),
                 o = alq_min(overhead, slot->overhead_bytes);
        show(slot, -c, -o);
        alq_ledger_give(section, number, c + o);
        counted -= c;
        overhead -= o;
    }
}

/* Caller holds lock_ledger. */
static bool take(struct alq_dev *dev, enum book book, uint64_t counted, uint64_t overhead)
{
    uint64_t had_counted = 0, had_overhead = 0;

    for (uint32_t i = 0; i < dev->share_count; i++) {
        struct alq_share *share = dev->share[i];
        struct alq_usage_section *section = section_of(share, book);
        uint64_t rest = counted + overhead;
        bool is_last = i + 1 == dev->share_count;
        if (!section)
            continue;
        uint32_t number;
        struct alq_slot *slot = slot_of(share, book, &number);
        uint64_t got =
            alq_ledger_take(section, number, is_last ? rest : 1, rest, ceiling_of(share, book));
        uint64_t c = alq_min(counted, got), o = got - c;
        show(slot, c, o);
        counted -= c;
        overhead -= o;
        if (counted + overhead == 0)
            return true;
        had_counted += c;
        had_overhead += o;
    }
    give(dev, book, had_counted, had_overhead);
    return false;
}

static uint32_t reap(struct alq_share *const *shares, uint32_t count)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || shares[i]->file != shares[i - 1]->file)
            found += alq_usage_reap(shares[i]->file);
    return found;
}

static bool try_take(struct alq_dev *dev, enum book book, uint64_t counted, uint64_t overhead)
{
    alq_lock_take(&alq_process_page()->lock_ledger);
    bool ok = take(dev, book, counted, overhead);
    alq_lock_drop(&alq_process_page()->lock_ledger);
    return ok;
}

/* A try follows every reaping, also one that found nothing: another process may have reaped
 * meanwhile. Two processes may each hold a part of several shares while neither gets its whole:
 * step back and try again. */
static bool charge(struct alq_dev *dev, enum book book, uint64_t counted, uint64_t overhead)
{
    bool ok = try_take(dev, book, counted, overhead), is_hopeful = true;

    for (int i = 1; !ok && is_hopeful && i < ATTEMPTS; i++) {
        is_hopeful = reap(dev->share, dev->share_count) || dev->share_count > 1;
        if (i > 1)
            alq_sys_sleep_ns((uint64_t)(alq_sys_getpid() % 97 + 3) * 1000);
        ok = try_take(dev, book, counted, overhead);
    }
    return ok;
}

void alq_charge_refused(struct alq_dev *dev, enum alq_family family, uint64_t counted_bytes,
                        uint64_t overhead_bytes)
{
    struct alq_line line;
    const uint64_t bytes = alq_sum(counted_bytes, overhead_bytes);

    if (alq_core_attach() != 0)
        return;
    struct alq_usage_section *section = dev->share[0]->section;
    __atomic_fetch_add(&section->counters.refusals, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&section->refused[family], 1, __ATOMIC_RELAXED);
    if (!ALQ_LOG_IS_ON(ALQ_LOG_WARN))
        return;
    alq_log_begin(&line, ALQ_LOG_WARN);
    alq_text_add(&line.text, "refused by the limit, bytes=");
    alq_text_add_u64(&line.text, bytes);
    alq_text_add(&line.text, " limit=");
    alq_text_add_u64(&line.text, alq_dev_limit_bytes(dev));
    alq_text_add(&line.text, " held=");
    alq_text_add_u64(&line.text, alq_ledger_total(section));
    alq_text_add(&line.text, " device=");
    alq_text_add(&line.text, dev->uuid);
    alq_log_end(&line, ALQ_LOG_WARN);
}

bool alq_charge(struct alq_dev *dev, uint64_t counted_bytes, uint64_t overhead_bytes)
{
    uint64_t bytes;

    if (alq_core_attach() != 0)
        return false;
    if (__builtin_add_overflow(counted_bytes, overhead_bytes, &bytes) ||
        bytes > alq_dev_limit_bytes(dev))
        return false;
    if (bytes == 0)
        return true;
    return charge(dev, BOOK_DEVICE, counted_bytes, overhead_bytes);
}

/* What this process holds and all may, over the shares of the device. */
struct position {
    uint64_t own_bytes, ceiling_bytes;
};

static struct position position_of(const struct alq_dev *dev, enum book book)
{
    struct position at = {0, 0};

    for (uint32_t i = 0; i < dev->share_count; i++) {
        struct alq_usage_section *section = section_of(dev->share[i], book);
        if (!section)
            continue;
        uint32_t number;
        slot_of(dev->share[i], book, &number);
        at.own_bytes += alq_ledger_held(section, number);
        at.ceiling_bytes = alq_sum(at.ceiling_bytes, ceiling_of(dev->share[i], book));
    }
    return at;
}

static bool has_place(struct position at, uint64_t bytes)
{
    uint64_t sum;
    return !__builtin_add_overflow(at.own_bytes, bytes, &sum) && sum <= at.ceiling_bytes;
}

bool alq_charge_host(struct alq_dev *dev, uint64_t bytes)
{
    if (bytes == 0 || alq_core_attach() != 0 || !has_place(position_of(dev, BOOK_HOST), bytes))
        return false;
    return charge(dev, BOOK_HOST, bytes, 0);
}

void alq_uncharge_host(struct alq_dev *dev, uint64_t bytes)
{
    if (bytes == 0 || alq_core_attach() != 0)
        return;
    alq_lock_take(&alq_process_page()->lock_ledger);
    give(dev, BOOK_HOST, bytes, 0);
    alq_lock_drop(&alq_process_page()->lock_ledger);
}

bool alq_charge_is_over(const struct alq_dev *dev)
{
    if (alq_core_attach() != 0)
        return false;
    for (uint32_t i = 0; i < dev->share_count; i++)
        if (alq_ledger_total(dev->share[i]->section) > ceiling_of(dev->share[i], BOOK_DEVICE))
            return true;
    return false;
}

uint64_t alq_charge_wait_ns(const struct alq_dev *dev, uint64_t bytes, uint64_t spill_bytes,
                            uint64_t left_bytes)
{
    uint64_t wait_s = 0;

    if (alq_core_attach() != 0)
        return 0;
    for (uint32_t i = 0; i < dev->share_count; i++) {
        const struct alq_share *share = dev->share[i];
        uint64_t its = __atomic_load_n(&alq_control_now(share)->memory_wait_s, __ATOMIC_RELAXED);
        wait_s = its > wait_s ? its : wait_s;
    }
    struct position at = position_of(dev, BOOK_DEVICE);
    at.own_bytes -= alq_min(left_bytes, at.own_bytes);
    bool can_fit = wait_s && (has_place(at, bytes) ||
                              (spill_bytes && has_place(position_of(dev, BOOK_HOST), spill_bytes)));
    return can_fit ? wait_s * 1000000000u : 0;
}

void alq_charge_taken(struct alq_dev *dev, uint64_t counted_bytes, uint64_t overhead_bytes)
{
    struct alq_share *share = dev->share[dev->share_count - 1];
    uint64_t bytes = counted_bytes + overhead_bytes;

    if (bytes == 0 || alq_core_attach() != 0 ||
        try_take(dev, BOOK_DEVICE, counted_bytes, overhead_bytes))
        return;
    alq_lock_take(&alq_process_page()->lock_ledger);
    uint32_t number;
    struct alq_slot *slot = slot_of(share, BOOK_DEVICE, &number);
    if (alq_ledger_take(share->section, number, bytes, bytes, UINT64_MAX))
        show(slot, counted_bytes, overhead_bytes);
    alq_lock_drop(&alq_process_page()->lock_ledger);
}

void alq_charge_move(struct alq_dev *dev, int64_t bytes)
{
    if (bytes == 0 || alq_core_attach() != 0)
        return;
    uint64_t rest = bytes > 0 ? (uint64_t)bytes : 0 - (uint64_t)bytes;
    alq_lock_take(&alq_process_page()->lock_ledger);
    for (uint32_t i = dev->share_count; i-- > 0 && rest;) {
        uint32_t number;
        struct alq_slot *slot = slot_of(dev->share[i], BOOK_DEVICE, &number);
        uint64_t part = alq_min(rest, bytes > 0 ? slot->overhead_bytes : slot->counted_bytes);
        show(slot, bytes > 0 ? part : 0 - part, bytes > 0 ? 0 - part : part);
        rest -= part;
    }
    alq_lock_drop(&alq_process_page()->lock_ledger);
}

void alq_uncharge(struct alq_dev *dev, uint64_t counted_bytes, uint64_t overhead_bytes)
{
    if (alq_core_attach() != 0)
        return;
    alq_lock_take(&alq_process_page()->lock_ledger);
    give(dev, BOOK_DEVICE, counted_bytes, overhead_bytes);
    alq_lock_drop(&alq_process_page()->lock_ledger);
}

static uint64_t exported_bytes[ALQ_DEVICES_MAX]; /* under lock_ledger */

/* They are shown with the shares that are charged first, which are the last to be given back. */
void alq_charge_exported(struct alq_dev *dev, int64_t bytes)
{
    if (bytes == 0 || alq_core_attach() != 0)
        return;
    alq_lock_take(&alq_process_page()->lock_ledger);
    uint64_t rest = exported_bytes[dev->index] += (uint64_t)bytes;
    for (uint32_t i = 0; i < dev->share_count; i++) {
        uint32_t number;
        struct alq_slot *slot = slot_of(dev->share[i], BOOK_DEVICE, &number);
        uint64_t part = alq_min(rest, alq_ledger_held(dev->share[i]->section, number));
        __atomic_store_n(&slot->exported_bytes, part, __ATOMIC_RELAXED);
        rest -= part;
    }
    alq_lock_drop(&alq_process_page()->lock_ledger);
}

void alq_charge_imports(struct alq_dev *dev, int change)
{
    if (alq_core_attach() != 0)
        return;
    for (uint32_t i = 0; i < dev->share_count; i++) {
        uint32_t number;
        struct alq_slot *slot = slot_of(dev->share[i], BOOK_DEVICE, &number);
        __atomic_fetch_add(&slot->imports, (uint32_t)change, __ATOMIC_RELAXED);
    }
}

bool alq_charge_has_imports(const struct alq_dev *dev)
{
    for (uint32_t i = 0; i < dev->share_count; i++)
        if (alq_usage_has_imports(dev->share[i]->file, dev->share[i]->section_index))
            return true;
    return false;
}

void alq_charge_forget(void)
{
    for (uint32_t i = 0; i < ALQ_DEVICES_MAX; i++)
        exported_bytes[i] = 0;
}

void alq_charge_contexts(struct alq_dev *dev, int change)
{
    uint32_t number;

    if (alq_core_attach() != 0)
        return;
    struct alq_slot *slot = slot_of(dev->share[0], BOOK_DEVICE, &number);
    __atomic_fetch_add(&slot->contexts, (uint32_t)change, __ATOMIC_RELAXED);
}

void alq_room_of(struct alq_share *const *shares, uint32_t count, struct alq_room *out)
{
    *out = (struct alq_room){.limit_bytes = alq_shares_limit_bytes(shares, count)};
    reap(shares, count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t total = alq_ledger_total(shares[i]->section),
                 ceiling = ceiling_of(shares[i], BOOK_DEVICE);
        out->held_bytes += total;
        if (ceiling > total)
            out->free_bytes = alq_sum(out->free_bytes, ceiling - total);
    }
}

void alq_charge_tend(struct alq_dev *dev)
{
    static _Atomic uint64_t tended_ns;
    uint64_t now = alq_clock_coarse_ns(),
             last = atomic_load_explicit(&tended_ns, memory_order_relaxed);
    struct alq_counters *counters = &dev->share[0]->section->counters;

    __atomic_fetch_add(&counters->allocations, 1, __ATOMIC_RELAXED);
    uint64_t unknown = alq_unknown_take();
    if (__builtin_expect(unknown != 0, 0))
        __atomic_fetch_add(&counters->unknown_entries, unknown, __ATOMIC_RELAXED);
    if (now - last < TEND_INTERVAL_NS ||
        !atomic_compare_exchange_strong_explicit(&tended_ns, &last, now, memory_order_relaxed,
                                                 memory_order_relaxed))
        return;
    __atomic_store_n(&counters->last_activity_ns, alq_clock_boottime_ns(), __ATOMIC_RELAXED);
    reap(dev->share, dev->share_count);
}
