/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Occupancy against figures of NVIDIA's occupancy calculator. Single-threaded.
 */
#include "common/sm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void blocks_per_sm_of_known_kernels_equals_the_calculators(void **state)
{
    static const struct {
        uint32_t cc, threads, registers;
        uint64_t shared;
        uint32_t blocks;
    } rows[] = {
        {80, 256, 32, 0, 8},      {80, 256, 64, 0, 4},     {80, 256, 128, 0, 2},
        {80, 256, 255, 0, 1},     {80, 1024, 32, 0, 2},    {80, 1024, 64, 0, 1},
        {80, 1024, 65, 0, 0}, /* 28 warps' registers */
        {80, 32, 16, 0, 32},      {80, 33, 16, 0, 32},     {80, 96, 32, 0, 21},
        {80, 128, 40, 0, 12},     {80, 128, 32, 48128, 3}, {80, 128, 32, 166912, 1},
        {80, 128, 32, 166913, 0}, {86, 256, 32, 0, 6},     {86, 64, 32, 0, 16},
        {75, 256, 32, 0, 4},      {75, 128, 32, 65536, 1}, {90, 256, 32, 232448, 1},
        {90, 256, 32, 232449, 0}, {90, 256, 168, 0, 1},    {70, 128, 32, 32768, 3},
        {120, 512, 32, 0, 3},     {90, 0, 32, 0, 0},       {90, 1025, 32, 0, 0},
        {90, 256, 0, 0, 8},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sim_sm sm = sim_sm_of(rows[i].cc / 10, rows[i].cc % 10);
        struct sim_kernel_need need = {rows[i].threads, rows[i].registers, rows[i].shared};

        if (sim_blocks_per_sm(&sm, &need) != rows[i].blocks)
            fail_msg("row %zu: %u blocks, not %u", i, sim_blocks_per_sm(&sm, &need),
                     rows[i].blocks);
    }
}

static void threads_by_registers_is_what_still_fits(void **state)
{
    struct sim_sm sm = sim_sm_of(9, 0);

    (void)state;
    assert_int_equal(sim_threads_by_registers(&sm, 0), 1024);
    assert_int_equal(sim_threads_by_registers(&sm, 64), 1024);
    assert_int_equal(sim_threads_by_registers(&sm, 65), 896);
    assert_int_equal(sim_threads_by_registers(&sm, 255), 256);
    for (uint32_t registers = 1; registers < 256; registers++) {
        uint32_t threads = sim_threads_by_registers(&sm, registers);
        struct sim_kernel_need fits = {threads, registers, 0};
        struct sim_kernel_need more = {threads + 1, registers, 0};

        assert_true(sim_blocks_per_sm(&sm, &fits) >= 1);
        assert_true(sim_blocks_per_sm(&sm, &more) == 0);
    }
}

static void shared_left_for_blocks_lets_them_all_fit(void **state)
{
    (void)state;
    for (uint32_t cc = 70; cc < 121; cc += 10) {
        struct sim_sm sm = sim_sm_of(cc / 10, cc % 10);

        for (uint32_t blocks = 1; blocks <= sm.blocks; blocks++) {
            uint64_t left = sim_shared_left(&sm, blocks, 1000);
            struct sim_kernel_need need = {32, 16, 1000 + left};

            if (left)
                assert_true(sim_blocks_per_sm(&sm, &need) >= blocks);
            need.shared_bytes += 256;
            assert_true(sim_blocks_per_sm(&sm, &need) < blocks || blocks == 1 || !left);
        }
    }
}

static void unknown_capability_takes_the_next_older(void **state)
{
    (void)state;
    assert_int_equal(sim_sm_of(8, 8).threads, sim_sm_of(8, 7).threads);
    assert_int_equal(sim_sm_of(10, 3).shared_bytes, sim_sm_of(9, 0).shared_bytes);
    assert_int_equal(sim_sm_of(0, 0).threads, 2048);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_per_sm_of_known_kernels_equals_the_calculators),
        cmocka_unit_test(threads_by_registers_is_what_still_fits),
        cmocka_unit_test(shared_left_for_blocks_lets_them_all_fit),
        cmocka_unit_test(unknown_capability_takes_the_next_older),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
