/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is freed all at once, with an upper bound. Used by the CEL modules for syntax trees
 * and for the values of one evaluation. One thread per arena.
 */
#ifndef ALQ_ALLOC_ARENA_H
#define ALQ_ALLOC_ARENA_H

#include <stddef.h>

struct alq_arena_block;

struct alq_arena {
    struct alq_arena_block *blocks;
    size_t used_bytes; /* handed out so far */
    size_t max_bytes;
};

/* {0} with a limit is an empty arena. */
static inline struct alq_arena alq_arena_init(size_t max_bytes)
{
    return (struct alq_arena){.max_bytes = max_bytes};
}

/* Zeroed memory, aligned for any type; NULL when out of memory or above the limit. */
void *alq_arena_alloc(struct alq_arena *arena, size_t bytes);

/* A NUL-terminated copy of text[0..len). */
char *alq_arena_strndup(struct alq_arena *arena, const char *text, size_t len);

/* Frees everything; the arena is empty and usable again. */
void alq_arena_fini(struct alq_arena *arena);

#endif
