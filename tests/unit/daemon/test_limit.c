/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits that the operator sets: what counts against the GPU meanwhile and afterwards, what is
 * refused, how long they last. And a removal that has failed, which is tried again.
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

static struct {
    int answers;
    struct alq_err err;
    struct alq_share_limit limit;
} told;

static void on_limit(void *arg, const struct alq_claim_spec *claim, const struct alq_err *err)
{
    (void)arg;
    told.answers++;
    told.err = err ? *err : (struct alq_err)ALQ_ERR_INIT;
    if (claim)
        told.limit = claim->shares[0].limit;
}

static void set_cores(unsigned n, unsigned cores)
{
    char share[32];
    const struct alq_limit_change change = {.has_cores = 1, .cores_pct = cores};
    snprintf(share, sizeof(share), "u%u-0", n);
    memset(&told, 0, sizeof(told));
    alq_limit_share(world.prepare, share, &change, on_limit, NULL);
}

static void prepared(unsigned n, unsigned cores)
{
    world.objects[n].cores = cores;
    struct world_call *call = world_prepare(n, DEADLINE);
    world_settle();
    assert_int_equal(call->answers, 1);
    assert_int_equal(call->code, 0);
}

static void waits(struct world_call *call)
{
    world_settle();
    assert_int_equal(call->answers, 0);
}

static void limit_that_is_raised_takes_room_before_the_files_say_so(void **state)
{
    (void)state;
    world_start();
    prepared(1, 30);
    set_cores(1, 60);
    assert_int_equal(world.job_count, 1);
    world.objects[2].cores = 50;
    struct world_call *call = world_prepare(2, DEADLINE);
    while (world.get_count)
        world_answer(0);
    assert_int_equal(call->answers, 0);
    assert_int_equal(world.job_count, 1); /* only the limit's */
    world_settle();
    assert_int_equal(told.answers, 1);
    assert_int_equal(told.err.code, 0);
    assert_int_equal(world.files[1].cores, 60);
    waits(call);
    set_cores(1, 40);
    world_settle();
    world_advance(30 * SECOND);
    world_advance(14 * SECOND);
    world_stop();
}

static void limit_that_is_lowered_frees_nothing_that_was_allocated(void **state)
{
    (void)state;
    world_start();
    prepared(1, 60);
    set_cores(1, 10);
    world_settle();
    assert_int_equal(world.files[1].cores, 10);
    world.objects[2].cores = 50;
    waits(world_prepare(2, DEADLINE));
    world_unprepared(1);
    world_settle();
    assert_int_equal(world.files[2].cores, 50);
    world_stop();
}

static void limit_beyond_what_others_leave_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    world_start();
    prepared(1, 30);
    prepared(2, 60);
    set_cores(1, 41);
    assert_int_equal(told.answers, 1);
    assert_int_equal(told.err.code, ALQ_EBUSY);
    assert_non_null(strstr(told.err.text, "ns/c2"));
    assert_int_equal(world.job_count, 0);
    prepared(3, 10);
    set_cores(1, 101);
    assert_int_equal(told.err.code, ALQ_EINVAL);
    set_cores(77, 10);
    assert_int_equal(told.err.code, ALQ_ENOENT);
    world_stop();
}

static void limit_that_cannot_be_written_leaves_the_old_one(void **state)
{
    (void)state;
    world_start();
    prepared(1, 30);
    set_cores(1, 90);
    world_work(0, 1);
    assert_int_equal(told.err.code, ALQ_EIO);
    prepared(2, 70);
    world_stop();
}

static void limit_lasts_as_long_as_the_allocation(void **state)
{
    (void)state;
    world_start();
    prepared(1, 30);
    set_cores(1, 20);
    world_settle();
    assert_true(told.limit.is_set);
    prepared(1, 30); /* the kubelet has restarted */
    assert_int_equal(world.files[1].cores, 20);
    prepared(1, 40); /* allocated anew */
    assert_int_equal(world.files[1].cores, 40);
    set_cores(1, 20);
    world_settle();
    set_cores(1, 40);
    world_settle();
    assert_false(told.limit.is_set); /* as allocated */
    world_stop();
}

static void limit_of_a_claim_that_goes_meanwhile_is_answered(void **state)
{
    (void)state;
    world_start();
    prepared(1, 30);
    set_cores(1, 20);
    struct world_call *call = world_unprepare(1);
    set_cores(1, 10); /* behind the Unprepare: told is this one's */
    world_settle();
    assert_int_equal(call->answers, 1);
    assert_int_equal(told.answers, 2);
    assert_int_equal(told.err.code, ALQ_ENOENT);
    assert_int_equal(world.files[1].is_made, 0);
    world_stop();
}

static void removal_that_has_failed_is_tried_again_less_and_less_often(void **state)
{
    (void)state;
    world_start();
    prepared(1, 30);
    struct world_call *call = world_unprepare(1);
    world_work(0, 1);
    assert_int_equal(call->code, ALQ_EIO);
    for (int64_t delay_ns = SECOND; delay_ns <= 4 * SECOND; delay_ns *= 2) {
        world_advance(delay_ns - MS);
        assert_int_equal(world.job_count, 0);
        world_advance(2 * MS);
        assert_int_equal(world.job_count, 1);
        world_work(0, 1);
    }
    world_advance(9 * SECOND);
    world_settle();
    assert_int_equal(world.files[1].is_made, 0);
    assert_int_equal(alq_prepare_count(world.prepare), 0);
    world_stop();
}

static void removal_that_has_failed_is_not_tried_again_after_a_prepare(void **state)
{
    (void)state;
    world_start();
    prepared(1, 30);
    world_unprepare(1);
    world_work(0, 1);
    prepared(1, 30);
    world_advance(120 * SECOND);
    world_settle();
    assert_int_equal(world.files[1].is_made, 1);
    world_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit_that_is_raised_takes_room_before_the_files_say_so),
        cmocka_unit_test(limit_that_is_lowered_frees_nothing_that_was_allocated),
        cmocka_unit_test(limit_beyond_what_others_leave_is_refused_and_changes_nothing),
        cmocka_unit_test(limit_that_cannot_be_written_leaves_the_old_one),
        cmocka_unit_test(limit_lasts_as_long_as_the_allocation),
        cmocka_unit_test(limit_of_a_claim_that_goes_meanwhile_is_answered),
        cmocka_unit_test(removal_that_has_failed_is_tried_again_less_and_less_often),
        cmocka_unit_test(removal_that_has_failed_is_not_tried_again_after_a_prepare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
