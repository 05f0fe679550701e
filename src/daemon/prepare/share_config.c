/* SPDX-License-Identifier: Apache-2.0 */
/* Strict decoding of ShareConfig, see share_config.h. Pure functions, any thread. */
#include "daemon/prepare/share_config.h"

#include <string.h>

#include "base/json.h"
#include "base/quantity.h"

#define WAIT_DEFAULT_S 30u

struct word {
    const char *text;
    uint32_t value;
};

static const struct word policies[] = {
    {"Hard", ALQ_POLICY_HARD}, {"Burst", ALQ_POLICY_BURST}, {"None", ALQ_POLICY_NONE}, {NULL, 0}};
static const struct word levels[] = {
    {"error", 1}, {"warn", 2}, {"info", 3}, {"debug", 4}, {NULL, 0}};

static int take_word(const json_t *object, const char *key, const char *name,
                     const struct word *words, const char *choice, uint32_t *out,
                     struct alq_err *err)
{
    const json_t *value = json_object_get(object, key);
    if (!value)
        return 0;
    for (const struct word *w = words; w->text && json_is_string(value); w++) {
        if (strcmp(w->text, json_string_value(value)) != 0)
            continue;
        *out = w->value;
        return 0;
    }
    return alq_err_set(err, ALQ_EINVAL, "%s: \"%.64s\" is none of %s", name,
                       json_is_string(value) ? json_string_value(value) : "(not a string)", choice);
}

/* The object at key, checked for unknown fields; *object NULL when absent. */
static int take_object(const json_t *parent, const char *key, const char *const *keys,
                       const json_t **object, struct alq_err *err)
{
    *object = json_object_get(parent, key);
    if (!*object)
        return 0;
    if (!json_is_object(*object))
        return alq_err_set(err, ALQ_EINVAL, "%s: not an object", key);
    return alq_json_only_keys(*object, keys, key, err);
}

static int take_compute(const json_t *root, struct alq_share_tuning *tuning, struct alq_err *err)
{
    static const char *const keys[] = {"policy", "priority", NULL};
    const json_t *compute;
    int rc = take_object(root, "compute", keys, &compute, err);
    if (rc || !compute)
        return rc;
    rc = take_word(compute, "policy", "compute.policy", policies, "Hard, Burst, None",
                   &tuning->policy, err);
    const json_t *priority = json_object_get(compute, "priority");
    if (rc || !priority)
        return rc;
    if (!json_is_integer(priority) || json_integer_value(priority) < 0 ||
        json_integer_value(priority) > 1)
        return alq_err_set(err, ALQ_EINVAL, "compute.priority: neither 0 nor 1");
    tuning->priority = (uint32_t)json_integer_value(priority);
    return 0;
}

/* waitSeconds over what is said already, class or claim: it needs Wait from one of them. */
static int take_wait(const json_t *memory, struct alq_share_tuning *tuning, struct alq_err *err)
{
    static const struct word choices[] = {{"Fail", 0}, {"Wait", 1}, {NULL, 0}};
    const json_t *seconds = json_object_get(memory, "waitSeconds");
    uint32_t is_wait = tuning->wait_s != 0;
    int rc = take_word(memory, "onExhausted", "memory.onExhausted", choices, "Fail, Wait", &is_wait,
                       err);
    if (rc)
        return rc;
    if (!is_wait)
        tuning->wait_s = 0;
    else if (!tuning->wait_s)
        tuning->wait_s = WAIT_DEFAULT_S;
    if (!seconds)
        return 0;
    if (!json_is_integer(seconds) || json_integer_value(seconds) < 1 ||
        json_integer_value(seconds) > ALQ_WAIT_MAX_S)
        return alq_err_set(err, ALQ_EINVAL,
                           "memory.waitSeconds: not a number of seconds from 1 to %u",
                           ALQ_WAIT_MAX_S);
    if (!is_wait)
        return alq_err_set(err, ALQ_EINVAL,
                           "memory.waitSeconds: counts only with memory.onExhausted: Wait");
    tuning->wait_s = (uint32_t)json_integer_value(seconds);
    return 0;
}

static int take_spill(const json_t *memory, struct alq_share_tuning *tuning, struct alq_err *err)
{
    static const char *const keys[] = {"limit", NULL};
    const json_t *spill;
    struct alq_quantity limit;
    uint64_t bytes;
    int rc = take_object(memory, "spillToHost", keys, &spill, err);
    if (rc || !spill)
        return rc;
    const char *text = json_string_value(json_object_get(spill, "limit"));
    if (!text)
        return alq_err_set(err, ALQ_EINVAL,
                           "memory.spillToHost.limit: not a quantity in quotes, like \"8Gi\"");
    rc = alq_quantity_parse(text, strlen(text), &limit, err);
    if (!rc)
        rc = alq_quantity_to_u64(limit, &bytes, err);
    if (!rc && bytes > INT64_MAX)
        rc = alq_err_set(err, ALQ_ERANGE, "\"%.64s\" is more than any host has", text);
    if (rc)
        return alq_err_wrap(err, "memory.spillToHost.limit");
    tuning->spill_bytes = bytes;
    return 0;
}

static int take_memory(const json_t *root, struct alq_share_tuning *tuning, struct alq_err *err)
{
    static const char *const keys[] = {"onExhausted", "waitSeconds", "spillToHost", NULL};
    const json_t *memory;
    int rc = take_object(root, "memory", keys, &memory, err);
    if (rc || !memory)
        return rc;
    rc = take_wait(memory, tuning, err);
    return rc ? rc : take_spill(memory, tuning, err);
}

int alq_share_config_apply(const json_t *parameters, struct alq_share_tuning *tuning,
                           struct alq_err *err)
{
    static const char *const keys[] = {"apiVersion", "kind", "compute", "memory", "logLevel", NULL};
    struct alq_share_tuning result = *tuning;
    if (!json_is_object(parameters))
        return alq_err_set(err, ALQ_EINVAL, "parameters: not an object");
    const char *version = alq_json_str(parameters, "apiVersion");
    const char *kind = alq_json_str(parameters, "kind");
    if (!version || !kind || strcmp(version, ALQ_SHARE_CONFIG_API_VERSION) != 0 ||
        strcmp(kind, "ShareConfig") != 0)
        return alq_err_set(
            err, ALQ_EINVAL,
            "apiVersion \"%.64s\", kind \"%.64s\": only " ALQ_SHARE_CONFIG_API_VERSION
            " ShareConfig is known",
            version ? version : "", kind ? kind : "");
    int rc = alq_json_only_keys(parameters, keys, "ShareConfig", err);
    if (!rc)
        rc = take_compute(parameters, &result, err);
    if (!rc)
        rc = take_memory(parameters, &result, err);
    if (!rc)
        rc = take_word(parameters, "logLevel", "logLevel", levels, "error, warn, info, debug",
                       &result.log_level, err);
    if (!rc)
        *tuning = result;
    return rc;
}

static int names_request(const json_t *requests, const char *request)
{
    size_t i, base = strcspn(request, "/");
    json_t *item;
    if (!json_array_size(requests))
        return 1;
    json_array_foreach (requests, i, item) {
        const char *text = json_string_value(item);
        if (text &&
            (!strcmp(text, request) || (strlen(text) == base && !strncmp(text, request, base))))
            return 1;
    }
    return 0;
}

int alq_share_config_resolve(const json_t *config, const char *driver, const char *request,
                             struct alq_share_tuning *tuning, struct alq_err *err)
{
    static const char *const sources[] = {"FromClass", "FromClaim"};
    for (int source = 0; source < 2; source++) {
        size_t i;
        json_t *entry;
        json_array_foreach (config, i, entry) {
            const char *from = alq_json_str(entry, "source");
            const char *for_driver = alq_json_str(entry, "opaque.driver");
            if (!from || strcmp(from, sources[source]) != 0 || !for_driver ||
                strcmp(for_driver, driver) != 0 ||
                !names_request(json_object_get(entry, "requests"), request))
                continue;
            int rc = alq_share_config_apply(alq_json_at(entry, "opaque.parameters"), tuning, err);
            if (rc)
                return alq_err_wrap(err, "configuration %zu of the %s", i,
                                    source ? "claim" : "device class");
        }
    }
    return 0;
}
