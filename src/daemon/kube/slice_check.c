/* SPDX-License-Identifier: Apache-2.0 */
/* Validation of ResourceSlices, see slice_check.h. The rules are those of reference/dra.md §4.2;
 * what real servers said of 60 bad slices is in tests/conformance/sandbox. Pure. */
#include "daemon/kube/slice_check.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "base/quantity.h"
#include "daemon/kube/slice.h"

#define DEVICES_WITH_TAINTS_MAX 64
#define FACTS_MAX 32 /* attributes and capacities of a device */
#define TEXT_BYTES_MAX 64
#define VALUES_MAX 10

static int is_subdomain(const char *text, size_t max)
{
    size_t len = text ? strlen(text) : 0;
    return len <= max && alq_is_dns_name(text, len, 1);
}

static int is_c_identifier(const char *text)
{
    size_t len = strlen(text);
    if (!len || len > 32 || isdigit((unsigned char)*text))
        return 0;
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && *c != '_')
            return 0;
    return 1;
}

/* "name" or "domain/name" */
static int is_qualified(const char *text)
{
    const char *slash = strchr(text, '/');
    if (!slash)
        return is_c_identifier(text);
    size_t len = (size_t)(slash - text);
    return len <= 63 && alq_is_dns_name(text, len, 1) && is_c_identifier(slash + 1);
}

/* As labels' keys are: an optional domain, and a name of letters, digits and "-_." */
static int is_label_key(const char *text)
{
    const char *slash = strrchr(text, '/'), *name = slash ? slash + 1 : text;
    size_t len = strlen(name);
    if (!len || len > 63 || (slash && !alq_is_dns_name(text, (size_t)(slash - text), 1)) ||
        !isalnum((unsigned char)name[0]) || !isalnum((unsigned char)name[len - 1]))
        return 0;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_.", *c))
            return 0;
    return 1;
}

/* X.Y.Z without leading zeros, then perhaps -... or +... */
static int is_semver(const char *text)
{
    for (int part = 0; part < 3; part++) {
        size_t digits = strspn(text, "0123456789");
        if (!digits || (digits > 1 && *text == '0') || (part < 2 && text[digits] != '.'))
            return 0;
        text += digits + (part < 2);
    }
    if (!*text)
        return 1;
    if (*text != '-' && *text != '+')
        return 0;
    for (const char *c = text + 1; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(".-+", *c))
            return 0;
    return text[1] != '\0';
}

/* ---- attributes and capacities ----------------------------------------------------------------
 */

static int check_attribute(const char *key, const json_t *value, struct alq_err *err)
{
    const char *kind;
    json_t *inner;
    if (!is_qualified(key))
        return alq_err_set(err, ALQ_EINVAL, "attributes: %.80s is not a name", key);
    if (!json_is_object(value) || json_object_size(value) != 1)
        return alq_err_set(err, ALQ_EINVAL, "attributes[%s]: not exactly one value", key);
    json_object_foreach ((json_t *)value, kind, inner) {
        int is_version = !strcmp(kind, "version");
        if (!strcmp(kind, "int") ? json_is_integer(inner)
                                 : !strcmp(kind, "bool") && json_is_boolean(inner))
            return 0;
        if ((!is_version && strcmp(kind, "string") != 0) || !json_is_string(inner))
            return alq_err_set(err, ALQ_EINVAL, "attributes[%s]: a value that is none", key);
        if (json_string_length(inner) > TEXT_BYTES_MAX)
            return alq_err_set(err, ALQ_EINVAL, "attributes[%s]: longer than %d bytes", key,
                               TEXT_BYTES_MAX);
        if (is_version && !is_semver(json_string_value(inner)))
            return alq_err_set(err, ALQ_EINVAL, "attributes[%s]: %.70s is no semantic version", key,
                               json_string_value(inner));
    }
    return 0;
}

static int read_units(const json_t *object, const char *key, uint64_t *units, struct alq_err *err)
{
    const char *text = json_string_value(json_object_get(object, key));
    struct alq_quantity q;
    if (!text)
        return alq_err_set(err, ALQ_EINVAL, "%s: missing", key);
    int rc = alq_quantity_parse(text, strlen(text), &q, err);
    if (!rc)
        rc = alq_quantity_to_u64(q, units, err);
    if (!rc && alq_quantity_cmp(q, alq_quantity_from_u64(*units)) != 0)
        rc = alq_err_set(err, ALQ_EINVAL, "%.40s is not a whole number", text);
    return rc && err ? alq_err_wrap(err, "%s", key) : rc;
}

static int check_range(const json_t *range, uint64_t value, uint64_t preset, struct alq_err *err)
{
    uint64_t min, max = value, step = 0;
    int rc = read_units(range, "min", &min, err);
    if (!rc && json_object_get(range, "max"))
        rc = read_units(range, "max", &max, err);
    if (!rc && json_object_get(range, "step")) {
        rc = read_units(range, "step", &step, err);
        if (!rc && !step) /* an API server dies of it */
            rc = alq_err_set(err, ALQ_EINVAL, "step is 0");
    }
    if (rc)
        return rc;
    if (min > value || max > value || min > max)
        return alq_err_set(err, ALQ_EINVAL, "min and max do not lie within the value");
    if (preset < min || preset > max)
        return alq_err_set(err, ALQ_EINVAL, "default does not lie within min and max");
    if (step && (min + step > value || (preset - min) % step || (max - min) % step))
        return alq_err_set(err, ALQ_EINVAL, "default and max are not steps from min");
    return 0;
}

static int check_values(const json_t *values, uint64_t value, uint64_t preset, struct alq_err *err)
{
    uint64_t before = 0, one = 0;
    int has_preset = 0;
    size_t count = json_array_size(values);
    if (!count || count > VALUES_MAX)
        return alq_err_set(err, ALQ_EINVAL, "validValues: not 1 to %d", VALUES_MAX);
    for (size_t i = 0; i < count; i++, before = one) {
        json_t *item = json_pack("{s:O}", "validValues", json_array_get(values, i));
        int rc = read_units(item, "validValues", &one, err);
        json_decref(item);
        if (rc)
            return rc;
        if ((i && one <= before) || one > value)
            return alq_err_set(err, ALQ_EINVAL, "validValues: not ascending up to the value");
        has_preset |= one == preset;
    }
    return has_preset ? 0 : alq_err_set(err, ALQ_EINVAL, "validValues: without the default");
}

static int check_capacity(const char *key, const json_t *capacity, int is_shared,
                          struct alq_err *err)
{
    const json_t *policy = json_object_get(capacity, "requestPolicy");
    const json_t *range = json_object_get(policy, "validRange"),
                 *values = json_object_get(policy, "validValues");
    uint64_t value, preset = 0;
    if (!is_qualified(key))
        return alq_err_set(err, ALQ_EINVAL, "%.80s is not a name", key);
    int rc = read_units(capacity, "value", &value, err);
    if (rc || !policy)
        return rc;
    if (!is_shared)
        return alq_err_set(err, ALQ_EINVAL, "requestPolicy without allowMultipleAllocations");
    if (!range == !values)
        return alq_err_set(err, ALQ_EINVAL, "not one of validRange and validValues");
    rc = read_units(policy, "default", &preset, err);
    if (rc)
        return rc;
    return range ? check_range(range, value, preset, err)
                 : check_values(values, value, preset, err);
}

static int check_taints(const json_t *taints, int server_minor, struct alq_err *err)
{
    size_t i, max = server_minor < 35 ? 4 : 16;
    json_t *taint;
    if (json_array_size(taints) > max)
        return alq_err_set(err, ALQ_EINVAL, "taints: more than %zu", max);
    json_array_foreach (taints, i, taint) {
        const char *key = alq_json_str(taint, "key"), *value = alq_json_str(taint, "value"),
                   *effect = alq_json_str(taint, "effect");
        int is_effect = effect && (!strcmp(effect, "NoSchedule") || !strcmp(effect, "NoExecute") ||
                                   (!strcmp(effect, "None") && server_minor >= 35));
        if (!key || !is_label_key(key))
            return alq_err_set(err, ALQ_EINVAL, "taints[%zu].key: not a name", i);
        if (value && *value && (strchr(value, '/') || !is_label_key(value)))
            return alq_err_set(err, ALQ_EINVAL, "taints[%zu].value: not a label's value", i);
        if (!is_effect)
            return alq_err_set(err, ALQ_EINVAL, "taints[%zu].effect: not known to 1.%d", i,
                               server_minor);
    }
    return 0;
}

static int check_device(const json_t *device, int server_minor, struct alq_err *err)
{
    const char *name = alq_json_str(device, "name"), *key;
    const json_t *attributes = json_object_get(device, "attributes"),
                 *capacities = json_object_get(device, "capacity");
    int is_shared = json_is_true(json_object_get(device, "allowMultipleAllocations"));
    json_t *value;
    int rc = 0;
    if (!name || strlen(name) > 63 || !alq_is_dns_name(name, strlen(name), 0))
        return alq_err_set(err, ALQ_EINVAL, "name: not a DNS label");
    if (json_object_size(attributes) + json_object_size(capacities) > FACTS_MAX)
        return alq_err_set(err, ALQ_EINVAL, "more than %d attributes and capacities", FACTS_MAX);
    json_object_foreach ((json_t *)attributes, key, value) {
        rc = rc ? rc : check_attribute(key, value, err);
    }
    json_object_foreach ((json_t *)capacities, key, value) {
        if (!rc && (rc = check_capacity(key, value, is_shared, err)))
            alq_err_wrap(err, "capacity[%.80s]", key);
    }
    return rc ? rc : check_taints(json_object_get(device, "taints"), server_minor, err);
}

/* ---- the spec ---------------------------------------------------------------------------------
 */

static int is_named_before(const json_t *devices, size_t end, const char *name)
{
    for (size_t i = 0; i < end; i++) {
        const char *other = alq_json_str(json_array_get(devices, i), "name");
        if (other && !strcmp(other, name))
            return 1;
    }
    return 0;
}

static int check_devices(const json_t *devices, int server_minor, struct alq_err *err)
{
    size_t i, tainted = 0, count = json_array_size(devices);
    json_t *device;
    json_array_foreach (devices, i, device) {
        int rc = check_device(device, server_minor, err);
        if (!rc && is_named_before(devices, i, alq_json_str(device, "name")))
            rc = alq_err_set(err, ALQ_EINVAL, "a name that another device has");
        if (rc)
            return err ? alq_err_wrap(err, "spec.devices[%zu]", i) : rc;
        tainted += json_array_size(json_object_get(device, "taints")) != 0;
    }
    if (count > ALQ_SLICE_DEVICES_MAX || (tainted && count > DEVICES_WITH_TAINTS_MAX))
        return alq_err_set(err, ALQ_EINVAL, "spec.devices: %zu are too many", count);
    return 0;
}

int alq_slice_check(const json_t *spec, int server_minor, struct alq_err *err)
{
    static const char *const keys[] = {"driver", "nodeName", "pool", "devices", NULL};
    const json_t *generation = alq_json_at(spec, "pool.generation"),
                 *count = alq_json_at(spec, "pool.resourceSliceCount");
    if (!is_subdomain(alq_json_str(spec, "driver"), 63))
        return alq_err_set(err, ALQ_EINVAL, "spec.driver: not a DNS subdomain of 63 bytes");
    if (!is_subdomain(alq_json_str(spec, "nodeName"), 253))
        return alq_err_set(err, ALQ_EINVAL, "spec.nodeName: not a DNS subdomain");
    if (!is_subdomain(alq_json_str(spec, "pool.name"), 253))
        return alq_err_set(err, ALQ_EINVAL, "spec.pool.name: not a DNS subdomain");
    if (!json_is_integer(generation) || json_integer_value(generation) < 0)
        return alq_err_set(err, ALQ_EINVAL, "spec.pool.generation: not 0 or more");
    if (!json_is_integer(count) || json_integer_value(count) < 1)
        return alq_err_set(err, ALQ_EINVAL, "spec.pool.resourceSliceCount: not 1 or more");
    int rc = alq_json_only_keys(spec, keys, "spec", err);
    return rc ? rc : check_devices(json_object_get(spec, "devices"), server_minor, err);
}

unsigned alq_slice_keep_valid(json_t *layout, int server_minor, struct alq_err *err)
{
    unsigned removed = 0;
    for (size_t s = json_array_size(layout); s-- > 0;) {
        json_t *devices = json_array_get(layout, s);
        for (size_t i = json_array_size(devices); i-- > 0;) {
            struct alq_err why = ALQ_ERR_INIT;
            const json_t *device = json_array_get(devices, i);
            const char *name = alq_json_str(device, "name");
            if (!check_device(device, server_minor, &why))
                continue;
            alq_err_wrap(&why, "device %.64s is left out", name ? name : "?");
            if (err && !err->code)
                *err = why;
            json_array_remove(devices, i);
            removed++;
        }
        if (!json_array_size(devices))
            json_array_remove(layout, s);
    }
    return removed;
}
