/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's table of shares against claims that come and go: it holds what is promised, and no
 * more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "daemon/monitor/shares.h"
#include "prepare_world.h"

#define PODS 500u
#define LIVING 20u /* at a time */

static const struct alq_config cfg;

static void sync_and_label(struct alq_shares *shares, unsigned count)
{
    assert_int_equal(alq_shares_sync(shares, world.prepare), 0);
    assert_int_equal(shares->count, count);
    assert_int_equal(alq_shares_label(shares), 0);
    alq_shares_unlabel(shares);
    assert_null(shares->labels);
}

static void use(struct alq_shares *shares, unsigned n)
{
    char pod[32];
    const struct alq_share_user user = {shares->all[n % shares->count]->id, pod, "main"};
    snprintf(pod, sizeof(pod), "pod-%u", n);
    alq_shares_set_users(shares, &user, 1);
    assert_string_equal(alq_shares_find(shares, user.share_id)->pod, pod);
}

static void sync_over_500_pods_that_come_and_go_keeps_the_living_alone(void **state)
{
    struct alq_shares shares = {.cfg = &cfg};
    (void)state;
    world_start();
    for (unsigned n = 0; n < WORLD_CLAIMS; n++)
        world.objects[n].cores = 1;
    for (unsigned n = 0; n < PODS; n++) {
        world_prepared(n % WORLD_CLAIMS);
        if (n >= LIVING)
            world_unprepared((n - LIVING) % WORLD_CLAIMS);
        sync_and_label(&shares, n < LIVING ? n + 1 : LIVING);
        use(&shares, n);
    }
    assert_true(shares.size <= 2 * (LIVING + 1));
    for (unsigned n = PODS - LIVING; n < PODS; n++)
        world_unprepared(n % WORLD_CLAIMS);
    sync_and_label(&shares, 0);
    assert_null(shares.all);
    assert_int_equal(shares.size, 0);
    world_stop();
}

static void sync_of_a_share_that_stays_keeps_its_figures(void **state)
{
    struct alq_shares shares = {.cfg = &cfg};
    struct alq_figures f;
    (void)state;
    world_start();
    world_prepared(7);
    sync_and_label(&shares, 1);
    assert_null(shares.all[0]->f); /* it has not been used */
    alq_watched_get(shares.all[0], &f);
    assert_false(f.is_correction_known); /* nor has a round read it */
    f.used_ns = 42;
    alq_watched_set(shares.all[0], &f);
    for (unsigned n = 0; n < 5; n++)
        world_prepared(n);
    sync_and_label(&shares, 6);
    assert_int_equal(alq_watched_figures(alq_shares_find(&shares, "u7-0"))->used_ns, 42);
    assert_int_equal(alq_watched_figures(alq_shares_find(&shares, "u3-0"))->used_ns, 0);
    alq_shares_clear(&shares);
    world_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_over_500_pods_that_come_and_go_keeps_the_living_alone),
        cmocka_unit_test(sync_of_a_share_that_stays_keeps_its_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
