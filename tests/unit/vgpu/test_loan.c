/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies at the gate, in virtual time on the device of fakegpu.h: what a loan gives and to whom,
 * and that whatever ends it, a lender that says so or one that says nothing any more, leaves the
 * share with its guarantee.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fakegpu.h"

#define RENEWED_NS (25 * MS)
#define RUNS_NS (75 * MS)

static void run(void *arg)
{
    const uint64_t *kernel_ns = arg;
    for (uint64_t i = 1;; i++) {
        fake_launch(0, 0x4000, *kernel_ns);
        if (i % 4 == 0)
            fake_sync(0);
    }
}

static void lend(struct fake_share *share, uint32_t pct, uint64_t until_ns)
{
    __atomic_store_n(&share->control->loan, ALQ_LOAN(pct, until_ns), __ATOMIC_RELAXED);
}

/* Percent of the GPU over ns, under a loan that is renewed; 0 percent: there is none. */
static double used(struct fake_share *share, uint32_t pct, uint64_t ns)
{
    uint64_t busy = fake_busy_ns(0), begin = fake_now();
    for (uint64_t at = begin; at < begin + ns; at += RENEWED_NS) {
        if (pct)
            lend(share, pct, at + RUNS_NS);
        fake_run_until(at + RENEWED_NS);
    }
    return 100.0 * (double)(fake_busy_ns(0) - busy) / (double)(fake_now() - begin);
}

#define assert_within(value, least, most)                                                          \
    do {                                                                                           \
        double value_ = (value);                                                                   \
        if (value_ < (double)(least) || value_ > (double)(most))                                   \
            fail_msg("%s is %.2f, not %.2f to %.2f", #value, value_, (double)(least),              \
                     (double)(most));                                                              \
    } while (0)

static const uint64_t KERNELS[] = {50 * US, 1 * MS, 10 * MS};
#define EACH(i) (size_t i = 0; i < sizeof(KERNELS) / sizeof(KERNELS[0]); i++)

static struct fake_share begin(uint32_t limit_pct, uint32_t policy, const uint64_t *kernel_ns)
{
    fake_reset();
    struct fake_share share = fake_share_new(limit_pct);
    fake_share_limit(&share, limit_pct, policy);
    fake_process_new(0, &share, run, (void *)(uintptr_t)kernel_ns);
    return share;
}

static void rate_loan_in_force_is_taken(void **state)
{
    (void)state;
    const uint64_t now = 1000 * SEC;
    static const struct {
        uint32_t pct, policy, lent;
        uint64_t runs_ns;
        uint32_t expect; /* 0: not limited */
    } rows[] = {
        {30, ALQ_POLICY_BURST, 80, 50 * MS, 80},   {30, ALQ_POLICY_BURST, 10, 50 * MS, 30},
        {30, ALQ_POLICY_BURST, 255, 50 * MS, 100}, {30, ALQ_POLICY_BURST, 80, 0, 30},
        {30, ALQ_POLICY_BURST, 80, 2 * SEC, 30},   {30, ALQ_POLICY_HARD, 80, 50 * MS, 30},
        {0, ALQ_POLICY_HARD, 80, 50 * MS, 80},     {0, ALQ_POLICY_BURST, 80, 0, ALQ_GATE_LEAST_PCT},
        {30, ALQ_POLICY_NONE, 80, 50 * MS, 0},     {100, ALQ_POLICY_BURST, 80, 50 * MS, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct alq_control_values v = {.compute_limit_pct = rows[i].pct, .policy = rows[i].policy};
        struct alq_gate_rate rate = {0};
        bool is_limited =
            alq_gate_rate(&v, ALQ_LOAN(rows[i].lent, now + rows[i].runs_ns), now, &rate);
        assert_int_equal(is_limited, rows[i].expect != 0);
        assert_int_equal(rate.limit_pct, rows[i].expect);
    }
}

static void rate_zero_percent_never_lent_to_is_free(void **state)
{
    (void)state;
    struct alq_control_values v = {.policy = ALQ_POLICY_BURST};
    struct alq_gate_rate rate;
    assert_false(alq_gate_rate(&v, 0, SEC, &rate));
}

static void burst_takes_its_loan_and_is_back_within_100_ms(void **state)
{
    (void)state;
    for
        EACH(k)
        {
            struct fake_share share = begin(10, ALQ_POLICY_BURST, &KERNELS[k]);
            used(&share, 0, SEC);
            assert_within(used(&share, 0, 4 * SEC), 9, 11);
            used(&share, 80, SEC);
            assert_within(used(&share, 80, 4 * SEC), 78, 82);
            used(&share, 100, SEC);
            assert_within(used(&share, 100, 4 * SEC), 97, 100);
            /* The lender says nothing any more. */
            used(&share, 0, 100 * MS);
            assert_within(used(&share, 0, 2 * SEC), 7, 11);
            /* It takes the loan back. */
            used(&share, 100, SEC);
            lend(&share, 10, fake_now() + RUNS_NS);
            used(&share, 0, 50 * MS);
            assert_within(used(&share, 0, 50 * MS), 0, 25);
            assert_within(used(&share, 0, 2 * SEC), 7, 11);
        }
}

static void zero_percent_gets_what_it_is_lent(void **state)
{
    (void)state;
    for
        EACH(k)
        {
            struct fake_share share = begin(0, ALQ_POLICY_HARD, &KERNELS[k]);
            assert_within(used(&share, 0, SEC), 97, 100);
            used(&share, 60, SEC);
            assert_within(used(&share, 60, 4 * SEC), 58, 62);
            used(&share, 0, 100 * MS);
            assert_within(used(&share, 0, 4 * SEC), 0, 2);
        }
}

static void hard_is_lent_nothing(void **state)
{
    (void)state;
    struct fake_share share = begin(20, ALQ_POLICY_HARD, &KERNELS[1]);
    used(&share, 90, SEC);
    assert_within(used(&share, 90, 4 * SEC), 19, 21);
}

static void correction_ends_with_its_time(void **state)
{
    (void)state;
    struct fake_share share = begin(20, ALQ_POLICY_HARD, &KERNELS[1]);
    share.control->values[share.control->sequence & 1].time_correction_ppm = 500000;
    used(&share, 0, SEC);
    assert_within(used(&share, 0, 4 * SEC), 39, 41);
    share.control->corrected_until_ns = fake_now() + 2 * SEC;
    assert_within(used(&share, 0, 2 * SEC), 39, 41);
    used(&share, 0, SEC);
    assert_within(used(&share, 0, 4 * SEC), 19, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rate_loan_in_force_is_taken),
        cmocka_unit_test(rate_zero_percent_never_lent_to_is_free),
        cmocka_unit_test(burst_takes_its_loan_and_is_back_within_100_ms),
        cmocka_unit_test(zero_percent_gets_what_it_is_lent),
        cmocka_unit_test(hard_is_lent_nothing),
        cmocka_unit_test(correction_ends_with_its_time),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fake_reset();
    return failed;
}
