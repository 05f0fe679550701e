/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits a CEL expression into tokens. Strings are decoded into the arena. Internal to the CEL
 * modules; one thread per lexer.
 */
#ifndef ALQ_ALLOC_CEL_LEX_H
#define ALQ_ALLOC_CEL_LEX_H

#include <stddef.h>
#include <stdint.h>

#include "alloc/arena.h"
#include "base/err.h"

enum alq_cel_token_kind {
    ALQ_CEL_TOK_END,
    ALQ_CEL_TOK_IDENT,
    ALQ_CEL_TOK_INT,
    ALQ_CEL_TOK_STRING,
    ALQ_CEL_TOK_OP, /* text holds the operator or the bracket */
};

struct alq_cel_token {
    enum alq_cel_token_kind kind;
    const char *text; /* in the expression; decoded in the arena for ALQ_CEL_TOK_STRING */
    size_t len;
    uint64_t number; /* ALQ_CEL_TOK_INT: magnitude, at most 2^63 (which only -2^63 may use) */
    size_t at;       /* offset in the expression */
};

struct alq_cel_lexer {
    const char *text;
    size_t len;
    size_t at;
    struct alq_arena *arena;
};

/* Reads the next token. ALQ_EINVAL: no token starts here; ALQ_ENOTSUP: bytes, unsigned or
 * floating-point literal; ALQ_ERANGE: an integer beyond 64 bits. */
int alq_cel_lex_next(struct alq_cel_lexer *lexer, struct alq_cel_token *token, struct alq_err *err);

/* Whether the token is this operator or bracket. */
int alq_cel_token_is(const struct alq_cel_token *token, const char *op);

/* Sets err to "line:column: <fmt>" with the place of offset at in text, and what stands there.
 * Returns code. */
int alq_cel_err_at(struct alq_err *err, int code, const char *text, size_t len, size_t at,
                   const char *fmt, ...) __attribute__((format(printf, 6, 7)));

#endif
