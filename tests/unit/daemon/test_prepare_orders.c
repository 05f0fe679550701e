/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contract 6 against every order of events: all sequences of six for one claim, and long random
 * ones for several that compete for a GPU. The oracle goes through a claim's calls in order of
 * arrival and says what must have become of each, and what must be on disk in the end.
 * PREPARE_ORDERS_SEED sets the seed of the random ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "prepare_world.h"

#define DEADLINE (45 * SECOND)
#define CLAIMS 6

enum event {
    EVENT_PREPARE,
    EVENT_UNPREPARE,
    EVENT_ANSWER, /* the oldest GET, with the object as it is now */
    EVENT_REFUSE, /* the oldest GET, with a 500 */
    EVENT_WORK,
    EVENT_WORK_FAILS,
    EVENT_TIME, /* 44 s: GETs and deadlines run out */
    EVENT_REALLOCATE,
    EVENTS
};

/* What the test has seen of a call from outside. */
struct seen {
    int is_cancelled;         /* an Unprepare of the claim came while it was open */
    int has_worked;           /* its job ended well */
    int has_failed_work;      /* its job failed */
    int has_repaired;         /* its job was a repair of what was there */
    unsigned cores;           /* of the object that answered its GET */
    uint64_t get;             /* that GET's number */
    unsigned ended_before_it; /* answers given when its GET was sent */
};

static struct seen seen[WORLD_CALLS];
static unsigned taken_back_at[WORLD_CLAIMS]; /* by the daemon itself, before that call; 0: never */
static int is_removal_owed[WORLD_CLAIMS];    /* one has failed since it was last prepared */
static char trace[1024];

static void note(const char *what, unsigned n)
{
    size_t used = strlen(trace);
    snprintf(trace + used, sizeof(trace) - used, " %s%u", what, n);
}

#define check(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("%s, after%s", #condition, trace);                                            \
    } while (0)

static struct seen *seen_of(const struct world_call *call)
{
    return &seen[call - world.calls];
}

static void prepare(unsigned n)
{
    note("P", n);
    world_prepare(n, DEADLINE);
}

static void unprepare(unsigned n)
{
    note("U", n);
    for (unsigned i = 0; i < world.call_count; i++)
        if (world.calls[i].n == n && world.calls[i].is_prepare && !world.calls[i].answers)
            seen[i].is_cancelled = 1;
    world_unprepare(n);
}

/* The call that an operation or a GET belongs to; NULL: the daemon's own. */
static struct world_call *call_of(const void *arg)
{
    const char *p = arg, *first = (const char *)world.calls;
    return p >= first && p < first + sizeof(world.calls) ? (struct world_call *)arg : NULL;
}

static void answer(unsigned i, int status)
{
    struct world_get get = world.gets[i];
    /* A lookup's argument is a claim, a Prepare's an operation: which, its claim's head tells. */
    const struct alq_operation *op;
    struct world_call *call = NULL;
    TAILQ_FOREACH(op, &world.prepare->open, open)
    if (op == get.arg)
        call = call_of(op->arg);
    note(status ? "E" : call ? "G" : "L", get.n);
    if (call) {
        check(get.number >= call->get); /* asked for after the call had come */
        seen_of(call)->cores =
            status || !world.objects[get.n].exists ? 0 : world.objects[get.n].cores;
        seen_of(call)->get = get.number;
    }
    int was = world.objects[get.n].status;
    world.objects[get.n].status = status;
    /* Keep the status over the callback only. */
    world_answer(i);
    world.objects[get.n].status = was;
}

/* The first call of the claim that is not answered; their number when all are. */
static unsigned first_open(unsigned n)
{
    for (unsigned i = 0; i < world.call_count; i++)
        if (world.calls[i].n == n && !world.calls[i].answers)
            return i;
    return world.call_count;
}

static void work(unsigned i, int fails)
{
    struct alq_operation *op = world.jobs[i];
    struct world_call *call = op->cb ? call_of(op->arg) : NULL;
    note(fails ? "F" : "W", (unsigned)(op->claim->uid[1] - '0'));
    if (call) {
        seen_of(call)->has_worked = !fails;
        seen_of(call)->has_failed_work = fails;
        seen_of(call)->has_repaired = op->has_record;
    }
    if (!call && op->is_removal) {
        unsigned n = (unsigned)(op->claim->uid[1] - '0');
        /* Only of a claim that is gone, or whose files the kubelet wanted to be gone. */
        check(!world.objects[n].exists || is_removal_owed[n]);
        if (!fails)
            taken_back_at[n] = first_open(n);
    }
    if (op->is_removal || !fails)
        is_removal_owed[op->claim->uid[1] - '0'] = op->is_removal && fails;
    world_work(i, fails);
}

/* Goes through the claim's calls and says what must be. */
static void judge(unsigned n)
{
    unsigned cores = 0; /* that the claim is promised; 0: nothing */
    int last_order = 0;
    for (unsigned i = 0; i < world.call_count; i++) {
        const struct world_call *call = &world.calls[i];
        const struct seen *s = &seen[i];
        if (taken_back_at[n] && i == taken_back_at[n])
            cores = 0;
        if (call->n != n)
            continue;
        check(call->answers == 1);
        if (!call->code) {
            check(call->order > last_order); /* those that took effect did so in order of arrival */
            last_order = call->order;
        }
        if (!call->is_prepare) {
            check(s->has_failed_work == (call->code != 0));
            cores = call->code ? cores : 0;
            continue;
        }
        if (s->is_cancelled)
            check(call->code == ALQ_ECANCELED && strstr(call->text, "cancelled by a later"));
        if (!call->code) {
            check(!s->is_cancelled && !s->has_failed_work);
            check(s->cores && call->cores == s->cores); /* as its own GET said */
        }
        if (s->has_worked)
            cores = s->cores; /* when cancelled, until the Unprepare's job */
        else if (s->has_failed_work && !s->has_repaired)
            cores = 0;
        check(call->code != ALQ_EIO || s->has_failed_work);
    }
    if (taken_back_at[n] == world.call_count)
        cores = 0;
    check(world.files[n].is_made == (cores != 0));
    check(world.files[n].cores == cores);
}

static void begin(void)
{
    memset(seen, 0, sizeof(seen));
    memset(taken_back_at, 0, sizeof(taken_back_at));
    memset(is_removal_owed, 0, sizeof(is_removal_owed));
    trace[0] = '\0';
    world_start();
}

static void drain(void)
{
    for (int turn = 0; turn < 3; turn++) {
        while (world.get_count || world.job_count) {
            if (world.job_count)
                work(0, 0);
            else
                answer(0, 0);
        }
        world_advance(DEADLINE);
    }
}

static void happen(enum event event)
{
    switch (event) {
    case EVENT_PREPARE:
        prepare(0);
        break;
    case EVENT_UNPREPARE:
        unprepare(0);
        break;
    case EVENT_ANSWER:
    case EVENT_REFUSE:
        if (world.get_count)
            answer(0, event == EVENT_REFUSE ? 500 : 0);
        break;
    case EVENT_WORK:
    case EVENT_WORK_FAILS:
        if (world.job_count)
            work(0, event == EVENT_WORK_FAILS);
        break;
    case EVENT_TIME:
        note("T", 0);
        world_advance(44 * SECOND);
        break;
    case EVENT_REALLOCATE:
        note("R", 0);
        world.objects[0].cores++;
        world.objects[0].share += 1000;
        break;
    case EVENTS:
        break;
    }
}

/* Whether the event does anything now: a sequence with an idle event is another, shorter one. */
static int is_idle(enum event event)
{
    return ((event == EVENT_ANSWER || event == EVENT_REFUSE) && !world.get_count) ||
           ((event == EVENT_WORK || event == EVENT_WORK_FAILS) && !world.job_count);
}

static void every_order_of_six_events_of_a_claim_obeys_the_contract(void **state)
{
    (void)state;
    unsigned total = 1, played = 0;
    for (int i = 0; i < 6; i++)
        total *= EVENTS;
    for (unsigned code = 0; code < total; code++) {
        unsigned rest = code;
        int is_new = 1;
        begin();
        for (int i = 0; i < 6 && is_new; i++, rest /= EVENTS) {
            is_new = !is_idle(rest % EVENTS);
            happen(rest % EVENTS);
        }
        if (is_new) {
            drain();
            judge(0);
            played++;
        }
        world_stop();
    }
    print_message("%u sequences\n", played);
    assert_true(played > 10000);
}

/* ---- several claims ---------------------------------------------------------------------------
 */

static uint64_t random_state;

static unsigned pick(unsigned below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(random_state >> 33) % below;
}

struct view {
    int is_waiting[CLAIMS]; /* for room */
    uint64_t arrival[CLAIMS];
    unsigned cores[CLAIMS], mib[CLAIMS]; /* asked by who waits */
    int is_promised[CLAIMS];
};

static void look(struct view *v)
{
    const struct alq_operation *op;
    memset(v, 0, sizeof(*v));
    TAILQ_FOREACH(op, &world.prepare->open, open)
    {
        unsigned n = (unsigned)(op->id.uid[1] - '0');
        if (!op->is_in_line)
            continue;
        v->is_waiting[n] = 1;
        v->arrival[n] = op->arrival;
        v->cores[n] = op->spec->shares[0].cores_pct;
    }
    for (unsigned n = 0; n < CLAIMS; n++) {
        char uid[] = {'u', (char)('0' + n), '\0'};
        const struct alq_claim *claim = alq_claims_find(&world.prepare->claims, uid);
        v->is_promised[n] = claim && claim->spec != NULL;
        if (v->is_promised[n] && !v->is_waiting[n]) {
            v->arrival[n] = claim->arrival;
            v->cores[n] = claim->spec->shares[0].cores_pct;
        }
    }
}

/* Nobody was promised something at the cost of one who came earlier and still waits. */
static void check_nobody_pushed_in(const struct view *before, const struct view *after)
{
    for (unsigned n = 0; n < CLAIMS; n++)
        for (unsigned w = 0; w < CLAIMS; w++)
            if (!before->is_promised[n] && after->is_promised[n] && before->is_waiting[w] &&
                after->is_waiting[w] && before->arrival[w] == after->arrival[w] &&
                after->arrival[w] < after->arrival[n])
                check(after->cores[n] + after->cores[w] <= 100);
}

static void random_event(void)
{
    unsigned n = pick(CLAIMS), what = pick(100);
    if (what < 22)
        prepare(n);
    else if (what < 34)
        unprepare(n);
    else if (what < 60 && world.get_count)
        answer(pick(world.get_count), pick(12) ? 0 : 500);
    else if (what < 90 && world.job_count)
        work(pick(world.job_count), !pick(10));
    else if (what < 94)
        world_advance(pick(10) * SECOND);
    else if (what < 95 && !pick(3)) {
        note("D", n);
        world.objects[n].exists = 0;
    } else if (what < 98) {
        note("R", n);
        world.objects[n].cores = 1 + pick(100);
        world.objects[n].share += 1000;
    }
}

static void random_orders_of_claims_that_compete_obey_the_contract(void **state)
{
    (void)state;
    const char *seed = getenv("PREPARE_ORDERS_SEED");
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    for (uint64_t run = 0; run < 3000; run++) {
        random_state = first * 1000003 + run;
        begin();
        for (unsigned n = 0; n < CLAIMS; n++)
            world.objects[n].cores = 20 + 5 * pick(14);
        struct view before, after;
        look(&before);
        for (int i = 0; i < 120; i++, before = after) {
            random_event();
            look(&after);
            check(world_cores(0) <= 100 && world_mib(0) <= WORLD_GPU_MIB);
            check_nobody_pushed_in(&before, &after);
        }
        drain();
        for (unsigned n = 0; n < CLAIMS; n++)
            judge(n);
        for (unsigned i = 0; i < world.call_count; i++)
            check(world.calls[i].answers == 1);
        world_stop();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_of_six_events_of_a_claim_obeys_the_contract),
        cmocka_unit_test(random_orders_of_claims_that_compete_obey_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
