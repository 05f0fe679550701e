/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jansson with manners: ownership by scope, dotted paths with clear errors, and bounded parsing.
 * Paths look like "status.allocation.devices.results"; keys that hold dots are reached step by step
 * with json_object_get.
 */
#ifndef ALQ_BASE_JSON_H
#define ALQ_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"

static inline void alq_cleanup_json(json_t **j)
{
    json_decref(*j);
}
#define alq_auto_json __attribute__((cleanup(alq_cleanup_json)))

/* Parses data[0..len): duplicate keys are refused, depth is bounded by jansson (2048), trailing
 * bytes are an error. what names the source in the error ("claim default/x"). The value is the
 * caller's. */
int alq_json_parse(const char *data, size_t len, const char *what, json_t **value,
                   struct alq_err *err);

/* Borrowed value at path, or NULL when any step is missing or not an object. */
json_t *alq_json_at(const json_t *root, const char *path);

/* Borrowed text at path, or NULL when missing or not a string. */
const char *alq_json_str(const json_t *root, const char *path);

/* As above, but a missing or wrong-typed value is ALQ_EPROTO "field <path> is missing" or "... is
 * not a string". */
int alq_json_need_str(const json_t *root, const char *path, const char **text, struct alq_err *err);
int alq_json_need_array(const json_t *root, const char *path, json_t **array, struct alq_err *err);

/* alq_json_str for showing: "" in place of NULL. */
const char *alq_json_text(const json_t *root, const char *path);

/* A whole number from low to high, or ALQ_EPROTO "<what> is missing or out of range". */
int alq_json_int(const json_t *value, const char *what, json_int_t low, json_int_t high,
                 json_int_t *number, struct alq_err *err);

/* Fails with ALQ_EINVAL naming the first key of object that is not in the NULL-terminated list
 * (strict decoding). */
int alq_json_only_keys(const json_t *object, const char *const *keys, const char *what,
                       struct alq_err *err);

/* Compact text, keys sorted; malloc'ed, or NULL when out of memory. */
char *alq_json_dump(const json_t *value);

#endif
