/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns of text, see table.h.
 */
#include "cli/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/quantity.h"

struct alq_table {
    const char *const *headings;
    size_t columns;
    char **cells; /* row by row; owned */
    size_t count, size;
    int is_failed;
};

struct alq_table *alq_table_new(const char *const *headings)
{
    struct alq_table *t = calloc(1, sizeof(*t));
    for (; t && headings[t->columns]; t->columns++)
        ;
    if (t)
        t->headings = headings;
    return t;
}

void alq_table_free(struct alq_table *t)
{
    for (size_t i = 0; t && i < t->count; i++)
        free(t->cells[i]);
    if (t)
        free(t->cells);
    free(t);
}

void alq_table_add(struct alq_table *t, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    if (t->count == t->size) {
        size_t size = t->size ? t->size * 2 : 64;
        char **cells = realloc(t->cells, size * sizeof(*cells));
        if (!cells) {
            t->is_failed = 1;
            return;
        }
        t->cells = cells;
        t->size = size;
    }
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0) {
        t->is_failed = 1;
        text = NULL;
    }
    va_end(ap);
    t->cells[t->count++] = text;
}

void alq_table_add_bytes(struct alq_table *t, uint64_t bytes)
{
    char text[ALQ_QUANTITY_TEXT_BYTES];
    alq_quantity_format(alq_quantity_from_u64(bytes), 1, text);
    alq_table_add(t, "%s", text);
}

static int width(const struct alq_table *t, size_t column)
{
    size_t most = strlen(t->headings[column]);
    for (size_t i = column; i < t->count; i += t->columns)
        if (strlen(t->cells[i]) > most)
            most = strlen(t->cells[i]);
    return (int)most;
}

int alq_table_print(const struct alq_table *t)
{
    if (t->is_failed)
        return -1;
    for (size_t i = 0; i < t->columns + t->count; i++) {
        size_t column = i % t->columns;
        const char *text = i < t->columns ? t->headings[i] : t->cells[i - t->columns];
        if (column + 1 < t->columns)
            printf("%-*s  ", width(t, column), text);
        else
            printf("%s\n", text);
    }
    return 0;
}
