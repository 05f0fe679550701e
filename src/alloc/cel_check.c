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
    cel_err_at((c)->err, code, (c)->program->text, (c)->program->len, at, __VA_ARGS__)

static bool text_is(struct cel_text t, const char *s)
{
    return t.len == strlen(s) && !memcmp(t.p, s, t.len);
}

static bool is_map(enum cel_type t)
{
    return t == CEL_ATTRIBUTES || t == CEL_ATTRIBUTE_MAP || t == CEL_CAPACITIES ||
           t == CEL_CAPACITY_MAP;
}

static enum cel_type map_element(enum cel_type t)
{
    switch (t) {
    case CEL_ATTRIBUTES:
        return CEL_ATTRIBUTE_MAP;
    case CEL_CAPACITIES:
        return CEL_CAPACITY_MAP;
    case CEL_CAPACITY_MAP:
        return CEL_QUANTITY;
    default:
        return CEL_DYN;
    }
}

static bool agree(enum cel_type a, enum cel_type b)
{
    return a == CEL_DYN || b == CEL_DYN || a == b;
}

static const char *const op_names[] = {
    [CEL_NOT] = "!_",     [CEL_NEG] = "-_",     [CEL_AND] = "_&&_", [CEL_OR] = "_||_",
    [CEL_COND] = "_?_:_", [CEL_EQ] = "_==_",    [CEL_NE] = "_!=_",  [CEL_LT] = "_<_",
    [CEL_LE] = "_<=_",    [CEL_GT] = "_>_",     [CEL_GE] = "_>=_",  [CEL_IN] = "@in",
    [CEL_ADD] = "_+_",    [CEL_SUB] = "_-_",    [CEL_MUL] = "_*_",  [CEL_DIV] = "_/_",
    [CEL_MOD] = "_%_",    [CEL_INDEX] = "_[_]",
};

static int no_overload(struct checker *c, const struct cel_node *n)
{
    char types[160] = "";
    size_t used = 0;
    char name[48];

    for (size_t i = 0; i < n->count && used < sizeof(types) - 1; i++) {
        int w = snprintf(types + used, sizeof(types) - used, "%s%s", i ? ", " : "",
                         cel_type_name(n->args[i]->type));
        used += w > 0 ? (size_t)w : 0;
    }
    if (n->op == CEL_CALL)
        snprintf(name, sizeof(name), "%.*s", (int)(n->name.len > 40 ? 40 : n->name.len), n->name.p);
    else
        snprintf(name, sizeof(name), "%s", op_names[n->op]);
    return FAIL(c, ALQ_EINVAL, n->at, "found no matching overload for '%s' applied to '(%s)'%s",
                name, types,
                n->op >= CEL_LT && n->op <= CEL_GE &&
                        (n->args[0]->type == CEL_QUANTITY || n->args[0]->type == CEL_SEMVER)
                    ? ", use isGreaterThan, isLessThan or compareTo"
                    : "");
}

enum cel_field cel_device_field(struct cel_text name)
{
    return text_is(name, "driver")                     ? CEL_FIELD_DRIVER
           : text_is(name, "attributes")               ? CEL_FIELD_ATTRIBUTES
           : text_is(name, "capacity")                 ? CEL_FIELD_CAPACITY
           : text_is(name, "allowMultipleAllocations") ? CEL_FIELD_MULTI_ALLOC
                                                       : CEL_FIELD_NONE;
}

static int check_select(struct checker *c, struct cel_node *n)
{
    enum cel_type t = n->args[0]->type;

    if (t == CEL_DEVICE) {
        static const enum cel_type types[] = {
            [CEL_FIELD_DRIVER] = CEL_STRING,
            [CEL_FIELD_ATTRIBUTES] = CEL_ATTRIBUTES,
            [CEL_FIELD_CAPACITY] = CEL_CAPACITIES,
            [CEL_FIELD_MULTI_ALLOC] = CEL_BOOL,
        };
        enum cel_field field = cel_device_field(n->name);
        if (field == CEL_FIELD_NONE)
            return FAIL(c, ALQ_EINVAL, n->at, "undefined field '%.*s'",
                        (int)(n->name.len > 64 ? 64 : n->name.len), n->name.p);
        n->type = types[field];
    } else if (is_map(t)) {
        n->type = map_element(t);
    } else if (t != CEL_DYN) {
        return FAIL(c, ALQ_EINVAL, n->at, "type '%s' does not support field selection",
                    cel_type_name(t));
    }
    if (n->op == CEL_HAS)
        n->type = CEL_BOOL;
    return 0;
}

static int check_index(struct checker *c, struct cel_node *n)
{
    enum cel_type t = n->args[0]->type, k = n->args[1]->type;

    if ((is_map(t) && !agree(k, CEL_STRING)) || (t == CEL_LIST && !agree(k, CEL_INT)) ||
        (!is_map(t) && t != CEL_LIST && t != CEL_DYN))
        return no_overload(c, n);
    n->type = is_map(t) ? map_element(t) : t == CEL_LIST ? n->args[0]->element : CEL_DYN;
    return 0;
}

static int check_call(struct checker *c, struct cel_node *n)
{
    enum cel_type types[CEL_FUNC_ARGS_MAX] = {0};
    const struct cel_func *row = NULL;
    bool is_known = false, is_fit = false;

    for (size_t i = 0; i < n->count && i < CEL_FUNC_ARGS_MAX; i++)
        types[i] = n->args[i]->type;
    while ((row = cel_func_next(row, n->name, n->is_method))) {
        is_known = true;
        if (!cel_func_fits(row, types, n->count))
            continue;
        n->type = !is_fit || n->type == row->result ? row->result : CEL_DYN;
        is_fit = true;
    }
    if (!is_known && cel_func_is_foreign(n->name))
        return FAIL(c, ALQ_ENOTSUP, n->at, "%.*s() is not supported in this subset of CEL",
                    (int)n->name.len, n->name.p);
    if (!is_known)
        return FAIL(c, ALQ_EINVAL, n->at, "undeclared reference to '%.*s'",
                    (int)(n->name.len > 64 ? 64 : n->name.len), n->name.p);
    if (!is_fit)
        return no_overload(c, n);
    if (!text_is(n->name, "matches") || n->args[1]->op != CEL_LITERAL)
        return 0;
    struct alq_err why = ALQ_ERR_INIT;
    int rc = cel_regex_new(n->args[1]->value.text.p, n->args[1]->value.text.len, &n->regex, &why);
    if (rc)
        return FAIL(c, why.code, n->args[1]->at, "%s", why.text);
    n->next_regex = c->program->regexes;
    c->program->regexes = n;
    return 0;
}

/* The type of a sum or the like; CEL_DYN when unknown. */
static int check_arithmetic(struct checker *c, struct cel_node *n)
{
    enum cel_type a = n->args[0]->type, b = n->args[1]->type;
    bool is_int = agree(a, CEL_INT) && agree(b, CEL_INT);
    bool is_string = n->op == CEL_ADD && agree(a, CEL_STRING) && agree(b, CEL_STRING);

    if (!is_int && !is_string)
        return no_overload(c, n);
    n->type = is_int && is_string ? CEL_DYN : is_int ? CEL_INT : CEL_STRING;
    return 0;
}

static int check_in(struct checker *c, struct cel_node *n)
{
    enum cel_type key = n->args[0]->type, t = n->args[1]->type;
    bool is_ok = t == CEL_DYN || (is_map(t) && agree(key, CEL_STRING)) ||
                 (t == CEL_LIST && agree(key, n->args[1]->element));

    n->type = CEL_BOOL;
    return is_ok ? 0 : no_overload(c, n);
}

static int check(struct checker *c, struct cel_node *n)
{
    enum cel_type t;

    for (size_t i = 0; i < n->count; i++) {
        int rc = check(c, n->args[i]);
        if (rc)
            return rc;
    }
    switch (n->op) {
    case CEL_LITERAL:
        n->type = n->value.type;
        return 0;
    case CEL_VAR_DEVICE:
        n->type = CEL_DEVICE;
        return 0;
    case CEL_SELECT:
    case CEL_HAS:
        return check_select(c, n);
    case CEL_INDEX:
        return check_index(c, n);
    case CEL_CALL:
        return check_call(c, n);
    case CEL_MAKE_LIST:
        n->type = CEL_LIST;
        n->element = n->count ? n->args[0]->type : CEL_DYN;
        for (size_t i = 1; i < n->count; i++)
            if (n->args[i]->type != n->element)
                n->element = CEL_DYN;
        return 0;
    case CEL_NOT:
        n->type = CEL_BOOL;
        return agree(n->args[0]->type, CEL_BOOL) ? 0 : no_overload(c, n);
    case CEL_NEG:
        n->type = CEL_INT;
        return agree(n->args[0]->type, CEL_INT) ? 0 : no_overload(c, n);
    case CEL_AND:
    case CEL_OR:
        n->type = CEL_BOOL;
        for (size_t i = 0; i < n->count; i++)
            if (!agree(n->args[i]->type, CEL_BOOL))
                return no_overload(c, n);
        return 0;
    case CEL_COND:
        if (!agree(n->args[0]->type, CEL_BOOL) || !agree(n->args[1]->type, n->args[2]->type))
            return no_overload(c, n);
        n->type = n->args[1]->type == n->args[2]->type ? n->args[1]->type : CEL_DYN;
        n->element = n->args[1]->element == n->args[2]->element ? n->args[1]->element : CEL_DYN;
        return 0;
    case CEL_EQ:
    case CEL_NE:
        n->type = CEL_BOOL;
        return agree(n->args[0]->type, n->args[1]->type) &&
                       agree(n->args[0]->element, n->args[1]->element)
                   ? 0
                   : no_overload(c, n);
    case CEL_LT:
    case CEL_LE:
    case CEL_GT:
    case CEL_GE:
        n->type = CEL_BOOL;
        t = n->args[0]->type != CEL_DYN ? n->args[0]->type : n->args[1]->type;
        return agree(n->args[0]->type, n->args[1]->type) &&
                       (t == CEL_DYN || t == CEL_INT || t == CEL_STRING || t == CEL_BOOL)
                   ? 0
                   : no_overload(c, n);
    case CEL_IN:
        return check_in(c, n);
    case CEL_ADD:
    case CEL_SUB:
    case CEL_MUL:
    case CEL_DIV:
    case CEL_MOD:
        return check_arithmetic(c, n);
    }
    return 0;
}

int cel_check(struct alq_cel_program *program, struct alq_err *err)
{
    struct checker c = {program, err};
    int rc = check(&c, program->root);

    if (!rc && !agree(program->root->type, CEL_BOOL))
        rc = alq_err_set(err, ALQ_EINVAL, "must evaluate to bool or the unknown type, not %s",
                         cel_type_name(program->root->type));
    return rc;
}
