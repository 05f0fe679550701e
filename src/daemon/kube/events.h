/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes Events: what a user must know, where `kubectl describe` shows it. Posting never fails,
 * never blocks and asks nothing of its caller: events wait in a bounded queue and go out one at a
 * time. The same thing said again is counted, and told as a series ever more seldom; a changed note
 * is a new event. Loop thread only.
 *
 * The service account needs create and patch of events in the group events.k8s.io. Without it one
 * line is logged, and it is tried again ten minutes later.
 */
#ifndef ALQ_DAEMON_KUBE_EVENTS_H
#define ALQ_DAEMON_KUBE_EVENTS_H

#include <stdint.h>

#include "base/err.h"
#include "daemon/clock.h"
#include "daemon/config.h"

struct alq_events;
struct alq_findings;
struct alq_kube;

enum alq_event_type { ALQ_EVENT_NORMAL, ALQ_EVENT_WARNING };

/* Everything is copied. */
struct alq_event {
    enum alq_event_type type;
    const char *reason; /* for programs, at most 63 bytes: "PrepareFailed" */
    const char *action; /* what was being done, likewise: "Prepare" */
    const char *note;   /* for people; cut to the API server's 1024 bytes */
};

struct alq_events_stats {
    uint64_t posted;  /* reached the API server */
    uint64_t dropped; /* no room in the queue, no right, refused, or undeliverable for long */
    int is_forbidden; /* the last try was answered 403 */
};

/* cfg and kube outlive it, clock is copied. NULL when out of memory. */
struct alq_events *alq_events_new(const struct alq_config *cfg, struct alq_kube *kube,
                                  const struct alq_clock *clock, struct alq_err *err);
/* What still waits is lost. NULL-safe. */
void alq_events_free(struct alq_events *events);

/* About a claim. events may be NULL in all three: then nothing happens. */
void alq_events_claim(struct alq_events *events, const struct alq_event *event,
                      const char *namespace_, const char *name, const char *uid);

/* About a claim and about each pod that it is reserved for; who they are is asked when the event's
 * turn comes. */
void alq_events_claim_and_pods(struct alq_events *events, const struct alq_event *event,
                               const char *namespace_, const char *name, const char *uid);

/* About this node, for what concerns no claim. */
void alq_events_node(struct alq_events *events, const struct alq_event *event);

/* A source of findings; events is its arg. */
void alq_events_tell(void *events, struct alq_findings *findings);

struct alq_events_stats alq_events_stats(const struct alq_events *events);

#endif
