/* SPDX-License-Identifier: Apache-2.0 */
/* The table of local claims and their files, see claims.h. */
#include "daemon/standalone/claims.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/state/claim_spec.h"
#include "daemon/state/store.h"

#define ALQ_LOG_MODULE "standalone"

#define FILE_MAX_BYTES (1u << 20)
#define FILE_VERSION 1

/* ---- table ------------------------------------------------------------------------------------
 */

struct alq_local *alq_locals_add(struct alq_locals *locals, const struct alq_claim_id *id,
                                 uid_t owner, json_t *object)
{
    struct alq_local *local = calloc(1, sizeof(*local));
    if (!local) {
        json_decref(object);
        return NULL;
    }
    local->id = *id;
    local->owner = owner;
    local->object = object;
    TAILQ_INSERT_TAIL(&locals->all, local, link);
    return local;
}

void alq_locals_drop(struct alq_locals *locals, struct alq_local *local)
{
    TAILQ_REMOVE(&locals->all, local, link);
    if (local->exit) {
        close(event_get_fd(local->exit));
        event_free(local->exit);
    }
    if (local->again)
        event_free(local->again);
    json_decref(local->object);
    free(local);
}

struct alq_local *alq_locals_by_uid(const struct alq_locals *locals, const char *uid)
{
    struct alq_local *local;
    TAILQ_FOREACH(local, &locals->all, link)
    if (!strcmp(local->id.uid, uid))
        return local;
    return NULL;
}

struct alq_local *alq_locals_by_name(const struct alq_locals *locals, const char *namespace_,
                                     const char *name)
{
    struct alq_local *local;
    TAILQ_FOREACH(local, &locals->all, link)
    if (!strcmp(local->id.namespace_, namespace_) && !strcmp(local->id.name, name))
        return local;
    return NULL;
}

unsigned alq_locals_count_of(const struct alq_locals *locals, uid_t owner)
{
    const struct alq_local *local;
    unsigned n = 0;
    TAILQ_FOREACH(local, &locals->all, link)
    n += local->owner == owner;
    return n;
}

void alq_local_namespace(uid_t owner, char *text, size_t size)
{
    snprintf(text, size, "uid-%u", (unsigned)owner);
}

/* ---- source -----------------------------------------------------------------------------------
 */

/* The answer comes from the loop, as an API server's would. */
struct lookup {
    struct alq_locals *locals;
    struct event *event;
    struct alq_claim_id id;
    void (*cb)(void *cb_arg, int status, json_t *body, const struct alq_err *err);
    void *cb_arg;
};

static void lookup_free(void *call)
{
    struct lookup *lookup = call;
    if (lookup->event)
        event_free(lookup->event);
    free(lookup);
}

static void on_lookup(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct lookup lookup = *(struct lookup *)arg;
    struct alq_err err = ALQ_ERR_INIT;
    const struct alq_local *local =
        alq_locals_by_name(lookup.locals, lookup.id.namespace_, lookup.id.name);
    alq_auto_json json_t *body = local ? json_incref(local->object)
                                       : json_pack("{s:s, s:{s:s}}", "reason", "NotFound",
                                                   "details", "name", lookup.id.name);
    lookup_free(arg);
    int status = local ? 200 : lookup.locals->unread ? 503 : 404;
    if (status == 404)
        alq_err_set(&err, ALQ_ENOENT, "there is no such claim");
    else if (!local)
        alq_err_set(&err, ALQ_EAGAIN, "a file of a claim cannot be read");
    lookup.cb(lookup.cb_arg, status, body, local ? NULL : &err);
}

static void *look_up(void *arg, const char *namespace_, const char *name, long timeout_ms,
                     void (*cb)(void *cb_arg, int status, json_t *body, const struct alq_err *err),
                     void *cb_arg, struct alq_err *err)
{
    (void)timeout_ms;
    struct alq_locals *locals = arg;
    struct lookup *lookup = calloc(1, sizeof(*lookup));
    if (lookup)
        lookup->event = event_new(locals->base, -1, 0, on_lookup, lookup);
    if (!lookup || !lookup->event) {
        free(lookup);
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    lookup->locals = locals;
    lookup->cb = cb;
    lookup->cb_arg = cb_arg;
    snprintf(lookup->id.namespace_, sizeof(lookup->id.namespace_), "%s", namespace_);
    snprintf(lookup->id.name, sizeof(lookup->id.name), "%s", name);
    event_active(lookup->event, EV_TIMEOUT, 0);
    return lookup;
}

void alq_locals_init(struct alq_locals *locals, const struct alq_config *cfg,
                     struct event_base *base)
{
    *locals =
        (struct alq_locals){.cfg = cfg, .base = base, .source = {look_up, lookup_free, locals}};
    TAILQ_INIT(&locals->all);
}

void alq_locals_fini(struct alq_locals *locals)
{
    for (struct alq_local *local; (local = TAILQ_FIRST(&locals->all));)
        alq_locals_drop(locals, local);
}

/* ---- files ------------------------------------------------------------------------------------
 */

static char *path_of(const struct alq_config *cfg, const char *uid)
{
    return alq_str_printf("%s/made/%s.json", cfg->state_dir, uid);
}

char *alq_local_text(const struct alq_local *local)
{
    char boot_id[ALQ_BOOT_ID_BYTES] = "";
    alq_auto_json json_t *file = json_pack("{s:i, s:I, s:O}", "version", FILE_VERSION, "owner",
                                           (json_int_t)local->owner, "claim", local->object);
    if (!file)
        return NULL;
    if (local->process.pid) {
        alq_boot_id_read(boot_id, NULL);
        if (json_object_set_new(file, "process",
                                json_pack("{s:i, s:I, s:s}", "pid", (int)local->process.pid,
                                          "start", (json_int_t)local->process.start_ticks, "boot",
                                          boot_id)))
            return NULL;
    }
    return alq_json_dump(file);
}

int alq_local_write(const struct alq_config *cfg, const char *uid, const char *text,
                    struct alq_err *err)
{
    alq_auto_free char *path = path_of(cfg, uid);
    alq_auto_free char *dir = alq_str_printf("%s/made", cfg->state_dir);
    if (!path || !dir)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_file_mkdirs(dir, 0700, err);
    return rc ? rc : alq_file_write_atomic(path, text, strlen(text), 0600, 1, err);
}

int alq_local_remove(const struct alq_config *cfg, const char *uid, struct alq_err *err)
{
    alq_auto_free char *path = path_of(cfg, uid);
    return path ? alq_file_remove(path, 1, err) : alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

/* A process of another boot has ended: its start is 0, which no process has. */
static void read_process(const json_t *file, struct alq_process *process)
{
    char boot_id[ALQ_BOOT_ID_BYTES] = "";
    const char *boot = alq_json_str(file, "process.boot");
    process->pid = (pid_t)json_integer_value(alq_json_at(file, "process.pid"));
    alq_boot_id_read(boot_id, NULL);
    if (boot && !strcmp(boot, boot_id))
        process->start_ticks = (uint64_t)json_integer_value(alq_json_at(file, "process.start"));
}

static int load_one(struct alq_locals *locals, const char *path, struct alq_err *err)
{
    alq_auto_free char *text = NULL;
    alq_auto_json json_t *file = NULL;
    size_t len = 0;
    const char *uid = NULL, *name = NULL, *namespace_ = NULL;
    int rc = alq_file_read(path, FILE_MAX_BYTES, &text, &len, err);
    if (!rc)
        rc = alq_json_parse(text, len, path, &file, err);
    if (!rc)
        rc = alq_json_need_str(file, "claim.metadata.uid", &uid, err);
    if (!rc)
        rc = alq_json_need_str(file, "claim.metadata.name", &name, err);
    if (!rc)
        rc = alq_json_need_str(file, "claim.metadata.namespace", &namespace_, err);
    if (rc)
        return rc;
    if (json_integer_value(json_object_get(file, "version")) != FILE_VERSION)
        return alq_err_set(err, ALQ_EPROTO, "a file of another version");
    struct alq_claim_id id = {0};
    if (!alq_claim_uid_is_valid(uid) || strlen(name) >= sizeof(id.name) ||
        strlen(namespace_) >= sizeof(id.namespace_) || alq_locals_by_uid(locals, uid))
        return alq_err_set(err, ALQ_EPROTO, "no claim of ours");
    snprintf(id.uid, sizeof(id.uid), "%s", uid);
    snprintf(id.name, sizeof(id.name), "%s", name);
    snprintf(id.namespace_, sizeof(id.namespace_), "%s", namespace_);
    struct alq_local *local =
        alq_locals_add(locals, &id, (uid_t)json_integer_value(json_object_get(file, "owner")),
                       json_incref(json_object_get(file, "claim")));
    if (!local)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    read_process(file, &local->process);
    return 0;
}

int alq_locals_load(struct alq_locals *locals, struct alq_err *err)
{
    alq_auto_free char *path = alq_str_printf("%s/made", locals->cfg->state_dir);
    alq_auto_closedir DIR *dir = path ? opendir(path) : NULL;
    if (!dir)
        return errno == ENOENT ? 0 : alq_err_errno(err, errno, "%s", path ? path : "made");
    for (struct dirent *entry; (entry = readdir(dir));) {
        struct alq_err why = ALQ_ERR_INIT;
        alq_auto_free char *file = alq_str_printf("%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.')
            continue;
        if (file && !load_one(locals, file, &why))
            continue;
        locals->unread++;
        alq_error(ALQ_LOG_KV({"file", entry->d_name}), "this claim is not served: %s", why.text);
    }
    return 0;
}
