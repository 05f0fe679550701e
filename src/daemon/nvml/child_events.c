/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVML child's events: XIDs and double-bit errors, which the driver keeps for us from the
 * moment a GPU is registered. They are fetched when the parent asks, so the child never waits.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/nvml/child.h"

#define TYPES ((unsigned long long)(nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError))

void child_watch(struct child *c, uint32_t index, nvmlDevice_t device, const char *uuid)
{
    unsigned long long types = 0;
    if (c->watched[index].handle || !nvml.nvmlDeviceGetSupportedEventTypes ||
        !nvml.nvmlDeviceRegisterEvents || !nvml.nvmlEventSetCreate)
        return;
    if (!c->set && nvml.nvmlEventSetCreate(&c->set) != NVML_SUCCESS)
        c->set = NULL;
    if (!c->set || nvml.nvmlDeviceGetSupportedEventTypes(device, &types) != NVML_SUCCESS)
        return;
    types &= TYPES;
    if (!(types & nvmlEventTypeXidCriticalError) ||
        nvml.nvmlDeviceRegisterEvents(device, types, c->set) != NVML_SUCCESS)
        return;
    c->watched[index].handle = device;
    snprintf(c->watched[index].uuid, sizeof(c->watched[index].uuid), "%s", uuid);
}

/* A GPU that fell off the bus does not tell its UUID any more. */
static const char *uuid_of(const struct child *c, nvmlDevice_t device)
{
    for (size_t i = 0; i < ALQ_NVML_GPUS_MAX; i++) {
        if (device && c->watched[i].handle == device)
            return c->watched[i].uuid;
    }
    return NULL;
}

static nvmlReturn_t next_event(struct child *c, nvmlEventData_t *data)
{
    memset(data, 0, sizeof(*data));
    if (nvml.nvmlEventSetWait_v2)
        return nvml.nvmlEventSetWait_v2(c->set, data, 0);
    return nvml.nvmlEventSetWait ? nvml.nvmlEventSetWait(c->set, data, 0) : NVML_ERROR_TIMEOUT;
}

void child_collect(struct child *c)
{
    struct alq_nvml_events *events = &c->events;
    memset(events, 0, sizeof(*events));
    while (c->set && events->count < ALQ_NVML_EVENTS_MAX) {
        struct alq_gpu_event *event = &events->events[events->count];
        nvmlEventData_t data;
        nvmlReturn_t status = next_event(c, &data);
        if (status != NVML_SUCCESS) {
            events->is_reading_due |= child_is_lost(status) && !c->is_stale;
            break;
        }
        events->is_reading_due = 1;
        const char *uuid = uuid_of(c, data.device);
        if (!uuid || !(data.eventType & TYPES))
            continue;
        event->kind =
            data.eventType & nvmlEventTypeXidCriticalError ? ALQ_FAULT_XID : ALQ_FAULT_ECC;
        event->code = event->kind == ALQ_FAULT_XID ? data.eventData : 0;
        snprintf(event->uuid, sizeof(event->uuid), "%s", uuid);
        events->count++;
    }
}
