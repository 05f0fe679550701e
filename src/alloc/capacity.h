/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Consumable capacity: what a request takes of a device's capacity, by the rules of ResourceSlice's
 * requestPolicy (reference/dra.md §4.3). Plain functions of JSON and quantities; texts are borrowed
 * from the JSON or from the arena. Any thread.
 */
#ifndef ALQ_ALLOC_CAPACITY_H
#define ALQ_ALLOC_CAPACITY_H

#include <jansson.h>
#include <stdbool.h>

#include "alloc/arena.h"
#include "base/err.h"
#include "base/quantity.h"

/* A quantity and how it was written: Kubernetes keeps the writer's form. */
struct alq_amount {
    struct alq_quantity value;
    const char *text;
};

/* One entry of spec.devices[].capacity. Optional amounts have text NULL. */
struct alq_capacity {
    const char *name; /* as published, with or without a domain */
    struct alq_amount total;
    struct alq_amount fallback; /* requestPolicy.default */
    struct alq_amount min, max, step;
    struct alq_amount *values; /* requestPolicy.validValues */
    size_t value_count;
};

/* Reads a quantity from a JSON string; ALQ_EPROTO naming what when it is none. */
int alq_amount_read(json_t *text, const char *what, struct alq_amount *out, struct alq_err *err);

/* Reads one entry. ALQ_EPROTO: malformed, by name; ALQ_ENOMEM. */
int alq_capacity_read(const char *name, json_t *entry, struct alq_arena *arena,
                      struct alq_capacity *out, struct alq_err *err);

/*
 * What a share takes when it asks for requested (NULL: it names no amount): the default, else
 * everything; below min it is min; otherwise rounded up to min + n*step, or to the next valid
 * value; without a policy as asked. *is_valid tells whether the policy allows the result (not above
 * max, a valid value); room is not looked at. ALQ_ENOMEM.
 */
int alq_capacity_amount(const struct alq_capacity *capacity, const struct alq_amount *requested,
                        struct alq_arena *arena, struct alq_amount *out, bool *is_valid,
                        struct alq_err *err);

#endif
