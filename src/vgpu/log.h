/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines to the program's standard error, each one write(2), "aliquot: level: text\n". Off by
 * default: LIBCUDA_LOG_LEVEL or `control` turns levels on. Three kinds of line are always written,
 * once per process: a limit that cannot be read, a limit that holds per process only, a full slot
 * table. No more than 20 lines a second otherwise. Any thread; errno untouched.
 */
#ifndef ALQ_VGPU_LOG_H
#define ALQ_VGPU_LOG_H

#include <stdint.h>

#include "vgpu/text.h"

enum { ALQ_LOG_ERROR = 1, ALQ_LOG_WARN = 2, ALQ_LOG_INFO = 3, ALQ_LOG_DEBUG = 4 };

extern _Atomic uint32_t alq_log_level;

#define ALQ_LOG_IS_ON(level) (__builtin_expect(alq_log_level >= (level), 0))

/* A line under way, on the caller's stack. */
struct alq_line {
    char buffer[400];
    struct alq_text text;
};

void alq_log_begin(struct alq_line *line, unsigned level);
/* Writes it if its level is on and the rate allows. */
void alq_log_end(struct alq_line *line, unsigned level);
/* Writes it in any case, the first time for this `once`. */
void alq_log_end_always(struct alq_line *line, _Atomic uint32_t *once);

#endif
