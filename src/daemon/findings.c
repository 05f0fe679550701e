/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Findings, see findings.h.
 */
#include "daemon/findings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/json.h"

#define LEVELS 3

struct source {
    TAILQ_ENTRY(source) link;
    void (*tell)(void *arg, struct alq_findings *findings);
    void *arg;
};

struct alq_findings {
    TAILQ_HEAD(, source) sources;
    json_t *found[LEVELS]; /* while they are collected */
};

struct alq_findings *alq_findings_new(struct alq_err *err)
{
    struct alq_findings *f = calloc(1, sizeof(*f));
    if (!f) {
        alq_err_set(err, ALQ_ENOMEM, "out of memory");
        return NULL;
    }
    TAILQ_INIT(&f->sources);
    return f;
}

void alq_findings_free(struct alq_findings *f)
{
    if (!f)
        return;
    for (struct source *s; (s = TAILQ_FIRST(&f->sources));) {
        TAILQ_REMOVE(&f->sources, s, link);
        free(s);
    }
    free(f);
}

int alq_findings_register(struct alq_findings *f,
                          void (*tell)(void *arg, struct alq_findings *findings), void *arg)
{
    struct source *s = calloc(1, sizeof(*s));
    if (!s)
        return -1;
    s->tell = tell;
    s->arg = arg;
    TAILQ_INSERT_TAIL(&f->sources, s, link);
    return 0;
}

void alq_findings_unregister(struct alq_findings *f, const void *arg)
{
    for (struct source *s = TAILQ_FIRST(&f->sources), *next; s; s = next) {
        next = TAILQ_NEXT(s, link);
        if (s->arg != arg)
            continue;
        TAILQ_REMOVE(&f->sources, s, link);
        free(s);
    }
}

void alq_findings_add(struct alq_findings *f, const char *id, enum alq_finding_level level,
                      const char *remedy, const char *fmt, ...)
{
    static const char *const names[LEVELS] = {"ok", "warning", "error"};
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    json_t *finding = json_pack("{s:s, s:s, s:o*, s:s*}", "id", id, "level", names[level], "text",
                                json_stringn_nocheck(text, strlen(text)), "remedy", remedy);
    json_array_append_new(f->found[level], finding);
}

static int ask(struct alq_findings *f)
{
    int is_whole = 1;
    for (int level = 0; level < LEVELS; level++)
        is_whole &= (f->found[level] = json_array()) != NULL;
    struct source *s;
    if (is_whole)
        TAILQ_FOREACH(s, &f->sources, link)
    s->tell(s->arg, f);
    return is_whole ? 0 : -1;
}

static void forget(struct alq_findings *f)
{
    for (int level = 0; level < LEVELS; level++) {
        json_decref(f->found[level]);
        f->found[level] = NULL;
    }
}

json_t *alq_findings_collect(struct alq_findings *f)
{
    json_t *all = ask(f) ? NULL : json_array();
    for (int level = LEVELS - 1; all && level >= 0; level--)
        json_array_extend(all, f->found[level]);
    forget(f);
    return all;
}

unsigned alq_findings_count(struct alq_findings *f, enum alq_finding_level level)
{
    unsigned count = ask(f) ? 0 : (unsigned)json_array_size(f->found[level]);
    forget(f);
    return count;
}
