/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the compute gate adds to a launch that does not wait: gate_child on the simulated driver,
 * bare and under a share of 90 percent, in turns; and how many driver calls of its own it made.
 *
 *   bench_gate [--json]      ALIQUOT_BUILD or the program's own place says where the build is
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "machine.h"

#define TURNS 5

/* One process; its minimum and median. */
static void measure(enum bench_mode mode, double *min, double *median)
{
    struct bench_child child = bench_child_start("gate_child", NULL, mode);
    int fields = fscanf(child.from, "launch %lf %lf", min, median);
    bench_child_end(&child);
    if (fields != 2)
        bench_die("gate_child printed no figures");
}

int main(int argc, char **argv)
{
    double mins[2][TURNS], medians[2][TURNS], calls[TURNS];
    bool json = argc > 1 && !strcmp(argv[1], "--json");

    bench_machine_open("bench_gate");
    for (int turn = 0; turn < TURNS; turn++) {
        struct alq_counters counters;
        measure(BENCH_BARE, &mins[0][turn], &medians[0][turn]);
        bench_share_make(90); /* a fresh one, so that its counters are of one process */
        measure(BENCH_SHARE, &mins[1][turn], &medians[1][turn]);
        calls[turn] = 0;
        if (bench_is_peer())
            continue;
        bench_share_counters(&counters);
        if (counters.launches == 0)
            bench_die("no launch passed the gate");
        calls[turn] = (double)counters.gate_calls / (double)counters.launches;
        if (counters.throttled_ns)
            fprintf(stderr,
                    "bench_gate: a launch waited %.3f ms: the demand was to be below the limit\n",
                    (double)counters.throttled_ns * 1e-6);
    }
    bench_machine_close();
    for (int i = 0; i < 2; i++) {
        bench_sort(mins[i], TURNS);
        bench_sort(medians[i], TURNS);
    }
    bench_sort(calls, TURNS);
    double bare = medians[0][TURNS / 2], with = medians[1][TURNS / 2];
    double min = mins[1][0] > mins[0][0] ? mins[1][0] - mins[0][0] : 0;
    double median = with > bare ? with - bare : 0;
    if (json)
        printf("[{\"name\": \"hook.limit.launch_ns\", \"unit\": \"ns\", \"value_min\": %.1f, "
               "\"value_median\": %.1f, \"reference\": %.1f, \"ratio\": %.3f}",
               min, median, bare, with / bare);
    else
        printf("hook.limit.launch_ns          %9.1f %9.1f ns   bare %9.1f\n"
               "hook.driver_calls_per_launch  %9.4f %9.4f\n",
               min, median, bare, calls[0], calls[TURNS / 2]);
    if (json && !bench_is_peer())
        printf(",\n {\"name\": \"hook.driver_calls_per_launch\", \"unit\": \"calls\", "
               "\"value_min\": %.4f, \"value_median\": %.4f, \"reference\": null, \"ratio\": null}",
               calls[0], calls[TURNS / 2]);
    if (json)
        printf("]\n");
    return 0;
}
