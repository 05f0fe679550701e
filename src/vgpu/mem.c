/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The four functions that a compiler may call on its own for assignments and loops, so that the
 * library needs no libc. Hidden: a program's own memcpy is never replaced. Compiled with
 * -fno-tree-loop-distribute-patterns, or they would call themselves.
 */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int byte, size_t bytes);
int memcmp(const void *a, const void *b, size_t bytes);

#define HIDDEN __attribute__((visibility("hidden")))

HIDDEN void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    while (bytes--)
        *t++ = *f++;
    return to;
}

HIDDEN void *memmove(void *to, const void *from, size_t bytes)
{
    unsigned char *t = to;
    const unsigned char *f = from;
    if ((uintptr_t)t - (uintptr_t)f >= bytes)
        return memcpy(to, from, bytes);
    while (bytes--)
        t[bytes] = f[bytes];
    return to;
}

HIDDEN void *memset(void *to, int byte, size_t bytes)
{
    unsigned char *t = to;
    while (bytes--)
        *t++ = (unsigned char)byte;
    return to;
}

HIDDEN int memcmp(const void *a, const void *b, size_t bytes)
{
    const unsigned char *x = a, *y = b;
    for (; bytes; bytes--, x++, y++)
        if (*x != *y)
            return *x < *y ? -1 : 1;
    return 0;
}
