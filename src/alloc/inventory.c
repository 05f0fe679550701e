/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools, slices and devices. Owns the evaluators' view of each device (alq_cel_device), the rest
 * lies in the arena.
 */
#include "alloc/inventory.h"

#include <stdlib.h>
#include <string.h>

#include "alloc/node.h"
#include "base/json.h"

#define NOMEM(err) alq_err_set(err, ALQ_ENOMEM, "out of memory")

/* The slice's place in the pools; pools are few, so a linear search does. */
static struct alq_pool *find_pool(struct alq_inventory *inv, const char *driver, const char *name)
{
    for (size_t i = 0; i < inv->pool_count; i++)
        if (!strcmp(inv->pools[i].driver, driver) && !strcmp(inv->pools[i].name, name))
            return &inv->pools[i];
    return NULL;
}

static int read_device(struct alq_inventory *inv, struct alq_slice *slice, json_t *j,
                       const struct alq_pool *pool, json_t *node, struct alq_device *d,
                       struct alq_err *err)
{
    json_t *capacity = json_object_get(j, "capacity"), *entry;
    const char *name;
    int rc = 0;

    d->driver = pool->driver;
    d->pool = pool->name;
    d->name = alq_json_str(j, "name");
    d->json = j;
    d->slice = slice;
    d->is_multi = json_is_true(json_object_get(j, "allowMultipleAllocations"));
    d->is_supported = json_array_size(json_object_get(j, "consumesCounters")) == 0 &&
                      json_array_size(json_object_get(j, "bindingConditions")) == 0;
    d->is_targeted = true;
    if (!d->name)
        return alq_err_set(err, ALQ_EPROTO, "a device has no name");
    if (json_is_true(json_object_get(slice->spec, "perDeviceNodeSelection")))
        rc = alq_node_is_target(j, node, &d->is_targeted, err);
    if (rc)
        return rc;
    d->capacity = alq_arena_alloc(inv->arena, json_object_size(capacity) * sizeof(*d->capacity));
    d->used = alq_arena_alloc(inv->arena, json_object_size(capacity) * sizeof(*d->used));
    if (!d->capacity || !d->used)
        return NOMEM(err);
    json_object_foreach (capacity, name, entry) {
        rc = alq_capacity_read(name, entry, inv->arena, &d->capacity[d->capacity_count++], err);
        if (rc)
            return alq_err_wrap(err, "device %s", d->name);
    }
    return 0;
}

static int read_slice(struct alq_inventory *inv, json_t *j, const struct alq_pool *pool,
                      json_t *node, struct alq_slice **out, struct alq_err *err)
{
    struct alq_slice *s = alq_arena_alloc(inv->arena, sizeof(*s));
    json_t *spec = json_object_get(j, "spec"), *devices = json_object_get(spec, "devices"), *d;
    size_t i;

    if (!s)
        return NOMEM(err);
    *s = (struct alq_slice){.json = j, .spec = spec, .name = alq_json_str(j, "metadata.name")};
    if (!s->name)
        s->name = "";
    s->devices = alq_arena_alloc(inv->arena, json_array_size(devices) * sizeof(*s->devices));
    if (!s->devices)
        return NOMEM(err);
    json_array_foreach (devices, i, d) {
        int rc = read_device(inv, s, d, pool, node, &s->devices[s->device_count++], err);
        if (rc)
            return alq_err_wrap(err, "resource slice %s", s->name);
    }
    *out = s;
    return 0;
}

/* A slice of the input with what decides about it. */
struct candidate {
    json_t *json;
    const char *driver, *pool;
    json_int_t generation, count;
    bool is_relevant; /* for the node */
};

static int is_relevant(json_t *spec, json_t *node, bool *out, struct alq_err *err)
{
    json_t *d;
    size_t i;

    if (!json_is_true(json_object_get(spec, "perDeviceNodeSelection")))
        return alq_node_is_target(spec, node, out, err);
    *out = false;
    json_array_foreach (json_object_get(spec, "devices"), i, d) {
        int rc = alq_node_is_target(d, node, out, err);
        if (rc || *out)
            return rc;
    }
    return 0;
}

static int read_candidates(json_t *slices, json_t *node, struct candidate *out, struct alq_err *err)
{
    json_t *j;
    size_t i;

    json_array_foreach (slices, i, j) {
        json_t *spec = json_object_get(j, "spec");
        const char *name = alq_json_str(j, "metadata.name");
        out[i] = (struct candidate){
            .json = j,
            .driver = alq_json_str(spec, "driver"),
            .pool = alq_json_str(spec, "pool.name"),
            .generation = json_integer_value(alq_json_at(spec, "pool.generation")),
            .count = json_integer_value(alq_json_at(spec, "pool.resourceSliceCount"))};
        if (!out[i].driver || !out[i].pool)
            return alq_err_set(err, ALQ_EPROTO, "resource slice %s: driver or pool name is missing",
                               name ? name : "");
        int rc = is_relevant(spec, node, &out[i].is_relevant, err);
        if (rc)
            return alq_err_wrap(err, "resource slice %s", name ? name : "");
    }
    return 0;
}

static bool is_same_pool(const struct candidate *a, const struct candidate *b)
{
    return !strcmp(a->driver, b->driver) && !strcmp(a->pool, b->pool);
}

/* Whether no slice of the pool, for whatever node, is newer. */
static bool is_newest(const struct candidate *all, size_t count, const struct candidate *c)
{
    for (size_t i = 0; i < count; i++)
        if (is_same_pool(&all[i], c) && all[i].generation > c->generation)
            return false;
    return true;
}

static bool has_duplicate_device(const struct alq_pool *p)
{
    for (size_t s = 0; s < p->slice_count; s++)
        for (size_t d = 0; d < p->slices[s]->device_count; d++)
            for (size_t s2 = 0; s2 <= s; s2++)
                for (size_t d2 = 0; d2 < (s2 == s ? d : p->slices[s2]->device_count); d2++)
                    if (!strcmp(p->slices[s]->devices[d].name, p->slices[s2]->devices[d2].name))
                        return true;
    return false;
}

static int compare_slices(const void *a, const void *b)
{
    return strcmp((*(struct alq_slice *const *)a)->name, (*(struct alq_slice *const *)b)->name);
}

static int compare_pools(const void *a, const void *b)
{
    const struct alq_pool *p = a, *q = b;
    int c = strcmp(p->driver, q->driver);

    return c ? c : strcmp(p->name, q->name);
}

/* Puts the newest slices that are for the node into pools. */
static int build_pools(struct alq_inventory *inv, const struct candidate *all, size_t count,
                       json_t *node, struct alq_err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!all[i].is_relevant || !is_newest(all, count, &all[i]))
            continue;
        struct alq_pool *p = find_pool(inv, all[i].driver, all[i].pool);
        if (!p) {
            size_t published = 0;
            p = &inv->pools[inv->pool_count++];
            *p = (struct alq_pool){.driver = all[i].driver, .name = all[i].pool};
            for (size_t k = 0; k < count; k++)
                published +=
                    is_same_pool(&all[k], &all[i]) && all[k].generation == all[i].generation;
            p->wanted_count = all[i].count > 0 ? (size_t)all[i].count : 0;
            p->is_incomplete = published != p->wanted_count;
            p->slices = alq_arena_alloc(inv->arena, published * sizeof(struct alq_slice *));
            if (!p->slices)
                return NOMEM(err);
        }
        int rc = read_slice(inv, all[i].json, p, node, &p->slices[p->slice_count++], err);
        if (rc)
            return rc;
    }
    return 0;
}

static int number_devices(struct alq_inventory *inv, struct alq_err *err)
{
    size_t n = 0;

    for (size_t p = 0; p < inv->pool_count; p++)
        for (size_t s = 0; s < inv->pools[p].slice_count; s++)
            n += inv->pools[p].slices[s]->device_count;
    inv->devices = alq_arena_alloc(inv->arena, n * sizeof(struct alq_device *));
    if (!inv->devices)
        return NOMEM(err);
    for (size_t p = 0; p < inv->pool_count; p++) {
        for (size_t s = 0; s < inv->pools[p].slice_count; s++) {
            struct alq_slice *slice = inv->pools[p].slices[s];
            for (size_t d = 0; d < slice->device_count; d++) {
                slice->devices[d].id = inv->device_count;
                slice->devices[d].is_usable =
                    !inv->pools[p].is_incomplete && !inv->pools[p].is_invalid;
                inv->devices[inv->device_count++] = &slice->devices[d];
            }
        }
    }
    return 0;
}

int alq_inventory_init(struct alq_inventory *inv, json_t *slices, json_t *node, bool is_sorted,
                       struct alq_arena *arena, struct alq_err *err)
{
    size_t count = json_array_size(slices);
    struct candidate *all;
    int rc;

    *inv = (struct alq_inventory){.arena = arena};
    all = alq_arena_alloc(arena, count * sizeof(*all));
    inv->pools = alq_arena_alloc(arena, count * sizeof(*inv->pools));
    if (!all || !inv->pools)
        return NOMEM(err);
    rc = read_candidates(slices, node, all, err);
    if (!rc)
        rc = build_pools(inv, all, count, node, err);
    if (rc)
        return rc;
    qsort(inv->pools, inv->pool_count, sizeof(*inv->pools), compare_pools);
    for (size_t i = 0; i < inv->pool_count; i++) {
        struct alq_pool *p = &inv->pools[i];
        if (is_sorted)
            qsort(p->slices, p->slice_count, sizeof(struct alq_slice *), compare_slices);
        p->is_invalid = has_duplicate_device(p);
    }
    return number_devices(inv, err);
}

void alq_inventory_fini(struct alq_inventory *inv)
{
    for (size_t i = 0; i < inv->device_count; i++) {
        alq_cel_device_free(inv->devices[i]->cel);
        inv->devices[i]->cel = NULL;
    }
}

static int take(json_t *result, struct alq_device *d, struct alq_err *err)
{
    json_t *consumed = json_object_get(result, "consumedCapacity");

    if (!json_is_string(json_object_get(result, "shareID"))) {
        d->is_taken = true;
        return 0;
    }
    for (size_t i = 0; i < d->capacity_count; i++) {
        json_t *text = json_object_get(consumed, d->capacity[i].name);
        struct alq_amount a;
        if (!text)
            continue;
        int rc = alq_amount_read(text, d->capacity[i].name, &a, err);
        if (rc)
            return alq_err_wrap(err, "consumedCapacity of device %s", d->name);
        d->used[i].nano += a.value.nano;
    }
    return 0;
}

int alq_inventory_take(struct alq_inventory *inv, json_t *allocation, struct alq_err *err)
{
    json_t *r;
    size_t i;

    json_array_foreach (alq_json_at(allocation, "devices.results"), i, r) {
        const char *driver = alq_json_str(r, "driver"), *pool = alq_json_str(r, "pool"),
                   *name = alq_json_str(r, "device");
        if (!driver || !pool || !name)
            return alq_err_set(err, ALQ_EPROTO,
                               "a result of an allocated claim lacks driver, pool or device");
        if (json_is_true(json_object_get(r, "adminAccess")))
            continue;
        for (size_t k = 0; k < inv->device_count; k++) {
            struct alq_device *d = inv->devices[k];
            if (strcmp(d->name, name) || strcmp(d->driver, driver) || strcmp(d->pool, pool))
                continue;
            int rc = take(r, d, err);
            if (rc)
                return rc;
        }
    }
    return 0;
}
