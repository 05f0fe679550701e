/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aliquotd: puts the parts together and runs the loop. Order of start: what can be refused
 * (settings, directories, locks), records, then the sockets, the registration socket last: neither
 * NVML nor the API server is waited for. Order of end: the registration socket goes first, open
 * calls are answered, then everything else.
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
#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/grpc/server.h"
#include "daemon/kube/kube.h"
#include "daemon/kube/slices.h"
#include "daemon/kubelet/dra.h"
#include "daemon/kubelet/health.h"
#include "daemon/kubelet/registration.h"
#include "daemon/nvml/nvml.h"
#include "daemon/prepare/prepare.h"
#include "daemon/state/names.h"
#include "daemon/work.h"

#define ALQ_LOG_MODULE "main"

#define WORKERS 4
#define DRAIN_MS 5000
#define DRAIN_STEP_MS 20

struct daemon {
    struct alq_config cfg;
    char boot_id[ALQ_BOOT_ID_BYTES];
    int plugin_lock;
    struct event_base *base;
    struct event *signals[2];
    struct event *drain;
    int drain_left_ms;
    struct alq_store *store;
    struct alq_files *files;
    struct alq_names *names;
    struct alq_work *work;
    struct alq_kube *kube;
    struct alq_slices *slices;
    struct alq_prepare *prepare;
    struct alq_nvml *nvml;
    struct alq_dra *dra;
    struct alq_health *health;
    struct alq_grpc_method methods[8]; /* of both */
    struct alq_registration *registration;
    struct alq_grpc_server *dra_server;
    struct alq_grpc_server *registration_server;
};

/* ---- between the parts ------------------------------------------------------------------------
 */

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

static void on_devices(void *arg, const struct alq_gpu_list *list, const struct alq_err *err)
{
    struct daemon *d = arg;
    struct alq_err why = ALQ_ERR_INIT;
    struct alq_gpu_list named = {.count = list->count};
    named.gpus = calloc(list->count + 1, sizeof(*named.gpus));
    if (!named.gpus) {
        alq_error(NULL, "out of memory for %zu GPUs", list->count);
        return;
    }
    if (list->count)
        memcpy(named.gpus, list->gpus, list->count * sizeof(*named.gpus));
    if (alq_names_assign(d->names, &named, &why))
        alq_error(NULL, "names of devices are not saved: %s", why.text);
    if (err)
        alq_warn(NULL, "no GPUs are published: %s", err->text);
    else
        alq_info(NULL, "%zu GPUs", named.count);
    for (size_t i = 0; i < named.count; i++)
        alq_info(ALQ_LOG_KV({"device", named.gpus[i].name}, {"uuid", named.gpus[i].uuid},
                            {"product", named.gpus[i].product_name}),
                 "GPU");
    alq_prepare_set_gpus(d->prepare, &named, err);
    alq_health_set_gpus(d->health, &named, err);
    memset(&why, 0, sizeof(why));
    if (alq_slices_set_devices(d->slices, &named, &why))
        alq_error(NULL, "publishing: %s", why.text);
    free(named.gpus);
}

struct adoption {
    struct daemon *daemon;
    struct alq_err err;
};

static void on_record(void *arg, struct alq_record *record)
{
    struct adoption *a = arg;
    struct alq_err err = ALQ_ERR_INIT;
    for (uint32_t i = 0; i < record->claim.share_count; i++) {
        const struct alq_share_spec *share = &record->claim.shares[i];
        alq_names_learn(a->daemon->names, share->gpu_uuid, share->device);
        alq_health_know(a->daemon->health, share->gpu_uuid, share->device);
    }
    if (!alq_prepare_adopt(a->daemon->prepare, record, &err))
        return;
    alq_err_wrap(&err, "claim %s", record->claim.uid);
    a->err = err;
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
                    alq_grpc_server_open_calls(d->registration_server);
    if (open && d->drain_left_ms > 0) {
        event_add(d->drain, &tv);
        return;
    }
    if (open)
        alq_warn(NULL, "%u calls are not answered", open);
    event_base_loopbreak(d->base);
}

static void on_signal(evutil_socket_t signal_number, short what, void *arg)
{
    (void)what;
    struct daemon *d = arg;
    if (d->drain_left_ms) {
        event_base_loopbreak(d->base);
        return;
    }
    alq_info(NULL, "%s: ending", signal_number == SIGINT ? "SIGINT" : "SIGTERM");
    d->drain_left_ms = DRAIN_MS;
    alq_grpc_server_shutdown(d->registration_server);
    alq_health_end(d->health);
    alq_grpc_server_shutdown(d->dra_server);
    event_active(d->drain, EV_TIMEOUT, 0);
}

static void daemon_fini(struct daemon *d)
{
    alq_grpc_server_free(d->registration_server);
    alq_nvml_stop(d->nvml);
    alq_work_free(d->work); /* its jobs end in operations and calls, so before both */
    alq_prepare_free(d->prepare);
    alq_grpc_server_free(d->dra_server);
    alq_registration_free(d->registration);
    alq_dra_free(d->dra);
    alq_health_free(d->health);
    alq_slices_free(d->slices);
    alq_kube_free(d->kube);
    alq_names_close(d->names);
    alq_files_close(d->files);
    alq_store_close(d->store);
    for (int i = 0; i < 2; i++)
        if (d->signals[i])
            event_free(d->signals[i]);
    if (d->drain)
        event_free(d->drain);
    if (d->base)
        event_base_free(d->base);
    if (d->plugin_lock >= 0)
        close(d->plugin_lock);
    alq_config_free(&d->cfg);
}

/* ---- start ------------------------------------------------------------------------------------
 */

static int open_loop(struct daemon *d, struct alq_err *err)
{
    static const int numbers[] = {SIGTERM, SIGINT};
    struct event_config *config = event_config_new();
    if (config) {
        event_config_set_flag(config, EVENT_BASE_FLAG_PRECISE_TIMER);
        d->base = event_base_new_with_config(config);
        event_config_free(config);
    }
    if (d->base)
        d->drain = evtimer_new(d->base, on_drain, d);
    for (int i = 0; i < 2 && d->base; i++) {
        d->signals[i] = evsignal_new(d->base, numbers[i], on_signal, d);
        if (d->signals[i])
            event_add(d->signals[i], NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    if (!d->drain || !d->signals[0] || !d->signals[1])
        return alq_err_set(err, ALQ_ENOMEM, "event loop: out of memory");
    return 0;
}

/* Our directory below the kubelet's plugins, and that no other daemon has it. */
static int open_plugin_dir(struct daemon *d, struct alq_err *err)
{
    alq_auto_free char *dir =
        alq_str_printf("%s/%s", d->cfg.kubelet_plugins_dir, d->cfg.driver_name);
    alq_auto_free char *lock = alq_str_printf("%s/aliquotd.lock", dir);
    if (!dir || !lock)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_file_mkdirs(dir, 0750, err);
    if (rc)
        return alq_err_wrap(err, "--kubelet-plugins-dir");
    rc = alq_file_mkdirs(d->cfg.kubelet_registry_dir, 0755, err);
    if (rc)
        return alq_err_wrap(err, "--kubelet-registry-dir");
    return alq_lock_take(lock, dir, &d->plugin_lock, err);
}

static int open_state(struct daemon *d, struct alq_err *err)
{
    struct adoption adoption = {d, ALQ_ERR_INIT};
    const struct alq_claim_source source = {get_claim, cancel_claim, d->kube};
    const struct alq_clock clock = alq_clock_real(d->base);
    int rc = alq_boot_id_read(d->boot_id, err);
    if (!rc)
        rc = alq_store_open(d->cfg.state_dir, &d->store, err);
    if (rc)
        return alq_err_wrap(err, "--state-dir");
    rc = alq_files_open(&d->cfg, d->store, d->boot_id, &d->files, err);
    if (!rc)
        rc = alq_names_open(d->cfg.state_dir, &d->names, err);
    if (rc)
        return rc;
    d->work = alq_work_new(d->base, WORKERS, err);
    if (d->work)
        d->prepare = alq_prepare_new(&d->cfg, &clock, d->work, d->files, &source, d->boot_id, err);
    if (!d->prepare)
        return err->code;
    rc = alq_store_load(d->store, on_record, &adoption, err);
    if (rc < 0)
        return rc;
    if (adoption.err.code)
        *err = adoption.err;
    return adoption.err.code;
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

static int open_sockets(struct daemon *d, struct alq_err *err)
{
    const struct alq_config *cfg = &d->cfg;
    alq_auto_free char *dra_path =
        alq_str_printf("%s/%s/dra.sock", cfg->kubelet_plugins_dir, cfg->driver_name);
    alq_auto_free char *registration_path =
        alq_str_printf("%s/%s-reg.sock", cfg->kubelet_registry_dir, cfg->driver_name);
    if (!dra_path || !registration_path)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    d->dra = alq_dra_new(cfg, d->prepare, err);
    if (!d->dra)
        return err->code;
    d->registration = alq_registration_new(cfg->driver_name, dra_path, err);
    if (!d->registration)
        return err->code;
    join_methods(d);
    d->dra_server = alq_grpc_server_new(d->base, dra_path, d->methods, err);
    if (!d->dra_server)
        return err->code;
    d->registration_server = alq_grpc_server_new(d->base, registration_path,
                                                 alq_registration_methods(d->registration), err);
    return d->registration_server ? 0 : err->code;
}

static int daemon_init(struct daemon *d, struct alq_err *err)
{
    int rc = open_loop(d, err);
    if (!rc)
        rc = open_plugin_dir(d, err);
    if (rc)
        return rc;
    d->health = alq_health_new(d->base, d->cfg.node_name, err);
    if (!d->health)
        return err->code;
    d->kube = alq_kube_new(&d->cfg, d->base, err);
    if (!d->kube)
        return err->code;
    d->slices = alq_slices_new(&d->cfg, d->kube, d->base, err);
    if (!d->slices)
        return err->code;
    rc = open_state(d, err);
    if (rc)
        return rc;
    alq_prepare_start(d->prepare);
    rc = open_sockets(d, err);
    if (rc)
        return rc;
    d->nvml = alq_nvml_start(d->base, &d->cfg, on_devices, d, err);
    return d->nvml ? 0 : err->code;
}

int main(int argc, char **argv)
{
    struct alq_err err = ALQ_ERR_INIT;
    struct daemon d = {.plugin_lock = -1};
    enum alq_config_action action;
    /* Four workers need no arena each: resident memory is a figure. */
    mallopt(M_ARENA_MAX, 1);
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
    if (action != ALQ_CONFIG_RUN) {
        alq_config_free(&d.cfg);
        return 0;
    }
    alq_log_init(d.cfg.log_level, d.cfg.log_format, STDERR_FILENO);
    rc = daemon_init(&d, &err);
    if (rc) {
        alq_error(NULL, "cannot start: %s", err.text);
    } else {
        alq_info(ALQ_LOG_KV({"node", d.cfg.node_name}, {"driver", d.cfg.driver_name},
                            {"version", ALQ_VERSION}),
                 "ready");
        event_base_dispatch(d.base);
    }
    daemon_fini(&d);
    return rc ? 1 : 0;
}
