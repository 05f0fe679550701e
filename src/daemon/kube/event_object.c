/* SPDX-License-Identifier: Apache-2.0 */
/* Event objects, see event_object.h. The limits are those of the API server's validation of
 * events.k8s.io/v1. Pure. */
#include "daemon/kube/event_object.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/utf8.h"

#define US_PER_S 1000000
#define CONTROLLER "aliquot.dev/aliquotd" /* a qualified name is wanted */
#define INSTANCE_BYTES_MAX 128

static const struct {
    const char *api_version, *kind;
} kinds[] = {
    [ALQ_SUBJECT_CLAIM] = {"resource.k8s.io/v1", "ResourceClaim"},
    [ALQ_SUBJECT_POD] = {"v1", "Pod"},
    [ALQ_SUBJECT_NODE] = {"v1", "Node"},
};

/* metav1.MicroTime */
static void format_time(int64_t us, char text[40])
{
    char seconds[24];
    time_t s = (time_t)(us / US_PER_S);
    struct tm tm;
    gmtime_r(&s, &tm);
    strftime(seconds, sizeof(seconds), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, 40, "%s.%06dZ", seconds, (int)(us % US_PER_S));
}

const char *alq_event_namespace(const struct alq_subject *subject)
{
    return subject->namespace_[0] ? subject->namespace_ : "default";
}

void alq_event_name(const struct alq_subject *subject, uint64_t number,
                    char name[ALQ_EVENT_NAME_BYTES])
{
    size_t len = strnlen(subject->name, ALQ_EVENT_NAME_BYTES - 18);
    /* What is cut must still end in a letter or digit. */
    while (len && (subject->name[len - 1] == '.' || subject->name[len - 1] == '-'))
        len--;
    snprintf(name, ALQ_EVENT_NAME_BYTES, "%.*s.%016" PRIx64, (int)len, subject->name, number);
}

static json_t *series(const struct alq_event_times *times)
{
    char last[40];
    format_time(times->last_us, last);
    return json_pack("{s:I, s:s}", "count", (json_int_t)times->count, "lastObservedTime", last);
}

json_t *alq_event_object(const struct alq_subject *subject, const struct alq_event *event,
                         const char *node, const char *name, const struct alq_event_times *times)
{
    char first[40], note[ALQ_EVENT_NOTE_BYTES], instance[INSTANCE_BYTES_MAX + 1];
    format_time(times->first_us, first);
    snprintf(note, sizeof(note), "%s", event->note);
    alq_utf8_clean(note);
    snprintf(instance, sizeof(instance), "%s", node);
    const char *namespace_ = subject->namespace_[0] ? subject->namespace_ : NULL;
    return json_pack(
        "{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:{s:s, s:s, s:s*, s:s, s:s}, "
        "s:o*}",
        "apiVersion", "events.k8s.io/v1", "kind", "Event", "metadata", "name", name, "namespace",
        alq_event_namespace(subject), "eventTime", first, "reportingController", CONTROLLER,
        "reportingInstance", instance, "action", event->action, "reason", event->reason, "type",
        event->type == ALQ_EVENT_WARNING ? "Warning" : "Normal", "note", note, "regarding",
        "apiVersion", kinds[subject->kind].api_version, "kind", kinds[subject->kind].kind,
        "namespace", namespace_, "name", subject->name, "uid", subject->uid, "series",
        times->count > 1 ? series(times) : NULL);
}

json_t *alq_event_series_patch(const struct alq_event_times *times)
{
    return json_pack("{s:o}", "series", series(times));
}
