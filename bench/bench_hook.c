/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What libvgpu.so adds to a call: hook_child on the simulated driver, bare, with the library and no
 * share, and with a share. The three run side by side and take turns in blocks of a millisecond
 * or less, so that what else the machine does meets all of them. A figure's minimum is the
 * least block "with" less the least bare one; its median is that of the differences between a
 * block and the bare block beside it. reference is the median bare block.
 *
 *   bench_hook [--json]      ALIQUOT_BUILD or the program's own place says where the build is
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "machine.h"

#define ROUNDS_MAX 301

static const struct measure {
    const char *name;
    const char *before, *block; /* lines for hook_child */
    int rounds;
    enum bench_mode with;
    bool is_alone; /* the driver has nothing like it: not compared with the bare one */
    bool is_fresh; /* each block in a process of its own */
} measures[] = {
    {"hook.none.launch_ns", NULL, "launch\n", ROUNDS_MAX, BENCH_NO_SHARE, false, false},
    {"hook.alloc_free_ns.10", "live 10\n", "pairs 500\n", ROUNDS_MAX, BENCH_SHARE, false, false},
    {"hook.refuse_ns", NULL, "refuse\n", ROUNDS_MAX, BENCH_SHARE, true, false},
    {"hook.view_ns", NULL, "view\n", ROUNDS_MAX, BENCH_SHARE, false, false},
    {"hook.alloc_free_ns.1000000", "live 1000000\n", "pairs 1000\n", ROUNDS_MAX, BENCH_SHARE, false,
     false},
    {"hook.worst_ns.1000000", NULL, "worst\n", 7, BENCH_SHARE, false, true},
};

static struct bench_child children[BENCH_MODES];

static struct bench_child *child_of(enum bench_mode mode)
{
    if (!children[mode].to)
        children[mode] = bench_child_start("hook_child", NULL, mode);
    return &children[mode];
}

static void end_children(void)
{
    for (enum bench_mode mode = 0; mode < BENCH_MODES; mode++)
        if (children[mode].to)
            bench_child_end(&children[mode]);
    memset(children, 0, sizeof(children));
}

/* False: cut short. */
static bool ask(enum bench_mode mode, const char *line, double *ns)
{
    const struct bench_child *child = child_of(mode);
    char answer[64];

    if (fputs(line, child->to) < 0 || fflush(child->to) ||
        !fgets(answer, sizeof(answer), child->from) || sscanf(answer, "%lf", ns) != 1)
        bench_die("hook_child has no figure");
    if (*ns >= 0)
        return true;
    *ns = -*ns;
    return false;
}

static void show(bool json, const struct measure *what, double min, double median, double bare,
                 double whole)
{
    static bool has_shown;

    if (!json) {
        printf("%-28s %9.1f %9.1f ns   bare %9.1f\n", what->name, min, median, bare);
        return;
    }
    printf("%s{\"name\": \"%s\", \"unit\": \"ns\", \"value_min\": %.1f, \"value_median\": %.1f, ",
           has_shown ? ",\n " : "[", what->name, min, median);
    if (what->is_alone)
        printf("\"reference\": null, \"ratio\": null}");
    else
        printf("\"reference\": %.1f, \"ratio\": %.3f}", bare, whole / bare);
    has_shown = true;
}

/* False: cut short, so that nothing can be measured after it. */
static bool measure(const struct measure *what, bool json)
{
    double with[ROUNDS_MAX], bare[ROUNDS_MAX] = {0}, added[ROUNDS_MAX], none;
    bool is_whole = true;
    size_t count = 0;

    for (; is_whole && count < (size_t)what->rounds; count++) {
        if (what->is_fresh)
            end_children();
        if (what->before && count == 0 && !what->is_alone)
            ask(BENCH_BARE, what->before, &none);
        if (what->before && count == 0)
            ask(what->with, what->before, &none);
        if (!what->is_alone)
            ask(BENCH_BARE, what->block, &bare[count]);
        is_whole = ask(what->with, what->block, &with[count]);
        added[count] = with[count] - bare[count];
    }
    bench_sort(with, count);
    bench_sort(bare, count);
    bench_sort(added, count);
    /* Below 0: less than the machine's noise lets see. */
    double min = with[0] > bare[0] ? with[0] - bare[0] : 0;
    double median = added[count / 2] > 0 ? added[count / 2] : 0;
    show(json, what, min, median, bare[count / 2], with[count / 2]);
    return is_whole;
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && !strcmp(argv[1], "--json"), is_whole = true;

    bench_machine_open("bench_hook");
    bench_share_make(100);
    signal(SIGPIPE, SIG_IGN); /* a child that has died is told by its missing answer */
    for (size_t i = 0; is_whole && i < sizeof(measures) / sizeof(measures[0]); i++)
        is_whole = measure(&measures[i], json);
    end_children();
    bench_machine_close();
    if (json)
        printf("]\n");
    return 0;
}
