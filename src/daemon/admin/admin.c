/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening, probes, version and findings, see admin.h. Loop thread only.
 */
#include "daemon/admin/admin.h"

#include <event2/event.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/listen.h"

#define ALQ_LOG_MODULE "admin"

#define AGAIN_S 2

struct alq_admin {
    const struct alq_config *cfg;
    struct alq_http *http;
    struct alq_findings *findings;
    struct alq_admin_probes probes;
    gid_t group;
    char *path;           /* of the admin socket */
    struct event *again;  /* looks whether what should listen does */
    int is_open;          /* the admin socket should be there */
    struct alq_err tcp;   /* code set: why we do not listen there */
    struct alq_err admin; /* likewise */
};

void alq_admin_answer(struct alq_http_call *call, int status, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    size_t len = text ? strlen(text) : 0;
    json_decref(value);
    alq_http_answer(call, status, "application/json", text, len);
}

int alq_admin_status(int code)
{
    switch (code) {
    case ALQ_ENOENT:
        return 404;
    case ALQ_EACCES:
        return 403;
    case ALQ_EINVAL:
    case ALQ_ERANGE:
    case ALQ_EPROTO:
        return 400;
    case ALQ_EBUSY:
    case ALQ_EEXIST:
    case ALQ_ENOTSUP:
        return 409;
    case ALQ_EAGAIN:
    case ALQ_ECANCELED:
        return 503;
    default:
        return 500;
    }
}

/* ---- paths ------------------------------------------------------------------------------------
 */

static void probe(struct alq_admin *a, struct alq_http_call *call,
                  int (*ask)(void *arg, char *why, size_t size))
{
    char why[256] = "";
    int is_well = ask(a->probes.arg, why, sizeof(why));
    char *text = alq_str_printf("%s\n", is_well ? "ok" : why);
    alq_http_answer(call, is_well ? 200 : 503, "text/plain; charset=utf-8", text,
                    text ? strlen(text) : 0);
}

static void on_ready(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    (void)request;
    struct alq_admin *a = arg;
    probe(a, call, a->probes.is_ready);
}

static void on_live(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    (void)request;
    struct alq_admin *a = arg;
    probe(a, call, a->probes.is_live);
}

static void on_version(void *arg, struct alq_http_call *call,
                       const struct alq_http_request *request)
{
    (void)request;
    const struct alq_admin *a = arg;
    alq_admin_answer(call, 200,
                     json_pack("{s:s, s:s, s:s, s:b}", "version", ALQ_VERSION, "driver",
                               a->cfg->driver_name, "node", a->cfg->node_name, "standalone",
                               a->cfg->is_standalone));
}

static void on_doctor(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    (void)request;
    struct alq_admin *a = arg;
    alq_admin_answer(call, 200, json_pack("{s:o}", "findings", alq_findings_collect(a->findings)));
}

static void tell_findings(void *arg, struct alq_findings *f)
{
    struct alq_admin *a = arg;
    if (a->tcp.code)
        alq_findings_add(f, "metrics.address", ALQ_FINDING_WARNING,
                         "free the port or set metricsAddress; it is tried again by itself",
                         "/metrics and /healthz are not served: %s", a->tcp.text);
    if (a->is_open && a->admin.code)
        alq_findings_add(f, "admin.socket", ALQ_FINDING_WARNING,
                         "give each daemon of a node a run dir of its own",
                         "the admin socket is not served: %s", a->admin.text);
}

/* ---- listening --------------------------------------------------------------------------------
 */

/* Says what changed, once. */
static void note(struct alq_err *last, int rc, const struct alq_err *err, const char *what)
{
    if (rc && strcmp(last->text, err->text) != 0)
        alq_warn(NULL, "%s is not served: %s; tried again", what, err->text);
    *last = rc ? *err : (struct alq_err)ALQ_ERR_INIT;
}

static void listen_tcp(struct alq_admin *a)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (!strcmp(a->cfg->metrics_address, "none") || *alq_http_tcp_address(a->http))
        return;
    int rc = alq_http_listen_tcp(a->http, a->cfg->metrics_address, &err);
    note(&a->tcp, rc, &err, "/metrics");
    if (!rc)
        alq_info(ALQ_LOG_KV({"address", alq_http_tcp_address(a->http)}), "serving /metrics");
}

static void listen_admin(struct alq_admin *a)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (!a->is_open || alq_http_has_admin(a->http))
        return;
    note(&a->admin, alq_http_listen_admin(a->http, a->path, a->group, &err), &err,
         "the admin socket");
}

void alq_admin_look(struct alq_admin *a)
{
    listen_tcp(a);
    listen_admin(a);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    alq_admin_look(arg);
}

void alq_admin_open(struct alq_admin *a)
{
    a->is_open = 1;
    listen_admin(a);
}

void alq_admin_close(struct alq_admin *a)
{
    a->is_open = 0;
    alq_http_close_admin(a->http);
}

/* ---- life -------------------------------------------------------------------------------------
 */

/* Out of the file itself: by getgrnam the name service's libraries would come into the process and
 * stay, 600 KiB of them. */
static gid_t find_group(const char *name)
{
    char *end;
    unsigned long number = strtoul(name, &end, 10);
    if (!*end && number < ALQ_EVERYBODY)
        return (gid_t)number;
    alq_auto_fclose FILE *file = fopen("/etc/group", "re");
    const struct group *group = NULL;
    while (file && (group = fgetgrent(file)) && strcmp(group->gr_name, name) != 0)
        ;
    return group ? group->gr_gid : ALQ_NO_GROUP;
}

static int add_paths(struct alq_admin *a)
{
    static const struct {
        unsigned where;
        const char *path;
        alq_http_handler handler;
    } paths[] = {
        {ALQ_HTTP_TCP | ALQ_HTTP_ADMIN, "/healthz/ready", on_ready},
        {ALQ_HTTP_TCP | ALQ_HTTP_ADMIN, "/healthz/live", on_live},
        {ALQ_HTTP_ADMIN, "/v1/version", on_version},
        {ALQ_HTTP_ADMIN, "/v1/doctor", on_doctor},
    };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (alq_http_handle(a->http, paths[i].where, "GET", paths[i].path, paths[i].handler, a))
            return -1;
    return alq_findings_register(a->findings, tell_findings, a);
}

struct alq_admin *alq_admin_new(const struct alq_config *cfg, struct event_base *base,
                                const struct alq_admin_probes *probes, struct alq_err *err)
{
    static const struct timeval period = {.tv_sec = AGAIN_S};
    struct alq_admin *a = calloc(1, sizeof(*a));
    if (!a) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    a->cfg = cfg;
    a->probes = *probes;
    a->group = cfg->is_standalone ? ALQ_EVERYBODY : find_group(cfg->admin_group);
    a->path = strdup(cfg->admin_socket);
    a->http = alq_http_new(base, err);
    a->findings = alq_findings_new(err);
    a->again = event_new(base, -1, EV_PERSIST, on_again, a);
    if (!a->path || !a->http || !a->findings || !a->again || event_add(a->again, &period) ||
        add_paths(a)) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        alq_admin_free(a);
        return NULL;
    }
    listen_tcp(a);
    return a;
}

void alq_admin_free(struct alq_admin *a)
{
    if (!a)
        return;
    if (a->again)
        event_free(a->again);
    alq_http_free(a->http);
    alq_findings_free(a->findings);
    free(a->path);
    free(a);
}

struct alq_http *alq_admin_http(struct alq_admin *a)
{
    return a->http;
}

struct alq_findings *alq_admin_findings(struct alq_admin *a)
{
    return a->findings;
}
