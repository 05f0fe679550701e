/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scanner for PTX declarations: words, punctuation, comments. Of a kernel's body only its shared
 * and local variables are read; instructions are skipped.
 */
#include "common/image.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE_BYTES_MAX (1ull << 40)
#define INITIAL_BYTES_MAX (64u << 20) /* a longer initialiser is not kept */
#define NAME_BYTES 4096
#define DIMENSIONS 8
#define THREADS_MAX 1024u

struct scan {
    const char *at;
    char word[NAME_BYTES]; /* the current token; "" at the end */
};

static const char *skip_blanks(const char *p)
{
    for (;;) {
        if (isspace((unsigned char)*p)) {
            p++;
        } else if (p[0] == '/' && p[1] == '/') {
            while (*p && *p != '\n')
                p++;
        } else if (p[0] == '/' && p[1] == '*') {
            const char *end = strstr(p + 2, "*/");

            p = end ? end + 2 : p + strlen(p);
        } else {
            return p;
        }
    }
}

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%' || c == '.';
}

/* Next token into s->word. A name too long for it is cut, and then names nothing. */
static void next(struct scan *s)
{
    size_t n = 0;

    s->at = skip_blanks(s->at);
    if (*s->at == '"') {
        s->at++;
        while (*s->at && *s->at != '"')
            s->at++;
        s->at += *s->at == '"';
        strcpy(s->word, "\"");
        return;
    }
    if (!is_word(*s->at)) {
        s->word[0] = *s->at;
        s->word[1] = '\0';
        s->at += *s->at != '\0';
        return;
    }
    for (; is_word(*s->at); s->at++) {
        if (n && *s->at == '.') /* ".param.u64" and "name.x" are read word by word */
            break;
        if (n < sizeof(s->word) - 1)
            s->word[n++] = *s->at;
    }
    s->word[n] = '\0';
}

static int is(const struct scan *s, const char *word)
{
    return strcmp(s->word, word) == 0;
}

/* Bytes of a fundamental type such as ".u64" or ".b8", 0 for another word. */
static uint32_t type_bytes(const char *word)
{
    unsigned long bits;
    char *end;

    if (word[0] != '.' || !word[1] || !strchr("bsuf", word[1]))
        return strcmp(word, ".pred") == 0 ? 1 : 0;
    bits = strtoul(word + 2, &end, 10);
    if (*end || (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128))
        return 0;
    return (uint32_t)bits / 8;
}

static void skip_braces(struct scan *s)
{
    for (int depth = 0; s->word[0]; next(s)) {
        if (is(s, "{"))
            depth++;
        else if (is(s, "}") && --depth == 0)
            return;
    }
}

struct variable {
    char name[NAME_BYTES];
    uint32_t align, element;     /* bytes of its fundamental type */
    uint64_t bytes;              /* of all of it */
    uint64_t stride[DIMENSIONS]; /* of one item at a depth of braces; 0 is the whole */
    uint32_t depth;
    bool is_managed, is_unsized;
};

/* The words before a variable's name: [.attribute(..)] [.align N] [.v2] .type */
static void type_words(struct scan *s, struct variable *v, uint64_t *vector)
{
    bool is_pointer = false;

    for (;; next(s)) {
        if (is(s, ".align")) {
            next(s);
            if (!is_pointer) /* else it says how aligned what it points to is */
                v->align = (uint32_t)strtoul(s->word, NULL, 10);
        } else if (is(s, ".ptr")) {
            is_pointer = true;
        } else if (is(s, ".attribute")) {
            for (next(s); s->word[0] && !is(s, ")"); next(s))
                v->is_managed |= is(s, ".managed");
        } else if (is(s, ".texref") || is(s, ".samplerref") || is(s, ".surfref")) {
            v->element = 8; /* opaque handles */
        } else if (is(s, ".v2")) {
            *vector = 2;
        } else if (is(s, ".v4")) {
            *vector = 4;
        } else if (s->word[0] == '.') {
            v->element = type_bytes(s->word) ? type_bytes(s->word) : v->element;
        } else {
            return;
        }
    }
}

/* From after the state space word to the token after the dimensions. */
static int variable(struct scan *s, struct variable *v)
{
    uint64_t vector = 1, dimension[DIMENSIONS];

    memset(v, 0, sizeof(*v));
    type_words(s, v, &vector);
    if (!v->element || !is_word(s->word[0]))
        return -EINVAL;
    strcpy(v->name, s->word);
    for (next(s); is(s, "["); next(s)) {
        uint64_t *n = &dimension[v->depth];

        if (++v->depth == DIMENSIONS)
            return -EINVAL;
        next(s);
        *n = 1;
        if (is(s, "]")) {
            v->is_unsized = true; /* as many as its initialiser has */
            continue;
        }
        *n = strtoull(s->word, NULL, 0);
        next(s);
        if (!is(s, "]"))
            return -EINVAL;
    }
    v->bytes = v->element * vector;
    if (!v->align)
        v->align = (uint32_t)v->bytes;
    v->stride[v->depth] = v->bytes;
    for (uint32_t i = v->depth; i-- > 0;) {
        if (__builtin_mul_overflow(v->bytes, dimension[i], &v->bytes) ||
            v->bytes > VARIABLE_BYTES_MAX)
            return -EINVAL;
        v->stride[i] = v->bytes;
    }
    return 0;
}

/* The bits of a number as it stands in PTX; 0 for a name, whose address is not known here. */
static uint64_t number(const char *word, bool is_negative)
{
    bool is_bits = word[0] == '0' && word[1] && strchr("fFdD", word[1]);
    uint64_t n = strtoull(is_bits ? word + 2 : word, NULL, is_bits ? 16 : 0);

    return is_negative ? 0 - n : n;
}

/* One value, up to the comma or brace that ends it; written little-endian as the host has it. */
static int value(struct scan *s, const struct variable *v, uint64_t at, struct sim_image_global *g)
{
    bool is_negative = is(s, "-");
    uint64_t bits, end = at + v->element;
    int parens = 0;

    if (is_negative)
        next(s);
    bits = number(s->word, is_negative);
    for (; s->word[0] && !is(s, ";") && (parens || (!is(s, ",") && !is(s, "}"))); next(s)) {
        parens += is(s, "(");
        parens -= parens > 0 && is(s, ")");
    }
    if (!bits || end > INITIAL_BYTES_MAX)
        return 0;
    if (end > g->initial_bytes) {
        size_t room = end > 2 * g->initial_bytes ? end : 2 * g->initial_bytes;
        char *more = realloc(g->initial, room);

        if (!more)
            return -ENOMEM;
        memset(more + g->initial_bytes, 0, room - g->initial_bytes);
        g->initial = more;
        g->initial_bytes = room;
    }
    memcpy((char *)g->initial + at, &bits, v->element < sizeof(bits) ? v->element : sizeof(bits));
    return 0;
}

/* After "=": one value, or braces in braces, each closing one filled up with zeroes. */
static int initialiser(struct scan *s, const struct variable *v, struct sim_image_global *g)
{
    uint64_t at = 0, start[DIMENSIONS + 1] = {0}, most = 0;
    uint32_t depth = 0;
    int rc = 0;

    for (next(s); rc == 0 && s->word[0] && !is(s, ";");) {
        if (is(s, "{")) {
            if (depth == DIMENSIONS)
                return -EINVAL;
            start[depth++] = at;
            next(s);
        } else if (is(s, "}")) {
            if (!depth--)
                return -EINVAL;
            if (depth && depth <= v->depth) /* the outermost ends where its values do */
                at = start[depth] + v->stride[depth];
            next(s);
        } else if (is(s, ",")) {
            next(s);
        } else {
            rc = value(s, v, at, g);
            at += v->element;
        }
        most = at > most ? at : most;
    }
    if (v->is_unsized && most <= VARIABLE_BYTES_MAX)
        g->bytes = most;
    if (g->initial_bytes > g->bytes)
        g->initial_bytes = g->bytes;
    return rc;
}

static int params(struct scan *s, struct sim_image_kernel *k)
{
    uint64_t at = 0;

    for (next(s); s->word[0] && !is(s, ")"); next(s)) {
        struct variable v;

        if (!is(s, ".param"))
            return -EINVAL;
        next(s);
        if (variable(s, &v) != 0 || v.align == 0 || (v.align & (v.align - 1)) || v.align > 128)
            return -EINVAL;
        at = (at + v.align - 1) / v.align * v.align;
        if (v.bytes > SIM_PARAM_BYTES_MAX || at + v.bytes > SIM_PARAM_BYTES_MAX)
            return -EINVAL;
        if (sim_image_add_param(k, (uint32_t)v.bytes, (uint32_t)at) != 0)
            return -ENOMEM;
        at += v.bytes;
        if (is(s, ")"))
            return 0;
        if (!is(s, ","))
            return -EINVAL;
    }
    return is(s, ")") ? 0 : -EINVAL;
}

/* Up to three numbers between commas; stops at the token after. Missing ones are 1. */
static void three(struct scan *s, uint32_t n[3])
{
    n[0] = n[1] = n[2] = 1;
    for (int i = 0; i < 3; i++) {
        next(s);
        n[i] = (uint32_t)strtoul(s->word, NULL, 0);
        next(s);
        if (!is(s, ","))
            return;
    }
}

/* Directives between a kernel's parameters and its body. */
static void directives(struct scan *s, struct sim_image_kernel *k)
{
    uint32_t n[3];

    while (s->word[0] && !is(s, "{") && !is(s, ";")) {
        if (is(s, ".maxntid") || is(s, ".reqntid")) {
            uint64_t threads;

            three(s, n);
            threads = (uint64_t)n[0] * n[1];
            threads = threads > THREADS_MAX ? threads : threads * n[2];
            k->max_threads = threads > THREADS_MAX ? THREADS_MAX : (uint32_t)threads;
        } else if (is(s, ".reqnctapercluster")) {
            three(s, k->cluster);
        } else {
            next(s);
        }
    }
}

static void add_bytes(uint32_t *sum, const struct variable *v)
{
    uint64_t at = v->align ? ((uint64_t)*sum + v->align - 1) / v->align * v->align : *sum;

    *sum = at + v->bytes < UINT32_MAX ? (uint32_t)(at + v->bytes) : UINT32_MAX;
}

/* From the opening brace to the closing one. A directive begins a statement; ".shared" within an
 * instruction does not. */
static void body(struct scan *s, struct sim_image_kernel *k)
{
    bool begins = false;
    int depth = 0;

    while (s->word[0]) {
        bool is_shared = is(s, ".shared");
        struct variable v;

        if (begins && (is_shared || is(s, ".local"))) {
            next(s);
            if (variable(s, &v) == 0)
                add_bytes(is_shared ? &k->shared_bytes : &k->local_bytes, &v);
            begins = false;
            continue;
        }
        if (is(s, "{"))
            depth++;
        else if (is(s, "}") && --depth == 0)
            return;
        begins = is(s, "{") || is(s, "}") || is(s, ";") || is(s, ":");
        next(s);
    }
}

static int kernel(struct scan *s, struct sim_image *image)
{
    struct sim_image_kernel *k;

    next(s);
    if (!is_word(s->word[0]) || sim_image_kernel(image, s->word))
        return -EINVAL;
    k = sim_image_add_kernel(image, s->word);
    if (!k)
        return -ENOMEM;
    next(s);
    if (is(s, "(")) {
        int rc = params(s, k);

        if (rc != 0)
            return rc;
    }
    directives(s, k);
    if (is(s, "{"))
        body(s, k);
    return 0;
}

static int global(struct scan *s, struct sim_image *image, bool is_constant)
{
    struct sim_image_global *g;
    struct variable v;
    int rc = 0;

    next(s);
    if (variable(s, &v) != 0)
        return -EINVAL;
    g = sim_image_add_global(image, v.name);
    if (!g)
        return -ENOMEM;
    g->bytes = v.bytes;
    g->is_managed = v.is_managed;
    g->is_constant = is_constant;
    if (is(s, "="))
        rc = initialiser(s, &v, g);
    while (s->word[0] && !is(s, ";")) {
        if (is(s, "{"))
            skip_braces(s);
        next(s);
    }
    if (is_constant)
        image->constant_bytes +=
            g->bytes < UINT32_MAX - image->constant_bytes ? (uint32_t)g->bytes : 0;
    return rc;
}

/* ".version 8.4" and ".target sm_90a, debug" */
static void heading(struct scan *s, struct sim_image *image)
{
    bool is_version = is(s, ".version");

    next(s);
    if (!is_version && strncmp(s->word, "sm_", 3) == 0) {
        image->cc = (uint32_t)strtoul(s->word + 3, NULL, 10);
    } else if (is_version && isdigit((unsigned char)s->word[0]) && *s->at == '.') {
        image->ptx_version = (uint32_t)strtoul(s->word, NULL, 10) % 100 * 10;
        next(s);
        image->ptx_version += (uint32_t)strtoul(s->word + 1, NULL, 10) % 10;
    }
}

bool sim_ptx_is(const char *text)
{
    return strstr(text, ".version") != NULL;
}

static uint32_t line_of(const char *text, const char *at)
{
    uint32_t line = 1;

    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

int sim_ptx_read(const char *text, struct sim_image *image, uint32_t *line)
{
    struct scan s = {.at = text};
    bool is_extern = false;
    int rc = 0;

    for (next(&s); rc == 0 && s.word[0]; next(&s)) {
        if (is(&s, ".extern"))
            is_extern = true;
        else if (is(&s, ";"))
            is_extern = false;
        else if (is(&s, "{"))
            skip_braces(&s);
        else if (is(&s, ".version") || is(&s, ".target")) {
            heading(&s, image);
        } else if (is(&s, ".entry")) {
            rc = kernel(&s, image);
        } else if ((is(&s, ".global") || is(&s, ".const")) && !is_extern) {
            rc = global(&s, image, is(&s, ".const"));
        }
    }
    if (rc != 0) {
        *line = line_of(text, s.at);
        sim_image_free(image);
    }
    return rc;
}
