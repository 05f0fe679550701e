/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads recorded objects of tests/conformance. Ends the test when one is missing.
 */
#ifndef ALQ_TESTS_CONFORMANCE_H
#define ALQ_TESTS_CONFORMANCE_H

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"

static inline char *conformance_text(const char *name, size_t *len)
{
    char *text = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", ALQ_CONFORMANCE_DIR, name);
    if (alq_file_read(path, 4u << 20, &text, len, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return text;
}

static inline json_t *conformance_json(const char *name)
{
    size_t len;
    json_t *value = NULL;
    struct alq_err err = ALQ_ERR_INIT;
    char *text = conformance_text(name, &len);
    if (alq_json_parse(text, len, name, &value, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    free(text);
    return value;
}

#endif
