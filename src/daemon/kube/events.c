/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue of events, see events.h. An entry is a subject and a reason; it stays after it was sent
 * so that a repetition is known as one, until its place is wanted. One request is in flight at a
 * time and the rate is bounded, so that a node in trouble does not add to the API server's. Loop
 * thread only.
 */
#define ALQ_LOG_MODULE "events"
#include "daemon/kube/events.h"

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
#include "daemon/kube/client.h"
#include "daemon/kube/event_object.h"
#include "daemon/monitor/metrics.h"

#define ENTRIES_MAX 128u
#define PODS_MAX 16u /* of a claim that are told; the claim tells the others */
#define WORD_BYTES 64
#define CALL_MS 15000
#define S_NS (1000 * ALQ_NS_PER_MS)

/* The same subject and reason again: at most so often, each time less. */
#define PAUSE_MIN_NS (10 * S_NS)
#define PAUSE_MAX_NS (600 * S_NS)
#define CALM_NS (1200 * S_NS) /* without a word of it: the pause is short again */

/* All of a node: a burst, then ten a minute. */
#define TOKENS_MAX 20u
#define TOKEN_NS (6 * S_NS)

#define BACKOFF_MIN_NS (1 * S_NS)
#define BACKOFF_MAX_NS (60 * S_NS)
#define STALE_NS (900 * S_NS) /* not delivered for so long: given up */
#define FORBIDDEN_NS (600 * S_NS)

enum kind { ABOUT_CLAIM, ABOUT_POD, ABOUT_NODE, ABOUT_PODS_OF_CLAIM };

struct entry {
    TAILQ_ENTRY(entry) link;
    enum kind kind;
    char *namespace_, *name, *uid;
    enum alq_event_type type;
    char reason[WORD_BYTES], action[WORD_BYTES];
    char *note;
    struct alq_event_times times;
    unsigned told;                          /* times.count that the server knows; 0: no object */
    char object_name[ALQ_EVENT_NAME_BYTES]; /* "" before its first try */
    int64_t due_ns;                         /* ALQ_NEVER: nothing to send */
    int64_t sent_ns, posted_ns;
    int64_t pause_ns; /* after sent_ns */
};

TAILQ_HEAD(entries, entry);

struct alq_events {
    const struct alq_config *cfg;
    struct alq_kube *kube;
    struct alq_clock clock;
    struct alq_timer *timer;
    struct entries entries; /* the one posted last comes last */
    unsigned count;
    struct entry *sending;
    struct alq_kube_call *call;
    unsigned told;   /* of sending: what is being told */
    int is_outdated; /* sending has got another note meanwhile */
    int is_patch;
    unsigned tokens;
    int64_t refilled_ns;
    int64_t held_until_ns; /* by back-off, or for want of the right */
    int64_t backoff_ns;
    struct alq_events_stats stats;
    int is_full; /* logged */
};

static int64_t now_ns(const struct alq_events *e)
{
    return e->clock.now_ns(e->clock.arg);
}

static int64_t wall_us(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

/* ---- entries ----------------------------------------------------------------------------------
 */

static void entry_free(struct entry *n)
{
    if (!n)
        return;
    free(n->namespace_);
    free(n->name);
    free(n->uid);
    free(n->note);
    free(n);
}

static void forget(struct alq_events *e, struct entry *n)
{
    TAILQ_REMOVE(&e->entries, n, link);
    e->count--;
    entry_free(n);
}

static void drop(struct alq_events *e, struct entry *n)
{
    e->stats.dropped++;
    alq_metric_add(ALQ_METRIC_EVENTS, 1, "dropped", NULL);
    forget(e, n);
}

static struct entry *find(struct alq_events *e, enum kind kind, const char *uid, const char *reason)
{
    struct entry *n;
    TAILQ_FOREACH(n, &e->entries, link)
    if (n->kind == kind && !strcmp(n->uid, uid) && !strcmp(n->reason, reason))
        return n;
    return NULL;
}

/* Room for one more: the longest unheard of those that have been told goes. */
static int make_room(struct alq_events *e)
{
    struct entry *n;
    if (e->count < ENTRIES_MAX)
        return 1;
    TAILQ_FOREACH(n, &e->entries, link)
    if (n != e->sending && n->due_ns == ALQ_NEVER) {
        forget(e, n);
        return 1;
    }
    return 0;
}

static struct entry *add(struct alq_events *e, enum kind kind, const char *namespace_,
                         const char *name, const char *uid, const char *reason)
{
    struct entry *n = make_room(e) ? calloc(1, sizeof(*n)) : NULL;
    if (n) {
        n->kind = kind;
        n->namespace_ = strdup(namespace_);
        n->name = strdup(name);
        n->uid = strdup(uid);
        snprintf(n->reason, sizeof(n->reason), "%s", reason);
        n->due_ns = ALQ_NEVER;
    }
    if (n && n->namespace_ && n->name && n->uid) {
        TAILQ_INSERT_TAIL(&e->entries, n, link);
        e->count++;
        return n;
    }
    entry_free(n);
    return NULL;
}

/* ---- posting ----------------------------------------------------------------------------------
 */

static void send_next(struct alq_events *e);

static void set_due(struct alq_events *e, struct entry *n)
{
    int64_t now = now_ns(e);
    if (n->due_ns != ALQ_NEVER)
        return;
    n->due_ns = n->sent_ns && n->sent_ns + n->pause_ns > now ? n->sent_ns + n->pause_ns : now;
}

static void count_again(struct alq_events *e, struct entry *n, const struct alq_event *event,
                        char *note)
{
    int64_t now = now_ns(e);
    if (n->posted_ns && now - n->posted_ns > CALM_NS)
        n->pause_ns = 0;
    if (!n->note || strcmp(n->note, note) != 0) {
        free(n->note);
        n->note = strdup(note);
        n->times = (struct alq_event_times){.first_us = wall_us()};
        n->told = 0;
        n->object_name[0] = '\0';
        e->is_outdated |= n == e->sending;
    }
    n->type = event->type;
    snprintf(n->action, sizeof(n->action), "%s", event->action);
    n->times.count++;
    n->times.last_us = wall_us();
    n->posted_ns = now;
    TAILQ_REMOVE(&e->entries, n, link);
    TAILQ_INSERT_TAIL(&e->entries, n, link);
    if (n->note)
        set_due(e, n);
}

static void post(struct alq_events *e, const struct alq_event *event, enum kind kind,
                 const char *namespace_, const char *name, const char *uid)
{
    char note[ALQ_EVENT_NOTE_BYTES];
    snprintf(note, sizeof(note), "%s", event->note);
    struct entry *n = find(e, kind, uid, event->reason);
    if (!n)
        n = add(e, kind, namespace_, name, uid, event->reason);
    if (!n) {
        e->stats.dropped++;
        alq_metric_add(ALQ_METRIC_EVENTS, 1, "dropped", NULL);
        if (!e->is_full)
            alq_warn(ALQ_LOG_KV({"reason", event->reason}),
                     "more events than can be sent; the newest are dropped");
        e->is_full = 1;
        return;
    }
    count_again(e, n, event, note);
    send_next(e);
}

void alq_events_claim(struct alq_events *e, const struct alq_event *event, const char *namespace_,
                      const char *name, const char *uid)
{
    if (e)
        post(e, event, ABOUT_CLAIM, namespace_, name, uid);
}

void alq_events_claim_and_pods(struct alq_events *e, const struct alq_event *event,
                               const char *namespace_, const char *name, const char *uid)
{
    if (!e)
        return;
    post(e, event, ABOUT_CLAIM, namespace_, name, uid);
    post(e, event, ABOUT_PODS_OF_CLAIM, namespace_, name, uid);
}

void alq_events_node(struct alq_events *e, const struct alq_event *event)
{
    /* The kubelet's events have the node's name as its UID too, and kubectl looks for both. */
    if (e)
        post(e, event, ABOUT_NODE, "", e->cfg->node_name, e->cfg->node_name);
}

/* ---- sending ----------------------------------------------------------------------------------
 */

static struct alq_event event_of(const struct entry *n)
{
    return (struct alq_event){n->type, n->reason, n->action, n->note};
}

static struct alq_subject subject_of(const struct entry *n)
{
    static const enum alq_subject_kind kinds[] = {[ABOUT_CLAIM] = ALQ_SUBJECT_CLAIM,
                                                  [ABOUT_POD] = ALQ_SUBJECT_POD,
                                                  [ABOUT_NODE] = ALQ_SUBJECT_NODE,
                                                  [ABOUT_PODS_OF_CLAIM] = ALQ_SUBJECT_CLAIM};
    return (struct alq_subject){kinds[n->kind], n->namespace_, n->name, n->uid};
}

/* The entry was told, or need not be. */
static void told(struct alq_events *e, struct entry *n)
{
    n->due_ns = ALQ_NEVER;
    n->sent_ns = now_ns(e);
    n->pause_ns = !n->pause_ns                     ? PAUSE_MIN_NS
                  : n->pause_ns * 2 > PAUSE_MAX_NS ? PAUSE_MAX_NS
                                                   : n->pause_ns * 2;
    if (e->is_outdated || n->told < n->times.count)
        set_due(e, n);
}

/* A namespace that is going takes no new objects, which says nothing of our rights. */
static int is_namespace_going(const json_t *body)
{
    size_t i;
    json_t *cause;
    json_array_foreach (alq_json_at(body, "details.causes"), i, cause) {
        const char *reason = alq_json_str(cause, "reason");
        if (reason && !strcmp(reason, "NamespaceTerminating"))
            return 1;
    }
    return 0;
}

static void hold(struct alq_events *e, int64_t for_ns)
{
    e->held_until_ns = now_ns(e) + for_ns;
}

static void on_forbidden(struct alq_events *e, const struct alq_err *err)
{
    if (!e->stats.is_forbidden)
        alq_warn(NULL,
                 "events cannot be written, give the service account create and patch of events "
                 "in events.k8s.io: %s",
                 err->text);
    e->stats.is_forbidden = 1;
    for (struct entry *n = TAILQ_FIRST(&e->entries), *next; n; n = next) {
        next = TAILQ_NEXT(n, link);
        if (n->due_ns != ALQ_NEVER)
            drop(e, n);
    }
    hold(e, FORBIDDEN_NS);
}

static void try_later(struct alq_events *e, const struct alq_err *err)
{
    int64_t wait_ns = e->backoff_ns / 2 + (int64_t)random() % e->backoff_ns;
    int64_t asked_ns = alq_kube_retry_after_ms(e->kube) * ALQ_NS_PER_MS;
    alq_debug(NULL, "event is sent again later: %s", err->text);
    e->backoff_ns = e->backoff_ns * 2 > BACKOFF_MAX_NS ? BACKOFF_MAX_NS : e->backoff_ns * 2;
    hold(e, wait_ns > asked_ns ? wait_ns : asked_ns);
}

/* Whether the same request may do better later. */
static int is_passing(int status, const struct alq_err *err)
{
    return status == 0 || status == 401 || err->code == ALQ_EAGAIN;
}

static void on_sent(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct alq_events *e = arg;
    struct entry *n = alq_steal(&e->sending);
    e->call = NULL;
    /* A 409 to a create: it is there already, an answer of ours was lost. */
    if (!err || (status == 409 && !e->is_patch)) {
        e->backoff_ns = BACKOFF_MIN_NS;
        e->stats.posted++;
        alq_metric_add(ALQ_METRIC_EVENTS, 1, "posted", NULL);
        e->stats.is_forbidden = e->is_full = 0;
        if (!e->is_outdated)
            n->told = e->told;
        told(e, n);
    } else if (status == 403 && !is_namespace_going(body)) {
        on_forbidden(e, err);
    } else if (is_passing(status, err)) {
        try_later(e, err);
    } else if (status == 404 && e->is_patch) { /* its hour is over: a new one */
        n->told = 0;
        n->object_name[0] = '\0';
    } else if (e->is_outdated) {
        told(e, n);
    } else {
        alq_debug(ALQ_LOG_KV({"reason", n->reason}), "event is not taken: %s", err->text);
        drop(e, n);
    }
    send_next(e);
}

static void post_to_pods(struct alq_events *e, const struct entry *n, const json_t *claim)
{
    struct alq_event event = event_of(n);
    size_t i, pods = 0;
    json_t *user;
    json_array_foreach (alq_json_at(claim, "status.reservedFor"), i, user) {
        const char *resource = alq_json_str(user, "resource"), *name = alq_json_str(user, "name"),
                   *uid = alq_json_str(user, "uid");
        if (resource && !strcmp(resource, "pods") && name && uid && pods++ < PODS_MAX)
            post(e, &event, ABOUT_POD, n->namespace_, name, uid);
    }
}

static void on_claim(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct alq_events *e = arg;
    struct entry *n = e->sending;
    const char *uid = alq_json_str(body, "metadata.uid");
    e->call = NULL;
    if (!err && uid && !strcmp(uid, n->uid))
        post_to_pods(e, n, body); /* while it is the one that is sent, its place is safe */
    e->sending = NULL;
    if (err && is_passing(status, err)) {
        try_later(e, err);
    } else {
        n->told = e->told;
        told(e, n);
    }
    send_next(e);
}

static struct alq_kube_call *start_event(struct alq_events *e, struct entry *n, struct alq_err *err)
{
    struct alq_subject subject = subject_of(n);
    struct alq_event event = event_of(n);
    if (!n->object_name[0])
        alq_event_name(&subject, (uint64_t)random() << 32 ^ (uint64_t)wall_us(), n->object_name);
    alq_auto_free char *path = alq_str_printf("/apis/events.k8s.io/v1/namespaces/%s/events%s%s",
                                              alq_event_namespace(&subject), n->told ? "/" : "",
                                              n->told ? n->object_name : "");
    alq_auto_json json_t *body =
        n->told ? alq_event_series_patch(&n->times)
                : alq_event_object(&subject, &event, e->cfg->node_name, n->object_name, &n->times);
    if (!path || !body) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    return alq_kube_request(e->kube, n->told ? "PATCH" : "POST", path,
                            n->told ? "application/merge-patch+json" : NULL, body, CALL_MS, on_sent,
                            e, err);
}

static void start(struct alq_events *e, struct entry *n)
{
    struct alq_err err = ALQ_ERR_INIT;
    e->tokens--;
    e->told = n->times.count;
    e->is_outdated = 0;
    e->is_patch = n->told != 0;
    e->sending = n;
    e->call = n->kind == ABOUT_PODS_OF_CLAIM
                  ? alq_kube_get_claim(e->kube, n->namespace_, n->name, CALL_MS, on_claim, e, &err)
                  : start_event(e, n, &err);
    if (e->call)
        return;
    e->sending = NULL;
    drop(e, n);
}

/* When the next request may go out: now, or later. */
static int64_t gate_ns(struct alq_events *e, int64_t now)
{
    int64_t more = (now - e->refilled_ns) / TOKEN_NS;
    e->refilled_ns += more * TOKEN_NS;
    e->tokens = more > (int64_t)(TOKENS_MAX - e->tokens) ? TOKENS_MAX : e->tokens + (unsigned)more;
    if (e->held_until_ns > now)
        return e->held_until_ns;
    return e->tokens ? now : e->refilled_ns + TOKEN_NS;
}

/* The one that has waited longest of those that are due; else when to look again. */
static struct entry *choose(struct alq_events *e, int64_t now, int64_t *wake_ns)
{
    struct entry *n, *next, *chosen = NULL;
    *wake_ns = ALQ_NEVER;
    for (n = TAILQ_FIRST(&e->entries); n; n = next) {
        next = TAILQ_NEXT(n, link);
        if (n->due_ns == ALQ_NEVER)
            continue;
        if (now - n->due_ns > STALE_NS)
            drop(e, n);
        else if (n->due_ns > now)
            *wake_ns = n->due_ns < *wake_ns ? n->due_ns : *wake_ns;
        else if (!chosen || n->due_ns < chosen->due_ns)
            chosen = n;
    }
    return chosen;
}

/* Sends what is due, one after the other; sets the timer when that has to wait. */
static void send_next(struct alq_events *e)
{
    int64_t now = now_ns(e), wake_ns;
    while (!e->sending) {
        struct entry *n = choose(e, now, &wake_ns);
        if (n)
            wake_ns = gate_ns(e, now);
        if (!n || wake_ns > now) {
            e->clock.timer_set(e->timer, wake_ns);
            return;
        }
        start(e, n);
    }
}

static void on_time(void *arg)
{
    send_next(arg);
}

/* ---- life -------------------------------------------------------------------------------------
 */

struct alq_events *alq_events_new(const struct alq_config *cfg, struct alq_kube *kube,
                                  const struct alq_clock *clock, struct alq_err *err)
{
    struct alq_events *e = calloc(1, sizeof(*e));
    if (e)
        e->timer = clock->timer_new(clock->arg, on_time, e);
    if (!e || !e->timer) {
        free(e);
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    e->cfg = cfg;
    e->kube = kube;
    e->clock = *clock;
    TAILQ_INIT(&e->entries);
    e->tokens = TOKENS_MAX;
    e->refilled_ns = now_ns(e);
    e->backoff_ns = BACKOFF_MIN_NS;
    return e;
}

void alq_events_free(struct alq_events *e)
{
    if (!e)
        return;
    if (e->call)
        alq_kube_cancel(e->call);
    while (!TAILQ_EMPTY(&e->entries))
        forget(e, TAILQ_FIRST(&e->entries));
    e->clock.timer_free(e->timer);
    free(e);
}

void alq_events_tell(void *events, struct alq_findings *findings)
{
    const struct alq_events *e = events;
    if (e->stats.is_forbidden)
        alq_findings_add(findings, "events.forbidden", ALQ_FINDING_WARNING,
                         "give the service account create and patch of events in events.k8s.io",
                         "no Kubernetes Events are written for want of the right");
}

struct alq_events_stats alq_events_stats(const struct alq_events *e)
{
    return e ? e->stats : (struct alq_events_stats){0};
}
