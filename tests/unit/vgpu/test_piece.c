/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of physical memory and what they are bound to, without a driver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "vgpu/memory/piece.h"

static struct alq_dev device;

struct alq_dev *alq_dev_at(uint32_t index)
{
    return index == 0 ? &device : NULL;
}

void alq_export_opened(struct alq_dev *dev, int change)
{
    (void)dev, (void)change;
}

void alq_export_add(struct alq_dev *dev, uint64_t bytes)
{
    (void)dev, (void)bytes;
}

static void reserve_beside_calls_on_their_way_has_room_for_all_of_them(void **state)
{
    enum { CALLS = 1000, HANDLE = 77 };
    struct alq_parting part = {.dev = NULL};
    (void)state;
    assert_true(alq_piece_new(HANDLE, &device, 4096));
    for (int i = 0; i < CALLS; i++)
        assert_true(alq_bindings_reserve(1));
    for (uint64_t i = 0; i < CALLS; i++) {
        struct alq_binding to = {.owner = 5, .where = i};
        alq_piece_bound(&to, HANDLE);
        alq_bindings_unreserve(1);
    }
    assert_int_equal(alq_binding_count, CALLS);

    /* Each of them holds the piece. */
    struct alq_piece_release release = alq_piece_release(HANDLE);
    alq_piece_released(HANDLE, &release, true, &part);
    assert_int_equal(part.plain_bytes[0], 0);
    alq_bindings_end_all(5, &part);
    assert_int_equal(part.plain_bytes[0], 4096);
    assert_int_equal(alq_binding_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reserve_beside_calls_on_their_way_has_room_for_all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
