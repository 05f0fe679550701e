/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compute gate as a whole on the device of fakegpu.h, in virtual time: shares hold for kernels
 * of any length, eager and in graphs, one process or several, alone or beside a neighbour; and its
 * manners: own driver calls, captures, errors, ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fakegpu.h"

struct program {
    uint64_t kernel_ns;
    uint64_t other_ns; /* by turns with kernel_ns, where not 0 */
    uint64_t pause_ns; /* between launches, after a synchronisation */
    int streams;       /* 0: one */
    bool is_created;   /* streams that the program made, not the default one */
    int sync_every;    /* launches; 0 never */
    bool is_graph;
};

static void run(void *arg)
{
    const struct program *p = arg;
    int streams = p->streams ? p->streams : 1;
    for (uint64_t i = 1;; i++) {
        int stream = (int)(i % (uint64_t)streams) + p->is_created;
        uint64_t ns = p->other_ns && i % 2 ? p->other_ns : p->kernel_ns;
        if (p->is_graph)
            fake_graph_launch(stream, 0x5000, ns);
        else
            fake_launch(stream, 0x4000, ns);
        if (p->sync_every && i % (uint64_t)p->sync_every == 0)
            fake_sync(stream);
        if (p->pause_ns)
            fake_sleep(p->pause_ns);
    }
}

/* Runs for a second to settle, then for `ns`; the share of group in percent. */
static double measure(int group, uint64_t ns)
{
    uint64_t t = fake_now() + SEC;
    fake_run_until(t);
    uint64_t busy = fake_busy_ns(group);
    fake_run_until(t + ns);
    return 100.0 * (double)(fake_busy_ns(group) - busy) / (double)ns;
}

static uint64_t span_for(uint64_t kernel_ns)
{
    return kernel_ns < 100 * US ? SEC : 5 * SEC;
}

#define assert_between(value, least, most)                                                         \
    assert_near(value, ((least) + (most)) / 2.0, ((most) - (least)) / 2.0)

#define assert_near(value, expect, within)                                                         \
    do {                                                                                           \
        double value_ = (value);                                                                   \
        if (value_ < (double)(expect) - (within) || value_ > (double)(expect) + (within))          \
            fail_msg("%s is %.2f, not %.2f within %.2f", #value, value_, (double)(expect),         \
                     (double)(within));                                                            \
    } while (0)

static const uint64_t KERNELS[] = {10 * US, 50 * US, 200 * US, 1 * MS, 5 * MS, 20 * MS};
static const uint32_t LIMITS[] = {10, 30, 50, 80};
#define EACH(array, i) (size_t i = 0; i < sizeof(array) / sizeof(array[0]); i++)

static void grid(struct program shape, int processes, double within)
{
    for
        EACH(KERNELS, k)
        for
            EACH(LIMITS, l)
            {
                fake_reset();
                struct fake_share share = fake_share_new(LIMITS[l]);
                struct program p = shape;
                p.kernel_ns = KERNELS[k];
                for (int i = 0; i < processes; i++)
                    fake_process_new(0, &share, run, &p);
                double got = measure(0, span_for(KERNELS[k]));
                print_message("limit %u kernel %llu us: %.2f\n", LIMITS[l],
                              (unsigned long long)(KERNELS[k] / US), got);
                assert_near(got, LIMITS[l], within);
            }
}

static void one_process_async_holds_its_share(void **state)
{
    (void)state;
    grid((struct program){0}, 1, 2);
}

static void one_process_synchronising_holds_its_share(void **state)
{
    (void)state;
    /* 10 us kernels, launched and waited for one by one, cannot fill 80 %. */
    for
        EACH(KERNELS, k)
        for
            EACH(LIMITS, l)
            {
                fake_reset();
                struct fake_share share = fake_share_new(LIMITS[l]);
                struct program p = {.kernel_ns = KERNELS[k], .sync_every = 1};
                fake_process_new(0, &share, run, &p);
                double got = measure(0, span_for(KERNELS[k]));
                double most = 100.0 * (double)KERNELS[k] / (double)(KERNELS[k] + 5 * US);
                print_message("limit %u kernel %llu us: %.2f\n", LIMITS[l],
                              (unsigned long long)(KERNELS[k] / US), got);
                assert_near(got, most < LIMITS[l] ? most : LIMITS[l], 2);
            }
}

static void graph_launches_hold_their_share(void **state)
{
    (void)state;
    grid((struct program){.is_graph = true, .sync_every = 4}, 1, 2);
}

static void four_streams_hold_their_share(void **state)
{
    (void)state;
    grid((struct program){.streams = 4}, 1, 3);
}

static void three_processes_hold_their_share_together(void **state)
{
    (void)state;
    grid((struct program){.sync_every = 8}, 3, 2);
}

static void eight_processes_get_equal_parts(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {50 * US, 1 * MS, 5 * MS};
    for
        EACH(lengths, k)
        {
            fake_reset();
            struct fake_share share = fake_share_new(50);
            struct program p = {.kernel_ns = lengths[k], .sync_every = 16};
            struct fake_process *all[8];
            for (int i = 0; i < 8; i++)
                all[i] = fake_process_new(0, &share, run, &p);
            assert_near(measure(0, 10 * SEC), 50, 2);
            uint64_t sum = 0;
            for (int i = 0; i < 8; i++)
                sum += all[i]->launches;
            for (int i = 0; i < 8; i++) {
                assert_in_range(all[i]->launches * 8, sum * 9 / 10, sum * 11 / 10);
                /* Nobody is passed: no process went without a launch for longer than its own turn
                 * takes. */
                assert_true(all[i]->max_gap_ns < 16 * 8 * 2 * lengths[k] + 200 * MS);
            }
        }
}

/* Their first timings hold each other's turns, so the first reservations are too long by several
 * times. As they are corrected, those that wait move up, and do not all find that it is their turn.
 */
static void eight_processes_do_not_all_go_when_charges_are_corrected(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(10);
    struct program p = {.kernel_ns = 5 * MS};
    for (int i = 0; i < 8; i++)
        fake_process_new(0, &share, run, &p);
    fake_run_until(fake_now() + 500 * MS);
    for (int i = 0; i < 20; i++) {
        uint64_t before = fake_busy_ns(0);
        fake_run_until(fake_now() + 500 * MS);
        assert_in_range(fake_busy_ns(0) - before, 0, 90 * MS);
    }
}

#define ARRIVALS 4096

static struct {
    uint64_t came_ns, left_ns;
} arrivals[ARRIVALS];
static uint32_t arrival_count;

static void noting(void *arg)
{
    const struct program *p = arg;
    for (uint64_t i = 1; arrival_count < ARRIVALS; i++) {
        uint32_t n = arrival_count++;
        arrivals[n].came_ns = fake_now();
        fake_launch(0, 0x4000, p->kernel_ns);
        arrivals[n].left_ns = fake_now();
        if (p->sync_every && i % (uint64_t)p->sync_every == 0)
            fake_sync(0);
    }
    for (;;)
        fake_sleep(SEC);
}

static void nobody_waits_while_later_comers_pass(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {200 * US, 2 * MS};
    for
        EACH(lengths, k)
        {
            uint64_t most_ns = 0;
            uint32_t first = 0;
            fake_reset();
            arrival_count = 0;
            struct fake_share share = fake_share_new(30);
            struct program p = {.kernel_ns = lengths[k], .sync_every = 16};
            for (int i = 0; i < 8; i++)
                fake_process_new(0, &share, noting, &p);
            fake_run_until(fake_now() + 60 * SEC);
            assert_int_equal(arrival_count, ARRIVALS);
            /* But for the begin, where second launches wait to see what the first took. */
            while (arrivals[first].came_ns < arrivals[0].came_ns + 500 * MS)
                first++;
            assert_true(first < ARRIVALS / 4 * 3);
            for (uint32_t i = first; i < ARRIVALS; i++)
                for (uint32_t later = i + 1; later < ARRIVALS; later++)
                    if (arrivals[later].left_ns < arrivals[i].left_ns &&
                        arrivals[i].left_ns - arrivals[later].left_ns > most_ns)
                        most_ns = arrivals[i].left_ns - arrivals[later].left_ns;
            print_message("kernels of %llu us: %.3f ms\n", (unsigned long long)(lengths[k] / US),
                          (double)most_ns / MS);
            assert_true(most_ns <= 100 * MS);
        }
}

static void overlapping_streams_are_charged_once(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {50 * US, 500 * US, 2 * MS};
    static const int processes[] = {1, 8};
    for
        EACH(lengths, k)
        for
            EACH(processes, n)
            {
                fake_reset();
                struct fake_share share = fake_share_new(75);
                struct program p = {.kernel_ns = lengths[k], .streams = 4, .is_created = true};
                for (int i = 0; i < processes[n]; i++)
                    fake_process_new(0, &share, run, &p)->is_overlapping = true;
                double got = measure(0, 3 * SEC);
                print_message("%d processes, kernel %llu us: %.2f\n", processes[n],
                              (unsigned long long)(lengths[k] / US), got);
                /* Where processes take turns by the kernel, spans of a turn are loose: below. */
                assert_between(got, processes[n] == 1 ? 73 : 67, 76);
            }
}

static void streams_that_take_turns_are_charged_for_each(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(40);
    struct program p = {.kernel_ns = 300 * US, .streams = 7, .is_created = true};
    fake_process_new(0, &share, run, &p);
    double got = measure(0, 5 * SEC);
    print_message("%.2f\n", got);
    assert_near(got, 40, 1);
}

static void differing_lengths_of_one_function_hold_the_share(void **state)
{
    (void)state;
    static const uint64_t pairs[][2] = {
        {10 * US, 100 * US}, {50 * US, 1 * MS}, {500 * US, 5 * MS}, {1 * MS, 20 * MS}};
    for
        EACH(pairs, i)
        {
            fake_reset();
            struct fake_share share = fake_share_new(30);
            struct program p = {.kernel_ns = pairs[i][0], .other_ns = pairs[i][1], .sync_every = 4};
            fake_process_new(0, &share, run, &p);
            double got = measure(0, 10 * SEC);
            print_message("%llu and %llu us: %.2f\n", (unsigned long long)(pairs[i][0] / US),
                          (unsigned long long)(pairs[i][1] / US), got);
            assert_near(got, 30, 4);
        }
}

static void sparse_launches_below_the_share_do_not_wait(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(50);
    /* 5 us every 20 us or so: a quarter of the time, half of the share, though every batch spans
     * all of it. */
    struct program p = {.kernel_ns = 5 * US, .pause_ns = 18 * US};
    struct fake_process *process = fake_process_new(0, &share, run, &p);
    assert_near(measure(0, 2 * SEC), 25, 2);
    assert_int_equal(process->sleeps, 0);
    assert_int_equal(share.section->counters.throttled_ns, 0);
}

static void short_launches_cost_few_driver_calls(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {1 * US, 5 * US, 10 * US};
    for
        EACH(lengths, k)
        {
            fake_reset();
            struct fake_share share = fake_share_new(90);
            struct program p = {.kernel_ns = lengths[k], .pause_ns = lengths[k]};
            struct fake_process *process = fake_process_new(0, &share, run, &p);
            fake_run_until(fake_now() + SEC);
            uint64_t calls = process->own_calls, launches = process->launches;
            fake_run_until(fake_now() + SEC);
            calls = process->own_calls - calls;
            launches = process->launches - launches;
            print_message("%llu us: %.4f calls a launch\n", (unsigned long long)(lengths[k] / US),
                          (double)calls / (double)launches);
            assert_true(calls * 100 <= launches * 5);
            assert_int_equal(process->sleeps, 0);
        }
}

static void two_shares_on_one_gpu_hold_both(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {50 * US, 500 * US, 2 * MS, 10 * MS};
    for
        EACH(lengths, a)
        for
            EACH(lengths, b)
            {
                fake_reset();
                struct fake_share first = fake_share_new(30), second = fake_share_new(60);
                struct program p = {.kernel_ns = lengths[a], .sync_every = 4},
                               q = {.kernel_ns = lengths[b], .sync_every = 4};
                fake_process_new(0, &first, run, &p);
                fake_process_new(1, &second, run, &q);
                double one = measure(0, 6 * SEC);
                double two = 100.0 * (double)fake_busy_ns(1) / (7.0 * (double)SEC);
                print_message("%llu and %llu us: %.2f %.2f\n",
                              (unsigned long long)(lengths[a] / US),
                              (unsigned long long)(lengths[b] / US), one, two);
                /* Waiting that cannot be told from work is charged: below the limit, never above.
                 */
                assert_between(one, 30 - 7, 30 + 2);
                assert_between(two, 60 - 7, 60 + 2);
            }
}

static void limit_holds_beside_an_unlimited_neighbour(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {200 * US, 2 * MS};
    for
        EACH(lengths, k)
        {
            fake_reset();
            struct fake_share share = fake_share_new(30);
            struct program p = {.kernel_ns = lengths[k], .sync_every = 4},
                           q = {.kernel_ns = 700 * US, .sync_every = 2};
            fake_process_new(0, &share, run, &p);
            fake_process_new(1, NULL, run, &q);
            double got = measure(0, 10 * SEC);
            print_message("kernel %llu us: %.2f\n", (unsigned long long)(lengths[k] / US), got);
            /* Never above; what waiting costs without the daemon's correction is the gate's to
             * lose. */
            assert_true(got < 32);
            assert_true(got > 10);
        }
}

static void limit_changes_act_in_mid_wait(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(1);
    struct program p = {.kernel_ns = 20 * MS};
    struct fake_process *process = fake_process_new(0, &share, run, &p);
    /* Two seconds a launch at 1 %; a change is taken within 10 ms. */
    fake_run_until(fake_now() + 11 * SEC);
    uint64_t launches = process->launches;
    fake_share_limit(&share, 100, ALQ_POLICY_HARD);
    fake_run_until(fake_now() + 10 * MS);
    assert_true(process->launches > launches);
    fake_share_limit(&share, 1, ALQ_POLICY_HARD);
    fake_run_until(fake_now() + 11 * SEC);
    launches = process->launches;
    fake_share_limit(&share, 50, ALQ_POLICY_HARD);
    fake_run_until(fake_now() + 100 * MS);
    assert_true(process->launches >= launches + 1);
    assert_near(measure(0, 4 * SEC), 50, 3);
    fake_share_limit(&share, 20, ALQ_POLICY_HARD);
    assert_near(measure(0, 4 * SEC), 20, 2);
    fake_share_limit(&share, 20, ALQ_POLICY_NONE);
    assert_near(measure(0, SEC), 100, 1);
    fake_share_limit(&share, 0, ALQ_POLICY_HARD);
    assert_near(measure(0, SEC), 100, 1);
    fake_share_limit(&share, 100, ALQ_POLICY_HARD);
    assert_near(measure(0, SEC), 100, 1);
}

static void limit_that_falls_lets_nobody_go(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(90);
    struct program p = {.kernel_ns = 3 * SEC};
    struct fake_process *process = fake_process_new(0, &share, run, &p);
    fake_run_until(fake_now() + 30 * SEC);
    uint64_t launches = process->launches;
    fake_share_limit(&share, 5, ALQ_POLICY_HARD);
    fake_run_until(fake_now() + 10 * SEC);
    assert_int_equal(process->launches, launches);
    fake_run_until(fake_now() + 15 * SEC); /* no debt grows past 20 s */
    assert_true(process->launches > launches);
}

struct forgery {
    struct alq_gate *gate;
    uint64_t by_ns;
};

static void forging(void *arg)
{
    const struct forgery *forgery = arg;
    for (;;) {
        fake_sleep(5 * MS);
        forgery->gate->settled_ns += forgery->by_ns;
    }
}

static void forged_corrections_hold_nobody_for_ever(void **state)
{
    (void)state;
    static const uint64_t by_ns[] = {5 * MS, SEC, 1000000000 * SEC, 0 - 1000000000 * SEC,
                                     0 - 5 * MS};
    for
        EACH(by_ns, i)
        {
            fake_reset();
            struct fake_share share = fake_share_new(30);
            struct program p = {.kernel_ns = 5 * MS};
            struct forgery forgery = {&share.section->gate, by_ns[i]};
            struct fake_process *process = fake_process_new(0, &share, run, &p);
            fake_process_new(1, NULL, forging, &forgery);
            fake_run_until(fake_now() + SEC);
            uint64_t launches = process->launches;
            fake_run_until(fake_now() + 45 * SEC);
            assert_true(process->launches > launches);
        }
}

static void unlimited_share_makes_no_driver_call(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(100);
    struct program p = {.kernel_ns = 100 * US, .sync_every = 4};
    struct fake_process *process = fake_process_new(0, &share, run, &p);
    fake_run_until(fake_now() + SEC);
    assert_int_equal(process->own_calls, 0);
    assert_int_equal(process->sleeps, 0);
    assert_in_range(share.section->counters.launches, process->launches - 1, process->launches);
}

static void failing_events_leave_launches_and_limit_alone(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(30);
    struct program p = {.kernel_ns = 1 * MS, .sync_every = 4};
    struct fake_process *process = fake_process_new(0, &share, run, &p);
    fake_run_until(fake_now() + SEC);
    process->event_error = CUDA_ERROR_INVALID_HANDLE;
    uint64_t calls = process->own_calls;
    /* By the estimates learnt so far. */
    assert_near(measure(0, 4 * SEC), 30, 2);
    assert_in_range(process->own_calls - calls, 1, 10);
}

static void capturing(void *arg)
{
    struct fake_process *self = fake_self();
    struct alq_compute *c = self->compute;
    const struct alq_compute_launch captured = {
        .stream = fake_stream(1), .handle = (void *)0x4000, .size_class = 10};
    uint64_t *calls_inside = arg;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 20; i++)
            fake_launch(1, 0x4000, 300 * US);
        alq_compute_capture_begin(c, fake_stream(1));
        alq_compute_capture_began(c, fake_stream(1), CUDA_SUCCESS);
        fake_set_capturing(1, true);
        uint64_t calls = self->own_calls, waits = self->sleeps;
        for (int i = 0; i < 1000; i++)
            fake_launch_with(&captured, 1, 300 * US, CUDA_SUCCESS);
        *calls_inside += self->sleeps - waits;
        for (int i = 0; i < 20; i++)
            fake_launch(2, 0x4000, 300 * US); /* another stream: gated, without an event */
        *calls_inside += self->own_calls - calls;
        alq_compute_capture_ended(c, fake_stream(1), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        *calls_inside += atomic_load(&c->captures) != 1;
        fake_set_capturing(1, false);
        alq_compute_capture_ended(c, fake_stream(1), CUDA_SUCCESS);
        *calls_inside += atomic_load(&c->captures) != 0;
    }
    for (;;)
        fake_launch(1, 0x4000, 300 * US);
}

static void captures_are_counted_and_never_touched(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(30);
    uint64_t calls_inside = 0;
    fake_process_new(0, &share, capturing, &calls_inside);
    assert_near(measure(0, 4 * SEC), 30, 2);
    assert_int_equal(calls_inside, 0);
    assert_true(share.section->counters.launches > 5000);
}

static void joined(void *arg)
{
    uint64_t *records_between = arg;
    struct alq_compute_launch first = {
        .stream = fake_stream(1), .handle = (void *)0x4000, .size_class = 10};
    struct alq_compute_launch second = first;
    second.handle = (void *)0x4040;
    second.is_joined = true;
    fake_launch_with(&second, 1, 400 * US, CUDA_SUCCESS);
    for (uint64_t i = 1;; i++) {
        fake_launch_with(&first, 1, 400 * US, CUDA_SUCCESS);
        uint64_t records = fake_self()->records_at_launch;
        fake_launch_with(&second, 1, 400 * US, CUDA_SUCCESS);
        *records_between += fake_self()->records_at_launch - records;
        if (i % 4 == 0)
            fake_sync(1);
    }
}

static void no_event_comes_between_joined_launches(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(30);
    uint64_t records_between = 0;
    struct fake_process *process = fake_process_new(0, &share, joined, &records_between);
    assert_near(measure(0, 3 * SEC), 30, 3);
    assert_int_equal(records_between, 0);
    assert_true(process->records > 100);
}

static void stream_destroyed_while_capturing(void *arg)
{
    struct alq_compute *c = fake_self()->compute;
    alq_compute_capture_began(c, fake_stream(3), CUDA_SUCCESS);
    alq_compute_stream_gone(c, fake_stream(3));
    alq_compute_capture_began(c, fake_stream(3), CUDA_ERROR_ILLEGAL_STATE);
    *(uint32_t *)arg = atomic_load(&c->captures);
}

static void capture_ends_with_its_stream(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(30);
    uint32_t left = 77;
    fake_process_new(0, &share, stream_destroyed_while_capturing, &left);
    fake_run_until(fake_now() + MS);
    assert_int_equal(left, 0);
}

static void coming_and_going(void *arg)
{
    struct alq_compute *c = fake_self()->compute;
    (void)arg;
    for (int i = 0; i < 100000; i++) {
        for (int stream = 0; stream < 4; stream++)
            for (int k = 0; k < 3; k++)
                fake_launch(stream, 0x4000 + (uintptr_t)(i % 7) * 64, 30 * US);
        for (int stream = 0; stream < 4; stream++)
            fake_sync(stream);
        alq_compute_stream_gone(c, fake_stream(1 + i % 3));
        if (i % 10 == 0)
            alq_compute_context_gone(c, (CUcontext)0x1000);
        if (i % 3 == 0)
            fake_graph_launch(0, 0x9000 + (uintptr_t)i * 64, 30 * US);
        alq_compute_graph_gone(c, (CUgraphExec)(0x9000 + (uintptr_t)i * 64));
        if (i % 5 == 0)
            alq_compute_functions_gone(c);
    }
    alq_compute_context_gone(c, (CUcontext)0x1000);
    *(bool *)arg = true;
}

static void ends_leave_nothing_behind(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(80);
    bool is_done = false;
    struct fake_process *process = fake_process_new(0, &share, coming_and_going, &is_done);
    fake_run_until(fake_now() + 1000 * SEC);
    assert_true(is_done);
    assert_int_equal(fake_events_alive(), 0);
    assert_int_equal(process->compute->devices[0].pending_count, 0);
    assert_int_equal(atomic_load(&process->compute->devices[0].outstanding_ns), 0);
    for (int i = 0; i < (int)ALQ_STREAMS; i++)
        assert_true(process->compute->streams[i].key <= 2);
}

static void failing_launches(void *arg)
{
    struct alq_compute_launch launch = {
        .stream = fake_stream(1), .handle = (void *)0x4000, .size_class = 10};
    (void)arg;
    for (int i = 0; i < 20; i++)
        fake_launch(1, 0x4000, 2 * MS);
    for (int i = 0; i < 1000; i++)
        fake_launch_with(&launch, 1, 2 * MS, CUDA_ERROR_INVALID_VALUE);
    *(uint64_t *)arg = fake_now();
}

static void failed_launches_are_not_charged(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(10);
    uint64_t end = 0, begin = fake_now();
    fake_process_new(0, &share, failing_launches, &end);
    fake_run_until(begin + 30 * SEC);
    /* 40 ms of work at 10 % is 0.4 s; a thousand failures would be 20 s more. */
    assert_in_range(end - begin, 1, 600 * MS);
}

static void spinning(void *arg)
{
    /* The first kernel spins until the tenth launch after it: long beyond any estimate, and no
     * launch may wait for it for longer than 20 ms. */
    uint64_t begin = fake_now();
    fake_launch(1, 0x6000, 900 * MS);
    for (int i = 0; i < 10; i++)
        fake_launch(2, 0x6000, 10 * US);
    *(uint64_t *)arg = fake_now() - begin;
}

static void waits_for_own_work_are_bounded(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(80);
    uint64_t took = 0;
    fake_process_new(0, &share, spinning, &took);
    fake_run_until(fake_now() + 5 * SEC);
    assert_in_range(took, 1, 10 * (20 * MS + 40 * MS));
}

static void two_processes_other_boot(void *arg)
{
    (void)arg;
    fake_launch(0, 0x4000, MS);
    *(uint64_t *)arg = fake_now();
}

static void clock_of_another_boot_is_now(void **state)
{
    (void)state;
    fake_reset();
    struct fake_share share = fake_share_new(10);
    uint64_t begin = fake_now(), end = 0;
    share.section->gate.tat_ns = begin + 19 * SEC;
    share.section->gate.boot_id = 99;
    fake_process_new(0, &share, two_processes_other_boot, &end);
    fake_run_until(begin + 30 * SEC);
    assert_in_range(end - begin, 1, MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_async_holds_its_share),
        cmocka_unit_test(one_process_synchronising_holds_its_share),
        cmocka_unit_test(graph_launches_hold_their_share),
        cmocka_unit_test(four_streams_hold_their_share),
        cmocka_unit_test(three_processes_hold_their_share_together),
        cmocka_unit_test(eight_processes_get_equal_parts),
        cmocka_unit_test(eight_processes_do_not_all_go_when_charges_are_corrected),
        cmocka_unit_test(nobody_waits_while_later_comers_pass),
        cmocka_unit_test(overlapping_streams_are_charged_once),
        cmocka_unit_test(streams_that_take_turns_are_charged_for_each),
        cmocka_unit_test(differing_lengths_of_one_function_hold_the_share),
        cmocka_unit_test(sparse_launches_below_the_share_do_not_wait),
        cmocka_unit_test(short_launches_cost_few_driver_calls),
        cmocka_unit_test(two_shares_on_one_gpu_hold_both),
        cmocka_unit_test(limit_holds_beside_an_unlimited_neighbour),
        cmocka_unit_test(limit_changes_act_in_mid_wait),
        cmocka_unit_test(limit_that_falls_lets_nobody_go),
        cmocka_unit_test(forged_corrections_hold_nobody_for_ever),
        cmocka_unit_test(unlimited_share_makes_no_driver_call),
        cmocka_unit_test(failing_events_leave_launches_and_limit_alone),
        cmocka_unit_test(captures_are_counted_and_never_touched),
        cmocka_unit_test(no_event_comes_between_joined_launches),
        cmocka_unit_test(capture_ends_with_its_stream),
        cmocka_unit_test(ends_leave_nothing_behind),
        cmocka_unit_test(failed_launches_are_not_charged),
        cmocka_unit_test(waits_for_own_work_are_bounded),
        cmocka_unit_test(clock_of_another_boot_is_now),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fake_reset();
    return failed;
}
