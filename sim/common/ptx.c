/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scanner for PTX declarations: words, punctuation, comments; bodies in braces are skipped.
 */
#include "common/ptx.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_BYTES_MAX (1ull << 40)

struct scan {
    const char *at;
    char word[256]; /* the current token; "" at the end */
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

/* From after the state space word: [.align N] .type name [dims]; stops at the token after. */
static int variable(struct scan *s, char name[256], uint64_t *bytes, uint32_t *align)
{
    uint64_t size = 0, vector = 1;
    int is_pointer = 0;

    *align = 0;
    *name = '\0';
    for (;; next(s)) {
        if (is(s, ".align")) {
            next(s);
            if (!is_pointer) /* else it says how aligned what it points to is */
                *align = (uint32_t)strtoul(s->word, NULL, 10);
        } else if (is(s, ".ptr")) {
            is_pointer = 1;
        } else if (is(s, ".texref") || is(s, ".samplerref") || is(s, ".surfref")) {
            size = 8; /* opaque handles */
        } else if (is(s, ".v2")) {
            vector = 2;
        } else if (is(s, ".v4")) {
            vector = 4;
        } else if (s->word[0] == '.') {
            size = type_bytes(s->word) ? type_bytes(s->word) : size;
        } else {
            break;
        }
    }
    if (!size || !is_word(s->word[0]))
        return -EINVAL;
    size *= vector;
    if (!*align)
        *align = (uint32_t)size;
    strcpy(name, s->word);
    for (next(s); is(s, "["); next(s)) {
        next(s);
        if (is(s, "]"))
            continue; /* an unsized array takes its initialiser's size, which is not read */
        size *= strtoull(s->word, NULL, 0);
        if (size > TYPE_BYTES_MAX)
            return -EINVAL;
        next(s);
        if (!is(s, "]"))
            return -EINVAL;
    }
    *bytes = size;
    return 0;
}

static int grow(void **items, uint32_t count, size_t size)
{
    void *bigger;

    if (count & (count - 1)) /* room is doubled at powers of two */
        return 0;
    bigger = realloc(*items, (count ? (size_t)count * 2 : 1) * size);
    if (!bigger)
        return -ENOMEM;
    *items = bigger;
    return 0;
}

static int params(struct scan *s, struct sim_ptx_kernel *k)
{
    uint64_t at = 0;

    for (next(s); s->word[0] && !is(s, ")"); next(s)) {
        char name[256];
        uint64_t bytes;
        uint32_t align;

        if (!is(s, ".param"))
            return -EINVAL;
        next(s);
        if (variable(s, name, &bytes, &align) != 0 || k->param_count == SIM_PTX_PARAMS ||
            bytes > 32764 || (align & (align - 1)) || align > 128)
            return -EINVAL;
        at = (at + align - 1) / align * align;
        k->param_offset[k->param_count] = (uint32_t)at;
        k->param_bytes[k->param_count++] = (uint32_t)bytes;
        at += bytes;
        if (is(s, ")"))
            return 0;
        if (!is(s, ","))
            return -EINVAL;
    }
    return is(s, ")") ? 0 : -EINVAL;
}

static int kernel(struct scan *s, struct sim_ptx *ptx)
{
    struct sim_ptx_kernel *k;

    next(s);
    if (!is_word(s->word[0]))
        return -EINVAL;
    if (grow((void **)&ptx->kernels, ptx->kernel_count, sizeof(*ptx->kernels)) != 0)
        return -ENOMEM;
    k = &ptx->kernels[ptx->kernel_count];
    memset(k, 0, sizeof(*k));
    k->name = strdup(s->word);
    if (!k->name)
        return -ENOMEM;
    ptx->kernel_count++;
    next(s);
    if (is(s, "(") && params(s, k) != 0)
        return -EINVAL;
    while (s->word[0] && !is(s, "{") && !is(s, ";"))
        next(s);
    if (is(s, "{"))
        skip_braces(s);
    return 0;
}

static int global(struct scan *s, struct sim_ptx *ptx)
{
    char name[256];
    uint64_t bytes;
    uint32_t align;

    next(s);
    if (variable(s, name, &bytes, &align) != 0)
        return -EINVAL;
    if (grow((void **)&ptx->globals, ptx->global_count, sizeof(*ptx->globals)) != 0)
        return -ENOMEM;
    ptx->globals[ptx->global_count].name = strdup(name);
    ptx->globals[ptx->global_count].bytes = bytes;
    if (!ptx->globals[ptx->global_count].name)
        return -ENOMEM;
    ptx->global_count++;
    while (s->word[0] && !is(s, ";")) {
        if (is(s, "{"))
            skip_braces(s);
        next(s);
    }
    return 0;
}

int sim_ptx_is(const char *text)
{
    return strstr(text, ".version") != NULL;
}

int sim_ptx_parse(const char *text, struct sim_ptx *ptx)
{
    struct scan s = {.at = text};
    int rc = 0, is_extern = 0;

    memset(ptx, 0, sizeof(*ptx));
    for (next(&s); rc == 0 && s.word[0]; next(&s)) {
        if (is(&s, ".extern"))
            is_extern = 1;
        else if (is(&s, ";"))
            is_extern = 0;
        else if (is(&s, "{"))
            skip_braces(&s);
        else if (is(&s, ".entry"))
            rc = kernel(&s, ptx);
        else if ((is(&s, ".global") || is(&s, ".const")) && !is_extern)
            rc = global(&s, ptx);
    }
    if (rc != 0)
        sim_ptx_free(ptx);
    return rc;
}

void sim_ptx_free(struct sim_ptx *ptx)
{
    for (uint32_t i = 0; i < ptx->kernel_count; i++)
        free(ptx->kernels[i].name);
    for (uint32_t i = 0; i < ptx->global_count; i++)
        free(ptx->globals[i].name);
    free(ptx->kernels);
    free(ptx->globals);
    memset(ptx, 0, sizeof(*ptx));
}
