/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/table.h"

#include <assert.h>
#include <stddef.h>

#include "vgpu/process.h"

#define FIRST_CAPACITY 8u
#define ARENA_BYTES 65536u

struct entry {
    uint64_t key; /* 0: free */
    struct alq_entry_value value;
};
static_assert(sizeof(struct entry) == 24, "24 bytes an entry");

struct part {
    struct entry *entries;
    uint32_t capacity; /* a power of two, or 0 */
    uint32_t used;
};

static struct part parts[ALQ_TABLE_SHARDS];

/* Small arrays are cut from chunks; under lock_arena. What is outgrown is lost: at most 6 KiB a
 * part in all. */
static uint8_t *arena;
static size_t arena_left;

static void *array_new(size_t bytes)
{
    void *at = NULL;

    if (bytes >= 4096)
        return alq_sys_anon(bytes);
    alq_lock_take(&alq_process_page()->lock_arena);
    if (arena_left < bytes) {
        uint8_t *chunk = alq_sys_anon(ARENA_BYTES);
        if (chunk) {
            arena = chunk;
            arena_left = ARENA_BYTES;
        }
    }
    if (arena_left >= bytes) {
        at = arena;
        arena += bytes;
        arena_left -= bytes;
    }
    alq_lock_drop(&alq_process_page()->lock_arena);
    return at;
}

static void array_free(void *at, size_t bytes)
{
    if (bytes >= 4096)
        alq_sys_munmap(at, bytes);
}

/* POOL and SPILLED keys are LINEAR keys. Kinds are told apart by bits that user addresses and small
 * handles leave free. */
static uint64_t key_of(uint64_t handle, enum alq_kind kind)
{
    uint64_t space = kind == ALQ_KIND_POOL || kind == ALQ_KIND_SPILLED ? ALQ_KIND_LINEAR : kind;
    return handle ^ space << 60;
}

static uint64_t hash_of(uint64_t key)
{
    key ^= key >> 32;
    key *= 0xd6e8feb86659fd93ull;
    key ^= key >> 32;
    key *= 0xd6e8feb86659fd93ull;
    return key ^ key >> 32;
}

static uint32_t part_of(uint64_t hash)
{
    return (uint32_t)(hash >> 55);
}

static uint32_t find(const struct part *part, uint64_t key, uint64_t hash)
{
    uint32_t mask = part->capacity - 1, at = (uint32_t)hash & mask;
    while (part->entries[at].key != 0 && part->entries[at].key != key)
        at = (at + 1) & mask;
    return at;
}

static bool grow(struct part *part)
{
    struct part next = {.capacity = part->capacity ? part->capacity * 2 : FIRST_CAPACITY,
                        .used = part->used};

    next.entries = array_new(next.capacity * sizeof(struct entry));
    if (!next.entries)
        return false;
    for (uint32_t i = 0; i < part->capacity; i++) {
        const struct entry *entry = &part->entries[i];
        if (entry->key)
            next.entries[find(&next, entry->key, hash_of(entry->key))] = *entry;
    }
    if (part->entries)
        array_free(part->entries, part->capacity * sizeof(struct entry));
    *part = next;
    return true;
}

/* Takes the entry at `at` out and closes the gap, so that no search stops short. */
static void remove_at(struct part *part, uint32_t at)
{
    uint32_t mask = part->capacity - 1, hole = at;

    for (uint32_t next = (at + 1) & mask; part->entries[next].key; next = (next + 1) & mask) {
        uint32_t home = (uint32_t)hash_of(part->entries[next].key) & mask;
        if (((next - home) & mask) >= ((next - hole) & mask)) {
            part->entries[hole] = part->entries[next];
            hole = next;
        }
    }
    part->entries[hole].key = 0;
    part->used--;
}

bool alq_table_put(uint64_t handle, const struct alq_entry_value *value)
{
    uint64_t key = key_of(handle, (enum alq_kind)value->kind), hash = hash_of(key);
    uint32_t number = part_of(hash);
    struct part *part = &parts[number];
    bool ok = true;

    alq_lock_take(&alq_process_page()->lock_table[number]);
    if ((uint64_t)(part->used + 1) * 5 > (uint64_t)part->capacity * 4)
        ok = grow(part) || part->used + 1 < part->capacity;
    if (ok) {
        struct entry *entry = &part->entries[find(part, key, hash)];
        part->used += entry->key == 0;
        entry->key = key;
        entry->value = *value;
    }
    alq_lock_drop(&alq_process_page()->lock_table[number]);
    return ok;
}

static bool look(uint64_t handle, enum alq_kind kind, struct alq_entry_value *out, bool take)
{
    uint64_t key = key_of(handle, kind), hash = hash_of(key);
    uint32_t number = part_of(hash);
    struct part *part = &parts[number];
    bool found = false;

    alq_lock_take(&alq_process_page()->lock_table[number]);
    if (part->capacity) {
        uint32_t at = find(part, key, hash);
        if (part->entries[at].key) {
            *out = part->entries[at].value;
            found = true;
            if (take)
                remove_at(part, at);
        }
    }
    alq_lock_drop(&alq_process_page()->lock_table[number]);
    return found;
}

bool alq_table_take(uint64_t handle, enum alq_kind kind, struct alq_entry_value *out)
{
    return look(handle, kind, out, true);
}

bool alq_table_get(uint64_t handle, enum alq_kind kind, struct alq_entry_value *out)
{
    return look(handle, kind, out, false);
}

uint32_t alq_table_take_context(uint16_t context,
                                void (*each)(const struct alq_entry_value *, void *), void *data)
{
    uint32_t count = 0;

    for (uint32_t number = 0; number < ALQ_TABLE_SHARDS; number++) {
        struct part *part = &parts[number];
        alq_lock_take(&alq_process_page()->lock_table[number]);
        for (uint32_t at = 0; at < part->capacity;) {
            /* Closing the gap may bring another entry here: look again. */
            if (part->entries[at].key && part->entries[at].value.context == context) {
                struct alq_entry_value value = part->entries[at].value;
                remove_at(part, at);
                each(&value, data);
                count++;
            } else {
                at++;
            }
        }
        alq_lock_drop(&alq_process_page()->lock_table[number]);
    }
    return count;
}

void alq_table_take_range(enum alq_kind kind, uint64_t from, uint64_t bytes,
                          void (*each)(uint64_t, const struct alq_entry_value *, void *),
                          void *data)
{
    for (uint32_t number = 0; number < ALQ_TABLE_SHARDS; number++) {
        struct part *part = &parts[number];
        alq_lock_take(&alq_process_page()->lock_table[number]);
        for (uint32_t at = 0; at < part->capacity;) {
            const struct entry entry = part->entries[at];
            uint64_t handle = key_of(entry.key, kind); /* its own inverse */
            if (entry.key && entry.value.kind == kind && handle - from < bytes) {
                remove_at(part, at);
                each(handle, &entry.value, data);
            } else {
                at++;
            }
        }
        alq_lock_drop(&alq_process_page()->lock_table[number]);
    }
}

uint64_t alq_table_count(void)
{
    uint64_t count = 0;
    for (uint32_t number = 0; number < ALQ_TABLE_SHARDS; number++) {
        alq_lock_take(&alq_process_page()->lock_table[number]);
        count += parts[number].used;
        alq_lock_drop(&alq_process_page()->lock_table[number]);
    }
    return count;
}

void alq_table_forget(void)
{
    for (uint32_t number = 0; number < ALQ_TABLE_SHARDS; number++) {
        if (parts[number].entries)
            array_free(parts[number].entries, parts[number].capacity * sizeof(struct entry));
        parts[number] = (struct part){0};
    }
    arena = NULL;
    arena_left = 0;
}
