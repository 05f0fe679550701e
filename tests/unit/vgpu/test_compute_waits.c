/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that waits for other work of the program, in virtual time on the device of fakegpu.h: a
 * kernel spins until the last of ten later launches has set its flag, and every launch that the
 * gate holds back lets it spin for longer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fakegpu.h"

#define ROUNDS 1000
#define SETTLED 300 /* rounds, after which those of small kernels have used up the burst */
#define LATER 10

static struct {
    uint64_t kernel_ns;
    bool is_fresh;   /* the function that spins is another one in each round */
    bool is_waiting; /* for its work, at the end of a round */
    int done;
    uint64_t launched_ns[ROUNDS]; /* the kernel that spins */
    uint64_t let_go_ns[ROUNDS];   /* the last launch that it waits for */
} w;

static void rounds(void *arg)
{
    static bool flags[ROUNDS];
    (void)arg;
    for (int i = 0; i < ROUNDS; i++) {
        flags[i] = false;
        fake_self()->until = &flags[i];
        fake_launch(1, 0x60000 + (w.is_fresh ? (uintptr_t)i * 64 : 0), US);
        w.launched_ns[i] = fake_now();
        for (int k = 1; k <= LATER; k++) {
            if (k == LATER)
                fake_self()->sets = &flags[i];
            fake_launch(2, 0x4000, w.kernel_ns);
        }
        w.let_go_ns[i] = fake_now();
        if (w.is_waiting) {
            fake_sync(1);
            fake_sync(2);
        }
        w.done++;
    }
}

static uint64_t longest_spin_ns(void)
{
    uint64_t longest = 0;
    for (int i = 0; i < w.done; i++)
        if (w.let_go_ns[i] - w.launched_ns[i] > longest)
            longest = w.let_go_ns[i] - w.launched_ns[i];
    return longest;
}

static double round_ms(int from, int to)
{
    return (double)(w.let_go_ns[to] - w.let_go_ns[from]) / (to - from) / (double)MS;
}

static void spin_under(uint32_t pct, bool is_among_others)
{
    fake_reset();
    w.done = 0;
    struct fake_share share = fake_share_new(pct);
    share.control->contended_until_ns = is_among_others ? UINT64_MAX : 0; /* as the daemon says */
    fake_process_new(0, &share, rounds, NULL)->is_overlapping = true;
    uint64_t begin = fake_now();
    fake_run_until(begin + 3600 * SEC);
    double spin = (double)longest_spin_ns() / (double)MS;
    double early = round_ms(SETTLED, SETTLED + 100), late = round_ms(ROUNDS - 101, ROUNDS - 1);
    double used = 100.0 * (double)fake_busy_ns(0) / (double)(w.let_go_ns[ROUNDS - 1] - begin);
    print_message("%u percent, kernels of %llu us, %s, %s: a round %.3f ms, later %.3f ms, longest "
                  "spin %.3f ms, %.2f percent used\n",
                  pct, (unsigned long long)(w.kernel_ns / US),
                  w.is_fresh ? "new functions" : "one function",
                  w.is_waiting ? "waiting" : "never waiting", early, late, spin, used);
    assert_int_equal(w.done, ROUNDS);
    /* 20 ms a launch for work of our own, and what the ten cost at the share's rate; among others
     * once more until that is seen. */
    double most = LATER * (20 + (double)w.kernel_ns * 100 / pct / (double)MS);
    assert_true(spin <= (is_among_others ? 2 : 1) * most);
    if (w.kernel_ns >= MS) {
        assert_true(late <= early * 1.1);
        /* The time that it spins is charged: the share holds. */
        assert_true(used <= pct + 2);
    }
}

static void kernel_that_spins_for_the_tenth_later_launch(void **state)
{
    static const uint64_t lengths[] = {10 * US, MS, 5 * MS};
    static const uint32_t limits[] = {30, 80};
    (void)state;
    for (int shape = 0; shape < 4; shape++)
        for (size_t k = 0; k < 3; k++)
            for (size_t l = 0; l < 2; l++) {
                w.kernel_ns = lengths[k];
                w.is_fresh = shape & 1;
                w.is_waiting = shape & 2;
                spin_under(limits[l], false);
                if (w.kernel_ns == MS)
                    spin_under(limits[l], true);
            }
}

static void second_of_an_unknown_function(void *arg)
{
    fake_launch(1, 0x6000, 900 * MS);
    fake_launch(2, 0x6000, US);
    *(uint64_t *)arg = fake_now();
}

static void limit_taken_off_ends_a_wait_for_work_of_our_own(void **state)
{
    (void)state;
    for (int is_off = 0; is_off < 2; is_off++) {
        fake_reset();
        struct fake_share share = fake_share_new(30);
        uint64_t begin = fake_now(), end = 0;
        fake_process_new(0, &share, second_of_an_unknown_function, &end);
        fake_run_until(begin + 5 * MS);
        assert_int_equal(end, 0);
        if (is_off)
            fake_share_limit(&share, 30, ALQ_POLICY_NONE);
        fake_run_until(begin + SEC);
        assert_in_range(end - begin, (is_off ? 5 : 20) * MS, (is_off ? 15 : 21) * MS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit_taken_off_ends_a_wait_for_work_of_our_own),
        cmocka_unit_test(kernel_that_spins_for_the_tenth_later_launch),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fake_reset();
    return failed;
}
