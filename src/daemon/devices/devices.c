/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Glue of devices.h: a reading or an event changes the picture, a job writes names and faults to
 * the disk, and when it is done everybody is told. One job at a time; what comes meanwhile waits
 * for the next. Loop thread; the jobs touch names and their own copies only.
 */
#include "daemon/devices/devices.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/devices/choose.h"
#include "daemon/devices/faults.h"
#include "daemon/state/names.h"
#include "daemon/state/record.h"
#include "daemon/work.h"

#define ALQ_LOG_MODULE "devices"

#define FILE_NAME "faults.json"
#define FILE_MAX_BYTES (1024 * 1024)
#define QUIET_S 300
#define TICK_MAX_S 3600 /* the wall clock may be set */

struct telling {
    struct alq_job job; /* first */
    struct alq_devices *devices;
    struct alq_gpu_list list; /* owned */
    struct alq_err absent;    /* code set: there is no reading */
    char *faults;             /* to be saved; NULL: nothing new */
    struct alq_err names_err, faults_err;
};

struct alq_devices {
    const struct alq_config *cfg;
    struct alq_work *work;
    struct alq_devices_calls calls;
    char boot_id[ALQ_BOOT_ID_BYTES];
    char *path; /* of the saved faults */
    struct event *tick;
    struct alq_names *names; /* NULL: closed */
    struct alq_faults *faults;
    int are_faults_new; /* since they were saved */

    struct alq_nvml_reading *read; /* the last reading, as it came; NULL: none yet */
    struct alq_gpu_list list;      /* of it, those that are offered, named; owned */
    struct alq_left_out left_out[ALQ_NVML_GPUS_MAX];
    size_t left_out_count;
    int is_telling;
    int is_behind; /* there is news for the next job */
};

static int64_t now_s(void)
{
    return (int64_t)time(NULL);
}

static int copy_list(const struct alq_gpu_list *from, struct alq_gpu_list *to)
{
    struct alq_gpu *gpus = calloc(from->count + 1, sizeof(*gpus));
    if (!gpus)
        return -1;
    if (from->count)
        memcpy(gpus, from->gpus, from->count * sizeof(*gpus));
    free(to->gpus);
    to->gpus = gpus;
    to->count = from->count;
    return 0;
}

/* ---- telling ------------------------------------------------------------------------------------
 */

static void telling_run(struct alq_job *job)
{
    struct telling *t = (struct telling *)job;
    alq_names_assign(t->devices->names, &t->list, &t->names_err);
    if (t->faults)
        alq_file_write_atomic(t->devices->path, t->faults, strlen(t->faults), 0600, 1,
                              &t->faults_err);
}

static void tell(struct alq_devices *d);

static void telling_free(struct telling *t)
{
    if (!t)
        return;
    free(t->list.gpus);
    free(t->faults);
    free(t);
}

static void telling_done(struct alq_job *job)
{
    struct telling *t = (struct telling *)job;
    struct alq_devices *d = t->devices;
    d->is_telling = 0;
    if (t->names_err.code)
        alq_error(NULL, "names of devices are not saved: %s", t->names_err.text);
    if (t->faults_err.code)
        alq_error(NULL, "faults of devices are not saved: %s", t->faults_err.text);
    if (d->names) {
        free(d->list.gpus);
        d->list = t->list;
        t->list = (struct alq_gpu_list){0};
        d->calls.changed(d->calls.arg, &d->list, t->absent.code ? &t->absent : NULL);
        if (d->is_behind)
            tell(d);
    }
    telling_free(t);
}

static int was_left_out(const struct alq_left_out *before, size_t count,
                        const struct alq_left_out *out)
{
    for (size_t i = 0; i < count; i++) {
        if (before[i].index == out->index && !strcmp(before[i].uuid, out->uuid) &&
            !strcmp(before[i].reason, out->reason))
            return 1;
    }
    return 0;
}

/* The reading less what is not offered, into *list. */
static int choose(struct alq_devices *d, struct alq_gpu_list *list)
{
    size_t before_count = d->left_out_count, size = sizeof(d->left_out);
    alq_auto_free struct alq_left_out *before = malloc(size);
    if (!before || copy_list(&d->read->list, list))
        return -1;
    memcpy(before, d->left_out, size);
    d->left_out_count = d->read->left_out_count;
    memcpy(d->left_out, d->read->left_out, size);
    alq_choose(d->cfg, list, d->left_out, &d->left_out_count, ALQ_NVML_GPUS_MAX);
    for (size_t i = 0; i < d->left_out_count; i++) {
        if (!was_left_out(before, before_count, &d->left_out[i]))
            d->calls.left_out(d->calls.arg, &d->left_out[i]);
    }
    return 0;
}

static void tell(struct alq_devices *d)
{
    d->is_behind = d->is_telling;
    if (d->is_telling || !d->read)
        return;
    struct telling *t = calloc(1, sizeof(*t));
    if (!t || choose(d, &t->list)) {
        alq_error(NULL, "out of memory for %zu GPUs; what was told of them stays",
                  d->read->list.count);
        telling_free(t);
        return;
    }
    alq_faults_fill(d->faults, &t->list);
    if (d->read->code)
        alq_err_set(&t->absent, d->read->code, "%s", d->read->reason);
    if (d->are_faults_new)
        t->faults = alq_faults_save(d->faults, d->boot_id);
    d->are_faults_new = 0;
    t->devices = d;
    t->job.run = telling_run;
    t->job.done = telling_done;
    d->is_telling = 1;
    alq_work_submit(d->work, &t->job);
}

/* ---- faults -------------------------------------------------------------------------------------
 */

static const char *name_of(const struct alq_devices *d, const char *uuid)
{
    for (size_t i = 0; i < d->list.count; i++) {
        if (!strcmp(d->list.gpus[i].uuid, uuid))
            return d->list.gpus[i].name;
    }
    return "";
}

static void on_fault(void *arg, const char *uuid, enum alq_fault_kind kind,
                     const struct alq_fault *fault)
{
    struct alq_devices *d = arg;
    d->are_faults_new = 1;
    d->calls.fault(d->calls.arg, uuid, name_of(d, uuid), kind, fault);
}

static struct alq_faults_rules rules_of(const struct alq_config *cfg)
{
    return (struct alq_faults_rules){
        .hold_s = cfg->health_hold_s, .quiet_s = QUIET_S, .ignored = cfg->ignored_xids};
}

/* The settings may have changed, and what the old rules borrow be gone. */
static void refresh_rules(struct alq_devices *d)
{
    const struct alq_faults_rules rules = rules_of(d->cfg);
    alq_faults_set_rules(d->faults, &rules);
}

/* After anything that may have begun or ended a fault. */
static void look_at_faults(struct alq_devices *d)
{
    refresh_rules(d);
    int64_t now = now_s(), next = alq_faults_tick(d->faults, now);
    struct timeval tv = {.tv_sec = TICK_MAX_S};
    if (next < now + TICK_MAX_S)
        tv.tv_sec = (time_t)(next > now ? next - now : 1);
    if (next == INT64_MAX)
        event_del(d->tick);
    else
        event_add(d->tick, &tv);
    if (d->are_faults_new)
        tell(d);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    look_at_faults(arg);
}

void alq_devices_happened(struct alq_devices *d, const struct alq_gpu_event *event)
{
    char code[24];
    snprintf(code, sizeof(code), "%llu", (unsigned long long)event->code);
    alq_info(ALQ_LOG_KV({"uuid", event->uuid}, {"xid", code}),
             event->kind == ALQ_FAULT_XID ? "XID" : "double-bit ECC error");
    if (!d->names)
        return;
    refresh_rules(d);
    alq_faults_event(d->faults, event, now_s());
    look_at_faults(d);
}

int alq_devices_clear(struct alq_devices *d, const char *uuid, struct alq_err *err)
{
    if (!d->names)
        return alq_err_set(err, ALQ_EAGAIN, "another aliquotd has the node's state");
    int rc = alq_faults_clear(d->faults, uuid, err);
    if (!rc)
        look_at_faults(d);
    return rc;
}

/* ---- readings -----------------------------------------------------------------------------------
 */

static void use_reading(struct alq_devices *d)
{
    refresh_rules(d);
    if (!d->read->code)
        alq_faults_reading(d->faults, &d->read->list, d->read->load, now_s());
    tell(d);
    look_at_faults(d);
}

void alq_devices_read(struct alq_devices *d, const struct alq_nvml_reading *reading)
{
    struct alq_nvml_reading *copy = malloc(sizeof(*copy));
    struct alq_gpu_list list = {0};
    if (!copy || copy_list(&reading->list, &list)) {
        alq_error(NULL, "out of memory for %zu GPUs; the last reading stays", reading->list.count);
        free(copy);
        return;
    }
    *copy = *reading;
    copy->list = list;
    if (d->read)
        alq_nvml_reading_clear(d->read);
    free(d->read);
    d->read = copy;
    if (d->names)
        use_reading(d);
}

void alq_devices_choose_again(struct alq_devices *d)
{
    if (d->names)
        tell(d);
}

/* ---- life ---------------------------------------------------------------------------------------
 */

struct alq_devices *alq_devices_new(const struct alq_config *cfg, struct event_base *base,
                                    struct alq_work *work, const char *boot_id,
                                    const struct alq_devices_calls *calls, struct alq_err *err)
{
    struct alq_devices *d = calloc(1, sizeof(*d));
    const struct alq_faults_rules rules = rules_of(cfg);
    if (d) {
        d->cfg = cfg;
        d->work = work;
        d->calls = *calls;
        snprintf(d->boot_id, sizeof(d->boot_id), "%s", boot_id);
        d->path = alq_str_printf("%s/" FILE_NAME, cfg->state_dir);
        d->faults = alq_faults_new(&rules, on_fault, d);
        d->tick = evtimer_new(base, on_tick, d);
    }
    if (d && d->path && d->faults && d->tick)
        return d;
    alq_devices_free(d);
    alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return NULL;
}

int alq_devices_load(struct alq_devices *d, struct alq_err *err)
{
    alq_auto_free char *text = NULL;
    size_t len = 0;
    struct alq_err why = ALQ_ERR_INIT;
    int rc = alq_file_read(d->path, FILE_MAX_BYTES, &text, &len, &why);
    if (!rc)
        rc = alq_faults_load(d->faults, text, len, d->boot_id, &why);
    if (rc == ALQ_ENOENT)
        return 0;
    if (rc == ALQ_ENOMEM || rc == ALQ_EACCES || rc == ALQ_EAGAIN) {
        *err = why;
        return rc;
    }
    if (rc) {
        alq_auto_free char *bad = alq_str_printf("%s.bad", d->path);
        alq_error(NULL, "%s: %s; set aside, faults are found anew", d->path, why.text);
        if (bad)
            rename(d->path, bad);
    }
    return 0;
}

void alq_devices_open(struct alq_devices *d, struct alq_names *names)
{
    d->names = names;
    if (d->read)
        use_reading(d);
}

void alq_devices_close(struct alq_devices *d)
{
    d->names = NULL;
    event_del(d->tick);
    d->left_out_count = 0;
    d->list.count = 0;
    alq_faults_forget(d->faults); /* until it opens again the other instance writes the file */
}

void alq_devices_free(struct alq_devices *d)
{
    if (!d)
        return;
    if (d->read)
        alq_nvml_reading_clear(d->read);
    free(d->read);
    free(d->list.gpus);
    if (d->tick)
        event_free(d->tick);
    alq_faults_free(d->faults);
    free(d->path);
    free(d);
}

const struct alq_gpu_list *alq_devices_list(const struct alq_devices *d)
{
    return &d->list;
}

const struct alq_left_out *alq_devices_left_out(const struct alq_devices *d, size_t *count)
{
    *count = d->left_out_count;
    return d->left_out;
}

const char *alq_devices_absent(const struct alq_devices *d)
{
    if (!d->read)
        return "the GPUs have not been read yet";
    return d->read->code ? d->read->reason : NULL;
}
