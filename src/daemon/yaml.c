/* SPDX-License-Identifier: Apache-2.0 */
/* YAML to JSON, see yaml.h. libyaml builds its document in the square of depth and of the number of
 * anchors, so both are looked at before. Its tree is walked once; budget and depth bound the walk,
 * since an alias may refer to anything, its own ancestor included. */
#include "daemon/yaml.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/json.h"

struct walk {
    yaml_document_t *document;
    const char *what;
    unsigned values;
};

static int fail_at(const struct walk *w, const yaml_node_t *node, struct alq_err *err,
                   const char *text)
{
    return alq_err_set(err, ALQ_EINVAL, "%s: line %zu column %zu: %s", w->what,
                       node->start_mark.line + 1, node->start_mark.column + 1, text);
}

static int is_one_of(const char *text, const char *const *names)
{
    for (; *names; names++) {
        if (!strcmp(text, *names))
            return 1;
    }
    return 0;
}

/* A plain scalar that reads as a number; leading zeros ("010") stay text, as they are more often
 * names than octals. */
static json_t *plain_number(const char *text)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!*digits || strspn(digits, "0123456789.eE+-") != strlen(digits))
        return NULL;
    if (digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9')
        return NULL;
    char *end;
    errno = 0;
    if (strspn(digits, "0123456789") == strlen(digits)) {
        long long whole = strtoll(text, &end, 10);
        return errno || *end ? NULL : json_integer(whole);
    }
    if (digits[0] < '0' || digits[0] > '9')
        return NULL;
    double real = strtod(text, &end);
    return errno || *end || !isfinite(real) ? NULL : json_real(real);
}

static json_t *scalar_value(const yaml_node_t *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    const char *text = (const char *)node->data.scalar.value;
    size_t len = node->data.scalar.length;

    if (node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        if (is_one_of(text, nulls))
            return json_null();
        if (is_one_of(text, trues))
            return json_true();
        if (is_one_of(text, falses))
            return json_false();
        json_t *number = plain_number(text);
        if (number)
            return number;
    }
    return json_stringn(text, len); /* NULL when it is not UTF-8 */
}

static int convert(struct walk *w, int index, unsigned depth, json_t **value, struct alq_err *err);

static int convert_mapping(struct walk *w, const yaml_node_t *node, unsigned depth, json_t **value,
                           struct alq_err *err)
{
    alq_auto_json json_t *object = json_object();
    if (!object)
        return alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", w->what);
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(w->document, pair->key);
        if (!key || key->type != YAML_SCALAR_NODE)
            return fail_at(w, key ? key : node, err, "a key must be a plain word");
        const char *name = (const char *)key->data.scalar.value;
        if (strlen(name) != key->data.scalar.length)
            return fail_at(w, key, err, "a key holds a NUL byte");
        if (json_object_get(object, name))
            return fail_at(w, key, err, "the key stands twice");
        json_t *member = NULL;
        int rc = convert(w, pair->value, depth + 1, &member, err);
        if (rc)
            return rc;
        if (json_object_set_new(object, name, member))
            return fail_at(w, key, err, "the key is not valid UTF-8");
    }
    *value = alq_steal(&object);
    return 0;
}

static int convert_sequence(struct walk *w, const yaml_node_t *node, unsigned depth, json_t **value,
                            struct alq_err *err)
{
    alq_auto_json json_t *array = json_array();
    if (!array)
        return alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", w->what);
    for (const yaml_node_item_t *item = node->data.sequence.items.start;
         item < node->data.sequence.items.top; item++) {
        json_t *member = NULL;
        int rc = convert(w, *item, depth + 1, &member, err);
        if (rc)
            return rc;
        if (json_array_append_new(array, member))
            return alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", w->what);
    }
    *value = alq_steal(&array);
    return 0;
}

static int convert(struct walk *w, int index, unsigned depth, json_t **value, struct alq_err *err)
{
    const yaml_node_t *node = yaml_document_get_node(w->document, index);
    if (!node)
        return alq_err_set(err, ALQ_EINVAL, "%s: broken document", w->what);
    if (depth > ALQ_YAML_DEPTH_MAX)
        return fail_at(w, node, err, "nested too deeply");
    if (++w->values > ALQ_YAML_VALUES_MAX)
        return fail_at(w, node, err, "too many values");
    switch (node->type) {
    case YAML_SCALAR_NODE:
        if (memchr(node->data.scalar.value, '\0', node->data.scalar.length))
            return fail_at(w, node, err, "a value holds a NUL byte");
        *value = scalar_value(node);
        return *value ? 0 : fail_at(w, node, err, "not valid UTF-8");
    case YAML_SEQUENCE_NODE:
        return convert_sequence(w, node, depth, value, err);
    case YAML_MAPPING_NODE:
        return convert_mapping(w, node, depth, value, err);
    case YAML_NO_NODE:
        break;
    }
    return fail_at(w, node, err, "unknown kind of value");
}

static int parser_error(const yaml_parser_t *parser, const char *what, struct alq_err *err)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", what);
    if (parser->error == YAML_READER_ERROR)
        return alq_err_set(err, ALQ_EINVAL, "%s: byte %zu: %s", what, parser->problem_offset,
                           parser->problem);
    return alq_err_set(err, ALQ_EINVAL, "%s: line %zu column %zu: %s", what,
                       parser->problem_mark.line + 1, parser->problem_mark.column + 1,
                       parser->problem ? parser->problem : "cannot be read");
}

static const yaml_char_t *anchor_of(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor;
    default:
        return NULL;
    }
}

struct size {
    unsigned depth;
    unsigned anchors;
};

/* NULL, or what is too large about the document up to and with this event. */
static const char *measure(const yaml_event_t *event, struct size *size)
{
    size->anchors += anchor_of(event) != NULL;
    if (event->type == YAML_SEQUENCE_START_EVENT || event->type == YAML_MAPPING_START_EVENT)
        size->depth++;
    if (event->type == YAML_SEQUENCE_END_EVENT || event->type == YAML_MAPPING_END_EVENT)
        size->depth--;
    if (size->depth > ALQ_YAML_DEPTH_MAX + 1) /* the root is not nested */
        return "nested too deeply";
    return size->anchors > ALQ_YAML_ANCHORS_MAX ? "too many anchors" : NULL;
}

static int check_size(const char *data, size_t len, const char *what, struct alq_err *err)
{
    yaml_parser_t parser;
    struct size size = {0};
    int rc = 0, is_end = 0;
    if (!yaml_parser_initialize(&parser))
        return alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", what);
    yaml_parser_set_input_string(&parser, (const unsigned char *)data, len);
    while (!rc && !is_end) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            rc = parser_error(&parser, what, err);
            break;
        }
        const char *why = measure(&event, &size);
        if (why)
            rc = alq_err_set(err, ALQ_EINVAL, "%s: line %zu column %zu: %s", what,
                             event.start_mark.line + 1, event.start_mark.column + 1, why);
        is_end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return rc;
}

/* The next document, as *value; NULL, *is_end tells, when there is none. *values goes from one to
 * the other, so that their limit is the stream's. */
static int next_document(yaml_parser_t *parser, const char *what, unsigned *values, json_t **value,
                         int *is_end, struct alq_err *err)
{
    yaml_document_t document;
    int rc = 0;
    *value = NULL;
    if (!yaml_parser_load(parser, &document))
        return parser_error(parser, what, err);
    *is_end = !yaml_document_get_root_node(&document);
    struct walk w = {.document = &document, .what = what, .values = *values};
    if (!*is_end)
        rc = convert(&w, 1, 0, value, err);
    *values = w.values;
    yaml_document_delete(&document);
    return rc;
}

int alq_yaml_parse_all(const char *data, size_t len, const char *what, json_t **documents,
                       struct alq_err *err)
{
    yaml_parser_t parser;
    unsigned values = 0;
    int rc = check_size(data, len, what, err), is_end = 0;
    if (rc)
        return rc;
    json_t *all = json_array();
    if (!all || !yaml_parser_initialize(&parser)) {
        json_decref(all);
        return alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", what);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)data, len);
    while (!rc && !is_end) {
        json_t *value;
        rc = next_document(&parser, what, &values, &value, &is_end, err);
        if (rc || is_end || json_is_null(value))
            json_decref(rc ? NULL : value);
        else if (json_array_append_new(all, value))
            rc = alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", what);
    }
    yaml_parser_delete(&parser);
    if (rc)
        json_decref(all);
    else
        *documents = all;
    return rc;
}

int alq_yaml_parse(const char *data, size_t len, const char *what, json_t **value,
                   struct alq_err *err)
{
    yaml_parser_t parser;
    unsigned values = 0;
    json_t *root = NULL, *next = NULL;
    int is_end = 0, rc = check_size(data, len, what, err);
    if (rc)
        return rc;
    if (!yaml_parser_initialize(&parser))
        return alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", what);
    yaml_parser_set_input_string(&parser, (const unsigned char *)data, len);
    rc = next_document(&parser, what, &values, &root, &is_end, err);
    if (!rc && !is_end)
        rc = next_document(&parser, what, &values, &next, &is_end, err);
    if (!rc && !is_end)
        rc = alq_err_set(err, ALQ_EINVAL, "%s: holds more than one document", what);
    if (!rc && !root && !(root = json_object()))
        rc = alq_err_set(err, ALQ_ENOMEM, "%s: out of memory", what);
    yaml_parser_delete(&parser);
    json_decref(next);
    if (rc)
        json_decref(root);
    else
        *value = root;
    return rc;
}
