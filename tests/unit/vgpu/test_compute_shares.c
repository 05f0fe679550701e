/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several shares, devices and graphs in one process, in virtual time on the device of fakegpu.h:
 * which gate a launch goes through, and that nothing learnt or charged in one place is another's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fakegpu.h"

#define FUNCTION 0x4000

static void launch_on(uint32_t device, int stream, uint64_t ns)
{
    struct alq_compute_launch launch = {.device = device,
                                        .stream = fake_stream(stream),
                                        .handle = (const void *)FUNCTION,
                                        .size_class = 10};
    fake_launch_with(&launch, stream, ns, CUDA_SUCCESS);
}

/* Puts a device of the process under these shares. */
static void add_device(struct fake_process *process, uint32_t index, const struct fake_share *of,
                       uint32_t count)
{
    struct alq_compute_share shares[ALQ_COMPUTE_SHARES];
    for (uint32_t i = 0; i < count; i++)
        shares[i] = alq_compute_share_of(of[i].control, of[i].section, NULL);
    alq_compute_add_device(process->compute, index, shares, count, 1);
}

/* ---- two shares of one GPU ------------------------------------------------------------------ */

static struct {
    struct fake_share shares[2];
    uint64_t at_once_ns, wait_ns;
    uint64_t first_tat_ns[2], second_tat_ns[2];
} two;

static void owe(int share, uint64_t ns)
{
    two.shares[share].section->gate.tat_ns = fake_now() + ALQ_GATE_BURST_NS + ns;
}

static void meeting_debts(void *arg)
{
    (void)arg;
    owe(0, 5 * SEC);
    two.first_tat_ns[0] = two.shares[0].section->gate.tat_ns;
    uint64_t from = fake_now();
    launch_on(0, 1, MS);
    two.at_once_ns = fake_now() - from;
    two.first_tat_ns[1] = two.shares[0].section->gate.tat_ns;
    fake_sync(1);
    owe(0, 2 * SEC);
    owe(1, 1 * SEC);
    two.second_tat_ns[0] = two.shares[0].section->gate.tat_ns;
    from = fake_now();
    launch_on(0, 1, MS);
    two.wait_ns = fake_now() - from;
    two.second_tat_ns[1] = two.shares[0].section->gate.tat_ns;
    fake_sync(1);
    for (int i = 0; i < 2; i++)
        two.shares[i].section->gate.tat_ns = fake_now();
    for (;;)
        launch_on(0, 1,
                  2 * MS); /* each is measured, and booked to the share that it went through */
}

static void launch_under_two_shares_takes_the_gate_that_opens_first(void **state)
{
    (void)state;
    fake_reset();
    two.shares[0] = fake_share_new(10);
    two.shares[1] = fake_share_new(30);
    add_device(fake_process_new(0, &two.shares[0], meeting_debts, NULL), 0, two.shares, 2);
    fake_run_until(fake_now() + 3 * SEC);
    assert_in_range(two.at_once_ns, 1, MS);
    assert_int_equal(two.first_tat_ns[1], two.first_tat_ns[0]);
    assert_in_range(two.wait_ns, 1 * SEC, 1 * SEC + 5 * MS);
    assert_int_equal(two.second_tat_ns[1], two.second_tat_ns[0]);

    uint64_t busy = fake_busy_ns(0), charged[2], sum;
    for (int i = 0; i < 2; i++)
        charged[i] = two.shares[i].section->counters.charged_ns;
    fake_run_until(fake_now() + 10 * SEC);
    for (int i = 0; i < 2; i++)
        charged[i] = two.shares[i].section->counters.charged_ns - charged[i];
    sum = charged[0] + charged[1];
    /* Limits add up, and each has its part. */
    assert_in_range(fake_busy_ns(0) - busy, 3800 * MS, 4200 * MS);
    assert_in_range(charged[0] * 100 / sum, 22, 28);
}

/* ---- two devices ---------------------------------------------------------------------------- */

static struct {
    struct fake_share share;
    struct fake_share other;
    uint64_t at_once_ns;
    int step;
} devices;

static void on_both(void *arg)
{
    (void)arg;
    for (int i = 0; i < 400; i++) {
        launch_on(0, 1, 200 * US);
        fake_sync(1);
    }
    devices.step = 1;
    fake_sleep(SEC);
    devices.share.section->gate.tat_ns = fake_now() + 10 * SEC;
    uint64_t from = fake_now();
    launch_on(1, 2, 5 * MS);
    devices.at_once_ns = fake_now() - from;
    fake_sync(2);
    for (int i = 0; i < 40; i++) {
        launch_on(1, 2, 5 * MS);
        fake_sync(2);
    }
    devices.step = 2;
    for (;;)
        fake_sleep(SEC);
}

static uint32_t estimate_ns(struct fake_process *process, uintptr_t handle,
                            enum alq_estimate_kind kind, uint32_t device, uint32_t size_class)
{
    return alq_estimate_ns(alq_estimate_find(&process->compute->estimates, (const void *)handle,
                                             kind, device, size_class));
}

static void devices_of_a_process_share_no_figure(void **state)
{
    (void)state;
    fake_reset();
    devices.step = 0;
    devices.share = fake_share_new(30);
    devices.other = fake_share_new(60);
    struct fake_process *process = fake_process_new(0, &devices.share, on_both, NULL);
    add_device(process, 1, &devices.other, 1);
    struct alq_usage_section before = *devices.other.section;
    while (devices.step < 1)
        fake_run_until(fake_now() + 100 * MS);
    assert_memory_equal(devices.other.section, &before, sizeof(before));
    before = *devices.share.section;
    while (devices.step < 2)
        fake_run_until(fake_now() + 100 * MS);
    before.gate.tat_ns = devices.share.section->gate.tat_ns; /* set by the program itself */
    assert_memory_equal(devices.share.section, &before, sizeof(before));
    assert_in_range(devices.at_once_ns, 1, MS);
    /* One handle, as a kernel of a library has on each device. */
    assert_in_range(estimate_ns(process, FUNCTION, ALQ_ESTIMATE_FUNCTION, 0, 10), 190 * US,
                    220 * US);
    assert_in_range(estimate_ns(process, FUNCTION, ALQ_ESTIMATE_FUNCTION, 1, 10), 4900 * US,
                    5200 * US);
}

/* ---- graphs --------------------------------------------------------------------------------- */

#define SHORT_EXEC 0x50000
#define LONG_EXEC 0x50040

static void two_graphs(void *arg)
{
    (void)arg;
    for (;;) {
        fake_graph_launch(1, SHORT_EXEC, 300 * US);
        fake_graph_launch(1, LONG_EXEC, 6 * MS);
        fake_sync(1);
    }
}

static void executable_graphs_have_an_estimate_each(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(30);
    struct fake_process *process = fake_process_new(0, &share, two_graphs, NULL);
    uint64_t begin = fake_now();
    fake_run_until(begin + 10 * SEC);
    assert_in_range(estimate_ns(process, SHORT_EXEC, ALQ_ESTIMATE_GRAPH, 0, 0), 270 * US, 330 * US);
    assert_in_range(estimate_ns(process, LONG_EXEC, ALQ_ESTIMATE_GRAPH, 0, 0), 5900 * US,
                    6200 * US);
    assert_in_range(fake_busy_ns(0), 2850 * MS, 3150 * MS);
    /* Another graph at the address of one that is gone is not taken for it. */
    alq_compute_graph_gone(process->compute, (CUgraphExec)LONG_EXEC);
    assert_int_equal(estimate_ns(process, LONG_EXEC, ALQ_ESTIMATE_GRAPH, 0, 0),
                     ALQ_ESTIMATE_FIRST_NS);
}

/* ---- a slot's next owner --------------------------------------------------------------------- */

static struct fake_share slotted;

static struct alq_compute_share in_slot(void)
{
    return alq_compute_share_of(slotted.control, slotted.section, &slotted.section->slots[0]);
}

static void launches_in_a_slot(void *arg)
{
    const struct alq_compute_share share = in_slot();
    (void)arg;
    alq_compute_add_device(fake_self()->compute, 0, &share, 1, 1);
    for (;;)
        launch_on(0, 0, 5 * MS);
}

static void what_a_dead_owner_had_reserved_is_given_back(void **state)
{
    (void)state;
    fake_reset();
    slotted = fake_share_new(10);
    struct alq_compute *next = calloc(1, sizeof(*next));
    assert_non_null(next);
    next->driver = fake_process_new(0, &slotted, launches_in_a_slot, NULL)->compute->driver;
    uint64_t *waiting_ns = &slotted.section->slots[0].waiting_ns;
    /* It waits nearly all the time, for one launch. */
    fake_run_until(fake_now() + 2 * SEC);
    for (int i = 0; i < 20 && !*waiting_ns; i++)
        fake_run_until(fake_now() + 7 * MS);
    assert_in_range(*waiting_ns, 4 * MS, 6 * MS);
    const uint64_t reserved_ns = *waiting_ns, tat_ns = slotted.section->gate.tat_ns;
    const struct alq_compute_share share = in_slot();
    alq_compute_add_device(next, 0, &share, 1, 1);
    assert_int_equal(*waiting_ns, 0);
    assert_int_equal(tat_ns - slotted.section->gate.tat_ns, reserved_ns * 10);
    /* More than any launch can have reserved was written by somebody else. */
    *waiting_ns = UINT64_MAX;
    alq_compute_add_device(next, 0, &share, 1, 1);
    assert_int_equal(*waiting_ns, 0);
    assert_int_equal(tat_ns - slotted.section->gate.tat_ns, reserved_ns * 10);
    free(next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launch_under_two_shares_takes_the_gate_that_opens_first),
        cmocka_unit_test(devices_of_a_process_share_no_figure),
        cmocka_unit_test(executable_graphs_have_an_estimate_each),
        cmocka_unit_test(what_a_dead_owner_had_reserved_is_given_back),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fake_reset();
    return failed;
}
