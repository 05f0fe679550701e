/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches on directories, see gone.h.
 */
#include "daemon/kubelet/gone.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

struct alq_gone {
    char *dirs[ALQ_GONE_DIRS_MAX];
    size_t count;
    int inotify; /* -1: none to be had */
    struct event *readable;
    struct event *period;
    void (*on_gone)(void *arg);
    void *arg;
};

/* A directory that is watched already keeps its watch; one that was replaced gets a new one. */
static void watch(struct alq_gone *g)
{
    for (size_t i = 0; i < g->count && g->inotify >= 0; i++)
        inotify_add_watch(g->inotify, g->dirs[i],
                          IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF |
                              IN_ONLYDIR);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct alq_gone *g = arg;
    char events[4096];
    while (read(fd, events, sizeof(events)) > 0)
        ;
    g->on_gone(g->arg);
    watch(g);
}

static void on_period(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct alq_gone *g = arg;
    g->on_gone(g->arg);
    watch(g);
}

struct alq_gone *alq_gone_new(struct event_base *base, const char *const *dirs,
                              void (*on_gone)(void *arg), void *arg, struct alq_err *err)
{
    static const struct timeval period = {.tv_sec = ALQ_GONE_PERIOD_S};
    struct alq_gone *g = calloc(1, sizeof(*g));
    int is_whole = g != NULL;
    for (; is_whole && dirs[g->count] && g->count < ALQ_GONE_DIRS_MAX; g->count++) {
        g->dirs[g->count] = strdup(dirs[g->count]);
        is_whole = g->dirs[g->count] != NULL;
    }
    if (is_whole) {
        g->on_gone = on_gone;
        g->arg = arg;
        g->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        g->period = event_new(base, -1, EV_PERSIST, on_period, g);
        if (g->inotify >= 0)
            g->readable = event_new(base, g->inotify, EV_READ | EV_PERSIST, on_readable, g);
        is_whole = g->period && !event_add(g->period, &period) &&
                   (g->inotify < 0 || (g->readable && !event_add(g->readable, NULL)));
    }
    if (is_whole) {
        watch(g);
        return g;
    }
    alq_err_set(err, ALQ_ENOMEM, "out of memory");
    alq_gone_free(g);
    return NULL;
}

void alq_gone_free(struct alq_gone *g)
{
    if (!g)
        return;
    if (g->readable)
        event_free(g->readable);
    if (g->period)
        event_free(g->period);
    if (g->inotify >= 0)
        close(g->inotify);
    for (size_t i = 0; i < g->count; i++)
        free(g->dirs[i]);
    free(g);
}
