/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What simctl shows: the oracle (true bytes and busy time) and the list of devices and clients.
 * Reads the server's state and the shared memory of its clients; writes nothing.
 */
#include "daemon/device.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "daemon/schedule.h"

static uint64_t get(const _Atomic uint64_t *field)
{
    return atomic_load(field);
}

static json_t *number(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *process_entry(const struct sim_server *s, const struct sim_client_entry *c,
                             uint32_t d)
{
    struct sim_client_device *cd = &c->map->device[d];

    return json_pack("{s:i,s:s,s:o,s:o,s:o,s:i,s:o,s:o}", "pid", (int)c->pid, "group",
                     c->group->name, "bytes", number(sim_server_client_bytes(s, c, d)),
                     "context_bytes", number(get(&cd->account.context_bytes)), "module_bytes",
                     number(get(&cd->account.module_bytes)), "contexts",
                     (int)atomic_load(&cd->account.context_count), "busy_ns",
                     number(sim_schedule_busy_ns(c, d)), "launches",
                     number(sim_schedule_launches(c, d)));
}

/* NULL for a group that never used the device. */
static json_t *group_entry(const struct sim_server *s, const struct sim_group_entry *g, uint32_t d)
{
    uint64_t busy = g->past[d].busy_ns, launches = g->past[d].launches, context = 0;
    uint64_t bytes = sim_word_bytes(get(&g->map->device[d].used));
    uint64_t peak = get(&g->map->device[d].peak_bytes);
    int processes = 0;

    for (const struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (!c->map || c->group != g)
            continue;
        busy += sim_schedule_busy_ns(c, d);
        launches += sim_schedule_launches(c, d);
        context += get(&c->map->device[d].account.context_bytes);
        processes += atomic_load(&c->map->device[d].account.context_count) > 0;
    }
    if (!peak && !launches && !processes)
        return NULL;
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:i}", "group", g->name, "bytes", number(bytes),
                     "peak_bytes", number(peak), "context_bytes", number(context), "busy_ns",
                     number(busy), "launches", number(launches), "processes", processes);
}

static json_t *device_entry(const struct sim_server *s, uint32_t d)
{
    const struct sim_device_info *info = &s->machine.device[d];
    json_t *groups = json_array(), *processes = json_array();

    for (const struct sim_group_entry *g = s->groups; g; g = g->next) {
        json_t *entry = group_entry(s, g, d);

        if (entry)
            json_array_append_new(groups, entry);
    }
    for (const struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (c->map && (sim_server_client_bytes(s, c, d) ||
                       atomic_load(&c->map->device[d].account.context_count)))
            json_array_append_new(processes, process_entry(s, c, d));
    }
    return json_pack("{s:i,s:s,s:i,s:o,s:o,s:o,s:o,s:o,s:o}", "index", (int)d, "uuid", info->uuid,
                     "minor", (int)info->minor, "total_bytes", number(info->total_bytes),
                     "reserved_bytes", number(info->reserved_bytes), "used_bytes",
                     number(sim_word_bytes(get(&s->node->device[d].used))), "busy_ns",
                     number(sim_server_device_busy(s, d)), "groups", groups, "processes",
                     processes);
}

json_t *sim_report_oracle(const struct sim_server *s)
{
    json_t *devices = json_array();

    for (uint32_t d = 0; d < s->machine.device_count; d++) {
        if (sim_device_is_present(s, d))
            json_array_append_new(devices, device_entry(s, d));
    }
    return json_pack("{s:o,s:o}", "time_ns", number(sim_model_now(s->model)), "devices", devices);
}

json_t *sim_report_device(const struct sim_server *s, uint32_t d)
{
    const struct sim_device_info *i = &s->machine.device[d];
    const struct sim_health *h = &s->health[d];
    char pci[32], capability[16];
    json_t *o;

    snprintf(pci, sizeof(pci), "%04x:%02x:%02x.0", i->pci_domain, i->pci_bus, i->pci_device);
    snprintf(capability, sizeof(capability), "%u.%u", i->cc_major, i->cc_minor);
    o = json_pack("{s:i,s:s,s:s,s:i,s:s,s:s,s:s,s:i,s:o,s:o,s:o,s:o,s:b}", "index", (int)i->index,
                  "name", i->name, "uuid", i->uuid, "minor", (int)i->minor, "pci", pci, "serial",
                  i->serial, "compute_capability", capability, "sms", (int)i->sms, "total_bytes",
                  number(i->total_bytes), "reserved_bytes", number(i->reserved_bytes),
                  "context_bytes", number(i->context_bytes), "module_bytes",
                  number(i->module_bytes), "mig", (int)i->mig);
    json_object_set_new(o, "numa_node", json_integer(i->numa_node));
    json_object_set_new(o, "condition", json_string(h->condition == SIM_DEVICE_OK ? "ok" : "lost"));
    json_object_set_new(o, "withheld_bytes", number(h->withheld_bytes));
    json_object_set_new(o, "frozen_pct", h->is_frozen ? json_integer(h->frozen_pct) : json_null());
    json_object_set_new(o, "last_xid", h->last_xid ? json_integer(h->last_xid) : json_null());
    json_object_set_new(o, "recovery_action", json_integer(h->recovery_action));
    json_object_set_new(o, "ecc_corrected", number(h->ecc_corrected));
    json_object_set_new(o, "ecc_uncorrected", number(h->ecc_uncorrected));
    return o;
}

static const char *kind_name(uint32_t kind)
{
    return kind == SIM_KIND_CUDA ? "cuda" : kind == SIM_KIND_NVML ? "nvml" : "control";
}

static json_t *command_name(pid_t pid)
{
    char path[64], name[32] = "";

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    alq_auto_fclose FILE *f = fopen(path, "re");
    if (f && fgets(name, sizeof(name), f))
        name[strcspn(name, "\n")] = '\0';
    for (char *c = name; *c; c++) {
        if (*c < ' ' || *c > '~')
            *c = '?';
    }
    return json_string(name);
}

json_t *sim_report_processes(const struct sim_server *s)
{
    json_t *all = json_array();

    for (const struct sim_client_entry *c = s->clients; c; c = c->next) {
        json_t *devices = json_array();

        if (!c->kind)
            continue;
        for (uint32_t d = 0; c->map && d < s->machine.device_count; d++) {
            json_t *entry;

            if (!sim_server_client_bytes(s, c, d) &&
                !atomic_load(&c->map->device[d].account.context_count))
                continue;
            entry = process_entry(s, c, d);
            json_object_del(entry, "pid");
            json_object_del(entry, "group");
            json_object_set_new(entry, "index", json_integer(d));
            json_array_append_new(devices, entry);
        }
        json_array_append_new(all,
                              json_pack("{s:i,s:s,s:o,s:s,s:o}", "pid", (int)c->pid, "kind",
                                        kind_name(c->kind), "name", command_name(c->pid), "group",
                                        c->group ? c->group->name : "", "devices", devices));
    }
    return all;
}

json_t *sim_report_list(const struct sim_server *s)
{
    const struct sim_profile_facts *facts = sim_profile_facts(s->machine.profile);
    json_t *devices = json_array(), *clients = json_array(), *counts = json_object();

    for (uint32_t d = 0; d < s->machine.device_count; d++) {
        if (sim_device_is_present(s, d))
            json_array_append_new(devices, sim_report_device(s, d));
    }
    for (const struct sim_client_entry *c = s->clients; c; c = c->next) {
        if (c->kind)
            json_array_append_new(clients, json_pack("{s:i,s:s,s:s}", "pid", (int)c->pid, "kind",
                                                     kind_name(c->kind), "group",
                                                     c->group ? c->group->name : ""));
    }
    for (uint32_t i = 0; sim_entry_name(s->machine.profile, SIM_LIBRARY_NVML, i); i++) {
        if (s->control->nvml_unsupported[i])
            json_object_set_new(counts, sim_entry_name(s->machine.profile, SIM_LIBRARY_NVML, i),
                                number(s->control->nvml_unsupported[i]));
    }
    for (uint32_t i = 0; sim_entry_name(s->machine.profile, SIM_LIBRARY_CUDA, i); i++) {
        uint64_t calls = s->unsupported[i];

        for (const struct sim_client_entry *c = s->clients; c; c = c->next) {
            if (c->map)
                calls += atomic_load(&c->map->unsupported[i]);
        }
        if (calls)
            json_object_set_new(counts, sim_entry_name(s->machine.profile, SIM_LIBRARY_CUDA, i),
                                number(calls));
    }
    return json_pack("{s:s,s:s,s:i,s:o,s:o,s:o}", "profile", facts->name, "driver_version",
                     facts->driver_version, "cuda_version", facts->cuda_version, "devices", devices,
                     "clients", clients, "unsupported_calls", counts);
}
