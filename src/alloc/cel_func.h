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

#define ALQ_CEL_FUNC_ARGS_MAX 2

/* args[0] is the receiver of a method. Errors are sentences without a place; the evaluator adds it.
 * ALQ_ENOMEM: the arena is full. */
typedef int alq_cel_func_impl(const struct alq_cel_value *args, size_t count,
                              struct alq_arena *arena, struct alq_cel_value *out,
                              struct alq_err *err);

struct alq_cel_func {
    const char *name;
    bool is_method;
    size_t count; /* of args, with the receiver */
    enum alq_cel_type args[ALQ_CEL_FUNC_ARGS_MAX];
    enum alq_cel_type result;
    alq_cel_func_impl
        *impl; /* NULL: matches and the size of maps, which the evaluator does itself */
};

/* Rows of the table from *row on whose name and form fit; NULL when there is no further one. Start
 * with NULL. */
const struct alq_cel_func *alq_cel_func_next(const struct alq_cel_func *row,
                                             struct alq_cel_text name, bool is_method);

/* Whether the row takes values of these types; ALQ_CEL_DYN fits everything. */
bool alq_cel_func_fits(const struct alq_cel_func *row, const enum alq_cel_type *types,
                       size_t count);

/* Whether Kubernetes has a function or macro of that name that this subset lacks. */
bool alq_cel_func_is_foreign(struct alq_cel_text name);

#endif
