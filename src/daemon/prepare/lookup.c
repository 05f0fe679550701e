/* SPDX-License-Identifier: Apache-2.0 */
/* Lookups of holders, see lookup.h. Loop thread only. */
#include "daemon/prepare/lookup.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "daemon/prepare/claims.h"

#define IN_FLIGHT_MAX 4u /* of the client's 12 connections: prepares ask too */
#define TIMEOUT_MS 3000
#define FRESH_NS (1000 * ALQ_NS_PER_MS)

static int has_results_of(const struct alq_claim_spec *promise, const json_t *results)
{
    for (uint32_t i = 0; i < promise->share_count; i++) {
        const struct alq_share_spec *s = &promise->shares[i];
        size_t at;
        json_t *result;
        int is_there = 0;
        json_array_foreach (results, at, result) {
            const char *device = alq_json_str(result, "device");
            const char *share = alq_json_str(result, "shareID");
            is_there |=
                device && !strcmp(device, s->device) && !strcmp(share ? share : "", s->share_uuid);
        }
        if (!is_there)
            return 0;
    }
    return 1;
}

enum alq_claim_state alq_claim_state_read(const struct alq_claim_spec *promise, int status,
                                          const json_t *body)
{
    if (status == 404) {
        const char *reason = alq_json_str(body, "reason"),
                   *name = alq_json_str(body, "details.name");
        return reason && name && !strcmp(reason, "NotFound") && !strcmp(name, promise->name)
                   ? ALQ_CLAIM_GONE
                   : ALQ_CLAIM_UNKNOWN;
    }
    const char *uid = alq_json_str(body, "metadata.uid");
    if (status < 200 || status >= 300 || !uid || !*uid)
        return ALQ_CLAIM_UNKNOWN;
    if (strcmp(uid, promise->uid) != 0)
        return ALQ_CLAIM_GONE;
    if (!json_is_object(alq_json_at(body, "status.allocation")))
        return ALQ_CLAIM_UNALLOCATED;
    if (!has_results_of(promise, alq_json_at(body, "status.allocation.devices.results")))
        return ALQ_CLAIM_MOVED;
    return json_array_size(alq_json_at(body, "status.reservedFor")) ? ALQ_CLAIM_PRESENT
                                                                    : ALQ_CLAIM_UNUSED;
}

const char *alq_claim_state_remark(enum alq_claim_state state)
{
    switch (state) {
    case ALQ_CLAIM_UNALLOCATED:
        return "no longer allocated";
    case ALQ_CLAIM_MOVED:
        return "allocated anew since";
    case ALQ_CLAIM_UNUSED:
        return "used by no pod";
    case ALQ_CLAIM_GONE:
        return "deleted";
    case ALQ_CLAIM_UNKNOWN:
    case ALQ_CLAIM_PRESENT:
        break;
    }
    return "";
}

static void start_next(struct alq_lookups *lookups);

static void leave_line(struct alq_lookups *lookups, struct alq_claim *claim)
{
    TAILQ_REMOVE(&lookups->line, claim, lookup.link);
    claim->lookup.is_in_line = 0;
}

static void on_answer(void *arg, int status, json_t *body, const struct alq_err *err)
{
    struct alq_claim *claim = arg;
    struct alq_lookup *l = &claim->lookup;
    struct alq_lookups *lookups = l->owner;
    (void)err; /* a server that cannot be reached, or will not say, says nothing */
    l->call = NULL;
    lookups->in_flight--;
    l->answered_ns = lookups->clock->now_ns(lookups->clock->arg);
    enum alq_claim_state state = alq_claim_state_read(claim->spec, status, body);
    if (state != ALQ_CLAIM_UNKNOWN)
        l->state = state;
    lookups->cb(lookups->arg, claim, body);
    start_next(lookups);
}

static void start_next(struct alq_lookups *lookups)
{
    struct alq_claim *claim;
    while (lookups->in_flight < IN_FLIGHT_MAX && (claim = TAILQ_FIRST(&lookups->line))) {
        struct alq_lookup *l = &claim->lookup;
        leave_line(lookups, claim);
        l->owner = lookups;
        l->call = lookups->source->get(lookups->source->arg, claim->spec->namespace_,
                                       claim->spec->name, TIMEOUT_MS, on_answer, claim, NULL);
        if (l->call)
            lookups->in_flight++;
    }
}

void alq_lookups_init(struct alq_lookups *lookups, const struct alq_claim_source *source,
                      const struct alq_clock *clock,
                      void (*cb)(void *arg, struct alq_claim *claim, const json_t *object),
                      void *arg)
{
    *lookups = (struct alq_lookups){.source = source, .clock = clock, .cb = cb, .arg = arg};
    TAILQ_INIT(&lookups->line);
}

void alq_lookups_fini(struct alq_lookups *lookups)
{
    while (!TAILQ_EMPTY(&lookups->line))
        leave_line(lookups, TAILQ_FIRST(&lookups->line));
}

void alq_lookups_ask(struct alq_lookups *lookups, struct alq_claim *claim)
{
    struct alq_lookup *l = &claim->lookup;
    if (!claim->spec || !claim->spec->name[0] || l->call || l->is_in_line ||
        (l->answered_ns && lookups->clock->now_ns(lookups->clock->arg) - l->answered_ns < FRESH_NS))
        return;
    l->is_in_line = 1;
    TAILQ_INSERT_TAIL(&lookups->line, claim, lookup.link);
    start_next(lookups);
}

void alq_lookups_cancel(struct alq_lookups *lookups, struct alq_claim *claim)
{
    struct alq_lookup *l = &claim->lookup;
    if (l->is_in_line)
        leave_line(lookups, claim);
    if (!l->call)
        return;
    lookups->source->cancel(alq_steal(&l->call));
    lookups->in_flight--;
    start_next(lookups);
}
