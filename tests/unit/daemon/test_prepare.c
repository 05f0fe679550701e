/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The claims' state machine in virtual time: steps, deadlines, room, who may pass whom, holders
 * that are gone, start. Every order of events for one claim is test_prepare_orders.c's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/prepare/room.h"
#include "prepare_world.h"

#define DEADLINE (45 * SECOND)

static void assert_says(const struct world_call *call, const char *word)
{
    assert_int_equal(call->answers, 1);
    if (!strstr(call->text, word))
        fail_msg("\"%s\" does not say \"%s\"", call->text, word);
}

static void assert_waits(const struct world_call *call)
{
    if (call->answers)
        fail_msg("answered with \"%s\"", call->text);
}

static void assert_good(const struct world_call *call)
{
    if (call->answers != 1 || call->code)
        fail_msg("claim %u: %d answers, \"%s\"", call->n, call->answers, call->text);
}

static void ask_for(unsigned n, unsigned cores, unsigned mib)
{
    world.objects[n].cores = cores;
    world.objects[n].memory_mib = mib;
}

/* A Prepare whose GET has been answered. */
static struct world_call *asked(unsigned n)
{
    struct world_call *call = world_prepare(n, DEADLINE);
    for (unsigned i = 0; i < world.get_count; i++)
        if (world.gets[i].n == n) {
            world_answer(i);
            break;
        }
    return call;
}

/* ---- steps ------------------------------------------------------------------------------------
 */

static void prepare_of_110_claims_runs_in_parallel(void **state)
{
    (void)state;
    world_start();
    struct world_call *calls[110];
    for (unsigned n = 0; n < 110; n++) {
        ask_for(n, 0, 9);
        calls[n] = world_prepare(n, DEADLINE);
    }
    assert_int_equal(world.get_count, 110);
    while (world.get_count)
        world_answer(world.get_count - 1);
    assert_int_equal(world.job_count, 110);
    while (world.job_count)
        world_work(world.job_count / 2, 0);
    for (unsigned n = 0; n < 110; n++)
        assert_good(calls[n]);
    assert_int_equal(alq_prepare_count(world.prepare), 110);
    world_stop();
}

static void one_claims_error_is_its_own(void **state)
{
    (void)state;
    world_start();
    world.objects[1].exists = 0;
    world.objects[2].status = 500;
    world.objects[3].is_unallocated = 1;
    world.objects[4].is_replaced = 1;
    world.objects[5].cores = 101;
    struct world_call *calls[8];
    for (unsigned n = 0; n < 8; n++)
        calls[n] = world_prepare(n, DEADLINE);
    while (world.get_count)
        world_answer(world.get_count - 1);
    while (world.job_count)
        world_work(0, !strcmp(world.jobs[0]->id.name, "c6"));
    static const char *const words[] = {NULL,
                                        "ns/c1: does not exist",
                                        "ns/c2: asking the API server",
                                        "ns/c3: not allocated",
                                        "ns/c4: replaced",
                                        "101",
                                        "ns/c6: disk full",
                                        NULL};
    for (unsigned n = 0; n < 8; n++) {
        if (words[n])
            assert_says(calls[n], words[n]);
        else
            assert_good(calls[n]);
        assert_int_equal(world.files[n].is_made, !words[n]);
    }
    assert_int_equal(alq_prepare_count(world.prepare), 2);
    world_stop();
}

static void prepare_waits_for_a_reading_of_the_gpus_at_most_10_s(void **state)
{
    (void)state;
    world_start_blind();
    alq_prepare_sweep(world.prepare);
    alq_prepare_start(world.prepare);
    struct world_call *early = asked(0);
    world_advance(9 * SECOND);
    struct world_call *late = asked(1), *gone = asked(2);
    world_unprepared(2);
    assert_says(gone, "cancelled");
    assert_waits(early);
    world_advance(1 * SECOND);
    assert_says(early, "GPUs of this node are not known");
    world_set_gpus(2);
    world_settle();
    assert_good(late);
    world_stop();
}

static void prepare_behind_a_stuck_worker_ends_before_its_deadline(void **state)
{
    (void)state;
    world_start();
    struct world_call *first = asked(0), *second = world_prepare(0, 20 * SECOND);
    world_advance(19 * SECOND - 1);
    assert_waits(second);
    world_advance(1);
    assert_says(second, "has not ended yet");
    assert_int_equal(second->code, ALQ_EAGAIN);
    world_work(0, 0);
    assert_good(first);
    world_stop();
}

static void prepare_whose_object_does_not_come_ends_before_its_deadline(void **state)
{
    (void)state;
    world_start();
    struct world_call *quick = world_prepare(0, 5 * SECOND), *slow = world_prepare(1, DEADLINE),
                      *past = world_prepare(2, SECOND);
    assert_says(past, "deadline has passed");
    world_advance(4 * SECOND);
    assert_says(quick, "asking the API server");
    world_advance(16 * SECOND);
    assert_says(slow, "asking the API server");
    world_stop();
}

static void prepare_again_returns_the_same_and_only_repairs(void **state)
{
    (void)state;
    world_start();
    world_prepared(0);
    struct world_call *again = asked(0);
    assert_true(world.jobs[0]->has_record);
    world_work(0, 1); /* the repair fails: what was made stays */
    assert_says(again, "disk full");
    assert_true(world.files[0].is_made);
    assert_int_equal(world_cores(0), 10);
    world_set_gpus(2); /* and is repaired with the next reading */
    assert_int_equal(world.job_count, 1);
    world_settle();
    assert_int_equal(world_prepared(0)->cores, 10);
    world_stop();
}

static void prepare_of_a_reallocated_claim_changes_its_promise(void **state)
{
    (void)state;
    world_start();
    world_prepared(0);
    world.objects[0].share = 77;
    ask_for(0, 40, 500);
    struct world_call *call = asked(0);
    assert_false(world.jobs[0]->has_record);
    world_settle();
    assert_good(call);
    assert_int_equal(world_cores(0), 40);
    assert_int_equal(world_mib(0), 500);
    world_stop();
}

static void unprepare_needs_no_api_server_and_no_gpus(void **state)
{
    (void)state;
    world_start_blind();
    world_adopt(0, 1, ALQ_RECORD_COMPLETED);
    alq_prepare_sweep(world.prepare);
    alq_prepare_start(world.prepare);
    world_work(0, 0); /* the rebuild; its claim is being looked up now */
    assert_int_equal(world_gets_of(0), 1);
    struct world_call *call = world_unprepare(0), *unknown = world_unprepare(9);
    world_work(0, 0);
    world_work(0, 0);
    assert_good(call);
    assert_good(unknown);
    assert_int_equal(world.get_count, 0);
    world_stop();
}

static void unprepare_that_fails_keeps_the_promise(void **state)
{
    (void)state;
    world_start();
    world_prepared(0);
    struct world_call *call = world_unprepare(0);
    world_work(0, 1);
    assert_says(call, "ns/c0: read-only");
    assert_int_equal(world_cores(0), 10);
    world_unprepared(0);
    assert_int_equal(world_cores(0), 0);
    world_stop();
}

static void unprepare_cancels_a_prepare_in_every_step(void **state)
{
    (void)state;
    for (int step = 0; step < 5; step++) {
        world_start_blind();
        ask_for(9, 100, 900);
        struct world_call *behind = NULL, *call = NULL;
        if (step != ALQ_STEP_GPUS)
            world_set_gpus(2);
        if (step == ALQ_STEP_ROOM)
            world_prepared(9);
        if (step == ALQ_STEP_TURN)
            behind = world_prepare(0, DEADLINE);
        call = step == ALQ_STEP_GET ? world_prepare(0, DEADLINE) : asked(0);
        if (step == ALQ_STEP_TURN)
            assert_int_equal(world.job_count, 1); /* of the one before it */
        else
            assert_int_equal(TAILQ_LAST(&world.prepare->open, alq_operation_list)->step, step);
        struct world_call *un = world_unprepare(0), *after = world_prepare(0, DEADLINE);
        world_set_gpus(2);
        if (step == ALQ_STEP_ROOM)
            world_unprepared(9);
        world_settle();
        assert_says(call, "cancelled by a later NodeUnprepareResources");
        if (behind)
            assert_says(behind, "cancelled by a later NodeUnprepareResources");
        assert_good(un);
        assert_good(after);
        assert_true(un->order < after->order);
        world_stop();
    }
}

/* The kubelet adds less than 400 bytes to our 511; an event's message holds 1024. */
static void refusal_with_the_longest_names_keeps_its_remedy(void **state)
{
    (void)state;
    struct alq_share_spec share = {.cores_pct = 60, .memory_bytes = 1 << 20};
    struct alq_claim_spec asks = {.share_count = 1, .shares = &share}, held[40];
    struct alq_room_holder holders[40];
    struct alq_err err = ALQ_ERR_INIT;
    char prefix[160], name[254] = "";
    memset(share.device, 'd', 63);
    memset(name, 'c', 253);
    for (unsigned i = 0; i < 40; i++) {
        held[i] = asks;
        snprintf(held[i].uid, sizeof(held[i].uid), "h%u", i);
        memset(held[i].namespace_, 'n', 63);
        held[i].name = name;
        holders[i] = (struct alq_room_holder){&held[i], ""};
    }
    assert_int_equal(alq_room_check(&asks, holders, 40, &err), ALQ_EBUSY);
    memset(prefix, 'x', sizeof(prefix)); /* "claim <63>/<83>" */
    alq_err_wrap(&err, "%.*s", 153, prefix);
    assert_true(strlen(err.text) < ALQ_ERR_TEXT_BYTES - 1);
    assert_non_null(strstr(err.text, "and 39 more; tried again until they are unprepared"));
}

/* ---- room -------------------------------------------------------------------------------------
 */

static void room_is_waited_for_until_a_second_before_the_deadline(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 80, 10);
    ask_for(1, 30, 10);
    world_prepared(0);
    struct world_call *call = asked(1);
    world_settle();
    world_advance(44 * SECOND - 1);
    world_settle();
    assert_waits(call);
    world_advance(1);
    assert_says(call, "claim ns/c1: no room on hami-gpu-0: asked are 10Mi and 30 cores, left are "
                      "990Mi and 20 cores; held by ns/c0; tried again");
    assert_int_equal(call->code, ALQ_EBUSY);
    assert_int_equal(world_cores(0), 80);
    world_stop();
}

static void prepares_of_one_claim_that_run_out_together_are_each_answered(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 80, 10);
    ask_for(1, 30, 10);
    world_prepared(0);
    struct world_call *calls[] = {asked(1), world_prepare(1, DEADLINE), world_prepare(1, DEADLINE)};
    world_settle();
    world_advance(44 * SECOND);
    assert_says(calls[0], "no room");
    assert_says(calls[1], "deadline has passed");
    assert_says(calls[2], "deadline has passed");
    world_stop();
}

static void room_of_an_unprepared_claim_is_given_at_once(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 80, 10);
    ask_for(1, 30, 10);
    world_prepared(0);
    struct world_call *call = asked(1);
    world_advance(3 * SECOND);
    world_unprepared(0);
    assert_good(call);
    assert_int_equal(call->answered_ns, world.now_ns);
    world_stop();
}

static void room_of_a_claim_that_fails_is_given_at_once(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 80, 10);
    ask_for(1, 30, 10);
    asked(0);
    struct world_call *call = asked(1);
    world_work(0, 1);
    world_settle();
    assert_good(call);
    world_stop();
}

static void room_goes_to_those_that_wait_in_order_of_arrival(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 100, 10);
    for (unsigned n = 1; n <= 4; n++)
        ask_for(n, 50, 10);
    world_prepared(0);
    struct world_call *calls[5];
    for (unsigned n = 1; n <= 4; n++)
        calls[n] = world_prepare(n, DEADLINE);
    while (world.get_count) /* the order of the GETs' answers does not matter */
        world_answer(world.get_count - 1);
    world_unprepared(0);
    assert_good(calls[1]);
    assert_good(calls[2]);
    assert_waits(calls[3]);
    assert_waits(calls[4]);
    world_unprepared(1);
    assert_good(calls[3]);
    assert_waits(calls[4]);
    world_unprepared(2);
    assert_good(calls[4]);
    world_stop();
}

static void small_claim_passes_a_large_one_beside_which_it_fits(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 80, 10);
    ask_for(1, 60, 10);
    ask_for(2, 20, 10);
    world_prepared(0);
    struct world_call *large = asked(1), *small = asked(2);
    world_settle();
    assert_waits(large);
    assert_good(small);
    world_unprepared(0);
    assert_good(large);
    world_stop();
}

static void small_claims_cannot_starve_a_large_one(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 70, 10);
    ask_for(1, 80, 10);
    ask_for(2, 20, 10);
    ask_for(3, 10, 10);
    world_prepared(0);
    struct world_call *large = asked(1), *first = asked(2), *second = asked(3);
    world_settle();
    assert_good(first);   /* 20 + 80 fit */
    assert_waits(second); /* 10 are free, but 20 + 10 + 80 do not fit */
    world_unprepared(0);
    assert_good(large);
    assert_waits(second);
    world_advance(44 * SECOND);
    assert_says(second, "no room on hami-gpu-0");
    world_stop();
}

static void who_waited_for_a_claim_that_gave_up_is_served(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 70, 10);
    ask_for(1, 80, 10);
    ask_for(2, 30, 10);
    world_prepared(0);
    struct world_call *large = world_prepare(1, 10 * SECOND);
    world_answer(0);
    struct world_call *small = asked(2);
    world_settle();
    assert_waits(small);
    world_advance(9 * SECOND);
    world_settle();
    assert_says(large, "no room");
    assert_good(small);
    world_unprepared(2);
    large = asked(1);
    small = asked(2);
    world_settle();
    assert_waits(small);
    struct world_call *un = world_unprepare(1);
    world_settle();
    world_advance(0); /* the timer of this very moment */
    world_settle();
    assert_says(large, "cancelled");
    assert_good(un);
    assert_good(small);
    world_stop();
}

static void claim_that_waited_is_asked_for_again(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 80, 10);
    ask_for(1, 30, 10);
    ask_for(2, 30, 10);
    world_prepared(0);
    struct world_call *gone = asked(1), *moved = asked(2);
    world_settle();
    world_advance(10 * SECOND);
    world.objects[1].is_unallocated = 1;
    world.objects[2].share = 99;
    ask_for(2, 100, 10);
    world.objects[2].gpu = 1;
    world_unprepared(0);
    world_advance(0);
    world_settle();
    assert_says(gone, "not allocated");
    assert_good(moved);
    assert_int_equal(world_cores(0), 0);
    assert_int_equal(world_cores(1), 100);
    world_stop();
}

static void room_is_kept_for_a_claim_that_is_asked_for_again(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 40, 10);
    ask_for(1, 60, 10);
    ask_for(2, 40, 10);
    ask_for(3, 30, 10);
    world_prepared(0);
    world_prepared(1);
    struct world_call *first = asked(2);
    world_settle();
    world_advance(10 * SECOND);
    struct world_call *un = world_unprepare(0);
    world_work(0, 0);
    assert_good(un);
    assert_int_equal(world_gets_of(2), 1);
    struct world_call *quick = asked(3); /* fits beside 2, but not beside 1 and 2 */
    assert_int_equal(world.job_count, 0);
    world.objects[2].status = 500;
    world_settle();
    assert_says(first, "asking the API server");
    world_advance(0);
    world_settle();
    assert_good(quick);
    world_stop();
}

static void refusal_names_who_came_earlier_and_waits(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 70, 10);
    ask_for(1, 80, 10);
    ask_for(2, 30, 10);
    world_prepared(0);
    asked(1);
    struct world_call *small = world_prepare(2, 10 * SECOND);
    world_settle();
    world_advance(9 * SECOND);
    world_settle();
    assert_says(small, "ns/c1 (came earlier and waits too)");
    world_stop();
}

static void claims_on_different_gpus_do_not_wait_for_each_other(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 100, 10);
    ask_for(1, 100, 10);
    ask_for(2, 100, 10);
    world.objects[2].gpu = 1;
    world_prepared(0);
    struct world_call *waits = asked(1), *other = asked(2);
    world_settle();
    assert_waits(waits);
    assert_good(other);
    world_stop();
}

static void claim_of_two_gpus_waits_for_both(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 10, 600);
    ask_for(1, 10, 600);
    world.objects[1].gpu = 1;
    ask_for(2, 10, 500);
    world.objects[2].also_mib = 500;
    world_prepared(0);
    world_prepared(1);
    struct world_call *both = asked(2);
    world_unprepared(0);
    assert_waits(both);
    world_unprepared(1);
    assert_good(both);
    assert_int_equal(world_mib(0) + world_mib(1), 1000);
    world_stop();
}

static void admin_access_takes_no_room_and_waits_for_nobody(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 100, 1000);
    ask_for(1, 50, 10);
    ask_for(2, 100, 1000);
    world.objects[2].is_admin = 1;
    world_prepared(0);
    struct world_call *waits = asked(1);
    world_prepared(2);
    assert_waits(waits);
    assert_int_equal(world_cores(0), 100);
    world_unprepared(0);
    assert_good(waits);
    world_stop();
}

static void claim_without_capacity_takes_the_gpu_only_when_nobody_has_it(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 0, 1);
    ask_for(1, 0, 0);
    world_prepared(0);
    struct world_call *whole = asked(1);
    world_settle();
    assert_waits(whole);
    world_unprepared(0);
    assert_good(whole);
    assert_int_equal(world_cores(0), 100);
    assert_int_equal(world_mib(0), 1000);
    world_stop();
}

static void claim_that_is_prepared_again_waits_for_nobody(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 80, 10);
    ask_for(1, 60, 10);
    world_prepared(0);
    struct world_call *waits = asked(1);
    world_prepared(0);
    assert_waits(waits);
    world_stop();
}

/* ---- holders ----------------------------------------------------------------------------------
 */

static void holder_is_looked_up_at_once_and_once_for_all_that_wait(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 100, 10);
    world_prepared(0);
    for (unsigned n = 1; n <= 50; n++)
        asked(n);
    assert_int_equal(world_gets_of(0), 1);
    world_settle();
    for (unsigned n = 51; n <= 60; n++)
        asked(n);
    assert_int_equal(world_gets_of(0), 0); /* the answer is fresh */
    world_advance(SECOND);
    asked(61);
    assert_int_equal(world_gets_of(0), 1);
    world_stop();
}

static void holders_are_looked_up_four_at_a_time_and_again_before_the_refusal(void **state)
{
    (void)state;
    world_start();
    for (unsigned n = 0; n < 10; n++)
        world_prepared(n);
    uint64_t before = world.get_numbers;
    ask_for(10, 10, 10);
    struct world_call *call = asked(10);
    assert_int_equal(world.get_count, 4);
    world_settle();
    assert_int_equal(world.get_numbers - before, 1 + 10);
    world_advance(41 * SECOND - 1);
    assert_int_equal(world.get_count, 0);
    world_advance(1);
    assert_int_equal(world.get_count, 4);
    world_settle();
    assert_int_equal(world.get_numbers - before, 1 + 20);
    assert_waits(call);
    world_stop();
}

static void holder_that_is_gone_is_taken_back_after_a_grace(void **state)
{
    (void)state;
    for (int is_replaced = 0; is_replaced < 2; is_replaced++) {
        world_start();
        ask_for(0, 100, 10);
        world_prepared(0);
        world.objects[0].exists = is_replaced;
        world.objects[0].is_replaced = is_replaced;
        struct world_call *call = asked(1);
        world_settle();
        world_advance(5 * SECOND - 1);
        assert_true(world.files[0].is_made); /* its container may still be ending */
        world_advance(1);
        world_settle();
        assert_good(call);
        assert_false(world.files[0].is_made);
        world_stop();
    }
}

static void holder_that_is_gone_is_unprepared_by_its_kubelet_within_the_grace(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 100, 10);
    world_prepared(0);
    world.objects[0].exists = 0;
    struct world_call *call = asked(1);
    world_settle();
    world_advance(3 * SECOND);
    world_unprepared(0);
    assert_good(call);
    world_advance(10 * SECOND);
    assert_int_equal(world.job_count, 0);
    world_stop();
}

static void holder_that_is_gone_is_taken_back_before_a_refusal(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 100, 10);
    world_prepared(0);
    struct world_call *call = asked(1), *hasty;
    world_settle();
    world_advance(40 * SECOND);
    world.objects[0].exists = 0;
    world_advance(1 * SECOND); /* looked up again now */
    world_settle();
    assert_good(call);
    world_unprepared(1);
    ask_for(2, 100, 10);
    world_prepared(2);
    world.objects[2].exists = 0;
    hasty = world_prepare(1, 3 * SECOND); /* no time for a grace */
    world_settle();
    assert_good(hasty);
    world_stop();
}

static void holder_of_another_boot_that_is_gone_is_taken_back_at_once(void **state)
{
    (void)state;
    world_start_blind();
    ask_for(0, 100, 10);
    world_adopt(0, 0, ALQ_RECORD_COMPLETED);
    world.objects[0].status = -1; /* while the daemon starts */
    world_begin();
    world_settle();
    assert_int_equal(world_cores(0), 100);
    world.objects[0] = (struct world_object){.exists = 0};
    world_advance(2 * SECOND);
    struct world_call *call = asked(1);
    world_settle();
    assert_good(call);
    world_stop();
}

static void holder_is_kept_while_the_api_server_says_nothing_sure(void **state)
{
    (void)state;
    static const int statuses[] = {-1, 400, 401, 403, 404, 410, 429, 500, 503};
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        world_start();
        ask_for(0, 100, 10);
        world_prepared(0);
        world.objects[0].status = statuses[i]; /* 404 without a Status: of a proxy */
        struct world_call *call = asked(1);
        world_settle();
        for (int s = 0; s < 44; s++) {
            world_advance(SECOND);
            world_settle();
        }
        assert_says(call, "held by ns/c0; ");
        assert_true(world.files[0].is_made);
        world_stop();
    }
}

static void holder_that_lost_its_allocation_is_waited_for_and_named(void **state)
{
    (void)state;
    static const char *const remarks[] = {"no longer allocated", "allocated anew since",
                                          "used by no pod"};
    for (size_t i = 0; i < 3; i++) {
        world_start();
        ask_for(0, 100, 10);
        world_prepared(0);
        world.objects[0].is_unallocated = i == 0;
        world.objects[0].share = i == 1 ? 99 : 0;
        world.objects[0].is_unreserved = i == 2;
        struct world_call *call = asked(1);
        world_settle();
        world_advance(43 * SECOND);
        world_settle();
        assert_waits(call);
        world_advance(1 * SECOND);
        assert_says(call, "ns/c0 (");
        assert_says(call, remarks[i]);
        assert_true(world.files[0].is_made);
        world_stop();
    }
}

static void holder_that_goes_while_it_is_looked_up_is_asked_for_no_more(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 50, 10);
    ask_for(1, 50, 10);
    ask_for(2, 60, 10);
    world_prepared(0);
    world_prepared(1);
    asked(2);
    assert_int_equal(world.get_count, 2);
    struct world_call *un = world_unprepare(0);
    world_work(0, 0);
    assert_good(un);
    assert_int_equal(world_gets_of(0), 0);
    world_stop();
}

/* ---- start ------------------------------------------------------------------------------------
 */

static void start_rebuilds_this_boot_and_looks_all_claims_up(void **state)
{
    (void)state;
    world_start_blind();
    world_adopt(0, 1, ALQ_RECORD_COMPLETED);
    world_adopt(1, 0, ALQ_RECORD_COMPLETED);
    world_adopt(2, 1, ALQ_RECORD_STARTED);
    world_adopt(3, 1, ALQ_RECORD_COMPLETED);
    world.objects[3].exists = 0;
    world.files[4].is_made = 1; /* no record knows it */
    world_begin();
    assert_false(world.files[2].is_made);
    assert_int_equal(world.swept, 2); /* 4, and 1 whose files are of another boot */
    assert_int_equal(world.job_count, 2);
    assert_int_equal(world_gets_of(1), 1);
    world_settle();
    assert_int_equal(alq_prepare_count(world.prepare), 3);
    world_advance(5 * SECOND);
    world_settle();
    assert_int_equal(alq_prepare_count(world.prepare), 2);
    assert_true(world.files[0].is_made);
    assert_false(world.files[3].is_made);
    world_prepared(1);
    world_stop();
}

static void start_looks_many_claims_up_four_at_a_time(void **state)
{
    (void)state;
    world_start_blind();
    for (unsigned n = 0; n < WORLD_CLAIMS; n++) {
        ask_for(n, 0, 1);
        world_adopt(n, 0, ALQ_RECORD_COMPLETED);
    }
    world_begin();
    assert_int_equal(world.get_count, 4);
    struct world_call *call = world_prepare(0, DEADLINE); /* does not stand in that line */
    assert_int_equal(world_gets_of(0), 1 + (world.gets[0].n == 0));
    world_settle();
    assert_good(call);
    assert_true(world.get_numbers >= WORLD_CLAIMS);
    world_stop();
}

/* ---- what is told of claims -------------------------------------------------------------------
 */

static struct told {
    unsigned lost, prepared, refused;
    char text[2 * ALQ_ERR_TEXT_BYTES];
} told;

static void on_lost(void *arg, const struct alq_claim_spec *claim, const struct alq_share_spec *s)
{
    (void)arg;
    told.lost++;
    snprintf(told.text, sizeof(told.text), "%s %s", claim->name, s->device);
}

static void on_refused(void *arg, const struct alq_claim_id *id, const struct alq_err *err)
{
    (void)arg;
    told.refused++;
    snprintf(told.text, sizeof(told.text), "%s %s", id->name, err->text);
}

static void on_prepared(void *arg, const struct alq_claim_spec *claim, const json_t *object)
{
    (void)arg;
    (void)claim;
    told.prepared += object != NULL;
}

static void watch(void)
{
    const struct alq_prepare_watcher watcher = {
        .prepared = on_prepared, .refused = on_refused, .lost = on_lost};
    told = (struct told){0};
    alq_prepare_watch(world.prepare, &watcher);
}

static void set_no_reading(void)
{
    const struct alq_gpu_list none = {NULL, 0};
    struct alq_err err = ALQ_ERR_INIT;
    alq_err_set(&err, ALQ_EAGAIN, "the driver is being reloaded");
    alq_prepare_set_gpus(world.prepare, &none, &err);
}

static void gpu_that_a_reload_of_the_driver_takes_away_is_told_once(void **state)
{
    (void)state;
    world_start();
    watch();
    ask_for(0, 10, 10);
    world.objects[0].gpu = 1;
    world_prepared(0);
    world_prepared(1);
    set_no_reading();
    assert_int_equal(told.lost, 0);
    world_set_gpus(1);
    assert_int_equal(told.lost, 1);
    assert_non_null(strstr(told.text, "c0 "));
    set_no_reading();
    world_set_gpus(1);
    assert_int_equal(told.lost, 1);
    world_set_gpus(2);
    world_set_gpus(1);
    assert_int_equal(told.lost, 2);
    world_stop();
}

static void gpu_that_went_while_the_daemon_was_down_is_told(void **state)
{
    (void)state;
    world_start_blind();
    watch();
    world.objects[0].gpu = 1;
    world_adopt(0, 1, ALQ_RECORD_COMPLETED);
    alq_prepare_start(world.prepare);
    world_settle();
    world_set_gpus(1);
    assert_int_equal(told.lost, 1);
    world_settle();
    world_stop();
}

static void first_reading_looks_claims_up_that_were_looked_up_without_one(void **state)
{
    (void)state;
    world_start_blind();
    watch();
    world_adopt(0, 1, ALQ_RECORD_COMPLETED);
    alq_prepare_start(world.prepare);
    world_settle();
    assert_int_equal(told.prepared, 1);
    world_set_gpus(2);
    world_settle();
    assert_int_equal(told.prepared, 2);
    world_set_gpus(2);
    assert_int_equal(world.get_count, 0);
    world_stop();
}

static void claim_that_is_rolled_back_at_start_is_told(void **state)
{
    (void)state;
    world_start_blind();
    world_adopt(2, 1, ALQ_RECORD_STARTED);
    watch();
    assert_int_equal(told.refused, 0); /* by a worker: not yet */
    world_begin();
    assert_int_equal(told.refused, 1);
    assert_string_equal(told.text, "c2 claim ns/c2: aliquotd ended while it was being prepared; "
                                   "rolled back, to be prepared anew");
    world_stop();
    world_start_blind(); /* nothing is left where nobody starts */
    world_adopt(2, 1, ALQ_RECORD_STARTED);
    world_stop();
}

static void end_answers_what_is_open(void **state)
{
    (void)state;
    world_start();
    ask_for(0, 100, 10);
    world_prepared(0);
    asked(1);
    world_prepare(2, DEADLINE);
    world_prepare(2, DEADLINE);
    world_unprepare(2);
    world_prepare(2, DEADLINE);
    world_stop(); /* checks that each was answered once */
    assert_says(&world.calls[1], "aliquotd is ending");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepare_of_110_claims_runs_in_parallel),
        cmocka_unit_test(one_claims_error_is_its_own),
        cmocka_unit_test(prepare_waits_for_a_reading_of_the_gpus_at_most_10_s),
        cmocka_unit_test(prepare_behind_a_stuck_worker_ends_before_its_deadline),
        cmocka_unit_test(prepare_whose_object_does_not_come_ends_before_its_deadline),
        cmocka_unit_test(prepare_again_returns_the_same_and_only_repairs),
        cmocka_unit_test(prepare_of_a_reallocated_claim_changes_its_promise),
        cmocka_unit_test(unprepare_needs_no_api_server_and_no_gpus),
        cmocka_unit_test(unprepare_that_fails_keeps_the_promise),
        cmocka_unit_test(unprepare_cancels_a_prepare_in_every_step),
        cmocka_unit_test(refusal_with_the_longest_names_keeps_its_remedy),
        cmocka_unit_test(room_is_waited_for_until_a_second_before_the_deadline),
        cmocka_unit_test(prepares_of_one_claim_that_run_out_together_are_each_answered),
        cmocka_unit_test(room_of_an_unprepared_claim_is_given_at_once),
        cmocka_unit_test(room_of_a_claim_that_fails_is_given_at_once),
        cmocka_unit_test(room_goes_to_those_that_wait_in_order_of_arrival),
        cmocka_unit_test(small_claim_passes_a_large_one_beside_which_it_fits),
        cmocka_unit_test(small_claims_cannot_starve_a_large_one),
        cmocka_unit_test(who_waited_for_a_claim_that_gave_up_is_served),
        cmocka_unit_test(claim_that_waited_is_asked_for_again),
        cmocka_unit_test(room_is_kept_for_a_claim_that_is_asked_for_again),
        cmocka_unit_test(refusal_names_who_came_earlier_and_waits),
        cmocka_unit_test(claims_on_different_gpus_do_not_wait_for_each_other),
        cmocka_unit_test(claim_of_two_gpus_waits_for_both),
        cmocka_unit_test(admin_access_takes_no_room_and_waits_for_nobody),
        cmocka_unit_test(claim_without_capacity_takes_the_gpu_only_when_nobody_has_it),
        cmocka_unit_test(claim_that_is_prepared_again_waits_for_nobody),
        cmocka_unit_test(holder_is_looked_up_at_once_and_once_for_all_that_wait),
        cmocka_unit_test(holders_are_looked_up_four_at_a_time_and_again_before_the_refusal),
        cmocka_unit_test(holder_that_is_gone_is_taken_back_after_a_grace),
        cmocka_unit_test(holder_that_is_gone_is_unprepared_by_its_kubelet_within_the_grace),
        cmocka_unit_test(holder_that_is_gone_is_taken_back_before_a_refusal),
        cmocka_unit_test(holder_of_another_boot_that_is_gone_is_taken_back_at_once),
        cmocka_unit_test(holder_is_kept_while_the_api_server_says_nothing_sure),
        cmocka_unit_test(holder_that_lost_its_allocation_is_waited_for_and_named),
        cmocka_unit_test(holder_that_goes_while_it_is_looked_up_is_asked_for_no_more),
        cmocka_unit_test(start_rebuilds_this_boot_and_looks_all_claims_up),
        cmocka_unit_test(start_looks_many_claims_up_four_at_a_time),
        cmocka_unit_test(gpu_that_a_reload_of_the_driver_takes_away_is_told_once),
        cmocka_unit_test(gpu_that_went_while_the_daemon_was_down_is_told),
        cmocka_unit_test(first_reading_looks_claims_up_that_were_looked_up_without_one),
        cmocka_unit_test(claim_that_is_rolled_back_at_start_is_told),
        cmocka_unit_test(end_answers_what_is_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
