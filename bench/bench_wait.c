/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How late a wait at the compute gate ends: the gate's own objects with the library's way to wait,
 * on the real clock, in a share of 10 percent where nothing is measured, so that the time at which
 * a launch may go is known before.
 *
 *   bench_wait [--json]
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aliquot/share.h"
#include "vgpu/compute/compute.h"
#include "vgpu/sys.h"

#define TURNS 5u
#define WAITS 100u /* of a turn */

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static CUresult no_context(CUcontext *out)
{
    *out = NULL;
    return CUDA_ERROR_INVALID_CONTEXT;
}

static void wait_until(const uint32_t *word, uint32_t expect, uint64_t until_ns)
{
    alq_sys_futex_wait_until(word, expect, until_ns, 0);
}

static void relax(void)
{
    __asm__ volatile("" ::: "memory");
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median and the 99th percentile of a turn. */
static void measure(struct alq_compute *c, const struct alq_gate *gate, double late_us[2])
{
    static double all_us[WAITS];
    const struct alq_compute_launch launch = {.stream = (CUstream)(uintptr_t)0x7000,
                                              .handle = (const void *)(uintptr_t)0x4000};
    struct alq_compute_ticket ticket;
    for (uint32_t n = 0; n < WAITS;) {
        uint64_t before_ns = now_ns(), due_ns = alq_gate_peek(gate, before_ns);
        alq_compute_before(c, &launch, &ticket);
        uint64_t after_ns = now_ns();
        alq_compute_after(c, &launch, &ticket, CUDA_SUCCESS);
        /* Waits that were short from the start end by spinning alone. */
        if (due_ns > before_ns + 2 * ALQ_SPIN_NS && after_ns >= due_ns)
            all_us[n++] = (double)(after_ns - due_ns) / 1000;
    }
    qsort(all_us, WAITS, sizeof(all_us[0]), by_value);
    late_us[0] = all_us[WAITS / 2];
    late_us[1] = all_us[WAITS * 99 / 100];
}

int main(int argc, char **argv)
{
    static struct alq_control control;
    static struct alq_usage_section usage;
    static const char *const names[] = {"gate.wait_late_us.p50", "gate.wait_late_us.p99"};
    const bool json = argc > 1 && !strcmp(argv[1], "--json");
    struct alq_compute *c = calloc(1, sizeof(*c));
    const struct alq_compute_share share = alq_compute_share_of(&control, &usage, NULL);
    double turns[2][TURNS];

    if (!c)
        return 1;
    control.values[0].compute_limit_pct = 10;
    c->driver = (struct alq_compute_driver){
        .context_current = no_context, .now_ns = now_ns, .wait_until = wait_until, .relax = relax};
    alq_compute_add_device(c, 0, &share, 1, 1);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        double late_us[2];
        measure(c, &usage.gate, late_us);
        turns[0][turn] = late_us[0];
        turns[1][turn] = late_us[1];
    }
    for (int i = 0; i < 2; i++) {
        qsort(turns[i], TURNS, sizeof(turns[i][0]), by_value);
        double least = turns[i][0], median = turns[i][TURNS / 2];
        if (json)
            printf("%s{\"name\": \"%s\", \"unit\": \"us\", \"value_min\": %.2f, \"value_median\": "
                   "%.2f, \"reference\": null, \"ratio\": null}%s",
                   i ? ",\n " : "[", names[i], least, median, i ? "]\n" : "");
        else
            printf("%-22s %8.2f %8.2f us\n", names[i], least, median);
    }
    free(c);
    return 0;
}
