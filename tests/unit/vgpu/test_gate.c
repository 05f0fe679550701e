/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual clock and the cover slots of src/vgpu/compute/gate.c, with the clock as a number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "vgpu/compute/gate.h"

#define MS 1000000ull
#define T0 (100 * 1000 * MS)

static const struct alq_gate_rate RATE_50 = {.limit_pct = 50};
static const struct alq_gate_rate RATE_10 = {.limit_pct = 10};

static bool limited(uint32_t pct, uint32_t policy)
{
    struct alq_control_values v = {.compute_limit_pct = pct, .policy = policy};
    return alq_gate_is_limited(&v);
}

static void is_limited_policies_and_ends(void **state)
{
    (void)state;
    assert_true(limited(1, ALQ_POLICY_HARD));
    assert_true(limited(99, ALQ_POLICY_HARD));
    assert_true(limited(30, ALQ_POLICY_BURST));
    assert_false(limited(30, ALQ_POLICY_NONE));
    assert_false(limited(0, ALQ_POLICY_HARD));
    assert_false(limited(100, ALQ_POLICY_HARD));
    assert_false(limited(4000000000u, ALQ_POLICY_HARD));
}

static void wall_ns_extremes_no_overflow(void **state)
{
    (void)state;
    struct alq_gate_rate rate = {.limit_pct = 1, .correction_ppm = 0xffffffffu};
    assert_int_equal(alq_gate_wall_ns(&RATE_50, 3 * MS), 6 * MS);
    assert_int_equal(alq_gate_wall_ns(&rate, UINT64_MAX), ALQ_GATE_CHARGE_MAX_NS * 400);
    rate.correction_ppm = 500000;
    assert_int_equal(alq_gate_wall_ns(&rate, MS), 50 * MS);
    rate.limit_pct = 0;
    assert_int_equal(alq_gate_wall_ns(&rate, MS), 50 * MS);
}

static void reserve_after_idle_gives_burst_and_no_more(void **state)
{
    (void)state;
    struct alq_gate gate = {0};
    uint64_t at_once = 0;
    /* An hour of idle time, then launches of 1 ms at 50 %: 2 ms of the clock each. */
    while (alq_gate_reserve(&gate, &RATE_50, T0 + 3600000 * MS, MS) <= T0 + 3600000 * MS)
        at_once++;
    assert_int_equal(at_once, ALQ_GATE_BURST_NS / (2 * MS) + 1);
}

static void reserve_back_to_back_leaves_at_the_rate(void **state)
{
    (void)state;
    struct alq_gate gate = {0};
    uint64_t now = T0, work = 0;
    while (now < T0 + 10000 * MS) {
        uint64_t at = alq_gate_reserve(&gate, &RATE_10, now, 3 * MS);
        if (at > now)
            now = at;
        work += 3 * MS;
    }
    /* 10 % of 10 s, the burst and one launch. */
    assert_in_range(work, 1000 * MS, 1000 * MS + ALQ_GATE_BURST_NS / 10 + 6 * MS);
}

static void reserve_late_comer_waits_behind_those_before(void **state)
{
    (void)state;
    struct alq_gate gate = {0};
    uint64_t last = 0;
    for (int i = 0; i < 100; i++) {
        /* Costs differ; times of leaving never go back. */
        uint64_t at = alq_gate_reserve(&gate, &RATE_50, T0 + (uint64_t)i * 1000,
                                       (uint64_t)(1 + i * 7 % 5) * (uint64_t)MS);
        assert_true(at >= last);
        last = at;
    }
    assert_true(last > T0);
}

static void reserve_far_future_clock_is_now(void **state)
{
    (void)state;
    struct alq_gate gate = {.tat_ns = T0 + ALQ_GATE_AHEAD_MAX_NS + 1};
    assert_true(alq_gate_peek(&gate, T0) <= T0);
    assert_true(alq_gate_reserve(&gate, &RATE_50, T0, MS) <= T0);
    gate.tat_ns = UINT64_MAX;
    assert_true(alq_gate_reserve(&gate, &RATE_50, T0, MS) <= T0);
    assert_int_equal(gate.tat_ns, T0 + 2 * MS);
}

static void reserve_debt_ends_at_the_horizon(void **state)
{
    (void)state;
    struct alq_gate gate = {0};
    for (int i = 0; i < 100; i++)
        alq_gate_reserve(&gate, &RATE_10, T0, 1000 * MS);
    assert_int_equal(gate.tat_ns, T0 + ALQ_GATE_AHEAD_MAX_NS);
    /* Debt at the horizon is still believed. */
    assert_int_equal(alq_gate_reserve(&gate, &RATE_10, T0, MS),
                     T0 + ALQ_GATE_AHEAD_MAX_NS - ALQ_GATE_BURST_NS);
}

static void settle_both_signs_moves_the_clock(void **state)
{
    (void)state;
    struct alq_gate gate = {0};
    alq_gate_reserve(&gate, &RATE_50, T0, 10 * MS);
    alq_gate_settle(&gate, &RATE_50, T0, 5 * (int64_t)MS);
    assert_int_equal(gate.settled_ns, 10 * MS);
    assert_int_equal(gate.tat_ns, T0 + 30 * MS);
    alq_gate_settle(&gate, &RATE_50, T0, -12 * (int64_t)MS);
    assert_int_equal(gate.settled_ns, -14 * (int64_t)MS);
    assert_int_equal(gate.tat_ns, T0 + 6 * MS);
    alq_gate_settle(&gate, &RATE_50, T0, INT64_MIN / 4);
    assert_int_equal(gate.settled_ns, -14 * (int64_t)MS - (int64_t)ALQ_GATE_CHARGE_MAX_NS * 2);
    assert_true(gate.tat_ns <= T0);
    /* What was given back is worth the burst, not more. */
    assert_true(alq_gate_reserve(&gate, &RATE_50, T0, 25 * MS) <= T0);
    assert_true(alq_gate_reserve(&gate, &RATE_50, T0, MS) <= T0);
    assert_true(alq_gate_reserve(&gate, &RATE_50, T0, MS) > T0);
}

static void join_other_boot_takes_now(void **state)
{
    (void)state;
    struct alq_gate gate = {.tat_ns = T0 + 15000 * MS, .boot_id = 7};
    alq_gate_join(&gate, 0, T0);
    alq_gate_join(&gate, 7, T0);
    assert_int_equal(gate.tat_ns, T0 + 15000 * MS);
    alq_gate_join(&gate, 8, T0);
    assert_int_equal(gate.tat_ns, T0);
    assert_int_equal(gate.boot_id, 8);
}

static void rerate_changed_limit_scales_what_is_ahead(void **state)
{
    (void)state;
    struct alq_gate gate = {0};
    alq_gate_rerate(&gate, &RATE_10, T0);
    alq_gate_reserve(&gate, &RATE_10, T0, 100 * MS);
    assert_int_equal(gate.tat_ns, T0 + 1000 * MS);
    alq_gate_rerate(&gate, &RATE_50, T0);
    assert_int_equal(gate.tat_ns, T0 + 200 * MS);
    alq_gate_rerate(&gate, &RATE_50, T0);
    assert_int_equal(gate.tat_ns, T0 + 200 * MS);
    alq_gate_rerate(&gate, &RATE_10, T0 + 500 * MS);
    assert_int_equal(gate.tat_ns, T0 + 200 * MS); /* behind now: nothing to stretch */
}

static void rerate_to_a_small_limit_keeps_the_debt(void **state)
{
    (void)state;
    static const uint32_t before[] = {100, 90, 50, 2};
    for (int i = 0; i < 4; i++) {
        const struct alq_gate_rate large = {.limit_pct = before[i]}, least = {.limit_pct = 1};
        struct alq_gate gate = {.tat_ns = T0 + 15000 * MS};
        alq_gate_rerate(&gate, &large, T0);
        alq_gate_rerate(&gate, &least, T0);
        assert_int_equal(gate.tat_ns, T0 + ALQ_GATE_AHEAD_MAX_NS);
        assert_true(alq_gate_peek(&gate, T0) > T0);
    }
}

static void take_credit_both_signs_moves_the_clock_once(void **state)
{
    (void)state;
    struct alq_gate gate = {.tat_ns = T0 + 500 * MS};
    /* Given back at the plain rate, whatever part of what is charged counts. */
    const struct alq_gate_rate rate = {.limit_pct = 50, .correction_ppm = 250000};
    for (int i = 0; i < 3; i++) {
        alq_gate_take_credit(&gate, &rate, T0, 50 * MS);
        assert_int_equal(gate.tat_ns, T0 + 400 * MS);
    }
    alq_gate_take_credit(&gate, &rate, T0, 20 * MS);
    assert_int_equal(gate.tat_ns, T0 + 460 * MS);
    alq_gate_take_credit(&gate, &rate, T0, (uint64_t)-10 * MS);
    assert_int_equal(gate.tat_ns, T0 + 520 * MS);
}

static void take_credit_of_another_file_is_taken_for_known(void **state)
{
    (void)state;
    struct alq_gate gate = {.tat_ns = T0 + 500 * MS};
    alq_gate_take_credit(&gate, &RATE_50, T0, 0x8000000000000000ull);
    alq_gate_take_credit(&gate, &RATE_50, T0, 3600000 * MS);
    assert_int_equal(gate.tat_ns, T0 + 500 * MS);
    alq_gate_take_credit(&gate, &RATE_50, T0, 3600050 * MS);
    assert_int_equal(gate.tat_ns, T0 + 400 * MS);
}

static struct alq_cover cover;
static struct alq_cover_far cover_far;

static void cover_book_disjoint_counts_all(void **state)
{
    (void)state;
    memset(&cover, 0, sizeof(cover));
    uint64_t sum = 0;
    for (uint64_t i = 0; i < 2000; i++)
        sum += alq_cover_book(alq_cover_shared(&cover, NULL), T0 + i * 7777777,
                              T0 + i * 7777777 + 3333333, MS);
    assert_int_equal(sum, 2000 * MS);
}

static void cover_book_overlap_counts_once_in_any_order(void **state)
{
    (void)state;
    /* A sparse interval and a dense one over the same 64 ms: together no more than the time, each
     * in full if it fits. */
    for (int order = 0; order < 2; order++) {
        memset(&cover, 0, sizeof(cover));
        uint64_t a = alq_cover_book(alq_cover_shared(&cover, NULL), T0, T0 + 64 * MS,
                                    order ? 60 * MS : 10 * MS);
        uint64_t b = alq_cover_book(alq_cover_shared(&cover, NULL), T0, T0 + 64 * MS,
                                    order ? 10 * MS : 60 * MS);
        assert_int_equal(a, order ? 60 * MS : 10 * MS);
        assert_in_range(a + b, 64 * MS - 10,
                        64 * MS + 3 * MS); /* the slots at both ends are whole */
        assert_int_equal(
            alq_cover_book(alq_cover_shared(&cover, NULL), T0 + 5 * MS, T0 + 55 * MS, 50 * MS) / MS,
            0);
    }
}

static void cover_book_turns_in_the_order_of_their_ends_all_find_room(void **state)
{
    (void)state;
    /* Four streams whose kernels of 8 ms run one after the other: each span begins with the first
     * and ends with its own. The next round was launched while the last one ran. */
    memset(&cover, 0, sizeof(cover));
    for (uint64_t round = 0; round < 4; round++)
        for (uint64_t i = 1; i <= 4; i++) {
            uint64_t start = T0 + (round ? (round * 32 - 16) * MS : 0);
            uint64_t end = T0 + (round * 32 + i * 8) * MS;
            assert_in_range(alq_cover_book(alq_cover_shared(&cover, NULL), start, end, 8 * MS),
                            8 * MS - 10, 8 * MS);
        }
}

static void cover_book_longer_than_reach_counts_all_once(void **state)
{
    (void)state;
    memset(&cover, 0, sizeof(cover));
    assert_int_equal(alq_cover_book(alq_cover_shared(&cover, NULL), T0, T0 + 5000 * MS, 5000 * MS),
                     5000 * MS);
    assert_int_equal(
        alq_cover_book(alq_cover_shared(&cover, NULL), T0 + 4900 * MS, T0 + 5000 * MS, 100 * MS) /
            (2 * MS),
        0);
    /* Half the density, of which rounding may take a millionth. */
    memset(&cover, 0, sizeof(cover));
    assert_in_range(alq_cover_book(alq_cover_shared(&cover, NULL), T0, T0 + 5000 * MS, 2500 * MS),
                    2499 * MS, 2500 * MS);
}

static void cover_book_late_arrival_counts_in_full(void **state)
{
    (void)state;
    memset(&cover, 0, sizeof(cover));
    alq_cover_book(alq_cover_shared(&cover, NULL), T0 + 1000 * MS, T0 + 1200 * MS, 200 * MS);
    assert_int_equal(
        alq_cover_book(alq_cover_shared(&cover, NULL), T0 + 800 * MS, T0 + 810 * MS, 10 * MS),
        10 * MS);
}

static void cover_book_far_counts_long_spans_once(void **state)
{
    (void)state;
    const struct alq_cover_view view = alq_cover_shared(&cover, &cover_far);
    memset(&cover, 0, sizeof(cover));
    memset(&cover_far, 0, sizeof(cover_far));
    /* Half of three seconds in short spans, and then a kernel that was on the GPU for all of it. */
    for (uint64_t i = 0; i < 300; i++)
        assert_int_equal(alq_cover_book(view, T0 + i * 10 * MS, T0 + (i + 1) * 10 * MS, 5 * MS),
                         5 * MS);
    assert_in_range(alq_cover_book(view, T0, T0 + 3000 * MS, 3000 * MS), 1490 * MS, 1540 * MS);
    assert_in_range(alq_cover_book(view, T0, T0 + 3000 * MS, 3000 * MS), 0, 40 * MS);
    /* What is longer than even these slots reach counts in full there. */
    assert_in_range(alq_cover_book(view, T0 + 3000 * MS, T0 + 13000 * MS, 10000 * MS), 9960 * MS,
                    10000 * MS);
    assert_in_range(alq_cover_book(view, T0 + 3000 * MS, T0 + 13000 * MS, 10000 * MS), 5700 * MS,
                    5760 * MS);
}

static void cover_book_garbage_slots_are_harmless(void **state)
{
    (void)state;
    memset(&cover, 0xa5, sizeof(cover));
    uint64_t booked = alq_cover_book(alq_cover_shared(&cover, NULL), T0, T0 + 100 * MS, 100 * MS);
    assert_true(booked <= 100 * MS);
    memset(&cover_far, 0xa5, sizeof(cover_far));
    assert_true(alq_cover_book(alq_cover_shared(&cover, &cover_far), T0, T0 + 3000 * MS,
                               3000 * MS) <= 3000 * MS);
    assert_int_equal(alq_cover_book(alq_cover_shared(&cover, NULL), T0, T0, MS), 0);
    assert_int_equal(alq_cover_book(alq_cover_shared(&cover, NULL), T0 + 1, T0, MS), 0);
    assert_int_equal(alq_cover_book(alq_cover_shared(&cover, NULL), T0, T0 + MS, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_limited_policies_and_ends),
        cmocka_unit_test(wall_ns_extremes_no_overflow),
        cmocka_unit_test(reserve_after_idle_gives_burst_and_no_more),
        cmocka_unit_test(reserve_back_to_back_leaves_at_the_rate),
        cmocka_unit_test(reserve_late_comer_waits_behind_those_before),
        cmocka_unit_test(reserve_far_future_clock_is_now),
        cmocka_unit_test(reserve_debt_ends_at_the_horizon),
        cmocka_unit_test(settle_both_signs_moves_the_clock),
        cmocka_unit_test(rerate_to_a_small_limit_keeps_the_debt),
        cmocka_unit_test(take_credit_both_signs_moves_the_clock_once),
        cmocka_unit_test(take_credit_of_another_file_is_taken_for_known),
        cmocka_unit_test(join_other_boot_takes_now),
        cmocka_unit_test(rerate_changed_limit_scales_what_is_ahead),
        cmocka_unit_test(cover_book_disjoint_counts_all),
        cmocka_unit_test(cover_book_overlap_counts_once_in_any_order),
        cmocka_unit_test(cover_book_turns_in_the_order_of_their_ends_all_find_room),
        cmocka_unit_test(cover_book_longer_than_reach_counts_all_once),
        cmocka_unit_test(cover_book_late_arrival_counts_in_full),
        cmocka_unit_test(cover_book_far_counts_long_spans_once),
        cmocka_unit_test(cover_book_garbage_slots_are_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
