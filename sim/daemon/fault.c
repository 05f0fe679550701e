/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules of fault.h. A rule's place is its id less one. The page's `armed` bytes are recomputed from
 * all rules after each change: set when the rule is complete, cleared before its place is reused.
 */
#include "daemon/fault.h"

#include <fnmatch.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

/* They answer with text, so that no code can be put in its place. */
static const char *const not_codes[] = {"nvmlErrorString"};

static bool is_marked(const struct sim_fault_rule *r, enum sim_library l, uint32_t entry)
{
    return r->entries[l][entry / 64] >> entry % 64 & 1;
}

void sim_fault_arm(struct sim_server *s)
{
    /* A client that still looks at such a rule finds that it marks nothing. */
    for (uint32_t i = 0; i < SIM_FAULT_RULES; i++) {
        if (!(s->faults >> i & 1))
            memset(s->control->rule[i].entries, 0, sizeof(s->control->rule[i].entries));
    }
    for (uint32_t l = 0; l < SIM_LIBRARIES; l++) {
        for (uint32_t e = 0; e < SIM_MAX_ENTRIES; e++) {
            uint8_t rules = 0;

            for (uint32_t i = 0; i < SIM_FAULT_RULES && s->faults >> i; i++)
                rules |= is_marked(&s->control->rule[i], l, e);
            atomic_store_explicit(&s->control->armed[l][e], rules, memory_order_release);
        }
    }
}

static uint32_t mark(const struct sim_server *s, const char *glob, bool has_result,
                     struct sim_fault_rule *r)
{
    uint32_t found = 0;

    for (uint32_t l = 0; l < SIM_LIBRARIES; l++) {
        const char *name;

        for (uint32_t e = 0; (name = sim_entry_name(s->machine.profile, l, e)); e++) {
            if (!*name || fnmatch(glob, name, 0) != 0 ||
                (has_result && strcmp(name, not_codes[0]) == 0))
                continue;
            r->entries[l][e / 64] |= 1ull << e % 64;
            found++;
        }
    }
    return found;
}

static int get_number(json_t *o, const char *key, uint64_t max, uint64_t *number,
                      struct alq_err *err)
{
    json_t *value = json_object_get(o, key);

    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max)
        return alq_err_set(err, ALQ_EINVAL, "%s: give a whole number from 0 to %llu", key,
                           (unsigned long long)max);
    *number = (uint64_t)json_integer_value(value);
    return 0;
}

static int get_text(json_t *o, const char *key, char *text, size_t size, struct alq_err *err)
{
    json_t *value = json_object_get(o, key);

    if (!value)
        return 0;
    if (!json_is_string(value) || json_string_length(value) >= size)
        return alq_err_set(err, ALQ_EINVAL, "%s: give a text of at most %zu bytes", key, size - 1);
    memcpy(text, json_string_value(value), strlen(json_string_value(value)) + 1);
    return 0;
}

static int parse(const struct sim_server *s, json_t *o, struct sim_fault_rule *r,
                 struct alq_err *err)
{
    static const char *const keys[] = {"command", "entries", "result", "delay_ns", "first", "times",
                                       "pid",     "group",   "caller", "own",      NULL};
    json_t *entries = json_object_get(o, "entries"), *entry;
    uint64_t result = 0, pid = 0;
    size_t i;
    int rc;

    r->first = 1;
    r->has_result = json_object_get(o, "result") != NULL;
    r->has_group = json_object_get(o, "group") != NULL;
    if ((rc = alq_json_only_keys(o, keys, "fault", err)) ||
        (rc = get_number(o, "result", INT32_MAX, &result, err)) ||
        (rc = get_number(o, "delay_ns", 3600ull * 1000000000u, &r->delay_ns, err)) ||
        (rc = get_number(o, "first", INT64_MAX, &r->first, err)) ||
        (rc = get_number(o, "times", INT64_MAX, &r->times, err)) ||
        (rc = get_number(o, "pid", INT32_MAX, &pid, err)) ||
        (rc = get_text(o, "group", r->group, sizeof(r->group), err)) ||
        (rc = get_text(o, "caller", r->caller, sizeof(r->caller), err)) ||
        (rc = get_text(o, "own", r->own, sizeof(r->own), err)))
        return rc;
    r->result = (int32_t)result;
    r->pid = (uint32_t)pid;
    if (!r->has_result && !r->delay_ns)
        return alq_err_set(err, ALQ_EINVAL, "give a result, a delay, or both");
    if (!r->first)
        return alq_err_set(err, ALQ_EINVAL, "first: calls are counted from 1");
    if (!json_is_array(entries) || !json_array_size(entries))
        return alq_err_set(err, ALQ_EINVAL, "entries: give at least one name or glob");
    json_array_foreach (entries, i, entry) {
        const char *glob = json_string_value(entry);

        if (!glob || !mark(s, glob, r->has_result, r))
            return alq_err_set(
                err, ALQ_ENOENT, "driver %s has no entry point %s that could return a code",
                sim_profile_facts(s->machine.profile)->name, glob ? glob : "of that type");
    }
    return 0;
}

int sim_fault_add(struct sim_server *s, json_t *description, uint32_t *id, struct alq_err *err)
{
    struct sim_fault_rule rule = {0};
    uint32_t place = 0;
    int rc;

    while (place < SIM_FAULT_RULES && s->faults >> place & 1)
        place++;
    if (place == SIM_FAULT_RULES)
        return alq_err_set(err, ALQ_EBUSY, "%u rules are in force; clear some", SIM_FAULT_RULES);
    if ((rc = parse(s, description, &rule, err)) != 0)
        return rc;
    memcpy(&s->control->rule[place], &rule, sizeof(rule));
    s->faults |= 1ull << place;
    sim_fault_arm(s);
    *id = place + 1;
    return 0;
}

int sim_fault_clear(struct sim_server *s, uint32_t id, struct alq_err *err)
{
    if (id > SIM_FAULT_RULES || (id && !(s->faults >> (id - 1) & 1)))
        return alq_err_set(err, ALQ_ENOENT, "no fault %u is in force; \"simctl faults\" lists them",
                           id);
    s->faults &= id ? ~(1ull << (id - 1)) : 0;
    sim_fault_arm(s);
    return 0;
}

static json_t *rule_entry(const struct sim_server *s, uint32_t place)
{
    struct sim_fault_rule *r = &s->control->rule[place];
    json_t *entries = json_array();
    json_t *o = json_pack(
        "{s:i,s:o,s:I,s:I,s:I,s:I,s:I}", "id", (int)place + 1, "entries", entries, "delay_ns",
        (json_int_t)r->delay_ns, "first", (json_int_t)r->first, "times", (json_int_t)r->times,
        "calls", (json_int_t)atomic_load(&r->calls), "fired", (json_int_t)atomic_load(&r->fired));
    const char *name;

    for (uint32_t l = 0; l < SIM_LIBRARIES; l++) {
        for (uint32_t e = 0; (name = sim_entry_name(s->machine.profile, l, e)); e++) {
            if (is_marked(r, l, e))
                json_array_append_new(entries, json_string(name));
        }
    }
    if (r->has_result)
        json_object_set_new(o, "result", json_integer(r->result));
    if (r->pid)
        json_object_set_new(o, "pid", json_integer(r->pid));
    if (r->has_group)
        json_object_set_new(o, "group", json_string(r->group));
    if (*r->caller)
        json_object_set_new(o, "caller", json_string(r->caller));
    if (*r->own)
        json_object_set_new(o, "own", json_string(r->own));
    return o;
}

json_t *sim_fault_list(const struct sim_server *s)
{
    json_t *all = json_array();

    for (uint32_t i = 0; i < SIM_FAULT_RULES; i++) {
        if (s->faults >> i & 1)
            json_array_append_new(all, rule_entry(s, i));
    }
    return all;
}
