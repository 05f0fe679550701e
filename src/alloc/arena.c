/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain of blocks, newest first. Owns its memory; calls malloc and nothing else; one thread per
 * arena.
 */
#include "alloc/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 4096

struct alq_arena_block {
    struct alq_arena_block *next;
    size_t used, size;
    alignas(max_align_t) unsigned char data[];
};

void *alq_arena_alloc(struct alq_arena *arena, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    struct alq_arena_block *b = arena->blocks;

    if (bytes > arena->max_bytes - arena->used_bytes || bytes > arena->max_bytes)
        return NULL;
    size_t need = (bytes + align - 1) / align * align;
    if (!b || b->size - b->used < need) {
        size_t size = need > BLOCK_BYTES ? need : BLOCK_BYTES;
        b = calloc(1, sizeof(*b) + size);
        if (!b)
            return NULL;
        b->size = size;
        b->next = arena->blocks;
        arena->blocks = b;
    }
    void *p = b->data + b->used;
    b->used += need;
    arena->used_bytes += bytes;
    return p;
}

char *alq_arena_strndup(struct alq_arena *arena, const char *text, size_t len)
{
    char *copy = alq_arena_alloc(arena, len + 1);

    if (copy && len)
        memcpy(copy, text, len);
    return copy;
}

void alq_arena_fini(struct alq_arena *arena)
{
    while (arena->blocks) {
        struct alq_arena_block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
    arena->used_bytes = 0;
}
