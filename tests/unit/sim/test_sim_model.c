/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device model in virtual time, to the nanosecond: each schedule here was worked out by hand
 * from the rules of sim/model/README.md. Two devices of 100 SMs and two copy engines; times of done
 * operations are kept by client and stream. Single-threaded, no clock.
 */
#include "model/model.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define US 1000ull
#define MS 1000000ull
#define SEC 1000000000ull

#define CLIENTS 4
#define STREAMS 4
#define KEPT 32

struct world {
    struct sim_model *model;
    struct sim_model_client *client[CLIENTS];
    uint64_t done_ns[CLIENTS][STREAMS][KEPT]; /* of the operations after the opening, from 0 */
    uint64_t hash;                            /* of all that happened, in order */
};

static struct world *world; /* the test's */

static void on_done(void *client, const struct sim_op *op, uint64_t number, uint64_t time_ns)
{
    size_t c = (size_t)((struct sim_model_client **)client - world->client);

    if (op->kind != SIM_OP_OPEN && number - 2 < KEPT)
        world->done_ns[c][op->stream][number - 2] = time_ns;
    world->hash = (world->hash ^ (time_ns * CLIENTS + c)) * 1099511628211ull;
    world->hash = (world->hash ^ (number * STREAMS + op->stream)) * 1099511628211ull;
}

static int set_up(void **state)
{
    static const struct sim_model_device device = {100, 2};

    world = calloc(1, sizeof(*world));
    world->model = sim_model_new(3, 0, on_done);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(sim_model_device_set(world->model, i, &device), 0);
    for (size_t i = 0; i < CLIENTS; i++)
        world->client[i] = sim_model_client_new(world->model, &world->client[i]);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sim_model_free(world->model);
    free(world);
    return 0;
}

static void push(size_t client, struct sim_op op)
{
    assert_int_equal(sim_model_push(world->client[client], &op, UINT64_MAX), 0);
}

static void open_on(size_t client, uint32_t stream, uint32_t device, uint32_t context,
                    uint8_t flags, int priority)
{
    push(client, (struct sim_op){.kind = SIM_OP_OPEN,
                                 .stream = stream,
                                 .blocks = device,
                                 .target = context,
                                 .flags = flags,
                                 .value = (uint64_t)(priority + (int)SIM_PRIORITY_ZERO)});
}

/* A non-blocking stream of the client's context 0 on device 0. */
static void open_stream(size_t client, uint32_t stream)
{
    open_on(client, stream, 0, 0, SIM_STREAM_NON_BLOCKING, 0);
}

static void kernel(size_t client, uint32_t stream, uint64_t at, uint64_t ns, uint32_t blocks)
{
    push(client, (struct sim_op){.kind = SIM_OP_KERNEL,
                                 .stream = stream,
                                 .submit_ns = at,
                                 .value = ns,
                                 .blocks = blocks});
}

static void copy(size_t client, uint32_t stream, uint64_t at, uint64_t ns)
{
    push(client,
         (struct sim_op){.kind = SIM_OP_COPY, .stream = stream, .submit_ns = at, .value = ns});
}

static void mark(size_t client, uint32_t stream, uint64_t at, uint8_t flags)
{
    push(client,
         (struct sim_op){.kind = SIM_OP_MARK, .stream = stream, .submit_ns = at, .flags = flags});
}

static void wait_for(size_t client, uint32_t stream, uint64_t at, uint32_t other, uint64_t number)
{
    push(client, (struct sim_op){.kind = SIM_OP_WAIT,
                                 .stream = stream,
                                 .submit_ns = at,
                                 .target = other,
                                 .value = number});
}

static void advance(uint64_t to)
{
    sim_model_advance(world->model, to);
}

#define assert_done(client, stream, op, ns)                                                        \
    assert_int_equal(world->done_ns[client][stream][op], (uint64_t)(ns))

static uint64_t busy(size_t client, uint32_t device)
{
    return sim_model_client_usage(world->client[client], device)->busy_ns;
}

/* Streams */

static void kernels_of_a_stream_run_one_after_the_other(void **state)
{
    (void)state;
    open_stream(0, 0);
    kernel(0, 0, 10, 100, 1);
    kernel(0, 0, 20, 50, 1);
    kernel(0, 0, 500, 5, 1);
    advance(1000);
    assert_done(0, 0, 0, 110);
    assert_done(0, 0, 1, 160);
    assert_done(0, 0, 2, 505);
    assert_int_equal(busy(0, 0), 155);
    assert_int_equal(sim_model_launches(world->client[0], 0), 3);
}

static void submission_is_never_in_the_future_nor_out_of_order(void **state)
{
    static const uint64_t at[] = {500, 700, 100};

    (void)state;
    open_stream(0, 0);
    advance(50);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(sim_model_push(world->client[0],
                                        &(struct sim_op){.kind = SIM_OP_MARK, .submit_ns = at[i]},
                                        600),
                         0);
    advance(1000);
    assert_done(0, 0, 0, 500);
    assert_done(0, 0, 1, 600);
    assert_done(0, 0, 2, 600);
}

static void advance_to_the_end_of_a_kernel_has_it_done(void **state)
{
    (void)state;
    open_stream(0, 0);
    kernel(0, 0, 0, 100, 1);
    advance(99);
    assert_int_equal(sim_model_done(world->client[0], 0), 1);
    advance(100);
    assert_int_equal(sim_model_done(world->client[0], 0), 2);
}

static void legacy_and_blocking_streams_wait_for_each_others_earlier_work(void **state)
{
    (void)state;
    open_on(0, 0, 0, 0, SIM_STREAM_LEGACY, 0);
    open_on(0, 1, 0, 0, 0, 0);
    open_stream(0, 2);
    kernel(0, 1, 0, 100, 1);
    kernel(0, 0, 0, 10, 1); /* after the blocking stream's 100 */
    kernel(0, 1, 0, 1, 1);  /* after the legacy stream's */
    kernel(0, 2, 0, 30, 1); /* after nobody */
    advance(1000);
    assert_done(0, 1, 0, 100);
    assert_done(0, 0, 0, 110);
    assert_done(0, 1, 1, 111);
    assert_done(0, 2, 0, 30);
}

static void mark_after_all_is_done_when_every_earlier_operation_is(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_stream(0, 1);
    open_stream(0, 3);
    kernel(0, 0, 0, 100, 1);
    copy(0, 1, 0, 250);
    mark(0, 3, 5, SIM_OP_AFTER_ALL);
    kernel(0, 0, 6, 900, 1);
    advance(2000);
    assert_done(0, 3, 0, 250);
}

static void mark_behind_operations_that_end_at_once_is_done_then(void **state)
{
    (void)state;
    open_on(0, 0, 0, 0, SIM_STREAM_LEGACY, 0);
    open_stream(0, 1);
    kernel(0, 0, 0, 100, 1);
    mark(0, 0, 0, 0);
    mark(0, 1, 0, SIM_OP_AFTER_BLOCKING);
    advance(1000);
    assert_done(0, 1, 0, 100);
}

static void wait_joins_streams_of_two_devices(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_on(0, 1, 1, 0, SIM_STREAM_NON_BLOCKING, 0);
    kernel(0, 0, 0, 70, 1);
    wait_for(0, 1, 0, 0, 2);
    kernel(0, 1, 0, 30, 1);
    advance(500);
    assert_done(0, 1, 0, 70);
    assert_done(0, 1, 1, 100);
    assert_int_equal(busy(0, 1), 30);
}

static void host_operation_ends_when_it_is_signalled(void **state)
{
    (void)state;
    open_stream(0, 0);
    push(0, (struct sim_op){.kind = SIM_OP_HOST});
    kernel(0, 0, 0, 10, 1);
    advance(1000);
    assert_int_equal(sim_model_done(world->client[0], 0), 1);
    sim_model_signal(world->client[0], 0, 2, 1500);
    advance(2000);
    assert_done(0, 0, 0, 1500);
    assert_done(0, 0, 1, 1510);
}

static void signalled_kernel_is_busy_until_then(void **state)
{
    (void)state;
    open_stream(0, 0);
    push(0, (struct sim_op){.kind = SIM_OP_KERNEL, .blocks = 1, .flags = SIM_OP_SIGNALLED});
    advance(300);
    assert_int_equal(busy(0, 0), 300);
    sim_model_signal(world->client[0], 0, 2, 400);
    advance(1000);
    assert_done(0, 0, 0, 400);
    assert_int_equal(busy(0, 0), 400);
}

static void closed_stream_index_counts_on(void **state)
{
    (void)state;
    open_stream(0, 0);
    kernel(0, 0, 0, 10, 1);
    push(0, (struct sim_op){.kind = SIM_OP_CLOSE});
    assert_int_equal(sim_model_push(world->client[0], &(struct sim_op){.kind = SIM_OP_MARK}, 0),
                     -EINVAL);
    advance(100);
    assert_int_equal(sim_model_done(world->client[0], 0), 3);
    open_stream(0, 0);
    kernel(0, 0, 200, 10, 1);
    advance(300);
    assert_int_equal(sim_model_done(world->client[0], 0), 5);
    assert_int_equal(sim_model_pending(world->client[0]), 0);
}

static void push_of_nonsense_is_refused(void **state)
{
    static const struct sim_op bad[] = {
        {.kind = SIM_OP_KERNEL, .stream = 0},
        {.kind = SIM_OP_KERNEL, .stream = UINT32_MAX},
        {.kind = SIM_OP_OPEN, .stream = SIM_STREAMS},
        {.kind = SIM_OP_OPEN, .blocks = 2},
        {.kind = SIM_OP_OPEN, .value = UINT64_MAX},
        {.kind = 0},
        {.kind = SIM_OP_MARK + 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(sim_model_push(world->client[0], &bad[i], 0), -EINVAL);
    open_stream(0, 0);
    assert_int_equal(sim_model_push(world->client[0], &(struct sim_op){.kind = SIM_OP_OPEN}, 0),
                     -EINVAL);
    advance(10);
}

static void device_with_streams_is_not_replaced(void **state)
{
    static const struct sim_model_device small = {1, 1};

    (void)state;
    open_stream(0, 0);
    assert_int_equal(sim_model_device_set(world->model, 0, &small), -EBUSY);
    assert_int_equal(sim_model_device_set(world->model, 3, &small), -EINVAL);
    assert_int_equal(sim_model_device_set(world->model, 2, &small), 0);
    open_on(0, 1, 2, 0, SIM_STREAM_NON_BLOCKING, 0);
    kernel(0, 1, 0, 10, 100);
    advance(100);
    assert_done(0, 1, 0, 10);
}

/* SMs */

static void kernels_of_a_context_share_the_sms(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_stream(0, 1);
    kernel(0, 0, 0, 10000, 60);
    kernel(0, 1, 0, 10000, 60); /* 40 SMs for 10 us, then 60: 200,000 of 600,000 are left */
    advance(MS);
    assert_done(0, 0, 0, 10000);
    assert_done(0, 1, 0, 13334);
    assert_int_equal(busy(0, 0), 13334);
}

static void kernel_wider_than_the_device_takes_all_of_it(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_stream(0, 1);
    kernel(0, 0, 0, 500, 100000);
    kernel(0, 1, 0, 500, 1);
    advance(MS);
    assert_done(0, 0, 0, 500);
    assert_done(0, 1, 0, 1000);
}

static void kernel_of_a_higher_priority_goes_first(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_on(0, 1, 0, 0, SIM_STREAM_NON_BLOCKING, -3);
    kernel(0, 0, 0, 1000, 100);
    kernel(0, 1, 400, 100, 100); /* takes the SMs for 100 ns */
    advance(MS);
    assert_done(0, 1, 0, 500);
    assert_done(0, 0, 0, 1100);
}

/* Turns */

static void contexts_of_two_processes_take_turns_of_2_ms(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_stream(1, 0);
    kernel(0, 0, 0, 5 * MS, 1);
    kernel(1, 0, 0, 5 * MS, 1);
    advance(3 * MS);
    assert_int_equal(busy(0, 0), 2 * MS);
    assert_int_equal(busy(1, 0), MS);
    advance(SEC);
    assert_done(0, 0, 0, 9 * MS); /* 0-2, 4-6, 8-9 */
    assert_done(1, 0, 0, 10 * MS);
    assert_int_equal(sim_model_device_usage(world->model, 0)->busy_ns, 10 * MS);
}

static void context_without_kernels_gives_its_turn_away(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_stream(1, 0);
    kernel(0, 0, 0, MS, 1);
    kernel(1, 0, 0, 5 * MS, 1);
    kernel(0, 0, 1500 * US, MS, 1); /* comes back: B's turn is 1-3 */
    advance(SEC);
    assert_done(0, 0, 0, MS);
    assert_done(0, 0, 1, 4 * MS);
    assert_done(1, 0, 0, 7 * MS);
}

static void newcomer_waits_for_the_end_of_the_turn(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_stream(1, 0);
    kernel(0, 0, 0, 10 * MS, 1);
    kernel(1, 0, 3 * MS, MS, 1); /* A's second turn is 2-4 */
    advance(SEC);
    assert_done(1, 0, 0, 5 * MS);
    assert_done(0, 0, 0, 11 * MS);
}

static void end_of_a_running_kernel_is_provisional(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_stream(1, 0);
    kernel(0, 0, 0, 10 * MS, 1);
    advance(MS);
    assert_int_equal(sim_model_earliest(world->client[0], 0, 2), 10 * MS);
    kernel(1, 0, MS, 3 * MS, 1);
    advance(3 * MS); /* B has a millisecond of this turn, and one of its next */
    assert_int_equal(sim_model_earliest(world->client[0], 0, 2), 13 * MS);
    assert_int_equal(sim_model_earliest(world->client[1], 0, 2), 7 * MS);
    advance(9 * MS); /* A 0-2, 4-6, B 2-4, 6-7 */
    assert_int_equal(sim_model_earliest(world->client[0], 0, 2), 13 * MS);
    advance(SEC);
    assert_done(0, 0, 0, 13 * MS);
}

static void two_contexts_of_a_process_take_turns_too(void **state)
{
    (void)state;
    open_on(0, 0, 0, 1, SIM_STREAM_NON_BLOCKING, 0);
    open_on(0, 1, 0, 2, SIM_STREAM_NON_BLOCKING, 0);
    kernel(0, 0, 0, 3 * MS, 1);
    kernel(0, 1, 0, 3 * MS, 1);
    advance(SEC);
    assert_done(0, 0, 0, 5 * MS);
    assert_done(0, 1, 0, 6 * MS);
    assert_int_equal(busy(0, 0), 6 * MS);
}

/* Copies */

static void copies_use_engines_and_no_sms(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        open_stream(0, i);
    open_stream(1, 0);
    kernel(1, 0, 0, 5 * MS, 100);
    for (uint32_t i = 0; i < 3; i++)
        copy(0, i, 0, 100);
    advance(SEC);
    assert_done(0, 0, 0, 100);
    assert_done(0, 1, 0, 100);
    assert_done(0, 2, 0, 200);
    assert_done(1, 0, 0, 5 * MS);
    assert_int_equal(busy(0, 0), 0);
}

/* Death */

static void death_frees_the_device_and_keeps_what_was_busy(void **state)
{
    (void)state;
    open_stream(0, 0);
    open_stream(1, 0);
    kernel(0, 0, 0, SEC, 1);
    copy(0, 0, 0, SEC);
    kernel(1, 0, 0, 10 * MS, 1);
    advance(5 * MS); /* A 0-2, 4-; B 2-4 */
    sim_model_client_free(world->client[0]);
    advance(SEC);
    assert_done(1, 0, 0, 13 * MS);
    assert_int_equal(sim_model_device_usage(world->model, 0)->busy_ns, 13 * MS);
}

/* A minute of mixed load */

/* Busy time v of a context that has the first or second of two turns of 2 ms, as the clock has it.
 */
static uint64_t in_turns(uint64_t v, uint64_t first)
{
    uint64_t turns = (v - 1) / SIM_SLICE_NS;

    return first + v + turns * SIM_SLICE_NS;
}

struct minute {
    uint64_t pushed[3];
};

/* What the clients have submitted by then: two hogs that stay a second ahead on device 0, one with
 * kernels of 3 ms and one of 700 us; on device 1 each millisecond 100 us on 80 SMs and 60 us on 50.
 */
static void minute_submit(struct minute *m, uint64_t now)
{
    for (; m->pushed[0] * 3 * MS < now + SEC; m->pushed[0]++)
        kernel(0, 0, now, 3 * MS, 100);
    for (; m->pushed[1] * 700 * US < now + SEC; m->pushed[1]++)
        kernel(1, 0, now, 700 * US, 1);
    for (; m->pushed[2] * MS < now + SEC / 2; m->pushed[2]++) {
        kernel(2, 0, m->pushed[2] * MS, 100 * US, 80);
        kernel(2, 1, m->pushed[2] * MS, 60 * US, 50);
    }
}

static void minute_run(uint64_t step)
{
    struct minute m = {0};

    open_stream(0, 0);
    open_stream(1, 0);
    open_on(2, 0, 1, 0, SIM_STREAM_NON_BLOCKING, 0);
    open_on(2, 1, 1, 0, SIM_STREAM_NON_BLOCKING, 0);
    for (uint64_t now = 0; now < 60 * SEC;) {
        uint64_t half = now + SEC / 2;

        minute_submit(&m, now);
        for (; now < half; now += step)
            advance(now + step);
    }
}

static void minute_of_mixed_load_ends_every_kernel_when_it_must(void **state)
{
    (void)state;
    minute_run(SEC / 2);
    for (uint64_t k = 0; k < KEPT; k++) {
        assert_done(0, 0, k, in_turns((k + 1) * 3 * MS, 0));
        assert_done(1, 0, k, in_turns((k + 1) * 700 * US, SIM_SLICE_NS));
        assert_done(2, 0, k, k * MS + 100 * US);
        /* 20 SMs for 100 us, then 50: 1,000,000 of 3,000,000 SM ns are left */
        assert_done(2, 1, k, k * MS + 120 * US);
    }
    assert_int_equal(busy(0, 0), 30 * SEC);
    assert_int_equal(busy(1, 0), 30 * SEC);
    assert_int_equal(busy(2, 1), 60 * 1000 * 120 * US);
    assert_int_equal(sim_model_device_usage(world->model, 0)->busy_ns, 60 * SEC);
    assert_int_equal(sim_model_done(world->client[0], 0), 1 + 10000);
    assert_int_equal(sim_model_done(world->client[1], 0), 1 + 30 * SEC / (700 * US));
    assert_int_equal(sim_model_done(world->client[2], 1), 1 + 60000);
    assert_int_equal(sim_usage_percent(sim_usage_of(sim_model_device_usage(world->model, 1), 300)),
                     12);
}

static void minute_in_small_steps_is_the_same_to_the_nanosecond(void **state)
{
    uint64_t hash;

    minute_run(SEC / 2);
    hash = world->hash;
    tear_down(state);
    set_up(state);
    minute_run(SEC / 2 / 3125); /* 160 us */
    assert_true(hash == world->hash);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(kernels_of_a_stream_run_one_after_the_other),
        TEST(submission_is_never_in_the_future_nor_out_of_order),
        TEST(advance_to_the_end_of_a_kernel_has_it_done),
        TEST(legacy_and_blocking_streams_wait_for_each_others_earlier_work),
        TEST(mark_after_all_is_done_when_every_earlier_operation_is),
        TEST(mark_behind_operations_that_end_at_once_is_done_then),
        TEST(wait_joins_streams_of_two_devices),
        TEST(host_operation_ends_when_it_is_signalled),
        TEST(signalled_kernel_is_busy_until_then),
        TEST(closed_stream_index_counts_on),
        TEST(push_of_nonsense_is_refused),
        TEST(device_with_streams_is_not_replaced),
        TEST(kernels_of_a_context_share_the_sms),
        TEST(kernel_wider_than_the_device_takes_all_of_it),
        TEST(kernel_of_a_higher_priority_goes_first),
        TEST(contexts_of_two_processes_take_turns_of_2_ms),
        TEST(context_without_kernels_gives_its_turn_away),
        TEST(newcomer_waits_for_the_end_of_the_turn),
        TEST(end_of_a_running_kernel_is_provisional),
        TEST(two_contexts_of_a_process_take_turns_too),
        TEST(copies_use_engines_and_no_sms),
        TEST(death_frees_the_device_and_keeps_what_was_busy),
        TEST(minute_of_mixed_load_ends_every_kernel_when_it_must),
        TEST(minute_in_small_steps_is_the_same_to_the_nanosecond),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
