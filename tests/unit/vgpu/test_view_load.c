/* SPDX-License-Identifier: Apache-2.0 */
/* How busy a share is, from the slots that the gate books. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "vgpu/clock.h"
#include "vgpu/compute/gate.h"
#include "vgpu/nvml/load.h"

#define NOW 123456789012345678ull
#define SLOT (1ull << ALQ_COVER_SHIFT)
#define TURN (1ull << ALQ_BUSY_SHIFT)

void alq_control_read(const struct alq_share *share, struct alq_control_values *out)
{
    *out = *alq_control_now(share);
}

uint64_t alq_clock_ns(void)
{
    return NOW;
}

/* Books pct of each of the last 268 ms. */
static void fill(struct alq_cover *cover, uint64_t pct)
{
    for (uint64_t i = 0; i < ALQ_COVER_SLOTS - 1; i++) {
        uint64_t end = ((NOW >> ALQ_COVER_SHIFT) - i) << ALQ_COVER_SHIFT;
        alq_cover_book(alq_cover_shared(cover, NULL), end - SLOT, end, SLOT * pct / 100);
    }
}

static void booked_of_steady_work_is_its_part_of_the_period(void **state)
{
    (void)state;
    struct alq_cover cover = {{0}};
    fill(&cover, 50);
    assert_int_equal(alq_load_booked_ns(&cover, NOW), ALQ_LOAD_SLOTS * (SLOT / 2));
}

static void booked_of_older_turns_and_of_the_future_is_nothing(void **state)
{
    (void)state;
    struct alq_cover cover = {{0}};
    fill(&cover, 50);
    assert_int_equal(alq_load_booked_ns(&cover, NOW + ALQ_COVER_SLOTS * SLOT * 2), 0);
    assert_int_equal(alq_load_booked_ns(&cover, NOW - ALQ_COVER_SLOTS * SLOT * 2), 0);
}

static void booked_of_a_forged_slot_is_a_slot_at_most(void **state)
{
    (void)state;
    struct alq_cover cover;
    uint64_t turn = (NOW >> ALQ_COVER_SHIFT) / ALQ_COVER_SLOTS;
    for (uint64_t i = 0; i < ALQ_COVER_SLOTS; i++)
        cover.slots[i] = turn << 32 | 0xffffffffu;
    assert_true(alq_load_booked_ns(&cover, NOW) <= ALQ_LOAD_SLOTS * SLOT);
}

static void process_pct_spans_the_turn_under_way_and_the_one_before(void **state)
{
    (void)state;
    uint64_t turn = NOW >> ALQ_BUSY_SHIFT, begin = turn << ALQ_BUSY_SHIFT;
    struct alq_slot slot = {.busy_turn = turn, .busy_ns = TURN / 8, .busy_before_ns = TURN / 4};
    assert_int_equal(alq_load_process_pct(&slot, begin + TURN / 2), 25);
    slot.busy_turn = turn - 1;
    assert_int_equal(alq_load_process_pct(&slot, begin), 13);
    slot.busy_turn = turn - 2;
    assert_int_equal(alq_load_process_pct(&slot, begin), 0);
}

static void process_pct_of_forged_figures_is_a_hundred_at_most(void **state)
{
    (void)state;
    struct alq_slot slot = {
        .busy_turn = NOW >> ALQ_BUSY_SHIFT, .busy_ns = UINT64_MAX, .busy_before_ns = UINT64_MAX};
    assert_true(alq_load_process_pct(&slot, NOW) <= 100);
    slot.busy_turn--;
    assert_true(alq_load_process_pct(&slot, NOW) <= 100);
}

static void pct_adds_the_shares_and_needs_a_limit_in_each(void **state)
{
    (void)state;
    static struct alq_usage_section sections[2];
    static struct alq_control controls[2];
    struct alq_share shares[2] = {{.control = &controls[0], .section = &sections[0]},
                                  {.control = &controls[1], .section = &sections[1]}};
    struct alq_nvml_shares both = {{&shares[0], &shares[1]}, 2};
    uint32_t pct = 77;

    memset(sections, 0, sizeof(sections));
    fill(&sections[0].cover, 30);
    fill(&sections[1].cover, 20);
    controls[0].values[0].compute_limit_pct = 30;
    controls[1].values[0].compute_limit_pct = 20;
    assert_true(alq_load_pct(&both, &pct));
    assert_int_equal(pct, 50);
    controls[1].values[0].policy = ALQ_POLICY_NONE;
    assert_false(alq_load_pct(&both, &pct));
    controls[1].values[0] = (struct alq_control_values){.compute_limit_pct = 0};
    assert_false(alq_load_pct(&both, &pct));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(booked_of_steady_work_is_its_part_of_the_period),
        cmocka_unit_test(booked_of_older_turns_and_of_the_future_is_nothing),
        cmocka_unit_test(booked_of_a_forged_slot_is_a_slot_at_most),
        cmocka_unit_test(process_pct_spans_the_turn_under_way_and_the_one_before),
        cmocka_unit_test(process_pct_of_forged_figures_is_a_hundred_at_most),
        cmocka_unit_test(pct_adds_the_shares_and_needs_a_limit_in_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
