/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax tree of an expression, owned by its program's arena. Built by alq_cel_parse, typed by
 * alq_cel_check, read by alq_cel_eval. Internal to the CEL modules.
 */
#ifndef ALQ_ALLOC_CEL_AST_H
#define ALQ_ALLOC_CEL_AST_H

#include "alloc/arena.h"
#include "alloc/cel.h"
#include "alloc/cel_value.h"

enum alq_cel_op {
    ALQ_CEL_LITERAL, /* value */
    ALQ_CEL_VAR_DEVICE,
    ALQ_CEL_SELECT, /* args[0].name */
    ALQ_CEL_HAS,    /* has(args[0].name) */
    ALQ_CEL_INDEX,  /* args[0][args[1]] */
    ALQ_CEL_CALL,   /* name(args) or args[0].name(args[1..]) */
    ALQ_CEL_MAKE_LIST,
    ALQ_CEL_NOT,
    ALQ_CEL_NEG,
    ALQ_CEL_AND, /* two or more args */
    ALQ_CEL_OR,  /* two or more args */
    ALQ_CEL_COND,
    ALQ_CEL_EQ,
    ALQ_CEL_NE,
    ALQ_CEL_LT,
    ALQ_CEL_LE,
    ALQ_CEL_GT,
    ALQ_CEL_GE,
    ALQ_CEL_IN,
    ALQ_CEL_ADD,
    ALQ_CEL_SUB,
    ALQ_CEL_MUL,
    ALQ_CEL_DIV,
    ALQ_CEL_MOD,
};

/* The fields of the variable. */
enum alq_cel_field {
    ALQ_CEL_FIELD_NONE,
    ALQ_CEL_FIELD_DRIVER,
    ALQ_CEL_FIELD_ATTRIBUTES,
    ALQ_CEL_FIELD_CAPACITY,
    ALQ_CEL_FIELD_MULTI_ALLOC,
};

struct alq_cel_regex;

struct alq_cel_node {
    enum alq_cel_op op;
    enum alq_cel_type type;    /* set by alq_cel_check; ALQ_CEL_DYN when only evaluation can tell */
    enum alq_cel_type element; /* ALQ_CEL_LIST: type of all elements, else ALQ_CEL_DYN */
    bool is_method;            /* ALQ_CEL_CALL */
    unsigned depth;            /* 1 for a leaf */
    size_t at;                 /* offset in the expression, for messages */
    size_t count;              /* of args */
    struct alq_cel_node **args;
    struct alq_cel_text name;   /* ALQ_CEL_SELECT, ALQ_CEL_HAS, ALQ_CEL_CALL */
    struct alq_cel_value value; /* ALQ_CEL_LITERAL */
    struct alq_cel_regex
        *regex; /* ALQ_CEL_CALL of matches with a literal pattern; freed with the program */
    struct alq_cel_node *next_regex;
};

struct alq_cel_program {
    struct alq_arena arena;
    char *text;
    size_t len;
    struct alq_cel_node *root;
    struct alq_cel_node *regexes; /* nodes that hold a compiled pattern */
};

/* ALQ_CEL_FIELD_NONE when a device has no such field. */
enum alq_cel_field alq_cel_device_field(struct alq_cel_text name);

/* Parses program->text into program->root. Errors as alq_cel_compile. */
int alq_cel_parse(struct alq_cel_program *program, struct alq_err *err);

/* Resolves names and types of program->root, compiles literal patterns. Errors as alq_cel_compile.
 */
int alq_cel_check(struct alq_cel_program *program, struct alq_err *err);

#endif
