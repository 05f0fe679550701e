/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The paths of the standalone daemon (docs/standalone.md has the fields), see standalone.h: who may
 * do what, from a request to claims, from claims to an answer.
 */
#include "daemon/standalone/standalone.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "daemon/cdi/cdi.h"
#include "daemon/findings.h"
#include "daemon/prepare/prepare.h"
#include "daemon/standalone/make.h"
#include "daemon/standalone/want.h"
#include "daemon/state/claim_spec.h"
#include "daemon/yaml.h"

#define CLAIMS_PATH "/v1/standalone/claims"
#define CLAIM_PATH CLAIMS_PATH "/"
#define RUNS_PATH "/v1/standalone/runs"
#define NAMES_PATH "/v1/standalone/names"

/* ---- answers ----------------------------------------------------------------------------------
 */

static json_t *devices_json(const struct alq_config *cfg, const struct alq_claim_spec *spec)
{
    json_t *devices = json_array();
    for (uint32_t i = 0; spec && i < spec->share_count; i++) {
        const struct alq_share_spec *share = &spec->shares[i];
        char cdi[ALQ_CDI_ID_BYTES];
        alq_cdi_id(cfg, share->share_id, cdi);
        json_array_append_new(devices,
                              json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:o, s:I, s:i}", "request",
                                        share->request, "device", share->device, "gpu",
                                        share->gpu_uuid, "minor", (int)share->gpu_minor, "share",
                                        share->share_id, "cdi", cdi, "directory",
                                        json_sprintf("%s/shares/%s", cfg->run_dir, share->share_id),
                                        "memoryBytes", (json_int_t)alq_share_memory_in_force(share),
                                        "cores", (int)alq_share_cores_in_force(share)));
    }
    return devices;
}

static json_t *claim_json(const struct alq_standalone *s, const struct alq_local *local,
                          const struct alq_claim_spec *spec)
{
    json_t *claim = json_pack("{s:s, s:s, s:I, s:b, s:o}", "name", local->id.name, "uid",
                              local->id.uid, "owner", (json_int_t)local->owner, "prepared",
                              local->is_prepared, "devices", devices_json(s->parts.cfg, spec));
    if (claim && local->process.pid)
        json_object_set_new(claim, "process", json_integer(local->process.pid));
    return claim;
}

struct listing {
    const struct alq_standalone *of;
    json_t *list;
    const char *only; /* uid; NULL: all */
    json_t *seen;     /* object: uids */
};

static void list_promised(void *arg, const struct alq_claim_spec *spec)
{
    struct listing *l = arg;
    const struct alq_local *local = alq_locals_by_uid(&l->of->locals, spec->uid);
    if (!local || (l->only && strcmp(l->only, spec->uid) != 0))
        return;
    json_array_append_new(l->list, claim_json(l->of, local, spec));
    json_object_set_new(l->seen, spec->uid, json_true());
}

/* First what is promised, then what could not be prepared yet. */
static json_t *list_claims(const struct alq_standalone *s, const char *only)
{
    alq_auto_json json_t *seen = json_object();
    struct listing l = {.of = s, .list = json_array(), .only = only, .seen = seen};
    const struct alq_local *local;
    if (s->prepare)
        alq_prepare_each(s->prepare, list_promised, &l);
    TAILQ_FOREACH(local, &s->locals.all, link)
    if (!json_object_get(seen, local->id.uid) && (!only || !strcmp(only, local->id.uid)))
        json_array_append_new(l.list, claim_json(s, local, NULL));
    return l.list;
}

/* ---- claims of files --------------------------------------------------------------------------
 */

/* A request with several documents, one after the other. */
struct batch {
    struct alq_standalone *of;
    struct alq_http_call *call;
    struct alq_http_peer peer;
    json_t *documents, *classes, *results;
    size_t at;      /* the next document */
    int is_running; /* batch_run is in the stack */
    int is_waiting; /* for on_made */
};

static void batch_run(struct batch *b);

/* About the last document. */
static void tell(struct batch *b, const char *outcome, const char *why)
{
    json_t *result = json_array_get(b->results, b->at - 1);
    json_object_set_new(result, "result", json_string(outcome));
    if (why)
        json_object_set_new(result, !strcmp(outcome, "failed") ? "error" : "note",
                            json_string(why));
}

static void on_made(void *arg, struct alq_local *local, const struct alq_claim_spec *spec,
                    const struct alq_err *err)
{
    struct batch *b = arg;
    tell(b, err ? "failed" : "created", err ? err->text : NULL);
    if (!err)
        json_object_set_new(json_array_get(b->results, b->at - 1), "claim",
                            claim_json(b->of, local, spec));
    b->is_waiting = 0;
    if (!b->is_running)
        batch_run(b);
}

static int is_same_spec(const struct alq_local *local, const json_t *document)
{
    return json_equal(json_object_get(local->object, "spec"), json_object_get(document, "spec"));
}

static int apply_claim(struct batch *b, json_t *document, struct alq_err *err)
{
    const char *name = NULL;
    char namespace_[64];
    int rc = alq_want_name(document, &name, err);
    if (rc)
        return rc;
    alq_local_namespace(b->peer.uid, namespace_, sizeof(namespace_));
    const struct alq_local *had = alq_locals_by_name(&b->of->locals, namespace_, name);
    if (had && !is_same_spec(had, document))
        return alq_err_set(err, ALQ_EEXIST,
                           "exists with another spec, which cannot be changed; delete it first, or "
                           "change its limits with aliquot set");
    if (had) {
        alq_auto_json json_t *list = list_claims(b->of, had->id.uid);
        json_object_set(json_array_get(b->results, b->at - 1), "claim", json_array_get(list, 0));
        tell(b, "unchanged", NULL);
        return 0;
    }
    const struct alq_make what = {.owner = b->peer.uid,
                                  .is_admin = b->peer.is_admin,
                                  .name = name,
                                  .document = document,
                                  .classes = b->classes,
                                  .process_fd = -1};
    b->is_waiting = 1;
    alq_make(b->of, &what, on_made, b);
    return 0;
}

static void apply_next(struct batch *b)
{
    json_t *document = json_array_get(b->documents, b->at++);
    enum alq_want kind = ALQ_WANT_NOTHING;
    const char *why = NULL, *name = alq_json_str(document, "metadata.name"),
               *kind_name = alq_json_str(document, "kind");
    struct alq_err err = ALQ_ERR_INIT;
    json_array_append_new(b->results, json_pack("{s:s, s:s}", "kind", kind_name ? kind_name : "",
                                                "name", name ? name : ""));
    int rc = alq_want_kind(document, &kind, &why, &err);
    if (!rc && kind == ALQ_WANT_CLAIM)
        rc = apply_claim(b, document, &err);
    else if (!rc)
        tell(b, kind == ALQ_WANT_CLASS ? "used" : "left out", why);
    if (rc)
        tell(b, "failed", err.text);
}

static void batch_run(struct batch *b)
{
    b->is_running = 1;
    while (!b->is_waiting && b->at < json_array_size(b->documents))
        apply_next(b);
    b->is_running = 0;
    if (b->is_waiting)
        return;
    alq_admin_answer(b->call, 200, json_pack("{s:O}", "results", b->results));
    json_decref(b->documents);
    json_decref(b->classes);
    json_decref(b->results);
    free(b);
}

/* Classes count for all claims of the request, wherever they stand. */
static json_t *classes_of(const json_t *documents)
{
    json_t *classes = json_array(), *document;
    size_t i;
    json_array_foreach (documents, i, document) {
        const char *kind = alq_json_str(document, "kind");
        if (kind && !strcmp(kind, "DeviceClass"))
            json_array_append(classes, document);
    }
    return classes;
}

static void on_apply(struct alq_standalone *s, struct alq_http_call *call,
                     const struct alq_http_request *request)
{
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_json json_t *documents = NULL;
    if (alq_yaml_parse_all(request->body, request->body_bytes, "the file", &documents, &err)) {
        alq_http_fail(call, 400, "%s", err.text);
        return;
    }
    if (!json_array_size(documents)) {
        alq_http_fail(call, 400, "the file holds no object");
        return;
    }
    struct batch *b = calloc(1, sizeof(*b));
    if (!b) {
        alq_http_fail(call, 500, "out of memory");
        return;
    }
    *b = (struct batch){.of = s,
                        .call = call,
                        .peer = *request->peer,
                        .classes = classes_of(documents),
                        .documents = alq_steal(&documents),
                        .results = json_array()};
    batch_run(b);
}

/* Which claims a file holds: nothing is done with them. */
static void on_names(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    (void)arg;
    struct alq_err err = ALQ_ERR_INIT;
    alq_auto_json json_t *documents = NULL;
    if (alq_yaml_parse_all(request->body, request->body_bytes, "the file", &documents, &err)) {
        alq_http_fail(call, 400, "%s", err.text);
        return;
    }
    json_t *names = json_array(), *document;
    size_t i;
    json_array_foreach (documents, i, document) {
        const char *kind = alq_json_str(document, "kind"),
                   *name = alq_json_str(document, "metadata.name");
        if (kind && name && !strcmp(kind, "ResourceClaim"))
            json_array_append_new(names, json_string(name));
    }
    alq_admin_answer(call, 200, json_pack("{s:o}", "names", names));
}

static void on_claims(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    struct alq_standalone *s = arg;
    if (strcmp(request->method, "GET") != 0)
        on_apply(s, call, request);
    else
        alq_admin_answer(call, 200, json_pack("{s:o}", "claims", list_claims(s, NULL)));
}

/* ---- one claim --------------------------------------------------------------------------------
 */

static void on_deleted(void *arg, struct alq_local *local, const struct alq_claim_spec *spec,
                       const struct alq_err *err)
{
    (void)local;
    (void)spec;
    if (err)
        alq_http_fail(arg, alq_admin_status(err->code), "%s", err->text);
    else
        alq_admin_answer(arg, 200, json_object());
}

static void on_claim(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    struct alq_standalone *s = arg;
    const char *uid = request->path + strlen(CLAIM_PATH);
    struct alq_local *local = alq_locals_by_uid(&s->locals, uid);
    if (!local) {
        alq_http_fail(call, 404, "there is no claim %.80s", uid);
    } else if (!strcmp(request->method, "GET")) {
        alq_auto_json json_t *list = list_claims(s, uid);
        json_t *claim = json_array_get(list, 0);
        json_object_set(claim, "object", local->object);
        alq_admin_answer(call, 200, json_incref(claim));
    } else if (!request->peer->is_admin && request->peer->uid != local->owner) {
        alq_http_fail(call, 403, "claim %.80s is user %u's; only that user and root may delete it",
                      local->id.name, (unsigned)local->owner);
    } else if (local->process.pid && !local->is_over && local->process.pid != request->peer->pid) {
        alq_http_fail(call, 409, "claim %.80s is aliquot run's and ends with it (process %d)",
                      local->id.name, (int)local->process.pid);
    } else if (!s->prepare) {
        alq_http_fail(call, 503, "aliquotd is starting; try again");
    } else {
        alq_life_end(s, local, on_deleted, call);
    }
}

/* ---- runs -------------------------------------------------------------------------------------
 */

struct run {
    struct alq_standalone *of;
    struct alq_http_call *call;
};

static int has_minor(const struct alq_claim_spec *spec, uint32_t minor)
{
    for (uint32_t i = 0; i < spec->share_count; i++)
        if (spec->shares[i].gpu_minor == minor)
            return 1;
    return 0;
}

/* The GPUs that the run has no share of. */
static json_t *other_minors(const struct alq_standalone *s, const struct alq_claim_spec *spec)
{
    struct alq_err err = ALQ_ERR_INIT;
    const struct alq_gpu_list *gpus = alq_prepare_gpus(s->prepare, &err);
    json_t *minors = json_array();
    for (size_t i = 0; i < gpus->count; i++)
        if (!has_minor(spec, gpus->gpus[i].minor))
            json_array_append_new(minors, json_integer(gpus->gpus[i].minor));
    return minors;
}

static void on_run_made(void *arg, struct alq_local *local, const struct alq_claim_spec *spec,
                        const struct alq_err *err)
{
    struct run run = *(struct run *)arg;
    free(arg);
    if (err) {
        alq_http_fail(run.call, alq_admin_status(err->code), "%s", err->text);
        return;
    }
    json_t *claim = claim_json(run.of, local, spec);
    json_object_set_new(claim, "otherMinors", other_minors(run.of, spec));
    alq_admin_answer(run.call, 200, claim);
}

static int begin_run(struct alq_standalone *s, struct alq_http_call *call,
                     const struct alq_http_request *request, struct alq_err *err)
{
    alq_auto_json json_t *body = NULL, *document = NULL;
    char name[48];
    struct alq_make what = {
        .owner = request->peer->uid, .is_admin = request->peer->is_admin, .name = name};
    const struct alq_gpu_list *gpus = alq_make_gpus(s, err);
    if (!gpus)
        return err->code;
    int rc = alq_json_parse(request->body, request->body_bytes, "the request", &body, err);
    if (!rc)
        rc = alq_want_run(body, s->parts.cfg, gpus, &document, err);
    struct run *run = rc ? NULL : malloc(sizeof(*run));
    if (!rc && !run)
        rc = alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (!rc)
        rc = alq_process_of_peer(request->peer->fd, request->peer->pid, &what.process,
                                 &what.process_fd, err);
    if (rc) {
        free(run);
        return rc;
    }
    *run = (struct run){s, call};
    /* A number alone is used again, perhaps while what an earlier one has left still runs. */
    snprintf(name, sizeof(name), "run-%d-%llx", (int)what.process.pid,
             (unsigned long long)what.process.start_ticks);
    what.document = document;
    alq_make(s, &what, on_run_made, run);
    return 0;
}

static void on_runs(void *arg, struct alq_http_call *call, const struct alq_http_request *request)
{
    struct alq_err err = ALQ_ERR_INIT;
    if (begin_run(arg, call, request, &err))
        alq_http_fail(call, alq_admin_status(err.code), "%s", err.text);
}

/* ---- life -------------------------------------------------------------------------------------
 */

/* Two daemons would give the same GPU away twice, each by its own records. */
static int check_alone(const struct alq_config *cfg, struct alq_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    alq_auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (strlen(cfg->admin_socket) >= sizeof(addr.sun_path))
        return alq_err_set(err, ALQ_EINVAL, "--run-dir: %s is too long for the path of a socket",
                           cfg->admin_socket);
    memcpy(addr.sun_path, cfg->admin_socket, strlen(cfg->admin_socket) + 1);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&addr, sizeof(addr)))
        return 0;
    return alq_err_set(err, ALQ_EBUSY,
                       "another aliquotd serves %s; a machine has one, and --standalone is for "
                       "machines that are no nodes of a cluster",
                       cfg->admin_socket);
}

static void tell_files(void *arg, struct alq_findings *findings)
{
    const struct alq_standalone *s = arg;
    if (s->locals.unread)
        alq_findings_add(findings, "claims.files", ALQ_FINDING_ERROR,
                         "aliquotd's log names them: set them right or remove them, and restart it",
                         "%u of what is in %s/made cannot be read as claims; until then no share "
                         "without a claim is taken back",
                         s->locals.unread, s->parts.cfg->state_dir);
    else
        alq_findings_add(findings, "claims.files", ALQ_FINDING_OK, NULL,
                         "the files of all claims were read");
}

struct alq_standalone *alq_standalone_new(const struct alq_standalone_parts *parts,
                                          struct alq_err *err)
{
    struct alq_http *http = alq_admin_http(parts->admin);
    struct alq_standalone *s = calloc(1, sizeof(*s));
    if (!s) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    s->parts = *parts;
    alq_locals_init(&s->locals, parts->cfg, parts->base);
    alq_placer_init(&s->placer, &s->locals, parts->work, alq_make_gpus, s);
    int rc = check_alone(parts->cfg, err);
    if (!rc)
        rc = alq_locals_load(&s->locals, err);
    const unsigned where = ALQ_HTTP_ADMIN | ALQ_HTTP_OWN;
    if (!rc && (alq_http_handle(http, where, "GET POST", CLAIMS_PATH, on_claims, s) ||
                alq_http_handle(http, where, "GET DELETE", CLAIM_PATH, on_claim, s) ||
                alq_http_handle(http, where, "POST", NAMES_PATH, on_names, s) ||
                alq_http_handle(http, where, "POST", RUNS_PATH, on_runs, s) ||
                alq_findings_register(alq_admin_findings(parts->admin), tell_files, s)))
        rc = alq_err_set(err, ALQ_ENOMEM, "out of memory");
    if (!rc)
        return s;
    alq_standalone_free(s);
    return NULL;
}

void alq_standalone_free(struct alq_standalone *s)
{
    if (!s)
        return;
    alq_findings_unregister(alq_admin_findings(s->parts.admin), s);
    alq_locals_fini(&s->locals);
    free(s);
}

const struct alq_claim_source *alq_standalone_source(struct alq_standalone *s)
{
    return &s->locals.source;
}

void alq_standalone_open(struct alq_standalone *s, struct alq_prepare *prepare)
{
    s->prepare = prepare;
    for (struct alq_local *local = TAILQ_FIRST(&s->locals.all), *next; local; local = next) {
        next = TAILQ_NEXT(local, link);
        alq_life_resume(s, local);
    }
}

void alq_standalone_close(struct alq_standalone *s)
{
    if (s)
        s->prepare = NULL;
}
