/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Translates RE2 syntax (https://github.com/google/re2/wiki/Syntax) to PCRE2 and runs it with
 * bounds. Owns the compiled pattern. Calls libpcre2-8; any thread may search.
 */
#include "alloc/cel_regex.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define MATCH_LIMIT 100000  /* backtracking steps */
#define DEPTH_LIMIT 10000   /* nested backtracking */
#define HEAP_LIMIT_KIB 4096 /* memory of one search */
#define PATTERN_MAX_BYTES 4096
#define REPEAT_MAX 1000 /* as RE2 */

struct alq_cel_regex {
    pcre2_code *code;
    pcre2_match_context *limits;
};

struct translator {
    const char *in;
    size_t len, at;
    char *out;
    size_t used, room;
    struct alq_err *err;
};

#define FAIL(t, what)                                                                              \
    alq_err_set((t)->err, ALQ_EINVAL, "regular expression: %s at byte %zu of \"%.*s\"", what,      \
                (t)->at + 1, (int)((t)->len > 60 ? 60 : (t)->len), (t)->in)

static int put(struct translator *t, const char *text, size_t len)
{
    if (t->room - t->used < len) {
        size_t room = t->room * 2 + len + 64;
        char *out = realloc(t->out, room);
        if (!out)
            return alq_err_set(t->err, ALQ_ENOMEM, "out of memory");
        t->out = out;
        t->room = room;
    }
    memcpy(t->out + t->used, text, len);
    t->used += len;
    return 0;
}

static int puts_(struct translator *t, const char *text)
{
    return put(t, text, strlen(text));
}

static char peek(const struct translator *t, size_t ahead)
{
    return t->at + ahead < t->len ? t->in[t->at + ahead] : '\0';
}

static int is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int put_code_point(struct translator *t, uint32_t cp)
{
    static const char digits[] = "0123456789abcdef";
    char text[16];
    size_t n = sizeof(text);

    text[--n] = '}';
    do {
        text[--n] = digits[cp & 15];
        cp >>= 4;
    } while (cp);
    text[--n] = '{';
    text[--n] = 'x';
    text[--n] = '\\';
    return put(t, text + n, sizeof(text) - n);
}

/* \x41, \x{41}, \101, \0; t->at is at the backslash. *is_done tells whether it was one. */
static int numeric_escape(struct translator *t, int *is_done)
{
    char c = peek(t, 1);
    uint32_t cp = 0;
    size_t i = 2;

    *is_done = 0;
    if (c == 'x') {
        int is_braced = peek(t, 2) == '{';
        size_t digits = 0, max = is_braced ? 8 : 2;
        i = is_braced ? 3 : 2;
        for (; digits < max; i++, digits++) {
            char d = peek(t, i);
            int v = d >= '0' && d <= '9'                 ? d - '0'
                    : (d | 32) >= 'a' && (d | 32) <= 'f' ? (d | 32) - 'a' + 10
                                                         : -1;
            if (v < 0)
                break;
            cp = cp * 16 + (uint32_t)v;
        }
        if (digits == 0 || (!is_braced && digits != 2) || (is_braced && peek(t, i) != '}') ||
            cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
            return FAIL(t, "bad escape sequence");
        if (is_braced)
            i++;
    } else if (c >= '0' && c <= '7') {
        if (c != '0' && !(peek(t, 2) >= '0' && peek(t, 2) <= '7'))
            return FAIL(t, "backreferences are not part of RE2");
        for (i = 1; i < 4 && peek(t, i) >= '0' && peek(t, i) <= '7'; i++)
            cp = cp * 8 + (uint32_t)(peek(t, i) - '0');
    } else {
        return 0;
    }
    *is_done = 1;
    t->at += i;
    return put_code_point(t, cp);
}

/* \pL, \p{Greek}, \P{^Lu}: two-letter names are categories, longer ones scripts. */
static int property_escape(struct translator *t)
{
    char kind = peek(t, 1), text[64] = {'\\', kind, '{'};
    size_t n = 3, i = 2;

    if (peek(t, 2) == '{') {
        const char *close = memchr(t->in + t->at, '}', t->len - t->at);
        size_t begin = t->at + 3, end = close ? (size_t)(close - t->in) : 0;
        if (!close || end == begin || end - begin > 40)
            return FAIL(t, "bad character class name");
        i = end - t->at + 1;
        if (t->in[begin] == '^') {
            text[1] = kind == 'p' ? 'P' : 'p';
            begin++;
        }
        if (end - begin > 2 && !(end - begin == 3 && !memcmp(t->in + begin, "Any", 3))) {
            memcpy(text + n, "sc:", 3);
            n += 3;
        }
        for (size_t k = begin; k < end; k++) {
            if (!is_alnum(t->in[k]) && t->in[k] != '_')
                return FAIL(t, "bad character class name");
            text[n++] = t->in[k];
        }
    } else {
        if (!is_alnum(peek(t, 2)))
            return FAIL(t, "bad character class name");
        text[n++] = peek(t, 2);
        i = 3;
    }
    text[n++] = '}';
    t->at += i;
    return put(t, text, n);
}

/* \Q...\E: everything between is literal. */
static int quoted(struct translator *t)
{
    int rc = 0;

    t->at += 2;
    while (!rc && t->at < t->len) {
        if (peek(t, 0) == '\\' && peek(t, 1) == 'E') {
            t->at += 2;
            return 0;
        }
        char c = t->in[t->at++];
        if ((unsigned char)c < 0x80 && !is_alnum(c) && c != '_')
            rc = puts_(t, "\\");
        if (!rc)
            rc = put(t, &c, 1);
    }
    return rc;
}

/* An escape outside (is_class 0) or inside brackets; t->at is at the backslash. */
static int escape(struct translator *t, int is_class)
{
    char c = peek(t, 1), text[3] = {'\\', c, 0};
    int is_done, rc;

    if (t->at + 1 >= t->len)
        return FAIL(t, "trailing backslash");
    rc = numeric_escape(t, &is_done);
    if (rc || is_done)
        return rc;
    if (c == 'p' || c == 'P')
        return property_escape(t);
    if (c == 'Q' && !is_class)
        return quoted(t);
    if (c >= '8' && c <= '9')
        return FAIL(t, "backreferences are not part of RE2");
    if (c && is_alnum(c) && !strchr(is_class ? "aftnrvdDsSwW" : "aftnrvdDsSwWAbBzE", c))
        return FAIL(t, "escape sequence is not part of RE2");
    t->at += 2;
    switch (c) {
    case 'E': /* without \Q it stands for nothing */
        return 0;
    case 'v': /* a vertical tab in RE2, a class in PCRE2 */
        return puts_(t, "\\x{b}");
    case 's': /* RE2's \s has no vertical tab */
        return puts_(t, is_class ? "\\t\\n\\f\\r " : "[\\t\\n\\f\\r ]");
    case 'S':
        return puts_(t, is_class ? "\\x{0}-\\x{8}\\x{b}\\x{e}-\\x{1f}\\x{21}-\\x{10ffff}"
                                 : "[^\\t\\n\\f\\r ]");
    default:
        break;
    }
    if ((unsigned char)c >= 0x80)
        return FAIL(t, "escape sequence is not part of RE2");
    return put(t, text, 2);
}

static int bracket(struct translator *t)
{
    int rc = puts_(t, "["), is_first = 1;

    t->at++;
    if (!rc && peek(t, 0) == '^') {
        t->at++;
        rc = puts_(t, "^");
    }
    for (; !rc; is_first = 0) {
        if (t->at >= t->len)
            return FAIL(t, "missing closing ]");
        char c = t->in[t->at];
        if (c == ']' && !is_first) {
            t->at++;
            return puts_(t, "]");
        }
        if (c == '\\') {
            rc = escape(t, 1);
        } else if (c == '[' && peek(t, 1) == ':') {
            size_t i = 2;
            if (peek(t, i) == '^')
                i++;
            while (is_alnum(peek(t, i)))
                i++;
            if (peek(t, i) != ':' || peek(t, i + 1) != ']')
                return FAIL(t, "bad character class name");
            rc = put(t, t->in + t->at, i + 2);
            t->at += i + 2;
        } else {
            if (c == '[' || c == ']')
                rc = puts_(t, "\\");
            if (!rc)
                rc = put(t, &c, 1);
            t->at++;
        }
    }
    return rc;
}

/* "(" and what belongs to it. */
static int group(struct translator *t)
{
    size_t i = 2;

    if (peek(t, 1) == '*')
        return FAIL(t, "(*VERBS) are not part of RE2");
    if (peek(t, 1) != '?') {
        t->at++;
        return puts_(t, "(");
    }
    if (peek(t, 2) == 'P' && (peek(t, 3) == '=' || peek(t, 3) == '>'))
        return FAIL(t, "backreferences are not part of RE2");
    if (peek(t, 2) == '=' || peek(t, 2) == '!' ||
        (peek(t, 2) == '<' && (peek(t, 3) == '=' || peek(t, 3) == '!')))
        return FAIL(t, "lookahead and lookbehind are not part of RE2");
    if (peek(t, 2) == '<' || (peek(t, 2) == 'P' && peek(t, 3) == '<')) {
        i = peek(t, 2) == '<' ? 3 : 4;
        size_t begin = i;
        while (is_alnum(peek(t, i)) || peek(t, i) == '_')
            i++;
        if (i == begin || peek(t, i) != '>')
            return FAIL(t, "bad name of a group");
        /* The name has no use here, and PCRE2 limits its form more than RE2. */
        t->at += i + 1;
        return puts_(t, "(");
    }
    while (peek(t, i) && strchr("imsU-", peek(t, i)))
        i++;
    if ((peek(t, i) != ':' && peek(t, i) != ')') || (i == 2 && peek(t, i) != ':') ||
        peek(t, i - 1) == '-')
        return FAIL(t, "group is not part of RE2");
    int rc = put(t, t->in + t->at, i + 1);
    t->at += i + 1;
    return rc;
}

/* Length of {n}, {n,} or {n,m} at t->at, 0 when it is something else; *is_too_large when a number
 * is above RE2's limit. */
static size_t repeat_len(const struct translator *t, int *is_too_large)
{
    size_t i = 1;

    *is_too_large = 0;
    for (int part = 0; part < 2; part++) {
        size_t begin = i;
        unsigned n = 0;
        for (; peek(t, i) >= '0' && peek(t, i) <= '9'; i++)
            n = n > REPEAT_MAX ? n : n * 10 + (unsigned)(peek(t, i) - '0');
        if (n > REPEAT_MAX)
            *is_too_large = 1;
        if (part == 0 && i == begin)
            return 0;
        if (peek(t, i) == '}')
            return i + 1;
        if (part == 0 && peek(t, i) == ',')
            i++;
        else
            return 0;
    }
    return 0;
}

/* A repetition operator, if one stands here. RE2 allows one, with an optional '?'. */
static int repetition(struct translator *t, int *is_done)
{
    char c = peek(t, 0);
    size_t n = c == '*' || c == '+' || c == '?' ? 1 : 0;
    int is_too_large = 0, rc;

    if (c == '{')
        n = repeat_len(t, &is_too_large);
    *is_done = n > 0;
    if (!n)
        return 0;
    if (is_too_large)
        return FAIL(t, "repetition count is above 1000");
    rc = put(t, t->in + t->at, n);
    t->at += n;
    if (!rc && peek(t, 0) == '?') {
        t->at++;
        rc = puts_(t, "?");
    }
    if (rc)
        return rc;
    c = peek(t, 0);
    if (c == '*' || c == '+' || c == '?' || (c == '{' && repeat_len(t, &is_too_large)))
        return FAIL(t, "repetition of a repetition is not part of RE2");
    return 0;
}

static int translate(struct translator *t)
{
    int rc = 0;

    while (!rc && t->at < t->len) {
        char c = t->in[t->at];
        int is_done = 0;
        rc = repetition(t, &is_done);
        if (rc || is_done)
            continue;
        switch (c) {
        case '\\':
            rc = escape(t, 0);
            break;
        case '[':
            rc = bracket(t);
            break;
        case '(':
            rc = group(t);
            break;
        case '{': /* not a repetition: literal in RE2 */
        case '}':
            rc = puts_(t, "\\");
            /* fallthrough */
        default:
            if (!rc)
                rc = put(t, &c, 1);
            t->at++;
        }
    }
    return rc;
}

int alq_cel_regex_new(const char *pattern, size_t len, struct alq_cel_regex **out,
                      struct alq_err *err)
{
    struct translator t = {.in = pattern, .len = len, .err = err};
    pcre2_compile_context *ctx = NULL;
    struct alq_cel_regex *re = NULL;
    int rc, code;
    PCRE2_SIZE offset;

    if (len > PATTERN_MAX_BYTES)
        return alq_err_set(err, ALQ_ERANGE, "regular expression is longer than %d bytes",
                           PATTERN_MAX_BYTES);
    rc = translate(&t);
    if (rc)
        goto out;
    rc = alq_err_set(NULL, ALQ_ENOMEM, "out of memory");
    re = calloc(1, sizeof(*re));
    ctx = pcre2_compile_context_create(NULL);
    if (!re || !ctx) {
        alq_err_set(err, rc, "out of memory");
        goto out;
    }
    pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
    re->code = pcre2_compile((PCRE2_SPTR)(t.out ? t.out : ""), t.used,
                             PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C |
                                 PCRE2_NO_AUTO_CAPTURE,
                             &code, &offset, ctx);
    if (!re->code) {
        char text[120] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof(text));
        rc = alq_err_set(err, ALQ_EINVAL, "regular expression: %s in \"%.*s\"", text,
                         (int)(len > 60 ? 60 : len), pattern);
        goto out;
    }
    re->limits = pcre2_match_context_create(NULL);
    if (!re->limits) {
        alq_err_set(err, rc, "out of memory");
        goto out;
    }
    pcre2_set_match_limit(re->limits, MATCH_LIMIT);
    pcre2_set_depth_limit(re->limits, DEPTH_LIMIT);
    pcre2_set_heap_limit(re->limits, HEAP_LIMIT_KIB);
    *out = re;
    re = NULL;
    rc = 0;
out:
    alq_cel_regex_free(re);
    pcre2_compile_context_free(ctx);
    free(t.out);
    return rc;
}

void alq_cel_regex_free(struct alq_cel_regex *re)
{
    if (!re)
        return;
    pcre2_code_free(re->code);
    pcre2_match_context_free(re->limits);
    free(re);
}

int alq_cel_regex_search(const struct alq_cel_regex *re, const char *text, size_t len, bool *found,
                         struct alq_err *err)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int rc;

    if (!data)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    rc = pcre2_match(re->code, (PCRE2_SPTR)text, len, 0, 0, data, re->limits);
    pcre2_match_data_free(data);
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) {
        *found = rc >= 0;
        return 0;
    }
    if (rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT)
        return alq_err_set(err, ALQ_ERANGE, "regular expression needs too much work on this text");
    char why[120] = "";
    pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
    return alq_err_set(err, ALQ_EINVAL, "regular expression: %s", why);
}
