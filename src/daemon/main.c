/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquotd: puts the parts together and runs the loop; with --standalone without all that speaks to
 * kubelet and API server. Order of start: what can be refused
 * (settings, directories, locks), the DRA socket, the node's state on a worker, the registration
 * socket last: neither NVML nor the API server is waited for. While another instance has the state
 * (succession.h) the registration socket comes at once, and the state when that one hands over.
 * Order of end: the registration socket goes first, open calls are answered, then everything else.
 */
#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/admin/admin.h"
#include "daemon/admin/shares.h"
#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/descriptors.h"
#include "daemon/devices/control.h"
#include "daemon/grpc/server.h"
#include "daemon/kube/events.h"
#include "daemon/kube/kube.h"
#include "daemon/kubelet/dra.h"
#include "daemon/kubelet/gone.h"
#include "daemon/kubelet/health.h"
#include "daemon/kubelet/pods.h"
#include "daemon/kubelet/registration.h"
#include "daemon/kubelet/rival.h"
#include "daemon/kubelet/sockets.h"
#include "daemon/monitor/monitor.h"
#include "daemon/node.h"
#include "daemon/nvml/nvml.h"
#include "daemon/privileges.h"
#include "daemon/reload.h"
#include "daemon/standalone/standalone.h"
#include "daemon/succession.h"
#include "daemon/uninstall.h"
#include "daemon/work.h"

#define ALQ_LOG_MODULE "main"

#define WORKERS 4
#define LARGE_BYTES (128 << 10)
#define SPARE_BYTES (16 << 10)
#define DRAIN_MS 5000
#define DRAIN_STEP_MS 20
#define LINGER_S 5

enum phase {
    PHASE_RUNNING,
    PHASE_LINGERING, /* serving until the other instance asks for the state */
    PHASE_DRAINING,  /* open calls are answered, new ones are not taken */
};

struct daemon {
    struct alq_config cfg;
    struct event_base *base;
    struct event *signals[3];
    struct alq_reload reload;
    struct event *drain;
    struct event *linger;
    enum phase phase;
    int drain_left_ms;
    int rc;
    struct alq_admin *admin;
    struct alq_admin_sources sources;
    struct alq_succession *succession; /* NULL: standalone, or over */
    struct alq_standalone *standalone; /* NULL: a kubelet plugin */
    int is_registered;                 /* the kubelet has taken us once */
    int is_chosen; /* registered by the kubelet since we were last asked to hand over */
    struct alq_work *work;
    struct alq_kube *kube;
    struct alq_events *events;
    struct alq_node *node;
    struct alq_nvml *nvml;
    struct alq_monitor *monitor;
    struct alq_pods *pods;
    struct alq_devices_control devices_control;
    struct alq_dra *dra;
    struct alq_health *health;
    struct alq_grpc_method methods[8]; /* of both */
    struct alq_registration *registration;
    struct alq_sockets sockets;
    struct alq_gone *gone;
    struct alq_grpc_server *dra_server;
    struct alq_grpc_server *registration_server;
};

static int make_dirs(const struct alq_config *cfg, struct alq_err *err)
{
    alq_auto_free char *dir = alq_str_printf("%s/%s", cfg->kubelet_plugins_dir, cfg->driver_name);
    if (!dir)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_file_mkdirs(dir, 0750, err);
    if (rc)
        return alq_err_wrap(err, "--kubelet-plugins-dir");
    rc = alq_file_mkdirs(cfg->kubelet_registry_dir, 0755, err);
    return rc ? alq_err_wrap(err, "--kubelet-registry-dir") : 0;
}

static void end_by(struct daemon *d, const struct alq_err *err)
{
    alq_error(NULL, "cannot start: %s", err->text);
    d->rc = 1;
    event_base_loopbreak(d->base);
}

/* ---- the state and who has it -----------------------------------------------------------------
 */

/* Somebody has taken a socket away: without it the kubelet, or the operator, does not find us. */
static void on_gone(void *arg)
{
    struct daemon *d = arg;
    struct alq_grpc_server *const servers[] = {d->dra_server, d->registration_server};
    if (d->phase != PHASE_RUNNING)
        return;
    make_dirs(&d->cfg, NULL);
    alq_admin_look(d->admin);
    for (size_t i = 0; i < 2; i++) {
        struct alq_err err = ALQ_ERR_INIT;
        int rc = alq_grpc_server_renew(servers[i], &err);
        if (rc > 0)
            alq_warn(NULL, "a socket for the kubelet was taken away; made again");
        else if (rc < 0)
            alq_error(NULL, "a socket for the kubelet was taken away: %s; tried again", err.text);
    }
}

/* The kubelet may know us from now on. */
static int open_registration(struct daemon *d, struct alq_err *err)
{
    d->registration_server = alq_grpc_server_new(d->base, d->sockets.registration,
                                                 alq_registration_methods(d->registration), err);
    if (!d->registration_server)
        return err->code;
    alq_info(ALQ_LOG_KV({"node", d->cfg.node_name}, {"driver", d->cfg.driver_name},
                        {"version", ALQ_VERSION}),
             "ready");
    return 0;
}

static void drain(struct daemon *d);

static void on_opened(void *arg, const struct alq_err *err)
{
    struct daemon *d = arg;
    struct alq_err why = ALQ_ERR_INIT;
    if (d->phase == PHASE_RUNNING && !err && !d->standalone && !d->registration_server &&
        open_registration(d, &why))
        err = &why;
    if (err) {
        end_by(d, err);
        return;
    }
    if (d->standalone) {
        alq_standalone_open(d->standalone, alq_node_prepare(d->node));
        alq_info(ALQ_LOG_KV({"driver", d->cfg.driver_name}, {"version", ALQ_VERSION}), "ready");
    }
    alq_admin_open(d->admin);
    if (d->succession && d->phase != PHASE_DRAINING)
        alq_succession_listen(d->succession);
}

static void on_acquired(void *arg)
{
    struct daemon *d = arg;
    alq_info(NULL, "taking over the node's state");
    alq_dra_wait(d->dra);
    alq_node_open(d->node, on_opened, d);
}

static void on_closed(void *arg)
{
    struct daemon *d = arg;
    alq_info(NULL, "the node's state is handed over");
    alq_admin_close(d->admin);
    alq_succession_release(d->succession);
    if (d->is_chosen)
        alq_dra_wait(d->dra);
    if (d->phase == PHASE_LINGERING)
        drain(d);
    else if (d->phase == PHASE_DRAINING)
        alq_succession_free(alq_steal(&d->succession));
}

static void on_asked(void *arg)
{
    struct daemon *d = arg;
    if (d->phase == PHASE_DRAINING)
        return;
    d->is_chosen = 0;
    alq_node_close(d->node, "another aliquotd serves this node now; call that one", on_closed, d);
}

static int is_connected(void *arg)
{
    const struct daemon *d = arg;
    return alq_grpc_server_connections(d->dra_server) != 0;
}

static int has_calls(void *arg)
{
    const struct daemon *d = arg;
    return alq_dra_waiting(d->dra) != 0;
}

static void on_registered(void *arg)
{
    struct daemon *d = arg;
    if (d->phase != PHASE_RUNNING)
        return;
    d->is_registered = 1;
    d->is_chosen = 1;
    alq_succession_registered(d->succession);
    if (!alq_succession_is_holder(d->succession))
        alq_dra_wait(d->dra);
}

/* A call although we have handed over: perhaps the other one has died just now. */
static void on_stray(void *arg)
{
    struct daemon *d = arg;
    if (d->phase == PHASE_RUNNING)
        alq_succession_try(d->succession);
}

static void ask_users(void *arg)
{
    struct daemon *d = arg;
    if (!d->standalone)
        alq_pods_ask(d->pods);
}

static void on_users(void *arg, const struct alq_share_user *users, size_t count)
{
    struct daemon *d = arg;
    alq_monitor_set_users(d->monitor, users, count);
}

static int take_sample(void *arg, alq_nvml_sample_cb cb, void *cb_arg)
{
    struct daemon *d = arg;
    return d->nvml ? alq_nvml_sample(d->nvml, cb, cb_arg) : -1;
}

static int take_use(void *arg, alq_nvml_use_cb cb, void *cb_arg)
{
    struct daemon *d = arg;
    return d->nvml ? alq_nvml_use(d->nvml, cb, cb_arg) : -1;
}

static void on_read(void *arg, const struct alq_nvml_reading *reading)
{
    struct daemon *d = arg;
    alq_node_read(d->node, reading);
}

static void on_happened(void *arg, const struct alq_gpu_event *event)
{
    struct daemon *d = arg;
    alq_node_happened(d->node, event);
}

/* ---- probes -----------------------------------------------------------------------------------
 */

static int is_ready(void *arg, char *why, size_t size)
{
    const struct daemon *d = arg;
    if (d->phase == PHASE_DRAINING)
        snprintf(why, size, "aliquotd is ending");
    else if (!alq_node_is_published(d->node))
        snprintf(why, size, "%s",
                 alq_node_is_open(d->node)
                     ? "the API server has not confirmed this node's ResourceSlices"
                     : "another instance has the node's state, or it is being opened");
    else
        return 1;
    return 0;
}

/* That the loop turns is shown by the answer. A worker that hangs in a disk is not helped by a
 * restart, so it does not count. */
static int is_live(void *arg, char *why, size_t size)
{
    const struct daemon *d = arg;
    if (d->phase == PHASE_DRAINING || d->standalone ||
        (alq_grpc_server_is_live(d->dra_server) &&
         (!d->registration_server || alq_grpc_server_is_live(d->registration_server))))
        return 1;
    snprintf(why, size, "a socket for the kubelet does not answer");
    return 0;
}

/* ---- end --------------------------------------------------------------------------------------
 */

static void on_drain(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct daemon *d = arg;
    struct timeval tv = {.tv_usec = DRAIN_STEP_MS * 1000};
    d->drain_left_ms -= DRAIN_STEP_MS;
    unsigned open = alq_grpc_server_open_calls(d->dra_server) +
                    alq_grpc_server_open_calls(d->registration_server) +
                    alq_http_open_calls(alq_admin_http(d->admin));
    if (open && d->drain_left_ms > 0) {
        event_add(d->drain, &tv);
        return;
    }
    if (open)
        alq_warn(NULL, "%u calls are not answered", open);
    event_base_loopbreak(d->base);
}

static void drain(struct daemon *d)
{
    d->phase = PHASE_DRAINING;
    d->drain_left_ms = DRAIN_MS;
    event_del(d->linger);
    alq_health_end(d->health);
    alq_grpc_server_shutdown(d->dra_server);
    alq_http_shutdown(alq_admin_http(d->admin));
    if (d->succession && !alq_succession_is_holder(d->succession)) {
        alq_dra_refuse(d->dra, "aliquotd is ending");
        alq_succession_free(alq_steal(&d->succession));
    }
    event_active(d->drain, EV_TIMEOUT, 0);
}

static void on_linger_over(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    drain(arg);
}

static void on_signal(evutil_socket_t signal_number, short what, void *arg)
{
    static const struct timeval linger = {.tv_sec = LINGER_S};
    (void)what;
    struct daemon *d = arg;
    if (signal_number == SIGHUP) {
        if (alq_reload_run(&d->reload))
            alq_devices_choose_again(alq_node_devices(d->node));
        return;
    }
    if (d->phase != PHASE_RUNNING) {
        event_base_loopbreak(d->base);
        return;
    }
    alq_info(NULL, "%s: ending", signal_number == SIGINT ? "SIGINT" : "SIGTERM");
    alq_grpc_server_shutdown(d->registration_server);
    if (d->succession && d->cfg.pod_uid && alq_succession_is_holder(d->succession) &&
        alq_sockets_has_other(&d->cfg, &d->sockets)) {
        /* Calls go on coming until the kubelet has noticed; then the other one asks. */
        d->phase = PHASE_LINGERING;
        event_add(d->linger, &linger);
    } else {
        drain(d);
    }
}

static void daemon_fini(struct daemon *d)
{
    alq_gone_free(d->gone);
    alq_standalone_close(d->standalone);
    alq_grpc_server_free(d->registration_server);
    alq_nvml_stop(alq_steal(&d->nvml)); /* a sample may still be asked for */
    alq_work_free(d->work);             /* its jobs end in operations and calls, so before both */
    alq_node_free(d->node);
    alq_standalone_free(d->standalone);
    alq_pods_free(d->pods);
    alq_monitor_free(d->monitor);
    alq_grpc_server_free(d->dra_server);
    alq_registration_free(d->registration);
    alq_dra_free(d->dra);
    alq_health_free(d->health);
    alq_events_free(d->events);
    alq_kube_free(d->kube);
    alq_admin_free(d->admin);
    alq_succession_free(d->succession);
    for (int i = 0; i < 3; i++)
        if (d->signals[i])
            event_free(d->signals[i]);
    if (d->drain)
        event_free(d->drain);
    if (d->linger)
        event_free(d->linger);
    if (d->base)
        event_base_free(d->base);
    alq_config_free(&d->cfg);
}

/* ---- start ------------------------------------------------------------------------------------
 */

static int open_loop(struct daemon *d, struct alq_err *err)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    struct event_config *config = event_config_new();
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
        d->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    if (d->base)
        d->drain = evtimer_new(d->base, on_drain, d);
    if (d->base)
        d->linger = evtimer_new(d->base, on_linger_over, d);
    for (int i = 0; i < 3 && d->base; i++) {
        d->signals[i] = evsignal_new(d->base, numbers[i], on_signal, d);
        if (d->signals[i])
            event_add(d->signals[i], NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    if (!d->drain || !d->linger || !d->signals[0] || !d->signals[1] || !d->signals[2])
        return alq_err_set(err, ALQ_ENOMEM, "event loop: out of memory");
    return 0;
}

/* The kubelet's directories, and that no other daemon has ours for itself. */
static int open_dirs(struct daemon *d, struct alq_err *err)
{
    const struct alq_succession_calls calls = {is_connected, has_calls, on_acquired, on_asked, d};
    alq_auto_free char *dir =
        alq_str_printf("%s/%s", d->cfg.kubelet_plugins_dir, d->cfg.driver_name);
    if (!dir)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = make_dirs(&d->cfg, err);
    if (rc)
        return rc;
    d->succession = alq_succession_new(d->base, dir, d->cfg.pod_uid != NULL, &calls, err);
    return d->succession ? 0 : err->code;
}

static void open_monitor(struct daemon *d, struct alq_err *err)
{
    const struct alq_monitor_parts parts = {.cfg = &d->cfg,
                                            .clock = alq_clock_real(d->base),
                                            .work = d->work,
                                            .sample = take_sample,
                                            .sample_arg = d,
                                            .use = take_use,
                                            .use_arg = d,
                                            .ask_users = ask_users,
                                            .users_arg = d};
    d->pods =
        alq_pods_new(d->base, d->cfg.pod_resources_socket, d->cfg.driver_name, on_users, d, err);
    if (!d->pods)
        return;
    d->monitor = alq_monitor_new(&parts, err);
    if (d->monitor && alq_monitor_serve(d->monitor, alq_admin_http(d->admin))) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        alq_monitor_free(alq_steal(&d->monitor));
    }
    if (d->monitor &&
        alq_findings_register(alq_admin_findings(d->admin), alq_monitor_tell, d->monitor)) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        alq_monitor_free(alq_steal(&d->monitor));
    }
}

static int open_kube(struct daemon *d, struct alq_err *err)
{
    const struct alq_clock clock = alq_clock_real(d->base);
    d->kube = alq_kube_new(&d->cfg, d->base, err);
    if (d->kube)
        d->events = alq_events_new(&d->cfg, d->kube, &clock, err);
    if (!d->events)
        return err->code;
    return alq_findings_register(alq_admin_findings(d->admin), alq_events_tell, d->events)
               ? alq_err_set(err, ALQ_ENOMEM, "out of memory")
               : 0;
}

static int open_standalone(struct daemon *d, struct alq_err *err)
{
    const struct alq_standalone_parts parts = {
        .cfg = &d->cfg, .base = d->base, .work = d->work, .admin = d->admin};
    d->standalone = alq_standalone_new(&parts, err);
    return d->standalone ? 0 : err->code;
}

static int open_parts(struct daemon *d, struct alq_err *err)
{
    const struct alq_admin_probes probes = {is_ready, is_live, d};
    d->admin = alq_admin_new(&d->cfg, d->base, &probes, err);
    if (d->admin &&
        alq_findings_register(alq_admin_findings(d->admin), alq_reload_tell, &d->reload))
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (d->admin)
        d->health = alq_health_new(d->base, d->cfg.node_name, err);
    if (!d->health || (!d->cfg.is_standalone && open_kube(d, err)))
        return err->code;
    d->work = alq_work_new(d->base, WORKERS, err);
    if (d->work)
        open_monitor(d, err);
    if (d->monitor && d->cfg.is_standalone && open_standalone(d, err))
        return err->code;
    if (d->monitor)
        d->dra = alq_dra_new(&d->cfg, on_stray, d, err);
    if (!d->dra)
        return err->code;
    const struct alq_node_parts parts = {
        .cfg = &d->cfg,
        .base = d->base,
        .work = d->work,
        .source = d->standalone ? alq_standalone_source(d->standalone) : NULL,
        .kube = d->kube,
        .events = d->events,
        .dra = d->dra,
        .health = d->health,
        .monitor = d->monitor,
        .findings = alq_admin_findings(d->admin)};
    d->node = alq_node_new(&parts, err);
    d->sources = (struct alq_admin_sources){d->node, d->monitor};
    if (d->node && alq_admin_add_shares(d->admin, &d->sources))
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return d->node ? 0 : err->code;
}

static void join_methods(struct daemon *d)
{
    const struct alq_grpc_method *tables[] = {alq_dra_methods(d->dra),
                                              alq_health_methods(d->health)};
    size_t n = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        for (const struct alq_grpc_method *m = tables[i]; m->path; m++)
            d->methods[n++] = *m;
}

static int watch_sockets(struct daemon *d, struct alq_err *err)
{
    alq_auto_free char *plugin =
        alq_str_printf("%s/%s", d->cfg.kubelet_plugins_dir, d->cfg.driver_name);
    const char *const dirs[] = {plugin, d->cfg.kubelet_registry_dir, d->cfg.run_dir, NULL};
    if (!plugin)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    d->gone = alq_gone_new(d->base, dirs, on_gone, d, err);
    return d->gone ? 0 : err->code;
}

static void tell_kubelet(void *arg, struct alq_findings *findings)
{
    const struct daemon *d = arg;
    struct alq_err rival = ALQ_ERR_INIT;
    if (!d->registration)
        return;
    if (d->is_registered)
        alq_findings_add(findings, "kubelet.registered", ALQ_FINDING_OK, NULL,
                         "the kubelet has taken this plugin");
    else
        alq_findings_add(
            findings, "kubelet.registered", ALQ_FINDING_WARNING,
            "see that the kubelet runs, is 1.34 or newer with DynamicResourceAllocation "
            "on, and watches --kubelet-registry-dir",
            "the kubelet has not taken this plugin: no claim comes here");
    if (alq_rival_check(&d->cfg, &rival))
        alq_findings_add(findings, "kubelet.rivals", ALQ_FINDING_ERROR,
                         "remove the other plugin, or give one of the two another --driver-name",
                         "%s", rival.text);
    else
        alq_findings_add(findings, "kubelet.rivals", ALQ_FINDING_OK, NULL,
                         "no other plugin serves the driver name %s here", d->cfg.driver_name);
}

static int open_socket(struct daemon *d, struct alq_err *err)
{
    int rc = alq_sockets_name(&d->cfg, &d->sockets, err);
    if (rc)
        return rc;
    alq_sockets_sweep(&d->cfg);
    rc = alq_rival_check(&d->cfg, err);
    if (rc)
        return rc;
    d->registration =
        alq_registration_new(d->cfg.driver_name, d->sockets.dra, on_registered, d, err);
    if (!d->registration)
        return err->code;
    if (alq_findings_register(alq_admin_findings(d->admin), tell_kubelet, d))
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    join_methods(d);
    d->dra_server = alq_grpc_server_new(d->base, d->sockets.dra, d->methods, err);
    return d->dra_server ? watch_sockets(d, err) : err->code;
}

static int daemon_init(struct daemon *d, struct alq_err *err)
{
    const int is_plugin = !d->cfg.is_standalone;
    int rc = open_loop(d, err);
    if (!rc && is_plugin)
        rc = open_dirs(d, err);
    if (!rc)
        rc = open_parts(d, err);
    if (!rc && is_plugin)
        rc = open_socket(d, err);
    if (rc)
        return rc;
    const struct alq_nvml_calls calls = {on_read, on_happened, d};
    d->nvml = alq_nvml_start(d->base, &d->cfg, &calls, err);
    if (!d->nvml)
        return err->code;
    d->devices_control = (struct alq_devices_control){alq_node_devices(d->node), d->nvml};
    rc = alq_devices_control_open(&d->devices_control, d->admin, err);
    if (rc)
        return rc;
    if (d->succession && !alq_succession_is_holder(d->succession)) {
        alq_info(NULL, "another instance has the node's state; it is asked for it when the kubelet "
                       "has registered this one");
        return open_registration(d, err);
    }
    alq_node_open(d->node, on_opened, d);
    return 0;
}

/* In a pod that would only be started again it stays until it is ended. */
static int uninstall(const struct alq_config *cfg, int is_staying)
{
    struct alq_err err = ALQ_ERR_INIT;
    sigset_t ends;
    int number;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    if (is_staying)
        sigprocmask(SIG_BLOCK, &ends, NULL);
    if (alq_uninstall(cfg, &err)) {
        alq_error(NULL, "not uninstalled: %s", err.text);
        return 1;
    }
    alq_info(ALQ_LOG_KV({"driver", cfg->driver_name}), "uninstalled");
    if (is_staying)
        sigwait(&ends, &number);
    return 0;
}

int main(int argc, char **argv)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct daemon d = {0};
    enum alq_config_action action;
    /* Four workers need no arena each: resident memory is a figure. */
    mallopt(M_ARENA_MAX, 1);
    /* Fixed: malloc would raise it with each large block that is freed, and then keep such blocks.
     */
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    mallopt(M_TOP_PAD, SPARE_BYTES);
    mallopt(M_TRIM_THRESHOLD, SPARE_BYTES);
    umask(022);
    unsigned seed = 0; /* of the jitter, so that the nodes of a cluster do not move together */
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != sizeof(seed))
        seed = (unsigned)getpid();
    srandom(seed);
    int rc = alq_config_load(&d.cfg, argc, argv, &action, &err);
    if (rc) {
        fprintf(stderr, "aliquotd: %s\n", err.text);
        alq_config_free(&d.cfg);
        return 2;
    }
    if (action == ALQ_CONFIG_HELP)
        alq_config_help(stdout);
    else if (action == ALQ_CONFIG_VERSION)
        printf("aliquotd %s\n", ALQ_VERSION);
    if (action == ALQ_CONFIG_HELP || action == ALQ_CONFIG_VERSION) {
        alq_config_free(&d.cfg);
        return 0;
    }
    d.reload = (struct alq_reload){.cfg = &d.cfg, .argc = argc, .argv = argv};
    alq_log_init(d.cfg.log_level, d.cfg.log_format, STDERR_FILENO);
    if (action != ALQ_CONFIG_RUN) {
        rc = uninstall(&d.cfg, action == ALQ_CONFIG_UNINSTALL_STAY);
        alq_config_free(&d.cfg);
        return rc;
    }
    alq_descriptors_raise();
    rc = alq_privileges_drop(&err);
    if (!rc)
        rc = daemon_init(&d, &err);
    if (rc) {
        alq_error(NULL, "cannot start: %s", err.text);
    } else {
        event_base_dispatch(d.base);
        rc = d.rc;
    }
    daemon_fini(&d);
    return rc ? 1 : 0;
}
