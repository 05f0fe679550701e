/* SPDX-License-Identifier: Apache-2.0 */
/* The real clock, see clock.h: CLOCK_MONOTONIC and libevent's timers. Loop thread only. */
#include "daemon/clock.h"

#include <event2/event.h>
#include <stdlib.h>

#include "base/monotonic.h"

#define NS_PER_US 1000ll
#define US_PER_S 1000000ll

struct alq_timer {
    struct event *event;
    void (*cb)(void *arg);
    void *arg;
};

static int64_t now_ns(void *arg)
{
    (void)arg;
    return alq_now_ns();
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    struct alq_timer *timer = arg;
    (void)fd;
    (void)what;
    timer->cb(timer->arg);
}

static struct alq_timer *timer_new(void *arg, void (*cb)(void *cb_arg), void *cb_arg)
{
    struct alq_timer *timer = malloc(sizeof(*timer));
    if (!timer)
        return NULL;
    *timer = (struct alq_timer){NULL, cb, cb_arg};
    timer->event = evtimer_new(arg, on_time, timer);
    if (timer->event)
        return timer;
    free(timer);
    return NULL;
}

static void timer_set(struct alq_timer *timer, int64_t at_ns)
{
    if (at_ns == ALQ_NEVER) {
        evtimer_del(timer->event);
        return;
    }
    int64_t us = (at_ns - now_ns(NULL) + NS_PER_US - 1) / NS_PER_US;
    if (us < 0)
        us = 0;
    struct timeval tv = {.tv_sec = us / US_PER_S, .tv_usec = us % US_PER_S};
    evtimer_add(timer->event, &tv);
}

static void timer_free(struct alq_timer *timer)
{
    if (!timer)
        return;
    event_free(timer->event);
    free(timer);
}

struct alq_clock alq_clock_real(struct event_base *base)
{
    return (struct alq_clock){now_ns, timer_new, timer_set, timer_free, base};
}
