/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Semantic versions (semver.org 2.0.0) as device attributes and CEL's semver() have them. A parsed
 * version borrows the pre-release text from the string it came from. Pure functions, no allocation;
 * any thread.
 */
#ifndef ALQ_ALLOC_SEMVER_H
#define ALQ_ALLOC_SEMVER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct alq_semver {
    uint64_t major, minor, patch;
    const char *pre; /* without the '-'; borrowed, pre_len 0 when there is none */
    size_t pre_len;
};

/* The whole of text[0..len) must be MAJOR.MINOR.PATCH[-pre][+build] without leading zeros:
 * ALQ_EINVAL otherwise, ALQ_ERANGE for a number above 2^64-1. */
int alq_semver_parse(const char *text, size_t len, struct alq_semver *v, struct alq_err *err);

/* As semver(text, true) in Kubernetes: a leading 'v' is dropped, a missing minor or patch is 0, and
 * leading zeros are allowed. */
int alq_semver_parse_lenient(const char *text, size_t len, struct alq_semver *v,
                             struct alq_err *err);

/* -1, 0 or 1 by precedence: a pre-release comes before its release, build metadata does not count.
 */
int alq_semver_cmp(const struct alq_semver *a, const struct alq_semver *b);

#endif
