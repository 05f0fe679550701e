/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Amounts as HAMi-core's environment has them, in every common form. Pure functions.
 *
 * Size: digits with an optional fraction or exponent, blanks around it, and a suffix without regard
 * to case: none or B for bytes; K M G T P with nothing, B, i or iB behind. All suffixes are powers
 * of 1024, as HAMi-core has it ("4096m" is 4096 MiB). A fraction of a byte is dropped. Percent: a
 * whole number, a % may follow; above 100 is 100.
 */
#ifndef ALQ_VGPU_SIZE_H
#define ALQ_VGPU_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* False: cannot be read, negative, or above 2^63; *bytes is untouched. An empty text reads as 0. */
bool alq_size_read(const char *text, uint64_t *bytes);
bool alq_percent_read(const char *text, uint32_t *percent);

#endif
