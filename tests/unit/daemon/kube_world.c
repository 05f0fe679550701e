/* SPDX-License-Identifier: Apache-2.0 */
/* See kube_world.h. One request at a time: a second one while another is open fails the test. */
#include "kube_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "daemon/kube/client.h"

struct kube_world kube;

/* ---- time -------------------------------------------------------------------------------------
 */

struct alq_timer {
    struct alq_timer *next;
    int64_t at_ns;
    void (*cb)(void *arg);
    void *arg;
};

static struct alq_timer *timers;
static int64_t now;

static int64_t now_ns(void *arg)
{
    (void)arg;
    return now;
}

static struct alq_timer *timer_new(void *arg, void (*cb)(void *cb_arg), void *cb_arg)
{
    (void)arg;
    struct alq_timer *timer = calloc(1, sizeof(*timer));
    assert_non_null(timer);
    *timer = (struct alq_timer){timers, ALQ_NEVER, cb, cb_arg};
    return timers = timer;
}

static void timer_set(struct alq_timer *timer, int64_t at_ns)
{
    timer->at_ns = at_ns;
}

static void timer_free(struct alq_timer *timer)
{
    struct alq_timer **link = &timers;
    while (*link && *link != timer)
        link = &(*link)->next;
    if (*link)
        *link = timer->next;
    free(timer);
}

void kube_pass(int64_t ns)
{
    int64_t end = now + ns;
    for (;;) {
        struct alq_timer *first = NULL;
        for (struct alq_timer *t = timers; t; t = t->next)
            if (t->at_ns <= end && (!first || t->at_ns < first->at_ns))
                first = t;
        if (!first)
            break;
        now = first->at_ns > now ? first->at_ns : now;
        first->at_ns = ALQ_NEVER;
        first->cb(first->arg);
    }
    now = end;
}

/* ---- the client -------------------------------------------------------------------------------
 */

struct alq_kube_call *__wrap_alq_kube_request(struct alq_kube *client, const char *method,
                                              const char *path, const char *content_type,
                                              const json_t *body, long timeout_ms, alq_kube_cb cb,
                                              void *arg, struct alq_err *err);
struct alq_kube_call *__wrap_alq_kube_get_claim(struct alq_kube *client, const char *namespace_,
                                                const char *name, long timeout_ms, alq_kube_cb cb,
                                                void *arg, struct alq_err *err);
void __wrap_alq_kube_cancel(struct alq_kube_call *call);
long __wrap_alq_kube_retry_after_ms(const struct alq_kube *client);
char *__wrap_alq_kube_escape(const char *text);

struct alq_kube_call *__wrap_alq_kube_request(struct alq_kube *client, const char *method,
                                              const char *path, const char *content_type,
                                              const json_t *body, long timeout_ms, alq_kube_cb cb,
                                              void *arg, struct alq_err *err)
{
    struct kube_request *r = &kube.open;
    (void)client;
    (void)timeout_ms;
    (void)err;
    assert_null(r->cb);
    snprintf(r->method, sizeof(r->method), "%s", method);
    snprintf(r->path, sizeof(r->path), "%s", path);
    snprintf(r->content_type, sizeof(r->content_type), "%s", content_type ? content_type : "");
    r->body = body ? json_deep_copy(body) : NULL;
    r->cb = cb;
    r->arg = arg;
    kube.asked++;
    return (struct alq_kube_call *)r;
}

struct alq_kube_call *__wrap_alq_kube_get_claim(struct alq_kube *client, const char *namespace_,
                                                const char *name, long timeout_ms, alq_kube_cb cb,
                                                void *arg, struct alq_err *err)
{
    char path[512];
    snprintf(path, sizeof(path), "/resourceclaims/%s/%s", namespace_, name);
    return __wrap_alq_kube_request(client, "GET", path, NULL, NULL, timeout_ms, cb, arg, err);
}

static struct kube_request take(void)
{
    struct kube_request r = kube.open;
    memset(&kube.open, 0, sizeof(kube.open));
    return r;
}

void __wrap_alq_kube_cancel(struct alq_kube_call *call)
{
    if (!call)
        return;
    struct kube_request r = take();
    json_decref(r.body);
    kube.cancelled++;
}

long __wrap_alq_kube_retry_after_ms(const struct alq_kube *client)
{
    (void)client;
    return kube.retry_after_ms;
}

char *__wrap_alq_kube_escape(const char *text)
{
    return strdup(text);
}

/* ---- for the tests ----------------------------------------------------------------------------
 */

const struct kube_request *kube_expect(const char *method, const char *path)
{
    if (!kube.open.cb)
        fail_msg("nothing is asked, %s of %s was expected", method, path);
    if (strcmp(kube.open.method, method) != 0 || !strstr(kube.open.path, path))
        fail_msg("%s %s is asked, %s of %s was expected", kube.open.method, kube.open.path, method,
                 path);
    return &kube.open;
}

void kube_answer(int status, const char *text)
{
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_json json_t *body = NULL;
    assert_non_null(kube.open.cb);
    struct kube_request r = take();
    if (text)
        assert_int_equal(alq_json_parse(text, strlen(text), "answer", &body, NULL), 0);
    if (status < 200 || status >= 300) {
        int code = status == 0                      ? ALQ_EIO
                   : status == 401 || status == 403 ? ALQ_EACCES
                   : status == 404                  ? ALQ_ENOENT
                   : status == 409                  ? ALQ_EEXIST
                   : status == 400 || status == 422 ? ALQ_EINVAL
                                                    : ALQ_EAGAIN;
        const char *message = alq_json_str(body, "message");
        alq_err_set(&err, code, "%d %s", status, message ? message : "");
    }
    r.cb(r.arg, status, body, err.code ? &err : NULL);
    json_decref(r.body);
}

void kube_start(void)
{
    static char node[] = "node-a", driver[] = ALQ_DRIVER_NAME_DEFAULT;
    memset(&kube, 0, sizeof(kube));
    now = 1000 * SECOND;
    kube.cfg.node_name = node;
    kube.cfg.driver_name = driver;
    kube.clock = (struct alq_clock){now_ns, timer_new, timer_set, timer_free, NULL};
    alq_log_init(ALQ_LOG_ERROR, ALQ_LOG_TEXT, 2);
}

void kube_end(void)
{
    assert_null(kube.open.cb);
    assert_null(timers);
}
