/* SPDX-License-Identifier: Apache-2.0 */
/* The watch stream's parser, see watch.h. Lines are collected in one buffer that grows up to the
 * bound; a line that arrives whole is parsed where it lies. */
#include "daemon/kube/watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"

#define BUFFER_KEEP_BYTES (64u << 10) /* a larger buffer is given back after its line */

struct alq_watch {
    size_t line_bytes_max;
    alq_watch_cb cb;
    void *arg;
    char *line; /* the part of a line that has come so far */
    size_t len, size;
    int is_broken;
};

struct alq_watch *alq_watch_new(size_t line_bytes_max, alq_watch_cb cb, void *arg)
{
    struct alq_watch *w = calloc(1, sizeof(*w));
    if (w) {
        w->line_bytes_max = line_bytes_max;
        w->cb = cb;
        w->arg = arg;
    }
    return w;
}

void alq_watch_free(struct alq_watch *w)
{
    if (!w)
        return;
    free(w->line);
    free(w);
}

static int event_type(const char *text, enum alq_watch_type *type)
{
    static const char *const names[] = {
        [ALQ_WATCH_ADDED] = "ADDED",     [ALQ_WATCH_MODIFIED] = "MODIFIED",
        [ALQ_WATCH_DELETED] = "DELETED", [ALQ_WATCH_BOOKMARK] = "BOOKMARK",
        [ALQ_WATCH_ERROR] = "ERROR",
    };
    for (size_t i = 0; text && i < sizeof(names) / sizeof(names[0]); i++) {
        if (!strcmp(text, names[i])) {
            *type = (enum alq_watch_type)i;
            return 1;
        }
    }
    return 0;
}

static int is_expired(const json_t *status)
{
    const char *reason = alq_json_str(status, "reason");
    return json_integer_value(json_object_get(status, "code")) == 410 ||
           (reason && (!strcmp(reason, "Expired") || !strcmp(reason, "Gone")));
}

static int deliver(struct alq_watch *w, const char *line, size_t len, struct alq_err *err)
{
    while (len && (line[len - 1] == '\r' || line[len - 1] == ' '))
        len--;
    if (!len)
        return 0;
    alq_auto_json json_t *value = NULL;
    int rc = alq_json_parse(line, len, "watch event", &value, err);
    if (rc)
        return rc == ALQ_ENOMEM ? rc : alq_err_set(err, ALQ_EPROTO, "watch event is not JSON");
    struct alq_watch_event event = {.object = json_object_get(value, "object")};
    if (!event_type(alq_json_str(value, "type"), &event.type))
        return alq_err_set(err, ALQ_EPROTO, "watch event without a known type");
    if (!json_is_object(event.object))
        return alq_err_set(err, ALQ_EPROTO, "watch event without an object");
    if (event.type == ALQ_WATCH_ERROR) {
        event.is_expired = is_expired(event.object);
    } else {
        event.resource_version = alq_json_str(event.object, "metadata.resourceVersion");
        if (!event.resource_version || !*event.resource_version)
            return alq_err_set(err, ALQ_EPROTO, "watch event without a resourceVersion");
    }
    w->cb(w->arg, &event);
    return 0;
}

static int collect(struct alq_watch *w, const char *data, size_t len, struct alq_err *err)
{
    if (len > w->line_bytes_max - w->len)
        return alq_err_set(err, ALQ_ERANGE, "watch event is longer than %zu bytes",
                           w->line_bytes_max);
    if (w->len + len > w->size) {
        size_t size = w->size ? w->size : 4096;
        while (size < w->len + len)
            size *= 2;
        char *grown = realloc(w->line, size);
        if (!grown)
            return alq_err_set(err, ALQ_ENOMEM, "out of memory");
        w->line = grown;
        w->size = size;
    }
    memcpy(w->line + w->len, data, len);
    w->len += len;
    return 0;
}

static void forget_line(struct alq_watch *w)
{
    w->len = 0;
    if (w->size > BUFFER_KEEP_BYTES) {
        free(w->line);
        w->line = NULL;
        w->size = 0;
    }
}

int alq_watch_feed(struct alq_watch *w, const char *data, size_t len, struct alq_err *err)
{
    int rc = w->is_broken ? alq_err_set(err, ALQ_EPROTO, "watch stream was broken before") : 0;
    while (!rc && len) {
        const char *end = memchr(data, '\n', len);
        size_t part = end ? (size_t)(end - data) : len;
        if (w->len || !end) {
            rc = collect(w, data, part, err);
            if (!rc && end) {
                rc = deliver(w, w->line, w->len, err);
                forget_line(w);
            }
        } else if (part > w->line_bytes_max) {
            rc = alq_err_set(err, ALQ_ERANGE, "watch event is longer than %zu bytes",
                             w->line_bytes_max);
        } else {
            rc = deliver(w, data, part, err);
        }
        part += end != NULL;
        data += part;
        len -= part;
    }
    w->is_broken = rc != 0;
    return rc;
}

void alq_watch_end(struct alq_watch *w)
{
    if (!w->is_broken && w->len)
        (void)deliver(w, w->line, w->len, NULL);
    forget_line(w);
    w->is_broken = 0;
}
