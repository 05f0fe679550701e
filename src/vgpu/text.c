/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/text.h"

size_t alq_text_len(const char *s)
{
    size_t n = 0;
    while (s[n])
        n++;
    return n;
}

bool alq_text_is(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return *a == *b;
}

bool alq_text_starts(const char *s, const char *prefix)
{
    while (*prefix)
        if (*s++ != *prefix++)
            return false;
    return true;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool alq_text_is_nocase(const char *a, const char *b)
{
    while (*a && lower(*a) == lower(*b))
        a++, b++;
    return lower(*a) == lower(*b);
}

bool alq_text_is_uuid(const char *a, const char *b)
{
    return alq_text_len(a) > 4 && alq_text_len(b) > 4 && alq_text_is_nocase(a + 4, b + 4);
}

void alq_text_add_n(struct alq_text *text, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text->len + 1 >= text->size) {
            text->is_cut = true;
            break;
        }
        text->at[text->len++] = s[i];
    }
    text->at[text->len] = '\0';
}

void alq_text_add(struct alq_text *text, const char *s)
{
    alq_text_add_n(text, s, alq_text_len(s));
}

void alq_text_add_u64(struct alq_text *text, uint64_t value)
{
    char digits[20];
    size_t n = sizeof(digits);
    do
        digits[--n] = (char)('0' + value % 10);
    while (value /= 10);
    alq_text_add_n(text, digits + n, sizeof(digits) - n);
}

void alq_text_add_hex2(struct alq_text *text, unsigned char byte)
{
    const char *hex = "0123456789abcdef";
    alq_text_add_n(text, &hex[byte >> 4], 1);
    alq_text_add_n(text, &hex[byte & 15], 1);
}

bool alq_text_read_u64(const char **s, uint64_t *out)
{
    uint64_t value = 0;
    const char *p = *s;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    *s = p;
    *out = value;
    return true;
}
