/* SPDX-License-Identifier: Apache-2.0 */
/* A share's charges are brought to NVML's figure in rate and in phase, and only where there are
 * others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "aliquot/share.h"
#include "daemon/monitor/pace.h"

#define MS 1000000ll
#define S (1000 * MS)
#define STEP (100 * MS)
#define ONE ALQ_TIME_CORRECTION_ONE

/* A share of 30 percent. */
struct world {
    int64_t now_ns;
    uint64_t charged_ns;
    struct alq_pace pace;
    struct alq_pace_order order;
    int64_t gate_ns; /* what the gate has counted, credits and all */
    int64_t nvml_ns;
};

static struct world world_of(void)
{
    struct world w;
    memset(&w, 0, sizeof(w));
    w.now_ns = 1000 * S;
    w.order.ppm = ONE;
    return w;
}

/* A step in hundredths of its time: what NVML shows of the share, of the others, what was charged.
 */
static void step(struct world *w, unsigned own, unsigned others, unsigned charged)
{
    const uint64_t ns = STEP / 100 * charged;
    w->now_ns += STEP;
    w->charged_ns += ns;
    w->gate_ns += (int64_t)(ns * w->order.ppm / ONE);
    w->nvml_ns += STEP / 100 * own;
    const struct alq_pace_window window = {
        .now_ns = w->now_ns,
        .charged_ns = w->charged_ns,
        .end_ns = w->now_ns,
        .wall_ns = STEP,
        .nvml_ns = STEP / 100 * own,
        .others_ns = STEP / 100 * others,
        .limit_pct = 30,
    };
    alq_pace(&w->pace, &window, &w->order);
    w->gate_ns -= w->order.credit_ns;
}

static void steps(struct world *w, unsigned count, unsigned own, unsigned others, unsigned charged)
{
    for (unsigned i = 0; i < count; i++)
        step(w, own, others, charged);
}

static void pace_alone_is_not_corrected(void **state)
{
    struct world w = world_of();
    (void)state;
    for (int i = 0; i < 50; i++) {
        step(&w, 10, 0, 50);
        assert_int_equal(w.order.ppm, ONE);
        assert_int_equal(w.order.credit_ns, 0);
        assert_false(w.order.is_contended);
    }
}

static void pace_among_others_goes_to_nvml_in_rate_and_phase(void **state)
{
    struct world w = world_of();
    (void)state;
    steps(&w, 1, 0, 0, 0);
    steps(&w, 60, 30, 70, 60);
    assert_true(w.order.is_contended);
    assert_in_range(w.order.ppm, 490000, 510000);
    assert_in_range(w.gate_ns - w.nvml_ns + 5 * MS, 0, 10 * MS);
    /* The library has learnt to leave others' turns out, from one step to the next. */
    steps(&w, 100, 30, 70, 30);
    assert_in_range(w.order.ppm, 980000, ONE);
    assert_in_range(w.gate_ns - w.nvml_ns + 5 * MS, 0, 10 * MS);
}

static void pace_of_too_little_charge_asks_for_the_rest(void **state)
{
    struct world w = world_of();
    (void)state;
    steps(&w, 1, 0, 0, 0);
    steps(&w, 60, 30, 70, 10); /* never above one in rate, so all of it in phase */
    assert_int_equal(w.order.ppm, ONE);
    assert_in_range(w.gate_ns - w.nvml_ns + 20 * MS, 0, 22 * MS);
}

static void pace_makes_up_no_faster_than_the_rate_of_the_share(void **state)
{
    struct world w = world_of();
    (void)state;
    steps(&w, 20, 30, 70, 30);
    step(&w, 30, 70, 1000); /* a second of work is read back at once */
    assert_int_equal(w.order.credit_ns, STEP / 100 * 30);
    step(&w, 30, 70, 0);
    assert_int_equal(w.order.credit_ns, STEP / 100 * 30);
    steps(&w, 100, 30, 70, 30);
    assert_in_range(w.gate_ns - w.nvml_ns + 5 * MS, 0, 10 * MS);
}

static void pace_of_what_nvml_cannot_show_is_not_corrected(void **state)
{
    struct world w = world_of();
    (void)state;
    /* At first it may be starved; when three seconds have not shown it, NVML cannot. */
    steps(&w, 1, 0, 100, 0);
    steps(&w, 31, 0, 100, 60);
    for (int i = 0; i < 50; i++) {
        step(&w, 0, 100, 60);
        assert_int_equal(w.order.ppm, ONE);
        assert_int_equal(w.order.credit_ns, 0);
        assert_false(w.order.is_contended);
    }
    /* That it was idle before says nothing. */
    steps(&w, 50, 0, 100, 0);
    steps(&w, 5, 0, 100, 60);
    assert_true(w.order.is_contended);
}

/* As NVML has them: of a sixth of a second, seen in two steps of three. */
static void pace_of_what_nvml_cannot_show_is_found_between_its_windows(void **state)
{
    struct world w = world_of();
    struct alq_pace_window window = {.limit_pct = 30};
    int64_t ended_ns = w.now_ns;
    (void)state;
    for (int i = 0; i < 100; i++) {
        w.now_ns += STEP;
        w.charged_ns += 60 * MS;
        int64_t end_ns = w.now_ns - w.now_ns % (S / 6);
        window.now_ns = w.now_ns;
        window.charged_ns = w.charged_ns;
        window.wall_ns = (uint64_t)(end_ns - ended_ns);
        window.end_ns = window.wall_ns ? end_ns : 0;
        window.others_ns = window.wall_ns;
        ended_ns = end_ns;
        alq_pace(&w.pace, &window, &w.order);
        if (i <= 35)
            continue;
        assert_int_equal(w.order.ppm, ONE);
        assert_int_equal(w.order.credit_ns, 0);
        assert_false(w.order.is_contended);
    }
}

static void pace_of_what_nvml_cannot_show_is_found_between_its_charges(void **state)
{
    struct world w = world_of();
    (void)state;
    for (int i = 0; i < 100; i++) {
        step(&w, 0, 100, i % 10 ? 0 : 300);
        if (i > 40)
            assert_int_equal(w.order.ppm, ONE);
    }
}

static void pace_that_nvml_shows_no_more_ends(void **state)
{
    struct world w = world_of();
    (void)state;
    steps(&w, 60, 20, 40, 40);
    assert_in_range(w.order.ppm, 480000, 520000);
    /* What the others do does not explain it either. */
    steps(&w, 32, 0, 40, 90);
    assert_int_equal(w.order.ppm, ONE);
    assert_false(w.order.is_contended);
    /* Shown again, it is corrected again. */
    steps(&w, 20, 30, 70, 60);
    assert_true(w.order.is_contended);
    assert_in_range(w.order.ppm, 490000, 510000);
}

static void pace_of_the_shortest_windows_stays_in_bounds(void **state)
{
    struct world w = world_of();
    struct alq_pace_window window = {.limit_pct = 30};
    (void)state;
    for (int i = 0; i < 1000; i++) {
        window.now_ns = w.now_ns += i % 2 ? STEP : 1000;
        window.charged_ns += (uint64_t)(i % 50);
        window.end_ns = w.now_ns;
        window.wall_ns = 1000; /* NVML's stamps are in microseconds */
        window.others_ns = 500;
        alq_pace(&w.pace, &window, &w.order);
        assert_in_range(w.order.ppm, ALQ_PACE_MIN_PPM, ONE);
        assert_in_range(w.order.credit_ns + 300, 0, 600);
    }
}

static void pace_leaves_out_windows_in_which_the_share_is_missing(void **state)
{
    struct world w = world_of();
    (void)state;
    /* 60 percent beside 20, and NVML shows it in every second window only. */
    for (int i = 0; i < 100; i++) {
        step(&w, i % 2 ? 0 : 60, 20, 60);
        assert_in_range(w.order.ppm, ONE - ALQ_PACE_STEP_PPM, ONE);
        assert_in_range(w.order.credit_ns + MS, 0, 2 * MS);
    }
}

static void pace_of_a_starved_share_lets_it_go_on(void **state)
{
    struct world w = world_of();
    (void)state;
    for (int i = 0; i < 100; i++)
        step(&w, i % 3 ? 0 : 1, 99, 30);
    assert_in_range(w.order.ppm, ALQ_PACE_MIN_PPM, 100000);
}

static void pace_without_a_new_window_waits_for_it(void **state)
{
    struct world w = world_of();
    struct alq_pace_window window = {.others_ns = 0, .limit_pct = 30};
    (void)state;
    /* NVML's windows of 150 ms are seen every 100 ms; what was charged between belongs to the next.
     */
    for (int i = 1; i <= 60; i++) {
        int is_new = i % 3 != 1;
        w.now_ns += STEP;
        w.charged_ns += 30 * MS;
        window.now_ns = w.now_ns;
        window.charged_ns = w.charged_ns;
        window.wall_ns = is_new ? 150 * MS : 0;
        window.nvml_ns = is_new ? 45 * MS : 0;
        window.others_ns = is_new ? 105 * MS : 0;
        window.end_ns = w.now_ns - (i % 3 == 0 ? 0 : i % 3 == 2 ? 50 * MS : 100 * MS);
        alq_pace(&w.pace, &window, &w.order);
        if (i > 6) {
            assert_int_equal(w.order.ppm, ONE);
            assert_in_range(w.order.credit_ns + MS, 0, 2 * MS);
        }
    }
}

static void pace_of_a_file_that_somebody_writes_into_stays_in_bounds(void **state)
{
    static const uint64_t charges[] = {UINT64_MAX, 0, 1, UINT64_MAX / 2, 5, UINT64_MAX - 1, 0};
    struct world w = world_of();
    (void)state;
    steps(&w, 10, 30, 70, 30);
    for (unsigned i = 0; i < 70; i++) {
        w.charged_ns = charges[i % 7];
        step(&w, 30, 70, 0);
        assert_in_range(w.order.ppm, ALQ_PACE_MIN_PPM, ONE);
        assert_in_range(w.order.credit_ns + STEP / 100 * 30, 0, 2 * STEP / 100 * 30);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pace_alone_is_not_corrected),
        cmocka_unit_test(pace_among_others_goes_to_nvml_in_rate_and_phase),
        cmocka_unit_test(pace_of_too_little_charge_asks_for_the_rest),
        cmocka_unit_test(pace_makes_up_no_faster_than_the_rate_of_the_share),
        cmocka_unit_test(pace_of_what_nvml_cannot_show_is_not_corrected),
        cmocka_unit_test(pace_of_what_nvml_cannot_show_is_found_between_its_windows),
        cmocka_unit_test(pace_of_what_nvml_cannot_show_is_found_between_its_charges),
        cmocka_unit_test(pace_that_nvml_shows_no_more_ends),
        cmocka_unit_test(pace_of_the_shortest_windows_stays_in_bounds),
        cmocka_unit_test(pace_leaves_out_windows_in_which_the_share_is_missing),
        cmocka_unit_test(pace_of_a_starved_share_lets_it_go_on),
        cmocka_unit_test(pace_without_a_new_window_waits_for_it),
        cmocka_unit_test(pace_of_a_file_that_somebody_writes_into_stays_in_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
