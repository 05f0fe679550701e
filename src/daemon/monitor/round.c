/* SPDX-License-Identifier: Apache-2.0 */
/* A round of the monitor, see round.h. */
#define ALQ_LOG_MODULE "monitor"
#include "daemon/monitor/round.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/utf8.h"

#define PATH_BYTES 4352
#define PAUSE_ROUNDS 60

struct alq_round *alq_round_new(uint32_t count)
{
    struct alq_round *r = calloc(1, sizeof(*r) + count * sizeof(r->shares[0]));
    if (r)
        r->count = count;
    return r;
}

void alq_round_free(struct alq_round *r)
{
    if (!r)
        return;
    alq_sample_clear(&r->sample);
    free(r->gpus);
    free(r->processes);
    free(r);
}

static int open_dir(const struct alq_round *r, const struct alq_round_share *s)
{
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof(path), "%s/shares/%s", r->files->run_dir, s->id);
    if (n < 0 || (size_t)n >= sizeof(path))
        return -1;
    return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* ---- usage files ------------------------------------------------------------------------------
 */

static struct alq_held held(const struct alq_usage *usage)
{
    return (struct alq_held){usage->counted_bytes, usage->overhead_bytes};
}

void alq_round_before(struct alq_round *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        struct alq_round_share *s = &r->shares[i];
        struct alq_usage usage;
        if (!s->is_enforced || s->f.pause || !(s->f.usage.processes || s->f.gpu_processes))
            continue;
        alq_auto_close int dir = open_dir(r, s);
        if (dir < 0)
            continue;
        alq_usage_read(dir, &usage);
        s->has_before = !usage.flaw;
        s->before = held(&usage);
    }
}

static void read_usage(const struct alq_round *r, struct alq_round_share *s)
{
    if (s->f.pause) {
        s->f.pause--;
        return;
    }
    alq_auto_close int dir = open_dir(r, s);
    if (dir < 0) {
        s->f.usage = (struct alq_usage){0}; /* taken away meanwhile, or not there yet */
        return;
    }
    alq_usage_read(dir, &s->f.usage);
    if (s->f.usage.is_slow)
        s->f.pause = PAUSE_ROUNDS;
    if (s->f.usage.is_oversize) {
        if (!s->f.trimmed_bytes)
            alq_warn(ALQ_LOG_KV({"share", s->id}),
                     "a container makes its files longer than they are; they are cut");
        s->f.trimmed_bytes += alq_usage_trim(dir);
    }
    /* Once is no flaw: the files may be being made. */
    s->f.flawed_rounds = s->f.usage.flaw ? s->f.flawed_rounds + 1 : 0;
    if (s->f.flawed_rounds == 2)
        alq_warn(ALQ_LOG_KV({"share", s->id}), "usage file: %s; its figures are zero",
                 s->f.usage.flaw);
}

/* ---- processes --------------------------------------------------------------------------------
 */

static int by_id(const void *key, const void *element)
{
    return strcmp(key, ((const struct alq_round_share *)element)->id);
}

/* The share of the set's number i when it is on the GPU. */
static struct alq_round_share *share_on(struct alq_round *r, const struct alq_share_set *set,
                                        uint32_t i, const char *uuid)
{
    struct alq_round_share *s =
        bsearch(set->ids[i], r->shares, r->count, sizeof(r->shares[0]), by_id);
    return s && s->is_enforced && !strcmp(s->gpu_uuid, uuid) ? s : NULL;
}

/*
 * Several shares of one GPU are filled in order of their ids, as the library charges them: each up
 * to what its ledger holds, the last with the rest; it is returned. NULL: the process has none on
 * this GPU.
 */
static const struct alq_round_share *attribute(struct alq_round *r, const struct alq_share_set *set,
                                               const char *uuid, const struct alq_process_sample *p)
{
    struct alq_round_share *last = NULL;
    for (uint32_t i = 0; i < set->count; i++) {
        struct alq_round_share *s = share_on(r, set, i, uuid);
        last = s ? s : last;
    }
    if (!last)
        return NULL;
    uint64_t left = p->used_bytes > 0 ? (uint64_t)p->used_bytes : 0;
    for (uint32_t i = 0; i < set->count; i++) {
        struct alq_round_share *s = share_on(r, set, i, uuid);
        if (!s || s == last)
            continue;
        uint64_t held = s->f.usage.counted_bytes + s->f.usage.overhead_bytes;
        uint64_t room = held > s->physical_bytes ? held - s->physical_bytes : 0;
        uint64_t part = left < room ? left : room;
        s->physical_bytes += part;
        left -= part;
    }
    last->physical_bytes += left;
    last->sm_pct += p->sm_pct;
    last->processes++;
    return last;
}

static void read_command(struct alq_round_process *p)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%u/comm", p->pid);
    alq_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, p->command, sizeof(p->command) - 1);
    p->command[n > 0 ? n : 0] = '\0';
    p->command[strcspn(p->command, "\n")] = '\0';
    alq_utf8_clean(p->command);
}

static void list_process(struct alq_round *r, const struct alq_gpu_sample *gpu,
                         const struct alq_process_sample *from, const struct alq_round_share *share)
{
    if (!r->processes)
        return;
    struct alq_round_process *p = &r->processes[r->process_count++];
    p->pid = from->pid;
    p->sm_pct = from->sm_pct;
    p->used_bytes = from->used_bytes;
    memcpy(p->gpu_uuid, gpu->uuid, sizeof(p->gpu_uuid));
    if (share)
        memcpy(p->share_id, share->id, sizeof(p->share_id));
    read_command(p);
}

/* What no share has belongs to the one that has the GPU for itself. */
static void give_rest(struct alq_round *r, struct alq_round_gpu *gpu, uint32_t sm_pct,
                      uint32_t processes)
{
    for (uint32_t i = 0; i < r->count; i++) {
        struct alq_round_share *s = &r->shares[i];
        if (!s->is_exclusive || strcmp(s->gpu_uuid, gpu->uuid) != 0)
            continue;
        s->physical_bytes = gpu->outside_bytes > 0 ? (uint64_t)gpu->outside_bytes : 0;
        s->sm_pct = sm_pct;
        s->processes = processes;
        for (uint32_t k = 0; k < r->process_count; k++)
            if (!r->processes[k].share_id[0] && !strcmp(r->processes[k].gpu_uuid, gpu->uuid))
                memcpy(r->processes[k].share_id, s->id, sizeof(s->id));
        gpu->outside_bytes = gpu->outside_bytes == ALQ_UNKNOWN ? ALQ_UNKNOWN : 0;
        return;
    }
}

static void take_gpu(struct alq_round *r, const struct alq_gpu_sample *from,
                     struct alq_round_gpu *gpu)
{
    uint32_t sm_pct = 0, processes = 0;
    int64_t inside = 0;
    memcpy(gpu->uuid, from->uuid, sizeof(gpu->uuid));
    gpu->total_bytes = from->total_bytes;
    gpu->used_bytes = from->used_bytes;
    gpu->utilization_pct = from->utilization_pct;
    gpu->memory_utilization_pct = from->memory_utilization_pct;
    for (uint32_t i = 0; i < from->process_count; i++) {
        const struct alq_process_sample *p = &from->processes[i];
        const struct alq_share_set *set =
            r->files->mounts ? alq_mounts_find(r->files->mounts, p->pid, r->sample.begun_ns) : NULL;
        const struct alq_round_share *share = set ? attribute(r, set, from->uuid, p) : NULL;
        list_process(r, from, p, share);
        if (share) {
            inside += p->used_bytes > 0 ? p->used_bytes : 0;
        } else {
            sm_pct += p->sm_pct;
            processes++;
        }
    }
    if (from->used_bytes < 0)
        gpu->outside_bytes = ALQ_UNKNOWN;
    else
        gpu->outside_bytes = from->used_bytes > inside ? from->used_bytes - inside : 0;
    give_rest(r, gpu, sm_pct, processes);
}

/* ---- corrections ------------------------------------------------------------------------------
 */

static int64_t correction_of(const struct alq_round *r, struct alq_round_share *s)
{
    const struct alq_held now = held(&s->f.usage);
    if (!s->f.usage.processes && !s->processes) {
        s->f.highs.count = 0;
        return 0;
    }
    if (r->has_sample && s->has_before && !s->f.usage.flaw)
        return alq_correct_overhead(&s->f.highs, s->f.correction_bytes, s->physical_bytes,
                                    &s->before, &now);
    return s->f.correction_bytes;
}

static int open_control(const struct alq_round *r, const struct alq_round_share *s, int access)
{
    alq_auto_close int dir = open_dir(r, s);
    return dir < 0 ? -1 : openat(dir, "control", access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

static void write_correction(const struct alq_round *r, struct alq_round_share *s, int64_t want)
{
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_close int fd = open_control(r, s, O_RDWR);
    if (fd < 0)
        return;
    if (alq_control_correct(fd, want, s->id, &err))
        alq_warn(ALQ_LOG_KV({"share", s->id}), "correction: %s", err.text);
    else
        s->f.correction_bytes = want;
}

/* What is in force, when the daemon is new to the share: an earlier one may have written it. */
static void read_correction(const struct alq_round *r, struct alq_round_share *s)
{
    struct alq_control control;
    if (s->f.is_correction_known)
        return;
    s->f.is_correction_known = 1;
    alq_auto_close int fd = open_control(r, s, O_RDONLY);
    if (fd >= 0 && pread(fd, &control, sizeof(control), 0) == (ssize_t)sizeof(control))
        s->f.correction_bytes = control.values[control.sequence & 1].overhead_correction_bytes;
}

static void finish(struct alq_round *r, struct alq_round_share *s, uint64_t window_ns)
{
    if (r->has_sample) {
        s->f.physical_bytes = s->physical_bytes;
        s->f.gpu_processes = s->processes;
        s->f.used_pct = s->sm_pct < 100 ? s->sm_pct : 100;
        s->f.used_ns += window_ns / 100 * s->f.used_pct;
    }
    if (!s->is_enforced)
        return;
    read_correction(r, s);
    const int64_t have = s->f.correction_bytes, want = correction_of(r, s);
    if (have != want && (!want || llabs(have - want) >= ALQ_CORRECTION_STEP_BYTES))
        write_correction(r, s, want);
}

static void open_mounts(struct alq_round_files *files)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (files->mounts)
        return;
    files->mounts = alq_mounts_new("/proc", files->run_dir, &err);
    if (!files->mounts && !files->has_failed)
        alq_warn(NULL, "processes cannot be told apart by their mounts: %s", err.text);
    files->has_failed = !files->mounts;
}

void alq_round_run(struct alq_round *r)
{
    const uint64_t window_ns = (uint64_t)(r->begun_ns - r->last_ns);
    for (uint32_t i = 0; i < r->count; i++)
        if (r->shares[i].is_enforced)
            read_usage(r, &r->shares[i]);
    if (r->has_sample) {
        size_t processes = 0;
        for (uint32_t i = 0; i < r->sample.gpu_count; i++)
            processes += r->sample.gpus[i].process_count;
        r->gpus = calloc(r->sample.gpu_count + 1, sizeof(*r->gpus));
        r->processes = calloc(processes + 1, sizeof(*r->processes));
    }
    open_mounts(r->files);
    if (r->files->mounts && r->gpus)
        alq_mounts_begin(r->files->mounts);
    for (uint32_t i = 0; r->gpus && i < r->sample.gpu_count; i++)
        take_gpu(r, &r->sample.gpus[i], &r->gpus[r->gpu_count++]);
    if (!r->gpus)
        r->has_sample = 0;
    for (uint32_t i = 0; i < r->count; i++)
        finish(r, &r->shares[i], window_ns);
}
