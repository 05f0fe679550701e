/* SPDX-License-Identifier: Apache-2.0 */
/* Events about claims, see claim_events.h. Loop thread only. */
#include "daemon/claim_events.h"

#include <stdio.h>
#include <string.h>

#include "daemon/kube/events.h"
#include "daemon/prepare/prepare.h"

#define NOTE_BYTES 512

void alq_claim_events_refused(struct alq_events *events, const struct alq_claim_id *id,
                              const struct alq_err *err)
{
    const char *text = strstr(err->text, ": "); /* the event names the claim itself */
    const struct alq_event event = {ALQ_EVENT_WARNING,
                                    err->code == ALQ_EBUSY ? "NoRoom" : "PrepareFailed", "Prepare",
                                    text ? text + 2 : err->text};
    alq_events_claim(events, &event, id->namespace_, id->name, id->uid);
}

static void tell(struct alq_events *events, const struct alq_event *event,
                 const struct alq_claim_spec *claim)
{
    if (claim->name[0]) /* that of a claim without a record is not known */
        alq_events_claim_and_pods(events, event, claim->namespace_, claim->name, claim->uid);
}

void alq_claim_events_lost(struct alq_events *events, const struct alq_claim_spec *claim,
                           const struct alq_share_spec *share)
{
    char note[NOTE_BYTES];
    snprintf(note, sizeof(note),
             "%s (%s) is no longer on this node; delete the pod to have another GPU allocated",
             share->device, share->gpu_uuid);
    const struct alq_event event = {ALQ_EVENT_WARNING, "GPUGone", "Monitor", note};
    tell(events, &event, claim);
}

struct telling {
    struct alq_events *events;
    struct alq_event event;
};

static void tell_each(void *arg, const struct alq_claim_spec *claim)
{
    const struct telling *t = arg;
    tell(t->events, &t->event, claim);
}

void alq_claim_events_fault(struct alq_events *events, const struct alq_prepare *prepare,
                            const char *uuid, const char *name, const struct alq_fault *fault)
{
    char note[NOTE_BYTES];
    int is_over = fault->effect == ALQ_FAULT_NONE;
    snprintf(note, sizeof(note), "%s (%s): %s%s", name, uuid, is_over ? "over: " : "",
             fault->reason);
    struct telling t = {events,
                        {is_over ? ALQ_EVENT_NORMAL : ALQ_EVENT_WARNING,
                         is_over ? "GPUFaultOver" : "GPUFault", "Monitor", note}};
    alq_prepare_each_on(prepare, uuid, tell_each, &t);
}
