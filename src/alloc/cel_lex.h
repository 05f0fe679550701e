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

enum cel_token_kind {
    CEL_TOK_END,
    CEL_TOK_IDENT,
    CEL_TOK_INT,
    CEL_TOK_STRING,
    CEL_TOK_OP, /* text holds the operator or the bracket */
};

struct cel_token {
    enum cel_token_kind kind;
    const char *text; /* in the expression; decoded in the arena for CEL_TOK_STRING */
    size_t len;
    uint64_t number; /* CEL_TOK_INT: magnitude, at most 2^63 (which only -2^63 may use) */
    size_t at;       /* offset in the expression */
};

struct cel_lexer {
    const char *text;
    size_t len;
    size_t at;
    struct alq_arena *arena;
};

/* Reads the next token. ALQ_EINVAL: no token starts here; ALQ_ENOTSUP: bytes, unsigned or
 * floating-point literal; ALQ_ERANGE: an integer beyond 64 bits. */
int cel_lex_next(struct cel_lexer *lexer, struct cel_token *token, struct alq_err *err);

/* Whether the token is this operator or bracket. */
int cel_token_is(const struct cel_token *token, const char *op);

/* Sets err to "line:column: <fmt>" with the place of offset at in text, and what stands there.
 * Returns code. */
int cel_err_at(struct alq_err *err, int code, const char *text, size_t len, size_t at,
               const char *fmt, ...) __attribute__((format(printf, 6, 7)));

#endif
