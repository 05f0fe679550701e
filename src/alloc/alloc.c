/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One allocation from input to output: inventory, what is in use, requests, search, result. Owns
 * the arena that all of them share for the length of a call.
 */
#include "alloc/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/node.h"
#include "alloc/result.h"
#include "alloc/search.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"

#define ARENA_MAX_BYTES ((size_t)256 * 1024 * 1024)
#define NEWEST_UNSORTED_MINOR 35 /* up to here the scheduler took slices in no fixed order */

struct state {
    struct alq_arena arena;
    struct alq_inventory inventory;
    struct alq_request_set set;
    struct alq_search search;
};

static json_t *allocation_of(json_t *claim)
{
    json_t *a = alq_json_at(claim, "status.allocation");

    return json_is_object(a) ? a : NULL;
}

static bool has_uid(json_t *claims, const char *uid)
{
    json_t *c;
    size_t i;

    json_array_foreach (claims, i, c) {
        const char *u = alq_json_str(c, "metadata.uid");
        if (u && uid && !strcmp(u, uid) && allocation_of(c))
            return true;
    }
    return false;
}

static const char *claim_name(json_t *claim)
{
    const char *name = alq_json_str(claim, "metadata.name");

    return name ? name : "(no name)";
}

static int take_allocated(struct state *st, const struct alq_alloc_input *in, struct alq_err *err)
{
    json_t *c;
    size_t i;

    json_array_foreach (in->allocated, i, c) {
        int rc = allocation_of(c) ? alq_inventory_take(&st->inventory, allocation_of(c), err) : 0;
        if (rc)
            return alq_err_wrap(err, "claim %s", claim_name(c));
    }
    json_array_foreach (in->claims, i, c) {
        int rc = 0;
        if (allocation_of(c) && !has_uid(in->allocated, alq_json_str(c, "metadata.uid")))
            rc = alq_inventory_take(&st->inventory, allocation_of(c), err);
        if (rc)
            return alq_err_wrap(err, "claim %s", claim_name(c));
    }
    return 0;
}

/* Reads the claims; those that are allocated already must be usable from the node. ALQ_EAGAIN: one
 * is not. */
static int read_claims(struct state *st, const struct alq_alloc_input *in, struct alq_err *err)
{
    json_t *c;
    size_t i;

    json_array_foreach (in->claims, i, c) {
        json_t *a = allocation_of(c), *selector = json_object_get(a, "nodeSelector");
        bool matches = true;
        int rc;
        if (!a)
            rc = alq_request_set_add(&st->set, c, in->classes, err);
        else
            rc = selector ? alq_node_selector_matches(selector, in->node, &matches, err) : 0;
        if (rc)
            return rc;
        if (!matches)
            return alq_err_set(err, ALQ_EAGAIN, "claim %s is allocated on another node",
                               claim_name(c));
    }
    return 0;
}

static void say(char **text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends to a malloc'ed text; on lack of memory it stays as it is. */
static void say(char **text, const char *fmt, ...)
{
    alq_auto_free char *more = NULL;
    va_list ap;

    va_start(ap, fmt);
    if (vasprintf(&more, fmt, ap) < 0)
        more = NULL;
    va_end(ap);
    char *both = more ? alq_str_printf("%s%s", *text, more) : NULL;
    if (!both)
        return;
    free(*text);
    *text = both;
}

static void say_count(char **text, int *is_first, size_t count, const char *what)
{
    if (!count)
        return;
    say(text, "%s%zu %s", *is_first ? "" : ", ", count, what);
    *is_first = 0;
}

/* A sentence about the request that could not be satisfied, with the scheduler's own words in
 * front. */
static char *explain(const struct state *st, const struct alq_alloc_input *in)
{
    const struct alq_misfits *m = &st->search.misfits;
    const char *node = alq_json_str(in->node, "metadata.name");
    char *text = strdup("cannot allocate all claims");
    int is_first = 1;

    if (!text || !m->claim)
        return text;
    say(&text, ": claim %s, request %s: ", m->claim->label, m->option->name);
    if (!m->seen) {
        say(&text, "%s on node %s", m->depth ? "no further device" : "no device",
            node ? node : "(no name)");
    } else {
        say(&text, "%s of %zu device%s on node %s fit%s (", m->option->is_all ? "not all" : "none",
            m->seen, m->seen == 1 ? "" : "s", node ? node : "(no name)",
            m->option->is_all ? "" : "s");
        say_count(&text, &is_first, m->unselected, "not selected");
        say_count(&text, &is_first, m->in_use, "in use");
        say_count(&text, &is_first, m->too_small, "that cannot give the amount asked");
        if (m->lacking_size)
            say(&text, " of %s", m->lacking_size);
        say_count(&text, &is_first, m->no_room, "without room");
        if (m->lacking_room)
            say(&text, " for %s", m->lacking_room);
        say_count(&text, &is_first, m->tainted, "tainted");
        say_count(&text, &is_first, m->constrained, "against a constraint");
        say_count(&text, &is_first, m->unsupported, "with counters or binding conditions");
        size_t rest = m->seen - m->unselected - m->in_use - m->too_small - m->no_room - m->tainted -
                      m->constrained - m->unsupported;
        say_count(&text, &is_first, rest, "needed by another request");
        say(&text, ")");
    }
    for (size_t i = 0; i < st->inventory.pool_count; i++) {
        const struct alq_pool *p = &st->inventory.pools[i];
        if (p->is_incomplete)
            say(&text, "; pool %s of %s is incomplete: %zu of %zu slices", p->name, p->driver,
                p->slice_count, p->wanted_count);
        else if (p->is_invalid)
            say(&text, "; pool %s of %s is invalid: a device name occurs twice", p->name,
                p->driver);
    }
    return text;
}

static int write_results(const struct state *st, const struct alq_alloc_input *in, json_t **out,
                         struct alq_err *err)
{
    alq_auto_json json_t *all = json_object();

    if (!all)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    for (size_t i = 0; i < st->set.claim_count; i++) {
        const struct alq_claim *claim = &st->set.claims[i];
        json_t *allocation = NULL;
        int rc = alq_result_new(claim, &st->search.choices[i],
                                alq_json_str(in->node, "metadata.name"), in->now, &allocation, err);
        if (rc)
            return alq_err_wrap(err, "claim %s", claim->label);
        if (json_object_set_new(all, claim->uid, allocation))
            return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    }
    *out = json_incref(all);
    return 0;
}

static int run(struct state *st, const struct alq_alloc_input *in, json_t **allocations,
               char **reason, struct alq_err *err)
{
    bool is_sorted = !in->server_minor || in->server_minor > NEWEST_UNSORTED_MINOR, found = false;
    int rc;

    st->search = (struct alq_search){
        .inventory = &st->inventory, .set = &st->set, .server_minor = in->server_minor};
    rc = alq_inventory_init(&st->inventory, in->slices, in->node, is_sorted, &st->arena, err);
    if (!rc)
        rc = take_allocated(st, in, err);
    if (!rc)
        rc = read_claims(st, in, err);
    if (!rc)
        rc = alq_search_run(&st->search, &found, err);
    if (rc == ALQ_ENOENT || rc == ALQ_EAGAIN)
        *reason = strdup(err->text);
    else if (!rc && !found)
        *reason = explain(st, in);
    else
        return rc ? rc : write_results(st, in, allocations, err);
    *err = (struct alq_err)ALQ_ERR_INIT;
    return *reason ? 0 : alq_err_set(err, ALQ_ENOMEM, "out of memory");
}

int alq_alloc(const struct alq_alloc_input *in, json_t **allocations, char **reason,
              struct alq_err *err)
{
    struct alq_err own = ALQ_ERR_INIT;
    struct state *st;
    int rc;

    if (!alq_json_str(in->node, "metadata.name"))
        return alq_err_set(err, ALQ_EPROTO, "the node has no name");
    st = calloc(1, sizeof(*st));
    if (!st)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    st->arena = alq_arena_init(ARENA_MAX_BYTES);
    st->set.arena = &st->arena;
    *allocations = NULL;
    *reason = NULL;
    rc = run(st, in, allocations, reason, &own);
    if (rc)
        alq_err_set(err, own.code, "%s", own.text);
    alq_request_set_fini(&st->set);
    alq_inventory_fini(&st->inventory);
    alq_arena_fini(&st->arena);
    free(st);
    return rc;
}

int alq_alloc_server_minor(const char *version, unsigned *minor, struct alq_err *err)
{
    const char *p = version;
    char *end;

    *minor = 0;
    if (!p || !*p)
        return 0;
    if (*p == 'v')
        p++;
    if (strncmp(p, "1.", 2) || p[2] < '0' || p[2] > '9')
        return alq_err_set(err, ALQ_EINVAL, "server version \"%.40s\" is not like 1.34", version);
    unsigned long n = strtoul(p + 2, &end, 10);
    if (n < 1 || n > 999 || (*end && *end != '.' && *end != '+'))
        return alq_err_set(err, ALQ_EINVAL, "server version \"%.40s\" is not like 1.34", version);
    *minor = (unsigned)n;
    return 0;
}
