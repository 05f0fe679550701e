/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of GPUs, see faults.h. A fault that made a GPU unfit is over when its cause is (recovered)
 * and the GPU has been well for a hold since; a fault that comes back soon after makes the next
 * hold twice as long, so that a GPU on the brink does not come and go.
 */
#include "daemon/devices/faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/devices/xid.h"
#include "daemon/nvml/protocol.h"

#define HOLD_DOUBLINGS_MAX 6 /* of a minute: about an hour */
#define RELAPSE_HOLDS 10     /* a fault within so many holds after the last one is a relapse */
#define DEVICES_MAX (2 * ALQ_NVML_GPUS_MAX)
#define VERSION 1

struct state {
    struct alq_fault fault;
    int64_t last_s; /* when its cause was last seen */
    int is_reset;   /* the cause is gone: the GPU has been reset since */
};

struct device {
    TAILQ_ENTRY(device) link;
    char uuid[ALQ_UUID_BYTES];
    struct state states[ALQ_FAULT_KINDS];
    unsigned relapses;
    int64_t ended_s; /* when it was last unfit */
    int64_t calm_s;  /* since then the driver asks for no action; 0: it does, or does not tell */
    int is_present;  /* in the last reading */
    int was_present; /* in the one before */
};

struct alq_faults {
    struct alq_faults_rules rules;
    alq_faults_cb changed;
    void *arg;
    char load[64];
    size_t count;
    TAILQ_HEAD(device_list, device) devices;
};

static struct device *device_find(const struct alq_faults *f, const char *uuid)
{
    struct device *d;
    TAILQ_FOREACH(d, &f->devices, link)
    {
        if (!strcmp(d->uuid, uuid))
            return d;
    }
    return NULL;
}

/* NULL when out of memory, or when there are too many to be GPUs of a machine. */
static struct device *device_get(struct alq_faults *f, const char *uuid)
{
    struct device *d = device_find(f, uuid);
    if (d || f->count == DEVICES_MAX)
        return d;
    d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    snprintf(d->uuid, sizeof(d->uuid), "%s", uuid);
    d->is_present = 1; /* only a GPU that was read is heard of */
    TAILQ_INSERT_TAIL(&f->devices, d, link);
    f->count++;
    return d;
}

static int is_unfit(const struct device *d)
{
    for (int i = 0; i < ALQ_FAULT_KINDS; i++) {
        if (d->states[i].fault.effect == ALQ_FAULT_UNFIT)
            return 1;
    }
    return 0;
}

static int64_t hold(const struct alq_faults *f, const struct device *d)
{
    return f->rules.hold_s << d->relapses;
}

/* ---- beginning and end --------------------------------------------------------------------------
 */

static void begin(struct alq_faults *f, struct device *d, enum alq_fault_kind kind,
                  enum alq_fault_effect effect, const char *value, const char *reason,
                  int64_t now_s)
{
    struct state *s = &d->states[kind];
    if (effect < s->fault.effect)
        return;
    /* What the driver asked for before is not about this. */
    if (effect == ALQ_FAULT_UNFIT && kind != ALQ_FAULT_RECOVERY && d->calm_s)
        d->calm_s = now_s;
    if (effect == ALQ_FAULT_UNFIT && !is_unfit(d)) {
        if (d->ended_s && now_s - d->ended_s < RELAPSE_HOLDS * hold(f, d))
            d->relapses += d->relapses < HOLD_DOUBLINGS_MAX;
        else
            d->relapses = 0;
    }
    s->last_s = now_s;
    s->is_reset = 0;
    /* While it lasts a fault keeps what it was called first, for each change is a write of a slice;
     * but the action that the driver asks for is to be the one that helps. */
    if (s->fault.effect == effect && (kind != ALQ_FAULT_RECOVERY || !strcmp(s->fault.value, value)))
        return;
    if (s->fault.effect != effect)
        s->fault.since_s = now_s;
    s->fault.effect = effect;
    snprintf(s->fault.value, sizeof(s->fault.value), "%s", value);
    snprintf(s->fault.reason, sizeof(s->fault.reason), "%s", reason);
    f->changed(f->arg, d->uuid, kind, &s->fault);
}

static void end(struct alq_faults *f, struct device *d, enum alq_fault_kind kind, int64_t now_s,
                const char *why)
{
    struct state *s = &d->states[kind];
    struct alq_fault over = s->fault;
    memset(s, 0, sizeof(*s));
    if (over.effect == ALQ_FAULT_UNFIT && !is_unfit(d))
        d->ended_s = now_s;
    over.effect = ALQ_FAULT_NONE;
    snprintf(over.reason, sizeof(over.reason), "%s", why);
    f->changed(f->arg, d->uuid, kind, &over);
}

/* When a fault will be over if nothing more happens, and why; INT64_MAX: never by itself. */
static int64_t end_of(const struct alq_faults *f, const struct device *d, enum alq_fault_kind kind,
                      const char **why)
{
    const struct state *s = &d->states[kind];
    int64_t since = s->last_s;
    if (s->fault.effect == ALQ_FAULT_NONE)
        return INT64_MAX;
    if (s->fault.effect == ALQ_FAULT_NOTICE) {
        *why = "no such error for a while";
        return s->last_s + f->rules.quiet_s;
    }
    if (!d->is_present)
        return INT64_MAX;
    if (kind == ALQ_FAULT_HANG) {
        *why = "NVML reads it again";
        return s->is_reset ? since + hold(f, d) : INT64_MAX;
    }
    if (d->calm_s) {
        *why = "the driver asks for no recovery action";
        return (d->calm_s > since ? d->calm_s : since) + hold(f, d);
    }
    *why = "it was reset";
    return s->is_reset ? since + hold(f, d) : INT64_MAX;
}

/* A clock that was set back must not make a fault last. */
static int64_t not_after(int64_t time_s, int64_t now_s)
{
    return time_s > now_s ? now_s : time_s;
}

int64_t alq_faults_tick(struct alq_faults *f, int64_t now_s)
{
    int64_t next = INT64_MAX;
    struct device *d;
    TAILQ_FOREACH(d, &f->devices, link)
    {
        d->calm_s = not_after(d->calm_s, now_s);
        for (int i = 0; i < ALQ_FAULT_KINDS; i++) {
            enum alq_fault_kind kind = (enum alq_fault_kind)i;
            const char *why = "";
            d->states[i].last_s = not_after(d->states[i].last_s, now_s);
            int64_t at = end_of(f, d, kind, &why);
            if (at <= now_s)
                end(f, d, kind, now_s, why);
            else if (at < next)
                next = at;
        }
    }
    return next;
}

/* ---- what is seen -------------------------------------------------------------------------------
 */

static int is_ignored(const struct alq_faults *f, uint64_t xid)
{
    char text[24];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)xid);
    for (char *const *ignored = f->rules.ignored; ignored && *ignored; ignored++) {
        if (!strcmp(*ignored, text))
            return 1;
    }
    return alq_xid_find(xid).class == ALQ_XID_IGNORED;
}

void alq_faults_event(struct alq_faults *f, const struct alq_gpu_event *event, int64_t now_s)
{
    char value[24] = "", reason[sizeof(((struct alq_fault *)0)->reason)];
    struct device *d;
    if (event->kind == ALQ_FAULT_XID && is_ignored(f, event->code))
        return;
    d = device_get(f, event->uuid);
    if (!d)
        return;
    if (event->kind == ALQ_FAULT_ECC) {
        begin(f, d, ALQ_FAULT_ECC, ALQ_FAULT_UNFIT, "double-bit",
              "double-bit ECC error; it needs a reset", now_s);
        return;
    }
    struct alq_xid xid = alq_xid_find(event->code);
    static const char *const needs[] = {
        [ALQ_XID_IGNORED] = "",
        [ALQ_XID_APPLICATION] = "the program at fault was ended",
        [ALQ_XID_RESET] = "it needs a reset",
        [ALQ_XID_REBOOT] = "the node needs a reboot",
    };
    snprintf(value, sizeof(value), "%llu", (unsigned long long)event->code);
    snprintf(reason, sizeof(reason), "XID %s: %s; %s", value, xid.text, needs[xid.class]);
    begin(f, d, ALQ_FAULT_XID,
          xid.class == ALQ_XID_APPLICATION ? ALQ_FAULT_NOTICE : ALQ_FAULT_UNFIT, value, reason,
          now_s);
}

static void note_reset(struct device *d, int64_t now_s)
{
    for (int i = 0; i < ALQ_FAULT_KINDS; i++) {
        struct state *s = &d->states[i];
        if (i == ALQ_FAULT_HANG || s->fault.effect != ALQ_FAULT_UNFIT || s->is_reset)
            continue;
        s->is_reset = 1;
        s->last_s = now_s;
    }
}

static void read_hang(struct alq_faults *f, struct device *d, const struct alq_gpu *gpu,
                      int64_t now_s)
{
    struct state *s = &d->states[ALQ_FAULT_HANG];
    if (gpu->is_hanging) {
        begin(f, d, ALQ_FAULT_HANG, ALQ_FAULT_UNFIT, "",
              "NVML hangs on it; see the kernel's log, reset it or reboot the node", now_s);
    } else if (s->fault.effect && !s->is_reset) {
        s->is_reset = 1;
        s->last_s = now_s;
    }
}

static void read_action(struct alq_faults *f, struct device *d, int action, int64_t now_s)
{
    const char *name = alq_nvml_recovery_name(action);
    char reason[sizeof(((struct alq_fault *)0)->reason)];
    if (action > 0) {
        d->calm_s = 0;
        snprintf(reason, sizeof(reason), "the driver asks for a recovery action: %s", name);
        begin(f, d, ALQ_FAULT_RECOVERY, ALQ_FAULT_UNFIT, name, reason, now_s);
    } else if (action == 0 && !d->calm_s) {
        d->calm_s = now_s;
    } else if (action < 0) {
        d->calm_s = 0; /* another driver, which does not tell */
        if (d->states[ALQ_FAULT_RECOVERY].fault.effect)
            note_reset(d, now_s);
    }
}

void alq_faults_reading(struct alq_faults *f, const struct alq_gpu_list *list, const char *load,
                        int64_t now_s)
{
    struct device *d;
    int is_reloaded = *load && *f->load && strcmp(load, f->load) != 0;
    if (*load)
        snprintf(f->load, sizeof(f->load), "%s", load);
    TAILQ_FOREACH(d, &f->devices, link)
    {
        d->was_present = d->is_present;
        d->is_present = 0;
    }
    for (size_t i = 0; i < list->count; i++) {
        const struct alq_gpu *gpu = &list->gpus[i];
        d = device_find(f, gpu->uuid);
        if (!d && (gpu->is_hanging || gpu->recovery_action > 0))
            d = device_get(f, gpu->uuid);
        if (!d)
            continue;
        d->is_present = 1;
        read_hang(f, d, gpu, now_s);
        if (gpu->is_hanging)
            continue; /* the rest of it is old */
        if (is_reloaded || !d->was_present)
            note_reset(d, now_s);
        read_action(f, d, gpu->recovery_action, now_s);
    }
    alq_faults_tick(f, now_s);
}

int alq_faults_clear(struct alq_faults *f, const char *uuid, struct alq_err *err)
{
    struct device *d = device_find(f, uuid);
    int count = 0;
    for (int i = 0; d && i < ALQ_FAULT_KINDS; i++) {
        const struct state *s = &d->states[i];
        int is_shown = i == ALQ_FAULT_RECOVERY ? !d->calm_s : i == ALQ_FAULT_HANG && !s->is_reset;
        if (s->fault.effect == ALQ_FAULT_NONE)
            continue;
        count++;
        if (!is_shown)
            end(f, d, (enum alq_fault_kind)i, s->last_s, "the operator says that it is well");
    }
    return count ? 0 : alq_err_set(err, ALQ_ENOENT, "no fault of GPU %.64s is known", uuid);
}

void alq_faults_fill(const struct alq_faults *f, struct alq_gpu_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        struct alq_gpu *gpu = &list->gpus[i];
        const struct device *d = device_find(f, gpu->uuid);
        memset(gpu->faults, 0, sizeof(gpu->faults));
        for (int k = 0; d && k < ALQ_FAULT_KINDS; k++)
            gpu->faults[k] = d->states[k].fault;
    }
}

/* ---- the disk -----------------------------------------------------------------------------------
 */

static json_t *save_state(int kind, const struct state *s)
{
    return json_pack("{s:i, s:i, s:I, s:I, s:b, s:s, s:s}", "kind", kind, "effect",
                     (int)s->fault.effect, "since", (json_int_t)s->fault.since_s, "last",
                     (json_int_t)s->last_s, "reset", s->is_reset, "value", s->fault.value, "reason",
                     s->fault.reason);
}

char *alq_faults_save(const struct alq_faults *f, const char *boot_id)
{
    json_t *list = json_array();
    const struct device *d;
    TAILQ_FOREACH(d, &f->devices, link)
    {
        json_t *states = json_array();
        for (int i = 0; i < ALQ_FAULT_KINDS; i++) {
            if (d->states[i].fault.effect)
                json_array_append_new(states, save_state(i, &d->states[i]));
        }
        if (json_array_size(states) || d->ended_s)
            json_array_append_new(list, json_pack("{s:s, s:i, s:I, s:O}", "uuid", d->uuid,
                                                  "relapses", (int)d->relapses, "ended",
                                                  (json_int_t)d->ended_s, "faults", states));
        json_decref(states);
    }
    alq_auto_json json_t *root = json_pack("{s:i, s:s, s:s, s:o}", "version", VERSION, "bootID",
                                           boot_id, "load", f->load, "devices", list);
    return root ? alq_json_dump(root) : NULL;
}

static int number_of(const json_t *object, const char *key, json_int_t most, json_int_t *number)
{
    const json_t *value = json_object_get(object, key);
    *number = json_integer_value(value);
    return json_is_integer(value) && *number >= 0 && *number <= most;
}

static int text_of(const json_t *object, const char *key, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(object, key));
    if (!value || strlen(value) >= size)
        return 0;
    memcpy(text, value, strlen(value) + 1);
    return 1;
}

static int load_device(struct alq_faults *f, const json_t *item)
{
    char uuid[ALQ_UUID_BYTES];
    json_int_t relapses, ended;
    const json_t *states = json_object_get(item, "faults");
    if (!text_of(item, "uuid", uuid, sizeof(uuid)) || !json_is_array(states) ||
        !number_of(item, "relapses", HOLD_DOUBLINGS_MAX, &relapses) ||
        !number_of(item, "ended", INT64_MAX, &ended))
        return 0;
    struct device *d = device_get(f, uuid);
    if (!d)
        return 0;
    d->relapses = (unsigned)relapses;
    d->ended_s = ended;
    for (size_t i = 0; i < json_array_size(states); i++) {
        const json_t *state = json_array_get(states, i);
        json_int_t kind, effect, since, last;
        if (!number_of(state, "kind", ALQ_FAULT_KINDS - 1, &kind) ||
            !number_of(state, "effect", ALQ_FAULT_UNFIT, &effect) ||
            !number_of(state, "since", INT64_MAX, &since) ||
            !number_of(state, "last", INT64_MAX, &last))
            return 0;
        struct state *s = &d->states[kind];
        s->fault.effect = (enum alq_fault_effect)effect;
        s->fault.since_s = since;
        s->last_s = last;
        s->is_reset = json_is_true(json_object_get(state, "reset"));
        if (!text_of(state, "value", s->fault.value, sizeof(s->fault.value)) ||
            !text_of(state, "reason", s->fault.reason, sizeof(s->fault.reason)))
            return 0;
    }
    return 1;
}

void alq_faults_forget(struct alq_faults *f)
{
    for (struct device *d; (d = TAILQ_FIRST(&f->devices));) {
        TAILQ_REMOVE(&f->devices, d, link);
        free(d);
    }
    f->count = 0;
    f->load[0] = '\0';
}

int alq_faults_load(struct alq_faults *f, const char *text, size_t len, const char *boot_id,
                    struct alq_err *err)
{
    alq_auto_json json_t *root = NULL;
    char boot[64];
    json_int_t version;
    size_t i;
    json_t *item;
    int rc = alq_json_parse(text, len, "saved faults", &root, err);
    if (rc)
        return rc;
    const json_t *list = json_object_get(root, "devices");
    int is_good = number_of(root, "version", VERSION, &version) && version == VERSION &&
                  text_of(root, "bootID", boot, sizeof(boot)) && json_is_array(list);
    if (is_good && strcmp(boot, boot_id) != 0)
        return 0;
    is_good = is_good && text_of(root, "load", f->load, sizeof(f->load));
    json_array_foreach (list, i, item) {
        is_good = is_good && load_device(f, item);
    }
    if (is_good)
        return 0;
    alq_faults_forget(f);
    return alq_err_set(err, ALQ_EPROTO, "not faults of GPUs, or of another version");
}

/* ---- life ---------------------------------------------------------------------------------------
 */

struct alq_faults *alq_faults_new(const struct alq_faults_rules *rules, alq_faults_cb changed,
                                  void *arg)
{
    struct alq_faults *f = calloc(1, sizeof(*f));
    if (!f)
        return NULL;
    TAILQ_INIT(&f->devices);
    f->rules = *rules;
    f->changed = changed;
    f->arg = arg;
    return f;
}

void alq_faults_set_rules(struct alq_faults *f, const struct alq_faults_rules *rules)
{
    f->rules = *rules;
}

void alq_faults_free(struct alq_faults *f)
{
    if (!f)
        return;
    alq_faults_forget(f);
    free(f);
}
