/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libvgpu.so adds to a call: hook_child on the simulated driver, bare, with the library and no
 * share, and with a share, in turns in one run. A figure is "with" less "bare", of the smallest and
 * of the median round; reference is the bare call.
 *
 *   bench_hook [--json]      ALIQUOT_BUILD or the program's own place says where the build is
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "machine.h"

enum { LAUNCH, ALLOC_10, REFUSE, VIEW, ALLOC_MILLION, WORST_MILLION, MEASURES };

#define TURNS 5

static const char *const measure_names[MEASURES] = {
    "launch", "alloc_free.10", "refuse", "view", "alloc_free.1000000", "worst.1000000"};

struct figure {
    double min, median;
};

/* One process of a mode; fills what it prints. */
static void measure(enum bench_mode mode, bool has_million, struct figure out[MEASURES])
{
    char million[] = "million", line[256];
    FILE *output = bench_child_start("hook_child", has_million ? million : NULL, mode);

    while (fgets(line, sizeof(line), output)) {
        char name[64];
        struct figure figure;
        if (sscanf(line, "%63s %lf %lf", name, &figure.min, &figure.median) != 3)
            continue;
        for (int i = 0; i < MEASURES; i++)
            if (!strcmp(name, measure_names[i]))
                out[i] = figure;
    }
    bench_child_end(output);
}

/* Over the turns of a mode: the smallest minimum, the median of medians. */
static struct figure over_turns(struct figure all[TURNS][BENCH_MODES][MEASURES], int turns,
                                enum bench_mode mode, int what)
{
    double mins[TURNS], medians[TURNS];
    for (int i = 0; i < turns; i++) {
        mins[i] = all[i][mode][what].min;
        medians[i] = all[i][mode][what].median;
    }
    bench_sort(mins, (size_t)turns);
    bench_sort(medians, (size_t)turns);
    return (struct figure){mins[0], medians[turns / 2]};
}

static void show(bool json, bool *is_first, const char *name, struct figure with,
                 struct figure bare, bool is_added)
{
    if (with.median <= 0) /* not measured: hook_child was cut short */
        return;
    double min = is_added ? with.min - bare.min : with.min;
    double median = is_added ? with.median - bare.median : with.median;
    if (min < 0)
        min = 0; /* below what the machine's noise lets see */
    if (median < 0)
        median = 0;
    double reference = is_added ? bare.median : 0;
    double ratio = is_added && bare.median > 0 ? with.median / bare.median : 0;
    if (json) {
        printf(
            "%s{\"name\": \"%s\", \"unit\": \"ns\", \"value_min\": %.1f, \"value_median\": %.1f, ",
            *is_first ? "[" : ",\n ", name, min, median);
        if (is_added)
            printf("\"reference\": %.1f, \"ratio\": %.3f}", reference, ratio);
        else
            printf("\"reference\": null, \"ratio\": null}");
    } else {
        printf("%-28s %9.1f %9.1f ns   bare %9.1f\n", name, min, median, reference);
    }
    *is_first = false;
}

int main(int argc, char **argv)
{
    static struct figure all[TURNS][BENCH_MODES][MEASURES];
    bool json = argc > 1 && !strcmp(argv[1], "--json"), is_first = true;

    bench_machine_open("bench_hook");
    bench_share_make(100);
    for (int turn = 0; turn < TURNS; turn++)
        for (enum bench_mode mode = 0; mode < BENCH_MODES; mode++)
            measure(mode, turn < 2 && mode != BENCH_NO_SHARE, all[turn][mode]);
    bench_machine_close();

    struct figure figures[BENCH_MODES][MEASURES];
    for (enum bench_mode mode = 0; mode < BENCH_MODES; mode++)
        for (int what = 0; what < MEASURES; what++)
            figures[mode][what] = over_turns(all, what >= ALLOC_MILLION ? 2 : TURNS, mode, what);
    show(json, &is_first, "hook.none.launch_ns", figures[BENCH_NO_SHARE][LAUNCH],
         figures[BENCH_BARE][LAUNCH], true);
    show(json, &is_first, "hook.alloc_free_ns.10", figures[BENCH_SHARE][ALLOC_10],
         figures[BENCH_BARE][ALLOC_10], true);
    show(json, &is_first, "hook.alloc_free_ns.1000000", figures[BENCH_SHARE][ALLOC_MILLION],
         figures[BENCH_BARE][ALLOC_MILLION], true);
    show(json, &is_first, "hook.worst_ns.1000000", figures[BENCH_SHARE][WORST_MILLION],
         figures[BENCH_BARE][WORST_MILLION], true);
    show(json, &is_first, "hook.refuse_ns", figures[BENCH_SHARE][REFUSE],
         figures[BENCH_BARE][REFUSE], false);
    show(json, &is_first, "hook.view_ns", figures[BENCH_SHARE][VIEW], figures[BENCH_BARE][VIEW],
         true);
    if (json)
        printf("]\n");
    return 0;
}
