/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compute gate under threads of one process: launches, timings, synchronisations, captures and
 * ends at once, on a driver whose events are done when recorded. For the thread sanitizer, and for
 * what must hold at the end in any build.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "vgpu/compute/compute.h"

#define THREADS 4
#define LAUNCHES 20000

struct event {
    uint64_t at_ns;
};

static struct alq_compute *compute;
static struct alq_control control;
static struct alq_usage_section section;
static _Atomic int events;

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static CUresult event_create(CUevent *out)
{
    *out = (CUevent)calloc(1, sizeof(struct event));
    events++;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult event_destroy(CUevent event)
{
    free(event);
    events--;
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    (void)stream;
    ((struct event *)event)->at_ns = now_ns();
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    (void)event;
    return CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to)
{
    *ms = (float)((double)(int64_t)(((struct event *)to)->at_ns - ((struct event *)from)->at_ns) *
                  1e-6);
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
    *out = (CUcontext)0x1000;
    return CUDA_SUCCESS;
}

static void wait_until(const uint32_t *word, uint32_t expect, uint64_t until_ns)
{
    struct timespec ts = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
    if (__atomic_load_n(word, __ATOMIC_RELAXED) == expect)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL);
}

static void relax(void)
{
}

static void *launches(void *arg)
{
    uintptr_t self = (uintptr_t)arg;
    for (uintptr_t i = 0; i < LAUNCHES; i++) {
        /* One stream of its own, destroyed now and then, and one that all share. */
        struct alq_compute_launch launch = {
            .stream = (CUstream)(i % 3 ? 0x7000 + self * 16 : 0),
            .handle = (const void *)(0x4000 + (i % 5) * 64),
            .size_class = (uint32_t)(i % 2),
        };
        struct alq_compute_ticket ticket;
        alq_compute_before(compute, &launch, &ticket);
        alq_compute_after(compute, &launch, &ticket,
                          i % 97 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
        if (i % 64 == 0)
            alq_compute_synced(compute, ALQ_SYNCED_CONTEXT);
        if (i % 1000 == 999)
            alq_compute_stream_gone(compute, (CUstream)(0x7000 + self * 16));
        if (i % 3000 == 2999) {
            CUstream stream = (CUstream)(0x9000 + self * 16);
            alq_compute_capture_begin(compute, stream);
            alq_compute_capture_began(compute, stream, CUDA_SUCCESS);
            alq_compute_capture_ended(compute, stream, CUDA_SUCCESS);
            alq_compute_functions_gone(compute);
        }
    }
    return NULL;
}

static void launches_of_many_threads_leave_nothing_behind(void **state)
{
    pthread_t threads[THREADS];
    (void)state;
    compute = calloc(1, sizeof(*compute));
    assert_non_null(compute);
    compute->driver = (struct alq_compute_driver){
        .event_create = event_create,
        .event_destroy = event_destroy,
        .event_record = event_record,
        .event_query = event_query,
        .event_elapsed = event_elapsed,
        .stream_is_capturing = stream_is_capturing,
        .context_current = context_current,
        .now_ns = now_ns,
        .wait_until = wait_until,
        .relax = relax,
    };
    control.values[0].compute_limit_pct = 90;
    struct alq_compute_share share = alq_compute_share_of(&control, &section, &section.slots[0]);
    alq_compute_add_device(compute, 0, &share, 1, 1);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, launches, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    alq_compute_context_gone(compute, (CUcontext)0x1000);
    assert_int_equal(section.counters.launches, THREADS * LAUNCHES);
    assert_int_equal(atomic_load(&compute->captures), 0);
    assert_int_equal(compute->devices[0].pending_count, 0);
    assert_int_equal(atomic_load(&compute->devices[0].outstanding_ns), 0);
    assert_int_equal(atomic_load(&compute->devices[0].waiting), 0);
    assert_int_equal(events, 0);
    free(compute);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_of_many_threads_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
