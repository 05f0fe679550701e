/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The publisher's I/O, see slices.h: a picture of the server's slices kept by LIST and WATCH, and
 * one write at a time towards what pool.c wants. A write's answer goes into the picture at once;
 * older events about the same object that are still under way are then passed over. In steady state
 * nothing is sent but the watch. Loop thread only. Longer than most files because reading, the node
 * and writing change one picture and are one state machine.
 */
#define ALQ_LOG_MODULE "slices"
#include "daemon/kube/slices.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "daemon/findings.h"
#include "daemon/kube/client.h"
#include "daemon/kube/pool.h"
#include "daemon/kube/slice.h"
#include "daemon/kube/slice_check.h"
#include "daemon/kube/slice_report.h"
#include "daemon/monitor/metrics.h"

#define SLICES_PATH "/apis/resource.k8s.io/v1/resourceslices"
#define CALL_MS 15000
#define BACKOFF_MIN_MS 800
#define BACKOFF_MAX_MS 30000
#define REFUSED_MS                                                                                 \
    30000 /* the server calls our object invalid: a person has to act, trying hard does not help   \
           */
#define WATCH_MIN_S 300
#define WATCH_SPREAD_S 300
#define WATCH_GRACE_S 60
#define WATCH_FAILURES_MAX 3 /* in a row, before listing again */
#define RECENT_VERSIONS 64
/* Writes when somebody else keeps changing our slices: a burst, then a steady trickle. */
#define WRITES_BURST 32
#define WRITE_REFILL_MS 3000

/* A timer that backs off. */
struct backoff {
    struct event *timer;
    long ms; /* the next wait */
    int is_waiting;
};

struct alq_slices {
    const struct alq_config *cfg;
    struct alq_kube *kube;
    struct alq_gpu_list devices;
    int has_devices;

    int server_minor;    /* of Kubernetes 1.x; -1 unknown */
    int taintless_minor; /* the version that dropped our taints; -1 none did */
    char node_uid[64];
    int has_node;

    json_t *observed; /* name -> slice */
    int is_listed;
    char *version;   /* resourceVersion from which to watch */
    json_t *pending; /* name -> resourceVersion of our write whose event has not come yet */
    json_t *deleted; /* uid of what we deleted, until its event comes */
    char recent[RECENT_VERSIONS][32]; /* resourceVersions of events seen */
    unsigned recent_next;

    struct alq_pool_accepted accepted;
    int64_t generation_floor;

    struct alq_kube_call *reading; /* version, list or watch */
    struct backoff read_backoff;
    int64_t watch_started_ms;
    unsigned watch_failures;
    struct alq_kube_call *node_call;
    struct backoff node_backoff;
    struct alq_kube_call *writing;
    struct backoff write_backoff;
    struct alq_pool_action action; /* being written */
    unsigned writes_left;
    int64_t refilled_ms;
    int is_slowed;

    int is_published;
    struct alq_slice_report report;
};

static void read_next(struct alq_slices *s);
static void sync_slices(struct alq_slices *s);

/* ---- waiting ------------------------------------------------------------------------------------
 */

/* Waits for the current back-off with jitter, at least at_least_ms, and doubles it. */
static void wait_longer(struct backoff *b, long at_least_ms)
{
    long ms = b->ms / 2 + (long)(random() % (b->ms + 1));
    if (ms < at_least_ms)
        ms = at_least_ms + (long)(random() % (at_least_ms / 8 + 1));
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    b->ms = b->ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : b->ms * 2;
    b->is_waiting = 1;
    evtimer_add(b->timer, &tv);
}

/* Waits for a moment within spread_s. */
static void wait_spread(struct backoff *b, int64_t spread_s)
{
    long ms = (long)(random() % (spread_s * 1000 + 1));
    struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
    b->is_waiting = 1;
    evtimer_add(b->timer, &tv);
}

static void wait_over(struct backoff *b)
{
    b->ms = BACKOFF_MIN_MS;
    b->is_waiting = 0;
    event_del(b->timer);
}

static void set_published(struct alq_slices *s, int is_published, size_t slices)
{
    s->is_published = is_published;
    alq_metric_set(ALQ_METRIC_SLICES, is_published ? (int64_t)slices : 0, "confirmed", NULL);
    alq_metric_set(ALQ_METRIC_SLICES, is_published ? 0 : (int64_t)slices, "pending", NULL);
}

/* ---- the picture of the server ------------------------------------------------------------------
 */

static void note_version(struct alq_slices *s, const char *version)
{
    snprintf(s->recent[s->recent_next], sizeof(s->recent[0]), "%s", version);
    s->recent_next = (s->recent_next + 1) % RECENT_VERSIONS;
}

static int is_recent(const struct alq_slices *s, const char *version)
{
    for (size_t i = 0; i < RECENT_VERSIONS; i++) {
        if (!strcmp(s->recent[i], version))
            return 1;
    }
    return 0;
}

static struct alq_pool_want want_of(const struct alq_slices *s, const json_t *layout)
{
    return (struct alq_pool_want){.driver = s->cfg->driver_name,
                                  .node = s->cfg->node_name,
                                  .node_uid = s->node_uid,
                                  .layout = layout,
                                  .generation_floor = s->generation_floor};
}

static void raise_floor(struct alq_slices *s)
{
    struct alq_pool_want want = want_of(s, NULL);
    int64_t generation = alq_pool_generation(&want, s->observed);
    if (generation > s->generation_floor)
        s->generation_floor = generation;
}

/* The answer to our own write. An event that came first may have been newer. */
static void put_written(struct alq_slices *s, json_t *slice)
{
    const char *name = alq_json_str(slice, "metadata.name");
    const char *version = alq_json_str(slice, "metadata.resourceVersion");
    if (!name || !version || is_recent(s, version))
        return;
    const char *old = alq_json_str(json_object_get(s->observed, name), "metadata.resourceVersion");
    if (!old || strcmp(old, version))
        json_object_set_new(s->pending, name, json_string(version));
    json_object_set(s->observed, name, slice);
    raise_floor(s);
}

/* Our own deletion, whose answer comes on another connection and may be later than its event. */
static int is_being_deleted(const struct alq_slices *s, const char *name)
{
    return s->writing && s->action.verb == ALQ_POOL_DELETE && !strcmp(s->action.name, name);
}

static void put_event(struct alq_slices *s, const struct alq_watch_event *event)
{
    const char *name = alq_json_str(event->object, "metadata.name");
    const char *uid = alq_json_str(event->object, "metadata.uid");
    if (!name || !uid)
        return;
    note_version(s, event->resource_version);
    json_t *old = json_object_get(s->observed, name);
    const char *old_uid = alq_json_str(old, "metadata.uid");
    const char *pending = json_string_value(json_object_get(s->pending, name));

    if (event->type == ALQ_WATCH_DELETED) {
        int is_ours = !json_object_del(s->deleted, uid) || is_being_deleted(s, name);
        if (!old_uid || strcmp(old_uid, uid))
            return;
        json_object_del(s->pending, name);
        json_object_del(s->observed, name);
        if (!is_ours) {
            alq_info(ALQ_LOG_KV({"slice", name}),
                     "slice was deleted by somebody else, publishing it again");
            s->has_node = 0; /* perhaps with its owner: the node may be another one now */
        }
        return;
    }
    if (json_object_get(s->deleted, uid))
        return;
    if (pending) {
        if (strcmp(pending, event->resource_version))
            return; /* from before our write */
        json_object_del(s->pending, name);
    }
    json_object_set(s->observed, name, event->object);
    raise_floor(s);
}

static int put_list(struct alq_slices *s, const json_t *body, struct alq_err *err)
{
    size_t i;
    json_t *item, *items;
    const char *version, *name;
    int rc = alq_json_need_str(body, "metadata.resourceVersion", &version, err);
    if (rc)
        return rc;
    items = json_object_get(body, "items"); /* null when empty */
    alq_auto_json json_t *before = alq_steal(&s->observed);
    s->observed = json_object();
    if (!s->observed)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    json_object_clear(s->pending);
    json_object_clear(s->deleted);
    json_array_foreach (items, i, item) {
        name = alq_json_str(item, "metadata.name");
        if (name)
            json_object_set(s->observed, name, item);
    }
    json_object_foreach (before, name, item) {
        if (!json_object_get(s->observed, name))
            s->has_node = 0; /* went with its owner, perhaps */
    }
    free(s->version);
    s->version = strdup(version);
    raise_floor(s);
    return s->version ? 0 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

/* ---- reading: version, list, watch --------------------------------------------------------------
 */

static void read_failed(struct alq_slices *s, const struct alq_err *err)
{
    alq_slice_complain(&s->report, ALQ_LOG_WARN, err->text);
    wait_longer(&s->read_backoff, alq_kube_retry_after_ms(s->kube));
}

static void on_read_timer(evutil_socket_t fd, short what, void *arg)
{
    struct alq_slices *s = arg;
    (void)fd;
    (void)what;
    s->read_backoff.is_waiting = 0;
    read_next(s);
}

static void list_again(struct alq_slices *s)
{
    s->is_listed = 0;
    if (s->read_backoff.is_waiting)
        return;
    alq_kube_cancel(s->reading);
    s->reading = NULL;
    read_next(s);
}

static void on_version(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct alq_slices *s = arg;
    (void)status;
    s->reading = NULL;
    if (err) {
        read_failed(s, err);
        return;
    }
    /* "34" or, with a vendor's mark, "34+" */
    const char *major = alq_json_str(body, "major"), *minor = alq_json_str(body, "minor");
    int number = minor ? atoi(minor) : 0;
    if (!major || strcmp(major, "1") || number <= 0) {
        struct alq_err odd = ALQ_ERR_INIT;
        alq_err_set(
            &odd, ALQ_EPROTO,
            "the API server does not tell a version that is known (major %.20s, minor %.20s)",
            major ? major : "?", minor ? minor : "?");
        read_failed(s, &odd);
        return;
    }
    s->server_minor = number;
    read_next(s);
}

static void on_list(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct alq_slices *s = arg;
    struct alq_err why = ALQ_ERR_INIT;
    s->reading = NULL;
    if (err && status == 404)
        alq_err_set(&why, ALQ_ENOTSUP,
                    "the API server (1.%d) does not serve resource.k8s.io/v1; Kubernetes 1.34 or "
                    "newer is needed",
                    s->server_minor);
    else if (err)
        why = *err;
    else
        (void)put_list(s, body, &why);
    if (why.code) {
        if (status == 0)
            s->server_minor = -1;
        read_failed(s, &why);
        return;
    }
    s->is_listed = 1;
    s->watch_failures = 0;
    wait_over(&s->read_backoff);
    read_next(s);
    sync_slices(s);
}

static void on_watch_event(void *arg, const struct alq_watch_event *event)
{
    struct alq_slices *s = arg;
    if (event->type == ALQ_WATCH_ERROR) {
        const char *message = alq_json_str(event->object, "message");
        if (event->is_expired) {
            alq_debug(NULL, "the watch's version is too old, listing again");
        } else {
            struct alq_err err = ALQ_ERR_INIT;
            alq_err_set(&err, ALQ_EAGAIN, "watching slices: %.300s",
                        message ? message : "error without a message");
            alq_slice_complain(&s->report, ALQ_LOG_WARN, err.text);
            s->watch_failures++;
        }
        if (event->is_expired || s->watch_failures >= WATCH_FAILURES_MAX)
            s->is_listed = 0;
        return; /* the server ends the stream now */
    }
    char *version = strdup(event->resource_version);
    if (!version) {
        s->is_listed = 0;
        return;
    }
    free(s->version);
    s->version = version;
    s->watch_failures = 0;
    if (event->type == ALQ_WATCH_BOOKMARK)
        return;
    put_event(s, event);
    sync_slices(s);
}

static void on_watch_end(void *arg, int status, const struct alq_err *err)
{
    struct alq_slices *s = arg;
    s->reading = NULL;
    int is_broken = err && status == 0;
    if (is_broken) {
        /* The connection broke. Perhaps there is another server now, of a new version or with
         * another memory, to whom our resourceVersion lies in the future: such a watch is silent
         * for ever. So all is read anew. No complaint until that fails too. */
        alq_debug(NULL, "watch: %s", err->text);
        s->server_minor = -1;
        s->is_listed = 0;
    } else if (err) {
        alq_slice_complain(&s->report, ALQ_LOG_WARN, err->text);
        s->watch_failures++;
    }
    if (s->watch_failures >= WATCH_FAILURES_MAX || (err && status == 410))
        s->is_listed = 0;
    if (is_broken && s->cfg->start_spread_s) { /* that of every node did, perhaps */
        wait_spread(&s->read_backoff, s->cfg->start_spread_s);
        return;
    }
    /* A stream that ends as soon as it begins must not become a busy loop. */
    if (err || alq_now_ms() - s->watch_started_ms < 1000) {
        wait_longer(&s->read_backoff, alq_kube_retry_after_ms(s->kube));
        return;
    }
    wait_over(&s->read_backoff);
    read_next(s);
}

static char *slices_path(const struct alq_slices *s)
{
    alq_auto_free char *selector =
        alq_str_printf("spec.driver=%s,spec.nodeName=%s", s->cfg->driver_name, s->cfg->node_name);
    alq_auto_free char *escaped = selector ? alq_kube_escape(selector) : NULL;
    return escaped ? alq_str_printf(SLICES_PATH "?fieldSelector=%s", escaped) : NULL;
}

static struct alq_kube_call *start_watch(struct alq_slices *s, const char *path,
                                         struct alq_err *err)
{
    long seconds = WATCH_MIN_S + random() % WATCH_SPREAD_S;
    alq_auto_free char *version = alq_kube_escape(s->version);
    alq_auto_free char *whole =
        version
            ? alq_str_printf(
                  "%s&watch=true&allowWatchBookmarks=true&resourceVersion=%s&timeoutSeconds=%ld",
                  path, version, seconds)
            : NULL;
    s->watch_started_ms = alq_now_ms();
    if (!whole) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    return alq_kube_watch(s->kube, whole, (seconds + WATCH_GRACE_S) * 1000, on_watch_event,
                          on_watch_end, s, err);
}

/* Starts whatever is to be read next; one at a time. */
static void read_next(struct alq_slices *s)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (s->reading || s->read_backoff.is_waiting)
        return;
    alq_auto_free char *path = slices_path(s);
    if (!path)
        alq_err_set(&err, ALQ_ENOMEM, "out of memory");
    else if (s->server_minor < 0)
        s->reading =
            alq_kube_request(s->kube, "GET", "/version", NULL, NULL, CALL_MS, on_version, s, &err);
    else if (!s->is_listed)
        s->reading = alq_kube_request(s->kube, "GET", path, NULL, NULL, CALL_MS, on_list, s, &err);
    else
        s->reading = start_watch(s, path, &err);
    if (!s->reading)
        read_failed(s, &err);
}

/* ---- the node, owner of its slices --------------------------------------------------------------
 */

static void on_node(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct alq_slices *s = arg;
    s->node_call = NULL;
    if (err && status == 403) {
        alq_slice_complain(&s->report, ALQ_LOG_WARN, err->text);
        alq_warn(NULL, "slices get no owner, for want of the right to get nodes; they stay when "
                       "the node goes");
        s->node_uid[0] = '\0';
    } else if (err) {
        struct alq_err why = *err;
        if (status == 404)
            alq_err_set(&why, ALQ_ENOENT,
                        "node %.128s is not known to the API server (yet); is --node-name right?",
                        s->cfg->node_name);
        alq_slice_complain(&s->report, ALQ_LOG_WARN, why.text);
        wait_longer(&s->node_backoff, alq_kube_retry_after_ms(s->kube));
        return;
    } else {
        const char *uid = alq_json_str(body, "metadata.uid");
        snprintf(s->node_uid, sizeof(s->node_uid), "%s", uid ? uid : "");
    }
    s->has_node = 1;
    wait_over(&s->node_backoff);
    sync_slices(s);
}

static void get_node(struct alq_slices *s)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (s->node_call || s->node_backoff.is_waiting)
        return;
    alq_auto_free char *name = alq_kube_escape(s->cfg->node_name);
    alq_auto_free char *path = name ? alq_str_printf("/api/v1/nodes/%s", name) : NULL;
    if (path)
        s->node_call =
            alq_kube_request(s->kube, "GET", path, NULL, NULL, CALL_MS, on_node, s, &err);
    if (!s->node_call)
        wait_longer(&s->node_backoff, 0);
}

static void on_node_timer(evutil_socket_t fd, short what, void *arg)
{
    struct alq_slices *s = arg;
    (void)fd;
    (void)what;
    s->node_backoff.is_waiting = 0;
    sync_slices(s);
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static void clear_action(struct alq_slices *s)
{
    free(s->action.name);
    json_decref(s->action.body);
    s->action = (struct alq_pool_action){0};
}

static void check_dropped(struct alq_slices *s, const json_t *stored)
{
    const json_t *sent_devices = alq_json_at(s->action.body, "spec.devices");
    const json_t *stored_devices = alq_json_at(stored, "spec.devices");
    char paths[300];
    int is_news = alq_pool_accept(&s->accepted, sent_devices, stored_devices);
    if (is_news || !json_array_size(s->accepted.pairs))
        alq_slice_report_dropped(&s->report, sent_devices, stored_devices);
    alq_slice_dropped(sent_devices, stored_devices, paths, sizeof(paths));
    if (strstr(paths, "taints"))
        s->taintless_minor = s->server_minor;
}

static void refused(struct alq_slices *s, const struct alq_err *err)
{
    alq_slice_report_refused(&s->report, err);
    wait_longer(&s->write_backoff, REFUSED_MS);
}

static void on_written(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct alq_slices *s = arg;
    const char *name = s->action.name;
    s->writing = NULL;
    if (!err) {
        if (s->action.verb == ALQ_POOL_DELETE) {
            const char *uid = alq_json_str(json_object_get(s->observed, name), "metadata.uid");
            if (uid)
                json_object_set_new(s->deleted, uid, json_true());
            json_object_del(s->pending, name);
            json_object_del(s->observed, name);
        } else {
            put_written(s, body);
            check_dropped(s, body);
        }
        s->report.is_refused = 0;
        clear_action(s);
        wait_over(&s->write_backoff);
        sync_slices(s);
        return;
    }
    if (status == 404 && name) {
        json_object_del(s->pending, name);
        json_object_del(s->observed, name); /* gone already */
        wait_longer(&s->write_backoff, 0);
    } else if (status == 400 || status == 422) {
        refused(s, err);
    } else {
        /* After a conflict our picture is old; without an answer the write may have been done. */
        if (status != 409)
            alq_slice_complain(&s->report, ALQ_LOG_WARN, err->text);
        wait_longer(&s->write_backoff, alq_kube_retry_after_ms(s->kube));
        if (status == 0 || status == 409 || status == 404)
            list_again(s);
    }
    clear_action(s);
}

/* Whether a write may go out now; else the timer is set. */
static int may_write(struct alq_slices *s)
{
    int64_t now = alq_now_ms(), refills = (now - s->refilled_ms) / WRITE_REFILL_MS;
    if (refills > 0) {
        s->refilled_ms += refills * WRITE_REFILL_MS;
        s->writes_left = refills > WRITES_BURST - s->writes_left
                             ? WRITES_BURST
                             : s->writes_left + (unsigned)refills;
    }
    if (s->writes_left) {
        s->writes_left--;
        s->is_slowed = s->is_slowed && s->writes_left < WRITES_BURST / 2;
        alq_slice_report_contested(&s->report, s->is_slowed);
        return 1;
    }
    s->is_slowed = 1;
    alq_slice_report_contested(&s->report, 1);
    wait_longer(&s->write_backoff, WRITE_REFILL_MS);
    return 0;
}

static void write_action(struct alq_slices *s)
{
    static const char *const methods[] = {
        [ALQ_POOL_CREATE] = "POST", [ALQ_POOL_UPDATE] = "PUT", [ALQ_POOL_DELETE] = "DELETE"};
    struct alq_err err = ALQ_ERR_INIT;
    if (s->action.verb != ALQ_POOL_DELETE &&
        alq_slice_check(json_object_get(s->action.body, "spec"), s->server_minor, &err)) {
        alq_err_wrap(&err, "a slice is not sent, for the API server would refuse it");
        refused(s, &err);
        clear_action(s);
        return;
    }
    alq_auto_free char *escaped = s->action.name ? alq_kube_escape(s->action.name) : NULL;
    alq_auto_free char *path =
        alq_str_printf(SLICES_PATH "%s%s", escaped ? "/" : "", escaped ? escaped : "");
    if (path && (escaped || !s->action.name))
        s->writing = alq_kube_request(s->kube, methods[s->action.verb], path, NULL, s->action.body,
                                      CALL_MS, on_written, s, &err);
    if (!s->writing) {
        clear_action(s);
        wait_longer(&s->write_backoff, 0);
    }
}

static void log_published(struct alq_slices *s, const json_t *layout)
{
    char devices[16], generation[24], slices[16];
    size_t count = 0, i;
    json_t *slice;
    json_array_foreach (layout, i, slice) {
        count += json_array_size(slice);
    }
    snprintf(devices, sizeof(devices), "%zu", count);
    snprintf(slices, sizeof(slices), "%zu", json_array_size(layout));
    snprintf(generation, sizeof(generation), "%" PRId64, s->generation_floor);
    alq_info(ALQ_LOG_KV({"devices", devices}, {"slices", slices}, {"generation", generation}),
             "slices are published");
    s->report.complaint[0] = '\0';
}

/* Compares and starts the next write, if any. Called after everything that may have changed either
 * side. */
static void sync_slices(struct alq_slices *s)
{
    if (!s->has_devices || !s->is_listed || s->server_minor < 0 || s->writing ||
        s->write_backoff.is_waiting)
        return;
    if (!s->has_node) {
        get_node(s);
        return;
    }
    struct alq_err err = ALQ_ERR_INIT;
    struct alq_pool_plan plan;
    const struct alq_slice_server server = {.driver = s->cfg->driver_name,
                                            .minor = s->server_minor,
                                            .is_without_taints =
                                                s->taintless_minor == s->server_minor};
    alq_auto_json json_t *layout = alq_slice_layout(&s->devices, &server, &err);
    alq_slice_keep_valid(layout, s->server_minor, &err);
    alq_slice_report_left_out(&s->report, &err);
    struct alq_pool_want want = want_of(s, layout);
    if (alq_pool_plan(&want, s->observed, &s->accepted, &plan, &err)) {
        wait_longer(&s->write_backoff, 0);
        return;
    }
    if (!plan.count) {
        if (!s->is_published)
            log_published(s, layout);
        set_published(s, 1, json_array_size(layout));
    } else {
        set_published(s, 0, json_array_size(layout));
        if (may_write(s)) {
            s->action = plan.actions[0];
            plan.actions[0] = (struct alq_pool_action){0};
            write_action(s);
        }
    }
    alq_pool_plan_clear(&plan);
}

static void on_write_timer(evutil_socket_t fd, short what, void *arg)
{
    struct alq_slices *s = arg;
    (void)fd;
    (void)what;
    s->write_backoff.is_waiting = 0;
    sync_slices(s);
}

/* ---- life ---------------------------------------------------------------------------------------
 */

struct alq_slices *alq_slices_new(const struct alq_config *cfg, struct alq_kube *kube,
                                  struct alq_events *events, struct event_base *base,
                                  struct alq_err *err)
{
    struct alq_slices *s = calloc(1, sizeof(*s));
    if (!s) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    s->cfg = cfg;
    s->kube = kube;
    s->report.events = events;
    s->server_minor = s->taintless_minor = -1;
    s->writes_left = WRITES_BURST;
    s->refilled_ms = alq_now_ms();
    s->observed = json_object();
    s->pending = json_object();
    s->deleted = json_object();
    s->read_backoff =
        (struct backoff){.timer = evtimer_new(base, on_read_timer, s), .ms = BACKOFF_MIN_MS};
    s->node_backoff =
        (struct backoff){.timer = evtimer_new(base, on_node_timer, s), .ms = BACKOFF_MIN_MS};
    s->write_backoff =
        (struct backoff){.timer = evtimer_new(base, on_write_timer, s), .ms = BACKOFF_MIN_MS};
    if (!s->observed || !s->pending || !s->deleted || !s->read_backoff.timer ||
        !s->node_backoff.timer || !s->write_backoff.timer) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        alq_slices_free(s);
        return NULL;
    }
    return s;
}

void alq_slices_free(struct alq_slices *s)
{
    if (!s)
        return;
    alq_kube_cancel(s->reading);
    alq_kube_cancel(s->node_call);
    alq_kube_cancel(s->writing);
    struct event *timers[] = {s->read_backoff.timer, s->node_backoff.timer, s->write_backoff.timer};
    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
        if (timers[i])
            event_free(timers[i]);
    }
    clear_action(s);
    alq_pool_accepted_clear(&s->accepted);
    json_decref(s->observed);
    json_decref(s->pending);
    json_decref(s->deleted);
    free(s->version);
    free(s->devices.gpus);
    free(s);
}

int alq_slices_set_devices(struct alq_slices *s, const struct alq_gpu_list *list,
                           struct alq_err *err)
{
    struct alq_gpu *copy = calloc(list->count ? list->count : 1, sizeof(*copy));
    if (!copy)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (list->count)
        memcpy(copy, list->gpus, list->count * sizeof(*copy));
    free(s->devices.gpus);
    s->devices = (struct alq_gpu_list){.gpus = copy, .count = list->count};
    if (!s->has_devices && s->cfg->start_spread_s)
        wait_spread(&s->read_backoff, s->cfg->start_spread_s);
    s->has_devices = 1;
    s->is_published = 0;
    read_next(s);
    sync_slices(s);
    return 0;
}

void alq_slices_tell(void *slices, struct alq_findings *findings)
{
    const struct alq_slices *s = slices;
    if (s->is_published)
        alq_findings_add(findings, "slices.published", ALQ_FINDING_OK, NULL,
                         "the API server has the slices of this node's GPUs");
    if (s->is_published && !s->report.dropped[0])
        alq_findings_add(findings, "slices.fields", ALQ_FINDING_OK, NULL,
                         "the API server stores every field of the slices: feature gate "
                         "DRAConsumableCapacity is on");
    alq_slice_report_tell(&s->report, s->has_devices && !s->is_published, findings);
}

int alq_slices_is_published(const struct alq_slices *s)
{
    return s->is_published;
}
