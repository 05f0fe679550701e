/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/memory/table.h"

#include <assert.h>
#include <stddef.h>

#include "vgpu/arith.h"
#include "vgpu/process.h"

#define FIRST_BUCKETS 2u
#define PARTS 2048u /* so many that growing one at a million allocations is short */
#define PART_SHIFT 53
#define SLOTS 3u

#define COUNTED_BITS 47
#define COUNTED_MAX ((1ull << COUNTED_BITS) - 1) /* more than addresses reach */

/*
 * One line of the cache, so that an entry costs one miss. Where the home of an entry is full it
 * lies in the next bucket that is not, and is counted in `passed` of those before: a search ends at
 * the first bucket that nobody passed, and nothing moves when an entry goes.
 */
struct bucket {
    uint64_t key[SLOTS]; /* 0: free */
    struct {
        uint64_t counted_bytes : COUNTED_BITS;
        uint64_t context : 8;
        uint64_t device : 5;
        uint64_t kind : 4;
    } value[SLOTS];
    uint32_t overhead_bytes[SLOTS];
    uint32_t passed;
};
static_assert(sizeof(struct bucket) == 64, "a line");
static_assert(ALQ_DEVICES_MAX <= ALQ_NO_DEVICE && ALQ_NO_DEVICE < 32, "a device fits");

struct part {
    struct bucket *buckets;
    uint32_t count;  /* of buckets: a power of two, or 0 */
    uint32_t used;   /* slots */
    uint64_t taking; /* key between take_begin and take_end, 0: none */
    enum { ENTRY_STAYS, ENTRY_DISPLACED, ENTRY_NONE } taking_state;
};

static struct part parts[PARTS];
static struct alq_entry_value displaced[PARTS]; /* of each part's `taking` */

/* ---- memory ---------------------------------------------------------------------------------- */

#define CHUNK_BYTES 65536u /* and its alignment */

/* Small arrays are cut from chunks, in whole lines. Parts grow at about the same time, so those of
 * a chunk are outgrown together. Under lock_arena. */
struct chunk {
    uint32_t used; /* bytes, this line too */
    uint32_t live; /* arrays; one more while new ones are cut from it */
    uint8_t reserved[56];
};
static_assert(sizeof(struct chunk) == 64, "a line");

static struct chunk *chunk_now;

static void chunk_put(struct chunk *chunk)
{
    if (--chunk->live == 0)
        alq_sys_munmap(chunk, CHUNK_BYTES);
}

static struct chunk *chunk_new(void)
{
    uint8_t *at = alq_sys_anon(2 * CHUNK_BYTES);
    if (!at)
        return NULL;
    size_t before = -(uintptr_t)at % CHUNK_BYTES;
    if (before)
        alq_sys_munmap(at, before);
    alq_sys_munmap(at + before + CHUNK_BYTES, CHUNK_BYTES - before);
    struct chunk *chunk = (struct chunk *)(void *)(at + before);
    *chunk = (struct chunk){.used = sizeof(*chunk), .live = 1};
    return chunk;
}

static void *cut(uint32_t bytes)
{
    if (!chunk_now || CHUNK_BYTES - chunk_now->used < bytes) {
        struct chunk *chunk = chunk_new();
        if (!chunk)
            return NULL;
        if (chunk_now)
            chunk_put(chunk_now);
        chunk_now = chunk;
    }
    void *at = (uint8_t *)chunk_now + chunk_now->used;
    chunk_now->used += bytes;
    chunk_now->live++;
    return at;
}

static void *array_new(size_t bytes)
{
    if (bytes >= 4096) /* with its pages: growing is half as long as with a fault for each */
        return alq_sys_mmap(bytes, ALQ_PROT_READ | ALQ_PROT_WRITE,
                            ALQ_MAP_PRIVATE | ALQ_MAP_ANONYMOUS | ALQ_MAP_POPULATE, -1);
    alq_lock_take(&alq_process_page()->lock_arena);
    void *at = cut((uint32_t)bytes);
    alq_lock_drop(&alq_process_page()->lock_arena);
    return at;
}

static void array_free(void *at, size_t bytes)
{
    if (bytes >= 4096) {
        alq_sys_munmap(at, bytes);
        return;
    }
    alq_lock_take(&alq_process_page()->lock_arena);
    chunk_put((struct chunk *)(void *)((uint8_t *)at - (uintptr_t)at % CHUNK_BYTES));
    alq_lock_drop(&alq_process_page()->lock_arena);
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* Kinds are told apart by bits that user addresses and small handles leave free. */
static uint64_t key_of(uint64_t handle, enum alq_kind kind)
{
    bool is_linear = kind == ALQ_KIND_EXPORTED || kind == ALQ_KIND_POOL || kind == ALQ_KIND_SPILLED;
    uint64_t space = is_linear ? ALQ_KIND_LINEAR : kind;
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

/* ---- one part, under its lock ---------------------------------------------------------------- */

struct place {
    struct bucket *bucket; /* NULL: nowhere */
    uint32_t slot;
};

static struct bucket *home_of(const struct part *part, uint64_t hash)
{
    return &part->buckets[hash & (part->count - 1)];
}

static struct bucket *next_of(const struct part *part, struct bucket *bucket)
{
    return bucket + 1 == part->buckets + part->count ? part->buckets : bucket + 1;
}

/* Without a branch on each, which no processor can foresee. SLOTS: none. */
static uint32_t slot_of(const struct bucket *bucket, uint64_t key)
{
    uint32_t hits = (uint32_t)(bucket->key[0] == key) | (uint32_t)(bucket->key[1] == key) << 1 |
                    (uint32_t)(bucket->key[2] == key) << 2 | 1u << SLOTS;
    return (uint32_t)__builtin_ctz(hits);
}
static_assert(SLOTS == 3, "slot_of compares so many");

static struct place find(const struct part *part, uint64_t key, uint64_t hash)
{
    struct bucket *bucket = part->count ? home_of(part, hash) : NULL;

    for (uint32_t i = 0; i < part->count; i++, bucket = next_of(part, bucket)) {
        uint32_t slot = slot_of(bucket, key);
        if (slot < SLOTS)
            return (struct place){bucket, slot};
        if (!bucket->passed)
            break;
    }
    return (struct place){NULL, 0};
}

/* A place for a key that has none. There is one. */
static struct place add(struct part *part, uint64_t key, uint64_t hash)
{
    struct bucket *bucket = home_of(part, hash);
    uint32_t slot;

    for (; (slot = slot_of(bucket, 0)) == SLOTS; bucket = next_of(part, bucket))
        bucket->passed++;
    bucket->key[slot] = key;
    part->used++;
    return (struct place){bucket, slot};
}

static void erase(struct part *part, struct place at)
{
    struct bucket *bucket = home_of(part, hash_of(at.bucket->key[at.slot]));

    for (; bucket != at.bucket; bucket = next_of(part, bucket))
        bucket->passed--;
    bucket->key[at.slot] = 0;
    part->used--;
}

static bool grow(struct part *part)
{
    struct part next = {.count = part->count ? part->count * 2 : FIRST_BUCKETS};

    next.buckets = array_new(next.count * sizeof(struct bucket));
    if (!next.buckets)
        return false;
    for (uint32_t i = 0; i < part->count * SLOTS; i++) {
        const struct bucket *from = &part->buckets[i / SLOTS];
        uint32_t slot = i % SLOTS;
        if (from->key[slot]) {
            struct place to = add(&next, from->key[slot], hash_of(from->key[slot]));
            to.bucket->value[to.slot] = from->value[slot];
            to.bucket->overhead_bytes[to.slot] = from->overhead_bytes[slot];
        }
    }
    struct bucket *outgrown = part->buckets;
    size_t bytes = part->count * sizeof(struct bucket);
    /* A fork in between finds no array, rather than one of another size or one that is gone. */
    __atomic_store_n(&part->count, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&part->buckets, next.buckets, __ATOMIC_RELEASE);
    __atomic_store_n(&part->count, next.count, __ATOMIC_RELEASE);
    if (outgrown)
        array_free(outgrown, bytes);
    return true;
}

/* At four fifths: beyond, many would pass their home. */
static bool make_room(struct part *part)
{
    uint64_t slots = (uint64_t)part->count * SLOTS;
    return (part->used + 1ull) * 5 <= slots * 4 || grow(part) || part->used < slots;
}

static void set(struct place at, const struct alq_entry_value *value)
{
    at.bucket->value[at.slot].counted_bytes =
        alq_min(value->counted_bytes, COUNTED_MAX) & COUNTED_MAX;
    at.bucket->value[at.slot].context = value->context & 0xffu;
    at.bucket->value[at.slot].device = value->device & 31u;
    at.bucket->value[at.slot].kind = value->kind & 15u;
    at.bucket->overhead_bytes[at.slot] = value->overhead_bytes;
}

static struct alq_entry_value value_at(struct place at)
{
    return (struct alq_entry_value){
        .counted_bytes = at.bucket->value[at.slot].counted_bytes,
        .overhead_bytes = at.bucket->overhead_bytes[at.slot],
        .context = at.bucket->value[at.slot].context,
        .device = at.bucket->value[at.slot].device,
        .kind = at.bucket->value[at.slot].kind,
    };
}

/* ---- all of them ----------------------------------------------------------------------------- */

static struct alq_lock *lock_of(const struct part *part)
{
    return &alq_process_page()->lock_table[(size_t)(part - parts) % ALQ_TABLE_LOCKS];
}

/* The part of a hash, by bits that its buckets do not use, with its lock held till unlock. */
static struct part *lock(uint64_t hash)
{
    struct part *part = &parts[hash >> PART_SHIFT];
    alq_lock_take(lock_of(part));
    return part;
}
static_assert(PARTS == 1u << (64 - PART_SHIFT), "lock takes so many bits");

static void unlock(const struct part *part)
{
    alq_lock_drop(lock_of(part));
}

/* Under the lock of its part. False: no memory. */
static bool put(struct part *part, uint64_t key, uint64_t hash, const struct alq_entry_value *value)
{
    struct place at = find(part, key, hash);

    if (part->taking == key && part->taking_state == ENTRY_STAYS) {
        part->taking_state = at.bucket ? ENTRY_DISPLACED : ENTRY_NONE;
        if (at.bucket)
            displaced[part - parts] = value_at(at);
    }
    if (!at.bucket && make_room(part))
        at = add(part, key, hash);
    if (at.bucket)
        set(at, value);
    return at.bucket != NULL;
}

static bool take(struct part *part, uint64_t key, uint64_t hash, struct alq_entry_value *out)
{
    struct place at = find(part, key, hash);

    if (at.bucket) {
        *out = value_at(at);
        erase(part, at);
    }
    return at.bucket != NULL;
}

bool alq_table_put(uint64_t handle, const struct alq_entry_value *value)
{
    uint64_t key = key_of(handle, (enum alq_kind)value->kind), hash = hash_of(key);
    struct part *part = lock(hash);
    bool ok = put(part, key, hash, value);
    unlock(part);
    return ok;
}

bool alq_table_take(uint64_t handle, enum alq_kind kind, struct alq_entry_value *out)
{
    uint64_t key = key_of(handle, kind), hash = hash_of(key);
    struct part *part = lock(hash);
    bool is_found = take(part, key, hash, out);
    unlock(part);
    return is_found;
}

void alq_table_take_begin(uint64_t handle, enum alq_kind kind, struct alq_taking *taking)
{
    uint64_t key = key_of(handle, kind), hash = hash_of(key);
    struct part *part = lock(hash);

    *taking = (struct alq_taking){.key = key, .is_first = part->taking == 0};
    if (!taking->is_first) {
        taking->is_taken = take(part, key, hash, &taking->value);
    } else {
        part->taking = key;
        part->taking_state = ENTRY_STAYS;
        if (part->count)
            __builtin_prefetch(home_of(part, hash), 1);
    }
    unlock(part);
}

bool alq_table_take_end(struct alq_taking *taking, bool is_gone, struct alq_entry_value *out)
{
    uint64_t key = taking->key, hash = hash_of(key);
    struct part *part = lock(hash);
    bool is_found = false;

    if (!taking->is_first) {
        *out = taking->value;
        is_found = taking->is_taken && is_gone;
        if (taking->is_taken && !is_gone)
            put(part, key, hash, out);
    } else {
        part->taking = 0;
        if (part->taking_state == ENTRY_DISPLACED) {
            *out = displaced[part - parts];
            is_found = true;
        } else if (part->taking_state == ENTRY_STAYS && is_gone) {
            is_found = take(part, key, hash, out);
        }
    }
    unlock(part);
    return is_found;
}

bool alq_table_get(uint64_t handle, enum alq_kind kind, struct alq_entry_value *out)
{
    uint64_t key = key_of(handle, kind), hash = hash_of(key);
    struct part *part = lock(hash);

    struct place at = find(part, key, hash);
    if (at.bucket)
        *out = value_at(at);
    unlock(part);
    return at.bucket != NULL;
}

bool alq_table_change(uint64_t handle, enum alq_kind from, enum alq_kind to,
                      struct alq_entry_value *out)
{
    uint64_t key = key_of(handle, from), hash = hash_of(key);
    struct part *part = lock(hash);

    struct place at = find(part, key, hash);
    bool is_it = at.bucket && at.bucket->value[at.slot].kind == from;
    if (is_it) {
        at.bucket->value[at.slot].kind = to & 15u;
        *out = value_at(at);
    }
    unlock(part);
    return is_it;
}

/* What is taken out of the whole table. */
struct choice {
    uint16_t context;   /* of this context; 0: */
    enum alq_kind kind; /* of this kind, in this range of handles */
    uint64_t from, bytes;
};

static bool is_chosen(const struct choice *choice, uint64_t handle,
                      const struct alq_entry_value *value)
{
    if (choice->context)
        return value->context == choice->context;
    return value->kind == choice->kind && handle - choice->from < choice->bytes;
}

static void take_all(const struct choice *choice, alq_table_fn *each, void *data)
{
    for (uint64_t number = 0; number < PARTS; number++) {
        struct part *part = lock(number << PART_SHIFT);
        for (uint32_t i = 0; i < part->count * SLOTS; i++) {
            struct place at = {&part->buckets[i / SLOTS], i % SLOTS};
            uint64_t key = at.bucket->key[at.slot];
            if (!key)
                continue;
            struct alq_entry_value value = value_at(at);
            uint64_t handle = key_of(key, (enum alq_kind)value.kind); /* its own inverse */
            if (is_chosen(choice, handle, &value)) {
                erase(part, at);
                each(handle, &value, data);
            }
        }
        unlock(part);
    }
}

void alq_table_take_context(uint16_t context, alq_table_fn *each, void *data)
{
    const struct choice choice = {.context = context};
    take_all(&choice, each, data);
}

void alq_table_take_range(enum alq_kind kind, uint64_t from, uint64_t bytes, alq_table_fn *each,
                          void *data)
{
    const struct choice choice = {.kind = kind, .from = from, .bytes = bytes};
    take_all(&choice, each, data);
}

void alq_table_forget(void)
{
    for (uint32_t number = 0; number < PARTS; number++) {
        size_t bytes = parts[number].count * sizeof(struct bucket);
        if (bytes >= 4096)
            array_free(parts[number].buckets, bytes);
        parts[number] = (struct part){0};
    }
    chunk_now =
        NULL; /* how many live in the chunks, a thread of the parent may just have counted */
}
