/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device addresses of one process on one device: a reserved window of the process's address space,
 * cut into 2 MiB blocks. Small allocations share blocks by size class, larger ones take runs of
 * blocks. Any address in a live allocation leads to its record in constant time. Physical memory is
 * accounted elsewhere (account.h); a window is several times the device's size, so that addresses
 * do not run out first.
 *
 * Bytes: a device address itself cannot be touched, as on a card; its bytes lie `alias` further on,
 * in memory that the kernel provides at the first touch and that is given back on free. Managed
 * windows have no alias distance: the address is the memory. The caller serialises.
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
    uint8_t touched; /* its memory may be backed */
    uint8_t kind;    /* enum va_kind */
};

enum va_kind { VA_DEVICE, VA_MANAGED, VA_GLOBAL, VA_ARRAY };

#define VA_CLASSES 40
#define VA_BINS 32

struct va_window {
    uint64_t base, bytes; /* base 0 while not mapped */
    uint64_t alias;
    uint32_t block_count;
    struct va_block *blocks;
    uint32_t partial[VA_CLASSES]; /* first block of the class with a free slot, + 1 */
    uint32_t bins[VA_BINS];       /* free runs by length, + 1 */
};

/* 0 or a negative errno. */
int va_open(struct va_window *w, uint64_t device_bytes, bool is_managed);

/* Address of a new allocation, or 0 when addresses or the host's memory run out. */
uint64_t va_alloc(struct va_window *w, uint64_t bytes, uint32_t owner, enum va_kind kind);

static inline bool va_contains(const struct va_window *w, uint64_t address)
{
    return address - w->base < w->bytes;
}

/* Record of the live allocation around address, its first byte in *base; NULL when there is none.
 */
struct va_record *va_find(struct va_window *w, uint64_t address, uint64_t *base);

/* base is one that va_find gave. */
void va_free(struct va_window *w, uint64_t base);

/* Calls each(base, record, arg) for the live allocations of an owner; each may free its argument.
 */
void va_each(struct va_window *w, uint32_t owner,
             void (*each)(uint64_t base, struct va_record *record, void *arg), void *arg);

#endif
