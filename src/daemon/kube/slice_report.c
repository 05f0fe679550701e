/* SPDX-License-Identifier: Apache-2.0 */
/* Reports about slices, see slice_report.h. Loop thread only. */
#define ALQ_LOG_MODULE "slices"
#include "daemon/kube/slice_report.h"

#include <stdio.h>
#include <string.h>

#include "daemon/findings.h"
#include "daemon/kube/events.h"
#include "daemon/kube/slice.h"
#include "daemon/monitor/metrics.h"

#define GATE_IS_OFF                                                                                \
    "the API server drops allowMultipleAllocations: feature gate DRAConsumableCapacity is off, "   \
    "a GPU goes to one claim as a whole; turn it on in API server, scheduler and kubelet"

/* Same but for numbers: libcurl puts times into its messages. */
static int is_same_complaint(const char *a, const char *b)
{
    for (;;) {
        a += strspn(a, "0123456789");
        b += strspn(b, "0123456789");
        if (*a != *b)
            return 0;
        if (!*a)
            return 1;
        a++;
        b++;
    }
}

void alq_slice_complain(struct alq_slice_report *r, enum alq_log_level level, const char *text)
{
    if (is_same_complaint(r->complaint, text))
        return;
    snprintf(r->complaint, sizeof(r->complaint), "%s", text);
    alq_log(level, NULL, "%s", text);
}

static void tell_node(const struct alq_slice_report *r, const char *reason, const char *text)
{
    const struct alq_event event = {ALQ_EVENT_WARNING, reason, "Publish", text};
    alq_events_node(r->events, &event);
}

/* By name, without the place in the slice. */
static void count_dropped(const char *paths)
{
    for (size_t len; *paths; paths += len + strspn(paths + len, ", ")) {
        char path[192];
        len = strcspn(paths, ",");
        snprintf(path, sizeof(path), "%.*s", (int)len, paths);
        const char *dot = strrchr(path, '.');
        alq_metric_add(ALQ_METRIC_SLICE_FIELDS_DROPPED, 1, dot ? dot + 1 : path, NULL);
    }
}

static int is_gate_off(const struct alq_slice_report *r)
{
    return strstr(r->dropped, "allowMultipleAllocations") != NULL;
}

void alq_slice_report_dropped(struct alq_slice_report *r, const json_t *sent, const json_t *stored)
{
    char text[sizeof(r->dropped) + 64];
    alq_slice_dropped(sent, stored, r->dropped, sizeof(r->dropped));
    if (!r->dropped[0])
        return;
    count_dropped(r->dropped);
    snprintf(text, sizeof(text), "the API server does not store all of a slice: %s", r->dropped);
    alq_log(is_gate_off(r) ? ALQ_LOG_ERROR : ALQ_LOG_WARN, ALQ_LOG_KV({"dropped", r->dropped}),
            "%s", is_gate_off(r) ? GATE_IS_OFF : "the API server does not store all of a slice");
    tell_node(r, "SliceFieldsDropped", is_gate_off(r) ? GATE_IS_OFF : text);
}

void alq_slice_report_left_out(struct alq_slice_report *r, const struct alq_err *err)
{
    if (err->code && strcmp(r->left_out, err->text) != 0) {
        alq_slice_complain(r, ALQ_LOG_WARN, err->text);
        tell_node(r, "DeviceLeftOut", err->text);
    }
    snprintf(r->left_out, sizeof(r->left_out), "%s", err->text);
}

void alq_slice_report_refused(struct alq_slice_report *r, const struct alq_err *err)
{
    r->is_refused = 1;
    alq_slice_complain(r, ALQ_LOG_ERROR, err->text);
    tell_node(r, "SliceRefused", err->text);
}

#define CONTESTED                                                                                  \
    "slices of this node are changed by others as fast as they are corrected: does a second "      \
    "plugin use this driver name?"

void alq_slice_report_contested(struct alq_slice_report *r, int is_contested)
{
    if (is_contested && !r->is_contested) {
        alq_warn(NULL, "%s", CONTESTED);
        tell_node(r, "SlicesContested", CONTESTED);
    }
    r->is_contested = is_contested;
}

void alq_slice_report_tell(const struct alq_slice_report *r, int is_missing,
                           struct alq_findings *findings)
{
    if (is_missing)
        alq_findings_add(
            findings, r->is_refused ? "slices.refused" : "slices.not-published", ALQ_FINDING_ERROR,
            r->is_refused ? "report it with this text: a slice of ours is invalid"
                          : "see that the API server can be reached, and that the service "
                            "account may get, list, watch, create, update and delete "
                            "resourceslices",
            "the GPUs of this node are not offered: %s",
            r->complaint[0] ? r->complaint : "not confirmed yet");
    if (is_gate_off(r))
        alq_findings_add(findings, "slices.dropped-fields", ALQ_FINDING_ERROR,
                         "turn on feature gate DRAConsumableCapacity in API server, scheduler and "
                         "kubelet",
                         "the API server drops %s: a GPU goes to one claim as a whole", r->dropped);
    else if (r->dropped[0])
        alq_findings_add(findings, "slices.dropped-fields", ALQ_FINDING_WARNING,
                         "turn on the feature gates of these fields, or live without them",
                         "the API server does not store all of a slice: %s", r->dropped);
    if (r->is_contested)
        alq_findings_add(findings, "slices.contested", ALQ_FINDING_ERROR,
                         "remove the other plugin from this node, or give one of the two another "
                         "--driver-name",
                         "%s", CONTESTED);
    if (r->left_out[0])
        alq_findings_add(findings, "slices.device-left-out", ALQ_FINDING_WARNING,
                         "see the reason; the GPU is offered as soon as it is gone", "%s",
                         r->left_out);
}
