/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Busy intervals: exact totals whatever their shape, reach over NVML's sample period, and where a
 * dead client's queue ends. Times are made up; single-threaded.
 */
#include "common/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define MS 1000000ull
#define US 1000ull

static int set_up(void **state)
{
    *state = calloc(1, sizeof(struct sim_timeline));
    return *state ? 0 : -1;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static void busy_of_an_empty_timeline_is_zero(void **state)
{
    assert_int_equal(sim_timeline_busy(*state, 5 * MS), 0);
}

static void busy_inside_a_kernel_counts_the_part_that_ran(void **state)
{
    sim_timeline_add(*state, 10 * MS, 30 * MS);
    assert_int_equal(sim_timeline_busy(*state, 10 * MS), 0);
    assert_int_equal(sim_timeline_busy(*state, 17 * MS), 7 * MS);
    assert_int_equal(sim_timeline_busy(*state, 99 * MS), 20 * MS);
}

static void back_to_back_kernels_grow_one_span(void **state)
{
    struct sim_timeline *t = *state;

    for (uint64_t i = 0; i < 100; i++)
        sim_timeline_add(t, (10 + i) * MS, (11 + i) * MS);
    assert_int_equal(t->count, 1);
    assert_int_equal(sim_timeline_busy(t, 60 * MS), 50 * MS);
}

static void idle_gaps_are_not_counted(void **state)
{
    sim_timeline_add(*state, 10 * MS, 20 * MS);
    sim_timeline_add(*state, 50 * MS, 60 * MS);
    assert_int_equal(sim_timeline_busy(*state, 49 * MS), 10 * MS);
    assert_int_equal(sim_timeline_busy(*state, 55 * MS), 15 * MS);
}

static void short_kernels_with_gaps_reach_back_over_a_sample_period(void **state)
{
    struct sim_timeline *t = *state;
    const uint64_t period = 1000 * MS / 6, end = 1000 * MS;
    uint64_t busy;

    for (uint64_t at = 0; at + 5 * US <= end; at += 20 * US)
        sim_timeline_add(t, at, at + 5 * US);
    assert_int_equal(sim_timeline_busy(t, end), end / 4);
    busy = sim_timeline_busy(t, end) - sim_timeline_busy(t, end - period);
    assert_in_range(busy, period / 4 - MS, period / 4 + MS);
}

static void wrapped_ring_keeps_the_total(void **state)
{
    struct sim_timeline *t = *state;

    for (uint64_t i = 0; i < 3 * SIM_SPANS; i++)
        sim_timeline_add(t, i * 10 * MS, i * 10 * MS + 2 * MS);
    assert_int_equal(sim_timeline_busy(t, UINT64_MAX), 3ull * SIM_SPANS * 2 * MS);
}

static void busy_of_a_writer_that_died_inside_is_still_read(void **state)
{
    struct sim_timeline *t = *state;

    sim_timeline_add(t, 10 * MS, 20 * MS);
    t->lock++;
    assert_int_equal(sim_timeline_busy(t, 30 * MS), 10 * MS);
}

static void tail_is_the_start_of_the_unbroken_queue(void **state)
{
    struct sim_timeline *t = *state;

    sim_timeline_add(t, 10 * MS, 20 * MS);
    sim_timeline_add(t, 30 * MS, 40 * MS);
    sim_timeline_add(t, 40 * MS, 90 * MS);
    assert_int_equal(sim_timeline_tail(t, 90 * MS, 5 * MS), 30 * MS);
    assert_int_equal(sim_timeline_tail(t, 90 * MS, 35 * MS), 35 * MS);
    assert_int_equal(sim_timeline_tail(t, 120 * MS, 35 * MS), 120 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(busy_of_an_empty_timeline_is_zero, set_up, tear_down),
        cmocka_unit_test_setup_teardown(busy_inside_a_kernel_counts_the_part_that_ran, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(back_to_back_kernels_grow_one_span, set_up, tear_down),
        cmocka_unit_test_setup_teardown(idle_gaps_are_not_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(short_kernels_with_gaps_reach_back_over_a_sample_period,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(wrapped_ring_keeps_the_total, set_up, tear_down),
        cmocka_unit_test_setup_teardown(busy_of_a_writer_that_died_inside_is_still_read, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(tail_is_the_start_of_the_unbroken_queue, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
