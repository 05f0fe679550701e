/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Health streams, see health.h. The state of all devices is packed anew for each sending, since it
 * carries the time; a watcher has at most one message unsent. Loop thread only.
 */
#include "daemon/kubelet/health.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/utf8.h"
#include "health.pb-c.h"

#define ALQ_LOG_MODULE "health"

#define HOLDS_S 30 /* for the kubelets that let us say it; the others assume the same */

struct device {
    TAILQ_ENTRY(device) link;
    char uuid[ALQ_UUID_BYTES];
    char name[ALQ_DEVICE_NAME_BYTES];
    int is_present;                       /* in the last reading */
    char fault[ALQ_HEALTH_MESSAGE_BYTES]; /* "": none */
};

struct watcher {
    LIST_ENTRY(watcher) link;
    struct alq_health *health;
    struct alq_grpc_call *call;
    int is_sending; /* the last message has not gone out */
    int is_behind;  /* a later state waits for that */
};

struct alq_health {
    char *pool;
    struct event *resend;
    TAILQ_HEAD(device_list, device) devices; /* in order of acquaintance */
    LIST_HEAD(watcher_list, watcher) watchers;
    char unknown[ALQ_HEALTH_MESSAGE_BYTES]; /* why there is no reading; "": there is one */
    struct alq_grpc_method methods[3];
};

/* ---- messages ---------------------------------------------------------------------------------
 */

static void fill(const struct alq_health *h, struct device *d, int64_t now_s,
                 Alq__Health__DeviceHealth *out, Alq__Health__DeviceIdentifier *id,
                 char message[ALQ_HEALTH_MESSAGE_BYTES])
{
    alq__health__device_identifier__init(id);
    id->pool_name = h->pool;
    id->device_name = d->name;
    alq__health__device_health__init(out);
    out->device = id;
    out->last_updated_time = now_s;
    out->health_check_timeout_seconds = HOLDS_S;
    out->message = message;
    message[0] = '\0';
    if (d->fault[0]) {
        out->health = ALQ__HEALTH__HEALTH_STATUS__UNHEALTHY;
        memcpy(message, d->fault, ALQ_HEALTH_MESSAGE_BYTES);
    } else if (h->unknown[0]) {
        out->health = ALQ__HEALTH__HEALTH_STATUS__UNKNOWN;
        memcpy(message, h->unknown, ALQ_HEALTH_MESSAGE_BYTES);
    } else if (!d->is_present) {
        out->health = ALQ__HEALTH__HEALTH_STATUS__UNHEALTHY;
        snprintf(message, ALQ_HEALTH_MESSAGE_BYTES, "%s is no longer found by NVML", d->uuid);
    } else {
        out->health = ALQ__HEALTH__HEALTH_STATUS__HEALTHY;
    }
    alq_utf8_clean(message);
}

/* The state of all devices; *message is NULL with *len 0 when none is known. */
static int pack(const struct alq_health *h, uint8_t **message, size_t *len)
{
    size_t count = 0;
    struct device *d;
    *message = NULL;
    *len = 0;
    TAILQ_FOREACH(d, &h->devices, link)
    count++;
    if (!count)
        return 0;
    alq_auto_free Alq__Health__DeviceHealth *all = calloc(count, sizeof(*all));
    alq_auto_free Alq__Health__DeviceHealth **pointers = calloc(count, sizeof(*pointers));
    alq_auto_free Alq__Health__DeviceIdentifier *ids = calloc(count, sizeof(*ids));
    alq_auto_free char(*texts)[ALQ_HEALTH_MESSAGE_BYTES] = calloc(count, sizeof(*texts));
    if (!all || !pointers || !ids || !texts)
        return -1;
    size_t i = 0;
    TAILQ_FOREACH(d, &h->devices, link)
    {
        fill(h, d, (int64_t)time(NULL), &all[i], &ids[i], texts[i]);
        pointers[i] = &all[i];
        i++;
    }
    Alq__Health__NodeWatchResourcesResponse response =
        ALQ__HEALTH__NODE_WATCH_RESOURCES_RESPONSE__INIT;
    response.devices = pointers;
    response.n_devices = count;
    *message = malloc(alq__health__node_watch_resources_response__get_packed_size(&response));
    if (!*message)
        return -1;
    *len = alq__health__node_watch_resources_response__pack(&response, *message);
    return 0;
}

/* ---- watchers ---------------------------------------------------------------------------------
 */

static void send_state(struct watcher *w);

static void on_drained(void *arg)
{
    struct watcher *w = arg;
    w->is_sending = 0;
    if (w->is_behind)
        send_state(w);
}

static void watcher_free(struct watcher *w)
{
    LIST_REMOVE(w, link);
    if (LIST_EMPTY(&w->health->watchers))
        event_del(w->health->resend);
    free(w);
}

static void on_cancel(void *arg)
{
    watcher_free(arg);
}

static void give_up(struct watcher *w, enum alq_grpc_status status, const char *why)
{
    struct alq_grpc_call *call = w->call;
    watcher_free(w);
    alq_grpc_on_cancel(call, NULL, NULL);
    alq_grpc_fail(call, status, "%s", why);
}

static void send_state(struct watcher *w)
{
    alq_auto_free uint8_t *message = NULL;
    size_t len;
    w->is_behind = w->is_sending;
    if (w->is_sending)
        return;
    if (pack(w->health, &message, &len)) {
        give_up(w, ALQ_GRPC_RESOURCE_EXHAUSTED, "out of memory");
    } else if (message) {
        w->is_sending = 1;
        alq_grpc_on_drained(w->call, on_drained, w);
        if (alq_grpc_send(w->call, message, len))
            give_up(w, ALQ_GRPC_RESOURCE_EXHAUSTED, "out of memory");
    }
}

static void send_all(struct alq_health *h)
{
    for (struct watcher *w = LIST_FIRST(&h->watchers), *next; w; w = next) {
        next = LIST_NEXT(w, link);
        send_state(w);
    }
}

static void on_resend(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    send_all(arg);
}

static void watch(void *arg, struct alq_grpc_call *call, const uint8_t *message, size_t len)
{
    static const struct timeval period = {.tv_sec = ALQ_HEALTH_RESEND_S};
    struct alq_health *h = arg;
    (void)message; /* the request has no fields */
    (void)len;
    struct watcher *w = calloc(1, sizeof(*w));
    if (!w) {
        alq_grpc_fail(call, ALQ_GRPC_RESOURCE_EXHAUSTED, "out of memory");
        return;
    }
    w->health = h;
    w->call = call;
    if (LIST_EMPTY(&h->watchers))
        event_add(h->resend, &period);
    LIST_INSERT_HEAD(&h->watchers, w, link);
    alq_grpc_on_cancel(call, on_cancel, w);
    send_state(w);
}

void alq_health_end(struct alq_health *h)
{
    for (struct watcher *w; (w = LIST_FIRST(&h->watchers));)
        give_up(w, ALQ_GRPC_UNAVAILABLE, "aliquotd is ending");
}

/* ---- devices ----------------------------------------------------------------------------------
 */

static struct device *device_find(struct alq_health *h, const char *uuid)
{
    struct device *d;
    TAILQ_FOREACH(d, &h->devices, link)
    if (!strcmp(d->uuid, uuid))
        return d;
    return NULL;
}

static struct device *device_get(struct alq_health *h, const char *uuid, const char *name)
{
    struct device *d = device_find(h, uuid);
    if (d)
        return d;
    d = calloc(1, sizeof(*d));
    if (!d) {
        alq_error(ALQ_LOG_KV({"device", name}), "out of memory: its health is not told");
        return NULL;
    }
    snprintf(d->uuid, sizeof(d->uuid), "%s", uuid);
    snprintf(d->name, sizeof(d->name), "%s", name);
    TAILQ_INSERT_TAIL(&h->devices, d, link);
    return d;
}

void alq_health_know(struct alq_health *h, const char *uuid, const char *device)
{
    if (!device_find(h, uuid) && device_get(h, uuid, device))
        send_all(h);
}

void alq_health_set_gpus(struct alq_health *h, const struct alq_gpu_list *list,
                         const struct alq_err *err)
{
    struct device *d;
    TAILQ_FOREACH(d, &h->devices, link)
    d->is_present = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct alq_fault *fault = alq_gpu_fault(&list->gpus[i]);
        d = device_get(h, list->gpus[i].uuid, list->gpus[i].name);
        if (!d)
            continue;
        d->is_present = 1;
        snprintf(d->fault, sizeof(d->fault), "%s",
                 fault && fault->effect == ALQ_FAULT_UNFIT ? fault->reason : "");
    }
    h->unknown[0] = '\0';
    if (err)
        snprintf(h->unknown, sizeof(h->unknown), "no reading of the GPUs: %s", err->text);
    send_all(h);
}

void alq_health_clear(struct alq_health *h)
{
    for (struct device *d; (d = TAILQ_FIRST(&h->devices));) {
        TAILQ_REMOVE(&h->devices, d, link);
        free(d);
    }
}

/* ---- life -------------------------------------------------------------------------------------
 */

struct alq_health *alq_health_new(struct event_base *base, const char *pool, struct alq_err *err)
{
    struct alq_health *h = calloc(1, sizeof(*h));
    if (h) {
        TAILQ_INIT(&h->devices);
        LIST_INIT(&h->watchers);
        h->pool = strdup(pool);
        h->resend = event_new(base, -1, EV_PERSIST, on_resend, h);
    }
    if (!h || !h->pool || !h->resend) {
        alq_health_free(h);
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    snprintf(h->unknown, sizeof(h->unknown), "the GPUs have not been read yet");
    h->methods[0] =
        (struct alq_grpc_method){"/v1alpha1.DRAResourceHealth/NodeWatchResources", watch, h};
    h->methods[1] = (struct alq_grpc_method){"/v1.DRAResourceHealth/NodeWatchResources", watch, h};
    return h;
}

void alq_health_free(struct alq_health *h)
{
    if (!h)
        return;
    alq_health_clear(h);
    if (h->resend)
        event_free(h->resend);
    free(h->pool);
    free(h);
}

const struct alq_grpc_method *alq_health_methods(const struct alq_health *h)
{
    return h->methods;
}
