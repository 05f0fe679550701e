/* SPDX-License-Identifier: Apache-2.0 */
/* Loans of compute: what is idle on a GPU is lent, by rank and in equal parts, and never what its
 * owner uses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/monitor/lend.h"

#define MS 1000000ll
#define STEP (25 * MS)
#define COUNT 4

/* Shares whose programs use some of the GPU and want more, or do not. */
struct world {
    int64_t now_ns;
    struct alq_lend shares[COUNT];
    struct alq_lend_figures figures[COUNT];
    struct alq_lend *all[COUNT];
    uint32_t used_pct[COUNT]; /* 0: idle */
    int is_held[COUNT];       /* would use more */
};

static struct world world_of(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t cores[COUNT] = {a, b, c, d};
    struct world w;
    memset(&w, 0, sizeof(w));
    w.now_ns = 1000000 * MS;
    for (int i = 0; i < COUNT; i++) {
        w.shares[i].cores_pct = cores[i];
        w.shares[i].is_measured = 1;
    }
    return w;
}

static void borrows(struct world *w, int i, uint8_t rank)
{
    w->shares[i].is_borrower = 1;
    w->shares[i].rank = rank;
}

static void uses(struct world *w, int i, uint32_t pct, int is_held)
{
    w->used_pct[i] = pct;
    w->is_held[i] = is_held;
}

static void pass(struct world *w, int64_t ns)
{
    for (int64_t end = w->now_ns + ns; w->now_ns < end;) {
        w->now_ns += STEP;
        for (int i = 0; i < COUNT; i++) {
            struct alq_lend_figures *f = &w->figures[i];
            if (w->used_pct[i]) {
                f->launches++;
                f->charged_ns += (uint64_t)STEP * w->used_pct[i] / 100;
                f->tat_ns = (uint64_t)(w->now_ns + (w->is_held[i] ? 60 * MS : 0));
            }
            alq_lend_observe(&w->shares[i], f, w->now_ns);
            w->all[i] = &w->shares[i];
        }
        alq_lend_divide(w->all, COUNT, w->now_ns);
    }
}

static void divide_idle_gpu_lends_all_of_it(void **state)
{
    (void)state;
    struct world w = world_of(20, 50, 30, 0);
    borrows(&w, 0, 0);
    uses(&w, 0, 20, 1);
    pass(&w, 500 * MS);
    assert_int_equal(w.shares[0].borrowed_pct, 80);
    assert_int_equal(w.shares[1].kept_pct, 0);
}

static void divide_owner_returns_gets_its_promise_at_once(void **state)
{
    (void)state;
    struct world w = world_of(20, 50, 30, 0);
    borrows(&w, 0, 0);
    uses(&w, 0, 100, 0);
    pass(&w, 500 * MS);
    assert_int_equal(w.shares[0].borrowed_pct, 80);
    uses(&w, 1, 1, 0);
    pass(&w, STEP);
    assert_int_equal(w.shares[1].kept_pct, 50);
    assert_int_equal(w.shares[0].borrowed_pct, 30);
}

static void divide_owner_of_little_use_lends_the_rest(void **state)
{
    (void)state;
    struct world w = world_of(20, 50, 30, 0);
    borrows(&w, 0, 0);
    uses(&w, 0, 20, 1);
    uses(&w, 1, 12, 0);
    pass(&w, 1000 * MS);
    assert_in_range(w.shares[1].kept_pct, 18, 21); /* 12 and a quarter, and 5 */
    assert_int_equal(w.shares[0].borrowed_pct, 80 - w.shares[1].kept_pct);
    uses(&w, 1, 12, 1); /* it has to wait: it wants all */
    pass(&w, STEP);
    assert_int_equal(w.shares[1].kept_pct, 50);
}

static void divide_work_without_launches_is_work(void **state)
{
    (void)state;
    struct world w = world_of(20, 50, 30, 0);
    borrows(&w, 0, 0);
    uses(&w, 0, 20, 1);
    pass(&w, 500 * MS);
    /* One kernel of a second at 50 percent: the gate's clock is two seconds ahead. */
    w.figures[1].tat_ns = (uint64_t)(w.now_ns + 2000 * MS);
    pass(&w, 500 * MS);
    assert_int_equal(w.shares[1].kept_pct, 50);
    assert_int_equal(w.shares[0].borrowed_pct, 30);
}

static void divide_priority_zero_is_served_first(void **state)
{
    (void)state;
    struct world w = world_of(20, 20, 20, 0);
    borrows(&w, 0, 0);
    borrows(&w, 1, 1);
    borrows(&w, 3, 2);
    uses(&w, 0, 20, 1);
    uses(&w, 1, 20, 1);
    uses(&w, 3, 1, 1);
    pass(&w, 500 * MS);
    assert_int_equal(w.shares[0].borrowed_pct, 60);
    assert_int_equal(w.shares[1].borrowed_pct, 0);
    assert_int_equal(w.shares[3].borrowed_pct, 0);
    uses(&w, 0, 40, 0); /* it wants no more than 40 and a quarter, and 5 */
    pass(&w, 1000 * MS);
    assert_in_range(w.shares[0].borrowed_pct, 33, 36);
    assert_in_range(w.shares[1].borrowed_pct, 24, 27);
    assert_int_equal(w.shares[3].borrowed_pct, 0);
    uses(&w, 0, 0, 0);
    uses(&w, 1, 0, 0);
    pass(&w, 1000 * MS);
    assert_int_equal(w.shares[3].borrowed_pct, 100);
}

static void divide_equals_get_equal_parts(void **state)
{
    (void)state;
    struct world w = world_of(10, 10, 10, 0);
    for (int i = 0; i < 3; i++) {
        borrows(&w, i, 1);
        uses(&w, i, 10, 1);
    }
    pass(&w, 500 * MS);
    for (int i = 0; i < 3; i++)
        assert_in_range(w.shares[i].borrowed_pct, 23, 24);
}

static void divide_hard_shares_borrow_nothing(void **state)
{
    (void)state;
    struct world w = world_of(20, 50, 30, 0);
    uses(&w, 0, 20, 1);
    pass(&w, 500 * MS);
    assert_int_equal(w.shares[0].borrowed_pct, 0);
}

static void divide_unmeasured_share_keeps_its_promise_while_it_launches(void **state)
{
    (void)state;
    struct world w = world_of(20, 50, 0, 0);
    borrows(&w, 0, 0);
    uses(&w, 0, 20, 1);
    w.shares[1].is_measured = 0;
    uses(&w, 1, 1, 0);
    pass(&w, 1000 * MS);
    assert_int_equal(w.shares[1].kept_pct, 50);
    assert_int_equal(w.shares[0].borrowed_pct, 30);
}

/* Sums of what is kept and lent never exceed the GPU, whatever a file says. */
static void observe_garbage_takes_from_nobody(void **state)
{
    (void)state;
    struct world w = world_of(20, 50, 30, 0);
    uint64_t random = 88172645463325252ull;
    borrows(&w, 0, 0);
    borrows(&w, 3, 2);
    uses(&w, 1, 50, 1);
    for (int n = 0; n < 1000; n++) {
        uint64_t *words = (uint64_t *)&w.figures[n % 2 ? 0 : 3];
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        words[n % 4] = n % 5 ? random : UINT64_MAX;
        pass(&w, STEP);
        uint32_t sum = 0;
        for (int i = 0; i < COUNT; i++)
            sum += w.shares[i].borrowed_pct;
        assert_int_equal(w.shares[1].kept_pct, 50);
        assert_true(sum <= 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(divide_idle_gpu_lends_all_of_it),
        cmocka_unit_test(divide_owner_returns_gets_its_promise_at_once),
        cmocka_unit_test(divide_owner_of_little_use_lends_the_rest),
        cmocka_unit_test(divide_work_without_launches_is_work),
        cmocka_unit_test(divide_priority_zero_is_served_first),
        cmocka_unit_test(divide_equals_get_equal_parts),
        cmocka_unit_test(divide_hard_shares_borrow_nothing),
        cmocka_unit_test(divide_unmeasured_share_keeps_its_promise_while_it_launches),
        cmocka_unit_test(observe_garbage_takes_from_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
