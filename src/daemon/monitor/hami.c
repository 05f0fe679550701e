/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures under the names that HAMi's vGPUmonitor gives them (--hami-metrics), so that its
 * dashboards and alerts go on. All are gauges with zone="vGPU". Loop thread only.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/monitor/state.h"

#define LABELS_BYTES 1024
#define NS_PER_S 1000000000u

/* Its index: results of a claim are its devices in a container. */
static const char *index_of(const struct alq_watched *w)
{
    const char *dash = strrchr(w->id, '-');
    return dash ? dash + 1 : "0";
}

static void share_labels(const struct alq_watched *w, char labels[LABELS_BYTES])
{
    /* namespace comes first, pod and container last (shares.c) */
    const char *claim = strstr(w->labels, ",claim=");
    snprintf(labels, LABELS_BYTES, "%.*s%s", claim ? (int)(claim - w->labels) : 0, w->labels,
             w->labels + w->fixed);
    alq_metrics_label(labels, LABELS_BYTES, "vdevice_index", index_of(w));
    alq_metrics_label(labels, LABELS_BYTES, "device_uuid", w->gpu_uuid);
    alq_metrics_label(labels, LABELS_BYTES, "zone", "vGPU");
}

static uint64_t idle_s(const struct alq_figures *f, int64_t boot_ns)
{
    int64_t last_ns = (int64_t)f->usage.counters.last_activity_ns;
    return last_ns && boot_ns > last_ns ? (uint64_t)(boot_ns - last_ns) / NS_PER_S : 0;
}

static uint64_t share_value(const struct alq_watched *w, enum alq_metric_id id, int64_t boot_ns)
{
    switch (id) {
    case ALQ_METRIC_HAMI_VGPU_LIMIT:
        return alq_watched_limit_bytes(w);
    case ALQ_METRIC_HAMI_VGPU_USED:
    case ALQ_METRIC_HAMI_CONTAINER_MEMORY:
        return alq_watched_figures(w)->usage.counted_bytes + alq_watched_overhead(w);
    case ALQ_METRIC_HAMI_CONTAINER_UTILIZATION:
        return alq_watched_figures(w)->used_pct;
    case ALQ_METRIC_HAMI_LAST_KERNEL:
        return idle_s(alq_watched_figures(w), boot_ns);
    case ALQ_METRIC_HAMI_VGPU_CONTEXT:
        return alq_watched_overhead(w);
    case ALQ_METRIC_HAMI_VGPU_BUFFER:
        return alq_watched_figures(w)->usage.counted_bytes;
    default:
        return 0;
    }
}

void alq_collect_hami_share(void *monitor, enum alq_metric_id id, struct alq_metrics_text *text)
{
    const struct alq_monitor *m = monitor;
    char labels[LABELS_BYTES];
    for (size_t i = 0; i < m->shares.count; i++) {
        const struct alq_watched *w = m->shares.all[i];
        if (w->share->is_admin)
            continue;
        share_labels(w, labels);
        alq_metrics_u64(text, labels, NULL, share_value(w, id, m->boot_ns));
    }
}

void alq_collect_hami_gpu(void *monitor, enum alq_metric_id id, struct alq_metrics_text *text)
{
    const struct alq_monitor *m = monitor;
    for (size_t i = 0; i < m->gpus.count; i++) {
        const struct alq_gpu *gpu = &m->gpus.gpus[i];
        const struct alq_round_gpu *load = alq_monitor_load(m, gpu->uuid);
        char labels[LABELS_BYTES] = "", number[16];
        int64_t value = id == ALQ_METRIC_HAMI_HOST_USED          ? load->used_bytes
                        : id == ALQ_METRIC_HAMI_HOST_UTILIZATION ? load->utilization_pct
                                                                 : load->memory_utilization_pct;
        snprintf(number, sizeof(number), "%u", gpu->index);
        if (id != ALQ_METRIC_HAMI_HOST_MEMORY_UTILIZATION)
            alq_metrics_label(labels, sizeof(labels), "node", m->parts.cfg->node_name);
        alq_metrics_label(labels, sizeof(labels), "device_index", number);
        alq_metrics_label(labels, sizeof(labels), "device_uuid", gpu->uuid);
        alq_metrics_label(labels, sizeof(labels), "device_type", gpu->product_name);
        alq_metrics_label(labels, sizeof(labels), "zone", "vGPU");
        alq_metrics_i64(text, labels, NULL, value > 0 ? value : 0);
    }
}
