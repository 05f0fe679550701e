/* SPDX-License-Identifier: Apache-2.0 */
/* The table of estimates: what it makes of constant, waiting and differing launches, and its
 * bounds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "vgpu/compute/estimate.h"

static struct alq_estimates *table;
static uint32_t seed;

static uint32_t random_below(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)seed * n >> 32);
}

static int setup(void **state)
{
    (void)state;
    free(table);
    table = calloc(1, sizeof(*table));
    seed = 1;
    return table ? 0 : -1;
}

static struct alq_estimate *find(uintptr_t handle, uint32_t size_class)
{
    return alq_estimate_find(table, (const void *)handle, ALQ_ESTIMATE_FUNCTION, 0, size_class);
}

static void class_powers_of_two_apart(void **state)
{
    (void)state;
    assert_int_equal(alq_estimate_class(1, 1), 0);
    assert_int_equal(alq_estimate_class(1, 256), 8);
    assert_int_equal(alq_estimate_class(1000, 256), 17);
    assert_int_equal(alq_estimate_class(0, 0), 0);
    assert_int_equal(alq_estimate_class(1ull << 53, 1024), 63);
}

static void find_same_key_same_entry(void **state)
{
    (void)state;
    struct alq_estimate *a = find(0x1000, 3);
    assert_ptr_equal(a, find(0x1000, 3));
    assert_ptr_not_equal(a, find(0x1000, 4));
    assert_ptr_not_equal(a, find(0x2000, 3));
    assert_ptr_not_equal(a,
                         alq_estimate_find(table, (const void *)0x1000, ALQ_ESTIMATE_GRAPH, 0, 3));
    for (uint32_t device = 1; device < 16; device++)
        assert_ptr_not_equal(
            a, alq_estimate_find(table, (const void *)0x1000, ALQ_ESTIMATE_FUNCTION, device, 3));
    assert_int_equal(alq_estimate_ns(a), ALQ_ESTIMATE_FIRST_NS);
}

static void find_more_handles_than_entries_shares_the_last(void **state)
{
    (void)state;
    uint32_t shared = 0;
    for (uintptr_t i = 1; i <= 3 * ALQ_ESTIMATES; i++)
        shared += find(i << 4, 0) == &table->entries[ALQ_ESTIMATES];
    assert_true(shared >= 2 * ALQ_ESTIMATES);
    assert_true(shared < 3 * ALQ_ESTIMATES - ALQ_ESTIMATES / 2);
}

static void forget_graph_starts_anew_and_frees_the_place(void **state)
{
    (void)state;
    for (uintptr_t i = 1; i <= 20 * ALQ_ESTIMATES; i++) {
        struct alq_estimate *e =
            alq_estimate_find(table, (const void *)(i << 6), ALQ_ESTIMATE_GRAPH, 0, 0);
        assert_ptr_not_equal(e, &table->entries[ALQ_ESTIMATES]);
        assert_int_equal(alq_estimate_ns(e), ALQ_ESTIMATE_FIRST_NS);
        alq_estimate_learn(table, e, 5000000, ALQ_MOMENT_FRESH, false);
        alq_estimate_forget_graph(table, (const void *)(i << 6));
    }
}

/* A program that compiles, loads and unloads without end: each of its functions is known by itself.
 */
static void doubt_places_of_unloaded_functions_are_used_again(void **state)
{
    (void)state;
    struct alq_estimate *kept = NULL;
    for (uintptr_t i = 1; i <= 100000; i++) {
        kept = find(0x1000, 0);
        alq_estimate_learn(table, kept, 3000, ALQ_MOMENT_FRESH, false);
        struct alq_estimate *e = find(0x100000 + (i << 6), 3);
        assert_ptr_not_equal(e, &table->entries[ALQ_ESTIMATES]);
        assert_int_equal(alq_estimate_ns(e), ALQ_ESTIMATE_FIRST_NS);
        alq_estimate_learn(table, e, 5000000, ALQ_MOMENT_FRESH, false);
        alq_estimates_doubt(table);
    }
    assert_int_equal(alq_estimate_ns(find(0x1000, 0)), 3000);
}

static void is_due_first_sights_then_about_one_in_256(void **state)
{
    (void)state;
    struct alq_estimate *e = find(0x1000, 0);
    uint32_t timed = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        if (!alq_estimate_is_due(table, e))
            continue;
        assert_true(timed >= 4 || i < 4);
        alq_estimate_take(table, e);
        alq_estimate_learn(table, e, 1000, ALQ_MOMENT_FRESH, false);
        timed++;
    }
    assert_in_range(timed, 100000 / 256 - 40, 100000 / 256 + 40);
}

static void learn_constant_under_waiting_gives_the_floor(void **state)
{
    (void)state;
    struct alq_estimate *e = find(0x1000, 0);
    for (int i = 0; i < 200; i++) {
        /* A neighbour holds the GPU for 3 ms half of the time. */
        uint32_t wait = random_below(2) ? random_below(3000000) : 0;
        alq_estimate_learn(table, e, 1000000 + random_below(5000) + wait, ALQ_MOMENT_FRESH, false);
    }
    assert_in_range(alq_estimate_ns(e), 1000000, 1130000);
    assert_int_equal(e->spread, ALQ_SPREAD_FLOORED);
}

static void learn_differing_work_gives_the_mean(void **state)
{
    (void)state;
    uint64_t sum = 0;
    struct alq_estimate *two = find(0x1000, 0), *wide = find(0x2000, 0);
    /* Two lengths by turns: the floor alone would be a tenth of the mean. */
    for (int i = 0; i < 160; i++)
        alq_estimate_learn(table, two, (i & 1 ? 10000000 : 1000000) + random_below(1000),
                           ALQ_MOMENT_FRESH, false);
    assert_in_range(alq_estimate_ns(two), 4500000, 6500000);
    assert_int_equal(two->spread, ALQ_SPREAD_WIDE);
    for (int i = 0; i < 64; i++) {
        alq_estimate_learn(table, wide, 100000 + random_below(1900000), ALQ_MOMENT_FRESH, false);
        sum += alq_estimate_ns(wide);
    }
    assert_in_range(sum / 64, 700000, 1300000);
}

static void learn_among_others_stays_near_the_floor(void **state)
{
    (void)state;
    struct alq_estimate *e = find(0x1000, 0), *two = find(0x2000, 0);
    for (int i = 0; i < 20; i++)
        alq_estimate_learn(table, e, 1000000 + random_below(5000), ALQ_MOMENT_FRESH, false);
    /* Others come: every timing waits, some of them as long as others did, and for a dozen on end
     * all. */
    for (uint32_t i = 0; i < 200; i++) {
        uint32_t wait = i % 40 < 12 ? 1000000 + i % 4 * 500000 : random_below(3000000);
        alq_estimate_learn(table, e, 1000000 + wait, ALQ_MOMENT_FRESH, true);
        assert_in_range(alq_estimate_ns(e), 1000000, 1500000);
    }
    /* Two lengths by turns: the shorter, for what it is to the whole is the daemon's to find. */
    for (int i = 0; i < 160; i++)
        alq_estimate_learn(table, two, i & 1 ? 10000000 : 1000000, ALQ_MOMENT_FRESH, true);
    assert_in_range(alq_estimate_ns(two), 1000000, 1100000);
    /* They go: the mean again. */
    for (int i = 0; i < 32; i++)
        alq_estimate_learn(table, two, i & 1 ? 10000000 : 1000000, ALQ_MOMENT_FRESH, false);
    assert_in_range(alq_estimate_ns(two), 4500000, 6500000);
}

static void learn_change_of_length_is_followed(void **state)
{
    (void)state;
    struct alq_estimate *e = find(0x1000, 0);
    for (int i = 0; i < 100; i++)
        alq_estimate_learn(table, e, 1000000, ALQ_MOMENT_FRESH, false);
    for (int i = 0; i < 16; i++)
        alq_estimate_learn(table, e, 3000000, ALQ_MOMENT_FRESH, false);
    assert_int_equal(alq_estimate_ns(e), 3000000);
    for (int i = 0; i < 16; i++)
        alq_estimate_learn(table, e, 200000, ALQ_MOMENT_FRESH, false);
    assert_int_equal(alq_estimate_ns(e), 200000);
    alq_estimate_learn(table, e, UINT64_MAX, ALQ_MOMENT_FRESH, false);
    alq_estimate_learn(table, e, 0, ALQ_MOMENT_FRESH, false);
    assert_true(alq_estimate_ns(e) > 0);
}

static void held_readings_are_not_learnt_and_lower_what_is_expected(void **state)
{
    (void)state;
    struct alq_estimate *fresh = find(0x1000, 0), *e = find(0x2000, 0);
    assert_false(alq_estimate_held(table, fresh, 90000000, ALQ_MOMENT_FRESH, false));
    assert_int_equal(alq_estimate_ns(fresh), ALQ_ESTIMATE_HELD_NS);
    for (int i = 0; i < 16; i++)
        alq_estimate_learn(table, e, 30000000, ALQ_MOMENT_FRESH, false);
    /* Chance: others come between. */
    for (int i = 0; i < 100; i++) {
        if (i % (int)ALQ_HELD_MIN)
            assert_false(alq_estimate_held(table, e, 90000000, ALQ_MOMENT_FRESH, false));
        else
            alq_estimate_learn(table, e, 30000000, ALQ_MOMENT_FRESH, false);
        assert_int_equal(alq_estimate_ns(e), 30000000);
    }
    alq_estimate_learn(table, e, 30000000, ALQ_MOMENT_FRESH, false);
    for (int i = 1; i < (int)ALQ_HELD_MIN; i++)
        alq_estimate_held(table, e, 90000000, ALQ_MOMENT_FRESH, false);
    assert_true(alq_estimate_held(table, e, 90000000, ALQ_MOMENT_FRESH, false));
    assert_int_equal(alq_estimate_ns(e), 15000000);
    assert_true(alq_estimate_held(table, e, 90000000, ALQ_MOMENT_FRESH, false));
    assert_true(alq_estimate_held(table, e, 90000000, ALQ_MOMENT_FRESH, false));
    assert_int_equal(alq_estimate_ns(e), ALQ_ESTIMATE_HELD_NS);
    alq_estimate_learn(table, e, 30000000, ALQ_MOMENT_FRESH, false);
    assert_int_equal(alq_estimate_ns(e), 30000000);
}

static void doubt_all_entries_are_due_once_more(void **state)
{
    (void)state;
    struct alq_estimate *e = find(0x1000, 0);
    for (int i = 0; i < 16; i++) {
        alq_estimate_take(table, e);
        alq_estimate_learn(table, e, 1000000, ALQ_MOMENT_FRESH, false);
    }
    assert_false(alq_estimate_is_due(table, e));
    alq_estimates_doubt(table);
    assert_true(alq_estimate_is_due(table, e));
    assert_int_equal(alq_estimate_ns(e), 1000000);
    alq_estimate_learn(table, e, 50000, ALQ_MOMENT_FRESH, false);
    assert_int_equal(alq_estimate_ns(e), 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(class_powers_of_two_apart, setup),
        cmocka_unit_test_setup(find_same_key_same_entry, setup),
        cmocka_unit_test_setup(find_more_handles_than_entries_shares_the_last, setup),
        cmocka_unit_test_setup(forget_graph_starts_anew_and_frees_the_place, setup),
        cmocka_unit_test_setup(doubt_places_of_unloaded_functions_are_used_again, setup),
        cmocka_unit_test_setup(is_due_first_sights_then_about_one_in_256, setup),
        cmocka_unit_test_setup(learn_constant_under_waiting_gives_the_floor, setup),
        cmocka_unit_test_setup(learn_differing_work_gives_the_mean, setup),
        cmocka_unit_test_setup(learn_among_others_stays_near_the_floor, setup),
        cmocka_unit_test_setup(learn_change_of_length_is_followed, setup),
        cmocka_unit_test_setup(held_readings_are_not_learnt_and_lower_what_is_expected, setup),
        cmocka_unit_test_setup(doubt_all_entries_are_due_once_more, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
