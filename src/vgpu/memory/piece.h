/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of physical memory (virtual memory API), and what holds them: handles, mappings, and
 * bindings to multicast objects and sparse arrays. A piece lives while any of them does, and is
 * given back with the last. Multicast objects and pieces of other processes are pieces of no bytes.
 * Each has a number of its own in the table (PHYSICAL), which handles and mappings point to. All
 * calls lock by themselves (lock_vmm) and none calls the driver.
 */
#ifndef ALQ_VGPU_MEMORY_PIECE_H
#define ALQ_VGPU_MEMORY_PIECE_H

#include <stdbool.h>

#include "vgpu/memory/export.h"

/* A new piece with one handle, of a device or (NULL) none. False: no memory for the table. */
bool alq_piece_new(CUmemGenericAllocationHandle handle, struct alq_dev *dev, uint64_t bytes);

/* The same for one that another process made, which counts as opened until its end; dev NULL: on
 * all devices. */
bool alq_piece_imported(CUmemGenericAllocationHandle handle, struct alq_dev *dev);

/* The driver has given out the handle once more; a new handle for what is mapped at the address.
 * False: the handle is not known. */
bool alq_piece_retained(CUmemGenericAllocationHandle handle);
void alq_piece_retained_at(CUmemGenericAllocationHandle handle, CUdeviceptr address);

/* Other processes can have it from now on; an imported one's maker knows that already. */
void alq_piece_exported(CUmemGenericAllocationHandle handle);

/* A handle that is about to be released: forgotten before the driver may give out its number anew.
 * Then _released with the driver's answer. */
struct alq_piece_release {
    uint64_t number; /* 0: not ours */
    bool is_last;    /* of the piece's handles with this number */
    uint8_t device;
};
struct alq_piece_release alq_piece_release(CUmemGenericAllocationHandle handle);
void alq_piece_released(CUmemGenericAllocationHandle handle,
                        const struct alq_piece_release *release, bool is_released,
                        struct alq_parting *part);

/* False: no memory for the table. */
bool alq_piece_mapped(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle);

/* Likewise the mappings of a range, which may be any; *out NULL where there are none. False: no
 * memory to take them. */
struct alq_piece_unmap;
bool alq_piece_unmap(CUdeviceptr at, uint64_t bytes, struct alq_piece_unmap **out);
void alq_piece_unmapped(struct alq_piece_unmap *unmap, bool is_unmapped, struct alq_parting *part);

/*
 * A place that a piece can be bound to: a part of an object of the driver's (by piece number or
 * array handle). `where` and the bounds (end excluded) mean what the caller wants.
 */
struct alq_binding {
    uint64_t owner, where;
    uint64_t from[3], to[3];
};

/* Room for more bindings, before the driver's call, until _unreserve of as many after they are
 * bound or not. False: no memory. */
bool alq_bindings_reserve(uint32_t more);
void alq_bindings_unreserve(uint32_t count);

/* Ends the bindings, of memory of this device (NULL: of any), that lie wholly in the part. */
void alq_bindings_end(const struct alq_binding *part_of, const struct alq_dev *dev,
                      struct alq_parting *part);

/* Ends all of an owner's. */
void alq_bindings_end_all(uint64_t owner, struct alq_parting *part);

/* Binds a piece by its handle or by an address where it is mapped; nothing for unknown ones. Room
 * was reserved. */
void alq_piece_bound(const struct alq_binding *to, CUmemGenericAllocationHandle handle);
void alq_piece_bound_at(const struct alq_binding *to, CUdeviceptr address);

/* The piece's number, 0: not known. */
uint64_t alq_piece_number(CUmemGenericAllocationHandle handle);

extern _Atomic uint32_t alq_binding_count;

/* A piece of a device was ever made here: only then is there anything to bind. */
extern _Atomic bool alq_piece_any;

/* For a fork child. */
void alq_piece_forget(void);

#endif
