/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types of a syntax tree, as far as they are known before evaluation: what CEL's checker would
 * refuse is refused here, so that a claim with a mistake fails when it is created and not when it
 * is scheduled. Literal patterns are compiled.
 */
#include <stdio.h>
#include <string.h>

#include "alloc/cel_ast.h"
#include "alloc/cel_func.h"
#include "alloc/cel_lex.h"
#include "alloc/cel_regex.h"

struct checker {
    struct alq_cel_program *program;
    struct alq_err *err;
};

#define FAIL(c, code, at, ...)                                                                     \
    alq_cel_err_at((c)->err, code, (c)->program->text, (c)->program->len, at, __VA_ARGS__)

static bool text_is(struct alq_cel_text t, const char *s)
{
    return t.len == strlen(s) && !memcmp(t.p, s, t.len);
}

static bool is_map(enum alq_cel_type t)
{
    return t == ALQ_CEL_ATTRIBUTES || t == ALQ_CEL_ATTRIBUTE_MAP || t == ALQ_CEL_CAPACITIES ||
           t == ALQ_CEL_CAPACITY_MAP;
}

static enum alq_cel_type map_element(enum alq_cel_type t)
{
    switch (t) {
    case ALQ_CEL_ATTRIBUTES:
        return ALQ_CEL_ATTRIBUTE_MAP;
    case ALQ_CEL_CAPACITIES:
        return ALQ_CEL_CAPACITY_MAP;
    case ALQ_CEL_CAPACITY_MAP:
        return ALQ_CEL_QUANTITY;
    default:
        return ALQ_CEL_DYN;
    }
}

static bool agree(enum alq_cel_type a, enum alq_cel_type b)
{
    return a == ALQ_CEL_DYN || b == ALQ_CEL_DYN || a == b;
}

static const char *const op_names[] = {
    [ALQ_CEL_NOT] = "!_",  [ALQ_CEL_NEG] = "-_",     [ALQ_CEL_AND] = "_&&_",
    [ALQ_CEL_OR] = "_||_", [ALQ_CEL_COND] = "_?_:_", [ALQ_CEL_EQ] = "_==_",
    [ALQ_CEL_NE] = "_!=_", [ALQ_CEL_LT] = "_<_",     [ALQ_CEL_LE] = "_<=_",
    [ALQ_CEL_GT] = "_>_",  [ALQ_CEL_GE] = "_>=_",    [ALQ_CEL_IN] = "@in",
    [ALQ_CEL_ADD] = "_+_", [ALQ_CEL_SUB] = "_-_",    [ALQ_CEL_MUL] = "_*_",
    [ALQ_CEL_DIV] = "_/_", [ALQ_CEL_MOD] = "_%_",    [ALQ_CEL_INDEX] = "_[_]",
};

static int no_overload(struct checker *c, const struct alq_cel_node *n)
{
    char types[160] = "";
    size_t used = 0;
    char name[48];

    for (size_t i = 0; i < n->count && used < sizeof(types) - 1; i++) {
        int w = snprintf(types + used, sizeof(types) - used, "%s%s", i ? ", " : "",
                         alq_cel_type_name(n->args[i]->type));
        used += w > 0 ? (size_t)w : 0;
    }
    if (n->op == ALQ_CEL_CALL)
        snprintf(name, sizeof(name), "%.*s", (int)(n->name.len > 40 ? 40 : n->name.len), n->name.p);
    else
        snprintf(name, sizeof(name), "%s", op_names[n->op]);
    return FAIL(c, ALQ_EINVAL, n->at, "found no matching overload for '%s' applied to '(%s)'%s",
                name, types,
                n->op >= ALQ_CEL_LT && n->op <= ALQ_CEL_GE &&
                        (n->args[0]->type == ALQ_CEL_QUANTITY || n->args[0]->type == ALQ_CEL_SEMVER)
                    ? ", use isGreaterThan, isLessThan or compareTo"
                    : "");
}

enum alq_cel_field alq_cel_device_field(struct alq_cel_text name)
{
    return text_is(name, "driver")                     ? ALQ_CEL_FIELD_DRIVER
           : text_is(name, "attributes")               ? ALQ_CEL_FIELD_ATTRIBUTES
           : text_is(name, "capacity")                 ? ALQ_CEL_FIELD_CAPACITY
           : text_is(name, "allowMultipleAllocations") ? ALQ_CEL_FIELD_MULTI_ALLOC
                                                       : ALQ_CEL_FIELD_NONE;
}

static int check_select(struct checker *c, struct alq_cel_node *n)
{
    enum alq_cel_type t = n->args[0]->type;

    if (t == ALQ_CEL_DEVICE) {
        static const enum alq_cel_type types[] = {
            [ALQ_CEL_FIELD_DRIVER] = ALQ_CEL_STRING,
            [ALQ_CEL_FIELD_ATTRIBUTES] = ALQ_CEL_ATTRIBUTES,
            [ALQ_CEL_FIELD_CAPACITY] = ALQ_CEL_CAPACITIES,
            [ALQ_CEL_FIELD_MULTI_ALLOC] = ALQ_CEL_BOOL,
        };
        enum alq_cel_field field = alq_cel_device_field(n->name);
        if (field == ALQ_CEL_FIELD_NONE)
            return FAIL(c, ALQ_EINVAL, n->at, "undefined field '%.*s'",
                        (int)(n->name.len > 64 ? 64 : n->name.len), n->name.p);
        n->type = types[field];
    } else if (is_map(t)) {
        n->type = map_element(t);
    } else if (t != ALQ_CEL_DYN) {
        return FAIL(c, ALQ_EINVAL, n->at, "type '%s' does not support field selection",
                    alq_cel_type_name(t));
    }
    if (n->op == ALQ_CEL_HAS)
        n->type = ALQ_CEL_BOOL;
    return 0;
}

static int check_index(struct checker *c, struct alq_cel_node *n)
{
    enum alq_cel_type t = n->args[0]->type, k = n->args[1]->type;

    if ((is_map(t) && !agree(k, ALQ_CEL_STRING)) || (t == ALQ_CEL_LIST && !agree(k, ALQ_CEL_INT)) ||
        (!is_map(t) && t != ALQ_CEL_LIST && t != ALQ_CEL_DYN))
        return no_overload(c, n);
    n->type = is_map(t) ? map_element(t) : t == ALQ_CEL_LIST ? n->args[0]->element : ALQ_CEL_DYN;
    return 0;
}

static int check_call(struct checker *c, struct alq_cel_node *n)
{
    enum alq_cel_type types[ALQ_CEL_FUNC_ARGS_MAX] = {0};
    const struct alq_cel_func *row = NULL;
    bool is_known = false, is_fit = false;

    for (size_t i = 0; i < n->count && i < ALQ_CEL_FUNC_ARGS_MAX; i++)
        types[i] = n->args[i]->type;
    while ((row = alq_cel_func_next(row, n->name, n->is_method))) {
        is_known = true;
        if (!alq_cel_func_fits(row, types, n->count))
            continue;
        n->type = !is_fit || n->type == row->result ? row->result : ALQ_CEL_DYN;
        is_fit = true;
    }
    if (!is_known && alq_cel_func_is_foreign(n->name))
        return FAIL(c, ALQ_ENOTSUP, n->at, "%.*s() is not supported in this subset of CEL",
                    (int)n->name.len, n->name.p);
    if (!is_known)
        return FAIL(c, ALQ_EINVAL, n->at, "undeclared reference to '%.*s'",
                    (int)(n->name.len > 64 ? 64 : n->name.len), n->name.p);
    if (!is_fit)
        return no_overload(c, n);
    if (!text_is(n->name, "matches") || n->args[1]->op != ALQ_CEL_LITERAL)
        return 0;
    struct alq_err why = ALQ_ERR_INIT;
    int rc =
        alq_cel_regex_new(n->args[1]->value.text.p, n->args[1]->value.text.len, &n->regex, &why);
    if (rc)
        return FAIL(c, why.code, n->args[1]->at, "%s", why.text);
    n->next_regex = c->program->regexes;
    c->program->regexes = n;
    return 0;
}

/* The type of a sum or the like; ALQ_CEL_DYN when unknown. */
static int check_arithmetic(struct checker *c, struct alq_cel_node *n)
{
    enum alq_cel_type a = n->args[0]->type, b = n->args[1]->type;
    bool is_int = agree(a, ALQ_CEL_INT) && agree(b, ALQ_CEL_INT);
    bool is_string = n->op == ALQ_CEL_ADD && agree(a, ALQ_CEL_STRING) && agree(b, ALQ_CEL_STRING);

    if (!is_int && !is_string)
        return no_overload(c, n);
    n->type = is_int && is_string ? ALQ_CEL_DYN : is_int ? ALQ_CEL_INT : ALQ_CEL_STRING;
    return 0;
}

static int check_in(struct checker *c, struct alq_cel_node *n)
{
    enum alq_cel_type key = n->args[0]->type, t = n->args[1]->type;
    bool is_ok = t == ALQ_CEL_DYN || (is_map(t) && agree(key, ALQ_CEL_STRING)) ||
                 (t == ALQ_CEL_LIST && agree(key, n->args[1]->element));

    n->type = ALQ_CEL_BOOL;
    return is_ok ? 0 : no_overload(c, n);
}

static int check(struct checker *c, struct alq_cel_node *n)
{
    enum alq_cel_type t;

    for (size_t i = 0; i < n->count; i++) {
        int rc = check(c, n->args[i]);
        if (rc)
            return rc;
    }
    switch (n->op) {
    case ALQ_CEL_LITERAL:
        n->type = n->value.type;
        return 0;
    case ALQ_CEL_VAR_DEVICE:
        n->type = ALQ_CEL_DEVICE;
        return 0;
    case ALQ_CEL_SELECT:
    case ALQ_CEL_HAS:
        return check_select(c, n);
    case ALQ_CEL_INDEX:
        return check_index(c, n);
    case ALQ_CEL_CALL:
        return check_call(c, n);
    case ALQ_CEL_MAKE_LIST:
        n->type = ALQ_CEL_LIST;
        n->element = n->count ? n->args[0]->type : ALQ_CEL_DYN;
        for (size_t i = 1; i < n->count; i++)
            if (n->args[i]->type != n->element)
                n->element = ALQ_CEL_DYN;
        return 0;
    case ALQ_CEL_NOT:
        n->type = ALQ_CEL_BOOL;
        return agree(n->args[0]->type, ALQ_CEL_BOOL) ? 0 : no_overload(c, n);
    case ALQ_CEL_NEG:
        n->type = ALQ_CEL_INT;
        return agree(n->args[0]->type, ALQ_CEL_INT) ? 0 : no_overload(c, n);
    case ALQ_CEL_AND:
    case ALQ_CEL_OR:
        n->type = ALQ_CEL_BOOL;
        for (size_t i = 0; i < n->count; i++)
            if (!agree(n->args[i]->type, ALQ_CEL_BOOL))
                return no_overload(c, n);
        return 0;
    case ALQ_CEL_COND:
        if (!agree(n->args[0]->type, ALQ_CEL_BOOL) || !agree(n->args[1]->type, n->args[2]->type))
            return no_overload(c, n);
        n->type = n->args[1]->type == n->args[2]->type ? n->args[1]->type : ALQ_CEL_DYN;
        n->element = n->args[1]->element == n->args[2]->element ? n->args[1]->element : ALQ_CEL_DYN;
        return 0;
    case ALQ_CEL_EQ:
    case ALQ_CEL_NE:
        n->type = ALQ_CEL_BOOL;
        return agree(n->args[0]->type, n->args[1]->type) &&
                       agree(n->args[0]->element, n->args[1]->element)
                   ? 0
                   : no_overload(c, n);
    case ALQ_CEL_LT:
    case ALQ_CEL_LE:
    case ALQ_CEL_GT:
    case ALQ_CEL_GE:
        n->type = ALQ_CEL_BOOL;
        t = n->args[0]->type != ALQ_CEL_DYN ? n->args[0]->type : n->args[1]->type;
        return agree(n->args[0]->type, n->args[1]->type) &&
                       (t == ALQ_CEL_DYN || t == ALQ_CEL_INT || t == ALQ_CEL_STRING ||
                        t == ALQ_CEL_BOOL)
                   ? 0
                   : no_overload(c, n);
    case ALQ_CEL_IN:
        return check_in(c, n);
    case ALQ_CEL_ADD:
    case ALQ_CEL_SUB:
    case ALQ_CEL_MUL:
    case ALQ_CEL_DIV:
    case ALQ_CEL_MOD:
        return check_arithmetic(c, n);
    }
    return 0;
}

int alq_cel_check(struct alq_cel_program *program, struct alq_err *err)
{
    struct checker c = {program, err};
    int rc = check(&c, program->root);

    if (!rc && !agree(program->root->type, ALQ_CEL_BOOL))
        rc = alq_err_set(err, ALQ_EINVAL, "must evaluate to bool or the unknown type, not %s",
                         alq_cel_type_name(program->root->type));
    return rc;
}
