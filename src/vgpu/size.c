/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/size.h"

#include "vgpu/text.h"

static const char *skip_blanks(const char *s)
{
    while (*s == ' ' || *s == '\t' || *s == '\n' || *s == '\r')
        s++;
    return s;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads a suffix into the power of two that it stands for. */
static bool read_suffix(const char **s, unsigned *shift)
{
    const char *letters = "kmgtp", *p = *s;
    char c = (char)(*p | 0x20);

    *shift = 0;
    for (unsigned i = 0; letters[i]; i++)
        if (c == letters[i]) {
            *shift = 10 * (i + 1);
            p++;
            if ((*p | 0x20) == 'i')
                p++;
            break;
        }
    if ((*p | 0x20) == 'b')
        p++;
    *s = skip_blanks(p);
    return **s == '\0';
}

#define TOP (1ull << 63) /* the largest amount */
#define SCALE_MAX                                                                                  \
    1000000000000000000u /* places of a fraction that are kept; beyond them nothing is left of a   \
                            byte */

/* A decimal number as whole + fraction / scale. */
struct number {
    uint64_t whole, fraction, scale;
};

static bool times_ten(struct number *n, unsigned add)
{
    if (n->whole > TOP / 10)
        return false;
    n->whole = n->whole * 10 + add;
    return n->whole <= TOP;
}

static bool read_number(const char **text, struct number *n)
{
    bool has_digits = false;
    const char *s = *text;

    *n = (struct number){0, 0, 1};
    for (; is_digit(*s); s++, has_digits = true)
        if (!times_ten(n, (unsigned)(*s - '0')))
            return false;
    if (*s == '.')
        for (s++; is_digit(*s); s++, has_digits = true)
            if (n->scale < SCALE_MAX) {
                n->fraction = n->fraction * 10 + (uint64_t)(*s - '0');
                n->scale *= 10;
            }
    *text = s;
    return has_digits;
}

/* e, E and a whole number: the decimal point moves. */
static bool read_exponent(const char **text, struct number *n)
{
    const char *s = *text;
    uint64_t exponent;

    if ((*s | 0x20) != 'e')
        return true;
    bool is_negative = s[1] == '-';
    s += s[1] == '+' || s[1] == '-' ? 2 : 1;
    if (!alq_text_read_u64(&s, &exponent) || exponent > 18)
        return false;
    for (; exponent; exponent--) {
        if (is_negative) {
            if (n->scale >= SCALE_MAX)
                return false;
            n->fraction += n->whole % 10 * n->scale;
            n->whole /= 10;
            n->scale *= 10;
        } else {
            uint64_t tenth = n->scale >= 10 ? n->scale / 10 : 1;
            uint64_t digit = n->scale >= 10 ? n->fraction / tenth : 0;
            if (!times_ten(n, (unsigned)digit))
                return false;
            n->fraction -= digit * tenth;
            n->scale = tenth;
        }
    }
    *text = s;
    return true;
}

bool alq_size_read(const char *text, uint64_t *bytes)
{
    struct number n;
    unsigned shift;
    const char *s = skip_blanks(text);

    if (*s == '\0') {
        *bytes = 0;
        return true;
    }
    if (*s == '+')
        s++;
    if (!read_number(&s, &n) || !read_exponent(&s, &n))
        return false;
    s = skip_blanks(s);
    if (!read_suffix(&s, &shift) || n.whole > TOP >> shift)
        return false;
    uint64_t value = n.whole << shift, part = 0;
    for (; shift; shift--) { /* fraction * 2^shift / scale, a bit at a time */
        n.fraction *= 2;
        part = part << 1 | (n.fraction >= n.scale);
        if (n.fraction >= n.scale)
            n.fraction -= n.scale;
    }
    if (value + part > TOP)
        return false;
    *bytes = value + part;
    return true;
}

bool alq_percent_read(const char *text, uint32_t *percent)
{
    uint64_t value = 0;
    const char *s = skip_blanks(text);

    if (*s != '\0' && !alq_text_read_u64(&s, &value))
        return false;
    s = skip_blanks(s);
    if (*s == '%')
        s = skip_blanks(s + 1);
    if (*s != '\0')
        return false;
    *percent = value > 100 ? 100 : (uint32_t)value;
    return true;
}
