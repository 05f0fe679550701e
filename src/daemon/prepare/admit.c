/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises: who gets what a GPU has left, and who has to wait, see machine.h. Loop thread only.
 *
 * A claim that finds no room waits until shortly before its deadline. Its holders are looked up at
 * once and again before it is refused. One whose claim is gone was left behind by its kubelet, or
 * its pod was removed by force and the kubelet is still ending the container (three seconds on a
 * real node): it has GRACE to be unprepared, then it is taken back.
 *
 * Claims are served in order of arrival. A later one passes an earlier that waits only if it does
 * not prolong its waiting: it, everything promised since the earlier one came, and all that wait
 * before it fit on the GPU together. So an earlier claim waits for nobody who came after it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "daemon/prepare/machine.h"
#include "daemon/prepare/room.h"
#include "daemon/state/claim_spec.h"

#define ALQ_LOG_MODULE "prepare"

#define GPUS_WAIT_NS (10000 * ALQ_NS_PER_MS)
#define FRESH_NS (1000 * ALQ_NS_PER_MS)  /* an object that is older is asked for again */
#define LOOKUP_NS (3000 * ALQ_NS_PER_MS) /* before the refusal; a lookup takes no longer */
#define GRACE_NS (5000 * ALQ_NS_PER_MS)
#define REMOVAL_NS                                                                                 \
    (1000 * ALQ_NS_PER_MS) /* until a failed one is tried again; doubles, to 64 s                  \
                            */

void alq_promise_end(struct alq_prepare *p, struct alq_claim *claim)
{
    alq_lookups_cancel(&p->lookups, claim);
    alq_claim_forget(claim);
    alq_prepare_changed(p);
}

/* ---- holders whose claims are gone ------------------------------------------------------------
 */

static void take_back(struct alq_prepare *p, struct alq_claim *claim)
{
    struct alq_claim_id id = {0};
    alq_claim_id_of(claim->spec, &id);
    claim->take_back_ns = 0;
    if (!TAILQ_EMPTY(&claim->operations))
        return; /* the kubelet has come after all */
    if (!claim->removals_failed)
        alq_warn(ALQ_LOG_KV({"uid", id.uid}),
                 "claim %s/%s is gone without an unprepare: its share is taken back", id.namespace_,
                 id.name);
    alq_unprepare_claim(p, &id, NULL, NULL);
}

int64_t alq_holders_take_back(struct alq_prepare *p)
{
    int64_t now_ns = alq_prepare_now_ns(p), next_ns = ALQ_NEVER;
    struct alq_claim *claim, *next;
    for (claim = LIST_FIRST(&p->claims.all); claim; claim = next) {
        next = LIST_NEXT(claim, link);
        if (!claim->take_back_ns)
            continue;
        if (claim->take_back_ns <= now_ns)
            take_back(p, claim);
        else if (claim->take_back_ns < next_ns)
            next_ns = claim->take_back_ns;
    }
    return next_ns;
}

void alq_holder_remove_again(struct alq_prepare *p, struct alq_claim *claim)
{
    int64_t delay_ns = REMOVAL_NS << (claim->removals_failed < 6 ? claim->removals_failed : 6);
    claim->removals_failed++;
    claim->take_back_ns = alq_prepare_now_ns(p) + delay_ns;
    alq_prepare_wake_by(p, claim->take_back_ns);
}

/* Whether somebody who needs the holder's room is about to be refused. */
static int is_urgent(const struct alq_prepare *p, const struct alq_claim *holder)
{
    const struct alq_operation *op;
    TAILQ_FOREACH(op, &p->open, open)
    if (op->is_in_line && op->is_last_chance && alq_claim_specs_meet(op->spec, holder->spec))
        return 1;
    return 0;
}

void alq_holder_on_answer(void *prepare, struct alq_claim *claim, const json_t *object)
{
    struct alq_prepare *p = prepare;
    if (claim->lookup.state == ALQ_CLAIM_PRESENT && claim->is_completed && p->watcher.prepared)
        p->watcher.prepared(p->watcher.arg, claim->spec, object);
    if (claim->lookup.state != ALQ_CLAIM_GONE)
        return;
    /* Files of another boot are no container's any more. */
    int64_t grace_ns = claim->is_completed && !is_urgent(p, claim) ? GRACE_NS : 0;
    int64_t at_ns = alq_prepare_now_ns(p) + grace_ns;
    if (!claim->take_back_ns || at_ns < claim->take_back_ns)
        claim->take_back_ns = at_ns;
    if (grace_ns)
        alq_prepare_wake_by(p, claim->take_back_ns);
    else
        take_back(p, claim);
}

static void look_up_holders(struct alq_operation *op)
{
    struct alq_prepare *p = op->prepare;
    struct alq_claim *holder, *next;
    for (holder = LIST_FIRST(&p->claims.all); holder; holder = next) {
        next = LIST_NEXT(holder, link);
        if (holder == op->claim || !holder->spec || !TAILQ_EMPTY(&holder->operations) ||
            !alq_claim_specs_meet(holder->spec, op->spec))
            continue;
        if (holder->take_back_ns && op->is_last_chance)
            take_back(p, holder);
        else if (!holder->take_back_ns)
            alq_lookups_ask(&p->lookups, holder);
    }
}

/* ---- room -------------------------------------------------------------------------------------
 */

/* since 0: all who hold something. Else those who got it since that arrival, and who waits before
 * op. */
static size_t list_holders(const struct alq_operation *op, uint64_t since,
                           struct alq_room_holder *holders)
{
    const struct alq_prepare *p = op->prepare;
    const struct alq_claim *claim;
    const struct alq_operation *other;
    size_t count = 0;
    LIST_FOREACH(claim, &p->claims.all, link)
    if (claim->spec && claim != op->claim && (!since || claim->arrival > since))
        holders[count++] =
            (struct alq_room_holder){claim->spec, alq_claim_state_remark(claim->lookup.state)};
    TAILQ_FOREACH(other, &p->open, open)
    {
        if (other->claim == op->claim)
            continue;
        if (other->has_room)
            holders[count++] = (struct alq_room_holder){other->spec, ""};
        else if (since && other->is_in_line && other->arrival < op->arrival)
            holders[count++] = (struct alq_room_holder){other->spec, "came earlier and waits too"};
    }
    return count;
}

/* The arrival of the first that waits for what op asks for too; 0: nobody does. */
static uint64_t first_in_line(const struct alq_operation *op)
{
    const struct alq_operation *other;
    TAILQ_FOREACH(other, &op->prepare->open, open)
    if (other->is_in_line && !other->has_room && other->arrival < op->arrival &&
        other->claim != op->claim && alq_claim_specs_meet(other->spec, op->spec))
        return other->arrival;
    return 0;
}

struct alq_room_holder *alq_holders_of_others(const struct alq_operation *op, size_t *count)
{
    const struct alq_operation *other;
    size_t most = op->prepare->claims.count + 1;
    TAILQ_FOREACH(other, &op->prepare->open, open)
    most++;
    struct alq_room_holder *holders = calloc(most, sizeof(*holders));
    if (holders)
        *count = list_holders(op, 0, holders);
    return holders;
}

/* ALQ_EBUSY when others hold what op asks for, or came earlier for it; who they are is looked up
 * only to be told. */
static int check_room(const struct alq_operation *op, int is_told, struct alq_err *err)
{
    struct alq_err *who = is_told ? err : NULL;
    size_t count = 0;
    alq_auto_free struct alq_room_holder *holders = alq_holders_of_others(op, &count);
    if (!holders)
        return alq_err_set(err, ALQ_ENOMEM, "out of memory");
    int rc = alq_room_check(op->spec, holders, count, who);
    uint64_t first = rc ? 0 : first_in_line(op);
    return first ? alq_room_check(op->spec, holders, list_holders(op, first, holders), who) : rc;
}

static void wait_for_room(struct alq_operation *op)
{
    int64_t again_ns = op->refuse_ns - LOOKUP_NS;
    op->is_in_line = 1;
    op->is_last_chance |= again_ns <= alq_prepare_now_ns(op->prepare);
    alq_steps_wait(op, ALQ_STEP_ROOM, op->is_last_chance ? op->refuse_ns : again_ns);
    if (op->has_asked)
        return;
    op->has_asked = 1;
    look_up_holders(op);
}

void alq_admit_on_time(struct alq_operation *op)
{
    if (alq_prepare_now_ns(op->prepare) < op->refuse_ns)
        op->has_asked = 0;
    alq_admit(op);
}

/* ---- promises ---------------------------------------------------------------------------------
 */

/* The spec of what the claim is promised, from its object and the GPUs as they are now. */
static int read_allocation(struct alq_operation *op, struct alq_err *err)
{
    const struct alq_prepare *p = op->prepare;
    if (p->no_gpus.code)
        return alq_err_set(err, ALQ_EAGAIN, "no GPUs on this node: %s", p->no_gpus.text);
    alq_claim_spec_free(alq_steal(&op->spec));
    return alq_allocation_read(op->object, &op->id, p->cfg->driver_name, p->cfg->node_name,
                               &p->gpus, op->claim->is_completed ? op->claim->spec : NULL,
                               &op->spec, err);
}

static void promise(struct alq_operation *op, int is_same)
{
    struct alq_claim *claim = op->claim;
    struct alq_claim_spec *spec = alq_claim_spec_dup(op->spec);
    if (!spec) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_err_set(&err, ALQ_ENOMEM, "out of memory");
        alq_steps_fail(op, &err);
        return;
    }
    if (is_same)
        alq_claim_spec_keep_limits(spec, claim->spec);
    alq_claim_spec_keep_limits(op->spec, spec);
    op->is_in_line = 0;
    op->has_record = is_same && claim->is_completed;
    uint64_t arrival = is_same ? claim->arrival : op->arrival;
    alq_promise_end(op->prepare, claim);
    claim->spec = spec;
    claim->arrival = arrival;
    alq_prepare_changed(op->prepare);
    alq_steps_work(op, 0);
}

/* It has waited: meanwhile its pod may have gone, or its allocation have changed. */
static void ask_again(struct alq_operation *op)
{
    op->has_room = 1;
    alq_steps_get(op);
}

void alq_admit(struct alq_operation *op)
{
    struct alq_prepare *p = op->prepare;
    const struct alq_claim *claim = op->claim;
    struct alq_err err = ALQ_ERR_INIT;
    int64_t now_ns = alq_prepare_now_ns(p);
    op->has_room = 0;
    if (!p->has_reading) {
        int64_t at_ns = now_ns + GPUS_WAIT_NS;
        alq_steps_wait(op, ALQ_STEP_GPUS, at_ns < op->refuse_ns ? at_ns : op->refuse_ns);
        return;
    }
    int rc = read_allocation(op, &err);
    int is_same = !rc && claim->spec && alq_claim_spec_equal(claim->spec, op->spec);
    if (!rc && !is_same)
        rc = check_room(op, now_ns >= op->refuse_ns, &err);
    if (rc == ALQ_EBUSY && now_ns < op->refuse_ns)
        wait_for_room(op);
    else if (rc)
        alq_steps_fail(op, &err);
    else if (now_ns - op->answered_ns > FRESH_NS)
        ask_again(op);
    else
        promise(op, is_same);
}
