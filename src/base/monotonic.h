/* SPDX-License-Identifier: Apache-2.0 */
/* CLOCK_MONOTONIC for sockets and processes; state machines take their time from a clock. */
#ifndef ALQ_BASE_MONOTONIC_H
#define ALQ_BASE_MONOTONIC_H

#include <stdint.h>
#include <time.h>

static inline int64_t alq_now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static inline int64_t alq_now_ms(void)
{
    return alq_now_ns() / 1000000;
}

#endif
