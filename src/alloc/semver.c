/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses and orders semantic versions. Owns nothing, calls nothing but base/err; any thread.
 */
#include "alloc/semver.h"

#include <string.h>

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_ident_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
}

static int bad(struct alq_err *err, const char *text, size_t len, const char *why)
{
    return alq_err_set(err, ALQ_EINVAL, "\"%.*s\" is not a semantic version: %s",
                       (int)(len > 80 ? 80 : len), text, why);
}

/* Reads one number at *at; an empty one is an error. */
static int number(const char *text, size_t len, size_t *at, int is_lenient, uint64_t *value,
                  struct alq_err *err)
{
    size_t start = *at;
    uint64_t n = 0;

    while (*at < len && is_digit(text[*at])) {
        if (__builtin_mul_overflow(n, (uint64_t)10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(text[*at] - '0'), &n))
            return alq_err_set(err, ALQ_ERANGE, "\"%.*s\" has a version number that is too large",
                               (int)(len > 80 ? 80 : len), text);
        (*at)++;
    }
    if (*at == start)
        return bad(err, text, len, "a number is missing");
    if (!is_lenient && *at - start > 1 && text[start] == '0')
        return bad(err, text, len, "a number has a leading zero");
    *value = n;
    return 0;
}

/* Checks the dot-separated identifiers of text[at..end); numeric ones of a pre-release have no
 * leading zero. */
static int identifiers(const char *text, size_t len, size_t at, size_t end, int is_pre,
                       struct alq_err *err)
{
    size_t start = at;

    for (;; at++) {
        if (at < end && text[at] != '.') {
            if (!is_ident_char(text[at]))
                return bad(err, text, len, "unexpected character");
            continue;
        }
        if (at == start)
            return bad(err, text, len, "an identifier is empty");
        int is_numeric = 1;
        for (size_t i = start; i < at; i++)
            is_numeric &= is_digit(text[i]);
        if (is_pre && is_numeric && at - start > 1 && text[start] == '0')
            return bad(err, text, len, "a number has a leading zero");
        if (at >= end)
            return 0;
        start = at + 1;
    }
}

static int parse(const char *text, size_t len, int is_lenient, struct alq_semver *v,
                 struct alq_err *err)
{
    struct alq_semver out = {0};
    uint64_t *const parts[3] = {&out.major, &out.minor, &out.patch};
    size_t at = 0;
    int rc;

    if (is_lenient && len > 0 && text[0] == 'v')
        at++;
    for (int i = 0; i < 3; i++) {
        if (i > 0) {
            if (at >= len || text[at] != '.') {
                if (is_lenient)
                    break;
                return bad(err, text, len, "three numbers are needed");
            }
            at++;
        }
        rc = number(text, len, &at, is_lenient, parts[i], err);
        if (rc)
            return rc;
    }
    const char *build = at < len ? memchr(text + at, '+', len - at) : NULL;
    size_t core_end = build ? (size_t)(build - text) : len;
    if (at < core_end) {
        if (text[at] != '-')
            return bad(err, text, len, "unexpected character");
        out.pre = text + at + 1;
        out.pre_len = core_end - at - 1;
        rc = identifiers(text, len, at + 1, core_end, 1, err);
        if (rc)
            return rc;
    }
    if (build) {
        rc = identifiers(text, len, core_end + 1, len, 0, err);
        if (rc)
            return rc;
    }
    *v = out;
    return 0;
}

int alq_semver_parse(const char *text, size_t len, struct alq_semver *v, struct alq_err *err)
{
    return parse(text, len, 0, v, err);
}

int alq_semver_parse_lenient(const char *text, size_t len, struct alq_semver *v,
                             struct alq_err *err)
{
    return parse(text, len, 1, v, err);
}

static int cmp_u64(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Orders two identifiers: numeric ones by value and before the others, which go by their bytes. */
static int cmp_ident(const char *a, size_t alen, const char *b, size_t blen)
{
    int a_num = 1, b_num = 1;

    for (size_t i = 0; i < alen; i++)
        a_num &= is_digit(a[i]);
    for (size_t i = 0; i < blen; i++)
        b_num &= is_digit(b[i]);
    if (a_num != b_num)
        return a_num ? -1 : 1;
    if (a_num && alen != blen) /* no leading zeros, so the longer number is the larger */
        return alen < blen ? -1 : 1;
    int c = memcmp(a, b, alen < blen ? alen : blen);
    if (c)
        return c < 0 ? -1 : 1;
    return cmp_u64(alen, blen);
}

int alq_semver_cmp(const struct alq_semver *a, const struct alq_semver *b)
{
    int c = cmp_u64(a->major, b->major);

    if (!c)
        c = cmp_u64(a->minor, b->minor);
    if (!c)
        c = cmp_u64(a->patch, b->patch);
    if (c)
        return c;
    if (!a->pre_len || !b->pre_len)
        return (a->pre_len == 0) - (b->pre_len == 0);

    const char *pa = a->pre, *pb = b->pre, *ea = pa + a->pre_len, *eb = pb + b->pre_len;
    while (pa < ea && pb < eb) {
        const char *da = memchr(pa, '.', (size_t)(ea - pa)),
                   *db = memchr(pb, '.', (size_t)(eb - pb));
        if (!da)
            da = ea;
        if (!db)
            db = eb;
        c = cmp_ident(pa, (size_t)(da - pa), pb, (size_t)(db - pb));
        if (c)
            return c;
        pa = da + 1;
        pb = db + 1;
    }
    return (pa < ea) - (pb < eb);
}
