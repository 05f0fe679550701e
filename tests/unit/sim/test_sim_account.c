/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The charge protocol: what is admitted, and that a client which stopped for ever at any point of a
 * charge is settled to the byte. Points of death are made by hand from what account.c would have
 * stored until then. Single-threaded.
 */
#include "common/account.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CAPACITY (1000ull * SIM_UNIT_BYTES)
#define UNIT ((uint64_t)SIM_UNIT_BYTES)

struct world {
    struct sim_node_device device;
    struct sim_group_device group[2];
    struct sim_acks device_ack, group_ack;
    struct sim_account account[3];
    uint32_t sequence; /* simgpud's */
};

static struct sim_ledger ledger(struct world *w, uint32_t slot)
{
    return (struct sim_ledger){&w->account[slot], &w->device,    &w->group[slot % 2],
                               &w->device_ack,    &w->group_ack, slot};
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    if (!w)
        return -1;
    w->device.capacity_bytes = CAPACITY;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static uint64_t used(struct world *w)
{
    return sim_word_bytes(w->device.used);
}

static uint64_t group_used(struct world *w, uint32_t slot)
{
    return sim_word_bytes(w->group[slot % 2].used);
}

static void charge_up_to_capacity_fits_and_one_unit_more_does_not(void **state)
{
    struct world *w = *state;
    struct sim_ledger one = ledger(w, 1), two = ledger(w, 2);

    assert_true(sim_charge(&one, CAPACITY - UNIT, SIM_CHARGE_MEMORY));
    assert_false(sim_charge(&two, 2 * UNIT, SIM_CHARGE_MEMORY));
    assert_int_equal(w->account[2].held_bytes, 0);
    assert_true(sim_charge(&two, UNIT, SIM_CHARGE_CONTEXT));
    assert_int_equal(used(w), CAPACITY);
    assert_int_equal(w->account[2].context_bytes, UNIT);
    assert_false(sim_charge(&one, UNIT, SIM_CHARGE_MEMORY));
    sim_uncharge(&two, UNIT, SIM_CHARGE_CONTEXT);
    assert_true(sim_charge(&one, UNIT, SIM_CHARGE_MEMORY));
}

static void charge_of_more_than_any_device_is_refused(void **state)
{
    struct world *w = *state;
    struct sim_ledger one = ledger(w, 1);

    assert_false(sim_charge(&one, UINT64_MAX / UNIT * UNIT, SIM_CHARGE_MEMORY));
    assert_int_equal(used(w), 0);
}

static void peak_is_the_highest_sum_of_a_group(void **state)
{
    struct world *w = *state;
    struct sim_ledger one = ledger(w, 1), two = ledger(w, 2);

    w->group[0] = (struct sim_group_device){0};
    two.group = one.group;
    sim_charge(&one, 10 * UNIT, SIM_CHARGE_MEMORY);
    sim_charge(&two, 5 * UNIT, SIM_CHARGE_MEMORY);
    sim_uncharge(&one, 10 * UNIT, SIM_CHARGE_MEMORY);
    sim_charge(&two, 4 * UNIT, SIM_CHARGE_MEMORY);
    assert_int_equal(one.group->peak_bytes, 15 * UNIT);
}

static void settle_of_a_quiet_client_takes_out_what_it_held(void **state)
{
    struct world *w = *state;
    struct sim_ledger one = ledger(w, 1), two = ledger(w, 2);

    sim_charge(&one, 10 * UNIT, SIM_CHARGE_MEMORY);
    sim_charge(&two, 7 * UNIT, SIM_CHARGE_MEMORY);
    sim_settle_dead(&one, &w->sequence);
    assert_int_equal(used(w), 7 * UNIT);
    assert_int_equal(group_used(w, 1), 0);
    assert_int_equal(group_used(w, 2), 7 * UNIT);
}

/* As simgpud does for shared memory: the bytes leave the account, and later the words. */
static void release_takes_out_bytes_that_no_account_has(void **state)
{
    struct world *w = *state;
    struct sim_ledger one = ledger(w, 1);

    sim_charge(&one, 10 * UNIT, SIM_CHARGE_MEMORY);
    atomic_store(&one.account->held_bytes, 6 * UNIT);
    sim_settle_dead(&one, &w->sequence);
    assert_int_equal(used(w), 4 * UNIT);
    one.account = NULL;
    sim_release(&one, 4 * UNIT, &w->sequence);
    assert_int_equal(used(w), 0);
    assert_int_equal(group_used(w, 1), 0);
    sim_release(&one, 4 * UNIT, &w->sequence); /* never below nothing */
    assert_int_equal(used(w), 0);
}

/* A client that died in a charge: how far it came. */
enum death { INTENT_ONLY, DEVICE_DONE, GROUP_DONE, HELD_DONE };

/* Runs a whole charge (or release) by slot 1 and takes back all it stored after the point of death.
 */
static void die(struct world *w, int64_t units, enum death at)
{
    struct sim_ledger one = ledger(w, 1);
    struct world before = *w;
    uint64_t intent;

    if (units > 0)
        assert_true(sim_charge(&one, (uint64_t)units * UNIT, SIM_CHARGE_MEMORY));
    else
        sim_uncharge(&one, (uint64_t)-units * UNIT, SIM_CHARGE_MEMORY);
    intent = 1ull << 63 | (uint64_t)w->account[1].sequence << 40 |
             ((uint64_t)units & ((1ull << 40) - 1));
    w->account[1].intent = intent;
    w->account[1].before_bytes = before.account[1].held_bytes;
    if (at < HELD_DONE)
        w->account[1].held_bytes = before.account[1].held_bytes;
    if (at < GROUP_DONE)
        w->group[1].used = before.group[1].used;
    if (at < DEVICE_DONE)
        w->device.used = before.device.used;
}

static void settle_of_a_client_that_died_in_a_charge_is_exact_at_every_point(void **state)
{
    const int64_t changes[] = {5, -3};

    for (size_t i = 0; i < 2; i++) {
        for (int at = INTENT_ONLY; at <= HELD_DONE; at++) {
            for (int others = 0; others < 2; others++) {
                struct world *w = *state;
                struct sim_ledger one = ledger(w, 1), two = ledger(w, 2);

                memset(w, 0, sizeof(*w));
                w->device.capacity_bytes = CAPACITY;
                two.group = one.group; /* another member goes on in the same words */
                sim_charge(&one, 10 * UNIT, SIM_CHARGE_MEMORY);
                sim_charge(&two, 20 * UNIT, SIM_CHARGE_MEMORY);
                die(w, changes[i], (enum death)at);
                for (int k = 0; k < 3 * others; k++)
                    sim_charge(&two, UNIT, SIM_CHARGE_MEMORY);
                sim_settle_dead(&one, &w->sequence);
                assert_int_equal(used(w), (20 + 3u * (unsigned int)others) * UNIT);
                assert_int_equal(group_used(w, 1), (20 + 3u * (unsigned int)others) * UNIT);
            }
        }
    }
}

static void sequence_wraps_without_losing_an_operation(void **state)
{
    struct world *w = *state;
    struct sim_ledger one = ledger(w, 1), two = ledger(w, 2);

    for (int i = 0; i < 70000; i++) {
        assert_true(sim_charge(&one, UNIT, SIM_CHARGE_MEMORY));
        sim_uncharge(&one, UNIT, SIM_CHARGE_MEMORY);
    }
    die(w, 4, DEVICE_DONE);
    sim_charge(&two, UNIT, SIM_CHARGE_MEMORY);
    sim_settle_dead(&one, &w->sequence);
    assert_int_equal(used(w), UNIT);
    assert_int_equal(group_used(w, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(charge_up_to_capacity_fits_and_one_unit_more_does_not,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(charge_of_more_than_any_device_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(peak_is_the_highest_sum_of_a_group, set_up, tear_down),
        cmocka_unit_test_setup_teardown(release_takes_out_bytes_that_no_account_has, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(settle_of_a_quiet_client_takes_out_what_it_held, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            settle_of_a_client_that_died_in_a_charge_is_exact_at_every_point, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sequence_wraps_without_losing_an_operation, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
