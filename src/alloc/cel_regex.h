/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regular expressions as CEL's matches() has them: RE2 syntax, unanchored. They run on PCRE2, so a
 * pattern is first translated: what RE2 lacks (backreferences, lookaround, possessive and atomic
 * groups) is refused, what both write differently is rewritten. Unlike RE2, PCRE2 backtracks; a
 * limit turns a pathological pattern into an error. Compiled patterns are immutable; any thread.
 */
#ifndef ALQ_ALLOC_CEL_REGEX_H
#define ALQ_ALLOC_CEL_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct alq_cel_regex;

/* ALQ_EINVAL: not a pattern, or not RE2 (says what and where); ALQ_ERANGE: too large; ALQ_ENOMEM.
 */
int alq_cel_regex_new(const char *pattern, size_t len, struct alq_cel_regex **out,
                      struct alq_err *err);
void alq_cel_regex_free(struct alq_cel_regex *regex);

/* Whether the pattern matches somewhere in text. ALQ_ERANGE: the work limit; ALQ_EINVAL: text is
 * not UTF-8. */
int alq_cel_regex_search(const struct alq_cel_regex *regex, const char *text, size_t len,
                         bool *found, struct alq_err *err);

#endif
