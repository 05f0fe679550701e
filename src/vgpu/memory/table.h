/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process has allocated: from a pointer or handle of the driver to its size and device.
 * A hash table in 2048 parts, each with its own growth, so that a million entries grow without a
 * long pause (a part moves a few hundred at a time), under 512 locks, so that threads seldom meet.
 * Three entries lie in a line of the processor's cache; once there are some, a live one takes 27 to
 * 54 bytes. Memory comes from mmap alone. A fork child starts with an empty table: what it inherits
 * is its parent's.
 */
#ifndef ALQ_VGPU_MEMORY_TABLE_H
#define ALQ_VGPU_MEMORY_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "vgpu/core.h"

/* Spaces of keys that do not mix. */
enum alq_kind {
    ALQ_KIND_LINEAR = 1,    /* CUdeviceptr that ends with its context */
    ALQ_KIND_POOL = 2,      /* CUdeviceptr of a pool, which outlives contexts */
    ALQ_KIND_ARRAY = 3,     /* CUarray, CUmipmappedArray */
    ALQ_KIND_PHYSICAL = 4,  /* a number of piece.c for a piece of physical memory */
    ALQ_KIND_HANDLE = 5,    /* CUmemGenericAllocationHandle */
    ALQ_KIND_MAPPING = 6,   /* CUdeviceptr of a mapping */
    ALQ_KIND_MODULE = 7,    /* CUmodule, CUlibrary */
    ALQ_KIND_GRAPH = 8,     /* CUgraphExec with memory (graph.c) */
    ALQ_KIND_SPILLED = 9,   /* CUdeviceptr that lies on the host (spill.c) */
    ALQ_KIND_EXPORTED = 10, /* a LINEAR one that others may open (ipc.c) */
    ALQ_KIND_IMPORT = 11,   /* CUdeviceptr of another process's memory (ipc.c) */
};

#define ALQ_NO_DEVICE 31u

struct alq_entry_value {
    uint64_t counted_bytes; /* kept up to 2^47 - 1 */
    uint32_t overhead_bytes;
    uint16_t context; /* number of the context it ends with (context.h), 0: none */
    uint8_t device;   /* index of struct alq_dev, or ALQ_NO_DEVICE */
    uint8_t kind; /* enum alq_kind; LINEAR, EXPORTED, POOL and SPILLED share their keys, as their
                    pointers do */
};

/* False: no memory for the table. A key that is there already is written over. */
bool alq_table_put(uint64_t handle, const struct alq_entry_value *value);

/* Takes the entry out. False: not there. kinds that share their keys find each other. */
bool alq_table_take(uint64_t handle, enum alq_kind kind, struct alq_entry_value *out);

/*
 * The same around the driver's call that ends what the entry stands for, so that the memory where
 * the entry lies is on its way meanwhile: at a million entries it is the dearest part. The entry
 * stays till take_end. Who is given the same handle by the driver before that, and puts it, leaves
 * the old entry to take_end; who takes it in between has it.
 * take_end: is_gone is the driver's yes. True: *out was taken out, and its bytes are to be given
 * back.
 */
struct alq_taking {
    uint64_t key;
    struct alq_entry_value value;
    bool is_first; /* in its part: others take at once, and put it back when the driver says no */
    bool is_taken;
};
void alq_table_take_begin(uint64_t handle, enum alq_kind kind, struct alq_taking *taking);
bool alq_table_take_end(struct alq_taking *taking, bool is_gone, struct alq_entry_value *out);

bool alq_table_get(uint64_t handle, enum alq_kind kind, struct alq_entry_value *out);

/* Makes an entry of one kind one of another that shares its keys, and tells its value. False: there
 * is none of that kind. */
bool alq_table_change(uint64_t handle, enum alq_kind from, enum alq_kind to,
                      struct alq_entry_value *out);

/* Told of what is taken out. One part's lock is held, so it may not use the table. */
typedef void alq_table_fn(uint64_t handle, const struct alq_entry_value *value, void *data);

/* Takes out every entry of a context (number, not 0). */
void alq_table_take_context(uint16_t context, alq_table_fn *each, void *data);

/* Likewise the entries of a kind whose handles lie in a range. */
void alq_table_take_range(enum alq_kind kind, uint64_t from, uint64_t bytes, alq_table_fn *each,
                          void *data);

/* Empties it without telling anybody. For a fork child. */
void alq_table_forget(void);

#endif
