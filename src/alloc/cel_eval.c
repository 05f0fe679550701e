/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluates a checked tree for one device. Bounded in cost, memory and depth (the tree's).
 * Allocates only from its own arena, which lives for one call; any thread.
 */
#include <string.h>

#include "alloc/cel_ast.h"
#include "alloc/cel_func.h"
#include "alloc/cel_lex.h"
#include "alloc/cel_regex.h"

#define EVAL_MAX_BYTES (256 * 1024)

struct eval {
    const struct alq_cel_program *program;
    const struct alq_cel_device *device;
    struct alq_arena arena;
    size_t cost;
    bool is_spent; /* a limit was hit: no operator may absorb that error */
    struct alq_err *err;
};

#define FAIL(e, code, n, ...)                                                                      \
    alq_cel_err_at((e)->err, code, (e)->program->text, (e)->program->len, (n)->at, __VA_ARGS__)

static int eval(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out);

static int no_overload(struct eval *e, const struct alq_cel_node *n)
{
    return FAIL(e, ALQ_EINVAL, n, "no such overload");
}

static int spend(struct eval *e, const struct alq_cel_node *n, size_t cost)
{
    e->cost += cost;
    if (e->cost <= ALQ_CEL_COST_MAX)
        return 0;
    e->is_spent = true;
    return FAIL(e, ALQ_ERANGE, n, "operation cancelled: cost limit of %d exceeded",
                ALQ_CEL_COST_MAX);
}

static int out_of_memory(struct eval *e, const struct alq_cel_node *n)
{
    e->is_spent = true;
    return FAIL(e, ALQ_ERANGE, n, "evaluation needs more than %d bytes", EVAL_MAX_BYTES);
}

static const struct alq_cel_entries *entries_of(const struct eval *e, enum alq_cel_type t)
{
    return t == ALQ_CEL_ATTRIBUTES || t == ALQ_CEL_ATTRIBUTE_MAP ? &e->device->attributes
                                                                 : &e->device->capacity;
}

/* Whether the entry is the first of its domain. */
static bool is_first_of_domain(const struct alq_cel_entries *es, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (alq_cel_text_eq(es->items[k].domain, es->items[i].domain))
            return false;
    return true;
}

static size_t map_size(const struct eval *e, const struct alq_cel_value *map)
{
    const struct alq_cel_entries *es = entries_of(e, map->type);
    bool is_outer = map->type == ALQ_CEL_ATTRIBUTES || map->type == ALQ_CEL_CAPACITIES;
    size_t n = 0;

    for (size_t i = 0; i < es->count; i++)
        n += is_outer ? is_first_of_domain(es, i)
                      : alq_cel_text_eq(es->items[i].domain, map->domain);
    return n;
}

static const struct alq_cel_entry *map_find(const struct eval *e, const struct alq_cel_value *map,
                                            struct alq_cel_text key)
{
    const struct alq_cel_entries *es = entries_of(e, map->type);
    bool is_outer = map->type == ALQ_CEL_ATTRIBUTES || map->type == ALQ_CEL_CAPACITIES;

    for (size_t i = 0; i < es->count; i++) {
        const struct alq_cel_entry *x = &es->items[i];
        if (is_outer ? alq_cel_text_eq(x->domain, key)
                     : alq_cel_text_eq(x->domain, map->domain) && alq_cel_text_eq(x->name, key))
            return x;
    }
    return NULL;
}

/* map[key]. An unknown domain gives an empty map. */
static int map_get(struct eval *e, const struct alq_cel_node *n, const struct alq_cel_value *map,
                   struct alq_cel_text key, struct alq_cel_value *out)
{
    if (map->type == ALQ_CEL_ATTRIBUTES || map->type == ALQ_CEL_CAPACITIES) {
        *out = (struct alq_cel_value){
            .type = map->type == ALQ_CEL_ATTRIBUTES ? ALQ_CEL_ATTRIBUTE_MAP : ALQ_CEL_CAPACITY_MAP,
            .domain = key};
        return 0;
    }
    const struct alq_cel_entry *x = map_find(e, map, key);
    if (!x)
        return FAIL(e, ALQ_EINVAL, n, "no such key: %.*s", (int)(key.len > 64 ? 64 : key.len),
                    key.p);
    *out = x->value;
    return 0;
}

static bool is_map(enum alq_cel_type t)
{
    return t == ALQ_CEL_ATTRIBUTES || t == ALQ_CEL_ATTRIBUTE_MAP || t == ALQ_CEL_CAPACITIES ||
           t == ALQ_CEL_CAPACITY_MAP;
}

/* Equality. Values of different types are unequal, but a quantity or a version on the left asks for
 * its like. */
static int equal(struct eval *e, const struct alq_cel_node *n, const struct alq_cel_value *a,
                 const struct alq_cel_value *b, bool *is_eq)
{
    int rc = spend(e, n, 1 + (a->type == ALQ_CEL_STRING ? a->text.len / 10 : 0));

    if (rc)
        return rc;
    if (a->type != b->type) {
        if ((a->type == ALQ_CEL_QUANTITY || a->type == ALQ_CEL_SEMVER) && b->type != ALQ_CEL_NULL)
            return no_overload(e, n);
        *is_eq = false;
        return 0;
    }
    switch (a->type) {
    case ALQ_CEL_BOOL:
        *is_eq = a->boolean == b->boolean;
        return 0;
    case ALQ_CEL_INT:
        *is_eq = a->integer == b->integer;
        return 0;
    case ALQ_CEL_STRING:
        *is_eq = alq_cel_text_eq(a->text, b->text);
        return 0;
    case ALQ_CEL_QUANTITY:
        *is_eq = alq_quantity_cmp(a->quantity, b->quantity) == 0;
        return 0;
    case ALQ_CEL_SEMVER:
        *is_eq = alq_semver_cmp(&a->semver, &b->semver) == 0;
        return 0;
    case ALQ_CEL_LIST:
        *is_eq = a->list.count == b->list.count;
        for (size_t i = 0; *is_eq && i < a->list.count; i++) {
            rc = equal(e, n, &a->list.items[i], &b->list.items[i], is_eq);
            if (rc)
                return rc;
        }
        return 0;
    case ALQ_CEL_NULL:
        *is_eq = true;
        return 0;
    default:
        return FAIL(e, ALQ_ENOTSUP, n,
                    "comparing whole maps is not supported in this subset of CEL");
    }
}

static int eval_order(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out)
{
    struct alq_cel_value a, b;
    int rc = eval(e, n->args[0], &a), c;

    if (!rc)
        rc = eval(e, n->args[1], &b);
    if (rc)
        return rc;
    if (a.type != b.type)
        return no_overload(e, n);
    switch (a.type) {
    case ALQ_CEL_INT:
        c = (a.integer > b.integer) - (a.integer < b.integer);
        break;
    case ALQ_CEL_BOOL:
        c = a.boolean - b.boolean;
        break;
    case ALQ_CEL_STRING:
        rc = spend(e, n, a.text.len / 10);
        if (rc)
            return rc;
        c = memcmp(a.text.p, b.text.p, a.text.len < b.text.len ? a.text.len : b.text.len);
        if (!c)
            c = (a.text.len > b.text.len) - (a.text.len < b.text.len);
        break;
    default:
        return no_overload(e, n);
    }
    *out = alq_cel_bool(n->op == ALQ_CEL_LT   ? c < 0
                        : n->op == ALQ_CEL_LE ? c <= 0
                        : n->op == ALQ_CEL_GT ? c > 0
                                              : c >= 0);
    return 0;
}

static int eval_arithmetic(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out)
{
    struct alq_cel_value a, b;
    int64_t r = 0;
    bool is_overflow = false;
    int rc = eval(e, n->args[0], &a);

    if (!rc)
        rc = eval(e, n->args[1], &b);
    if (rc)
        return rc;
    if (n->op == ALQ_CEL_ADD && a.type == ALQ_CEL_STRING && b.type == ALQ_CEL_STRING) {
        size_t len = a.text.len + b.text.len;
        rc = spend(e, n, len / 10);
        if (rc)
            return rc;
        char *p = alq_arena_alloc(&e->arena, len + 1);
        if (!p)
            return out_of_memory(e, n);
        memcpy(p, a.text.p, a.text.len);
        memcpy(p + a.text.len, b.text.p, b.text.len);
        *out = alq_cel_string(p, len);
        return 0;
    }
    if (a.type != ALQ_CEL_INT || b.type != ALQ_CEL_INT)
        return no_overload(e, n);
    switch (n->op) {
    case ALQ_CEL_ADD:
        is_overflow = __builtin_add_overflow(a.integer, b.integer, &r);
        break;
    case ALQ_CEL_SUB:
        is_overflow = __builtin_sub_overflow(a.integer, b.integer, &r);
        break;
    case ALQ_CEL_MUL:
        is_overflow = __builtin_mul_overflow(a.integer, b.integer, &r);
        break;
    default:
        if (b.integer == 0)
            return FAIL(e, ALQ_EINVAL, n, "%s by zero",
                        n->op == ALQ_CEL_DIV ? "division" : "modulus");
        is_overflow = a.integer == INT64_MIN && b.integer == -1;
        if (!is_overflow)
            r = n->op == ALQ_CEL_DIV ? a.integer / b.integer : a.integer % b.integer;
    }
    if (is_overflow)
        return FAIL(e, ALQ_EINVAL, n, "integer overflow");
    *out = alq_cel_int(r);
    return 0;
}

/* && and ||: a deciding side wins over the other side's error; without one, the first error is the
 * result. */
static int eval_logic(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out)
{
    bool deciding = n->op == ALQ_CEL_OR;
    struct alq_err *const outer = e->err;
    struct alq_err first = ALQ_ERR_INIT;
    int first_rc = 0;

    for (size_t i = 0; i < n->count; i++) {
        struct alq_err own = ALQ_ERR_INIT;
        struct alq_cel_value v = {0};
        e->err = &own;
        int rc = eval(e, n->args[i], &v);
        if (!rc && v.type != ALQ_CEL_BOOL)
            rc = no_overload(e, n);
        e->err = outer;
        if (!rc && v.boolean == deciding) {
            *out = alq_cel_bool(deciding);
            return 0;
        }
        if (rc && !first_rc) {
            first_rc = rc;
            first = own;
        }
        if (e->is_spent)
            break;
    }
    if (!first_rc) {
        *out = alq_cel_bool(!deciding);
        return 0;
    }
    return alq_err_set(outer, first_rc, "%s", first.text);
}

static int eval_in(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out)
{
    struct alq_cel_value key, where;
    bool is_eq = false;
    int rc = eval(e, n->args[0], &key);

    if (!rc)
        rc = eval(e, n->args[1], &where);
    if (rc)
        return rc;
    if (is_map(where.type)) {
        *out = alq_cel_bool(key.type == ALQ_CEL_STRING && map_find(e, &where, key.text));
        return 0;
    }
    if (where.type != ALQ_CEL_LIST)
        return no_overload(e, n);
    for (size_t i = 0; !is_eq && i < where.list.count; i++) {
        rc = equal(e, n, &where.list.items[i], &key, &is_eq);
        if (rc)
            return rc;
    }
    *out = alq_cel_bool(is_eq);
    return 0;
}

static int eval_select(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out)
{
    struct alq_cel_value v;
    int rc = eval(e, n->args[0], &v);

    if (rc)
        return rc;
    if (v.type == ALQ_CEL_DEVICE) {
        enum alq_cel_field field = alq_cel_device_field(n->name);
        if (n->op == ALQ_CEL_HAS) {
            *out = alq_cel_bool(field != ALQ_CEL_FIELD_NONE);
            return 0;
        }
        switch (field) {
        case ALQ_CEL_FIELD_DRIVER:
            *out = alq_cel_string(e->device->driver, strlen(e->device->driver));
            return 0;
        case ALQ_CEL_FIELD_ATTRIBUTES:
            *out = (struct alq_cel_value){.type = ALQ_CEL_ATTRIBUTES};
            return 0;
        case ALQ_CEL_FIELD_CAPACITY:
            *out = (struct alq_cel_value){.type = ALQ_CEL_CAPACITIES};
            return 0;
        case ALQ_CEL_FIELD_MULTI_ALLOC:
            *out = alq_cel_bool(e->device->is_multi_alloc);
            return 0;
        case ALQ_CEL_FIELD_NONE:
            return no_overload(e, n);
        }
    }
    if (!is_map(v.type))
        return no_overload(e, n);
    if (n->op == ALQ_CEL_HAS) {
        bool is_outer = v.type == ALQ_CEL_ATTRIBUTES || v.type == ALQ_CEL_CAPACITIES;
        *out = alq_cel_bool(is_outer || map_find(e, &v, n->name));
        return 0;
    }
    return map_get(e, n, &v, n->name, out);
}

static int eval_index(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out)
{
    struct alq_cel_value v, key;
    int rc = eval(e, n->args[0], &v);

    if (!rc)
        rc = eval(e, n->args[1], &key);
    if (rc)
        return rc;
    if (is_map(v.type)) {
        if (key.type != ALQ_CEL_STRING)
            return no_overload(e, n);
        return map_get(e, n, &v, key.text, out);
    }
    if (v.type != ALQ_CEL_LIST || key.type != ALQ_CEL_INT)
        return no_overload(e, n);
    if (key.integer < 0 || (uint64_t)key.integer >= v.list.count)
        return FAIL(e, ALQ_EINVAL, n, "index out of bounds: %lld", (long long)key.integer);
    *out = v.list.items[key.integer];
    return 0;
}

static int eval_matches(struct eval *e, const struct alq_cel_node *n,
                        const struct alq_cel_value *args, struct alq_cel_value *out)
{
    struct alq_err why = ALQ_ERR_INIT;
    struct alq_cel_regex *own = NULL;
    bool found = false;
    int rc = spend(e, n, (args[0].text.len / 10 + 1) * (args[1].text.len / 4 + 1));

    if (rc)
        return rc;
    if (!n->regex)
        rc = alq_cel_regex_new(args[1].text.p, args[1].text.len, &own, &why);
    if (!rc)
        rc = alq_cel_regex_search(n->regex ? n->regex : own, args[0].text.p, args[0].text.len,
                                  &found, &why);
    alq_cel_regex_free(own);
    if (rc) {
        e->is_spent = rc == ALQ_ERANGE || rc == ALQ_ENOMEM;
        return FAIL(e, rc, n, "%s", why.text);
    }
    *out = alq_cel_bool(found);
    return 0;
}

static int eval_call(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out)
{
    struct alq_cel_value args[ALQ_CEL_FUNC_ARGS_MAX] = {0};
    enum alq_cel_type types[ALQ_CEL_FUNC_ARGS_MAX] = {0};
    const struct alq_cel_func *row = NULL;
    struct alq_err why = ALQ_ERR_INIT;
    size_t bytes = 0;
    int rc;

    for (size_t i = 0; i < n->count; i++) {
        rc = eval(e, n->args[i], &args[i]);
        if (rc)
            return rc;
        types[i] = args[i].type;
        bytes += args[i].type == ALQ_CEL_STRING ? args[i].text.len : 0;
    }
    while ((row = alq_cel_func_next(row, n->name, n->is_method)))
        if (alq_cel_func_fits(row, types, n->count))
            break;
    if (!row)
        return no_overload(e, n);
    if (!row->impl && types[0] == ALQ_CEL_STRING)
        return eval_matches(e, n, args, out);
    if (!row->impl) {
        *out = alq_cel_int((int64_t)map_size(e, &args[0]));
        return 0;
    }
    rc = spend(e, n, bytes / 10);
    if (rc)
        return rc;
    rc = row->impl(args, n->count, &e->arena, out, &why);
    if (rc == ALQ_ENOMEM)
        return out_of_memory(e, n);
    return rc ? FAIL(e, ALQ_EINVAL, n, "%s", why.text) : 0;
}

static int eval_list(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out)
{
    struct alq_cel_value *items = alq_arena_alloc(&e->arena, n->count * sizeof(*items));

    if (!items)
        return out_of_memory(e, n);
    for (size_t i = 0; i < n->count; i++) {
        int rc = eval(e, n->args[i], &items[i]);
        if (rc)
            return rc;
    }
    *out = (struct alq_cel_value){.type = ALQ_CEL_LIST, .list = {n->count, items}};
    return 0;
}

static int eval(struct eval *e, const struct alq_cel_node *n, struct alq_cel_value *out)
{
    struct alq_cel_value v;
    bool is_eq = false;
    int rc = spend(e, n, 1);

    if (rc)
        return rc;
    switch (n->op) {
    case ALQ_CEL_LITERAL:
        *out = n->value;
        return 0;
    case ALQ_CEL_VAR_DEVICE:
        *out = (struct alq_cel_value){.type = ALQ_CEL_DEVICE};
        return 0;
    case ALQ_CEL_SELECT:
    case ALQ_CEL_HAS:
        return eval_select(e, n, out);
    case ALQ_CEL_INDEX:
        return eval_index(e, n, out);
    case ALQ_CEL_CALL:
        return eval_call(e, n, out);
    case ALQ_CEL_MAKE_LIST:
        return eval_list(e, n, out);
    case ALQ_CEL_NOT:
        rc = eval(e, n->args[0], &v);
        if (!rc && v.type != ALQ_CEL_BOOL)
            rc = no_overload(e, n);
        if (!rc)
            *out = alq_cel_bool(!v.boolean);
        return rc;
    case ALQ_CEL_NEG:
        rc = eval(e, n->args[0], &v);
        if (!rc && v.type != ALQ_CEL_INT)
            rc = no_overload(e, n);
        if (!rc && v.integer == INT64_MIN)
            rc = FAIL(e, ALQ_EINVAL, n, "integer overflow");
        if (!rc)
            *out = alq_cel_int(-v.integer);
        return rc;
    case ALQ_CEL_AND:
    case ALQ_CEL_OR:
        return eval_logic(e, n, out);
    case ALQ_CEL_COND:
        rc = eval(e, n->args[0], &v);
        if (!rc && v.type != ALQ_CEL_BOOL)
            rc = no_overload(e, n);
        return rc ? rc : eval(e, n->args[v.boolean ? 1 : 2], out);
    case ALQ_CEL_EQ:
    case ALQ_CEL_NE: {
        struct alq_cel_value b;
        rc = eval(e, n->args[0], &v);
        if (!rc)
            rc = eval(e, n->args[1], &b);
        if (!rc)
            rc = equal(e, n, &v, &b, &is_eq);
        if (!rc)
            *out = alq_cel_bool(is_eq == (n->op == ALQ_CEL_EQ));
        return rc;
    }
    case ALQ_CEL_LT:
    case ALQ_CEL_LE:
    case ALQ_CEL_GT:
    case ALQ_CEL_GE:
        return eval_order(e, n, out);
    case ALQ_CEL_IN:
        return eval_in(e, n, out);
    case ALQ_CEL_ADD:
    case ALQ_CEL_SUB:
    case ALQ_CEL_MUL:
    case ALQ_CEL_DIV:
    case ALQ_CEL_MOD:
        return eval_arithmetic(e, n, out);
    }
    return no_overload(e, n);
}

int alq_cel_matches(const struct alq_cel_program *program, const struct alq_cel_device *device,
                    bool *matches, struct alq_err *err)
{
    struct eval e = {
        .program = program, .device = device, .arena = alq_arena_init(EVAL_MAX_BYTES), .err = err};
    struct alq_cel_value v;
    int rc = eval(&e, program->root, &v);

    if (!rc && v.type != ALQ_CEL_BOOL)
        rc = alq_err_set(err, ALQ_EINVAL, "CEL result of type %s could not be converted to bool",
                         alq_cel_type_name(v.type));
    if (!rc)
        *matches = v.boolean;
    alq_arena_fini(&e.arena);
    return rc;
}
