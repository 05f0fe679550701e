/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices that a node offers: pools put together from ResourceSlices (newest generation,
 * complete ones only), and what is taken of each device already. Borrows the JSON it was made from.
 * One thread per inventory.
 */
#ifndef ALQ_ALLOC_INVENTORY_H
#define ALQ_ALLOC_INVENTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "alloc/arena.h"
#include "alloc/capacity.h"
#include "alloc/cel.h"
#include "base/err.h"

struct alq_slice;

struct alq_device {
    size_t id; /* 0.. in the inventory */
    const char *driver, *pool, *name;
    json_t *json;
    struct alq_slice *slice;
    bool is_multi;     /* allowMultipleAllocations: shared by capacity; else exclusive */
    bool is_usable;    /* its pool is complete and valid */
    bool is_supported; /* false: needs counters or binding conditions, which are not allocated here
                        */
    bool is_targeted;  /* for this node, by perDeviceNodeSelection */
    bool is_taken;     /* exclusively, by a claim that is allocated */
    uint64_t claims;   /* exclusive devices: bit of each claim of the search that has it now */
    struct alq_capacity *capacity;
    size_t capacity_count;
    struct alq_quantity *used; /* per capacity: by allocated claims and by the search */
    struct alq_cel_device *cel;
};

struct alq_slice {
    json_t *json, *spec;
    const char *name;
    struct alq_device *devices;
    size_t device_count;
};

struct alq_pool {
    const char *driver, *name;
    struct alq_slice **slices;
    size_t slice_count;
    size_t wanted_count; /* resourceSliceCount */
    bool is_incomplete;  /* slices are missing: nothing is allocated from it */
    bool is_invalid;     /* a device name occurs twice */
};

struct alq_inventory {
    struct alq_arena *arena;
    struct alq_pool *pools;
    size_t pool_count;
    struct alq_device **devices; /* of all usable pools, by id */
    size_t device_count;
};

/*
 * Gathers the pools for node, sorted by driver and name; within a pool slices stand in the order of
 * their names when is_sorted, else as given. ALQ_EPROTO: a malformed slice, by name; ALQ_ENOMEM.
 * alq_inventory_fini is due in any case.
 */
int alq_inventory_init(struct alq_inventory *inventory, json_t *slices, json_t *node,
                       bool is_sorted, struct alq_arena *arena, struct alq_err *err);
void alq_inventory_fini(struct alq_inventory *inventory);

/* Counts what an allocation (ResourceClaim.status.allocation) has taken. Results with adminAccess
 * and unknown devices count nothing. ALQ_EPROTO: a malformed consumedCapacity. */
int alq_inventory_take(struct alq_inventory *inventory, json_t *allocation, struct alq_err *err);

#endif
