/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lexical grammar of CEL (cel-spec, "Syntax"): identifiers, decimal and hexadecimal integers,
 * strings in all quotings, operators, // comments. Literals of types outside the subset are refused
 * by name. Pure but for the arena.
 */
#include "alloc/cel_lex.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int alq_cel_err_at(struct alq_err *err, int code, const char *text, size_t len, size_t at,
                   const char *fmt, ...)
{
    char what[256];
    size_t line = 1, column = 1, begin = at > 30 ? at - 30 : 0, end = at + 30 < len ? at + 30 : len;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    for (size_t i = 0; i < at && i < len; i++) {
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    /* do not cut a UTF-8 sequence in two */
    while (begin < len && begin > 0 && ((unsigned char)text[begin] & 0xc0) == 0x80)
        begin++;
    while (end < len && ((unsigned char)text[end] & 0xc0) == 0x80)
        end++;
    if (begin > end)
        begin = end;
    return alq_err_set(err, code, "%s (at %zu:%zu of %s%.*s%s)", what, line, column,
                       begin ? "..." : "", (int)(end - begin), text + begin,
                       end < len ? "..." : "");
}

#define FAIL(code, at_, ...) alq_cel_err_at(err, code, lx->text, lx->len, at_, __VA_ARGS__)

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_ident_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static int hex_value(char c)
{
    if (is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int alq_cel_token_is(const struct alq_cel_token *t, const char *op)
{
    return t->kind == ALQ_CEL_TOK_OP && strlen(op) == t->len && !memcmp(t->text, op, t->len);
}

static void skip_blanks(struct alq_cel_lexer *lx)
{
    while (lx->at < lx->len) {
        char c = lx->text[lx->at];
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f') {
            lx->at++;
        } else if (c == '/' && lx->at + 1 < lx->len && lx->text[lx->at + 1] == '/') {
            while (lx->at < lx->len && lx->text[lx->at] != '\n')
                lx->at++;
        } else {
            return;
        }
    }
}

static int lex_number(struct alq_cel_lexer *lx, struct alq_cel_token *t, struct alq_err *err)
{
    size_t start = lx->at, i = start;
    uint64_t n = 0;
    unsigned base = 10;

    if (lx->text[i] == '0' && i + 1 < lx->len &&
        (lx->text[i + 1] == 'x' || lx->text[i + 1] == 'X')) {
        base = 16;
        i += 2;
        if (i >= lx->len || hex_value(lx->text[i]) < 0)
            return FAIL(ALQ_EINVAL, start, "Syntax error: a hexadecimal number without digits");
    }
    for (; i < lx->len; i++) {
        int d = base == 16              ? hex_value(lx->text[i])
                : is_digit(lx->text[i]) ? lx->text[i] - '0'
                                        : -1;
        if (d < 0)
            break;
        if (__builtin_mul_overflow(n, (uint64_t)base, &n) ||
            __builtin_add_overflow(n, (uint64_t)d, &n) || n > (uint64_t)1 << 63)
            return FAIL(ALQ_ERANGE, start, "integer does not fit 64 bits");
    }
    char next = i < lx->len ? lx->text[i] : '\0';
    if (base == 10 && ((next == '.' && i + 1 < lx->len && is_digit(lx->text[i + 1])) ||
                       next == 'e' || next == 'E'))
        return FAIL(ALQ_ENOTSUP, start,
                    "floating-point numbers are not supported in this subset of CEL");
    if (next == 'u' || next == 'U')
        return FAIL(ALQ_ENOTSUP, start, "unsigned numbers are not supported in this subset of CEL");
    if (is_ident_start(next))
        return FAIL(ALQ_EINVAL, i, "Syntax error: a letter follows a number");
    *t = (struct alq_cel_token){ALQ_CEL_TOK_INT, lx->text + start, i - start, n, start};
    lx->at = i;
    return 0;
}

static size_t utf8_encode(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

/* Decodes the escape at lx->text[*i] == '\\' into out (at most 4 bytes); moves *i past it. */
static int lex_escape(struct alq_cel_lexer *lx, size_t *i, char *out, size_t *n,
                      struct alq_err *err)
{
    static const char from[] = "abfnrtv\\?\"'`", to[] = "\a\b\f\n\r\t\v\\?\"'`";
    size_t at = *i;
    char c = at + 1 < lx->len ? lx->text[at + 1] : '\0';
    const char *simple = c ? strchr(from, c) : NULL;

    *i = at + 2;
    if (simple) {
        out[0] = to[simple - from];
        *n = 1;
        return 0;
    }
    size_t digits = c == 'x' || c == 'X'   ? 2
                    : c == 'u'             ? 4
                    : c == 'U'             ? 8
                    : c >= '0' && c <= '3' ? 3
                                           : 0;
    unsigned base = digits == 3 ? 8 : 16;
    size_t first = at + (base == 8 ? 1 : 2);
    uint32_t cp = 0;
    if (!digits || first + digits > lx->len)
        return FAIL(ALQ_EINVAL, at, "Syntax error: unknown escape sequence in a string");
    for (size_t k = 0; k < digits; k++) {
        int d = hex_value(lx->text[first + k]);
        if (d < 0 || (unsigned)d >= base)
            return FAIL(ALQ_EINVAL, at, "Syntax error: unknown escape sequence in a string");
        cp = cp * base + (unsigned)d;
    }
    if (cp == 0)
        return FAIL(ALQ_ENOTSUP, at,
                    "a NUL character in a string is not supported in this subset of CEL");
    if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        return FAIL(ALQ_EINVAL, at, "Syntax error: escape sequence is not a Unicode character");
    *n = utf8_encode(cp, out);
    *i = first + digits;
    return 0;
}

/* lx->at is at the opening quote; start is where the prefix, if any, begins. */
static int lex_string(struct alq_cel_lexer *lx, size_t start, int is_raw, struct alq_cel_token *t,
                      struct alq_err *err)
{
    char quote = lx->text[lx->at];
    int is_triple =
        lx->at + 2 < lx->len && lx->text[lx->at + 1] == quote && lx->text[lx->at + 2] == quote;
    size_t i = lx->at + (is_triple ? 3 : 1), end = i, n = 0;

    /* Where it ends at the latest; the loop below says what is wrong if it does not. */
    while (end < lx->len && lx->text[end] != quote)
        end += lx->text[end] == '\\' && !is_raw ? 2 : 1;
    if (is_triple)
        end = lx->len;
    char *out = alq_arena_alloc(lx->arena, (end < lx->len ? end : lx->len) - i +
                                               1); /* an escape never grows */
    if (!out)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (;;) {
        if (i >= lx->len)
            return FAIL(ALQ_EINVAL, start, "Syntax error: a string is not closed");
        char c = lx->text[i];
        if (c == quote && !is_triple) {
            i++;
            break;
        }
        if (c == quote && i + 2 < lx->len && lx->text[i + 1] == quote && lx->text[i + 2] == quote) {
            i += 3;
            break;
        }
        if ((c == '\n' || c == '\r') && !is_triple)
            return FAIL(ALQ_EINVAL, i, "Syntax error: a string is not closed on its line");
        if (c == '\\' && !is_raw) {
            size_t wrote = 0;
            int rc = lex_escape(lx, &i, out + n, &wrote, err);
            if (rc)
                return rc;
            n += wrote;
            continue;
        }
        out[n++] = c;
        i++;
    }
    *t = (struct alq_cel_token){ALQ_CEL_TOK_STRING, out, n, 0, start};
    lx->at = i;
    return 0;
}

static int lex_ident(struct alq_cel_lexer *lx, struct alq_cel_token *t, struct alq_err *err)
{
    size_t start = lx->at, i = start;

    while (i < lx->len && (is_ident_start(lx->text[i]) || is_digit(lx->text[i])))
        i++;
    size_t n = i - start;
    if (i < lx->len && (lx->text[i] == '"' || lx->text[i] == '\'') && n <= 2) {
        int is_raw = 0, is_bytes = 0, is_prefix = 1;
        for (size_t k = start; k < i; k++) {
            char c = lx->text[k];
            if (c == 'r' || c == 'R')
                is_raw++;
            else if (c == 'b' || c == 'B')
                is_bytes++;
            else
                is_prefix = 0;
        }
        if (is_prefix && is_raw <= 1 && is_bytes == 1)
            return FAIL(ALQ_ENOTSUP, start, "bytes are not supported in this subset of CEL");
        if (is_prefix && is_raw == 1 && n == 1) {
            lx->at = i;
            return lex_string(lx, start, 1, t, err);
        }
    }
    *t = (struct alq_cel_token){ALQ_CEL_TOK_IDENT, lx->text + start, n, 0, start};
    lx->at = i;
    return 0;
}

int alq_cel_lex_next(struct alq_cel_lexer *lx, struct alq_cel_token *t, struct alq_err *err)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "&&", "||", "<", ">",
                                      "!",  "?",  ":",  "+",  "-",  "*",  "/", "%",
                                      ".",  ",",  "(",  ")",  "[",  "]",  "{", "}"};

    skip_blanks(lx);
    if (lx->at >= lx->len) {
        *t = (struct alq_cel_token){ALQ_CEL_TOK_END, lx->text + lx->len, 0, 0, lx->len};
        return 0;
    }
    char c = lx->text[lx->at];
    if (is_digit(c))
        return lex_number(lx, t, err);
    if (c == '.' && lx->at + 1 < lx->len && is_digit(lx->text[lx->at + 1]))
        return FAIL(ALQ_ENOTSUP, lx->at,
                    "floating-point numbers are not supported in this subset of CEL");
    if (is_ident_start(c))
        return lex_ident(lx, t, err);
    if (c == '"' || c == '\'')
        return lex_string(lx, lx->at, 0, t, err);
    if (c == '`')
        return FAIL(ALQ_ENOTSUP, lx->at,
                    "quoted field names are not supported in this subset of CEL, use [\"name\"]");
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        size_t n = strlen(ops[i]);
        if (lx->len - lx->at >= n && !memcmp(lx->text + lx->at, ops[i], n)) {
            *t = (struct alq_cel_token){ALQ_CEL_TOK_OP, lx->text + lx->at, n, 0, lx->at};
            lx->at += n;
            return 0;
        }
    }
    return FAIL(ALQ_EINVAL, lx->at, "Syntax error: unexpected character");
}
