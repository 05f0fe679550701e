/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings without libc: comparing, copying into fixed buffers, and a buffer that lines and paths
 * are put together in. A full buffer is cut, stays terminated and says so. No state; any thread.
 */
#ifndef ALQ_VGPU_TEXT_H
#define ALQ_VGPU_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

size_t alq_text_len(const char *s);
bool alq_text_is(const char *a, const char *b);
bool alq_text_starts(const char *s, const char *prefix);
/* As alq_text_is, ASCII letters alike in both cases. */
bool alq_text_is_nocase(const char *a, const char *b);

/* True for two forms of one UUID: CUDA does not tell a GPU's ("GPU-...") from a MIG instance's
 * ("MIG-..."). */
bool alq_text_is_uuid(const char *a, const char *b);

struct alq_text {
    char *at;
    size_t size; /* of the buffer, at least 1 */
    size_t len;
    bool is_cut;
};

static inline struct alq_text alq_text_on(char *buffer, size_t size)
{
    buffer[0] = '\0';
    return (struct alq_text){buffer, size, 0, false};
}

void alq_text_add(struct alq_text *text, const char *s);
void alq_text_add_n(struct alq_text *text, const char *s, size_t len);
void alq_text_add_u64(struct alq_text *text, uint64_t value);
void alq_text_add_hex2(struct alq_text *text, unsigned char byte);

/* Decimal digits at *s, moved past them. False when there is none or the number does not fit. */
bool alq_text_read_u64(const char **s, uint64_t *out);

#endif
