/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax tree of an expression, owned by its program's arena. Built by cel_parse, typed by
 * cel_check, read by cel_eval. Internal to the CEL modules.
 */
#ifndef ALQ_ALLOC_CEL_AST_H
#define ALQ_ALLOC_CEL_AST_H

#include "alloc/arena.h"
#include "alloc/cel.h"
#include "alloc/cel_value.h"

enum cel_op {
    CEL_LITERAL, /* value */
    CEL_VAR_DEVICE,
    CEL_SELECT, /* args[0].name */
    CEL_HAS,    /* has(args[0].name) */
    CEL_INDEX,  /* args[0][args[1]] */
    CEL_CALL,   /* name(args) or args[0].name(args[1..]) */
    CEL_MAKE_LIST,
    CEL_NOT,
    CEL_NEG,
    CEL_AND, /* two or more args */
    CEL_OR,  /* two or more args */
    CEL_COND,
    CEL_EQ,
    CEL_NE,
    CEL_LT,
    CEL_LE,
    CEL_GT,
    CEL_GE,
    CEL_IN,
    CEL_ADD,
    CEL_SUB,
    CEL_MUL,
    CEL_DIV,
    CEL_MOD,
};

/* The fields of the variable. */
enum cel_field {
    CEL_FIELD_NONE,
    CEL_FIELD_DRIVER,
    CEL_FIELD_ATTRIBUTES,
    CEL_FIELD_CAPACITY,
    CEL_FIELD_MULTI_ALLOC,
};

struct cel_regex;

struct cel_node {
    enum cel_op op;
    enum cel_type type;    /* set by cel_check; CEL_DYN when only evaluation can tell */
    enum cel_type element; /* CEL_LIST: type of all elements, else CEL_DYN */
    bool is_method;        /* CEL_CALL */
    unsigned depth;        /* 1 for a leaf */
    size_t at;             /* offset in the expression, for messages */
    size_t count;          /* of args */
    struct cel_node **args;
    struct cel_text name;   /* CEL_SELECT, CEL_HAS, CEL_CALL */
    struct cel_value value; /* CEL_LITERAL */
    struct cel_regex
        *regex; /* CEL_CALL of matches with a literal pattern; freed with the program */
    struct cel_node *next_regex;
};

struct alq_cel_program {
    struct alq_arena arena;
    char *text;
    size_t len;
    struct cel_node *root;
    struct cel_node *regexes; /* nodes that hold a compiled pattern */
};

/* CEL_FIELD_NONE when a device has no such field. */
enum cel_field cel_device_field(struct cel_text name);

/* Parses program->text into program->root. Errors as alq_cel_compile. */
int cel_parse(struct alq_cel_program *program, struct alq_err *err);

/* Resolves names and types of program->root, compiles literal patterns. Errors as alq_cel_compile.
 */
int cel_check(struct alq_cel_program *program, struct alq_err *err);

#endif
