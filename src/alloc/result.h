/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a solution as the API has it: ResourceClaim.status.allocation. Pure but for getrandom(2);
 * one thread.
 */
#ifndef ALQ_ALLOC_RESULT_H
#define ALQ_ALLOC_RESULT_H

#include <jansson.h>

#include "alloc/search.h"

/* The allocation of one claim on node (new reference). ALQ_EIO: no random bytes; ALQ_EPROTO: a
 * slice's node selector that cannot be merged; ALQ_ENOMEM. */
int alq_result_new(const struct alq_claim *claim, const struct alq_choices *choices,
                   const char *node_name, const char *now, json_t **allocation,
                   struct alq_err *err);

#endif
