/* SPDX-License-Identifier: Apache-2.0 */
/* A checking JSON reader, see oci.h. A value that lies on the way to the wanted one is read with
 * the names still to come; all others with NULL. */
#include "hook/oci.h"

#include <linux/errno.h>
#include <stdbool.h>

#include "vgpu/text.h"

struct reader {
    const char *at, *end;
    char *out;
    size_t out_bytes, out_len;
    int depth;
    int rc; /* of the wanted value: -ENOENT until it was seen */
};

static bool read_value(struct reader *r, const char *const *names);

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static bool take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

static bool take_word(struct reader *r, const char *word)
{
    for (; *word; word++, r->at++) {
        if (r->at == r->end || *r->at != *word)
            return false;
    }
    return true;
}

static bool take_digits(struct reader *r)
{
    const char *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9')
        r->at++;
    return r->at > start;
}

static bool take_number(struct reader *r)
{
    if (r->at < r->end && *r->at == '-')
        r->at++;
    if (r->at < r->end && *r->at == '0')
        r->at++;
    else if (!take_digits(r))
        return false;
    if (r->at < r->end && *r->at == '.') {
        r->at++;
        if (!take_digits(r))
            return false;
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        r->at++;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            r->at++;
        return take_digits(r);
    }
    return true;
}

/* ---- strings ---- */

/* A string's bytes, into a buffer or nowhere. */
struct sink {
    char *out;
    size_t bytes, len;
    bool is_cut, has_nul;
};

static void put(struct sink *sink, unsigned int byte)
{
    if (!byte)
        sink->has_nul = true;
    if (sink->len + 1 < sink->bytes)
        sink->out[sink->len++] = (char)byte;
    else
        sink->is_cut = true;
}

static void put_utf8(struct sink *sink, unsigned int code)
{
    if (code < 0x80) {
        put(sink, code);
    } else if (code < 0x800) {
        put(sink, 0xc0 | code >> 6);
        put(sink, 0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        put(sink, 0xe0 | code >> 12);
        put(sink, 0x80 | (code >> 6 & 0x3f));
        put(sink, 0x80 | (code & 0x3f));
    } else {
        put(sink, 0xf0 | code >> 18);
        put(sink, 0x80 | (code >> 12 & 0x3f));
        put(sink, 0x80 | (code >> 6 & 0x3f));
        put(sink, 0x80 | (code & 0x3f));
    }
}

static bool take_hex4(struct reader *r, unsigned int *code)
{
    *code = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        if (r->at == r->end)
            return false;
        unsigned int c = (unsigned char)*r->at;
        unsigned int letter = c | 0x20;
        if (c >= '0' && c <= '9')
            *code = *code << 4 | (c - '0');
        else if (letter >= 'a' && letter <= 'f')
            *code = *code << 4 | (letter - 'a' + 10);
        else
            return false;
    }
    return true;
}

/* What follows "\u". Half a surrogate pair is no character. */
static bool take_unicode(struct reader *r, struct sink *sink)
{
    unsigned int code, low;
    if (!take_hex4(r, &code) || (code >= 0xdc00 && code < 0xe000))
        return false;
    if (code >= 0xd800 && code < 0xdc00) {
        if (!take_word(r, "\\u") || !take_hex4(r, &low) || low < 0xdc00 || low >= 0xe000)
            return false;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(sink, code);
    return true;
}

static bool take_escape(struct reader *r, struct sink *sink)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (r->at == r->end)
        return false;
    char c = *r->at++;
    if (c == 'u')
        return take_unicode(r, sink);
    for (size_t i = 0; i < sizeof(letters) - 1; i++) {
        if (letters[i] == c) {
            put(sink, (unsigned char)meant[i]);
            return true;
        }
    }
    return false;
}

static bool take_string(struct reader *r, struct sink *sink)
{
    if (!take(r, '"'))
        return false;
    while (r->at < r->end && *r->at != '"') {
        unsigned char c = (unsigned char)*r->at++;
        if (c < ' ')
            return false;
        if (c != '\\')
            put(sink, c);
        else if (!take_escape(r, sink))
            return false;
    }
    if (r->at == r->end)
        return false;
    r->at++;
    if (sink->bytes)
        sink->out[sink->len] = '\0';
    return true;
}

/* ---- values ---- */

static bool take_array(struct reader *r)
{
    if (take(r, ']'))
        return true;
    do {
        if (!read_value(r, NULL))
            return false;
    } while (take(r, ','));
    return take(r, ']');
}

static bool take_object(struct reader *r, const char *const *names)
{
    if (take(r, '}'))
        return true;
    do {
        char name[64];
        struct sink sink = {.out = name, .bytes = sizeof(name)};
        skip_space(r);
        if (!take_string(r, &sink) || !take(r, ':'))
            return false;
        bool is_next =
            names && names[0] && !sink.is_cut && !sink.has_nul && alq_text_is(name, names[0]);
        if (!read_value(r, is_next ? names + 1 : NULL))
            return false;
    } while (take(r, ','));
    return take(r, '}');
}

static bool take_wanted(struct reader *r)
{
    bool is_again = r->rc != -ENOENT;
    struct sink sink = {.out = r->out, .bytes = r->out_bytes};
    if (r->at == r->end || *r->at != '"') {
        r->rc = -EINVAL;
        return read_value(r, NULL);
    }
    if (!take_string(r, &sink))
        return false;
    r->rc = is_again || sink.has_nul ? -EINVAL : sink.is_cut ? -ENAMETOOLONG : 0;
    return true;
}

static bool read_value(struct reader *r, const char *const *names)
{
    struct sink nowhere = {0};
    bool is_good = false;
    skip_space(r);
    if (names && !names[0])
        return take_wanted(r);
    if (r->at == r->end || r->depth == ALQ_OCI_DEPTH_MAX)
        return false;
    r->depth++;
    switch (*r->at) {
    case '{':
        r->at++;
        is_good = take_object(r, names);
        break;
    case '[':
        r->at++;
        is_good = take_array(r);
        break;
    case '"':
        is_good = take_string(r, &nowhere);
        break;
    case 't':
        is_good = take_word(r, "true");
        break;
    case 'f':
        is_good = take_word(r, "false");
        break;
    case 'n':
        is_good = take_word(r, "null");
        break;
    default:
        is_good = take_number(r);
    }
    r->depth--;
    return is_good;
}

int alq_oci_string(const char *text, size_t len, const char *const *names, char *out,
                   size_t out_bytes)
{
    struct reader r = {
        .at = text, .end = text + len, .out = out, .out_bytes = out_bytes, .rc = -ENOENT};
    out[0] = '\0';
    bool is_good = read_value(&r, names);
    skip_space(&r);
    if (!is_good || r.at != r.end)
        r.rc = -EBADMSG;
    if (r.rc)
        out[0] = '\0';
    return r.rc;
}
