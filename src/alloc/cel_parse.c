/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive descent over the grammar of CEL (cel-spec, "Syntax"), bounded in depth: the recursion
 * by a counter, the tree by the depth of each node, so that no later pass can run out of stack.
 * Owns nothing but what it puts into the arena.
 */
#include <string.h>

#include "alloc/cel_ast.h"
#include "alloc/cel_lex.h"

struct parser {
    struct alq_cel_program *program;
    struct alq_cel_lexer lexer;
    struct alq_cel_token token; /* the one under consideration */
    unsigned depth;
    struct alq_err *err;
};

#define FAIL(p, code, at, ...)                                                                     \
    alq_cel_err_at((p)->err, code, (p)->program->text, (p)->program->len, at, __VA_ARGS__)

static int parse_expr(struct parser *p, struct alq_cel_node **out);

static int advance(struct parser *p)
{
    return alq_cel_lex_next(&p->lexer, &p->token, p->err);
}

static int is(const struct parser *p, const char *op)
{
    return alq_cel_token_is(&p->token, op);
}

static int unexpected(struct parser *p, const char *wanted)
{
    if (p->token.kind == ALQ_CEL_TOK_END)
        return FAIL(p, ALQ_EINVAL, p->token.at,
                    "Syntax error: the expression ends where %s is expected", wanted);
    return FAIL(p, ALQ_EINVAL, p->token.at, "Syntax error: '%.*s' where %s is expected",
                (int)(p->token.len > 40 ? 40 : p->token.len), p->token.text, wanted);
}

static int expect(struct parser *p, const char *op, const char *wanted)
{
    if (!is(p, op))
        return unexpected(p, wanted);
    return advance(p);
}

/* A node of count args, to be filled by the caller. */
static int node(struct parser *p, enum alq_cel_op op, size_t at, struct alq_cel_node *const *args,
                size_t count, struct alq_cel_node **out)
{
    struct alq_cel_node *n = alq_arena_alloc(&p->program->arena, sizeof(*n));
    unsigned depth = 0;

    if (!n)
        return alq_err_set(p->err, ALQ_ENOMEM, "out of memory");
    n->op = op;
    n->at = at;
    n->count = count;
    if (count) {
        n->args = alq_arena_alloc(&p->program->arena, count * sizeof(struct alq_cel_node *));
        if (!n->args)
            return alq_err_set(p->err, ALQ_ENOMEM, "out of memory");
        memcpy(n->args, args, count * sizeof(struct alq_cel_node *));
    }
    for (size_t i = 0; i < count; i++)
        if (args[i]->depth > depth)
            depth = args[i]->depth;
    n->depth = depth + 1;
    if (n->depth > ALQ_CEL_DEPTH_MAX)
        return FAIL(p, ALQ_ERANGE, at, "expression is nested deeper than %d levels",
                    ALQ_CEL_DEPTH_MAX);
    *out = n;
    return 0;
}

static int literal(struct parser *p, struct alq_cel_value value, size_t at,
                   struct alq_cel_node **out)
{
    int rc = node(p, ALQ_CEL_LITERAL, at, NULL, 0, out);

    if (!rc)
        (*out)->value = value;
    return rc;
}

/* A growing list of nodes in the arena. */
struct nodes {
    struct alq_cel_node **items;
    size_t count, room;
};

static int push(struct parser *p, struct nodes *list, struct alq_cel_node *n)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 4;
        struct alq_cel_node **items =
            alq_arena_alloc(&p->program->arena, room * sizeof(struct alq_cel_node *));
        if (!items)
            return alq_err_set(p->err, ALQ_ENOMEM, "out of memory");
        if (list->count)
            memcpy(items, list->items, list->count * sizeof(struct alq_cel_node *));
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = n;
    return 0;
}

/* Expressions separated by commas up to close, which is consumed. */
static int parse_list(struct parser *p, const char *close, int may_trail, struct nodes *list)
{
    int rc;

    while (!is(p, close)) {
        struct alq_cel_node *n;
        if (is(p, "?"))
            return FAIL(p, ALQ_ENOTSUP, p->token.at,
                        "optional elements are not supported in this subset of CEL");
        rc = parse_expr(p, &n);
        if (rc)
            return rc;
        rc = push(p, list, n);
        if (rc)
            return rc;
        if (!is(p, ","))
            break;
        rc = advance(p);
        if (rc)
            return rc;
        if (is(p, close) && !may_trail)
            return unexpected(p, "an expression");
    }
    return expect(p, close, close[0] == ')' ? "',' or ')'" : "',' or ']'");
}

static int text_is(struct alq_cel_text t, const char *s)
{
    return t.len == strlen(s) && !memcmp(t.p, s, t.len);
}

static int is_reserved(struct alq_cel_text t)
{
    static const char *const words[] = {
        "as", "break", "const", "continue", "else",      "for",    "function", "if",   "import",
        "in", "let",   "loop",  "package",  "namespace", "return", "var",      "void", "while"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (text_is(t, words[i]))
            return 1;
    return 0;
}

static int parse_call(struct parser *p, struct alq_cel_text name, size_t at,
                      struct alq_cel_node *receiver, struct alq_cel_node **out)
{
    struct nodes args = {0};
    int rc;

    if (receiver) {
        rc = push(p, &args, receiver);
        if (rc)
            return rc;
    }
    rc = parse_list(p, ")", 0, &args);
    if (rc)
        return rc;
    if (!receiver && text_is(name, "has")) {
        if (args.count != 1 || args.items[0]->op != ALQ_CEL_SELECT)
            return FAIL(p, ALQ_EINVAL, at, "invalid argument to has() macro: has(a.b) is needed");
        rc = node(p, ALQ_CEL_HAS, at, args.items[0]->args, 1, out);
        if (!rc)
            (*out)->name = args.items[0]->name;
        return rc;
    }
    rc = node(p, ALQ_CEL_CALL, at, args.items, args.count, out);
    if (!rc) {
        (*out)->name = name;
        (*out)->is_method = receiver != NULL;
    }
    return rc;
}

static int parse_ident(struct parser *p, struct alq_cel_node **out)
{
    struct alq_cel_text name = {p->token.text, p->token.len};
    size_t at = p->token.at;
    int rc = advance(p);

    if (rc)
        return rc;
    if (text_is(name, "true") || text_is(name, "false"))
        return literal(p, alq_cel_bool(name.len == 4), at, out);
    if (text_is(name, "null"))
        return literal(p, (struct alq_cel_value){.type = ALQ_CEL_NULL}, at, out);
    if (is_reserved(name))
        return FAIL(p, ALQ_EINVAL, at, "Syntax error: '%.*s' is a reserved word", (int)name.len,
                    name.p);
    if (is(p, "(")) {
        rc = advance(p);
        return rc ? rc : parse_call(p, name, at, NULL, out);
    }
    if (is(p, "{"))
        return FAIL(p, ALQ_ENOTSUP, p->token.at,
                    "messages are not supported in this subset of CEL");
    if (text_is(name, "device"))
        return node(p, ALQ_CEL_VAR_DEVICE, at, NULL, 0, out);
    if (text_is(name, "cel") && is(p, "."))
        return FAIL(p, ALQ_ENOTSUP, at, "cel.bind is not supported in this subset of CEL");
    return FAIL(p, ALQ_EINVAL, at, "undeclared reference to '%.*s'",
                (int)(name.len > 64 ? 64 : name.len), name.p);
}

static int parse_primary(struct parser *p, struct alq_cel_node **out)
{
    struct alq_cel_token t = p->token;
    int rc;

    switch (t.kind) {
    case ALQ_CEL_TOK_IDENT:
        return parse_ident(p, out);
    case ALQ_CEL_TOK_INT:
        if (t.number > INT64_MAX)
            return FAIL(p, ALQ_ERANGE, t.at, "integer does not fit 64 bits");
        rc = literal(p, alq_cel_int((int64_t)t.number), t.at, out);
        return rc ? rc : advance(p);
    case ALQ_CEL_TOK_STRING:
        rc = literal(p, alq_cel_string(t.text, t.len), t.at, out);
        return rc ? rc : advance(p);
    case ALQ_CEL_TOK_OP:
        if (is(p, "(")) {
            rc = advance(p);
            if (!rc)
                rc = parse_expr(p, out);
            return rc ? rc : expect(p, ")", "')'");
        }
        if (is(p, "[")) {
            struct nodes items = {0};
            rc = advance(p);
            if (!rc)
                rc = parse_list(p, "]", 1, &items);
            return rc ? rc : node(p, ALQ_CEL_MAKE_LIST, t.at, items.items, items.count, out);
        }
        if (is(p, "{"))
            return FAIL(p, ALQ_ENOTSUP, t.at,
                        "map literals are not supported in this subset of CEL");
        break;
    case ALQ_CEL_TOK_END:
        break;
    }
    return unexpected(p, "an expression");
}

static int parse_member(struct parser *p, struct alq_cel_node **out)
{
    struct alq_cel_node *n;
    int rc = parse_primary(p, &n);

    while (!rc && (is(p, ".") || is(p, "["))) {
        size_t at = p->token.at;
        int is_index = is(p, "[");
        rc = advance(p);
        if (rc)
            return rc;
        if (is(p, "?"))
            return FAIL(p, ALQ_ENOTSUP, p->token.at,
                        "optional access (.? and [?]) is not supported in this subset of CEL, "
                        "guard with has()");
        if (is_index) {
            struct alq_cel_node *args[2] = {n, NULL};
            rc = parse_expr(p, &args[1]);
            if (!rc)
                rc = expect(p, "]", "']'");
            if (!rc)
                rc = node(p, ALQ_CEL_INDEX, at, args, 2, &n);
            continue;
        }
        if (p->token.kind != ALQ_CEL_TOK_IDENT)
            return unexpected(p, "a name");
        struct alq_cel_text name = {p->token.text, p->token.len};
        at = p->token.at;
        rc = advance(p);
        if (rc)
            return rc;
        if (is(p, "(")) {
            rc = advance(p);
            if (!rc)
                rc = parse_call(p, name, at, n, &n);
            continue;
        }
        if (is(p, "{"))
            return FAIL(p, ALQ_ENOTSUP, p->token.at,
                        "messages are not supported in this subset of CEL");
        if (text_is(name, "true") || text_is(name, "false") || text_is(name, "null") ||
            text_is(name, "in"))
            return FAIL(p, ALQ_EINVAL, at, "Syntax error: '%.*s' is a reserved word", (int)name.len,
                        name.p);
        struct alq_cel_node *operand = n;
        rc = node(p, ALQ_CEL_SELECT, at, &operand, 1, &n);
        if (!rc)
            n->name = name;
    }
    *out = n;
    return rc;
}

static int parse_unary(struct parser *p, struct alq_cel_node **out)
{
    struct alq_cel_node *operand;
    size_t at = p->token.at;
    enum alq_cel_op op = is(p, "!") ? ALQ_CEL_NOT : ALQ_CEL_NEG;
    int rc;

    if (!is(p, "!") && !is(p, "-"))
        return parse_member(p, out);
    rc = advance(p);
    if (rc)
        return rc;
    if (op == ALQ_CEL_NEG && p->token.kind == ALQ_CEL_TOK_INT &&
        p->token.number == (uint64_t)1 << 63) {
        rc = literal(p, alq_cel_int(INT64_MIN), at, out);
        return rc ? rc : advance(p);
    }
    if (++p->depth > ALQ_CEL_DEPTH_MAX)
        return FAIL(p, ALQ_ERANGE, at, "expression is nested deeper than %d levels",
                    ALQ_CEL_DEPTH_MAX);
    rc = parse_unary(p, &operand);
    p->depth--;
    if (rc)
        return rc;
    if (op == ALQ_CEL_NEG && operand->op == ALQ_CEL_LITERAL && operand->value.type == ALQ_CEL_INT &&
        operand->value.integer >= 0) {
        operand->value.integer = -operand->value.integer;
        operand->at = at;
        *out = operand;
        return 0;
    }
    return node(p, op, at, &operand, 1, out);
}

struct level {
    const char *text;
    enum alq_cel_op op;
};

static const struct level multiplications[] = {
    {"*", ALQ_CEL_MUL}, {"/", ALQ_CEL_DIV}, {"%", ALQ_CEL_MOD}, {0, 0}};
static const struct level additions[] = {{"+", ALQ_CEL_ADD}, {"-", ALQ_CEL_SUB}, {0, 0}};
static const struct level relations[] = {{"==", ALQ_CEL_EQ},
                                         {"!=", ALQ_CEL_NE},
                                         {"<=", ALQ_CEL_LE},
                                         {">=", ALQ_CEL_GE},
                                         {"<", ALQ_CEL_LT},
                                         {">", ALQ_CEL_GT},
                                         {0, 0}};

static const struct level *find_op(const struct parser *p, const struct level *levels)
{
    for (; levels->text; levels++)
        if (is(p, levels->text))
            return levels;
    return NULL;
}

/* Left-associative chains: multiplications, then additions, then relations. */
static int parse_binary(struct parser *p, int rank, struct alq_cel_node **out)
{
    static const struct level *const ranks[] = {multiplications, additions, relations};
    static const struct level membership = {"in", ALQ_CEL_IN};
    int rc;

    if (rank < 0)
        return parse_unary(p, out);
    rc = parse_binary(p, rank - 1, out);
    while (!rc) {
        const struct level *op = find_op(p, ranks[rank]);
        struct alq_cel_node *args[2] = {*out, NULL};
        size_t at = p->token.at;
        if (!op && rank == 2 && p->token.kind == ALQ_CEL_TOK_IDENT &&
            text_is((struct alq_cel_text){p->token.text, p->token.len}, "in"))
            op = &membership;
        if (!op)
            return 0;
        rc = advance(p);
        if (!rc)
            rc = parse_binary(p, rank - 1, &args[1]);
        if (!rc)
            rc = node(p, op->op, at, args, 2, out);
    }
    return rc;
}

/* a && b && c and a || b || c become one node, so that long ones do not nest. */
static int parse_logic(struct parser *p, enum alq_cel_op op, struct alq_cel_node **out)
{
    const char *text = op == ALQ_CEL_AND ? "&&" : "||";
    struct nodes terms = {0};
    size_t at = p->token.at;
    int rc;

    for (;;) {
        struct alq_cel_node *n;
        rc = op == ALQ_CEL_OR ? parse_logic(p, ALQ_CEL_AND, &n) : parse_binary(p, 2, &n);
        if (!rc)
            rc = push(p, &terms, n);
        if (rc)
            return rc;
        if (!is(p, text))
            break;
        at = p->token.at;
        rc = advance(p);
        if (rc)
            return rc;
    }
    if (terms.count == 1) {
        *out = terms.items[0];
        return 0;
    }
    return node(p, op, at, terms.items, terms.count, out);
}

static int parse_expr(struct parser *p, struct alq_cel_node **out)
{
    struct alq_cel_node *args[3];
    size_t at;
    int rc;

    if (++p->depth > ALQ_CEL_DEPTH_MAX)
        return FAIL(p, ALQ_ERANGE, p->token.at, "expression is nested deeper than %d levels",
                    ALQ_CEL_DEPTH_MAX);
    rc = parse_logic(p, ALQ_CEL_OR, &args[0]);
    if (rc)
        return rc;
    at = p->token.at;
    if (!is(p, "?")) {
        *out = args[0];
    } else {
        rc = advance(p);
        if (!rc)
            rc = parse_logic(p, ALQ_CEL_OR, &args[1]);
        if (!rc)
            rc = expect(p, ":", "':'");
        if (!rc)
            rc = parse_expr(p, &args[2]);
        if (!rc)
            rc = node(p, ALQ_CEL_COND, at, args, 3, out);
    }
    p->depth--;
    return rc;
}

int alq_cel_parse(struct alq_cel_program *program, struct alq_err *err)
{
    struct parser p = {.program = program, .err = err};
    int rc;

    p.lexer = (struct alq_cel_lexer){
        .text = program->text, .len = program->len, .arena = &program->arena};
    rc = advance(&p);
    if (!rc)
        rc = parse_expr(&p, &program->root);
    if (!rc && p.token.kind != ALQ_CEL_TOK_END)
        rc = unexpected(&p, "the end of the expression");
    return rc;
}
