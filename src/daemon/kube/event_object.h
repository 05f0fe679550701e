/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event objects of events.k8s.io/v1 as JSON. That API and not the older one of core/v1, because its
 * server checks what it is sent and its series are what kubectl shows. Pure functions; any thread.
 */
#ifndef ALQ_DAEMON_KUBE_EVENT_OBJECT_H
#define ALQ_DAEMON_KUBE_EVENT_OBJECT_H

#include <jansson.h>
#include <stdint.h>

#include "daemon/kube/events.h"

#define ALQ_EVENT_NAME_BYTES 254
#define ALQ_EVENT_NOTE_BYTES 1024 /* with the NUL; the API server takes 1024 without */

enum alq_subject_kind { ALQ_SUBJECT_CLAIM, ALQ_SUBJECT_POD, ALQ_SUBJECT_NODE };

/* What an event is about; namespace "" for a node. */
struct alq_subject {
    enum alq_subject_kind kind;
    const char *namespace_, *name, *uid;
};

/* How often, and when first and last, on CLOCK_REALTIME. */
struct alq_event_times {
    unsigned count;
    int64_t first_us, last_us;
};

/* Where its events are kept: a node's are in "default". */
const char *alq_event_namespace(const struct alq_subject *subject);

/* "<subject's name>.<16 hexadecimal digits>", as others name theirs; a name of our own makes a
 * repeated create harmless. */
void alq_event_name(const struct alq_subject *subject, uint64_t number,
                    char name[ALQ_EVENT_NAME_BYTES]);

/* The object to create. New reference, NULL when out of memory. */
json_t *alq_event_object(const struct alq_subject *subject, const struct alq_event *event,
                         const char *node, const char *name, const struct alq_event_times *times);

/* The merge patch that tells how often it has happened by now (2 or more). */
json_t *alq_event_series_patch(const struct alq_event_times *times);

#endif
