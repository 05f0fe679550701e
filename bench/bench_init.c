/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libvgpu.so costs a process by being there: CPU time from exec to exit, of a program that
 * loads the driver and calls cuInit (one, 64 at once) and of /bin/true, and resident memory. Each
 * against the same without the library, in turns.
 *
 * usage: bench_init [--json]
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

enum { ROUNDS_MAX = 101 };

struct series {
    double values[ROUNDS_MAX];
    size_t count;
};

static bool is_json, is_first = true;

static void show(const char *name, const char *unit, struct series *with, struct series *bare)
{
    bench_sort(with->values, with->count);
    bench_sort(bare->values, bare->count);
    double reference = bare->values[bare->count / 2];
    double min = with->values[0] - bare->values[0];
    double median = with->values[with->count / 2] - reference;
    min = min > 0 ? min : 0;
    median = median > 0 ? median : 0;
    if (is_json)
        printf(
            "%s{\"name\": \"%s\", \"unit\": \"%s\", \"value_min\": %.1f, \"value_median\": %.1f, "
            "\"reference\": %.1f, \"ratio\": %.3f}",
            is_first ? "[" : ",\n ", name, unit, min, median, reference,
            with->values[with->count / 2] / reference);
    else
        printf("%-20s %9.1f %9.1f %s   bare %9.1f\n", name, min, median, unit, reference);
    is_first = false;
}

static void cpu(const char *name, const char *program, char *argument, unsigned at_once,
                size_t rounds)
{
    static struct series with, bare;
    with.count = bare.count = rounds;
    for (size_t i = 0; i < rounds; i++) {
        bare.values[i] = bench_cpu_us(program, argument, BENCH_BARE, at_once);
        with.values[i] = bench_cpu_us(program, argument, BENCH_SHARE, at_once);
    }
    show(name, "us", &with, &bare);
}

static double rss(enum bench_mode mode)
{
    double kib = 0;
    struct bench_child child = bench_child_start("init_child", (char[]){"rss"}, mode);
    if (fscanf(child.from, "%lf", &kib) != 1)
        bench_die("init_child printed no number");
    bench_child_end(&child);
    return kib;
}

int main(int argc, char **argv)
{
    static struct series with, bare;

    is_json = argc > 1 && !strcmp(argv[1], "--json");
    bench_machine_open("bench_init");
    bench_share_make(50);
    cpu("init.added_us.1", "init_child", (char[]){"init"}, 1, 101);
    cpu("init.added_us.64", "init_child", (char[]){"init"}, 64, 11);
    cpu("init.added_us.true", "/bin/true", NULL, 1, 101);
    with.count = bare.count = 11;
    for (size_t i = 0; i < with.count; i++) {
        bare.values[i] = rss(BENCH_BARE);
        with.values[i] = rss(BENCH_SHARE);
    }
    show("library.rss_kib", "KiB", &with, &bare);
    if (is_json)
        printf("]\n");
    bench_machine_close();
    return 0;
}
