/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation objects. Owns what it builds until it is handed over; one thread.
 */
#include "alloc/result.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/names.h"

#define NOMEM(err) alq_err_set(err, ALQ_ENOMEM, "out of memory")

/* jansson's setters take over new references also when they fail, and fail on NULL: one flag tells
 * at the end. */
static int make_share(const struct alq_choice *c, json_t *out, struct alq_err *err)
{
    json_t *consumed = json_object();
    char uuid[ALQ_UUID_TEXT_BYTES];
    int rc = alq_uuid_random(uuid) ? alq_err_errno(err, errno, "random bytes for a shareID") : 0,
        failed = !consumed;

    if (rc) {
        json_decref(consumed);
        return rc;
    }
    for (size_t i = 0; i < c->device->capacity_count; i++)
        failed |= json_object_set_new(consumed, c->device->capacity[i].name,
                                      json_string(c->amounts[i].text));
    failed |= json_object_set_new(out, "shareID", json_string(uuid));
    if (c->device->capacity_count)
        failed |= json_object_set(out, "consumedCapacity", consumed);
    json_decref(consumed);
    return failed ? NOMEM(err) : 0;
}

static int make_results(const struct alq_choices *choices, json_t *devices, struct alq_err *err)
{
    json_t *results = json_array();
    int failed = json_object_set_new(devices, "results", results);

    for (size_t i = 0; i < choices->count && !failed; i++) {
        const struct alq_choice *c = &choices->items[i];
        json_t *r = json_object();
        failed |= json_array_append_new(results, r);
        failed |= json_object_set_new(r, "request", json_string(c->option->name));
        failed |= json_object_set_new(r, "driver", json_string(c->device->driver));
        failed |= json_object_set_new(r, "pool", json_string(c->device->pool));
        failed |= json_object_set_new(r, "device", json_string(c->device->name));
        if (c->option->is_admin)
            failed |= json_object_set_new(r, "adminAccess", json_true());
        if (json_array_size(c->option->tolerations))
            failed |= json_object_set_new(r, "tolerations", json_deep_copy(c->option->tolerations));
        if (!failed && c->amounts) {
            int rc = make_share(c, r, err);
            if (rc)
                return rc;
        }
    }
    return failed ? NOMEM(err) : 0;
}

static const struct alq_option *chosen(const struct alq_claim *claim, size_t request)
{
    return &claim->requests[request].options[claim->requests[request].chosen];
}

/* A copy of a DeviceConfiguration with its source and the requests that it is for (borrowed; empty:
 * all). */
static int add_config(json_t *config, const char *source, json_t *from, json_t *requests)
{
    json_t *c = json_object(), *v;
    const char *key;
    int failed = json_array_append_new(config, c);

    failed |= json_object_set_new(c, "source", json_string(source));
    if (json_array_size(requests))
        failed |= json_object_set_new(c, "requests", json_deep_copy(requests));
    json_object_foreach (from, key, v) {
        if (strcmp(key, "requests"))
            failed |= json_object_set_new(c, key, json_deep_copy(v));
    }
    return failed;
}

/* Configuration of the classes in use, each class once with the requests that use it; none named
 * when all do. */
static int class_configs(const struct alq_claim *claim, json_t *config)
{
    int failed = 0;

    for (size_t i = 0; i < claim->request_count && !failed; i++) {
        json_t *class_object = chosen(claim, i)->class_object, *from, *names = json_array();
        size_t k, users = 0;
        bool is_first = true;
        for (k = 0; k < i; k++)
            is_first &= chosen(claim, k)->class_object != class_object;
        for (k = i; k < claim->request_count; k++) {
            if (chosen(claim, k)->class_object == class_object) {
                failed |= json_array_append_new(names, json_string(chosen(claim, k)->name));
                users++;
            }
        }
        if (users == claim->request_count)
            json_array_clear(names);
        json_array_foreach (alq_json_at(class_object, "spec.config"), k, from) {
            if (is_first)
                failed |= add_config(config, "FromClass", from, names);
        }
        json_decref(names);
    }
    return failed;
}

static int claim_configs(const struct alq_claim *claim, json_t *config)
{
    json_t *from;
    size_t i;
    int failed = 0;

    json_array_foreach (alq_json_at(claim->json, "spec.devices.config"), i, from) {
        json_t *names = json_object_get(from, "requests");
        bool is_used = json_array_size(names) == 0;
        for (size_t r = 0; r < claim->request_count; r++)
            is_used |= alq_request_is_named(names, &claim->requests[r], chosen(claim, r));
        if (is_used)
            failed |= add_config(config, "FromClaim", from, names);
    }
    return failed;
}

/* Adds the requirements that are not there yet. */
static int merge(json_t *term, const char *key, json_t *requirements)
{
    json_t *have = json_object_get(term, key), *r, *h;
    size_t i, k;
    int failed = 0;

    if (!have && json_array_size(requirements)) {
        have = json_array();
        failed |= json_object_set_new(term, key, have);
    }
    json_array_foreach (requirements, i, r) {
        bool is_new = true;
        json_array_foreach (have, k, h) {
            is_new &= !json_equal(h, r);
        }
        if (is_new)
            failed |= json_array_append(have, r);
    }
    return failed;
}

static json_t *selector_of(json_t *term)
{
    return json_pack("{s:[o]}", "nodeSelectorTerms", term);
}

/* From which nodes the devices can be reached: one node when a device is local to it, else what the
 * slices' selectors have in common, else any (NULL). */
static int make_node_selector(const struct alq_choices *choices, const char *node_name,
                              json_t **out, struct alq_err *err)
{
    json_t *term = json_object();
    int failed = !term;

    *out = NULL;
    for (size_t i = 0; i < choices->count && !failed; i++) {
        const struct alq_device *d = choices->items[i].device;
        json_t *where = json_is_true(json_object_get(d->slice->spec, "perDeviceNodeSelection"))
                            ? d->json
                            : d->slice->spec;
        const char *name = alq_json_str(where, "nodeName");
        json_t *terms =
            json_object_get(json_object_get(where, "nodeSelector"), "nodeSelectorTerms");
        if ((name && *name) || json_is_true(json_object_get(d->json, "bindsToNode"))) {
            json_decref(term);
            *out = selector_of(json_pack("{s:[{s:s, s:s, s:[s]}]}", "matchFields", "key",
                                         "metadata.name", "operator", "In", "values", node_name));
            return *out ? 0 : NOMEM(err);
        }
        if (json_array_size(terms) > 1) {
            json_decref(term);
            return alq_err_set(err, ALQ_EPROTO,
                               "unsupported node selector with %zu terms in resource slice %s",
                               json_array_size(terms), d->slice->name);
        }
        json_t *t = json_array_get(terms, 0);
        failed |= merge(term, "matchFields", json_object_get(t, "matchFields"));
        failed |= merge(term, "matchExpressions", json_object_get(t, "matchExpressions"));
    }
    if (!failed && json_object_size(term)) {
        *out = selector_of(term);
        return *out ? 0 : NOMEM(err);
    }
    json_decref(term);
    return failed ? NOMEM(err) : 0;
}

int alq_result_new(const struct alq_claim *claim, const struct alq_choices *choices,
                   const char *node_name, const char *now, json_t **allocation, struct alq_err *err)
{
    alq_auto_json json_t *out = json_object();
    alq_auto_json json_t *config = json_array();
    json_t *devices = json_object(), *selector = NULL;
    int failed = json_object_set_new(out, "devices", devices), rc;

    if (failed || !config)
        return NOMEM(err);
    rc = make_results(choices, devices, err);
    if (rc)
        return rc;
    failed |= class_configs(claim, config);
    failed |= claim_configs(claim, config);
    if (json_array_size(config))
        failed |= json_object_set(devices, "config", config);
    rc = make_node_selector(choices, node_name, &selector, err);
    if (rc)
        return rc;
    if (selector)
        failed |= json_object_set_new(out, "nodeSelector", selector);
    if (now)
        failed |= json_object_set_new(out, "allocationTimestamp", json_string(now));
    if (failed)
        return NOMEM(err);
    *allocation = json_incref(out);
    return 0;
}
