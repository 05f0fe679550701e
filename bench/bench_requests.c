/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the compute gate adds to the latency of requests, on the machine of accuracy/world.h
 * (virtual time, every run the same): requests of 5 ms of kernels come at random to a share of 50
 * percent, half of what it could do, to one process, and to eight in equal parts. The 99th
 * percentile less that of the same requests without the library.
 *
 *   bench_requests [--json]
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "accuracy/world.h"

#define LIMIT_PCT 50u
#define KERNEL_NS (500 * US)
#define KERNELS 10u
#define REQUESTS 4000u
#define PROCESSES 8u
#define MEAN_GAP_NS (KERNELS * KERNEL_NS * 2 * 100 / LIMIT_PCT) /* half of the share's load */

static double latencies_ms[REQUESTS];
static uint32_t done;

static void serve(void *arg)
{
    const double mean_gap_ns = *(const double *)arg;
    double due_ns = (double)world_now();
    for (;;) {
        double u = ((world_random() >> 8) + 1) / (double)(1u << 24);
        due_ns -= mean_gap_ns * log(u);
        if ((uint64_t)due_ns > world_now())
            world_sleep_until((uint64_t)due_ns);
        for (uint32_t i = 0; i < KERNELS; i++)
            world_launch(0, 0x10000, 1, KERNEL_NS, 528);
        world_sync(0);
        if (done < REQUESTS)
            latencies_ms[done++] = ((double)world_now() - due_ns) / MS;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double p99_ms(uint32_t limit_pct, uint32_t processes)
{
    const uint64_t gap_ns = MEAN_GAP_NS * processes;
    double mean_gap_ns = (double)gap_ns;
    done = 0;
    world_open(132);
    struct world_share *share = world_share_new(limit_pct);
    for (uint32_t i = 0; i < processes; i++)
        world_process_new(share, serve, &mean_gap_ns);
    while (done < REQUESTS)
        world_run_until(world_now() + SEC);
    world_close();
    qsort(latencies_ms, REQUESTS, sizeof(latencies_ms[0]), by_value);
    return latencies_ms[REQUESTS * 99 / 100];
}

int main(int argc, char **argv)
{
    const bool json = argc > 1 && !strcmp(argv[1], "--json");
    const uint32_t processes[] = {1, PROCESSES};
    for (uint32_t i = 0; i < 2; i++) {
        double bare = p99_ms(0, processes[i]), with = p99_ms(LIMIT_PCT, processes[i]);
        double added = with > bare ? with - bare : 0;
        const char *name = i ? "gate.added_p99_ms.8" : "gate.added_p99_ms";
        if (json)
            printf("%s{\"name\": \"%s\", \"unit\": \"ms\", \"value_min\": %.3f, \"value_median\": "
                   "%.3f, \"reference\": %.3f, \"ratio\": %.3f}%s",
                   i ? ",\n " : "[", name, added, added, bare, with / bare, i ? "]\n" : "");
        else
            printf("%-22s %8.3f ms   bare %8.3f\n", name, added, bare);
    }
    return 0;
}
