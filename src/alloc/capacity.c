/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of requestPolicy. Owns nothing; calls base/quantity and jansson; any thread.
 */
#include "alloc/capacity.h"

#define NANO ((__int128)1000000000)

int alq_amount_read(json_t *text, const char *what, struct alq_amount *out, struct alq_err *err)
{
    struct alq_err why = ALQ_ERR_INIT;

    if (!json_is_string(text))
        return alq_err_set(err, ALQ_EPROTO, "%s: a quantity is missing", what);
    if (alq_quantity_parse(json_string_value(text), json_string_length(text), &out->value, &why))
        return alq_err_set(err, ALQ_EPROTO, "%s: %s", what, why.text);
    out->text = json_string_value(text);
    return 0;
}

static int optional_amount(json_t *text, const char *what, struct alq_amount *out,
                           struct alq_err *err)
{
    return text && !json_is_null(text) ? alq_amount_read(text, what, out, err) : 0;
}

int alq_capacity_read(const char *name, json_t *entry, struct alq_arena *arena,
                      struct alq_capacity *out, struct alq_err *err)
{
    json_t *policy = json_object_get(entry, "requestPolicy"),
           *range = json_object_get(policy, "validRange"),
           *values = json_object_get(policy, "validValues"), *v;
    size_t i;
    int rc;

    *out = (struct alq_capacity){.name = name};
    rc = alq_amount_read(json_object_get(entry, "value"), "value", &out->total, err);
    if (!rc)
        rc = optional_amount(json_object_get(policy, "default"), "requestPolicy.default",
                             &out->fallback, err);
    if (!rc)
        rc = optional_amount(json_object_get(range, "min"), "requestPolicy.validRange.min",
                             &out->min, err);
    if (!rc)
        rc = optional_amount(json_object_get(range, "max"), "requestPolicy.validRange.max",
                             &out->max, err);
    if (!rc)
        rc = optional_amount(json_object_get(range, "step"), "requestPolicy.validRange.step",
                             &out->step, err);
    if (!rc && json_array_size(values)) {
        out->values = alq_arena_alloc(arena, json_array_size(values) * sizeof(*out->values));
        if (!out->values)
            rc = alq_err_set(err, ALQ_ENOMEM, "out of memory");
        json_array_foreach (values, i, v) {
            if (rc)
                break;
            rc = alq_amount_read(v, "requestPolicy.validValues", &out->values[out->value_count++],
                                 err);
        }
    }
    return rc ? alq_err_wrap(err, "capacity %s", name) : 0;
}

/* Whole units, fractions rounded up: steps are counted in units, as Kubernetes does. */
static __int128 units(struct alq_quantity q)
{
    return q.nano / NANO + (q.nano % NANO > 0);
}

static bool is_on_step(const struct alq_capacity *c, struct alq_quantity q)
{
    __int128 step = units(c->step.value);

    return step != 0 && (units(q) - units(c->min.value)) % step == 0;
}

static int round_up_to_step(const struct alq_capacity *c, const struct alq_amount *requested,
                            struct alq_arena *arena, struct alq_amount *out, struct alq_err *err)
{
    __int128 step = units(c->step.value), min = units(c->min.value), n;
    char text[ALQ_QUANTITY_TEXT_BYTES];

    if (step == 0) { /* no server stores this; is_on_step refuses it */
        *out = *requested;
        return 0;
    }
    n = (units(requested->value) - min) / step + ((units(requested->value) - min) % step != 0);
    out->value.nano = (min + step * n) * NANO;
    alq_quantity_format(out->value, 1, text);
    out->text = alq_arena_strndup(arena, text, __builtin_strlen(text));
    return out->text ? 0 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

/* What the policy makes of the request. */
static int apply_policy(const struct alq_capacity *c, const struct alq_amount *requested,
                        struct alq_arena *arena, struct alq_amount *out, struct alq_err *err)
{
    *out = *requested;
    if (c->min.text) {
        if (alq_quantity_cmp(requested->value, c->min.value) < 0)
            *out = c->min;
        else if (c->step.text)
            return round_up_to_step(c, requested, arena, out, err);
        return 0;
    }
    for (size_t i = 0; i < c->value_count; i++) {
        if (alq_quantity_cmp(requested->value, c->values[i].value) <= 0) {
            *out = c->values[i];
            break;
        }
    }
    return 0;
}

static bool is_allowed(const struct alq_capacity *c, struct alq_quantity q)
{
    if (c->fallback.text && alq_quantity_cmp(q, c->fallback.value) == 0)
        return true;
    if (c->min.text || c->max.text || c->step.text)
        return !(c->max.text && alq_quantity_cmp(q, c->max.value) > 0) &&
               (!c->step.text || is_on_step(c, q));
    for (size_t i = 0; i < c->value_count; i++)
        if (alq_quantity_cmp(q, c->values[i].value) == 0)
            return true;
    return c->value_count == 0;
}

int alq_capacity_amount(const struct alq_capacity *c, const struct alq_amount *requested,
                        struct alq_arena *arena, struct alq_amount *out, bool *is_valid,
                        struct alq_err *err)
{
    int rc = 0;

    if (requested)
        rc = apply_policy(c, requested, arena, out, err);
    else
        *out = c->fallback.text ? c->fallback : c->total;
    if (!rc)
        *is_valid = is_allowed(c, out->value);
    return rc;
}
