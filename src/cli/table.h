/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns of text, each as wide as its widest cell.
 */
#ifndef ALQ_CLI_TABLE_H
#define ALQ_CLI_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct alq_table;

/* headings ends with NULL and outlives the table. NULL when out of memory. */
struct alq_table *alq_table_new(const char *const *headings);
void alq_table_free(struct alq_table *table);

/* The next cell, row by row. A cell for which there is no memory makes the printing fail. */
void alq_table_add(struct alq_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* As a quantity: "4Gi". */
void alq_table_add_bytes(struct alq_table *table, uint64_t bytes);

/* To stdout. -1: out of memory somewhere. */
int alq_table_print(const struct alq_table *table);

#endif
