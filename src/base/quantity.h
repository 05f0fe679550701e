/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes quantities, exactly: sign, decimal digits with an optional point, then nothing, n u m
 * k M G T P E, Ki Mi Gi Ti Pi Ei, or a decimal exponent e/E. Source: k8s.io/apimachinery
 * resource.Quantity (reference/dra.md §4.3). A value is kept as a whole number of nano-units in 128
 * bits; what is finer is rounded away from zero to the next nano-unit, as Kubernetes does on
 * parsing. Pure functions, no allocation, no locale; any thread.
 */
#ifndef ALQ_BASE_QUANTITY_H
#define ALQ_BASE_QUANTITY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct alq_quantity {
    __int128 nano; /* value in 1e-9 units */
};

#define ALQ_QUANTITY_TEXT_BYTES 48

/* The whole of text[0..len) must be a quantity. ALQ_EINVAL: not a quantity; ALQ_ERANGE: too large
 * to be represented
 * (|value| above 2^63-1 with the point moved to units; Kubernetes would clamp there, we refuse). */
int alq_quantity_parse(const char *text, size_t len, struct alq_quantity *q, struct alq_err *err);

/* -1, 0 or 1. */
int alq_quantity_cmp(struct alq_quantity a, struct alq_quantity b);

struct alq_quantity alq_quantity_from_u64(uint64_t units);

/* Whole units, fractions rounded up as Kubernetes' Value() does. ALQ_ERANGE when negative or above
 * UINT64_MAX. */
int alq_quantity_to_u64(struct alq_quantity q, uint64_t *units, struct alq_err *err);

/* Writes the canonical text Kubernetes would store for a binary (as_binary) or decimal quantity:
 * the largest suffix that leaves a whole number. buf holds ALQ_QUANTITY_TEXT_BYTES; always
 * NUL-terminated. */
void alq_quantity_format(struct alq_quantity q, int as_binary, char *buf);

/*
 * Sizes in bytes as people and HAMi-core's environment write them: every quantity above; also K M G
 * T (1024^n when is_hami, as HAMi-core reads them), KB/KiB/kb and so on, "4096m" meaning MiB when
 * is_hami, blanks around. Never silently zero. ALQ_EINVAL, ALQ_ERANGE as above.
 */
int alq_bytes_parse(const char *text, int is_hami, uint64_t *bytes, struct alq_err *err);

#endif
