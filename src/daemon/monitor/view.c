/* SPDX-License-Identifier: Apache-2.0 */
/* The figures as JSON, see view.h. */
#include "daemon/monitor/view.h"

#include <string.h>

#include "daemon/monitor/state.h"

static json_t *refusals_json(const struct alq_usage *usage)
{
    static const char *const entries[ALQ_FAMILY_COUNT] = {
#define NAME(family, name) [ALQ_FAMILY_##family] = (name),
        ALQ_FAMILY_NAMES(NAME)
#undef NAME
    };
    json_t *out = json_object();
    for (unsigned i = 0; i < ALQ_FAMILY_COUNT; i++)
        if (usage->refused[i])
            json_object_set_new(out, entries[i], json_integer((json_int_t)usage->refused[i]));
    return out;
}

json_t *alq_monitor_usage_json(const struct alq_monitor *m, const char *share_id)
{
    const struct alq_watched *w = alq_shares_find(&m->shares, share_id);
    if (!w)
        return NULL;
    const struct alq_figures *f = alq_watched_figures(w);
    const struct alq_counters *counters = &f->usage.counters;
    const uint32_t processes =
        f->usage.processes > f->gpu_processes ? f->usage.processes : f->gpu_processes;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:s*}", "countedBytes",
        (json_int_t)f->usage.counted_bytes, "overheadBytes", (json_int_t)alq_watched_overhead(w),
        "spilledBytes", (json_int_t)f->usage.spilled_bytes, "physicalBytes",
        (json_int_t)f->physical_bytes, "peakBytes", (json_int_t)counters->peak_bytes, "processes",
        (int)processes, "usedPercent", (int)f->used_pct, "usedNs", (json_int_t)f->used_ns,
        "chargedNs", (json_int_t)counters->charged_ns, "throttledNs",
        (json_int_t)counters->throttled_ns, "launches", (json_int_t)counters->launches,
        "unknownEntries", (json_int_t)counters->unknown_entries, "refusals",
        refusals_json(&f->usage), "error", f->usage.flaw);
}

static void add_known(json_t *object, const char *key, int64_t value)
{
    if (value >= 0)
        json_object_set_new(object, key, json_integer(value));
}

void alq_monitor_add_load(const struct alq_monitor *m, const char *gpu_uuid, json_t *gpu)
{
    const struct alq_round_gpu *load = alq_monitor_load(m, gpu_uuid);
    if (!load->uuid[0])
        return; /* no sample yet */
    add_known(gpu, "memoryUsedBytes", load->used_bytes);
    add_known(gpu, "memoryOutsideSharesBytes", load->outside_bytes);
    add_known(gpu, "utilizationPercent", load->utilization_pct);
}

void alq_monitor_add_users(const struct alq_monitor *m, const char *share_id, json_t *share)
{
    const struct alq_watched *w = alq_shares_find(&m->shares, share_id);
    if (w && w->pod)
        json_object_set_new(share, "pod", json_string(w->pod));
    if (w && w->container)
        json_object_set_new(share, "container", json_string(w->container));
}

json_t *alq_monitor_processes_json(const struct alq_monitor *m)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < m->process_count; i++) {
        const struct alq_round_process *p = &m->processes[i];
        json_t *process = json_pack("{s:I, s:s, s:s*, s:i, s:s}", "pid", (json_int_t)p->pid, "gpu",
                                    p->gpu_uuid, "share", p->share_id[0] ? p->share_id : NULL,
                                    "usedPercent", (int)p->sm_pct, "command", p->command);
        add_known(process, "memoryBytes", p->used_bytes);
        json_array_append_new(list, process);
    }
    return list;
}
