/* SPDX-License-Identifier: Apache-2.0 */
/* The figures of shares and GPUs on the page, see metrics.def. Loop thread only. */
#include <string.h>

#include "daemon/monitor/state.h"

/* ---- shares -----------------------------------------------------------------------------------
 */

static uint32_t processes(const struct alq_figures *f)
{
    return f->usage.processes > f->gpu_processes ? f->usage.processes : f->gpu_processes;
}

static uint64_t last_activity_ns(const struct alq_monitor *m, const struct alq_figures *f)
{
    int64_t ns = (int64_t)f->usage.counters.last_activity_ns;
    return ns && ns + m->boot_to_unix_ns > 0 ? (uint64_t)(ns + m->boot_to_unix_ns) : 0;
}

static void collect_refusals(struct alq_metrics_text *text, const struct alq_watched *w)
{
    static const char *const entries[ALQ_FAMILY_COUNT] = {
#define LABEL(family, name) [ALQ_FAMILY_##family] = "entry=\"" name "\"",
        ALQ_FAMILY_NAMES(LABEL)
#undef LABEL
    };
    for (unsigned i = 0; i < ALQ_FAMILY_COUNT; i++)
        alq_metrics_u64(text, w->labels, entries[i], alq_watched_figures(w)->usage.refused[i]);
}

static void collect_one(const struct alq_monitor *m, enum alq_metric_id id,
                        struct alq_metrics_text *text, const struct alq_watched *w)
{
    const struct alq_figures *f = alq_watched_figures(w);
    const struct alq_counters *counters = &f->usage.counters;
    switch (id) {
    case ALQ_METRIC_SHARE_MEMORY_LIMIT:
        alq_metrics_u64(text, w->labels, NULL, alq_watched_limit_bytes(w));
        break;
    case ALQ_METRIC_SHARE_MEMORY_COUNTED:
        alq_metrics_u64(text, w->labels, NULL, f->usage.counted_bytes);
        break;
    case ALQ_METRIC_SHARE_MEMORY_OVERHEAD:
        alq_metrics_u64(text, w->labels, NULL, alq_watched_overhead(w));
        break;
    case ALQ_METRIC_SHARE_MEMORY_SPILLED:
        alq_metrics_u64(text, w->labels, NULL, f->usage.spilled_bytes);
        break;
    case ALQ_METRIC_SHARE_MEMORY_PHYSICAL:
        alq_metrics_u64(text, w->labels, NULL, f->physical_bytes);
        break;
    case ALQ_METRIC_SHARE_MEMORY_PEAK:
        alq_metrics_u64(text, w->labels, NULL, counters->peak_bytes);
        break;
    case ALQ_METRIC_SHARE_REFUSALS:
        collect_refusals(text, w);
        break;
    case ALQ_METRIC_SHARE_ALLOCATIONS:
        alq_metrics_u64(text, w->labels, NULL, counters->allocations);
        break;
    case ALQ_METRIC_SHARE_COMPUTE_LIMIT:
        alq_metrics_u64(text, w->labels, NULL, alq_watched_cores_pct(w));
        break;
    case ALQ_METRIC_SHARE_COMPUTE_BORROWED:
        alq_metrics_u64(text, w->labels, NULL, w->lend.borrowed_pct);
        break;
    case ALQ_METRIC_SHARE_COMPUTE_LENT:
        alq_metrics_u64(text, w->labels, NULL, alq_watched_lent_pct(&m->shares, w));
        break;
    case ALQ_METRIC_SHARE_COMPUTE_GRANTED:
        alq_metrics_seconds(text, w->labels, NULL, counters->charged_ns);
        break;
    case ALQ_METRIC_SHARE_COMPUTE_USED:
        alq_metrics_seconds(text, w->labels, NULL, f->used_ns);
        break;
    case ALQ_METRIC_SHARE_THROTTLED:
        alq_metrics_seconds(text, w->labels, NULL, counters->throttled_ns);
        break;
    case ALQ_METRIC_SHARE_LAUNCHES:
        alq_metrics_u64(text, w->labels, NULL, counters->launches);
        break;
    case ALQ_METRIC_SHARE_PROCESSES:
        alq_metrics_u64(text, w->labels, NULL, processes(f));
        break;
    case ALQ_METRIC_SHARE_LAST_ACTIVITY:
        alq_metrics_seconds(text, w->labels, NULL, last_activity_ns(m, f));
        break;
    case ALQ_METRIC_SHARE_USAGE_VALID:
        alq_metrics_u64(text, w->labels, NULL, !f->usage.flaw);
        break;
    case ALQ_METRIC_SHARE_TRIMMED:
        alq_metrics_u64(text, w->labels, NULL, f->trimmed_bytes);
        break;
    default:
        break;
    }
}

void alq_collect_share(void *monitor, enum alq_metric_id id, struct alq_metrics_text *text)
{
    const struct alq_monitor *m = monitor;
    for (size_t i = 0; i < m->shares.count; i++)
        collect_one(m, id, text, m->shares.all[i]);
}

/* ---- GPUs -------------------------------------------------------------------------------------
 */

const struct alq_round_gpu *alq_monitor_load(const struct alq_monitor *m, const char *uuid)
{
    static const struct alq_round_gpu none; /* no sample yet */
    for (uint32_t i = 0; i < m->load_count; i++)
        if (!strcmp(m->loads[i].uuid, uuid))
            return &m->loads[i];
    return &none;
}

static uint64_t known(int64_t value)
{
    return value > 0 ? (uint64_t)value : 0;
}

static uint64_t gpu_value(const struct alq_monitor *m, enum alq_metric_id id,
                          const struct alq_gpu *gpu)
{
    const struct alq_round_gpu *load = alq_monitor_load(m, gpu->uuid);
    const struct alq_fault *fault = alq_gpu_fault(gpu);
    uint64_t promised_bytes;
    uint32_t promised_pct;
    switch (id) {
    case ALQ_METRIC_GPU_MEMORY_TOTAL:
        return gpu->memory_total_bytes;
    case ALQ_METRIC_GPU_MEMORY_PROMISABLE:
        return gpu->memory_promisable_bytes;
    case ALQ_METRIC_GPU_MEMORY_PROMISED:
        alq_shares_promised(&m->shares, gpu->uuid, &promised_bytes, &promised_pct);
        return promised_bytes;
    case ALQ_METRIC_GPU_CORES_PROMISED:
        alq_shares_promised(&m->shares, gpu->uuid, &promised_bytes, &promised_pct);
        return promised_pct;
    case ALQ_METRIC_GPU_MEMORY_USED:
        return known(load->used_bytes);
    case ALQ_METRIC_GPU_MEMORY_OUTSIDE:
        return known(load->outside_bytes);
    case ALQ_METRIC_GPU_UTILIZATION:
        return known(load->utilization_pct);
    case ALQ_METRIC_GPU_HEALTHY:
        return !fault || fault->effect != ALQ_FAULT_UNFIT;
    default:
        return 0;
    }
}

void alq_collect_gpu(void *monitor, enum alq_metric_id id, struct alq_metrics_text *text)
{
    const struct alq_monitor *m = monitor;
    for (size_t i = 0; i < m->gpus.count; i++) {
        const struct alq_gpu *gpu = &m->gpus.gpus[i];
        char labels[2 * sizeof(gpu->uuid) + 2 * sizeof(gpu->name)] = "";
        alq_metrics_label(labels, sizeof(labels), "uuid", gpu->uuid);
        alq_metrics_label(labels, sizeof(labels), "device", gpu->name);
        alq_metrics_u64(text, labels, NULL, gpu_value(m, id, gpu));
    }
}
