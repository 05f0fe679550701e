/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the monitor has to say to `aliquot doctor`: figures that are missing or wrong, and why. A
 * round is noted when it ends; the findings are made of that when somebody asks. Loop thread only.
 */
#include <string.h>
#include <unistd.h>

#include "daemon/findings.h"
#include "daemon/monitor/state.h"

#define ROUNDS_MIN 3u /* a process that begins or ends is in one list and not in the other */

/* ---- rounds -----------------------------------------------------------------------------------
 */

static void note_sample(struct alq_monitor *m, const struct alq_round *r)
{
    m->mute[0] = '\0';
    for (uint32_t i = 0; i < r->sample.gpu_count && !m->mute[0]; i++) {
        const struct alq_gpu_sample *gpu = &r->sample.gpus[i];
        int is_told = gpu->has_processes;
        for (uint32_t k = 0; k < gpu->process_count; k++)
            is_told &= gpu->processes[k].used_bytes != ALQ_UNKNOWN;
        if (!is_told)
            memcpy(m->mute, gpu->uuid, sizeof(m->mute));
    }
    for (uint32_t i = 0; i < r->count; i++) {
        const struct alq_figures *f = &r->shares[i].f;
        struct alq_watched *w = alq_shares_find(&m->shares, r->shares[i].id);
        int is_unseen = f->usage.processes && f->usage.overhead_bytes && !f->gpu_processes;
        if (w)
            w->unseen = is_unseen ? w->unseen + 1 : 0;
    }
}

void alq_monitor_note(struct alq_monitor *m, const struct alq_round *r)
{
    m->is_blind = !r->files->mounts;
    m->missed = r->has_sample ? 0 : m->missed + 1;
    if (r->has_sample)
        note_sample(m, r);
}

/* ---- findings ---------------------------------------------------------------------------------
 */

/* Of many shares one finding, with the first of them. */
struct some {
    unsigned count;
    const struct alq_watched *first;
};

static void add(struct some *some, const struct alq_watched *w)
{
    if (!some->count++)
        some->first = w;
}

static const char *name_of(const struct alq_watched *w)
{
    return w->claim->name ? w->claim->name : "";
}

/* The first PID namespace has this number on every kernel (PROC_PID_INIT_INO). */
static int has_host_pids(void)
{
    static const char first[] = "pid:[4026531836]";
    char name[32] = "";
    return readlink("/proc/self/ns/pid", name, sizeof(name) - 1) > 0 && !strcmp(name, first);
}

static void tell_shares(const struct alq_monitor *m, struct alq_findings *findings)
{
    struct some damaged = {0}, unseen = {0}, unknown = {0};
    uint64_t entries = 0;
    for (size_t i = 0; i < m->shares.count; i++) {
        const struct alq_watched *w = m->shares.all[i];
        if (alq_watched_figures(w)->usage.flaw)
            add(&damaged, w);
        if (w->unseen >= ROUNDS_MIN)
            add(&unseen, w);
        if (alq_watched_figures(w)->usage.counters.unknown_entries)
            add(&unknown, w);
        entries += alq_watched_figures(w)->usage.counters.unknown_entries;
    }
    if (damaged.count)
        alq_findings_add(findings, "monitor.usage-damaged", ALQ_FINDING_WARNING,
                         "a container of the claim writes into the file: delete its pods",
                         "the usage files of %u shares are damaged and their figures zero, first "
                         "%s of claim %s/%s: %s",
                         damaged.count, damaged.first->id, damaged.first->claim->namespace_,
                         name_of(damaged.first), alq_watched_figures(damaged.first)->usage.flaw);
    else
        alq_findings_add(findings, "monitor.usage-files", ALQ_FINDING_OK, NULL,
                         "the usage files of all shares (%zu) are sound", m->shares.count);
    if (unseen.count)
        alq_findings_add(
            findings, "monitor.processes-unseen", ALQ_FINDING_WARNING,
            has_host_pids() ? "under MPS the driver may list its server in place of the clients; "
                              "without MPS, look for processes in NVML's list (nvidia-smi)"
                            : "run aliquotd with the PIDs of the host (hostPID: true)",
            "%u shares, first %s of claim %s/%s, have processes with a context, and "
            "none that NVML lists: their physical memory is not known and nothing is "
            "corrected",
            unseen.count, unseen.first->id, unseen.first->claim->namespace_, name_of(unseen.first));
    if (unknown.count)
        alq_findings_add(findings, "monitor.unknown-entries", ALQ_FINDING_WARNING,
                         "update aliquot to a version that knows this driver",
                         "programs of %u shares, first %s of claim %s/%s, were given %llu entry "
                         "points that libvgpu.so does not know: what they do is not limited",
                         unknown.count, unknown.first->id, unknown.first->claim->namespace_,
                         name_of(unknown.first), (unsigned long long)entries);
    else
        alq_findings_add(findings, "monitor.entry-points", ALQ_FINDING_OK, NULL,
                         "no program was given an entry point that libvgpu.so does not know");
}

void alq_monitor_tell(void *monitor, struct alq_findings *findings)
{
    struct alq_monitor *m = monitor;
    alq_monitor_refresh(m);
    tell_shares(m, findings);
    if (!m->shares.count)
        return; /* nothing is watched: what is known is old */
    if (m->missed >= ROUNDS_MIN)
        alq_findings_add(findings, "monitor.sampling", ALQ_FINDING_WARNING,
                         "see what doctor says of the GPUs; aliquotd starts its NVML reader again "
                         "by itself",
                         "NVML has not answered %u times in a row: physical memory and used time "
                         "of shares are of before",
                         m->missed);
    if (m->is_blind)
        alq_findings_add(findings, "monitor.mounts", ALQ_FINDING_WARNING,
                         "see the log for the cause; --run-dir must be a mount that "
                         "/proc/self/mountinfo shows",
                         "whose a process is cannot be told by its mounts: nothing is corrected");
    if (m->mute[0])
        alq_findings_add(findings, "monitor.process-memory", ALQ_FINDING_WARNING,
                         "none where the driver cannot tell it (some MPS and vGPU set-ups)",
                         "NVML does not tell the memory of the processes on %s: physical memory of "
                         "its shares is shown as 0 or too low, and corrections stay as they are",
                         m->mute);
}
