/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node selectors. Owns nothing; calls jansson; any thread.
 */
#include "alloc/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static bool has_value(json_t *values, const char *actual)
{
    json_t *v;
    size_t i;

    json_array_foreach (values, i, v) {
        if (json_is_string(v) && !strcmp(json_string_value(v), actual))
            return true;
    }
    return false;
}

static bool to_number(const char *text, long long *n)
{
    char *end;

    if (!text || !*text)
        return false;
    errno = 0;
    *n = strtoll(text, &end, 10);
    return !*end && !errno;
}

/* One requirement against the value of its key, NULL when the node has no such label. */
static int requirement(json_t *r, const char *actual, bool *matches, struct alq_err *err)
{
    const char *op = alq_json_str(r, "operator"), *key = alq_json_str(r, "key");
    json_t *values = json_object_get(r, "values");
    long long have, want;

    if (!op || !key)
        return alq_err_set(err, ALQ_EPROTO, "node selector: key or operator is missing");
    if (!strcmp(op, "In")) {
        *matches = actual && has_value(values, actual);
    } else if (!strcmp(op, "NotIn")) {
        *matches = !actual || !has_value(values, actual);
    } else if (!strcmp(op, "Exists")) {
        *matches = actual != NULL;
    } else if (!strcmp(op, "DoesNotExist")) {
        *matches = actual == NULL;
    } else if (!strcmp(op, "Gt") || !strcmp(op, "Lt")) {
        if (!to_number(json_string_value(json_array_get(values, 0)), &want))
            return alq_err_set(err, ALQ_EPROTO, "node selector: %s of %s needs a number", op, key);
        *matches = to_number(actual, &have) && (op[0] == 'G' ? have > want : have < want);
    } else {
        return alq_err_set(err, ALQ_EPROTO, "node selector: unknown operator %s", op);
    }
    return 0;
}

static int term(json_t *t, json_t *node, bool *matches, struct alq_err *err)
{
    json_t *expressions = json_object_get(t, "matchExpressions"),
           *fields = json_object_get(t, "matchFields"), *r;
    json_t *labels = alq_json_at(node, "metadata.labels");
    size_t i;
    int rc;

    *matches = json_array_size(expressions) + json_array_size(fields) >
               0; /* an empty term matches nothing */
    json_array_foreach (expressions, i, r) {
        const char *key = alq_json_str(r, "key");
        if (!*matches)
            return 0;
        rc = requirement(r, key ? json_string_value(json_object_get(labels, key)) : NULL, matches,
                         err);
        if (rc)
            return rc;
    }
    json_array_foreach (fields, i, r) {
        const char *key = alq_json_str(r, "key");
        if (!*matches)
            return 0;
        if (!key || strcmp(key, "metadata.name"))
            return alq_err_set(err, ALQ_EPROTO, "node selector: unknown field %s", key ? key : "");
        rc = requirement(r, alq_json_str(node, "metadata.name"), matches, err);
        if (rc)
            return rc;
    }
    return 0;
}

int alq_node_selector_matches(json_t *selector, json_t *node, bool *matches, struct alq_err *err)
{
    json_t *terms = json_object_get(selector, "nodeSelectorTerms"), *t;
    size_t i;

    *matches = false;
    json_array_foreach (terms, i, t) {
        int rc = term(t, node, matches, err);
        if (rc || *matches)
            return rc;
    }
    return 0;
}

int alq_node_is_target(json_t *object, json_t *node, bool *matches, struct alq_err *err)
{
    const char *want = json_string_value(json_object_get(object, "nodeName")),
               *name = alq_json_str(node, "metadata.name");
    json_t *selector = json_object_get(object, "nodeSelector");

    *matches = false;
    if (want && *want)
        *matches = name && !strcmp(want, name);
    else if (json_is_true(json_object_get(object, "allNodes")))
        *matches = true;
    else if (json_is_object(selector))
        return alq_node_selector_matches(selector, node, matches, err);
    return 0;
}
