/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Busy time by NVML's sample periods: split at their ends, empty where nothing ran, kept for ten
 * seconds. Times are made up; single-threaded.
 */
#include "model/usage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define P SIM_PERIOD_NS

static void usage_of_nothing_is_zero(void **state)
{
    struct sim_usage u = {0};

    (void)state;
    assert_int_equal(sim_usage_of(&u, 0), 0);
    assert_int_equal(sim_usage_of(&u, 7), 0);
}

static void usage_within_a_period_adds_up(void **state)
{
    struct sim_usage u = {0};

    (void)state;
    sim_usage_add(&u, 5 * P, 5 * P + 100);
    sim_usage_add(&u, 5 * P + 300, 6 * P);
    assert_int_equal(sim_usage_of(&u, 5), P - 200);
    assert_int_equal(u.busy_ns, P - 200);
}

static void usage_across_periods_is_split_at_their_ends(void **state)
{
    struct sim_usage u = {0};

    (void)state;
    sim_usage_add(&u, P - 10, 3 * P + 20);
    assert_int_equal(sim_usage_of(&u, 0), 10);
    assert_int_equal(sim_usage_of(&u, 1), P);
    assert_int_equal(sim_usage_of(&u, 2), P);
    assert_int_equal(sim_usage_of(&u, 3), 20);
    assert_int_equal(sim_usage_of(&u, 4), 0);
    assert_int_equal(u.busy_ns, 2 * P + 30);
}

static void usage_of_an_idle_period_is_zero_and_older_ones_stay(void **state)
{
    struct sim_usage u = {0};

    (void)state;
    sim_usage_add(&u, 10 * P, 10 * P + 7);
    sim_usage_add(&u, 20 * P, 20 * P + 9);
    assert_int_equal(sim_usage_of(&u, 10), 7);
    assert_int_equal(sim_usage_of(&u, 15), 0);
    assert_int_equal(sim_usage_of(&u, 20), 9);
}

static void usage_older_than_the_ring_is_forgotten_but_counted(void **state)
{
    struct sim_usage u = {0};

    (void)state;
    sim_usage_add(&u, 0, 50);
    sim_usage_add(&u, 1000 * P, 1000 * P + 1);
    assert_int_equal(sim_usage_of(&u, 0), 0);
    assert_int_equal(sim_usage_of(&u, 1000 - SIM_PERIODS + 1), 0);
    assert_int_equal(sim_usage_of(&u, 1000), 1);
    assert_int_equal(u.busy_ns, 51);
}

static void percent_is_whole_and_at_most_a_hundred(void **state)
{
    (void)state;
    assert_int_equal(sim_usage_percent(0), 0);
    assert_int_equal(sim_usage_percent(P / 2), 50);
    assert_int_equal(sim_usage_percent(P), 100);
    assert_int_equal(sim_usage_percent(P + 1000), 100);
}

static void last_period_is_the_one_that_is_over(void **state)
{
    (void)state;
    assert_int_equal(sim_usage_last_period(9 * P), 8);
    assert_int_equal(sim_usage_last_period(10 * P - 1), 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_of_nothing_is_zero),
        cmocka_unit_test(usage_within_a_period_adds_up),
        cmocka_unit_test(usage_across_periods_is_split_at_their_ends),
        cmocka_unit_test(usage_of_an_idle_period_is_zero_and_older_ones_stay),
        cmocka_unit_test(usage_older_than_the_ring_is_forgotten_but_counted),
        cmocka_unit_test(percent_is_whole_and_at_most_a_hundred),
        cmocka_unit_test(last_period_is_the_one_that_is_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
