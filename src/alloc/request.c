/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads claims, resolves classes, compiles selectors; constraints and tolerations. Owns the
 * compiled selectors, the rest lies in the arena.
 */
#include "alloc/request.h"

#include <stdio.h>
#include <string.h>

#include "alloc/inventory.h"
#include "base/json.h"

#define NOMEM(err) alq_err_set(err, ALQ_ENOMEM, "out of memory")

static char *print(struct alq_arena *arena, const char *a, const char *separator, const char *b)
{
    size_t len = strlen(a) + strlen(separator) + strlen(b);
    char *text = alq_arena_alloc(arena, len + 1);

    if (text)
        snprintf(text, len + 1, "%s%s%s", a, separator, b);
    return text;
}

static json_t *find_class(json_t *classes, const char *name)
{
    json_t *c;
    size_t i;

    json_array_foreach (classes, i, c) {
        const char *n = alq_json_str(c, "metadata.name");
        if (n && !strcmp(n, name))
            return c;
    }
    return NULL;
}

static int compile(struct alq_request_set *set, const char *text, struct alq_selector **out,
                   struct alq_err *err)
{
    struct alq_selector *s;
    int rc;

    for (s = set->selectors; s; s = s->next) {
        if (!strcmp(s->text, text)) {
            *out = s;
            return 0;
        }
    }
    s = alq_arena_alloc(set->arena, sizeof(*s));
    if (!s)
        return NOMEM(err);
    s->text = text;
    rc = alq_cel_compile(text, strlen(text), &s->program, err);
    if (rc)
        return rc;
    s->next = set->selectors;
    set->selectors = s;
    *out = s;
    return 0;
}

static int read_selectors(struct alq_request_set *set, json_t *list, struct alq_selectors *out,
                          struct alq_err *err)
{
    json_t *j;
    size_t i;

    out->items = alq_arena_alloc(set->arena, json_array_size(list) * sizeof(struct alq_selector *));
    if (!out->items)
        return NOMEM(err);
    json_array_foreach (list, i, j) {
        const char *text = alq_json_str(j, "cel.expression");
        if (!text)
            return alq_err_set(err, ALQ_EPROTO,
                               "selector #%zu: CEL expression empty (unsupported selector type?)",
                               i);
        int rc = compile(set, text, &out->items[out->count++], err);
        if (rc)
            return alq_err_wrap(err, "selector #%zu: CEL compile error", i);
    }
    return 0;
}

static int read_mode(struct alq_option *o, struct alq_err *err)
{
    const char *mode = alq_json_str(o->spec, "allocationMode");
    json_t *count = json_object_get(o->spec, "count");

    if (mode && !strcmp(mode, "All")) {
        o->is_all = true;
        return 0;
    }
    if (mode && *mode && strcmp(mode, "ExactCount"))
        return alq_err_set(err, ALQ_EINVAL, "unsupported count mode %s", mode);
    if (count && (!json_is_integer(count) || json_integer_value(count) < 0))
        return alq_err_set(err, ALQ_EPROTO, "count is not a number of devices");
    o->count = count && json_integer_value(count) ? (size_t)json_integer_value(count)
                                                  : 1; /* the server's default */
    return 0;
}

static int read_option(struct alq_request_set *set, json_t *spec, json_t *classes,
                       struct alq_option *o, struct alq_err *err)
{
    int rc;

    o->spec = spec;
    o->class_name = alq_json_str(spec, "deviceClassName");
    o->is_admin = json_is_true(json_object_get(spec, "adminAccess"));
    o->tolerations = json_object_get(spec, "tolerations");
    if (!o->class_name || !*o->class_name)
        return alq_err_set(err, ALQ_EPROTO,
                           "missing device class name (unsupported request type?)");
    o->class_object = find_class(classes, o->class_name);
    if (!o->class_object)
        return alq_err_set(err, ALQ_ENOENT, "device class %s does not exist", o->class_name);
    rc = read_mode(o, err);
    if (rc)
        return rc;
    rc = read_selectors(set, alq_json_at(o->class_object, "spec.selectors"), &o->class_selectors,
                        err);
    if (rc)
        return alq_err_wrap(err, "class %s", o->class_name);
    return read_selectors(set, json_object_get(spec, "selectors"), &o->selectors, err);
}

static int read_request(struct alq_request_set *set, json_t *j, json_t *classes,
                        struct alq_request *r, struct alq_err *err)
{
    json_t *exactly = json_object_get(j, "exactly"),
           *alternatives = json_object_get(j, "firstAvailable"), *a;
    size_t i;
    int rc;

    r->name = alq_json_str(j, "name");
    if (!r->name)
        return alq_err_set(err, ALQ_EPROTO, "a request has no name");
    r->has_suboptions = json_array_size(alternatives) > 0;
    if (!r->has_suboptions && !json_is_object(exactly))
        return alq_err_set(err, ALQ_EPROTO, "request %s: neither exactly nor firstAvailable is set",
                           r->name);
    r->option_count = r->has_suboptions ? json_array_size(alternatives) : 1;
    r->options = alq_arena_alloc(set->arena, r->option_count * sizeof(*r->options));
    if (!r->options)
        return NOMEM(err);
    if (!r->has_suboptions) {
        r->options[0].name = r->name;
        rc = read_option(set, exactly, classes, &r->options[0], err);
        return rc ? alq_err_wrap(err, "request %s", r->name) : 0;
    }
    json_array_foreach (alternatives, i, a) {
        const char *name = alq_json_str(a, "name");
        if (!name)
            return alq_err_set(err, ALQ_EPROTO, "request %s: a subrequest has no name", r->name);
        r->options[i].name = print(set->arena, r->name, "/", name);
        if (!r->options[i].name)
            return NOMEM(err);
        rc = read_option(set, a, classes, &r->options[i], err);
        if (rc)
            return alq_err_wrap(err, "request %s", r->options[i].name);
    }
    return 0;
}

static int read_constraint(json_t *j, size_t i, struct alq_constraint *c, struct alq_err *err)
{
    const char *match = alq_json_str(j, "matchAttribute"),
               *distinct = alq_json_str(j, "distinctAttribute");

    if (!match && !distinct)
        return alq_err_set(err, ALQ_EINVAL,
                           "constraint #%zu: empty constraint (unsupported constraint type?)", i);
    c->attribute = match ? match : distinct;
    c->is_distinct = !match;
    c->requests = json_object_get(j, "requests");
    return 0;
}

static int read_claim(struct alq_request_set *set, json_t *j, json_t *classes, struct alq_claim *c,
                      struct alq_err *err)
{
    json_t *requests = alq_json_at(j, "spec.devices.requests"),
           *constraints = alq_json_at(j, "spec.devices.constraints"), *item;
    size_t i;
    int rc;

    if (json_array_size(requests) > ALQ_REQUESTS_MAX ||
        json_array_size(constraints) > ALQ_REQUESTS_MAX)
        return alq_err_set(err, ALQ_ERANGE, "more than %d requests or constraints",
                           ALQ_REQUESTS_MAX);
    c->requests = alq_arena_alloc(set->arena, json_array_size(requests) * sizeof(*c->requests));
    c->constraints =
        alq_arena_alloc(set->arena, json_array_size(constraints) * sizeof(*c->constraints));
    if (!c->requests || !c->constraints)
        return NOMEM(err);
    json_array_foreach (requests, i, item) {
        rc = read_request(set, item, classes, &c->requests[c->request_count++], err);
        if (rc)
            return rc;
    }
    json_array_foreach (constraints, i, item) {
        rc = read_constraint(item, i, &c->constraints[c->constraint_count++], err);
        if (rc)
            return rc;
    }
    return 0;
}

int alq_request_set_add(struct alq_request_set *set, json_t *claim, json_t *classes,
                        struct alq_err *err)
{
    const char *name = alq_json_str(claim, "metadata.name"),
               *ns = alq_json_str(claim, "metadata.namespace");
    const char *uid = alq_json_str(claim, "metadata.uid");
    struct alq_claim *c;
    int rc;

    if (set->claim_count == ALQ_CLAIMS_MAX)
        return alq_err_set(err, ALQ_ERANGE, "more than %d claims at once", ALQ_CLAIMS_MAX);
    if (!name || !uid)
        return alq_err_set(err, ALQ_EPROTO, "a claim has no name or uid");
    c = &set->claims[set->claim_count];
    *c = (struct alq_claim){.json = claim, .uid = uid};
    c->label = print(set->arena, ns ? ns : "", ns ? "/" : "", name);
    if (!c->label)
        return NOMEM(err);
    rc = read_claim(set, claim, classes, c, err);
    if (rc == ALQ_ENOENT) /* Kubernetes' text; the pod's event names the claim */
        return rc;
    if (rc)
        return alq_err_wrap(err, "claim %s", c->label);
    set->claim_count++;
    return 0;
}

void alq_request_set_fini(struct alq_request_set *set)
{
    for (struct alq_selector *s = set->selectors; s; s = s->next)
        alq_cel_program_free(s->program);
    set->selectors = NULL;
}

bool alq_request_is_named(json_t *names, const struct alq_request *r, const struct alq_option *o)
{
    json_t *n;
    size_t i;

    if (!json_array_size(names))
        return true;
    json_array_foreach (names, i, n) {
        const char *s = json_string_value(n);
        if (s && (!strcmp(s, r->name) || !strcmp(s, o->name)))
            return true;
    }
    return false;
}

/* The attribute by its full name; one published without a domain has the driver's. */
static json_t *find_attribute(const struct alq_device *d, const char *qualified)
{
    json_t *attributes = json_object_get(d->json, "attributes"),
           *a = json_object_get(attributes, qualified);
    size_t n = strlen(d->driver);

    if (!a && !strncmp(qualified, d->driver, n) && qualified[n] == '/')
        a = json_object_get(attributes, qualified + n + 1);
    return a;
}

bool alq_constraint_add(struct alq_constraint *c, const struct alq_request *r,
                        const struct alq_option *o, const struct alq_device *d)
{
    json_t *a;

    if (!alq_request_is_named(c->requests, r, o))
        return true;
    a = find_attribute(d, c->attribute);
    if (!a || c->value_count == ALQ_RESULTS_MAX)
        return false;
    if (c->is_distinct) {
        for (size_t i = 0; i < c->value_count; i++)
            if (json_equal(a, c->values[i]))
                return false;
    } else if (c->value_count && !json_equal(a, c->values[0])) {
        return false;
    }
    c->values[c->value_count++] = a;
    return true;
}

void alq_constraint_remove(struct alq_constraint *c, const struct alq_request *r,
                           const struct alq_option *o)
{
    if (alq_request_is_named(c->requests, r, o))
        c->value_count--;
}

/* core rules of tolerations: no key with Exists is everything, no effect is every effect, Equal is
 * the default. */
static bool is_tolerated(json_t *taint, json_t *tolerations)
{
    const char *key = alq_json_str(taint, "key"), *value = alq_json_str(taint, "value"),
               *effect = alq_json_str(taint, "effect");
    json_t *t;
    size_t i;

    json_array_foreach (tolerations, i, t) {
        const char *tkey = alq_json_str(t, "key"), *tvalue = alq_json_str(t, "value"),
                   *teffect = alq_json_str(t, "effect"), *op = alq_json_str(t, "operator");
        bool is_exists = op && !strcmp(op, "Exists");
        if (op && *op && !is_exists && strcmp(op, "Equal"))
            continue;
        if (teffect && *teffect && (!effect || strcmp(teffect, effect)))
            continue;
        if (tkey && *tkey ? !key || strcmp(tkey, key) != 0 : !is_exists)
            continue;
        if (is_exists || !strcmp(tvalue ? tvalue : "", value ? value : ""))
            return true;
    }
    return false;
}

bool alq_option_tolerates(const struct alq_option *o, const struct alq_device *d)
{
    json_t *taint;
    size_t i;

    json_array_foreach (json_object_get(d->json, "taints"), i, taint) {
        const char *effect = alq_json_str(taint, "effect");
        if (effect && (!strcmp(effect, "NoSchedule") || !strcmp(effect, "NoExecute")) &&
            !is_tolerated(taint, o->tolerations))
            return false;
    }
    return true;
}
