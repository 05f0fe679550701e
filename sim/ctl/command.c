/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builders of command.h: each takes the words after the command's name. simgpud checks what it is
 * given; here only what words alone can get wrong is.
 */
#include "ctl/command.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "aliquot/cuda_enums.h"
#include "aliquot/nvml_abi.h"
#include "base/json.h"
#include "base/quantity.h"

static const struct {
    const char *name;
    int value;
} codes[] = {
#define ROW(name, value) {#name, value},
    ALQ_CUDA_ERRORS(ROW) ALQ_NVML_ERRORS(ROW)
#undef ROW
};

static const char *const actions[] = {"none", "reset", "reboot", "drain-p2p", "drain-and-reset"};

static int get_number(const char *what, const char *text, json_int_t *number, struct alq_err *err)
{
    char *end;
    long long n = strtoll(text, &end, 0);

    if (end == text || *end || n < 0)
        return alq_err_set(err, ALQ_EINVAL, "%s: give a whole number, not \"%s\"", what, text);
    *number = n;
    return 0;
}

static int get_code(const char *what, const char *text, json_int_t *code, struct alq_err *err)
{
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (strcasecmp(text, codes[i].name) == 0) {
            *code = codes[i].value;
            return 0;
        }
    }
    return get_number(what, text, code, NULL) == 0
               ? 0
               : alq_err_set(err, ALQ_EINVAL,
                             "%s: give a number or a name such as CUDA_ERROR_OUT_OF_MEMORY or "
                             "NVML_ERROR_UNKNOWN, not \"%s\"",
                             what, text);
}

static int get_time(const char *text, json_int_t *ns, struct alq_err *err)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    char *end;
    double n = strtod(text, &end);

    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (end != text && n >= 0 && n * units[i].ns <= 3600e9 && strcmp(end, units[i].unit) == 0) {
            *ns = (json_int_t)(n * units[i].ns);
            return 0;
        }
    }
    return alq_err_set(err, ALQ_EINVAL,
                       "--delay: give a time of at most an hour such as 500us, 20ms or 3s, not "
                       "\"%s\"",
                       text);
}

static int build_plain(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                       struct alq_err *err)
{
    (void)o;
    (void)err;
    if (count)
        json_object_set_new(command, "device", json_string(words[0]));
    return 0;
}

static int build_add(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                     struct alq_err *err)
{
    json_t *device = NULL;
    int rc = 0;

    (void)o;
    if (*words[0] == '{')
        rc = alq_json_parse(words[0], strlen(words[0]), "the device", &device, err);
    else
        device = json_pack("{s:s}", "memory", words[0]);
    if (rc == 0 && count > 1)
        json_object_set_new(device, "name", json_string(words[1]));
    if (rc == 0)
        json_object_set_new(command, "device", device);
    return rc;
}

static int build_xid(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                     struct alq_err *err)
{
    json_int_t xid, code;
    int rc = get_number("xid", words[1], &xid, err);

    (void)count;
    if (rc || (o->fail && (rc = get_code("--fail", o->fail, &code, err)) != 0))
        return rc;
    json_object_set_new(command, "device", json_string(words[0]));
    json_object_set_new(command, "xid", json_integer(xid));
    if (o->fail)
        json_object_set_new(command, "fail", json_integer(code));
    return 0;
}

static int build_ecc(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                     struct alq_err *err)
{
    json_int_t n = 1;
    int rc = count > 2 ? get_number("count", words[2], &n, err) : 0;

    (void)o;
    json_object_set_new(command, "device", json_string(words[0]));
    json_object_set_new(command, "kind", json_string(words[1]));
    json_object_set_new(command, "count", json_integer(n));
    return rc;
}

static int build_action(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                        struct alq_err *err)
{
    (void)count;
    (void)o;
    json_object_set_new(command, "device", json_string(words[0]));
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(words[1], actions[i]) == 0)
            return json_object_set_new(command, "action", json_integer((json_int_t)i));
    }
    return alq_err_set(err, ALQ_EINVAL,
                       "give none, reset, reboot, drain-p2p or drain-and-reset, not \"%s\"",
                       words[1]);
}

static int build_withhold(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                          struct alq_err *err)
{
    struct alq_quantity q;
    uint64_t bytes;
    int rc = alq_quantity_parse(words[1], strlen(words[1]), &q, err);

    (void)count;
    (void)o;
    if (rc || (rc = alq_quantity_to_u64(q, &bytes, err)) != 0)
        return rc;
    json_object_set_new(command, "device", json_string(words[0]));
    json_object_set_new(command, "bytes",
                        json_integer(bytes > INT64_MAX ? INT64_MAX : (json_int_t)bytes));
    return 0;
}

static int build_freeze(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                        struct alq_err *err)
{
    json_int_t percent;
    int rc = count > 1 ? get_number("percent", words[1], &percent, err) : 0;

    (void)o;
    json_object_set_new(command, "device", json_string(words[0]));
    if (rc == 0 && count > 1)
        json_object_set_new(command, "percent", json_integer(percent));
    return rc;
}

static int build_clear(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                       struct alq_err *err)
{
    json_int_t id;
    int rc = count ? get_number("id", words[0], &id, err) : 0;

    (void)o;
    if (rc == 0 && count)
        json_object_set_new(command, "id", json_integer(id));
    return rc;
}

static int set_number(json_t *command, const char *key, const char *what, const char *text,
                      struct alq_err *err)
{
    json_int_t n;
    int rc = text ? get_number(what, text, &n, err) : 0;

    if (rc == 0 && text)
        json_object_set_new(command, key, json_integer(n));
    return rc;
}

static void set_text(json_t *command, const char *key, const char *text)
{
    if (text)
        json_object_set_new(command, key, json_string(text));
}

/* With --call alone the rule acts once; without it, on every call. */
static int build_fault(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                       struct alq_err *err)
{
    json_t *entries = json_array();
    json_int_t n;
    int rc;

    json_object_set_new(command, "entries", entries);
    for (int i = 0; i < count; i++)
        json_array_append_new(entries, json_string(words[i]));
    if (o->result) {
        if ((rc = get_code("--return", o->result, &n, err)) != 0)
            return rc;
        json_object_set_new(command, "result", json_integer(n));
    }
    if (o->delay) {
        if ((rc = get_time(o->delay, &n, err)) != 0)
            return rc;
        json_object_set_new(command, "delay_ns", json_integer(n));
    }
    set_text(command, "group", o->group);
    set_text(command, "caller", o->caller);
    set_text(command, "own", o->own);
    if ((rc = set_number(command, "first", "--call", o->call, err)) != 0 ||
        (rc = set_number(command, "pid", "--pid", o->pid, err)) != 0)
        return rc;
    return set_number(command, "times", "--times", o->times ? o->times : o->call ? "1" : NULL, err);
}

static const struct {
    const char *word, *name; /* as simgpud knows it */
    int least, most;         /* arguments */
    int (*build)(int count, char **words, const struct sim_ctl_options *o, json_t *command,
                 struct alq_err *err);
} builders[] = {
    {"processes", "processes", 0, 0, build_plain},
    {"describe", "describe", 1, 1, build_plain},
    {"add", "add", 1, 2, build_add},
    {"remove", "remove", 1, 1, build_plain},
    {"lose", "lose", 1, 1, build_plain},
    {"recover", "recover", 1, 1, build_plain},
    {"xid", "xid", 2, 2, build_xid},
    {"ecc", "ecc", 2, 3, build_ecc},
    {"action", "action", 2, 2, build_action},
    {"shrink", "withhold", 2, 2, build_withhold},
    {"freeze", "freeze", 1, 2, build_freeze},
    {"thaw", "thaw", 1, 1, build_plain},
    {"fault", "fault", 1, 64, build_fault},
    {"faults", "faults", 0, 0, build_plain},
    {"clear", "clear", 0, 1, build_clear},
};

int sim_ctl_build(int count, char **words, const struct sim_ctl_options *o, json_t **command,
                  struct alq_err *err)
{
    for (size_t i = 0; i < sizeof(builders) / sizeof(builders[0]); i++) {
        int rc, n = count - 1;

        if (strcmp(words[0], builders[i].word) != 0)
            continue;
        if (n < builders[i].least || n > builders[i].most)
            return alq_err_set(err, ALQ_EINVAL,
                               "%s takes %d to %d arguments, not %d; \"simctl --help\" shows them",
                               words[0], builders[i].least, builders[i].most, n);
        *command = json_pack("{s:s}", "command", builders[i].name);
        if ((rc = builders[i].build(n, words + 1, o, *command, err)) != 0) {
            json_decref(*command);
            *command = NULL;
            return alq_err_wrap(err, "%s", words[0]);
        }
        return 0;
    }
    return alq_err_set(err, ALQ_ENOENT, "no command %s; \"simctl --help\" lists them", words[0]);
}
