/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator of va.h. Block numbers in links are stored plus one, so that zeroed memory is an
 * empty list. Free runs carry their length at both ends and merge with their neighbours.
 */
#include "cuda/va.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK_BYTES VA_BLOCK_BYTES
#define BLOCK_SHIFT 21
#define SLOT_UNIT 512u
#define SMALL_MAX (1ull << 20)
#define PAGE_BYTES 4096u

enum block_kind { BLOCK_INSIDE, BLOCK_FREE, BLOCK_RUN, BLOCK_SLOTS };

struct va_block {
    uint8_t kind;
    uint8_t size_class;
    bool is_touched; /* by an allocation that is gone */
    uint16_t free_slots;
    uint16_t first_free; /* slot number, + 1 */
    uint16_t used_end;   /* slots from here on were never used */
    uint32_t run;        /* blocks, at the first (and of free runs the last) block */
    uint32_t next, previous;
    union {
        struct va_record record; /* BLOCK_RUN */
        struct va_record *slots; /* BLOCK_SLOTS */
    };
    void *shared; /* of the first block of a run */
};

/* Size classes: 512 to 4096 by 512, then four to each doubling up to 1 MiB. */
static uint32_t class_of(uint64_t bytes)
{
    uint32_t shift;

    if (bytes <= 4096)
        return (uint32_t)((bytes + SLOT_UNIT - 1) / SLOT_UNIT) - 1;
    shift = 63 - (uint32_t)__builtin_clzll(bytes - 1); /* 2^shift < bytes <= 2^(shift+1) */
    return 8 + (shift - 12) * 4 + (uint32_t)((bytes - 1) >> (shift - 2) & 3);
}

static uint64_t class_bytes(uint32_t c)
{
    if (c < 8)
        return (uint64_t)(c + 1) * SLOT_UNIT;
    return (uint64_t)(5 + (c - 8) % 4) << (10 + (c - 8) / 4);
}

static uint32_t slots_of(uint32_t c)
{
    return (uint32_t)(BLOCK_BYTES / class_bytes(c));
}

static uint32_t bin_of(uint32_t run)
{
    return 31 - (uint32_t)__builtin_clz(run);
}

static void bin_add(struct va_window *w, uint32_t at, uint32_t run)
{
    struct va_block *b = &w->blocks[at];
    uint32_t *bin = &w->bins[bin_of(run)];

    b->kind = BLOCK_FREE;
    b->run = run;
    w->blocks[at + run - 1].kind = BLOCK_FREE;
    w->blocks[at + run - 1].run = run;
    b->previous = 0;
    b->next = *bin;
    if (*bin)
        w->blocks[*bin - 1].previous = at + 1;
    *bin = at + 1;
}

static void bin_remove(struct va_window *w, uint32_t at)
{
    struct va_block *b = &w->blocks[at];

    if (b->previous)
        w->blocks[b->previous - 1].next = b->next;
    else
        w->bins[bin_of(b->run)] = b->next;
    if (b->next)
        w->blocks[b->next - 1].previous = b->previous;
}

static int64_t run_take(struct va_window *w, uint32_t want)
{
    uint32_t found = 0, run;

    for (uint32_t bin = bin_of(want); bin < VA_BINS && !found; bin++) {
        /* The first bin also holds shorter runs; look at a few of it. */
        uint32_t at = w->bins[bin];

        for (int i = 0; at && i < 64; i++, at = w->blocks[at - 1].next) {
            if (w->blocks[at - 1].run >= want) {
                found = at;
                break;
            }
        }
    }
    if (!found)
        return -1;
    found--;
    run = w->blocks[found].run;
    bin_remove(w, found);
    w->blocks[found + run - 1].kind = BLOCK_INSIDE;
    if (run > want)
        bin_add(w, found + want, run - want);
    w->blocks[found].run = want;
    return found;
}

static void run_give(struct va_window *w, uint32_t at, uint32_t run)
{
    w->blocks[at].kind = BLOCK_INSIDE;
    if (at + run < w->block_count && w->blocks[at + run].kind == BLOCK_FREE) {
        uint32_t more = w->blocks[at + run].run;

        bin_remove(w, at + run);
        w->blocks[at + run].kind = BLOCK_INSIDE;
        w->blocks[at + run].previous = 0;
        run += more;
    }
    if (at > 0 && w->blocks[at - 1].kind == BLOCK_FREE) {
        uint32_t more = w->blocks[at - 1].run;

        bin_remove(w, at - more);
        w->blocks[at - 1].kind = BLOCK_INSIDE;
        w->blocks[at - 1].previous = w->blocks[at].previous = 0;
        at -= more;
        run += more;
    }
    bin_add(w, at, run);
}

int va_open(struct va_window *w, uint64_t bytes, int file)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    uint64_t span = file < 0 ? bytes : bytes * 2;
    char *map = mmap(NULL, span + BLOCK_BYTES, PROT_NONE, flags, -1, 0);
    void *memory;
    int rc;

    if (map == MAP_FAILED)
        return -errno;
    memset(w, 0, sizeof(*w));
    w->base = ((uint64_t)(uintptr_t)map + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1);
    /* What was asked for alignment's sake goes back. */
    if (w->base != (uint64_t)(uintptr_t)map)
        munmap(map, w->base - (uint64_t)(uintptr_t)map);
    munmap((void *)(uintptr_t)(w->base + span), (uintptr_t)map + BLOCK_BYTES - w->base);
    w->alias = file < 0 ? 0 : bytes;
    w->file = file;
    w->bytes = bytes;
    w->block_count = (uint32_t)(bytes >> BLOCK_SHIFT);
    memory = mmap((void *)(uintptr_t)(w->base + w->alias), bytes, PROT_READ | PROT_WRITE,
                  MAP_FIXED | MAP_NORESERVE | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED),
                  file, 0);
    rc = memory == MAP_FAILED ? -errno : 0;
    w->blocks =
        mmap(NULL, w->block_count * sizeof(*w->blocks), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (rc != 0 || w->blocks == MAP_FAILED) {
        rc = rc ? rc : -errno;
        if (w->blocks != MAP_FAILED)
            munmap(w->blocks, w->block_count * sizeof(*w->blocks));
        munmap((void *)(uintptr_t)w->base, span);
        memset(w, 0, sizeof(*w));
        return rc;
    }
    (void)madvise(memory, bytes, MADV_DONTDUMP);
    bin_add(w, 0, w->block_count);
    return 0;
}

static void partial_remove(struct va_window *w, uint32_t at)
{
    struct va_block *b = &w->blocks[at];

    if (b->previous)
        w->blocks[b->previous - 1].next = b->next;
    else
        w->partial[b->size_class] = b->next;
    if (b->next)
        w->blocks[b->next - 1].previous = b->previous;
    b->next = b->previous = 0;
}

static void partial_add(struct va_window *w, uint32_t at)
{
    struct va_block *b = &w->blocks[at];

    b->previous = 0;
    b->next = w->partial[b->size_class];
    if (b->next)
        w->blocks[b->next - 1].previous = at + 1;
    w->partial[b->size_class] = at + 1;
}

static size_t slots_bytes(uint32_t c)
{
    return slots_of(c) * sizeof(struct va_record);
}

/* Records are mapped, not malloc'ed: the program's allocator is none of the driver's business. */
static bool slots_open(struct va_window *w, uint32_t c)
{
    struct va_record *slots =
        mmap(NULL, slots_bytes(c), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int64_t at;
    struct va_block *b;

    if (slots == MAP_FAILED)
        return false;
    at = run_take(w, 1);
    if (at < 0) {
        munmap(slots, slots_bytes(c));
        return false;
    }
    b = &w->blocks[at];
    b->kind = BLOCK_SLOTS;
    b->size_class = (uint8_t)c;
    b->free_slots = (uint16_t)slots_of(c);
    b->first_free = b->used_end = 0;
    b->slots = slots;
    partial_add(w, (uint32_t)at);
    return true;
}

static uint64_t block_address(const struct va_window *w, uint32_t at)
{
    return w->base + ((uint64_t)at << BLOCK_SHIFT);
}

void va_close(struct va_window *w)
{
    uint32_t after;

    for (uint32_t at = 0; at < w->block_count; at = after) {
        struct va_block *b = &w->blocks[at];

        after = at + (b->kind == BLOCK_INSIDE || b->kind == BLOCK_SLOTS ? 1 : b->run);
        if (b->kind == BLOCK_SLOTS)
            munmap(b->slots, slots_bytes(b->size_class));
    }
    munmap(w->blocks, w->block_count * sizeof(*w->blocks));
    munmap((void *)(uintptr_t)w->base, w->alias + w->bytes);
    if (w->file >= 0)
        close(w->file);
    memset(w, 0, sizeof(*w));
}

uint64_t va_room(uint64_t bytes)
{
    return bytes > SMALL_MAX ? (bytes + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1)
                             : class_bytes(class_of(bytes));
}

uint64_t va_own_bytes(uint64_t bytes)
{
    return bytes > SMALL_MAX ? (bytes + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1) : 0;
}

uint64_t va_cost(const struct va_window *w, uint64_t bytes)
{
    uint32_t c;
    const struct va_block *b;

    if (bytes > SMALL_MAX)
        return (bytes + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1);
    c = class_of(bytes);
    b = w->partial[c] ? &w->blocks[w->partial[c] - 1] : NULL;
    return b && b->free_slots < slots_of(c) ? 0 : BLOCK_BYTES;
}

uint64_t va_alloc(struct va_window *w, uint64_t bytes, uint32_t owner, enum va_kind kind)
{
    struct va_record record = {.bytes = bytes, .owner = owner, .kind = (uint8_t)kind};

    if (bytes > SMALL_MAX) {
        uint64_t blocks = (bytes + BLOCK_BYTES - 1) >> BLOCK_SHIFT;
        int64_t at = blocks > w->block_count ? -1 : run_take(w, (uint32_t)blocks);

        if (at < 0)
            return 0;
        w->blocks[at].kind = BLOCK_RUN;
        w->blocks[at].record = record;
        /* Interior blocks lead back to the first. */
        for (uint32_t i = 1; i < blocks; i++) {
            w->blocks[at + i].kind = BLOCK_INSIDE;
            w->blocks[at + i].previous = i;
        }
        return block_address(w, (uint32_t)at);
    }
    uint32_t c = class_of(bytes), slot, at;
    struct va_block *b;

    if (!w->partial[c] && !slots_open(w, c))
        return 0;
    at = w->partial[c] - 1;
    b = &w->blocks[at];
    if (b->first_free) {
        slot = b->first_free - 1u;
        b->first_free = b->slots[slot].next;
    } else {
        slot = b->used_end++;
    }
    b->slots[slot] = record;
    if (--b->free_slots == 0)
        partial_remove(w, at);
    return block_address(w, at) + slot * class_bytes(c);
}

struct va_record *va_find(struct va_window *w, uint64_t address, uint64_t *base)
{
    uint64_t offset = address - w->base;
    uint32_t at = (uint32_t)(offset >> BLOCK_SHIFT);
    struct va_block *b = &w->blocks[at];
    struct va_record *r;

    if (b->kind == BLOCK_INSIDE && b->previous) {
        at -= b->previous;
        b = &w->blocks[at];
    }
    if (b->kind == BLOCK_SLOTS) {
        uint64_t each = class_bytes(b->size_class), slot = (offset & (BLOCK_BYTES - 1)) / each;

        if (slot >= slots_of(b->size_class))
            return NULL;
        r = &b->slots[slot];
        *base = block_address(w, at) + slot * each;
    } else if (b->kind == BLOCK_RUN) {
        r = &b->record;
        *base = block_address(w, at);
    } else {
        return NULL;
    }
    return address - *base < r->bytes ? r : NULL;
}

static void drop_backing(struct va_window *w, uint64_t base, uint64_t bytes)
{
    (void)madvise((void *)(uintptr_t)(base + w->alias),
                  (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES,
                  w->file < 0 ? MADV_DONTNEED : MADV_REMOVE);
}

static void run_free(struct va_window *w, uint32_t at, struct va_range *gone)
{
    struct va_block *b = &w->blocks[at];
    uint32_t run = b->run;

    *gone = (struct va_range){block_address(w, at), (uint64_t)run << BLOCK_SHIFT, b->shared};
    if (b->record.touched && !b->shared)
        drop_backing(w, gone->base, b->record.bytes);
    b->shared = NULL;
    b->record.bytes = 0;
    for (uint32_t i = 1; i < run; i++)
        w->blocks[at + i].previous = 0;
    run_give(w, at, run);
}

void va_free(struct va_window *w, uint64_t base, struct va_range *gone)
{
    uint32_t at = (uint32_t)((base - w->base) >> BLOCK_SHIFT);
    struct va_block *b = &w->blocks[at];

    *gone = (struct va_range){0};
    if (b->kind == BLOCK_RUN) {
        run_free(w, at, gone);
        return;
    }
    uint64_t each = class_bytes(b->size_class);
    uint32_t slot = (uint32_t)((base - block_address(w, at)) / each), all = slots_of(b->size_class);
    struct va_record *r = &b->slots[slot];

    /* Pages shared with neighbours stay until the whole block is free. */
    if (r->touched && each % PAGE_BYTES == 0 && !b->shared)
        drop_backing(w, base, each);
    else
        b->is_touched |= r->touched;
    r->bytes = 0;
    r->next = b->first_free;
    b->first_free = (uint16_t)(slot + 1);
    if (b->free_slots++ == 0)
        partial_add(w, at);
    if (b->free_slots < all)
        return;
    *gone = (struct va_range){block_address(w, at), BLOCK_BYTES, b->shared};
    if (b->is_touched && !b->shared)
        drop_backing(w, gone->base, BLOCK_BYTES);
    b->is_touched = false;
    b->shared = NULL;
    /* The last block of its class keeps its addresses, lest one allocation made and freed over and
     * over open and close it each time. */
    if (b->next || b->previous) {
        struct va_record *slots = b->slots;

        partial_remove(w, at);
        munmap(slots, slots_bytes(b->size_class));
        run_give(w, at, 1);
    }
}

void va_empty(struct va_window *w, uint64_t base)
{
    uint64_t start;
    struct va_record *r = va_find(w, base, &start);

    if (r && r->touched)
        drop_backing(w, start, r->bytes);
    if (r)
        r->touched = 0;
}

void **va_sharing(struct va_window *w, uint64_t base, struct va_range *range)
{
    uint32_t at = (uint32_t)((base - w->base) >> BLOCK_SHIFT);
    struct va_block *b = &w->blocks[at];

    *range =
        (struct va_range){block_address(w, at),
                          (uint64_t)(b->kind == BLOCK_RUN ? b->run : 1) << BLOCK_SHIFT, b->shared};
    return &b->shared;
}

int va_restore(struct va_window *w, const struct va_range *range)
{
    uint64_t at = range->base + w->alias;

    return mmap((void *)(uintptr_t)at, range->bytes, PROT_READ | PROT_WRITE,
                MAP_FIXED | MAP_NORESERVE | MAP_SHARED, w->file,
                (off_t)(range->base - w->base)) == MAP_FAILED
               ? -errno
               : 0;
}

void va_each(struct va_window *w, uint32_t owner,
             void (*each)(uint64_t base, struct va_record *record, void *arg), void *arg)
{
    uint32_t after;

    for (uint32_t at = 0; w->base && at < w->block_count; at = after) {
        struct va_block *b = &w->blocks[at];

        after = at + (b->kind == BLOCK_INSIDE || b->kind == BLOCK_SLOTS ? 1 : b->run);
        /* A free run that follows merges with this block when that is freed: step over it now. */
        if (after < w->block_count && w->blocks[after].kind == BLOCK_FREE)
            after += w->blocks[after].run;
        if (b->kind == BLOCK_RUN && b->record.owner == owner) {
            each(block_address(w, at), &b->record, arg);
        } else if (b->kind == BLOCK_SLOTS) {
            uint32_t end = b->used_end, c = b->size_class;

            for (uint32_t i = 0; i < end && b->kind == BLOCK_SLOTS; i++) {
                if (b->slots[i].bytes && b->slots[i].owner == owner)
                    each(block_address(w, at) + i * class_bytes(c), &b->slots[i], arg);
            }
        }
    }
}
