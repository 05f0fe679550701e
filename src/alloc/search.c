/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First fit with backtracking, depth first, as the scheduler's structured allocator does it. The
 * recursion is as deep as there are devices and requests to place (at most 64 claims of 32 each).
 * Owns nothing: memory comes from the inventory's arena.
 */
#include "alloc/search.h"

#include <stdint.h>
#include <string.h>

#include "alloc/alloc.h"

/* Where the search stands: the next device wanted is number `device` of the option of the request
 * of the claim. */
struct place {
    size_t claim, request, option, device;
    bool is_option_chosen;
    size_t first_device; /* within one option devices are taken in ascending order: sets, not
                            sequences */
};

enum outcome {
    OUT_ERROR = -1,
    OUT_NONE,
    OUT_FOUND,
    OUT_TOO_MANY, /* more results than a claim may have, whichever devices are taken */
};

static enum outcome place_next(struct alq_search *s, struct place at, struct alq_err *err);

static int run_selectors(const struct alq_selectors *list, struct alq_device *d, bool *matches,
                         struct alq_err *err)
{
    int rc;

    *matches = true;
    for (size_t i = 0; *matches && i < list->count; i++) {
        if (!d->cel) {
            rc = alq_cel_device_new(d->driver, d->json, &d->cel, err);
            if (rc)
                return alq_err_wrap(err, "selector #%zu: device %s/%s/%s", i, d->driver, d->pool,
                                    d->name);
        }
        rc = alq_cel_matches(list->items[i]->program, d->cel, matches, err);
        if (rc)
            return alq_err_wrap(err, "selector #%zu: CEL runtime error", i);
    }
    return 0;
}

/* Whether class and request select the device, for this node. */
static int is_selected(const struct alq_claim *claim, struct alq_option *o, struct alq_device *d,
                       bool *out, struct alq_err *err)
{
    struct alq_fit *fit = &o->fits[d->id];
    bool matches = false;
    int rc;

    if (fit->selected != ALQ_FIT_UNKNOWN) {
        *out = fit->selected == ALQ_FIT_YES;
        return 0;
    }
    rc = run_selectors(&o->class_selectors, d, &matches, err);
    if (rc)
        return alq_err_wrap(err, "class %s", o->class_name);
    if (matches) {
        rc = run_selectors(&o->selectors, d, &matches, err);
        if (rc)
            return alq_err_wrap(err, "claim %s", claim->label);
    }
    *out = matches && d->is_targeted;
    fit->selected = *out ? ALQ_FIT_YES : ALQ_FIT_NO;
    return 0;
}

static bool has_capacity(const struct alq_device *d, const char *name)
{
    for (size_t i = 0; i < d->capacity_count; i++)
        if (!strcmp(d->capacity[i].name, name))
            return true;
    return false;
}

/* Whether the device is large enough and its policy allows the amounts; fills fit->amounts. Use is
 * not looked at. */
static int is_sized(struct alq_search *s, struct alq_option *o, struct alq_device *d, bool *out,
                    struct alq_err *err)
{
    struct alq_fit *fit = &o->fits[d->id];
    json_t *requests = json_object_get(json_object_get(o->spec, "capacity"), "requests"), *text;
    const char *name;
    bool is_ok = true;

    if (fit->sized != ALQ_FIT_UNKNOWN) {
        *out = fit->sized == ALQ_FIT_YES;
        return 0;
    }
    json_object_foreach (requests, name, text) {
        if (has_capacity(d, name)) /* only the literal key names a capacity */
            continue;
        fit->lacking = name;
        is_ok = false;
    }
    fit->amounts = alq_arena_alloc(s->inventory->arena, d->capacity_count * sizeof(*fit->amounts));
    if (!fit->amounts)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; is_ok && i < d->capacity_count; i++) {
        struct alq_amount requested;
        int rc;
        text = json_object_get(requests, d->capacity[i].name);
        rc = text ? alq_amount_read(text, d->capacity[i].name, &requested, err) : 0;
        if (!rc)
            rc = alq_capacity_amount(&d->capacity[i], text ? &requested : NULL, s->inventory->arena,
                                     &fit->amounts[i], &is_ok, err);
        if (rc)
            return alq_err_wrap(err, "request %s", o->name);
        if (alq_quantity_cmp(fit->amounts[i].value, d->capacity[i].total.value) > 0)
            is_ok = false;
        if (!is_ok)
            fit->lacking = d->capacity[i].name;
    }
    fit->sized = is_ok ? ALQ_FIT_YES : ALQ_FIT_NO;
    *out = is_ok;
    return 0;
}

/* Whether the amounts of a sized device fit beside what is used; else *lacking is the capacity that
 * is short. */
static bool has_room(const struct alq_option *o, const struct alq_device *d, const char **lacking)
{
    const struct alq_amount *amounts = o->fits[d->id].amounts;

    if (!d->is_multi || o->is_admin)
        return true;
    for (size_t i = 0; i < d->capacity_count; i++) {
        if (d->used[i].nano + amounts[i].value.nano <= d->capacity[i].total.value.nano)
            continue;
        *lacking = d->capacity[i].name;
        return false;
    }
    return true;
}

static bool is_in_use(const struct alq_search *s, const struct place *at,
                      const struct alq_option *o, const struct alq_device *d)
{
    const struct alq_choices *mine = &s->choices[at->claim];

    if (!o->is_admin)
        return d->is_taken || d->claims;
    if (!d->is_multi)
        return d->claims & (uint64_t)1 << at->claim;
    for (size_t i = 0; i < mine->count; i++)
        if (mine->items[i].device == d && mine->items[i].option->is_admin)
            return true;
    return false;
}

/* 1.34 checks the capacity of the device at the request's own counter in the slice, whichever
 * device is meant, and crashes when there is none. *is_refused only: our own check of the device
 * stands. */
static int imitate_134(struct alq_search *s, const struct place *at, struct alq_option *o,
                       const struct alq_device *d, bool *is_refused, struct alq_err *err)
{
    struct alq_device *early;
    const char *lacking;
    bool is_ok = true;
    int rc;

    *is_refused = false;
    if (!s->server_minor || s->server_minor > 34)
        return 0;
    if (at->device >= d->slice->device_count)
        return alq_err_set(err, ALQ_ENOTSUP,
                           "request %s: more devices than resource slice %s holds: Kubernetes "
                           "1.34's scheduler crashes here "
                           "(kubernetes#133705)",
                           o->name, d->slice->name);
    early = &d->slice->devices[at->device];
    rc = is_sized(s, o, early, &is_ok, err);
    if (!rc)
        *is_refused = !is_ok || !has_room(o, early, &lacking);
    return rc;
}

static bool constrain(struct alq_claim *claim, const struct alq_request *r,
                      const struct alq_option *o, const struct alq_device *d)
{
    for (size_t i = 0; i < claim->constraint_count; i++) {
        if (alq_constraint_add(&claim->constraints[i], r, o, d))
            continue;
        while (i-- > 0)
            alq_constraint_remove(&claim->constraints[i], r, o);
        return false;
    }
    return true;
}

/* Gives the device to the request if nothing speaks against it. *is_placed tells. */
static int place_device(struct alq_search *s, const struct place *at, struct alq_device *d,
                        bool *is_placed, struct alq_misfits *why, struct alq_err *err)
{
    struct alq_claim *claim = &s->set->claims[at->claim];
    struct alq_request *r = &claim->requests[at->request];
    struct alq_option *o = &r->options[at->option];
    struct alq_choices *mine = &s->choices[at->claim];
    bool is_ok = false;
    int rc;

    *is_placed = false;
    why->seen++;
    if (!d->is_supported) {
        why->unsupported++;
        return 0;
    }
    if (is_in_use(s, at, o, d)) {
        why->in_use++;
        return 0;
    }
    rc = is_selected(claim, o, d, &is_ok, err);
    if (rc)
        return rc;
    if (!is_ok) {
        why->unselected++;
        return 0;
    }
    rc = is_sized(s, o, d, &is_ok, err);
    if (rc)
        return rc;
    if (!is_ok) {
        why->too_small++;
        why->lacking_size = o->fits[d->id].lacking;
        return 0;
    }
    if (!has_room(o, d, &why->lacking_room)) {
        why->no_room++;
        return 0;
    }
    if (!alq_option_tolerates(o, d)) {
        why->tainted++;
        return 0;
    }
    if (!constrain(claim, r, o, d)) {
        why->constrained++;
        return o->is_all ? alq_err_set(err, ALQ_EINVAL,
                                       "claim %s, request %s: cannot add device %s/%s/%s because a "
                                       "claim constraint would not be "
                                       "satisfied",
                                       claim->label, o->name, d->driver, d->pool, d->name)
                         : 0;
    }
    rc = imitate_134(s, at, o, d, &is_ok, err);
    if (rc || is_ok) {
        for (size_t i = 0; i < claim->constraint_count; i++)
            alq_constraint_remove(&claim->constraints[i], r, o);
        why->no_room++;
        return rc;
    }
    if (!d->is_multi)
        d->claims |= (uint64_t)1 << at->claim;
    for (size_t i = 0; d->is_multi && !o->is_admin && i < d->capacity_count; i++)
        d->used[i].nano += o->fits[d->id].amounts[i].value.nano;
    mine->items[mine->count++] =
        (struct alq_choice){r, o, d, d->is_multi ? o->fits[d->id].amounts : NULL};
    *is_placed = true;
    return 0;
}

static void take_back(struct alq_search *s, const struct place *at)
{
    struct alq_claim *claim = &s->set->claims[at->claim];
    struct alq_choices *mine = &s->choices[at->claim];
    struct alq_choice *c = &mine->items[--mine->count];
    struct alq_device *d = c->device;

    for (size_t i = 0; i < claim->constraint_count; i++)
        alq_constraint_remove(&claim->constraints[i], c->request, c->option);
    if (!d->is_multi)
        d->claims &= ~((uint64_t)1 << at->claim);
    for (size_t i = 0; d->is_multi && !c->option->is_admin && i < d->capacity_count; i++)
        d->used[i].nano -= c->amounts[i].value.nano;
}

/* Keeps why nothing was found here, if the search never got further. */
static void keep_misfits(struct alq_search *s, const struct place *at, struct alq_misfits *why)
{
    for (size_t i = 0; i <= at->claim; i++)
        why->depth += s->choices[i].count;
    if (s->misfits.claim && why->depth < s->misfits.depth)
        return;
    why->claim = &s->set->claims[at->claim];
    why->option = &why->claim->requests[at->request].options[at->option];
    s->misfits = *why;
}

static enum outcome place_and_go_on(struct alq_search *s, struct place at, struct alq_device *d,
                                    struct alq_misfits *why, struct alq_err *err)
{
    struct place next = at;
    bool is_placed;
    enum outcome out;

    if (place_device(s, &at, d, &is_placed, why, err))
        return OUT_ERROR;
    if (!is_placed)
        return OUT_NONE;
    next.device++;
    next.first_device = d->id + 1;
    out = place_next(s, next, err);
    if (out != OUT_FOUND)
        take_back(s, &at);
    return out;
}

static enum outcome place_option(struct alq_search *s, struct place at, struct alq_err *err)
{
    struct alq_claim *claim = &s->set->claims[at.claim];
    struct alq_option *o = &claim->requests[at.request].options[at.option];
    struct alq_misfits why = {0};

    if (o->is_all && o->count == 0) {
        for (size_t i = 0; i < s->inventory->device_count; i++)
            why.seen += s->inventory->devices[i]->is_usable;
        why.unselected = why.seen;
        keep_misfits(s, &at, &why);
        return OUT_NONE;
    }
    if (at.device >= o->count)
        return place_next(s, (struct place){.claim = at.claim, .request = at.request + 1}, err);
    if (s->choices[at.claim].count + o->count - at.device > ALQ_RESULTS_MAX)
        return OUT_TOO_MANY;
    if (o->is_all) {
        enum outcome out = place_and_go_on(s, at, o->all_devices[at.device], &why, err);
        if (out == OUT_NONE)
            keep_misfits(s, &at, &why);
        return out;
    }
    for (size_t i = at.first_device; i < s->inventory->device_count; i++) {
        if (!s->inventory->devices[i]->is_usable)
            continue;
        enum outcome out = place_and_go_on(s, at, s->inventory->devices[i], &why, err);
        if (out != OUT_NONE)
            return out;
    }
    keep_misfits(s, &at, &why);
    return OUT_NONE;
}

/* Alternatives in their order; the first with which everything after it works too. */
static enum outcome place_first_available(struct alq_search *s, struct place at,
                                          struct alq_err *err)
{
    struct alq_request *r = &s->set->claims[at.claim].requests[at.request];
    bool are_all_too_many = true;

    at.is_option_chosen = true;
    for (at.option = 0; at.option < r->option_count; at.option++) {
        enum outcome out = place_next(s, at, err);
        if (out == OUT_FOUND)
            r->chosen = at.option;
        if (out == OUT_FOUND || out == OUT_ERROR)
            return out;
        are_all_too_many &= out == OUT_TOO_MANY;
    }
    return are_all_too_many ? OUT_TOO_MANY : OUT_NONE;
}

static enum outcome place_next(struct alq_search *s, struct place at, struct alq_err *err)
{
    struct alq_claim *claim;

    if (++s->steps > ALQ_ALLOC_STEPS_MAX) {
        alq_err_set(err, ALQ_ERANGE,
                    "allocation needs more than %d steps: fewer devices, requests or constraints "
                    "are needed",
                    ALQ_ALLOC_STEPS_MAX);
        return OUT_ERROR;
    }
    if (at.claim >= s->set->claim_count)
        return OUT_FOUND;
    claim = &s->set->claims[at.claim];
    if (at.request >= claim->request_count) {
        enum outcome out = place_next(s, (struct place){.claim = at.claim + 1}, err);
        /* Another choice in an earlier claim does not help, but one with fewer devices in this
         * claim may. */
        return out == OUT_TOO_MANY ? OUT_NONE : out;
    }
    if (claim->requests[at.request].has_suboptions && !at.is_option_chosen)
        return place_first_available(s, at, err);
    return place_option(s, at, err);
}

/* allocationMode All: which devices are meant is known beforehand. */
static int find_all_devices(struct alq_search *s, struct alq_claim *claim, struct alq_option *o,
                            struct alq_err *err)
{
    struct alq_inventory *inv = s->inventory;

    for (size_t i = 0; i < inv->pool_count; i++) {
        const struct alq_pool *p = &inv->pools[i];
        if (p->is_incomplete || p->is_invalid)
            return alq_err_set(err, ALQ_EAGAIN,
                               "claim %s, request %s: asks for all devices, but resource pool "
                               "%s/%s is currently %s",
                               claim->label, o->name, p->driver, p->name,
                               p->is_invalid ? "invalid" : "being updated");
    }
    o->all_devices = alq_arena_alloc(inv->arena, inv->device_count * sizeof(struct alq_device *));
    if (!o->all_devices)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; i < inv->device_count; i++) {
        bool is_ok = false;
        int rc = is_selected(claim, o, inv->devices[i], &is_ok, err);
        if (!rc && is_ok)
            rc = is_sized(s, o, inv->devices[i], &is_ok, err);
        if (rc)
            return rc;
        if (is_ok)
            o->all_devices[o->count++] = inv->devices[i];
    }
    return 0;
}

static int prepare_claim(struct alq_search *s, struct alq_claim *claim, struct alq_err *err)
{
    size_t total = 0;

    for (size_t r = 0; r < claim->request_count; r++) {
        struct alq_request *request = &claim->requests[r];
        size_t least = SIZE_MAX;
        for (size_t i = 0; i < request->option_count; i++) {
            struct alq_option *o = &request->options[i];
            o->fits =
                alq_arena_alloc(s->inventory->arena, s->inventory->device_count * sizeof(*o->fits));
            if (!o->fits)
                return alq_err_set(err, ALQ_ENOMEM, "out of memory");
            int rc = o->is_all ? find_all_devices(s, claim, o, err) : 0;
            if (rc)
                return rc;
            least = o->count < least ? o->count : least;
        }
        if (__builtin_add_overflow(total, least, &total))
            total = SIZE_MAX;
    }
    if (total > ALQ_RESULTS_MAX)
        return alq_err_set(
            err, ALQ_ERANGE,
            "claim %s: number of requested devices %zu exceeds the claim limit of %d", claim->label,
            total, ALQ_RESULTS_MAX);
    return 0;
}

int alq_search_run(struct alq_search *s, bool *found, struct alq_err *err)
{
    for (size_t i = 0; i < s->set->claim_count; i++) {
        int rc = prepare_claim(s, &s->set->claims[i], err);
        if (rc)
            return rc;
    }
    switch (place_next(s, (struct place){0}, err)) {
    case OUT_ERROR:
        return err->code;
    case OUT_FOUND:
        *found = true;
        return 0;
    default:
        *found = false;
        return 0;
    }
}
