/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of the CEL subset as one table: a row per overload. Both the checker and the
 * evaluator look up here. Internal to the CEL modules.
 */
#ifndef ALQ_ALLOC_CEL_FUNC_H
#define ALQ_ALLOC_CEL_FUNC_H

#include "alloc/arena.h"
#include "alloc/cel_value.h"
#include "base/err.h"

#define CEL_FUNC_ARGS_MAX 2

/* args[0] is the receiver of a method. Errors are sentences without a place; the evaluator adds it.
 * ALQ_ENOMEM: the arena is full. */
typedef int cel_func_impl(const struct cel_value *args, size_t count, struct alq_arena *arena,
                          struct cel_value *out, struct alq_err *err);

struct cel_func {
    const char *name;
    bool is_method;
    size_t count; /* of args, with the receiver */
    enum cel_type args[CEL_FUNC_ARGS_MAX];
    enum cel_type result;
    cel_func_impl *impl; /* NULL: matches and the size of maps, which the evaluator does itself */
};

/* Rows of the table from *row on whose name and form fit; NULL when there is no further one. Start
 * with NULL. */
const struct cel_func *cel_func_next(const struct cel_func *row, struct cel_text name,
                                     bool is_method);

/* Whether the row takes values of these types; CEL_DYN fits everything. */
bool cel_func_fits(const struct cel_func *row, const enum cel_type *types, size_t count);

/* Whether Kubernetes has a function or macro of that name that this subset lacks. */
bool cel_func_is_foreign(struct cel_text name);

#endif
