/* SPDX-License-Identifier: Apache-2.0 */
/* The last claims, see claim_log.h. Loop thread only. */
#include "daemon/claim_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/names.h"
#include "base/utf8.h"
#include "daemon/prepare/claims.h"

struct entry {
    TAILQ_ENTRY(entry) link;
    const char *state; /* static */
    unsigned refusals; /* since it was prepared last */
    time_t when;       /* of the last change of state, or refusal */
    int error_code;    /* of the last refusal */
    char *error;       /* owned; its text; NULL: there was none */
    char *pods;        /* owned; names, each with its NUL, and another; NULL: none are known */
    const char *namespace_, *name; /* behind uid */
    char uid[];
};

struct alq_claim_log {
    TAILQ_HEAD(entries_head, entry) entries; /* the newest first */
    unsigned count;
};

struct alq_claim_log *alq_claim_log_new(struct alq_err *err)
{
    struct alq_claim_log *log = calloc(1, sizeof(*log));
    if (log)
        TAILQ_INIT(&log->entries);
    else
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
    return log;
}

static void drop(struct alq_claim_log *log, struct entry *e)
{
    TAILQ_REMOVE(&log->entries, e, link);
    log->count--;
    free(e->pods);
    free(e->error);
    free(e);
}

void alq_claim_log_free(struct alq_claim_log *log)
{
    for (struct entry *e; log && (e = TAILQ_FIRST(&log->entries));)
        drop(log, e);
    free(log);
}

static struct entry *find(const struct alq_claim_log *log, const char *uid)
{
    struct entry *e;
    TAILQ_FOREACH(e, &log->entries, link)
    if (!strcmp(e->uid, uid))
        return e;
    return NULL;
}

/* All its text in one piece: 256 of them are kept. */
static struct entry *new_entry(const struct alq_claim_id *id)
{
    const size_t uid = strlen(id->uid) + 1, namespace_ = strlen(id->namespace_) + 1,
                 name = strlen(id->name) + 1;
    struct entry *e = calloc(1, sizeof(*e) + uid + namespace_ + name);
    if (!e)
        return NULL;
    memcpy(e->uid, id->uid, uid);
    memcpy(e->uid + uid, id->namespace_, namespace_);
    memcpy(e->uid + uid + namespace_, id->name, name);
    e->namespace_ = e->uid + uid;
    e->name = e->namespace_ + namespace_;
    return e;
}

static struct entry *touch(struct alq_claim_log *log, const struct alq_claim_id *id)
{
    struct entry *e = find(log, id->uid);
    if (e) {
        TAILQ_REMOVE(&log->entries, e, link);
    } else {
        if (log->count == ALQ_CLAIM_LOG_MAX)
            drop(log, TAILQ_LAST(&log->entries, entries_head));
        e = new_entry(id);
        if (!e)
            return NULL;
        log->count++;
    }
    TAILQ_INSERT_HEAD(&log->entries, e, link);
    e->when = time(NULL);
    return e;
}

/* The names of the pods that a claim is reserved for; the caller's. NULL: no memory. */
static char *pods_of(const json_t *object)
{
    const json_t *users = alq_json_at(object, "status.reservedFor"), *user;
    size_t i, bytes = 0;
    char *pods = strdup("");
    json_array_foreach (users, i, user) {
        const char *resource = alq_json_str(user, "resource"), *name = alq_json_str(user, "name");
        if (!pods || !resource || !name || !*name || strcmp(resource, "pods") != 0)
            continue;
        char *longer = realloc(pods, bytes + strlen(name) + 2);
        if (!longer)
            break;
        pods = longer;
        bytes = (size_t)(stpcpy(pods + bytes, name) + 1 - pods);
        pods[bytes] = '\0';
    }
    return pods;
}

static json_t *pods_json(const char *pods)
{
    json_t *list = json_array();
    for (; pods && *pods; pods += strlen(pods) + 1)
        json_array_append_new(list, json_string(pods));
    return list;
}

static void take_pods(struct entry *e, const json_t *object)
{
    if (!object)
        return;
    free(e->pods);
    e->pods = pods_of(object);
}

static void take_error(struct entry *e, const struct alq_err *err)
{
    free(e->error);
    e->error = NULL;
    e->error_code = err ? err->code : 0;
    if (!err)
        return;
    const char *text = strstr(err->text, ": "); /* what stands before it names the claim */
    e->error = strdup(text ? text + 2 : err->text);
    if (e->error)
        alq_utf8_clean(e->error);
}

void alq_claim_log_prepared(struct alq_claim_log *log, const struct alq_claim_spec *claim,
                            const json_t *object)
{
    struct alq_claim_id id = {0};
    alq_claim_id_of(claim, &id);
    struct entry *e = touch(log, &id);
    if (!e)
        return;
    take_pods(e, object);
    e->state = "prepared";
    e->refusals = 0;
    take_error(e, NULL);
}

void alq_claim_log_refused(struct alq_claim_log *log, const struct alq_claim_id *id,
                           const json_t *object, const struct alq_err *err)
{
    struct entry *e = touch(log, id);
    if (!e)
        return;
    take_pods(e, object);
    e->state = "refused";
    e->refusals++;
    take_error(e, err);
}

void alq_claim_log_unprepared(struct alq_claim_log *log, const char *uid)
{
    struct entry *e = find(log, uid);
    if (!e)
        return;
    e->state = "unprepared";
    e->when = time(NULL);
}

static json_t *entry_json(const struct entry *e)
{
    char when[ALQ_TIME_TEXT_BYTES];
    return json_pack("{s:s, s:s, s:s, s:o*, s:s, s:s, s:i, s:s*, s:s*}", "namespace", e->namespace_,
                     "name", e->name, "uid", e->uid, "pods", e->pods ? pods_json(e->pods) : NULL,
                     "state", e->state, "time", alq_time_format(e->when, when), "refusals",
                     (int)e->refusals, "reason", e->error_code ? alq_err_name(e->error_code) : NULL,
                     "error", e->error);
}

json_t *alq_claim_log_json(const struct alq_claim_log *log)
{
    json_t *list = json_array();
    const struct entry *e;
    TAILQ_FOREACH(e, &log->entries, link)
    json_array_append_new(list, entry_json(e));
    return list;
}

void alq_claim_log_add_waiting(json_t *claims, const struct alq_claim_id *id, const json_t *object,
                               const char *waits_for, int64_t waited_ns)
{
    size_t i;
    json_t *claim, *entry = NULL;
    json_array_foreach (claims, i, claim)
        if (!strcmp(alq_json_str(claim, "uid"), id->uid))
            entry = claim;
    if (!entry) {
        entry = json_pack("{s:s, s:s, s:s, s:i}", "namespace", id->namespace_, "name", id->name,
                          "uid", id->uid, "refusals", 0);
        json_array_insert_new(claims, 0, entry);
    }
    if (object) {
        alq_auto_free char *pods = pods_of(object);
        json_object_set_new(entry, "pods", pods_json(pods));
    }
    json_object_set_new(entry, "state", json_string("waiting"));
    json_object_set_new(entry, "waitsFor", json_string(waits_for));
    json_object_set_new(entry, "waitedSeconds", json_integer(waited_ns / 1000000000));
}
