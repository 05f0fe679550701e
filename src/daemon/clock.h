/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time as the state machines see it: now, and timers on the loop. main.c gives them the real one;
 * tests give them one that they move themselves. Loop thread only.
 */
#ifndef ALQ_DAEMON_CLOCK_H
#define ALQ_DAEMON_CLOCK_H

#include <stdint.h>

#define ALQ_NS_PER_MS 1000000ll
#define ALQ_NEVER INT64_MAX

struct event_base;
struct alq_timer;

struct alq_clock {
    int64_t (*now_ns)(void *arg); /* CLOCK_MONOTONIC */
    /* A timer that is not set. NULL when out of memory. */
    struct alq_timer *(*timer_new)(void *arg, void (*cb)(void *cb_arg), void *cb_arg);
    /* Calls back once, at or after at_ns, from the loop; replaces what was set. ALQ_NEVER: not. */
    void (*timer_set)(struct alq_timer *timer, int64_t at_ns);
    void (*timer_free)(struct alq_timer *timer); /* NULL-safe */
    void *arg;
};

struct alq_clock alq_clock_real(struct event_base *base);

#endif
