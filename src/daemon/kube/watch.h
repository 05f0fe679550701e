/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The watch stream of a Kubernetes API server, fed with bytes as they arrive: one JSON object
 * {type, object} a line. Knows neither sockets nor HTTP. A parser belongs to one thread.
 */
#ifndef ALQ_DAEMON_KUBE_WATCH_H
#define ALQ_DAEMON_KUBE_WATCH_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

enum alq_watch_type {
    ALQ_WATCH_ADDED,
    ALQ_WATCH_MODIFIED,
    ALQ_WATCH_DELETED,
    ALQ_WATCH_BOOKMARK, /* only metadata.resourceVersion of object means something */
    ALQ_WATCH_ERROR,    /* object is a Status */
};

struct alq_watch_event {
    enum alq_watch_type type;
    json_t *object;               /* borrowed; take a reference to keep it */
    const char *resource_version; /* of the object; never NULL but for ALQ_WATCH_ERROR */
    int is_expired; /* ALQ_WATCH_ERROR: code 410, or reason Expired or Gone: list again */
};

/* Called within alq_watch_feed and alq_watch_end. The parser must not be freed in it. */
typedef void (*alq_watch_cb)(void *arg, const struct alq_watch_event *event);

struct alq_watch;

/* line_bytes_max bounds one event and with it the parser's memory. NULL when out of memory. */
struct alq_watch *alq_watch_new(size_t line_bytes_max, alq_watch_cb cb, void *arg);
void alq_watch_free(struct alq_watch *watch);

/*
 * Takes the next bytes. ALQ_ERANGE: a line is too long; ALQ_EPROTO: a line is not an event (events
 * before it were delivered); ALQ_ENOMEM. After an error the parser takes nothing more until it is
 * reset.
 */
int alq_watch_feed(struct alq_watch *watch, const char *data, size_t len, struct alq_err *err);

/* The stream ended. A last event without its newline is delivered; half an event is dropped (the
 * watch resumes before it). Ready for another stream afterwards. */
void alq_watch_end(struct alq_watch *watch);

#endif
