/* SPDX-License-Identifier: Apache-2.0 */
/* The publisher's decisions, see pool.h. Pure; every slice of the pool is matched with the desired
 * slice it shares most device names with, so that objects are changed rather than replaced. */
#include "daemon/kube/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "daemon/kube/slice.h"

#define SLICES_MAX 256

struct match {
    const json_t *devices; /* desired */
    const json_t *slice;   /* observed, NULL: none */
    int is_right;          /* spec and owner but for generation and number */
};

struct view {
    const struct alq_pool_want *want;
    const struct alq_pool_accepted *accepted;
    struct match matches[SLICES_MAX];
    size_t match_count;
    const json_t *strays[SLICES_MAX]; /* observed slices of ours that match nothing */
    size_t stray_count;
    int64_t highest;
};

static json_int_t number_at(const json_t *slice, const char *path)
{
    const json_t *value = alq_json_at(slice, path);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static int is_text_at(const json_t *object, const char *path, const char *text)
{
    const char *value = alq_json_str(object, path);
    return value && !strcmp(value, text);
}

/* Ours to write: our driver on our node, in whatever pool. */
static int is_ours(const struct alq_pool_want *want, const json_t *slice)
{
    return is_text_at(slice, "spec.driver", want->driver) &&
           is_text_at(slice, "spec.nodeName", want->node);
}

static int is_in_pool(const struct alq_pool_want *want, const json_t *slice)
{
    return is_ours(want, slice) && is_text_at(slice, "spec.pool.name", want->node);
}

static size_t common_names(const json_t *desired, const json_t *slice)
{
    size_t i, j, count = 0;
    json_t *a, *b;
    json_array_foreach (desired, i, a) {
        json_array_foreach (alq_json_at(slice, "spec.devices"), j, b) {
            const char *name = alq_json_str(a, "name");
            if (name && is_text_at(b, "name", name)) {
                count++;
                break;
            }
        }
    }
    return count;
}

int64_t alq_pool_generation(const struct alq_pool_want *want, const json_t *observed)
{
    const char *name;
    json_t *slice;
    int64_t highest = 0;
    json_object_foreach ((json_t *)observed, name, slice) {
        json_int_t generation = number_at(slice, "spec.pool.generation");
        if (is_in_pool(want, slice) && generation > highest)
            highest = generation;
    }
    return highest;
}

/* ---- desired and observed -----------------------------------------------------------------------
 */

static json_t *owner(const struct alq_pool_want *want)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:b}", "apiVersion", "v1", "kind", "Node", "name",
                     want->node, "uid", want->node_uid, "controller", 1);
}

static int has_owner(const struct alq_pool_want *want, const json_t *slice)
{
    size_t i;
    json_t *reference;
    if (!*want->node_uid)
        return 1;
    const json_t *references = alq_json_at(slice, "metadata.ownerReferences");
    json_array_foreach (references, i, reference) {
        if (is_text_at(reference, "uid", want->node_uid) && is_text_at(reference, "kind", "Node"))
            return json_array_size(references) == 1;
    }
    return 0;
}

static json_t *spec_of(const struct alq_pool_want *want, const json_t *devices, int64_t generation)
{
    return json_pack("{s:s, s:s, s:{s:s, s:I, s:I}, s:O}", "driver", want->driver, "nodeName",
                     want->node, "pool", "name", want->node, "generation", (json_int_t)generation,
                     "resourceSliceCount", (json_int_t)json_array_size(want->layout), "devices",
                     (json_t *)devices);
}

/* Whether the devices are as desired, or as the server keeps what is desired. */
static int is_right_devices(const struct alq_pool_accepted *accepted, const json_t *desired,
                            const json_t *devices)
{
    size_t i;
    json_t *pair;
    if (alq_slice_is_same(desired, devices))
        return 1;
    json_array_foreach (accepted->pairs, i, pair) {
        if (alq_slice_is_same(json_array_get(pair, 0), desired))
            return alq_slice_is_same(json_array_get(pair, 1), devices);
    }
    return 0;
}

/* Apart from devices and pool, a spec of ours holds nothing (allNodes, nodeSelector,
 * sharedCounters, ...). */
static int is_right(const struct view *v, const json_t *desired, const json_t *slice)
{
    static const char *const keys[] = {"driver", "nodeName", "pool", "devices", NULL};
    const char *key;
    json_t *value;
    json_t *spec = json_object_get(slice, "spec");
    json_object_foreach (spec, key, value) {
        const char *const *known = keys;
        while (*known && strcmp(*known, key))
            known++;
        if (!*known && !json_is_null(value) && !json_is_false(value))
            return 0;
    }
    return is_right_devices(v->accepted, desired, json_object_get(spec, "devices")) &&
           has_owner(v->want, slice);
}

/* Prefers more common names, then the higher generation; names of objects (sorted) break ties. */
static const json_t *best_match(const struct view *v, const json_t *desired, json_t *const *slices,
                                size_t count, const unsigned char *is_taken, size_t *which)
{
    const json_t *best = NULL;
    size_t best_common = 0;
    for (size_t i = 0; i < count; i++) {
        size_t common =
            is_taken[i] || !is_in_pool(v->want, slices[i]) ? 0 : common_names(desired, slices[i]);
        if (common > best_common || (common && common == best_common &&
                                     number_at(slices[i], "spec.pool.generation") >
                                         number_at(best, "spec.pool.generation"))) {
            best = slices[i];
            best_common = common;
            *which = i;
        }
    }
    return best;
}

static int by_name(const void *a, const void *b)
{
    const char *x = alq_json_str(*(json_t *const *)a, "metadata.name");
    const char *y = alq_json_str(*(json_t *const *)b, "metadata.name");
    return strcmp(x ? x : "", y ? y : "");
}

static void look(struct view *v, const json_t *observed)
{
    json_t *slices[SLICES_MAX];
    unsigned char is_taken[SLICES_MAX] = {0};
    size_t count = 0, i;
    const char *name;
    json_t *slice, *desired;
    json_object_foreach ((json_t *)observed, name, slice) {
        if (count < SLICES_MAX && is_ours(v->want, slice))
            slices[count++] = slice;
    }
    qsort(slices, count, sizeof(slices[0]), by_name);
    json_array_foreach (v->want->layout, i, desired) {
        if (v->match_count == SLICES_MAX)
            break;
        size_t which = 0;
        struct match *m = &v->matches[v->match_count++];
        *m = (struct match){.devices = desired};
        m->slice = best_match(v, desired, slices, count, is_taken, &which);
        if (m->slice) {
            is_taken[which] = 1;
            m->is_right = is_right(v, desired, m->slice);
        }
    }
    for (i = 0; i < count; i++) {
        if (!is_taken[i])
            v->strays[v->stray_count++] = slices[i];
    }
    v->highest = alq_pool_generation(v->want, observed);
}

/* Somebody may have put the last number there. */
static int64_t after(int64_t generation)
{
    return generation < INT64_MAX ? generation + 1 : generation;
}

/* The generation at which the pool is to be complete. */
static int64_t choose_generation(const struct view *v)
{
    size_t missing = 0, wrong_now = 0, older = 0;
    json_int_t number = (json_int_t)json_array_size(v->want->layout);
    int is_number_kept = 1;

    if (!v->highest)
        return after(v->want->generation_floor);
    for (size_t i = 0; i < v->match_count; i++) {
        const struct match *m = &v->matches[i];
        if (!m->slice) {
            missing++;
        } else if (number_at(m->slice, "spec.pool.generation") != v->highest) {
            older++;
        } else {
            wrong_now += !m->is_right;
            is_number_kept &= number_at(m->slice, "spec.pool.resourceSliceCount") == number;
        }
    }
    for (size_t i = 0; i < v->stray_count; i++) {
        /* Something else is in the pool at this generation; consumers must not mix it with what we
         * are about to add. */
        if (is_in_pool(v->want, v->strays[i]) &&
            number_at(v->strays[i], "spec.pool.generation") == v->highest && (missing || older))
            return after(v->highest);
    }
    if (is_number_kept && (wrong_now == 0 || (wrong_now == 1 && !missing && !older)))
        return v->highest;
    return after(v->highest);
}

/* ---- actions ------------------------------------------------------------------------------------
 */

static int add_action(struct alq_pool_plan *plan, enum alq_pool_verb verb, const char *name,
                      json_t *body, struct alq_err *err)
{
    struct alq_pool_action *grown =
        body ? reallocarray(plan->actions, plan->count + 1, sizeof(*grown)) : NULL;
    char *copy = name ? strdup(name) : NULL;
    if (grown)
        plan->actions = grown;
    if (!grown || (name && !copy)) {
        json_decref(body);
        free(copy);
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    plan->actions[plan->count++] =
        (struct alq_pool_action){.verb = verb, .name = copy, .body = body};
    return 0;
}

static int add_delete(struct alq_pool_plan *plan, const json_t *slice, struct alq_err *err)
{
    const char *uid = alq_json_str(slice, "metadata.uid");
    const char *version = alq_json_str(slice, "metadata.resourceVersion");
    json_t *body =
        json_pack("{s:s, s:s, s:{s:s*, s:s*}}", "apiVersion", "v1", "kind", "DeleteOptions",
                  "preconditions", "uid", uid, "resourceVersion", version);
    return add_action(plan, ALQ_POOL_DELETE, alq_json_str(slice, "metadata.name"), body, err);
}

/* metadata as it is but for the owner; resourceVersion makes the update conditional. */
static int add_update(struct alq_pool_plan *plan, const struct view *v, const struct match *m,
                      int64_t generation, struct alq_err *err)
{
    json_t *metadata = json_copy(json_object_get(m->slice, "metadata"));
    json_object_del(metadata, "managedFields");
    if (*v->want->node_uid)
        json_object_set_new(metadata, "ownerReferences", json_pack("[o]", owner(v->want)));
    json_t *body = json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "resource.k8s.io/v1", "kind",
                             "ResourceSlice", "metadata", metadata, "spec",
                             spec_of(v->want, m->devices, generation));
    return add_action(plan, ALQ_POOL_UPDATE, alq_json_str(m->slice, "metadata.name"), body, err);
}

static int add_create(struct alq_pool_plan *plan, const struct view *v, size_t index,
                      int64_t generation, struct alq_err *err)
{
    /* 1.36's own helper names them so: the index first, so that they sort as they were made. */
    alq_auto_free char *prefix =
        alq_str_printf("%05zx-%s-%s-", index, v->want->driver, v->want->node);
    if (!prefix)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    json_t *metadata = json_pack("{s:s}", "generateName", prefix);
    if (*v->want->node_uid)
        json_object_set_new(metadata, "ownerReferences", json_pack("[o]", owner(v->want)));
    json_t *body = json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "resource.k8s.io/v1", "kind",
                             "ResourceSlice", "metadata", metadata, "spec",
                             spec_of(v->want, v->matches[index].devices, generation));
    return add_action(plan, ALQ_POOL_CREATE, NULL, body, err);
}

static int needs_update(const struct view *v, const struct match *m, int64_t generation)
{
    return m->slice && (!m->is_right || number_at(m->slice, "spec.pool.generation") != generation ||
                        number_at(m->slice, "spec.pool.resourceSliceCount") !=
                            (json_int_t)json_array_size(v->want->layout));
}

int alq_pool_plan(const struct alq_pool_want *want, const json_t *observed,
                  const struct alq_pool_accepted *accepted, struct alq_pool_plan *plan,
                  struct alq_err *err)
{
    *plan = (struct alq_pool_plan){0};
    struct view *v = calloc(1, sizeof(*v));
    if (!v)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    v->want = want;
    v->accepted = accepted;
    look(v, observed);
    int64_t generation = choose_generation(v);
    int rc = 0;
    for (size_t i = 0; !rc && i < v->stray_count; i++)
        rc = add_delete(plan, v->strays[i], err);
    for (size_t i = 0; !rc && i < v->match_count; i++) {
        if (needs_update(v, &v->matches[i], generation))
            rc = add_update(plan, v, &v->matches[i], generation, err);
    }
    for (size_t i = 0; !rc && i < v->match_count; i++) {
        if (!v->matches[i].slice)
            rc = add_create(plan, v, i, generation, err);
    }
    free(v);
    if (rc)
        alq_pool_plan_clear(plan);
    return rc;
}

void alq_pool_plan_clear(struct alq_pool_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        free(plan->actions[i].name);
        json_decref(plan->actions[i].body);
    }
    free(plan->actions);
    *plan = (struct alq_pool_plan){0};
}

/* ---- what the server keeps ----------------------------------------------------------------------
 */

int alq_pool_accept(struct alq_pool_accepted *accepted, const json_t *sent_devices,
                    const json_t *stored_devices)
{
    size_t i;
    json_t *pair;
    int is_known = 0;
    json_array_foreach (accepted->pairs, i, pair) {
        if (alq_slice_is_same(json_array_get(pair, 0), sent_devices)) {
            is_known = alq_slice_is_same(json_array_get(pair, 1), stored_devices);
            json_array_remove(accepted->pairs, i);
            break;
        }
    }
    if (alq_slice_is_same(sent_devices, stored_devices))
        return 0;
    if (!accepted->pairs)
        accepted->pairs = json_array();
    if (json_array_size(accepted->pairs) >= SLICES_MAX)
        json_array_remove(accepted->pairs, 0);
    json_t *kept = stored_devices ? json_deep_copy(stored_devices) : json_null();
    json_array_append_new(accepted->pairs, json_pack("[oo]", json_deep_copy(sent_devices), kept));
    return !is_known;
}

void alq_pool_accepted_clear(struct alq_pool_accepted *accepted)
{
    json_decref(accepted->pairs);
    accepted->pairs = NULL;
}
