/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from NVML what processes use of the GPUs, see child_use.h. Single-threaded. */
#include "daemon/nvml/child_use.h"

#include <stdlib.h>
#include <time.h>

#define SAMPLES_MAX (ALQ_USE_PROCESSES_MAX * 4)
#define STAMP_MAX_US (INT64_MAX / 1000)

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static int by_pid(const void *a, const void *b)
{
    const nvmlProcessUtilizationSample_t *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* A process that is missing in a period did nothing in it, and the processes' stamps of one period
 * differ: who has the most samples tells how many periods there were. */
static int add_means(nvmlProcessUtilizationSample_t *samples, uint32_t count,
                     struct alq_use_gpu *gpu)
{
    uint32_t periods = 0, of = 0;
    qsort(samples, count, sizeof(*samples), by_pid);
    gpu->processes = calloc(count, sizeof(*gpu->processes));
    if (!gpu->processes)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        if (!i || samples[i].pid != samples[i - 1].pid) {
            if (gpu->process_count == ALQ_USE_PROCESSES_MAX)
                break;
            gpu->processes[gpu->process_count++].pid = samples[i].pid;
            of = 0;
        }
        gpu->processes[gpu->process_count - 1].sm_pct +=
            samples[i].smUtil < 100 ? samples[i].smUtil : 100;
        if (++of > periods)
            periods = of;
    }
    for (uint32_t i = 0; i < gpu->process_count; i++)
        gpu->processes[i].sm_pct = (gpu->processes[i].sm_pct + periods / 2) / periods;
    return 0;
}

int child_read_use(nvmlDevice_t device, uint64_t *seen_us, struct alq_use_gpu *gpu)
{
    static nvmlProcessUtilizationSample_t samples[SAMPLES_MAX];
    uint64_t newest_us = 0;
    uint32_t newer = 0;
    unsigned int count = SAMPLES_MAX;
    /* Stamps ahead of the clock: it was set back, or is not theirs. Older ones tell which. */
    int is_ahead = *seen_us > now_us() + ALQ_USE_AGE_NS_MAX / 1000;
    if (!nvml.nvmlDeviceGetProcessUtilization ||
        nvml.nvmlDeviceGetProcessUtilization(device, samples, &count, is_ahead ? 0 : *seen_us) !=
            NVML_SUCCESS ||
        count > SAMPLES_MAX)
        return 0;
    for (unsigned int i = 0; i < count; i++) {
        const nvmlProcessUtilizationSample_t sample = samples[i];
        if (!sample.pid || sample.pid > INT32_MAX || sample.timeStamp > STAMP_MAX_US)
            continue;
        if (sample.timeStamp > newest_us)
            newest_us = sample.timeStamp;
        if (sample.timeStamp > *seen_us)
            samples[newer++] = sample;
    }
    if (newer || (is_ahead && newest_us))
        *seen_us = newest_us;
    return newer ? add_means(samples, newer, gpu) : 0;
}

int alq_child_use(struct child *c, struct alq_use *use)
{
    uint64_t ended_us[ALQ_NVML_GPUS_MAX];
    uint32_t count = child_gpu_count();
    use->gpus = calloc(count ? count : 1, sizeof(*use->gpus));
    if (!use->gpus)
        return -1;
    for (uint32_t i = 0; i < count; i++) {
        struct alq_use_gpu *gpu = &use->gpus[use->gpu_count];
        const uint64_t since_us = c->use_seen_us[i];
        nvmlDevice_t device = NULL;
        int rc = child_visit(c, i, &device, gpu->uuid);
        if (rc < 0)
            return -1;
        if (!rc)
            continue;
        if (child_read_use(device, &c->use_seen_us[i], gpu))
            return -1;
        if (since_us && c->use_seen_us[i] > since_us)
            gpu->window_ns = (int64_t)(c->use_seen_us[i] - since_us) * 1000;
        else
            gpu->process_count = 0;
        ended_us[use->gpu_count++] = c->use_seen_us[i];
    }
    const uint64_t now = now_us();
    for (uint32_t i = 0; i < use->gpu_count; i++) {
        struct alq_use_gpu *gpu = &use->gpus[i];
        if (gpu->window_ns && ended_us[i] <= now && now - ended_us[i] <= ALQ_USE_AGE_NS_MAX / 1000)
            gpu->age_ns = (int64_t)(now - ended_us[i]) * 1000;
    }
    return 0;
}
