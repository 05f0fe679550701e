/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/log.h"

#include <stdatomic.h>

#include "vgpu/clock.h"
#include "vgpu/sys.h"

_Atomic uint32_t alq_log_level;

static _Atomic uint64_t second_now; /* second << 8 | lines written in it */

#define LINES_PER_SECOND 20u

void alq_log_begin(struct alq_line *line, unsigned level)
{
    line->text = alq_text_on(line->buffer, sizeof(line->buffer) - 1); /* one for the newline */
    alq_text_add(&line->text, "aliquot: ");
    alq_text_add(&line->text, level == ALQ_LOG_ERROR  ? "error: "
                              : level == ALQ_LOG_WARN ? "warn: "
                              : level == ALQ_LOG_INFO ? "info: "
                                                      : "debug: ");
}

static void put(struct alq_line *line)
{
    line->buffer[line->text.len] = '\n';
    alq_sys_write(2, line->buffer, line->text.len + 1);
}

void alq_log_end(struct alq_line *line, unsigned level)
{
    uint64_t second = alq_clock_coarse_ns() / 1000000000u;
    uint64_t have = atomic_load_explicit(&second_now, memory_order_relaxed), want;

    if (!ALQ_LOG_IS_ON(level))
        return;
    do {
        want = have >> 8 == second ? have + 1 : second << 8 | 1;
        if ((want & 255) > LINES_PER_SECOND)
            return;
    } while (!atomic_compare_exchange_weak_explicit(&second_now, &have, want, memory_order_relaxed,
                                                    memory_order_relaxed));
    put(line);
}

void alq_log_end_always(struct alq_line *line, _Atomic uint32_t *once)
{
    if (atomic_exchange_explicit(once, 1, memory_order_relaxed) == 0)
        put(line);
}
