/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device addresses of one process: a reserved window of the process's address space, cut into
 * blocks of 2 MiB, the granules a card hands out. Small allocations share blocks by size class,
 * larger ones take runs of blocks. Any address in a live allocation leads to its record in constant
 * time. A window is larger than the device, so that addresses do not run out first. Physical memory
 * is accounted elsewhere (account.h); this module says how much of it an allocation takes and a
 * free gives back.
 *
 * Bytes: a device address itself cannot be touched, as on a card; its bytes lie `alias` further on,
 * in a file without a name of which the kernel provides what is touched and takes back what is
 * freed. Managed windows have no file and no alias distance: the address is the memory. A block can
 * be given other memory to share it with another process (va_sharing). The caller serialises.
 */
#ifndef SIM_CUDA_VA_H
#define SIM_CUDA_VA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct va_block;

/* One live allocation. */
struct va_record {
    uint64_t bytes;  /* as asked for; 0 while free */
    uint32_t owner;  /* context id */
    uint16_t next;   /* free slots of a block */
    uint8_t touched; /* its memory may be backed; VA_SYNCHRONOUS, VA_HOSTED: not for that, the
                        caller's notes */
    uint8_t kind;    /* enum va_kind */
};

enum va_kind { VA_DEVICE, VA_MANAGED, VA_GLOBAL, VA_ARRAY, VA_FREED };

#define VA_SYNCHRONOUS 2u
#define VA_HOSTED 4u
#define VA_BLOCK_BYTES (1ull << 21)
#define VA_CLASSES 40
#define VA_BINS 32

struct va_window {
    uint64_t base, bytes; /* base 0 while not mapped */
    uint64_t alias;
    int file; /* -1 of a managed window */
    uint32_t block_count;
    struct va_block *blocks;
    uint32_t partial[VA_CLASSES]; /* first block of the class with a free slot, + 1 */
    uint32_t bins[VA_BINS];       /* free runs by length, + 1 */
};

/* Whole blocks: what an allocation lies in, or what a free gave up. */
struct va_range {
    uint64_t base, bytes; /* bytes 0: none */
    void *shared;         /* what va_sharing was told, NULL while nothing */
};

/* Addresses of bytes (a multiple of the block) over a file, which is the window's from now on, or
 * with -1 over memory of their own. 0 or a negative errno. */
int va_open(struct va_window *w, uint64_t bytes, int file);

/* Everything in it is gone. */
void va_close(struct va_window *w);

/* What an allocation of that size could grow to where it lies. */
uint64_t va_room(uint64_t bytes);

/* The blocks that an allocation of this size has for itself, in bytes; 0 when it shares one. */
uint64_t va_own_bytes(uint64_t bytes);

/* Physical bytes that the next va_alloc of this size takes beyond what its block has already. */
uint64_t va_cost(const struct va_window *w, uint64_t bytes);

/* Address of a new allocation, or 0 when addresses or the host's memory run out. */
uint64_t va_alloc(struct va_window *w, uint64_t bytes, uint32_t owner, enum va_kind kind);

static inline bool va_contains(const struct va_window *w, uint64_t address)
{
    return address - w->base < w->bytes;
}

/* Record of the live allocation around address, its first byte in *base; NULL when there is none.
 */
struct va_record *va_find(struct va_window *w, uint64_t address, uint64_t *base);

/* base is one that va_find gave. *gone: the blocks that nothing lies in any more; where they are
 * shared, the caller gives the addresses their old memory back (va_restore). */
void va_free(struct va_window *w, uint64_t base, struct va_range *gone);

/* A live allocation's bytes are zeros again, and take no memory. */
void va_empty(struct va_window *w, uint64_t base);

/* The blocks of a live allocation, and where to note what shares them. */
void **va_sharing(struct va_window *w, uint64_t base, struct va_range *range);

/* Addresses that were given other memory lie over the window's file again, empty. */
int va_restore(struct va_window *w, const struct va_range *range);

/* Calls each(base, record, arg) for the live allocations of an owner; each may free its argument.
 */
void va_each(struct va_window *w, uint32_t owner,
             void (*each)(uint64_t base, struct va_record *record, void *arg), void *arg);

#endif
