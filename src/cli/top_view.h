/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of aliquot top as lines of text of a given width. Pure: no terminal is asked. No line
 * is wider than it may be.
 */
#ifndef ALQ_CLI_TOP_VIEW_H
#define ALQ_CLI_TOP_VIEW_H

#include <stdio.h>

#include "cli/top_model.h"

struct alq_top_look {
    int columns;
    int rows; /* lines at most; 0: all */
    int has_colours, is_utf8;
    size_t first;      /* rows passed over, for scrolling; the GPUs are always shown */
    const char *title; /* in the first line, after the name */
    const char *error; /* in place of a title, red; NULL: none */
    const char *line_end;
};

/* Writes the lines, each with line_end behind it. */
void alq_top_paint(const struct alq_top_model *model, const struct alq_top_look *look, FILE *out);

/* How many rows can be passed over so that the last is still shown. */
size_t alq_top_scroll_max(const struct alq_top_model *model, const struct alq_top_look *look);

#endif
