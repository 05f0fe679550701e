/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alq-alloc: the allocation rules as a filter, for programs in other languages. One JSON object a
 * line in, one out; a line that makes no sense gives {"error": ...} and the next one is read; the
 * end of the input ends it. See README.md for the lines. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/alloc.h"
#include "alloc/cel.h"
#include "base/cleanup.h"
#include "base/json.h"

#define LINE_MAX_BYTES ((size_t)64 * 1024 * 1024)

static int check_cel(const char *text, size_t len, struct alq_err *err)
{
    struct alq_cel_program *program = NULL;
    int rc = alq_cel_compile(text, len, &program, err);

    alq_cel_program_free(program);
    return rc;
}

/* A JSON string of a message. One that was cut may end within a character: then what is not ASCII
 * is replaced. */
static json_t *message(const char *text)
{
    json_t *j = json_string(text);

    if (j)
        return j;
    alq_auto_free char *copy = strdup(text);
    for (char *p = copy; p && *p; p++)
        if (*p & 0x80)
            *p = '?';
    return copy ? json_string(copy) : NULL;
}

static json_t *error_reply(const char *text)
{
    return json_pack("{s:o}", "error", message(text));
}

/* {"checkCel": [expression, ...]} -> {"cel": [null or the error, ...]} */
static json_t *answer_check(json_t *expressions)
{
    json_t *list = json_array(), *e;
    size_t i;

    if (!json_is_array(expressions)) {
        json_decref(list);
        return error_reply("checkCel is not a list of expressions");
    }
    json_array_foreach (expressions, i, e) {
        struct alq_err err = ALQ_ERR_INIT;
        if (!json_is_string(e))
            json_array_append_new(list, json_string("not a string"));
        else if (check_cel(json_string_value(e), json_string_length(e), &err))
            json_array_append_new(list, message(err.text));
        else
            json_array_append_new(list, json_null());
    }
    return json_pack("{s:o}", "cel", list);
}

static int read_list(json_t *request, const char *key, json_t **out, struct alq_err *err)
{
    *out = json_object_get(request, key);
    if (*out && !json_is_null(*out) && !json_is_array(*out))
        return alq_err_set(err, ALQ_EPROTO, "%s is not a list", key);
    return 0;
}

static json_t *answer(json_t *request)
{
    struct alq_alloc_input in = {.node = json_object_get(request, "node"),
                                 .now = json_string_value(json_object_get(request, "now"))};
    struct alq_err err = ALQ_ERR_INIT;
    json_t *allocations = NULL;
    alq_auto_free char *reason = NULL;
    int rc;

    if (!json_is_object(request))
        return error_reply("the request is not an object");
    if (json_object_get(request, "checkCel"))
        return answer_check(json_object_get(request, "checkCel"));
    if (!json_is_array(json_object_get(request, "claims")))
        return error_reply("claims are missing");
    rc = read_list(request, "claims", &in.claims, &err);
    if (!rc)
        rc = read_list(request, "classes", &in.classes, &err);
    if (!rc)
        rc = read_list(request, "slices", &in.slices, &err);
    if (!rc)
        rc = read_list(request, "allocated", &in.allocated, &err);
    if (!rc)
        rc = alq_alloc_server_minor(json_string_value(json_object_get(request, "serverVersion")),
                                    &in.server_minor, &err);
    if (!rc)
        rc = alq_alloc(&in, &allocations, &reason, &err);
    if (rc)
        return error_reply(err.text);
    return reason ? json_pack("{s:o}", "unschedulable", message(reason))
                  : json_pack("{s:o}", "allocations", allocations);
}

static int serve(void)
{
    alq_auto_free char *line = NULL;
    size_t room = 0;
    ssize_t n;

    while ((n = getline(&line, &room, stdin)) >= 0) {
        struct alq_err err = ALQ_ERR_INIT;
        alq_auto_json json_t *request = NULL;
        alq_auto_json json_t *reply = NULL;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            n--;
        if (n == 0)
            continue;
        if ((size_t)n > LINE_MAX_BYTES)
            reply = error_reply("the line is too long");
        else if (alq_json_parse(line, (size_t)n, "request", &request, &err))
            reply = error_reply(err.text);
        else
            reply = answer(request);
        alq_auto_free char *text = reply ? alq_json_dump(reply) : NULL;
        if (puts(text ? text : "{\"error\":\"out of memory\"}") < 0 || fflush(stdout))
            return 1;
    }
    return ferror(stdin) ? 1 : 0;
}

static int usage(FILE *to)
{
    fputs("usage: alq-alloc                    answer requests, one JSON object a line\n"
          "       alq-alloc --check-cel EXPR   say whether a device selector is understood\n",
          to);
    return to == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    struct alq_err err = ALQ_ERR_INIT;

    if (argc == 1)
        return serve();
    if (argc == 2 && !strcmp(argv[1], "--help"))
        return usage(stdout);
    if (argc != 3 || strcmp(argv[1], "--check-cel"))
        return usage(stderr);
    if (check_cel(argv[2], strlen(argv[2]), &err)) {
        fprintf(stderr, "alq-alloc: %s\n", err.text);
        return 1;
    }
    puts("ok");
    return 0;
}
