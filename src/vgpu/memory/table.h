/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this process has allocated: from a pointer or handle of the driver to its size and device.
 * Open addressing in 256 parts, each with its own lock and its own growth, so that a million
 * entries grow without a long pause (a part moves a few thousand entries at a time) and threads
 * seldom meet. 24 bytes an entry, at most 60 bytes of memory a live one. Memory comes from mmap
 * alone. A fork child starts with an empty table: what it inherits is its parent's.
 */
#ifndef ALQ_VGPU_MEMORY_TABLE_H
#define ALQ_VGPU_MEMORY_TABLE_H

#include <stdbool.h>
#include <stdint.h>

/* Spaces of keys that do not mix. */
enum alq_kind {
    ALQ_KIND_LINEAR = 1,   /* CUdeviceptr that ends with its context */
    ALQ_KIND_POOL = 2,     /* CUdeviceptr of a pool, which outlives contexts */
    ALQ_KIND_ARRAY = 3,    /* CUarray, CUmipmappedArray */
    ALQ_KIND_PHYSICAL = 4, /* a number of piece.c for a piece of physical memory */
    ALQ_KIND_HANDLE = 5,   /* CUmemGenericAllocationHandle */
    ALQ_KIND_MAPPING = 6,  /* CUdeviceptr of a mapping */
    ALQ_KIND_MODULE = 7,   /* CUmodule, CUlibrary */
    ALQ_KIND_GRAPH = 8,    /* CUgraphExec with memory (graph.c) */
    ALQ_KIND_SPILLED = 9,  /* CUdeviceptr that lies on the host (spill.c) */
    ALQ_KIND_EXPORT = 10,  /* CUdeviceptr of a LINEAR one that others may open (ipc.c) */
    ALQ_KIND_IMPORT = 11,  /* CUdeviceptr of another process's memory (ipc.c) */
};

struct alq_entry_value {
    uint64_t counted_bytes;
    uint32_t overhead_bytes;
    uint16_t context; /* number of the context it ends with (context.h), 0: none */
    uint8_t device;   /* index of struct alq_dev */
    uint8_t kind;     /* enum alq_kind; LINEAR, POOL and SPILLED share their keys, as their
                         pointers do */
};

/* False: no memory for the table. A key that is there already is written over. */
bool alq_table_put(uint64_t handle, const struct alq_entry_value *value);

/* Takes the entry out. False: not there. kinds that share their keys find each other. */
bool alq_table_take(uint64_t handle, enum alq_kind kind, struct alq_entry_value *out);

bool alq_table_get(uint64_t handle, enum alq_kind kind, struct alq_entry_value *out);

/*
 * Takes out every entry of a context (number, not 0), telling `each` of its value. Holds one part's
 * lock at a time, so `each` may not use the table. Returns how many.
 */
uint32_t alq_table_take_context(uint16_t context,
                                void (*each)(const struct alq_entry_value *value, void *data),
                                void *data);

/* Likewise the entries of a kind (one whose keys are its own) whose handles lie in a range. */
void alq_table_take_range(enum alq_kind kind, uint64_t from, uint64_t bytes,
                          void (*each)(uint64_t handle, const struct alq_entry_value *value,
                                       void *data),
                          void *data);

/* Number of entries; exact when nobody changes the table. */
uint64_t alq_table_count(void);

/* Empties it without telling anybody. For a fork child. */
void alq_table_forget(void);

#endif
