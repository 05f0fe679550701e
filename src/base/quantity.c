/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantities in exact arithmetic. A number is kept as its digits and the place of its point until
 * the suffix is known, so that no length of input and no mixture of fraction and multiplier loses a
 * digit before the one rounding at the end. Pure functions: no allocation, no locale, no errno; any
 * thread.
 */
#include "base/quantity.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef unsigned __int128 u128;

#define NANO ((u128)1000000000)
#define MAX_NANO ((u128)INT64_MAX * NANO)
/* 10^19 > 2^63: a whole number of more digits is out of range. */
#define MAX_WHOLE_DIGITS 19
/* Exponents beyond this act alike: out of range, or rounded to one nano-unit. */
#define EXPONENT_CAP 1000000000

/* What text[0..len) says, before its suffix is applied: digits, with the point behind the first
 * `whole` of them. */
struct number {
    int is_negative;
    const char *digits; /* may hold one '.', at digits[whole] */
    size_t whole;       /* digits before the point */
    size_t count;       /* digits in all */
};

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static unsigned digit_at(const struct number *n, size_t i)
{
    return (unsigned)(n->digits[i < n->whole ? i : i + 1] - '0');
}

/* Text of the user in an error: printable and short. */
static const char *shown(const char *text, size_t len, char *buf, size_t size)
{
    size_t n = 0;
    for (; n < len && n < size - 4; n++)
        buf[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    strcpy(buf + n, n < len ? "..." : "");
    return buf;
}

static int not_a_quantity(const char *text, size_t len, struct alq_err *err)
{
    char buf[64];
    return alq_err_set(err, ALQ_EINVAL, "\"%s\" is not a quantity (examples: 4Gi, 1500M, 0.5, 1e3)",
                       shown(text, len, buf, sizeof(buf)));
}

static int out_of_range(const char *text, size_t len, struct alq_err *err)
{
    char buf[64];
    return alq_err_set(err, ALQ_ERANGE, "quantity \"%s\" is too large",
                       shown(text, len, buf, sizeof(buf)));
}

/* Sign, digits and point. Returns the bytes taken, 0 when there is no digit. "5." and ".5" are
 * numbers to Kubernetes. */
static size_t scan_number(const char *text, size_t len, struct number *n)
{
    size_t pos = 0;
    n->is_negative = len > 0 && text[0] == '-';
    if (len > 0 && (text[0] == '-' || text[0] == '+'))
        pos++;
    n->digits = text + pos;
    n->whole = 0;
    while (pos < len && is_digit(text[pos])) {
        pos++;
        n->whole++;
    }
    n->count = n->whole;
    if (pos < len && text[pos] == '.') {
        pos++;
        while (pos < len && is_digit(text[pos])) {
            pos++;
            n->count++;
        }
    }
    return n->count ? pos : 0;
}

static int finish(const struct number *n, u128 nano, int is_inexact, struct alq_quantity *q)
{
    nano += is_inexact ? 1 : 0;
    if (nano > MAX_NANO)
        return ALQ_ERANGE;
    q->nano = n->is_negative ? -(__int128)nano : (__int128)nano;
    return 0;
}

/* value * 10^exponent: moves the point, then reads the digits down to the ninth decimal. */
static int scale_decimal(const struct number *n, int64_t exponent, struct alq_quantity *q)
{
    size_t first = 0;
    while (first < n->count && digit_at(n, first) == 0)
        first++;
    if (first == n->count)
        return finish(n, 0, 0, q);

    int64_t whole = (int64_t)n->whole - (int64_t)first + exponent;
    if (whole > MAX_WHOLE_DIGITS)
        return ALQ_ERANGE;
    int64_t wanted = whole + 9;
    u128 nano = 0;
    size_t i = first;
    for (; wanted > 0; wanted--) {
        nano = nano * 10 + (i < n->count ? digit_at(n, i) : 0u);
        i++;
    }
    int is_inexact = 0;
    for (; i < n->count && !is_inexact; i++)
        is_inexact = digit_at(n, i) != 0;
    return finish(n, nano, is_inexact, q);
}

/* value * 2^shift, shift <= 60. */
static int scale_binary(const struct number *n, unsigned shift, struct alq_quantity *q)
{
    u128 whole = 0;
    for (size_t i = 0; i < n->whole; i++) {
        whole = whole * 10 + digit_at(n, i);
        if (whole > (u128)(INT64_MAX >> shift))
            return ALQ_ERANGE;
    }
    u128 unit = NANO << shift;

    /* From the last decimal to the first; the floor of each step keeps the result exact, because
     * floor((m + x) / 10) is floor((m + floor(x)) / 10) for a whole m. */
    u128 fraction = 0;
    int is_inexact = 0;
    for (size_t i = n->count; i > n->whole; i--) {
        u128 sum = digit_at(n, i - 1) * unit + fraction;
        is_inexact |= sum % 10 != 0;
        fraction = sum / 10;
    }
    return finish(n, whole * unit + fraction, is_inexact, q);
}

/* The power of 1000 or 1024 of a prefix letter, 0 for none. */
static unsigned prefix_power(char c)
{
    static const char letters[] = "KMGTPE";
    const char *p = c ? strchr(letters, c == 'k' ? 'K' : c) : NULL;
    return p ? (unsigned)(p - letters) + 1 : 0;
}

/* e3, E+3, e-12. Returns 0 unless all of suffix is one. */
static int scan_exponent(const char *suffix, size_t len, int64_t *exponent)
{
    if (len < 2 || (suffix[0] != 'e' && suffix[0] != 'E'))
        return 0;
    size_t pos = 1;
    int is_negative = suffix[1] == '-';
    if (suffix[1] == '-' || suffix[1] == '+')
        pos++;
    if (pos == len)
        return 0;
    int64_t e = 0;
    for (; pos < len; pos++) {
        if (!is_digit(suffix[pos]))
            return 0;
        e = e * 10 + (suffix[pos] - '0');
        if (e > EXPONENT_CAP)
            e = EXPONENT_CAP;
    }
    *exponent = is_negative ? -e : e;
    return 1;
}

/* Kubernetes' suffixes. Returns 0, ALQ_ERANGE, or ALQ_EINVAL for a suffix that is none of them. */
static int apply_suffix(const struct number *n, const char *suffix, size_t len,
                        struct alq_quantity *q)
{
    int64_t exponent;
    if (len == 0)
        return scale_decimal(n, 0, q);
    if (len == 2 && suffix[1] == 'i' && suffix[0] != 'k' && prefix_power(suffix[0]))
        return scale_binary(n, prefix_power(suffix[0]) * 10, q);
    if (scan_exponent(suffix, len, &exponent))
        return scale_decimal(n, exponent, q);
    if (len != 1)
        return ALQ_EINVAL;
    switch (suffix[0]) {
    case 'n':
        return scale_decimal(n, -9, q);
    case 'u':
        return scale_decimal(n, -6, q);
    case 'm':
        return scale_decimal(n, -3, q);
    case 'K':
        return ALQ_EINVAL;
    default:
        break;
    }
    unsigned power = prefix_power(suffix[0]);
    return power ? scale_decimal(n, 3 * (int64_t)power, q) : ALQ_EINVAL;
}

int alq_quantity_parse(const char *text, size_t len, struct alq_quantity *q, struct alq_err *err)
{
    struct number n;
    size_t pos = scan_number(text, len, &n);
    if (pos == 0)
        return not_a_quantity(text, len, err);
    int rc = apply_suffix(&n, text + pos, len - pos, q);
    if (rc == ALQ_ERANGE)
        return out_of_range(text, len, err);
    if (rc < 0)
        return not_a_quantity(text, len, err);
    return 0;
}

int alq_quantity_cmp(struct alq_quantity a, struct alq_quantity b)
{
    return a.nano < b.nano ? -1 : a.nano > b.nano;
}

struct alq_quantity alq_quantity_from_u64(uint64_t units)
{
    return (struct alq_quantity){(__int128)units * (__int128)NANO};
}

int alq_quantity_to_u64(struct alq_quantity q, uint64_t *units, struct alq_err *err)
{
    char buf[ALQ_QUANTITY_TEXT_BYTES];
    if (q.nano < 0) {
        alq_quantity_format(q, 0, buf);
        return alq_err_set(err, ALQ_ERANGE, "quantity %s is negative", buf);
    }
    u128 whole = ((u128)q.nano + NANO - 1) / NANO;
    if (whole > UINT64_MAX) {
        alq_quantity_format(q, 0, buf);
        return alq_err_set(err, ALQ_ERANGE, "quantity %s is too large", buf);
    }
    *units = (uint64_t)whole;
    return 0;
}

static void write_number(int is_negative, u128 value, const char *suffix, char *buf)
{
    char digits[40];
    size_t n = sizeof(digits);
    do {
        digits[--n] = (char)('0' + (int)(value % 10));
        value /= 10;
    } while (value);
    size_t pos = 0;
    if (is_negative)
        buf[pos++] = '-';
    memcpy(buf + pos, digits + n, sizeof(digits) - n);
    pos += sizeof(digits) - n;
    strcpy(buf + pos, suffix);
}

void alq_quantity_format(struct alq_quantity q, int as_binary, char *buf)
{
    static const char *const binary[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    static const char *const decimal[] = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E"};
    int is_negative = q.nano < 0;
    u128 nano = is_negative ? -(u128)q.nano : (u128)q.nano;
    if (nano == 0) {
        strcpy(buf, "0");
        return;
    }
    /* Kubernetes shows a binary quantity in decimal when it is small or not whole. */
    if (as_binary && nano >= 1024 * NANO && nano % NANO == 0) {
        u128 value = nano / NANO;
        size_t power = 0;
        for (; value % 1024 == 0 && power < 6; power++)
            value /= 1024;
        write_number(is_negative, value, binary[power], buf);
        return;
    }
    size_t power = 0;
    for (; nano % 1000 == 0 && power < 9; power++)
        nano /= 1000;
    write_number(is_negative, nano, decimal[power], buf);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/*
 * Sizes that are no quantities: K alone, and a prefix in any case with b or ib behind it. In
 * HAMi-core's dialect every prefix counts in 1024s, also without i and in lower case.
 */
static int apply_size_suffix(const struct number *n, const char *suffix, size_t len, int is_hami,
                             struct alq_quantity *q)
{
    int has_b = len > 0 && lower(suffix[len - 1]) == 'b';
    size_t rest = len - (has_b ? 1 : 0);
    if (rest == 0)
        return scale_decimal(n, 0, q);
    char c = lower(suffix[0]);
    unsigned power = prefix_power((char)(c - 'a' + 'A'));
    int has_i = rest == 2 && lower(suffix[1]) == 'i';
    int is_bare_e = len == 1 && suffix[0] == 'e'; /* an exponent without its digits */
    if (!power || is_bare_e || (rest == 2 && !has_i) || rest > 2)
        return ALQ_EINVAL;
    if (has_i || is_hami)
        return scale_binary(n, power * 10, q);
    /* Without HAMi's rule a lone small letter could mean either unit: only K, which no other
     * reading has, is taken. */
    if (!has_b && suffix[0] != 'K')
        return ALQ_EINVAL;
    return scale_decimal(n, 3 * (int64_t)power, q);
}

static int is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

int alq_bytes_parse(const char *text, int is_hami, uint64_t *bytes, struct alq_err *err)
{
    char buf[64];
    const char *start = text;
    while (is_blank(*start))
        start++;
    size_t len = strlen(start);
    while (len > 0 && is_blank(start[len - 1]))
        len--;

    struct number n;
    struct alq_quantity q;
    size_t pos = scan_number(start, len, &n);
    int rc = ALQ_EINVAL;
    if (pos > 0) {
        while (pos < len && is_blank(start[pos]))
            pos++;
        const char *suffix = start + pos;
        size_t suffix_len = len - pos;
        int64_t exponent;
        if (!is_hami)
            rc = apply_suffix(&n, suffix, suffix_len, &q);
        else if (scan_exponent(suffix, suffix_len, &exponent))
            rc = scale_decimal(&n, exponent, &q);
        if (rc == ALQ_EINVAL)
            rc = apply_size_suffix(&n, suffix, suffix_len, is_hami, &q);
    }
    if (rc == ALQ_ERANGE)
        return out_of_range(start, len, err);
    if (rc < 0)
        return alq_err_set(
            err, ALQ_EINVAL,
            "\"%s\" is not a size in bytes (examples: 4Gi, 4096Mi, 1.5G, 4294967296)",
            shown(start, len, buf, sizeof(buf)));
    return alq_quantity_to_u64(q, bytes, err);
}
