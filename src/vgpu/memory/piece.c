/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/piece.h"

#include "vgpu/memory/table.h"
#include "vgpu/process.h"
#include "vgpu/sys.h"

/*
 * PHYSICAL: counted_bytes = size, overhead_bytes = handles with different numbers + mappings +
 * bindings, and the flags.
 * HANDLE:   counted_bytes = number of the piece, overhead_bytes = references by this handle.
 * MAPPING:  counted_bytes = number of the piece, overhead_bytes = size in pages of 4 KiB.
 */
#define IS_IMPORTED 0x80000000u
#define IS_EXPORTED 0x40000000u
#define HOLDERS 0x3fffffffu

#define STEP_BYTES 65536u /* the smallest granularity of mappings */
#define MISSES_MAX 256    /* steps over what we did not map, before the whole table is looked at */

struct bound {
    struct alq_binding place;
    uint64_t piece;
    uint8_t device; /* of the piece */
};

static uint64_t next_number = 1; /* all under lock_vmm */
static uint64_t mapping_count;
static struct bound *bindings;
static uint64_t binding_room, bindings_reserved;
_Atomic uint32_t alq_binding_count;
_Atomic bool alq_piece_any;

static void lock(void)
{
    alq_lock_take(&alq_process_page()->lock_vmm);
}

static void unlock(void)
{
    alq_lock_drop(&alq_process_page()->lock_vmm);
}

static uint32_t bound_count(void)
{
    return atomic_load_explicit(&alq_binding_count, memory_order_relaxed);
}

/* ---- under the lock -------------------------------------------------------------------------- */

static bool flag(uint64_t number, uint32_t bits, struct alq_entry_value *piece)
{
    if (!alq_table_take(number, ALQ_KIND_PHYSICAL, piece))
        return false;
    piece->overhead_bytes |= bits;
    alq_table_put(number, piece); /* room was just made */
    return true;
}

static void hold(uint64_t number)
{
    struct alq_entry_value piece;
    if (alq_table_take(number, ALQ_KIND_PHYSICAL, &piece)) {
        piece.overhead_bytes++;
        alq_table_put(number, &piece);
    }
}

/* What ended with a call: summed up under the lock, told without it. */
struct ended {
    struct alq_parting *part;
    int imports[ALQ_DEVICES_MAX], imports_anywhere;
};

static void drop(uint64_t number, struct ended *ended);

/* Closes the gap with the last one. */
static void unbind(uint32_t at, struct ended *ended)
{
    uint64_t piece = bindings[at].piece;
    uint32_t last = bound_count() - 1;

    bindings[at] = bindings[last];
    atomic_store_explicit(&alq_binding_count, last, memory_order_relaxed);
    drop(piece, ended);
}

static void unbind_all(uint64_t owner, struct ended *ended)
{
    for (uint32_t i = bound_count(); i-- > 0;)
        if (i < bound_count() && bindings[i].place.owner == owner)
            unbind(i, ended);
}

static void drop(uint64_t number, struct ended *ended)
{
    struct alq_entry_value piece;

    if (!alq_table_take(number, ALQ_KIND_PHYSICAL, &piece))
        return;
    piece.overhead_bytes--;
    if (piece.overhead_bytes & HOLDERS) {
        alq_table_put(number, &piece);
        return;
    }
    if (piece.overhead_bytes & IS_IMPORTED)
        (*(piece.device == ALQ_NO_DEVICE ? &ended->imports_anywhere
                                         : &ended->imports[piece.device]))++;
    else if (piece.device != ALQ_NO_DEVICE && (piece.overhead_bytes & IS_EXPORTED))
        ended->part->exported_bytes[piece.device] += piece.counted_bytes;
    else if (piece.device != ALQ_NO_DEVICE)
        ended->part->plain_bytes[piece.device] += piece.counted_bytes;
    unbind_all(number, ended); /* it was a multicast object */
}

static void tell(const struct ended *ended)
{
    for (uint32_t i = 0; i < ALQ_DEVICES_MAX; i++)
        if (ended->imports[i])
            alq_export_opened(alq_dev_at(i), -ended->imports[i]);
    if (ended->imports_anywhere)
        alq_export_opened(NULL, -ended->imports_anywhere);
}

/* ---- handles --------------------------------------------------------------------------------- */

static bool make(CUmemGenericAllocationHandle handle, const struct alq_dev *dev, uint64_t bytes,
                 uint32_t flags)
{
    uint8_t device = dev ? (uint8_t)dev->index : ALQ_NO_DEVICE;
    struct alq_entry_value piece = {bytes, 1 | flags, 0, device, ALQ_KIND_PHYSICAL}, gone;

    if (dev)
        atomic_store_explicit(&alq_piece_any, true, memory_order_relaxed);
    lock();
    struct alq_entry_value alias = {next_number, 1, 0, device, ALQ_KIND_HANDLE};
    bool ok = alq_table_put(next_number, &piece);
    if (ok && !alq_table_put(handle, &alias)) {
        alq_table_take(next_number, ALQ_KIND_PHYSICAL, &gone);
        ok = false;
    }
    next_number++;
    unlock();
    return ok;
}

bool alq_piece_new(CUmemGenericAllocationHandle handle, struct alq_dev *dev, uint64_t bytes)
{
    return make(handle, dev, bytes, 0);
}

bool alq_piece_imported(CUmemGenericAllocationHandle handle, struct alq_dev *dev)
{
    if (!make(handle, dev, 0, IS_IMPORTED))
        return false;
    alq_export_opened(dev, 1);
    return true;
}

static bool retain(CUmemGenericAllocationHandle handle)
{
    struct alq_entry_value alias;

    if (!alq_table_take(handle, ALQ_KIND_HANDLE, &alias))
        return false;
    alias.overhead_bytes++;
    alq_table_put(handle, &alias);
    return true;
}

bool alq_piece_retained(CUmemGenericAllocationHandle handle)
{
    lock();
    bool is_known = retain(handle);
    unlock();
    return is_known;
}

void alq_piece_retained_at(CUmemGenericAllocationHandle handle, CUdeviceptr address)
{
    struct alq_entry_value found;

    lock();
    if (!retain(handle) && alq_table_get(address, ALQ_KIND_MAPPING, &found)) {
        struct alq_entry_value alias = {found.counted_bytes, 1, 0, found.device, ALQ_KIND_HANDLE};
        if (alq_table_put(handle, &alias))
            hold(found.counted_bytes);
    }
    unlock();
}

void alq_piece_exported(CUmemGenericAllocationHandle handle)
{
    struct alq_entry_value alias, piece;
    struct alq_dev *dev = NULL;

    lock();
    bool is_new = alq_table_get(handle, ALQ_KIND_HANDLE, &alias) &&
                  alq_table_get(alias.counted_bytes, ALQ_KIND_PHYSICAL, &piece) &&
                  piece.device != ALQ_NO_DEVICE &&
                  !(piece.overhead_bytes & (IS_EXPORTED | IS_IMPORTED)) &&
                  flag(alias.counted_bytes, IS_EXPORTED, &piece);
    if (is_new)
        dev = alq_dev_at(piece.device);
    unlock();
    if (dev)
        alq_export_add(dev, piece.counted_bytes);
}

struct alq_piece_release alq_piece_release(CUmemGenericAllocationHandle handle)
{
    struct alq_piece_release release = {.number = 0};
    struct alq_entry_value alias;

    lock();
    if (alq_table_take(handle, ALQ_KIND_HANDLE, &alias)) {
        release.number = alias.counted_bytes;
        release.device = alias.device;
        release.is_last = --alias.overhead_bytes == 0;
        if (!release.is_last)
            alq_table_put(handle, &alias);
    }
    unlock();
    return release;
}

void alq_piece_released(CUmemGenericAllocationHandle handle,
                        const struct alq_piece_release *release, bool is_released,
                        struct alq_parting *part)
{
    struct ended ended = {.part = part};

    if (!release->number)
        return;
    lock();
    if (is_released && release->is_last)
        drop(release->number, &ended);
    if (!is_released && !retain(handle)) {
        struct alq_entry_value alias = {release->number, 1, 0, release->device, ALQ_KIND_HANDLE};
        alq_table_put(handle, &alias);
    }
    unlock();
    tell(&ended);
}

uint64_t alq_piece_number(CUmemGenericAllocationHandle handle)
{
    struct alq_entry_value alias;

    lock();
    bool is_known = alq_table_get(handle, ALQ_KIND_HANDLE, &alias);
    unlock();
    return is_known ? alias.counted_bytes : 0;
}

/* ---- mappings -------------------------------------------------------------------------------- */

bool alq_piece_mapped(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle)
{
    struct alq_entry_value alias;
    bool ok = true;

    lock();
    if (alq_table_get(handle, ALQ_KIND_HANDLE, &alias)) {
        struct alq_entry_value mapping = {alias.counted_bytes, (uint32_t)(bytes >> 12), 0,
                                          alias.device, ALQ_KIND_MAPPING};
        ok = alq_table_put(at, &mapping);
        if (ok) {
            mapping_count++;
            hold(alias.counted_bytes);
        }
    }
    unlock();
    return ok;
}

struct taken {
    CUdeviceptr at;
    struct alq_entry_value mapping;
};

struct alq_piece_unmap {
    uint64_t bytes; /* of this */
    uint64_t count, room;
    struct taken taken[];
};

static void take_one(uint64_t at, const struct alq_entry_value *mapping, void *data)
{
    struct alq_piece_unmap *unmap = data;

    unmap->taken[unmap->count++] = (struct taken){at, *mapping};
}

/* Caller holds lock_vmm; there is room for every mapping. A range that the driver takes is mapped
 * from end to end; but it has not judged this one yet. */
static void take_mappings(CUdeviceptr at, uint64_t bytes, struct alq_piece_unmap *unmap)
{
    struct alq_entry_value mapping;
    uint64_t done = 0;

    for (int misses = 0; done < bytes && unmap->count < unmap->room && misses < MISSES_MAX;) {
        uint64_t advance = STEP_BYTES;
        if (!alq_table_take(at + done, ALQ_KIND_MAPPING, &mapping)) {
            misses++;
        } else {
            take_one(at + done, &mapping, unmap);
            if (mapping.overhead_bytes)
                advance = (uint64_t)mapping.overhead_bytes << 12;
        }
        if (__builtin_add_overflow(done, advance, &done))
            done = bytes;
    }
    if (done < bytes && unmap->count < unmap->room)
        alq_table_take_range(ALQ_KIND_MAPPING, at + done, bytes - done, take_one, unmap);
    mapping_count -= unmap->count;
}

bool alq_piece_unmap(CUdeviceptr at, uint64_t bytes, struct alq_piece_unmap **out)
{
    struct alq_piece_unmap *unmap = NULL;

    lock();
    uint64_t size = sizeof(*unmap) + mapping_count * sizeof(struct taken);
    bool ok = mapping_count == 0 || (unmap = alq_sys_anon(size));
    if (unmap) {
        unmap->bytes = size;
        unmap->room = mapping_count;
        take_mappings(at, bytes, unmap);
    }
    unlock();
    *out = unmap;
    return ok;
}

void alq_piece_unmapped(struct alq_piece_unmap *unmap, bool is_unmapped, struct alq_parting *part)
{
    struct ended ended = {.part = part};

    if (!unmap)
        return;
    lock();
    for (uint64_t i = 0; i < unmap->count; i++) {
        if (is_unmapped)
            drop(unmap->taken[i].mapping.counted_bytes, &ended);
        else
            mapping_count += alq_table_put(unmap->taken[i].at, &unmap->taken[i].mapping);
    }
    unlock();
    alq_sys_munmap(unmap, unmap->bytes);
    tell(&ended);
}

/* ---- bindings -------------------------------------------------------------------------------- */

bool alq_bindings_reserve(uint32_t more)
{
    bool ok = true;

    lock();
    const uint64_t count = bound_count(), need = count + bindings_reserved + more;
    if (need > binding_room) {
        const uint64_t room = need + need / 2 + 64;
        struct bound *grown = alq_sys_anon(room * sizeof(struct bound));
        ok = grown != NULL;
        for (uint64_t i = 0; ok && i < count; i++)
            grown[i] = bindings[i];
        if (ok && bindings)
            alq_sys_munmap(bindings, binding_room * sizeof(struct bound));
        if (ok) {
            bindings = grown;
            binding_room = room;
        }
    }
    if (ok)
        bindings_reserved += more;
    unlock();
    return ok;
}

void alq_bindings_unreserve(uint32_t count)
{
    lock();
    bindings_reserved -= count;
    unlock();
}

static bool is_within(const struct alq_binding *a, const struct alq_binding *b)
{
    bool is = a->owner == b->owner && a->where == b->where;
    for (int i = 0; i < 3; i++)
        is = is && a->from[i] >= b->from[i] && a->to[i] <= b->to[i];
    return is;
}

void alq_bindings_end(const struct alq_binding *part_of, const struct alq_dev *dev,
                      struct alq_parting *part)
{
    struct ended ended = {.part = part};

    lock();
    for (uint32_t i = bound_count(); i-- > 0;)
        if (i < bound_count() && (!dev || dev->index == bindings[i].device) &&
            is_within(&bindings[i].place, part_of))
            unbind(i, &ended);
    unlock();
    tell(&ended);
}

void alq_bindings_end_all(uint64_t owner, struct alq_parting *part)
{
    struct ended ended = {.part = part};

    lock();
    unbind_all(owner, &ended);
    unlock();
    tell(&ended);
}

/* Caller holds lock_vmm. */
static void bind(const struct alq_binding *to, uint64_t number, uint8_t device)
{
    uint32_t count = bound_count(); /* the caller has reserved */
    bindings[count] = (struct bound){*to, number, device};
    atomic_store_explicit(&alq_binding_count, count + 1, memory_order_relaxed);
    hold(number);
}

void alq_piece_bound(const struct alq_binding *to, CUmemGenericAllocationHandle handle)
{
    struct alq_entry_value alias;

    lock();
    if (alq_table_get(handle, ALQ_KIND_HANDLE, &alias))
        bind(to, alias.counted_bytes, alias.device);
    unlock();
}

void alq_piece_bound_at(const struct alq_binding *to, CUdeviceptr address)
{
    struct alq_entry_value mapping;

    lock();
    if (alq_table_get(address, ALQ_KIND_MAPPING, &mapping))
        bind(to, mapping.counted_bytes, mapping.device);
    unlock();
}

void alq_piece_forget(void)
{
    mapping_count = 0;
    bindings_reserved = 0;
    atomic_store_explicit(&alq_piece_any, false, memory_order_relaxed);
    atomic_store_explicit(&alq_binding_count, 0, memory_order_relaxed);
}
