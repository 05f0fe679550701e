/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTPS client on libcurl's multi interface, driven by the daemon's loop, see kube.h and client.h.
 * libcurl calls back only to hand over bytes and to name the sockets and the timer it wants; users
 * are called from the loop, when libcurl is not on the stack, so that they may start and cancel
 * calls at will. Loop thread only. Longer than most files because a call's way through libcurl is
 * one piece.
 */
#define ALQ_LOG_MODULE "kube"
#include "daemon/kube/client.h"

#include <curl/curl.h>
#include <event2/event.h>
#include <malloc.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/monotonic.h"
#include "daemon/kube/credentials.h"
#include "daemon/monitor/metrics.h"

#define ANSWER_BYTES_MAX                                                                           \
    (8u << 20) /* etcd keeps 1.5 MiB an object; a list of a node's slices is far below */
#define EVENT_BYTES_MAX (4u << 20)
#define REFRESH_MS 60000 /* how often token and CA files are read again, at most */
#define CONNECT_MS 10000
#define CONNECTIONS_MAX 8 /* the watch and what prepares ask at once; the rest waits in line */
#define UNACKED_MS 30000
/* A watch asks for bookmarks, which servers send about once a minute: a longer silence is a
 * connection that lives at this end only. */
#define SILENCE_S 180
#define QUIET_US                                                                                   \
    900000 /* without an answer: what a burst of calls left in the heap is given back */

struct alq_kube_call {
    TAILQ_ENTRY(alq_kube_call) link;
    struct alq_kube *kube;
    CURL *easy;
    struct curl_slist *headers, *connect_to;
    int64_t started_ns;
    char *method, *path, *content_type, *body;
    long timeout_ms;
    char *data; /* of the answer, or of a watch not yet parsed */
    size_t len, size;
    int is_too_long, is_out_of_memory;
    int is_authorised_again; /* tried once more, with fresh credentials */
    char reason[CURL_ERROR_SIZE];

    alq_kube_cb cb;
    void *arg;

    struct alq_watch *watch; /* NULL: a plain call */
    alq_kube_event_cb on_event;
    alq_kube_end_cb on_end;
    struct event *deliver; /* parses data from the loop */
    struct alq_err watch_err;
    int is_busy;      /* its user is being called from the parser: free later */
    int is_cancelled; /* while busy */
    int is_linked;    /* in kube->calls and known to libcurl */
};

/*
 * Behind libcurl come LDAP and RTMP, which are never spoken here, and behind them GnuTLS. By this
 * function a program tells it not to set itself up when it is loaded, which costs 1 MiB (GnuTLS's
 * gnutls.h has it as a macro). The executable exports it.
 */
int _gnutls_global_init_skip(void);
int _gnutls_global_init_skip(void)
{
    return 1;
}

TAILQ_HEAD(call_list, alq_kube_call);

struct alq_kube {
    struct event_base *base;
    struct alq_credentials credentials;
    int64_t refreshed_ms;
    char *url_base;   /* server, with the name to verify in place of the host */
    char *connect_to; /* "::host:port" when that name differs, else NULL */
    int is_loopback;
    CURLM *multi;
    struct event *timer;
    struct event *quiet;
    struct call_list calls;
    long retry_after_ms;
    int is_refresh_broken; /* logged */
};

/* ---- credentials --------------------------------------------------------------------------------
 */

static int is_loopback_host(const char *host)
{
    return !strcmp(host, "localhost") || !strncmp(host, "127.", 4) || !strcmp(host, "[::1]");
}

/* Takes the server's address apart: what to verify may differ from where to connect. */
static int place_server(struct alq_kube *kube, struct alq_err *err)
{
    const struct alq_credentials *c = &kube->credentials;
    CURLU *url = curl_url();
    char *host = NULL, *port = NULL, *whole = NULL;
    alq_auto_free char *connect_to = NULL, *url_base = NULL;
    int rc = 0;
    if (!url || curl_url_set(url, CURLUPART_URL, c->server, 0) ||
        curl_url_get(url, CURLUPART_HOST, &host, 0) ||
        curl_url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT)) {
        rc = alq_err_set(err, ALQ_EINVAL, "server %.200s is not an address", c->server);
    } else {
        kube->is_loopback = is_loopback_host(host);
        if (c->tls_server_name && *c->tls_server_name && strcmp(c->tls_server_name, host)) {
            connect_to = alq_str_printf("::%s:%s", host, port);
            if (!connect_to || curl_url_set(url, CURLUPART_HOST, c->tls_server_name, 0) ||
                curl_url_get(url, CURLUPART_URL, &whole, 0))
                rc = alq_err_set(err, ALQ_EINVAL, "tls-server-name %.200s is not a host name",
                                 c->tls_server_name);
        }
        url_base = rc ? NULL : strdup(whole ? whole : c->server);
        if (!rc && !url_base)
            rc = alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    if (!rc) {
        size_t len = strlen(url_base);
        if (len && url_base[len - 1] == '/')
            url_base[len - 1] = '\0';
        free(kube->url_base);
        free(kube->connect_to);
        kube->url_base = alq_steal(&url_base);
        kube->connect_to = alq_steal(&connect_to);
    }
    curl_free(host);
    curl_free(port);
    curl_free(whole);
    curl_url_cleanup(url);
    return rc;
}

static void refresh_credentials(struct alq_kube *kube, int is_forced)
{
    struct alq_err err = ALQ_ERR_INIT;
    int is_changed;
    if (!is_forced && alq_now_ms() - kube->refreshed_ms < REFRESH_MS)
        return;
    kube->refreshed_ms = alq_now_ms();
    if (alq_credentials_refresh(&kube->credentials, &is_changed, &err)) {
        if (!kube->is_refresh_broken)
            alq_warn(NULL, "credentials cannot be read again, the old ones stay: %s", err.text);
        kube->is_refresh_broken = 1;
        return;
    }
    kube->is_refresh_broken = 0;
    if (!is_changed)
        return;
    alq_info(ALQ_LOG_KV({"server", kube->credentials.server}),
             "the API server's address or certificates changed");
    if (place_server(kube, &err))
        alq_warn(NULL, "the old address stays: %s", err.text);
}

/* ---- one call -----------------------------------------------------------------------------------
 */

static void call_free(struct alq_kube_call *call)
{
    if (call->easy)
        curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers);
    curl_slist_free_all(call->connect_to);
    if (call->deliver)
        event_free(call->deliver);
    alq_watch_free(call->watch);
    free(call->method);
    free(call->path);
    free(call->content_type);
    free(call->body);
    free(call->data);
    free(call);
}

static void call_unlink(struct alq_kube_call *call)
{
    if (!call->is_linked)
        return;
    call->is_linked = 0;
    curl_multi_remove_handle(call->kube->multi, call->easy);
    TAILQ_REMOVE(&call->kube->calls, call, link);
}

static size_t on_bytes(char *bytes, size_t unit, size_t count, void *arg)
{
    struct alq_kube_call *call = arg;
    size_t len = unit * count;
    if (len > ANSWER_BYTES_MAX - call->len) {
        call->is_too_long = 1;
        return 0;
    }
    if (call->len + len > call->size) {
        size_t size = call->size ? call->size : 4096;
        while (size < call->len + len)
            size *= 2;
        char *grown = realloc(call->data, size);
        if (!grown) {
            call->is_out_of_memory = 1;
            return 0;
        }
        call->data = grown;
        call->size = size;
    }
    memcpy(call->data + call->len, bytes, len);
    call->len += len;
    long status = 0;
    if (call->watch && !curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status) &&
        status == 200)
        event_active(call->deliver, 0, 0);
    return len;
}

/* Keeps a dead peer from looking like a quiet one. */
static int on_socket_made(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    unsigned int unacked_ms = UNACKED_MS;
    (void)arg;
    (void)purpose;
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof(unacked_ms));
    return CURL_SOCKOPT_OK;
}

static int add_header(struct alq_kube_call *call, char *text)
{
    struct curl_slist *longer = text ? curl_slist_append(call->headers, text) : NULL;
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
    if (!longer)
        return -1;
    call->headers = longer;
    return 0;
}

static void set_blob(CURL *easy, CURLoption option, const struct alq_blob *blob)
{
    struct curl_blob value = {.data = blob->data, .len = blob->len, .flags = CURL_BLOB_COPY};
    curl_easy_setopt(easy, option, &value);
}

static void set_tls(const struct alq_kube *kube, CURL *easy)
{
    const struct alq_credentials *c = &kube->credentials;
    if (c->is_insecure) {
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (c->ca.data) {
        /* The cluster's authority alone; libcurl's default directory would add every public one. */
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
        curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
        set_blob(easy, CURLOPT_CAINFO_BLOB, &c->ca);
    }
    if (c->certificate.data) {
        set_blob(easy, CURLOPT_SSLCERT_BLOB, &c->certificate);
        set_blob(easy, CURLOPT_SSLKEY_BLOB, &c->key);
    }
}

/* Makes the transfer from scratch with the credentials of now and hands it to libcurl. */
static int call_start(struct alq_kube_call *call)
{
    struct alq_kube *kube = call->kube;
    const struct alq_credentials *c = &kube->credentials;
    if (call->easy)
        curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers);
    curl_slist_free_all(call->connect_to);
    call->headers = call->connect_to = NULL;
    call->started_ns = alq_now_ns();
    call->len = 0;
    call->is_too_long = 0;
    call->reason[0] = '\0';
    CURL *easy = call->easy = curl_easy_init();
    alq_auto_free char *url = alq_str_printf("%s%s", kube->url_base, call->path);
    if (!easy || !url || add_header(call, strdup("Accept: application/json")))
        return -1;
    if (c->token && add_header(call, alq_str_printf("Authorization: Bearer %s", c->token)))
        return -1;
    if (call->body && (add_header(call, alq_str_printf("Content-Type: %s", call->content_type)) ||
                       add_header(call, strdup("Expect:"))))
        return -1;

    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "https");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* A name server that does not answer must not hold the loop: giving a call up would wait for
     * the thread that asks it. */
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "aliquotd/" ALQ_VERSION);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
    /* On a kept connection that turns out to be dead libcurl sends again, which must not create
     * twice. */
    if (!strcmp(call->method, "POST"))
        curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    if (call->body) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->body));
    }
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, call->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, 20L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, 10L);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_socket_made);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->reason);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    if (c->proxy && *c->proxy)
        curl_easy_setopt(easy, CURLOPT_PROXY, c->proxy);
    else if (kube->is_loopback)
        curl_easy_setopt(easy, CURLOPT_PROXY, ""); /* whatever the environment says */
    if (kube->connect_to) {
        call->connect_to = curl_slist_append(NULL, kube->connect_to);
        if (!call->connect_to)
            return -1;
        curl_easy_setopt(easy, CURLOPT_CONNECT_TO, call->connect_to);
    }
    if (call->watch) {
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    }
    set_tls(kube, easy);
    return curl_multi_add_handle(kube->multi, easy) == CURLM_OK ? 0 : -1;
}

/* ---- outcomes -----------------------------------------------------------------------------------
 */

static int code_of_status(long status)
{
    switch (status) {
    case 400:
    case 422:
        return ALQ_EINVAL;
    case 401:
    case 403:
        return ALQ_EACCES;
    case 404:
        return ALQ_ENOENT;
    case 409:
        return ALQ_EEXIST;
    case 429:
        return ALQ_EAGAIN;
    default:
        return status >= 500 ? ALQ_EAGAIN : ALQ_EPROTO;
    }
}

static int is_success(long status)
{
    return status >= 200 && status < 300;
}

/* What happened to the transfer, as an error; status 0 when there was no answer. */
static int judge(struct alq_kube_call *call, CURLcode result, long status, json_t **body,
                 struct alq_err *err)
{
    const char *server = call->kube->credentials.server;
    if (call->is_out_of_memory)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (call->is_too_long)
        return alq_err_set(err, ALQ_EPROTO, "%s %s: the answer is longer than %u bytes",
                           call->method, call->path, ANSWER_BYTES_MAX);
    if (result != CURLE_OK)
        return alq_err_set(err, result == CURLE_OPERATION_TIMEDOUT ? ALQ_ETIMEDOUT : ALQ_EIO,
                           "no answer from %.128s to %s %.128s: %.160s", server, call->method,
                           call->path, call->reason[0] ? call->reason : curl_easy_strerror(result));
    int is_json = !alq_json_parse(call->data ? call->data : "", call->len, "answer", body, NULL);
    if (is_success(status))
        return is_json ? 0
                       : alq_err_set(err, ALQ_EPROTO, "%s %s: the answer is not JSON", call->method,
                                     call->path);
    const char *message = is_json ? alq_json_str(*body, "message") : NULL;
    return alq_err_set(err, code_of_status(status), "%s %.160s: %ld %.280s%s", call->method,
                       call->path, status,
                       message        ? message
                       : status < 400 ? "a redirect, which is not followed"
                                      : "without a reason",
                       status == 401 ? "; the credentials are not accepted, correct them" : "");
}

/* Parses what a watch has received. Returns whether the call is still there. */
static int deliver_events(struct alq_kube_call *call)
{
    size_t len = call->len;
    char *data = alq_steal(&call->data);
    call->len = call->size = 0;
    call->is_busy = 1;
    if (len && !call->watch_err.code)
        (void)alq_watch_feed(call->watch, data, len, &call->watch_err);
    call->is_busy = 0;
    free(data);
    if (call->is_cancelled) {
        call_free(call);
        return 0;
    }
    return 1;
}

static void on_event_of_watch(void *arg, const struct alq_watch_event *event)
{
    struct alq_kube_call *call = arg;
    if (!call->is_cancelled)
        call->on_event(call->arg, event);
}

static void finish_watch(struct alq_kube_call *call, CURLcode result, long status)
{
    struct alq_err err = ALQ_ERR_INIT;
    json_t *body = NULL;
    if (status == 200) {
        if (!deliver_events(call))
            return;
        call->is_busy = 1;
        if (!call->watch_err.code)
            alq_watch_end(call->watch);
        call->is_busy = 0;
        if (call->is_cancelled) {
            call_free(call);
            return;
        }
        if (call->watch_err.code)
            err = call->watch_err;
        else if (result != CURLE_OK)
            (void)judge(call, result, status, &body, &err);
    } else {
        (void)judge(call, result, status, &body, &err);
        if (!err.code)
            alq_err_set(&err, ALQ_EPROTO, "watch %s: status %ld", call->path, status);
    }
    call->on_end(call->arg, err.code && status == 200 ? 0 : (int)status, err.code ? &err : NULL);
    json_decref(body);
    call_free(call);
}

/* One side does not trust the other: perhaps our token, certificate or authority has rotated. */
static int is_refusal_of_trust(CURLcode result, long status)
{
    return result == CURLE_OK
               ? status == 401
               : result == CURLE_PEER_FAILED_VERIFICATION || result == CURLE_SSL_CONNECT_ERROR ||
                     result == CURLE_SSL_CERTPROBLEM;
}

static void count(const struct alq_kube_call *call, long status)
{
    char code[16];
    const char *verb = call->watch ? "WATCH" : call->method;
    snprintf(code, sizeof(code), "%ld", status);
    alq_metric_add(ALQ_METRIC_API_REQUESTS, 1, verb, code);
    if (!call->watch)
        alq_metric_observe(ALQ_METRIC_API_REQUEST_DURATION, alq_now_ns() - call->started_ns, verb,
                           NULL);
}

static void finish(struct alq_kube_call *call, CURLcode result)
{
    struct alq_kube *kube = call->kube;
    long status = 0;
    curl_off_t retry_after_s = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &retry_after_s);

    if (is_refusal_of_trust(result, status) && !call->is_authorised_again) {
        call->is_authorised_again = 1;
        refresh_credentials(kube, 1);
        curl_multi_remove_handle(kube->multi, call->easy);
        if (!call_start(call))
            return;
        alq_warn(NULL, "out of memory");
    }
    call_unlink(call);
    if (result != CURLE_OK && !call->watch)
        status = 0;
    count(call, status);
    kube->retry_after_ms =
        retry_after_s > 0 && retry_after_s < 3600 ? (long)retry_after_s * 1000 : 0;
    if (call->watch) {
        finish_watch(call, result, status);
    } else {
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_json json_t *body = NULL;
        if (judge(call, result, status, &body, &err) && is_success(status))
            status = 0;
        call->cb(call->arg, (int)status, body, err.code ? &err : NULL);
        call_free(call);
        event_add(kube->quiet, &(struct timeval){.tv_usec = QUIET_US});
    }
    kube->retry_after_ms = 0;
}

/* A watch that broke its format is ended from here, where libcurl is not on the stack. */
static void on_deliver(evutil_socket_t fd, short what, void *arg)
{
    struct alq_kube_call *call = arg;
    (void)fd;
    (void)what;
    if (!deliver_events(call) || !call->watch_err.code)
        return;
    call_unlink(call);
    call->on_end(call->arg, 0, &call->watch_err);
    call_free(call);
}

/* ---- libcurl and the loop -----------------------------------------------------------------------
 */

static void finish_all(struct alq_kube *kube)
{
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(kube->multi, &left))) {
        struct alq_kube_call *call = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode result = message->data.result;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        finish(call, result);
    }
}

static void on_socket_ready(evutil_socket_t fd, short what, void *arg)
{
    struct alq_kube *kube = arg;
    int running,
        action = (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0);
    curl_multi_socket_action(kube->multi, fd, action, &running);
    finish_all(kube);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct alq_kube *kube = arg;
    int running;
    (void)fd;
    (void)what;
    curl_multi_socket_action(kube->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    finish_all(kube);
}

/* libcurl names a socket and what it waits for; the event is kept as the socket's private pointer.
 */
static int on_socket_wanted(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct alq_kube *kube = arg;
    struct event *ready = socket_arg;
    (void)easy;
    if (ready)
        event_free(ready);
    ready = NULL;
    if (what != CURL_POLL_REMOVE) {
        short kinds = (short)((what & CURL_POLL_IN ? EV_READ : 0) |
                              (what & CURL_POLL_OUT ? EV_WRITE : 0) | EV_PERSIST);
        ready = event_new(kube->base, fd, kinds, on_socket_ready, kube);
        if (!ready || event_add(ready, NULL))
            return -1;
    }
    curl_multi_assign(kube->multi, fd, ready);
    return 0;
}

static int on_timer_wanted(CURLM *multi, long ms, void *arg)
{
    struct alq_kube *kube = arg;
    (void)multi;
    if (ms < 0) {
        event_del(kube->timer);
    } else {
        struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000};
        event_add(kube->timer, &tv);
    }
    return 0;
}

static void on_quiet(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    (void)arg;
    malloc_trim(0);
}

/* ---- for the rest of the daemon -----------------------------------------------------------------
 */

struct alq_kube *alq_kube_new(const struct alq_config *cfg, struct event_base *base,
                              struct alq_err *err)
{
    struct alq_kube *kube = calloc(1, sizeof(*kube));
    if (!kube) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    TAILQ_INIT(&kube->calls);
    kube->base = base;
    if (alq_credentials_load(cfg->kubeconfig, ALQ_SERVICE_ACCOUNT_DIR, &kube->credentials, err))
        goto fail;
    kube->refreshed_ms = alq_now_ms();
    if (curl_global_init(CURL_GLOBAL_DEFAULT)) {
        alq_err_set(err, ALQ_EIO, "libcurl does not start");
        goto fail;
    }
    if (place_server(kube, err))
        goto fail;
    kube->multi = curl_multi_init();
    kube->timer = evtimer_new(base, on_timer, kube);
    kube->quiet = evtimer_new(base, on_quiet, NULL);
    if (!kube->multi || !kube->timer || !kube->quiet) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        goto fail;
    }
    curl_multi_setopt(kube->multi, CURLMOPT_SOCKETFUNCTION, on_socket_wanted);
    curl_multi_setopt(kube->multi, CURLMOPT_SOCKETDATA, kube);
    curl_multi_setopt(kube->multi, CURLMOPT_TIMERFUNCTION, on_timer_wanted);
    curl_multi_setopt(kube->multi, CURLMOPT_TIMERDATA, kube);
    curl_multi_setopt(kube->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(kube->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)CONNECTIONS_MAX);
    curl_multi_setopt(kube->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_MAX);
    if (kube->credentials.is_insecure)
        alq_warn(
            ALQ_LOG_KV({"server", kube->credentials.server}),
            "the kubeconfig says insecure-skip-tls-verify: anybody may pose as the API server");
    return kube;
fail:
    alq_kube_free(kube);
    return NULL;
}

void alq_kube_free(struct alq_kube *kube)
{
    struct alq_kube_call *call;
    if (!kube)
        return;
    while ((call = TAILQ_FIRST(&kube->calls)))
        alq_kube_cancel(call);
    if (kube->multi)
        curl_multi_cleanup(kube->multi); /* names its sockets once more: before the timer goes */
    if (kube->timer)
        event_free(kube->timer);
    if (kube->quiet)
        event_free(kube->quiet);
    alq_credentials_free(&kube->credentials);
    free(kube->url_base);
    free(kube->connect_to);
    free(kube);
}

static struct alq_kube_call *call_new(struct alq_kube *kube, const char *method, const char *path,
                                      long timeout_ms)
{
    struct alq_kube_call *call = calloc(1, sizeof(*call));
    if (!call)
        return NULL;
    call->kube = kube;
    call->timeout_ms = timeout_ms;
    call->method = strdup(method);
    call->path = strdup(path);
    return call;
}

static struct alq_kube_call *call_go(struct alq_kube_call *call, int is_whole, struct alq_err *err)
{
    if (is_whole)
        refresh_credentials(call->kube, 0);
    if (!is_whole || call_start(call)) {
        if (call)
            call_free(call);
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    TAILQ_INSERT_TAIL(&call->kube->calls, call, link);
    call->is_linked = 1;
    return call;
}

struct alq_kube_call *alq_kube_request(struct alq_kube *kube, const char *method, const char *path,
                                       const char *content_type, const json_t *body,
                                       long timeout_ms, alq_kube_cb cb, void *arg,
                                       struct alq_err *err)
{
    struct alq_kube_call *call = call_new(kube, method, path, timeout_ms);
    if (call) {
        call->cb = cb;
        call->arg = arg;
        call->content_type = strdup(content_type ? content_type : "application/json");
        call->body = body ? alq_json_dump(body) : NULL;
    }
    return call_go(
        call, call && call->method && call->path && call->content_type && (!body || call->body),
        err);
}

struct alq_kube_call *alq_kube_watch(struct alq_kube *kube, const char *path, long timeout_ms,
                                     alq_kube_event_cb on_event, alq_kube_end_cb on_end, void *arg,
                                     struct alq_err *err)
{
    struct alq_kube_call *call = call_new(kube, "GET", path, timeout_ms);
    if (call) {
        call->on_event = on_event;
        call->on_end = on_end;
        call->arg = arg;
        call->watch = alq_watch_new(EVENT_BYTES_MAX, on_event_of_watch, call);
        call->deliver = event_new(kube->base, -1, 0, on_deliver, call);
    }
    return call_go(call, call && call->method && call->path && call->watch && call->deliver, err);
}

struct alq_kube_call *alq_kube_get_claim(struct alq_kube *kube, const char *namespace_,
                                         const char *name, long timeout_ms, alq_kube_cb cb,
                                         void *arg, struct alq_err *err)
{
    alq_auto_free char *escaped_namespace = alq_kube_escape(namespace_);
    alq_auto_free char *escaped_name = alq_kube_escape(name);
    alq_auto_free char *path =
        escaped_namespace && escaped_name
            ? alq_str_printf("/apis/resource.k8s.io/v1/namespaces/%s/resourceclaims/%s",
                             escaped_namespace, escaped_name)
            : NULL;
    if (!path) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    return alq_kube_request(kube, "GET", path, NULL, NULL, timeout_ms, cb, arg, err);
}

void alq_kube_cancel(struct alq_kube_call *call)
{
    if (!call || call->is_cancelled)
        return;
    call_unlink(call);
    if (call->is_busy)
        call->is_cancelled = 1; /* deliver_events is on the stack and frees it */
    else
        call_free(call);
}

long alq_kube_retry_after_ms(const struct alq_kube *kube)
{
    return kube->retry_after_ms;
}

char *alq_kube_escape(const char *text)
{
    char *escaped = curl_easy_escape(NULL, text, 0);
    char *copy = escaped ? strdup(escaped) : NULL;
    curl_free(escaped);
    return copy;
}
