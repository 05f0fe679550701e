/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing the node's state, see node.h. While the job that opens runs, store, files,
 * names and prepare are the worker's alone; the loop gets them whole when it is done. Names are
 * given on a worker too, for a new one is written to the disk.
 */
#include "daemon/node.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/claim_events.h"
#include "daemon/claim_log.h"
#include "daemon/clock.h"
#include "daemon/devices/devices.h"
#include "daemon/devices/report.h"
#include "daemon/findings.h"
#include "daemon/kube/claim_status.h"
#include "daemon/kube/kube.h"
#include "daemon/kube/slices.h"
#include "daemon/kubelet/dra.h"
#include "daemon/kubelet/health.h"
#include "daemon/monitor/monitor.h"
#include "daemon/nvml/protocol.h"
#include "daemon/prepare/prepare.h"
#include "daemon/state/names.h"
#include "daemon/work.h"

#define ALQ_LOG_MODULE "node"

/* The kubelet chooses the instance some time before it calls: late calls are still served until
 * there has been a pause. Calls that wait for something longer are refused, to come again. */
#define PAUSE_MS 500
#define CLOSE_MS 3000
#define CLOSE_STEP_MS 5
/* A dead process frees its locks one after the other. */
#define LOCK_TRIES 100
#define LOCK_WAIT_MS 20

enum state { STATE_CLOSED, STATE_OPENING, STATE_OPEN, STATE_CLOSING };

/* A device that a record names. */
struct known {
    struct known *next;
    char uuid[ALQ_UUID_BYTES];
    char device[ALQ_DEVICE_NAME_BYTES];
};

struct opening {
    struct alq_job job; /* first */
    struct alq_node *node;
    struct known *known;
    struct alq_err err;
    void (*opened)(void *arg, const struct alq_err *err);
    void *arg;
};

struct alq_node {
    struct alq_node_parts parts;
    char boot_id[ALQ_BOOT_ID_BYTES];
    enum state state;
    struct alq_store *store;
    struct alq_files *files;
    struct alq_names *names;
    struct alq_prepare *prepare;
    struct alq_slices *slices;
    struct alq_claim_status *claim_status;
    struct alq_claim_log *claim_log;
    struct alq_devices *devices;

    struct event *closing;
    char why[256];
    int close_left_ms;
    int pause_left_ms;
    uint64_t calls_seen;
    void (*closed)(void *arg);
    void *closed_arg;
};

static void *get_claim(void *arg, const char *namespace_, const char *name, long timeout_ms,
                       void (*cb)(void *cb_arg, int status, json_t *body,
                                  const struct alq_err *err),
                       void *cb_arg, struct alq_err *err)
{
    return alq_kube_get_claim(arg, namespace_, name, timeout_ms, cb, cb_arg, err);
}

static void cancel_claim(void *call)
{
    alq_kube_cancel(call);
}

static void release(struct alq_node *n)
{
    alq_monitor_close(n->parts.monitor);
    alq_prepare_free(alq_steal(&n->prepare));
    if (n->files)
        alq_findings_unregister(n->parts.findings, n->files);
    if (n->slices)
        alq_findings_unregister(n->parts.findings, n->slices);
    if (n->claim_status)
        alq_findings_unregister(n->parts.findings, n->claim_status);
    alq_claim_status_free(alq_steal(&n->claim_status));
    alq_slices_free(alq_steal(&n->slices));
    if (n->devices)
        alq_devices_close(n->devices);
    alq_names_close(alq_steal(&n->names));
    alq_files_close(alq_steal(&n->files));
    alq_store_close(alq_steal(&n->store));
    n->state = STATE_CLOSED;
}

/* ---- the GPUs -----------------------------------------------------------------------------------
 */

static void tell_status(void *arg, const struct alq_claim_spec *claim, int is_prepared,
                        unsigned removals_failed)
{
    const struct alq_node *n = arg;
    (void)removals_failed;
    if (is_prepared)
        alq_claim_status_gpus_changed(n->claim_status, claim);
}

static void on_devices(void *arg, const struct alq_gpu_list *list, const struct alq_err *err)
{
    struct alq_node *n = arg;
    struct alq_err why = ALQ_ERR_INIT;
    alq_report_devices(list, err);
    if (!err && n->claim_status) {
        alq_claim_status_set_gpus(n->claim_status, list);
        alq_prepare_each_state(n->prepare, tell_status, n);
    }
    alq_prepare_set_gpus(n->prepare, list, err);
    alq_health_set_gpus(n->parts.health, list, err);
    alq_monitor_set_gpus(n->parts.monitor, list);
    if (n->slices && alq_slices_set_devices(n->slices, list, &why))
        alq_error(NULL, "publishing: %s", why.text);
}

static void on_fault(void *arg, const char *uuid, const char *name, enum alq_fault_kind kind,
                     const struct alq_fault *fault)
{
    struct alq_node *n = arg;
    alq_report_fault(n->parts.events, uuid, name, kind, fault);
    if (n->parts.events)
        alq_claim_events_fault(n->parts.events, n->prepare, uuid, name, fault);
}

static void on_left_out(void *arg, const struct alq_left_out *out)
{
    struct alq_node *n = arg;
    alq_report_left_out(n->parts.events, out);
}

void alq_node_read(struct alq_node *n, const struct alq_nvml_reading *reading)
{
    alq_devices_read(n->devices, reading);
}

void alq_node_happened(struct alq_node *n, const struct alq_gpu_event *event)
{
    alq_devices_happened(n->devices, event);
}

struct alq_devices *alq_node_devices(struct alq_node *n)
{
    return n->devices;
}

/* ---- open -------------------------------------------------------------------------------------
 */

static void know(struct opening *o, const struct alq_share_spec *share)
{
    for (const struct known *k = o->known; k; k = k->next)
        if (!strcmp(k->uuid, share->gpu_uuid))
            return;
    struct known *k = calloc(1, sizeof(*k));
    if (!k)
        return; /* only the health of a GPU that is gone would miss it */
    snprintf(k->uuid, sizeof(k->uuid), "%s", share->gpu_uuid);
    snprintf(k->device, sizeof(k->device), "%s", share->device);
    k->next = o->known;
    o->known = k;
}

static void on_record(void *arg, struct alq_record *record)
{
    struct opening *o = arg;
    struct alq_err err = ALQ_ERR_INIT;
    for (uint32_t i = 0; i < record->claim.share_count; i++) {
        const struct alq_share_spec *share = &record->claim.shares[i];
        alq_names_learn(o->node->names, share->gpu_uuid, share->device);
        know(o, share);
    }
    if (!alq_prepare_adopt(o->node->prepare, record, &err))
        return;
    alq_err_wrap(&err, "claim %s", record->claim.uid);
    o->err = err;
}

/* ---- what becomes of claims ---------------------------------------------------------------------
 */

static void on_prepared(void *arg, const struct alq_claim_spec *claim, const json_t *object)
{
    const struct alq_node *n = arg;
    alq_claim_status_set(n->claim_status, claim, object);
    alq_claim_log_prepared(n->claim_log, claim, object);
}

static void on_refused(void *arg, const struct alq_claim_id *id, const struct alq_err *err)
{
    const struct alq_node *n = arg;
    alq_claim_events_refused(n->parts.events, id, err);
}

static void on_failed(void *arg, const struct alq_claim_id *id, const json_t *object,
                      const struct alq_err *err)
{
    const struct alq_node *n = arg;
    alq_claim_log_refused(n->claim_log, id, object, err);
}

static void on_lost(void *arg, const struct alq_claim_spec *claim,
                    const struct alq_share_spec *share)
{
    const struct alq_node *n = arg;
    alq_claim_events_lost(n->parts.events, claim, share);
}

static void on_unprepared(void *arg, const char *uid)
{
    const struct alq_node *n = arg;
    alq_claim_status_forget(n->claim_status, uid);
    alq_claim_log_unprepared(n->claim_log, uid);
}

/* What the parts that talk to the API server are; on the loop. */
static void open_kube(struct alq_node *n, struct alq_err *err)
{
    const struct alq_prepare_watcher watcher = {on_prepared, on_refused,    on_failed,
                                                on_lost,     on_unprepared, n};
    const struct alq_clock clock = alq_clock_real(n->parts.base);
    const struct alq_node_parts *parts = &n->parts;
    if (alq_findings_register(parts->findings, alq_files_tell, n->files)) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return;
    }
    if (!parts->kube)
        return;
    n->slices = alq_slices_new(parts->cfg, parts->kube, parts->events, parts->base, err);
    if (n->slices)
        n->claim_status = alq_claim_status_new(parts->cfg, parts->kube, &clock, err);
    if (!n->claim_status)
        return;
    alq_prepare_watch(n->prepare, &watcher);
    if (alq_findings_register(parts->findings, alq_slices_tell, n->slices) ||
        alq_findings_register(parts->findings, alq_claim_status_tell, n->claim_status))
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

static int open_store(struct alq_node *n, struct alq_err *err)
{
    int rc;
    const struct timespec pause = {.tv_nsec = LOCK_WAIT_MS * 1000000};
    struct alq_err why = ALQ_ERR_INIT;
    for (int i = 0; (rc = alq_store_open(n->parts.cfg->state_dir, &n->store, &why)) == ALQ_EBUSY &&
                    n->parts.cfg->pod_uid && i < LOCK_TRIES;
         i++)
        nanosleep(&pause, NULL);
    if (rc) {
        *err = why;
        alq_err_wrap(err, "--state-dir");
    }
    return rc;
}

static void opening_run(struct alq_job *job)
{
    struct opening *o = (struct opening *)job;
    struct alq_node *n = o->node;
    const struct alq_config *cfg = n->parts.cfg;
    const struct alq_claim_source api_server = {get_claim, cancel_claim, n->parts.kube};
    const struct alq_clock clock = alq_clock_real(n->parts.base);
    struct alq_err *err = &o->err, why = ALQ_ERR_INIT;
    if (open_store(n, err) || alq_files_open(cfg, n->store, n->boot_id, &n->files, err) ||
        alq_names_open(cfg->state_dir, &n->names, err) || alq_devices_load(n->devices, err))
        return;
    n->prepare = alq_prepare_new(cfg, &clock, n->parts.work, n->files,
                                 n->parts.source ? n->parts.source : &api_server, n->boot_id, err);
    if (!n->prepare)
        return;
    if (alq_store_load(n->store, on_record, o, &why) < 0)
        *err = why;
    if (!err->code)
        alq_prepare_sweep(n->prepare);
}

static void opening_done(struct alq_job *job)
{
    struct opening *o = (struct opening *)job;
    struct alq_node *n = o->node;
    if (!o->err.code)
        open_kube(n, &o->err);
    if (o->err.code) {
        release(n);
    } else {
        n->state = STATE_OPEN;
        for (const struct known *k = o->known; k; k = k->next)
            alq_health_know(n->parts.health, k->uuid, k->device);
        alq_prepare_start(n->prepare);
        alq_monitor_open(n->parts.monitor, n->prepare);
        alq_dra_serve(n->parts.dra, n->prepare);
        alq_devices_open(n->devices, n->names);
    }
    o->opened(o->arg, o->err.code ? &o->err : NULL);
    for (struct known *k; (k = o->known);) {
        o->known = k->next;
        free(k);
    }
    free(o);
}

void alq_node_open(struct alq_node *n, void (*opened)(void *arg, const struct alq_err *err),
                   void *arg)
{
    struct opening *o = calloc(1, sizeof(*o));
    if (!o) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_err_set(&err, ALQ_ENOMEM, "out of memory");
        opened(arg, &err);
        return;
    }
    o->node = n;
    o->opened = opened;
    o->arg = arg;
    o->job.run = opening_run;
    o->job.done = opening_done;
    n->state = STATE_OPENING;
    alq_work_submit(n->parts.work, &o->job);
}

/* ---- close ------------------------------------------------------------------------------------
 */

static void on_closing(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct alq_node *n = arg;
    struct alq_dra *dra = n->parts.dra;
    const struct timeval step = {.tv_usec = CLOSE_STEP_MS * 1000};
    n->close_left_ms -= CLOSE_STEP_MS;
    if (alq_dra_working(dra) || alq_dra_calls(dra) != n->calls_seen)
        n->pause_left_ms = PAUSE_MS;
    else
        n->pause_left_ms -= CLOSE_STEP_MS;
    n->calls_seen = alq_dra_calls(dra);
    if (n->close_left_ms <= 0 || n->pause_left_ms <= 0)
        alq_dra_refuse(dra, n->why);
    if ((n->close_left_ms > 0 && n->pause_left_ms > 0) || alq_work_pending(n->parts.work)) {
        event_add(n->closing, &step);
        return;
    }
    alq_dra_give_up(dra, "the state of this node goes to another aliquotd; call again");
    release(n);
    alq_health_clear(n->parts.health);
    n->closed(n->closed_arg);
}

void alq_node_close(struct alq_node *n, const char *why, void (*closed)(void *arg), void *arg)
{
    snprintf(n->why, sizeof(n->why), "%s", why);
    n->state = STATE_CLOSING;
    n->close_left_ms = CLOSE_MS;
    n->pause_left_ms = PAUSE_MS;
    n->closed = closed;
    n->closed_arg = arg;
    event_active(n->closing, EV_TIMEOUT, 0);
}

/* ---- life -------------------------------------------------------------------------------------
 */

struct alq_node *alq_node_new(const struct alq_node_parts *parts, struct alq_err *err)
{
    struct alq_node *n = calloc(1, sizeof(*n));
    if (n) {
        n->parts = *parts;
        n->closing = evtimer_new(parts->base, on_closing, n);
        n->claim_log = alq_claim_log_new(err);
    }
    const struct alq_devices_calls calls = {on_devices, on_fault, on_left_out, n};
    if (!n || !n->closing || !n->claim_log)
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
    else if (!alq_boot_id_read(n->boot_id, err) &&
             (n->devices =
                  alq_devices_new(parts->cfg, parts->base, parts->work, n->boot_id, &calls, err)))
        return n;
    alq_node_free(n);
    return NULL;
}

void alq_node_free(struct alq_node *n)
{
    if (!n)
        return;
    release(n);
    if (n->closing)
        event_free(n->closing);
    alq_devices_free(n->devices);
    alq_claim_log_free(n->claim_log);
    free(n);
}

struct alq_prepare *alq_node_prepare(const struct alq_node *n)
{
    return n->state == STATE_OPEN ? n->prepare : NULL;
}

const struct alq_claim_log *alq_node_claim_log(const struct alq_node *n)
{
    return n->claim_log;
}

const struct alq_config *alq_node_config(const struct alq_node *n)
{
    return n->parts.cfg;
}

int alq_node_is_open(const struct alq_node *n)
{
    return n->state == STATE_OPEN;
}

int alq_node_is_published(const struct alq_node *n)
{
    return n->state == STATE_OPEN && (!n->parts.kube || alq_slices_is_published(n->slices));
}
