/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands of command.h, one function each, found in a table.
 */
#include "daemon/command.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "aliquot/nvml_abi.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/device.h"
#include "daemon/fault.h"

static int find_device(const struct sim_server *s, const json_t *value, uint32_t *d,
                       struct alq_err *err)
{
    const char *text = json_string_value(value);
    char *end = NULL;
    unsigned long n = json_is_integer(value) ? (unsigned long)json_integer_value(value)
                      : text                 ? strtoul(text, &end, 10)
                                             : SIM_MAX_DEVICES;

    if (!end || (end != text && !*end)) {
        *d = n < SIM_MAX_DEVICES ? (uint32_t)n : SIM_MAX_DEVICES;
        if (sim_device_is_present(s, *d))
            return 0;
    } else {
        for (*d = 0; *d < s->machine.device_count; ++*d) {
            if (sim_device_is_present(s, *d) && strcasecmp(s->machine.device[*d].uuid, text) == 0)
                return 0;
        }
    }
    return alq_err_set(err, ALQ_ENOENT, "no device %s; give an index or a UUID of \"simctl list\"",
                       text                     ? text
                       : json_is_integer(value) ? "of that index"
                                                : "given");
}

static int get_number(const json_t *o, const char *key, json_int_t least, json_int_t most,
                      json_int_t *number, struct alq_err *err)
{
    const json_t *value = json_object_get(o, key);

    if (!value)
        return 0;
    *number = json_integer_value(value);
    if (!json_is_integer(value) || *number < least || *number > most)
        return alq_err_set(err, ALQ_EINVAL, "%s: give a whole number from %lld to %lld", key,
                           (long long)least, (long long)most);
    return 0;
}

static int run_add(struct sim_server *s, json_t *o, uint32_t d, json_t *answer, struct alq_err *err)
{
    int rc = sim_device_add(s, json_object_get(o, "device"), &d, err);

    if (rc == 0)
        json_object_set_new(answer, "device", sim_report_device(s, d));
    return rc;
}

static int run_remove(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                      struct alq_err *err)
{
    (void)o;
    (void)answer;
    (void)err;
    sim_device_remove(s, d);
    return 0;
}

static int run_describe(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                        struct alq_err *err)
{
    (void)o;
    (void)err;
    json_object_set_new(answer, "device", sim_report_device(s, d));
    return 0;
}

static int run_lose(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                    struct alq_err *err)
{
    (void)o;
    (void)answer;
    (void)err;
    sim_device_lose(s, d);
    return 0;
}

static int run_recover(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                       struct alq_err *err)
{
    (void)o;
    (void)answer;
    (void)err;
    sim_device_recover(s, d);
    return 0;
}

static int run_xid(struct sim_server *s, json_t *o, uint32_t d, json_t *answer, struct alq_err *err)
{
    json_int_t xid = 0, fail = 0;
    int rc;

    (void)answer;
    if ((rc = get_number(o, "xid", 1, 1023, &xid, err)) ||
        (rc = get_number(o, "fail", 1, 999, &fail, err)))
        return rc;
    if (!xid)
        return alq_err_set(err, ALQ_EINVAL, "xid: give the number of the XID");
    s->health[d].last_xid = (uint32_t)xid;
    if (fail) {
        s->health[d].recovery_action = 1; /* reset */
        sim_device_fail_contexts(s, d, (uint32_t)fail);
    }
    sim_device_event(s, d, nvmlEventTypeXidCriticalError, (uint64_t)xid);
    return 0;
}

static int run_ecc(struct sim_server *s, json_t *o, uint32_t d, json_t *answer, struct alq_err *err)
{
    const char *kind = alq_json_str(o, "kind");
    json_int_t count = 1;
    bool is_corrected = kind && strcmp(kind, "corrected") == 0;
    int rc = get_number(o, "count", 1, INT32_MAX, &count, err);

    (void)answer;
    if (rc)
        return rc;
    if (!is_corrected && (!kind || strcmp(kind, "uncorrected") != 0))
        return alq_err_set(err, ALQ_EINVAL, "kind: give corrected or uncorrected");
    *(is_corrected ? &s->health[d].ecc_corrected : &s->health[d].ecc_uncorrected) +=
        (uint64_t)count;
    sim_device_event(
        s, d, is_corrected ? nvmlEventTypeSingleBitEccError : nvmlEventTypeDoubleBitEccError, 0);
    return 0;
}

static int run_action(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                      struct alq_err *err)
{
    json_int_t action = 0;
    int rc = get_number(o, "action", 0, 5, &action, err);

    (void)answer;
    s->health[d].recovery_action = rc ? s->health[d].recovery_action : (uint32_t)action;
    return rc;
}

static int run_withhold(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                        struct alq_err *err)
{
    json_int_t bytes = 0;
    int rc = get_number(o, "bytes", 0, (json_int_t)sim_device_capacity(s, d), &bytes, err);

    (void)answer;
    if (rc == 0) {
        s->health[d].withheld_bytes = (uint64_t)bytes / SIM_UNIT_BYTES * SIM_UNIT_BYTES;
        sim_device_publish(s, d);
    }
    return rc;
}

static int run_freeze(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                      struct alq_err *err)
{
    json_int_t percent = -1;
    int rc = get_number(o, "percent", 0, 100, &percent, err);

    (void)answer;
    if (rc == 0)
        sim_device_freeze(s, d, (int)percent);
    return rc;
}

static int run_thaw(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                    struct alq_err *err)
{
    (void)o;
    (void)answer;
    (void)err;
    s->health[d].is_frozen = false;
    return 0;
}

static int run_fault(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                     struct alq_err *err)
{
    uint32_t id;
    int rc = sim_fault_add(s, o, &id, err);

    (void)d;
    if (rc == 0)
        json_object_set_new(answer, "id", json_integer(id));
    return rc;
}

static int run_faults(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                      struct alq_err *err)
{
    (void)o;
    (void)d;
    (void)err;
    json_object_set_new(answer, "faults", sim_fault_list(s));
    return 0;
}

static int run_clear(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                     struct alq_err *err)
{
    json_int_t id = 0;
    int rc = get_number(o, "id", 1, SIM_FAULT_RULES, &id, err);

    (void)d;
    (void)answer;
    return rc ? rc : sim_fault_clear(s, (uint32_t)id, err);
}

static int run_processes(struct sim_server *s, json_t *o, uint32_t d, json_t *answer,
                         struct alq_err *err)
{
    (void)o;
    (void)d;
    (void)err;
    json_object_set_new(answer, "processes", sim_report_processes(s));
    return 0;
}

#define KEYS_MAX 8

static const struct command {
    const char *name;
    bool has_device; /* "device" must name one that is there */
    int (*run)(struct sim_server *s, json_t *o, uint32_t device, json_t *answer,
               struct alq_err *err);
    const char *keys[KEYS_MAX]; /* besides "command"; NULL first: checked by run */
} commands[] = {
    {"add", false, run_add, {"device"}},
    {"remove", true, run_remove, {"device"}},
    {"describe", true, run_describe, {"device"}},
    {"lose", true, run_lose, {"device"}},
    {"recover", true, run_recover, {"device"}},
    {"xid", true, run_xid, {"device", "xid", "fail"}},
    {"ecc", true, run_ecc, {"device", "kind", "count"}},
    {"action", true, run_action, {"device", "action"}},
    {"withhold", true, run_withhold, {"device", "bytes"}},
    {"freeze", true, run_freeze, {"device", "percent"}},
    {"thaw", true, run_thaw, {"device"}},
    {"fault", false, run_fault, {NULL}},
    {"faults", false, run_faults, {"command"}},
    {"clear", false, run_clear, {"id"}},
    {"processes", false, run_processes, {"command"}},
};

static int run(struct sim_server *s, json_t *o, json_t *answer, struct alq_err *err)
{
    const char *name = alq_json_str(o, "command");
    const char *keys[KEYS_MAX + 1] = {"command"};
    uint32_t d = 0;
    int rc;

    for (size_t i = 0; name && i < sizeof(commands) / sizeof(commands[0]); i++) {
        const struct command *c = &commands[i];

        if (strcmp(name, c->name) != 0)
            continue;
        memcpy(&keys[1], c->keys, (KEYS_MAX - 1) * sizeof(keys[0]));
        if ((c->keys[0] && (rc = alq_json_only_keys(o, keys, name, err)) != 0) ||
            (c->has_device && (rc = find_device(s, json_object_get(o, "device"), &d, err)) != 0))
            return rc;
        return c->run(s, o, d, answer, err);
    }
    return alq_err_set(err, ALQ_EINVAL, "no command %s", name ? name : "given");
}

json_t *sim_command_run(struct sim_server *s, const char *text, size_t len)
{
    alq_auto_json json_t *o = NULL;
    json_t *answer = json_object();
    struct alq_err err = ALQ_ERR_INIT;

    if (alq_json_parse(text, len, "the command", &o, &err) != 0 || run(s, o, answer, &err) != 0)
        json_object_set_new(answer, "error", json_string(err.text));
    return answer;
}
