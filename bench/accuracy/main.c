/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accuracy matrix: `accuracy` lists the names of its cells, `accuracy NAME...` runs these and
 * prints a line of JSON for each. `--cover N` before them: the cells of another cover.
 * bench/accuracy.py runs them all and writes the table.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cells.h"
#include "run.h"

static struct cell cells[CELLS_MAX];

static const char *neighbours_of(const struct cell *cell)
{
    return cell->neighbours == CELL_ALONE       ? "alone"
           : cell->neighbours == CELL_UNLIMITED ? "unlimited"
                                                : "limited";
}

static void print_number(const char *name, double value)
{
    if (value >= 0)
        printf(", \"%s\": %.3f", name, value);
    else
        printf(", \"%s\": null", name);
}

static void print(const struct cell *cell, const struct result *r)
{
    printf("{\"name\": \"%s\", \"neighbours\": \"%s\", \"limit_pct\": %u, \"target_pct\": %.3f, "
           "\"mean_pct\": %.3f, \"error_pct\": %.3f, \"drift_pct\": %.3f, \"kernels\": %llu, "
           "\"measured_s\": %.1f",
           cell->name, neighbours_of(cell), cell->limit_pct, r->target_pct, r->mean_pct,
           r->error_pct, r->drift_pct, (unsigned long long)r->kernels,
           (double)r->measured_ns * 1e-9);
    print_number("sd_1s_pct", r->sd_1s_pct);
    print_number("settle_ms", r->settle_ms);
    print_number("lost_pct", r->lost_pct);
    printf("}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const bool has_cover = argc > 2 && !strcmp(argv[1], "--cover");
    const int first = has_cover ? 3 : 1;
    uint32_t count = cells_make(cells, has_cover ? (uint32_t)strtoul(argv[2], NULL, 10) : 1);
    for (uint32_t i = 0; argc == first && i < count; i++)
        printf("%s\n", cells[i].name);
    for (int arg = first; arg < argc; arg++) {
        uint32_t i = 0;
        struct result result;
        while (i < count && strcmp(cells[i].name, argv[arg]) != 0)
            i++;
        if (i == count) {
            fprintf(stderr, "accuracy: %s: no such cell; without arguments all are listed\n",
                    argv[arg]);
            return 2;
        }
        run_cell(&cells[i], &result);
        print(&cells[i], &result);
    }
    return 0;
}
