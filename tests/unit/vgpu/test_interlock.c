/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process with a share on each of two devices, and kernels that wait for each other across
 * them, as collectives do: a round is one kernel on each, and both end when both have run side by
 * side for a while. In virtual time and one thread; a kernel's time is known when its peer was
 * launched.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "aliquot/share.h"
#include "vgpu/compute/compute.h"

#define US 1000ull
#define MS 1000000ull
#define DEVICES 2u
#define ROUNDS 1000u
#define KERNEL_NS (1 * MS)
#define EVENTS 1024u
#define UNKNOWN UINT64_MAX

struct event {
    uint32_t device;
    uint64_t round; /* reached with the end of the device's kernel of this round; 0: at once */
    uint64_t recorded_ns;
};

static struct {
    uint64_t now_ns;
    uint32_t current; /* device whose context is current */
    struct event events[EVENTS];
    uint32_t event_count;
    uint64_t launched[DEVICES];             /* kernels */
    uint64_t began_ns[DEVICES][ROUNDS + 1]; /* from when each spins, from 1 */
    uint64_t end_ns[ROUNDS + 1];            /* of a round */
} w;

static uint64_t reached_ns(const struct event *e)
{
    if (e->round > w.launched[0] || e->round > w.launched[1])
        return UNKNOWN;
    uint64_t end = w.end_ns[e->round];
    return end > e->recorded_ns ? end : e->recorded_ns;
}

static struct event *event_of(CUevent handle)
{
    return &w.events[(uintptr_t)handle - 1];
}

static CUresult event_create(CUevent *out)
{
    assert_true(w.event_count < EVENTS);
    *out = (CUevent)(uintptr_t)++w.event_count;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)stream;
    *event_of(event) = (struct event){w.current, w.launched[w.current], w.now_ns};
    w.now_ns += 500;
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    w.now_ns += 200;
    return reached_ns(event_of(event)) <= w.now_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to)
{
    uint64_t a = reached_ns(event_of(from)), b = reached_ns(event_of(to));
    if (a > w.now_ns || b > w.now_ns)
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(int64_t)(b - a) * 1e-6);
    return CUDA_SUCCESS;
}

static CUresult stream_is_capturing(CUstream stream, CUstreamCaptureStatus *out)
{
    (void)stream;
    *out = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

static CUresult context_current(CUcontext *out)
{
    *out = (CUcontext)(uintptr_t)(0x1000 + w.current * 0x100);
    return CUDA_SUCCESS;
}

static uint64_t now_ns(void)
{
    return w.now_ns;
}

static void wait_until(const uint32_t *word, uint32_t expect, uint64_t until_ns)
{
    (void)word;
    (void)expect;
    w.now_ns = (until_ns > w.now_ns ? until_ns : w.now_ns) + 60 * US;
}

static void relax(void)
{
    w.now_ns += 500;
}

static void launch(struct alq_compute *c, uint32_t device)
{
    struct alq_compute_launch l = {.device = device,
                                   .stream = (CUstream)(uintptr_t)(0x7000 + device),
                                   .handle = (const void *)(uintptr_t)(0x4000 + device * 0x40),
                                   .size_class = 10};
    struct alq_compute_ticket ticket;
    w.current = device;
    alq_compute_before(c, &l, &ticket);
    uint64_t round = ++w.launched[device], before = w.end_ns[round - 1];
    w.began_ns[device][round] = before > w.now_ns ? before : w.now_ns;
    if (w.launched[1 - device] >= round) {
        uint64_t peer = w.began_ns[1 - device][round], own = w.began_ns[device][round];
        w.end_ns[round] = (peer > own ? peer : own) + KERNEL_NS;
    }
    w.now_ns += 2 * US;
    alq_compute_after(c, &l, &ticket, CUDA_SUCCESS);
}

/* Time a round in the first and in the last tenth of the rounds, after some to settle. */
static void run_rounds(uint32_t first_pct, uint32_t second_pct, double *early_ns, double *late_ns)
{
    struct alq_compute *c = calloc(1, sizeof(*c));
    struct alq_usage_section *usage = calloc(DEVICES, sizeof(*usage));
    struct alq_control control[DEVICES];
    const uint32_t pct[DEVICES] = {first_pct, second_pct};

    assert_non_null(c);
    assert_non_null(usage);
    memset(&w, 0, sizeof(w));
    memset(control, 0, sizeof(control));
    w.now_ns = w.end_ns[0] = 1000000 * MS;
    c->driver = (struct alq_compute_driver){
        event_create,        event_destroy,   event_record, event_query, event_elapsed,
        stream_is_capturing, context_current, now_ns,       wait_until,  relax};
    for (uint32_t i = 0; i < DEVICES; i++) {
        control[i].values[0].compute_limit_pct = pct[i];
        struct alq_compute_share share = alq_compute_share_of(&control[i], &usage[i], NULL);
        alq_compute_add_device(c, i, &share, 1, 1);
    }
    for (uint32_t i = 0; i < ROUNDS; i++) {
        launch(c, i % DEVICES);
        launch(c, 1 - i % DEVICES);
    }
    *early_ns = (double)(w.end_ns[200] - w.end_ns[100]) / 100;
    *late_ns = (double)(w.end_ns[ROUNDS] - w.end_ns[ROUNDS - 100]) / 100;
    print_message("%u and %u percent: %.3f ms a round, later %.3f ms\n", first_pct, second_pct,
                  *early_ns / MS, *late_ns / MS);
    free(usage);
    free(c);
}

static void rounds_at_equal_limits_do_not_grow(void **state)
{
    double early_ns, late_ns;
    (void)state;
    run_rounds(30, 30, &early_ns, &late_ns);
    assert_true(late_ns < early_ns * 1.1);
    /* A kernel of 1 ms at 30 percent is one in 3.33 ms: what it spins for its peer costs nothing.
     */
    assert_true(late_ns < 3.7 * MS);
    assert_true(late_ns > 3.3 * MS);
}

static void rounds_at_unequal_limits_do_not_grow(void **state)
{
    double early_ns, late_ns;
    (void)state;
    run_rounds(80, 20, &early_ns, &late_ns);
    assert_true(late_ns < early_ns * 1.1);
    assert_true(late_ns < 5.5 * MS);
    assert_true(late_ns > 4.9 * MS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_at_equal_limits_do_not_grow),
        cmocka_unit_test(rounds_at_unequal_limits_do_not_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
