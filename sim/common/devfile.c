/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parser of devfile.h on jansson. Every derived default is here. No state; any thread.
 */
#include "common/devfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "base/quantity.h"

#define FILE_MAX_BYTES (1u << 20)
#define MIB (1ull << 20)
#define MEMORY_MIN_BYTES (64 * MIB)
#define MEMORY_MAX_BYTES (1ull << 41)

static const struct sim_profile_facts profiles[SIM_PROFILES] = {
    [SIM_PROFILE_535] = {"535", "535.261.03", 12020},
    [SIM_PROFILE_550] = {"550", "550.163.01", 12040},
    [SIM_PROFILE_13_0] = {"13.0", "580.65.06", 13000},
};

const struct sim_profile_facts *sim_profile_facts(enum sim_profile profile)
{
    return &profiles[profile];
}

/* SM count and compute capability by what the product name holds. */
static const struct {
    const char *in_name;
    uint32_t sms, cc_major, cc_minor;
} products[] = {
    {"B200", 148, 10, 0}, {"H200", 132, 9, 0}, {"H100", 132, 9, 0}, {"L40", 142, 8, 9},
    {"L4", 58, 8, 9},     {"A100", 108, 8, 0}, {"A10", 72, 8, 6},   {"A30", 56, 8, 0},
    {"4090", 128, 8, 9},  {"3090", 82, 8, 6},  {"T4", 40, 7, 5},    {"V100", 80, 7, 0},
};

static int bad(struct alq_err *err, const char *where, const char *key, const char *remedy)
{
    return alq_err_set(err, ALQ_EINVAL, "%s.%s: %s", where, key, remedy);
}

/* Bytes: a number, or a quantity as text. */
static int get_bytes(json_t *object, const char *where, const char *key, uint64_t *bytes,
                     struct alq_err *err)
{
    json_t *value = json_object_get(object, key);

    if (!value)
        return 0;
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        *bytes = (uint64_t)json_integer_value(value);
        return 0;
    }
    if (json_is_string(value)) {
        struct alq_quantity q;
        const char *text = json_string_value(value);
        int rc = alq_quantity_parse(text, strlen(text), &q, err);

        if (rc == 0)
            rc = alq_quantity_to_u64(q, bytes, err);
        return rc ? alq_err_wrap(err, "%s.%s", where, key) : 0;
    }
    return bad(err, where, key, "give bytes as a number or a quantity such as \"80Gi\"");
}

static int get_number(json_t *object, const char *where, const char *key, uint32_t max,
                      uint32_t *number, struct alq_err *err)
{
    json_t *value = json_object_get(object, key);
    json_int_t n;

    if (!value)
        return 0;
    n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || n > max)
        return alq_err_set(err, ALQ_EINVAL, "%s.%s: give a whole number from 0 to %u", where, key,
                           max);
    *number = (uint32_t)n;
    return 0;
}

static int get_switch(json_t *object, const char *where, const char *key, uint32_t *is_on,
                      struct alq_err *err)
{
    json_t *value = json_object_get(object, key);

    if (value && !json_is_boolean(value))
        return bad(err, where, key, "give true or false");
    *is_on = json_is_true(value);
    return 0;
}

static int get_text(json_t *object, const char *where, const char *key, char *text, size_t size,
                    struct alq_err *err)
{
    json_t *value = json_object_get(object, key);

    if (!value)
        return 0;
    if (!json_is_string(value) || !*json_string_value(value) || json_string_length(value) >= size ||
        strlen(json_string_value(value)) >= size)
        return alq_err_set(err, ALQ_EINVAL, "%s.%s: give a text of 1 to %zu bytes", where, key,
                           size - 1);
    snprintf(text, size, "%s", json_string_value(value));
    return 0;
}

/* The same UUID for the same position and name, of version 4's form. */
static void default_uuid(struct sim_device_info *d)
{
    uint64_t hash = 1469598103934665603ull ^ d->index;

    for (size_t i = 0; i < sizeof(d->uuid_bytes); i++) {
        for (const char *c = d->name; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211ull;
        hash = (hash ^ (i + 1)) * 1099511628211ull;
        d->uuid_bytes[i] = (unsigned char)(hash >> 40);
    }
    d->uuid_bytes[6] = (unsigned char)((d->uuid_bytes[6] & 0x0f) | 0x40);
    d->uuid_bytes[8] = (unsigned char)((d->uuid_bytes[8] & 0x3f) | 0x80);
}

static void format_uuid(struct sim_device_info *d)
{
    const unsigned char *b = d->uuid_bytes;

    snprintf(d->uuid, sizeof(d->uuid),
             "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

static int get_uuid(json_t *object, const char *where, struct sim_device_info *d,
                    struct alq_err *err)
{
    char text[48] = "";
    unsigned int b[16];
    int used = 0, rc = get_text(object, where, "uuid", text, sizeof(text), err);

    if (rc)
        return rc;
    if (!*text) {
        default_uuid(d);
    } else {
        if (sscanf(text, "GPU-%2x%2x%2x%2x-%2x%2x-%2x%2x-%2x%2x-%2x%2x%2x%2x%2x%2x%n", &b[0], &b[1],
                   &b[2], &b[3], &b[4], &b[5], &b[6], &b[7], &b[8], &b[9], &b[10], &b[11], &b[12],
                   &b[13], &b[14], &b[15], &used) != 16 ||
            used != 40 || strlen(text) != 40)
            return bad(err, where, "uuid",
                       "give \"GPU-\" and a UUID, such as "
                       "\"GPU-00000000-0000-4000-8000-000000000001\"");
        for (size_t i = 0; i < 16; i++)
            d->uuid_bytes[i] = (unsigned char)b[i];
    }
    format_uuid(d);
    return 0;
}

static int get_pci(json_t *object, const char *where, struct sim_device_info *d,
                   struct alq_err *err)
{
    char text[32] = "";
    unsigned int domain, bus, device, function;
    int used = 0, rc = get_text(object, where, "pci", text, sizeof(text), err);

    d->pci_bus = d->index < 30 ? 0x10 + d->index * 8 : 0x14 + (d->index - 30) * 8;
    d->pci_domain = d->pci_device = 0;
    if (rc || !*text)
        return rc;
    if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) != 4 ||
        text[used] || domain > 0xffff || device > 0x1f || function != 0)
        return bad(err, where, "pci", "give domain:bus:device.0, such as \"0000:65:00.0\"");
    d->pci_domain = domain;
    d->pci_bus = bus;
    d->pci_device = device;
    return 0;
}

static int get_profile(json_t *object, const char *where, struct sim_device_info *d,
                       struct alq_err *err)
{
    char text[16];
    int rc;

    snprintf(text, sizeof(text), "%s", profiles[d->profile].name);
    rc = get_text(object, where, "profile", text, sizeof(text), err);

    if (rc)
        return rc;
    for (uint32_t i = 0; i < SIM_PROFILES; i++) {
        if (strcmp(text, profiles[i].name) == 0) {
            d->profile = i;
            return 0;
        }
    }
    return bad(err, where, "profile", "give \"535\", \"550\" or \"13.0\"");
}

static int get_capability(json_t *object, const char *where, struct sim_device_info *d,
                          struct alq_err *err)
{
    char text[8] = "";
    unsigned int major, minor;
    int used = 0, rc = get_text(object, where, "computeCapability", text, sizeof(text), err);

    if (rc || !*text)
        return rc;
    if (sscanf(text, "%2u.%1u%n", &major, &minor, &used) != 2 || text[used] || major < 3)
        return bad(err, where, "computeCapability", "give major.minor, such as \"9.0\"");
    d->cc_major = major;
    d->cc_minor = minor;
    return 0;
}

static int parse_memory(json_t *object, const char *where, struct sim_device_info *d,
                        struct alq_err *err)
{
    int rc = get_bytes(object, where, "memory", &d->total_bytes, err);

    if (rc)
        return rc;
    if (!json_object_get(object, "memory"))
        return bad(err, where, "memory", "is missing; give the card's memory, such as \"80Gi\"");
    if (d->total_bytes < MEMORY_MIN_BYTES || d->total_bytes > MEMORY_MAX_BYTES ||
        d->total_bytes % SIM_UNIT_BYTES)
        return bad(err, where, "memory", "give a multiple of 512 bytes from 64Mi to 2Ti");
    d->reserved_bytes = d->total_bytes / 160 / MIB * MIB;
    d->context_bytes = 64 * MIB + d->sms * MIB * 7 / 4;
    if (d->context_bytes > d->total_bytes / 8)
        d->context_bytes = d->total_bytes / 8;
    d->module_bytes = 2 * MIB;
    if ((rc = get_bytes(object, where, "reservedBytes", &d->reserved_bytes, err)) ||
        (rc = get_bytes(object, where, "contextBytes", &d->context_bytes, err)) ||
        (rc = get_bytes(object, where, "moduleBytes", &d->module_bytes, err)))
        return rc;
    d->reserved_bytes = (d->reserved_bytes + 511) / 512 * 512;
    d->context_bytes = (d->context_bytes + 511) / 512 * 512;
    d->module_bytes = (d->module_bytes + 511) / 512 * 512;
    if (d->reserved_bytes >= d->total_bytes / 2)
        return bad(err, where, "reservedBytes", "give less than half of memory");
    if (d->context_bytes >= d->total_bytes / 2)
        return bad(err, where, "contextBytes", "give less than half of memory");
    if (d->module_bytes >= d->total_bytes / 2)
        return bad(err, where, "moduleBytes", "give less than half of memory");
    return 0;
}

static int parse_device(json_t *object, const char *where, struct sim_device_info *d,
                        struct alq_err *err)
{
    static const char *const keys[] = {"name",          "memory",
                                       "sms",           "uuid",
                                       "minor",         "pci",
                                       "profile",       "serial",
                                       "reservedBytes", "contextBytes",
                                       "moduleBytes",   "numaNode",
                                       "copyEngines",   "computeCapability",
                                       "mig",           NULL};
    int rc;

    if (!json_is_object(object))
        return alq_err_set(err, ALQ_EINVAL, "%s: give an object with name and memory", where);
    if ((rc = alq_json_only_keys(object, keys, where, err)))
        return rc;
    snprintf(d->name, sizeof(d->name), "%s", "NVIDIA H100 80GB HBM3");
    snprintf(d->serial, sizeof(d->serial), "%013u", 1320000001u + d->index);
    d->minor = d->index;
    d->sms = 132;
    d->cc_major = 9;
    d->copy_engines = 3;
    if ((rc = get_text(object, where, "name", d->name, sizeof(d->name), err)))
        return rc;
    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        if (strstr(d->name, products[i].in_name)) {
            d->sms = products[i].sms;
            d->cc_major = products[i].cc_major;
            d->cc_minor = products[i].cc_minor;
            break;
        }
    }
    if ((rc = get_number(object, where, "sms", 1024, &d->sms, err)) ||
        (rc = get_number(object, where, "minor", 1023, &d->minor, err)) ||
        (rc = get_number(object, where, "numaNode", 255, &d->numa_node, err)) ||
        (rc = get_number(object, where, "copyEngines", 16, &d->copy_engines, err)) ||
        (rc = get_text(object, where, "serial", d->serial, 30, err)) ||
        (rc = get_uuid(object, where, d, err)) || (rc = get_pci(object, where, d, err)) ||
        (rc = get_profile(object, where, d, err)) || (rc = get_capability(object, where, d, err)) ||
        (rc = get_switch(object, where, "mig", &d->mig, err)) ||
        (rc = parse_memory(object, where, d, err)))
        return rc;
    if (d->mig && (d->cc_major < 8 || d->cc_minor != 0))
        return bad(err, where, "mig", "is for cards of compute capability 8.0, 9.0 and 10.0");
    if (!d->copy_engines)
        return bad(err, where, "copyEngines", "give at least 1");
    return d->sms ? 0 : bad(err, where, "sms", "give at least 1");
}

/* Two devices may not share what names them. */
static int check_distinct(const struct sim_machine *m, struct alq_err *err)
{
    for (uint32_t i = 0; i < m->device_count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            if ((m->absent >> i | m->absent >> k) & 1)
                continue;
            const struct sim_device_info *a = &m->device[k], *b = &m->device[i];
            const char *key = NULL;

            if (a->minor == b->minor)
                key = "minor";
            else if (strcmp(a->uuid, b->uuid) == 0)
                key = "uuid";
            else if (strcmp(a->serial, b->serial) == 0)
                key = "serial";
            else if (a->pci_domain == b->pci_domain && a->pci_bus == b->pci_bus &&
                     a->pci_device == b->pci_device)
                key = "pci";
            if (key)
                return alq_err_set(err, ALQ_EINVAL,
                                   "devices[%u].%s: the same as devices[%u]'s; give each its own",
                                   i, key, k);
            if (a->profile != b->profile)
                return alq_err_set(err, ALQ_EINVAL,
                                   "devices[%u].profile: differs from devices[%u]'s; a machine has "
                                   "one driver",
                                   i, k);
        }
    }
    return 0;
}

/* Microseconds, from 0 to 1,000 s; -1 when the key is not there. */
static int get_us(json_t *object, const char *where, const char *key, double *us,
                  struct alq_err *err)
{
    json_t *value = json_object_get(object, key);

    *us = json_number_value(value);
    if (!value)
        *us = -1;
    else if (!json_is_number(value) || *us < 0 || *us > 1e9)
        return bad(err, where, key, "give microseconds from 0 to 1000000000");
    return 0;
}

static int parse_rule(json_t *object, const char *where, struct sim_kernel_rule *rule,
                      struct alq_err *err)
{
    static const char *const keys[] = {"name", "us", "waveUs", NULL};
    double us, wave_us;
    int rc;

    if (!json_is_object(object))
        return alq_err_set(err, ALQ_EINVAL, "%s: give an object with name and us or waveUs", where);
    if ((rc = alq_json_only_keys(object, keys, where, err)) ||
        (rc = get_text(object, where, "name", rule->name, sizeof(rule->name), err)) ||
        (rc = get_us(object, where, "us", &us, err)) ||
        (rc = get_us(object, where, "waveUs", &wave_us, err)))
        return rc;
    if (!*rule->name)
        return bad(err, where, "name",
                   "is missing; give a kernel's name or a pattern like \"gemm*\"");
    if ((us < 0) == (wave_us < 0))
        return bad(err, where, "us", "give one of us (a kernel) and waveUs (a wave of its blocks)");
    rule->is_wave = us < 0;
    rule->duration_ns = (uint64_t)((us < 0 ? wave_us : us) * 1000 + 0.5);
    return 0;
}

static int parse_rules(json_t *rules, struct sim_machine *m, struct alq_err *err)
{
    char where[32];

    if (!rules)
        return 0;
    if (!json_is_array(rules) || json_array_size(rules) > SIM_KERNEL_RULES)
        return alq_err_set(err, ALQ_EINVAL, "kernels: give a list of at most %u rules",
                           SIM_KERNEL_RULES);
    for (size_t i = 0; i < json_array_size(rules); i++) {
        snprintf(where, sizeof(where), "kernels[%zu]", i);
        int rc = parse_rule(json_array_get(rules, i), where, &m->rule[i], err);
        if (rc)
            return rc;
    }
    return 0;
}

static int parse_root(json_t *root, struct sim_machine *m, struct alq_err *err)
{
    static const char *const keys[] = {"devices", "kernels", NULL};
    json_t *devices = json_object_get(root, "devices");
    int rc;

    if (!json_is_object(root))
        return alq_err_set(err, ALQ_EINVAL, "give an object {\"devices\": [...]}");
    if ((rc = alq_json_only_keys(root, keys, "the file", err)))
        return rc;
    if (!json_is_array(devices) || json_array_size(devices) > SIM_MAX_DEVICES)
        return alq_err_set(err, ALQ_EINVAL, "devices: give a list of at most %u devices",
                           SIM_MAX_DEVICES);
    m->device_count = (uint32_t)json_array_size(devices);
    for (uint32_t i = 0; i < m->device_count; i++) {
        char where[32];

        snprintf(where, sizeof(where), "devices[%u]", i);
        m->device[i].index = i;
        m->device[i].profile = SIM_PROFILE_550;
        if ((rc = parse_device(json_array_get(devices, i), where, &m->device[i], err)))
            return rc;
    }
    if ((rc = check_distinct(m, err)) ||
        (rc = parse_rules(json_object_get(root, "kernels"), m, err)))
        return rc;
    m->profile = m->device_count ? (enum sim_profile)m->device[0].profile : SIM_PROFILE_550;
    return 0;
}

int sim_machine_place(struct sim_machine *m, json_t *description, uint32_t place,
                      struct alq_err *err)
{
    struct sim_machine with = *m;
    int rc;

    with.device[place] = (struct sim_device_info){.index = place, .profile = m->profile};
    with.absent &= ~(1u << place);
    if (place == m->device_count)
        with.device_count++;
    if ((rc = parse_device(description, "device", &with.device[place], err)) != 0)
        return rc;
    if (with.device[place].profile != (uint32_t)m->profile)
        return alq_err_set(err, ALQ_EINVAL, "device.profile: the machine's driver is %s",
                           profiles[m->profile].name);
    if ((rc = check_distinct(&with, err)) != 0)
        return rc;
    *m = with;
    return 0;
}

int sim_machine_parse(const char *text, size_t len, const char *what, struct sim_machine *machine,
                      struct alq_err *err)
{
    alq_auto_json json_t *root = NULL;
    int rc = alq_json_parse(text, len, what, &root, err);

    if (rc)
        return rc;
    memset(machine, 0, sizeof(*machine));
    rc = parse_root(root, machine, err);
    return rc ? alq_err_wrap(err, "%s", what) : 0;
}

int sim_machine_read(const char *path, struct sim_machine *machine, struct alq_err *err)
{
    alq_auto_free char *text = NULL;
    size_t len;
    int rc = alq_file_read(path, FILE_MAX_BYTES, &text, &len, err);

    return rc ? rc : sim_machine_parse(text, len, path, machine, err);
}
