/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of statuses, see claim_status.h. Loop thread only. */
#define ALQ_LOG_MODULE "claims"
#include "daemon/kube/claim_status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/findings.h"
#include "daemon/kube/claim_devices.h"
#include "daemon/kube/client.h"

#define WAITING_MAX 1024u /* far more claims than a node has pods */
#define CALL_MS 15000
#define BACKOFF_MIN_NS (1000 * ALQ_NS_PER_MS)
#define BACKOFF_MAX_NS (60 * BACKOFF_MIN_NS)
#define HOLD_NS (3600 * BACKOFF_MIN_NS) /* after a refusal that a person has to end */
#define MANAGER "aliquotd"

/* Why nothing is written at present. */
enum trouble { TROUBLE_NONE, TROUBLE_FORBIDDEN, TROUBLE_DROPPED };

struct waiting {
    TAILQ_ENTRY(waiting) link;
    char uid[64];
    char *path;
    json_t *body;
};

TAILQ_HEAD(waiting_list, waiting);

struct alq_claim_status {
    const struct alq_config *cfg;
    struct alq_kube *kube;
    struct alq_clock clock;
    struct alq_timer *timer;
    struct waiting_list line;
    unsigned count;
    struct alq_kube_call *call; /* of the first in line */
    int64_t held_until_ns;
    int64_t backoff_ns;
    enum trouble trouble;
    struct alq_err refusal;
    struct alq_gpu_states gpus, gpus_before;
};

static int64_t now_ns(const struct alq_claim_status *s)
{
    return s->clock.now_ns(s->clock.arg);
}

static void leave(struct alq_claim_status *s, struct waiting *w)
{
    if (w == TAILQ_FIRST(&s->line) && s->call)
        alq_kube_cancel(alq_steal(&s->call));
    TAILQ_REMOVE(&s->line, w, link);
    s->count--;
    free(w->path);
    json_decref(w->body);
    free(w);
}

/* ---- writing ----------------------------------------------------------------------------------
 */

static void write_next(struct alq_claim_status *s);

/* 1.36 answers 422 and not 403 when the right on resourceclaims/driver is missing. */
static int is_forbidden(int status, const json_t *body)
{
    size_t i;
    json_t *cause;
    json_array_foreach (alq_json_at(body, "details.causes"), i, cause) {
        const char *reason = alq_json_str(cause, "reason"), *field = alq_json_str(cause, "field");
        if (status == 422 && reason && field && !strcmp(reason, "FieldValueForbidden") &&
            !strcmp(field, "status.devices"))
            return 1;
    }
    return status == 403;
}

static void give_up(struct alq_claim_status *s, enum trouble trouble, const char *why)
{
    if (s->trouble != trouble)
        alq_warn(NULL, "status.devices of claims is not written: %s", why);
    s->trouble = trouble;
    snprintf(s->refusal.text, sizeof(s->refusal.text), "%s", why);
    s->held_until_ns = now_ns(s) + HOLD_NS;
    while (!TAILQ_EMPTY(&s->line))
        leave(s, TAILQ_FIRST(&s->line));
}

static void on_written(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct alq_claim_status *s = arg;
    struct waiting *w = TAILQ_FIRST(&s->line);
    s->call = NULL;
    if (!err) {
        s->backoff_ns = BACKOFF_MIN_NS;
        if (alq_claim_devices_are_told(body, alq_json_at(w->body, "status.devices"), 1)) {
            s->trouble = TROUBLE_NONE;
            leave(s, w);
        } else {
            give_up(s, TROUBLE_DROPPED, "the API server does not keep what is written to it");
        }
    } else if (is_forbidden(status, body)) {
        give_up(s, TROUBLE_FORBIDDEN, err->text);
    } else if (status == 0 || status == 401 || status == 409 || err->code == ALQ_EAGAIN) {
        int64_t wait_ns = s->backoff_ns / 2 + (int64_t)random() % s->backoff_ns;
        int64_t asked_ns = alq_kube_retry_after_ms(s->kube) * ALQ_NS_PER_MS;
        s->backoff_ns = s->backoff_ns * 2 > BACKOFF_MAX_NS ? BACKOFF_MAX_NS : s->backoff_ns * 2;
        s->held_until_ns = now_ns(s) + (wait_ns > asked_ns ? wait_ns : asked_ns);
    } else { /* deallocated or gone meanwhile */
        alq_debug(ALQ_LOG_KV({"uid", w->uid}), "status.devices is not taken: %s", err->text);
        leave(s, w);
    }
    write_next(s);
}

static void write_next(struct alq_claim_status *s)
{
    struct waiting *w;
    while (!s->call && (w = TAILQ_FIRST(&s->line))) {
        if (s->held_until_ns > now_ns(s)) {
            s->clock.timer_set(s->timer, s->held_until_ns);
            return;
        }
        s->call = alq_kube_request(s->kube, "PATCH", w->path, "application/apply-patch+yaml",
                                   w->body, CALL_MS, on_written, s, NULL);
        if (!s->call)
            leave(s, w);
    }
}

static void on_time(void *arg)
{
    write_next(arg);
}

/* ---- claims -----------------------------------------------------------------------------------
 */

static char *path_of(const struct alq_claim_spec *claim)
{
    alq_auto_free char *namespace_ = alq_kube_escape(claim->namespace_);
    alq_auto_free char *name = alq_kube_escape(claim->name);
    return namespace_ && name
               ? alq_str_printf("/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s/status"
                                "?fieldManager=" MANAGER "&force=true",
                                namespace_, name)
               : NULL;
}

void alq_claim_status_forget(struct alq_claim_status *s, const char *uid)
{
    struct waiting *w;
    TAILQ_FOREACH(w, &s->line, link)
    if (!strcmp(w->uid, uid)) {
        leave(s, w);
        break;
    }
    write_next(s);
}

void alq_claim_status_set(struct alq_claim_status *s, const struct alq_claim_spec *claim,
                          const json_t *object)
{
    alq_claim_status_forget(s, claim->uid); /* what is newer wins */
    if (s->trouble && s->held_until_ns > now_ns(s))
        return;
    json_t *devices = alq_claim_devices(claim, s->cfg->driver_name, &s->gpus, time(NULL));
    /* Before the first reading what is said of the GPUs is better than what we could say. */
    if (!devices || s->count >= WAITING_MAX ||
        alq_claim_devices_are_told(object, devices, s->gpus.at != NULL)) {
        json_decref(devices);
        return;
    }
    struct waiting *w = calloc(1, sizeof(*w));
    if (!w) {
        json_decref(devices);
        return; /* a status that is missing harms nobody */
    }
    snprintf(w->uid, sizeof(w->uid), "%s", claim->uid);
    w->path = path_of(claim);
    w->body = alq_claim_devices_apply(claim, devices);
    TAILQ_INSERT_TAIL(&s->line, w, link);
    s->count++;
    if (!w->path || !w->body)
        leave(s, w);
    write_next(s);
}

void alq_claim_status_set_gpus(struct alq_claim_status *s, const struct alq_gpu_list *list)
{
    struct alq_gpu_states now = {NULL, 0};
    if (alq_gpu_states_set(&now, list))
        return; /* said with the next reading */
    free(s->gpus_before.at);
    s->gpus_before = s->gpus;
    s->gpus = now;
}

void alq_claim_status_gpus_changed(struct alq_claim_status *s, const struct alq_claim_spec *claim)
{
    if (s->gpus_before.at && alq_gpu_states_differ(&s->gpus_before, &s->gpus, claim))
        alq_claim_status_set(s, claim, NULL);
}

void alq_claim_status_tell(void *status, struct alq_findings *findings)
{
    const struct alq_claim_status *s = status;
    if (s->trouble == TROUBLE_FORBIDDEN)
        alq_findings_add(findings, "claims.status-forbidden", ALQ_FINDING_WARNING,
                         "give the service account patch of resourceclaims/status and, from "
                         "Kubernetes 1.36 on, associated-node:patch of resourceclaims/driver",
                         "status.devices of claims is not written: %s", s->refusal.text);
    else if (s->trouble == TROUBLE_DROPPED)
        alq_findings_add(findings, "claims.status-dropped", ALQ_FINDING_WARNING,
                         "turn on the API server's feature gate DRAResourceClaimDeviceStatus",
                         "status.devices of claims is not written: %s", s->refusal.text);
}

/* ---- life -------------------------------------------------------------------------------------
 */

struct alq_claim_status *alq_claim_status_new(const struct alq_config *cfg, struct alq_kube *kube,
                                              const struct alq_clock *clock, struct alq_err *err)
{
    struct alq_claim_status *s = calloc(1, sizeof(*s));
    if (s)
        s->timer = clock->timer_new(clock->arg, on_time, s);
    if (!s || !s->timer) {
        free(s);
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    s->cfg = cfg;
    s->kube = kube;
    s->clock = *clock;
    s->backoff_ns = BACKOFF_MIN_NS;
    TAILQ_INIT(&s->line);
    return s;
}

void alq_claim_status_free(struct alq_claim_status *s)
{
    if (!s)
        return;
    while (!TAILQ_EMPTY(&s->line))
        leave(s, TAILQ_FIRST(&s->line));
    s->clock.timer_free(s->timer);
    free(s->gpus.at);
    free(s->gpus_before.at);
    free(s);
}
