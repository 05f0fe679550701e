/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conditions of device.h. A place of the machine keeps its device's index in every client's memory,
 * so it is given away again only when nobody is left who saw the old device.
 */
#include "daemon/device.h"

#include <string.h>

#include "aliquot/cuda_enums.h"
#include "aliquot/nvml_abi.h"
#include "daemon/reply.h"
#include "daemon/schedule.h"

uint64_t sim_device_capacity(const struct sim_server *s, uint32_t d)
{
    return s->machine.device[d].total_bytes - s->machine.device[d].reserved_bytes;
}

void sim_device_publish(struct sim_server *s, uint32_t d)
{
    s->node->device[d].capacity_bytes = sim_device_capacity(s, d);
    atomic_store(&s->node->device[d].withheld_bytes, s->health[d].withheld_bytes);
    atomic_store(&s->control->device[d].condition, s->health[d].condition);
}

static void set_up(struct sim_server *s, uint32_t d)
{
    memset(&s->health[d], 0, sizeof(s->health[d]));
    sim_device_publish(s, d);
}

void sim_devices_open(struct sim_server *s)
{
    s->node->device_count = s->machine.device_count;
    for (uint32_t d = 0; d < s->machine.device_count; d++)
        set_up(s, d);
}

static uint32_t seen_places(const struct sim_server *s)
{
    uint32_t seen = 0;

    for (const struct sim_client_entry *c = s->clients; c; c = c->next)
        seen |= c->devices;
    return seen;
}

int sim_device_add(struct sim_server *s, json_t *description, uint32_t *place, struct alq_err *err)
{
    uint32_t seen = seen_places(s), d = 0;
    int rc;

    while (d < s->machine.device_count && (sim_device_is_present(s, d) || seen >> d & 1))
        d++;
    if (d == SIM_MAX_DEVICES)
        return alq_err_set(err, ALQ_EBUSY,
                           "all %u places are taken; remove a device and end the clients that saw "
                           "it",
                           SIM_MAX_DEVICES);
    if ((rc = sim_machine_place(&s->machine, description, d, err)) != 0)
        return rc;
    if (!sim_schedule_device(s, d))
        return alq_err_set(err, ALQ_ENOMEM, "no memory for the device");
    memset(&s->node->device[d], 0, sizeof(s->node->device[d]));
    for (struct sim_group_entry *g = s->groups; g; g = g->next) {
        memset(&g->past[d], 0, sizeof(g->past[d]));
        memset(&g->map->device[d], 0, sizeof(g->map->device[d]));
    }
    s->node->device_count = s->machine.device_count;
    set_up(s, d);
    *place = d;
    return 0;
}

void sim_device_event(struct sim_server *s, uint32_t d, uint64_t type, uint64_t data)
{
    struct sim_event event = {
        .header = {SIM_EVENT, sizeof(event)}, .index = d, .type = type, .data = data};

    for (const struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (type ? c->watched[d] & type : c->watched[d])
            (void)sim_reply(c->fd, &event, sizeof(event), NULL, 0);
    }
}

void sim_device_fail_contexts(struct sim_server *s, uint32_t d, uint32_t code)
{
    atomic_store(&s->control->device[d].code, code);
    atomic_fetch_add(&s->control->device[d].epoch, 1);
}

static void leave(struct sim_server *s, uint32_t d, enum sim_condition condition)
{
    s->health[d].condition = condition;
    sim_device_publish(s, d);
    sim_device_fail_contexts(s, d, CUDA_ERROR_UNKNOWN);
    sim_device_event(s, d, 0, 0); /* whoever waits looks at the condition */
}

void sim_device_lose(struct sim_server *s, uint32_t d)
{
    sim_device_event(s, d, nvmlEventTypeXidCriticalError, SIM_XID_FALLEN_OFF_BUS);
    s->health[d].last_xid = SIM_XID_FALLEN_OFF_BUS;
    leave(s, d, SIM_DEVICE_LOST);
}

void sim_device_recover(struct sim_server *s, uint32_t d)
{
    s->health[d].recovery_action = 0;
    s->health[d].last_xid = 0;
    s->health[d].condition = SIM_DEVICE_OK;
    sim_device_publish(s, d);
}

void sim_device_remove(struct sim_server *s, uint32_t d)
{
    s->machine.absent |= 1u << d;
    leave(s, d, SIM_DEVICE_REMOVED);
}

void sim_device_freeze(struct sim_server *s, uint32_t d, int percent)
{
    s->health[d].frozen_pct = percent < 0 ? sim_schedule_device_pct(s, d) : (uint32_t)percent;
    for (struct sim_client_entry *c = s->clients; c; c = c->next)
        c->frozen_pct[d] = c->map ? (uint8_t)sim_schedule_client_pct(c, d) : 0;
    s->health[d].is_frozen = true;
}
