/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator should know of this node, as `aliquot doctor` and GET /v1/doctor print it. A
 * finding is not stored: each module that has some is a source, asked when somebody looks, and says
 * how things stand then. A source may also say that something is well (ALQ_FINDING_OK), which is
 * how a reader sees that it was looked at. Loop thread only; a source does not block.
 */
#ifndef ALQ_DAEMON_FINDINGS_H
#define ALQ_DAEMON_FINDINGS_H

#include <jansson.h>

#include "base/err.h"

enum alq_finding_level { ALQ_FINDING_OK, ALQ_FINDING_WARNING, ALQ_FINDING_ERROR };

struct alq_findings; /* those being collected, and the sources */

/* NULL when out of memory. */
struct alq_findings *alq_findings_new(struct alq_err *err);
void alq_findings_free(struct alq_findings *findings);

/* Asks tell(arg, findings) each time from now on, in order of registration. -1: out of memory. */
int alq_findings_register(struct alq_findings *findings,
                          void (*tell)(void *arg, struct alq_findings *findings), void *arg);
/* The sources of that arg go. */
void alq_findings_unregister(struct alq_findings *findings, const void *arg);

/*
 * For a source. id is a constant name with the module first ("slices.dropped-fields"), the same on
 * every node; text says what is so, remedy (NULL: none needed) what to do about it.
 */
void alq_findings_add(struct alq_findings *findings, const char *id, enum alq_finding_level level,
                      const char *remedy, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* [{"id", "level": "ok"|"warning"|"error", "text", "remedy"}], worst first; the caller's. NULL when
 * out of memory. */
json_t *alq_findings_collect(struct alq_findings *findings);

/* How many there are of a level, now. */
unsigned alq_findings_count(struct alq_findings *findings, enum alq_finding_level level);

#endif
