/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scheduler's part: which GPU a claim gets, by src/alloc, of what the claims that are there
 * leave. No I/O; up to a second for a claim whose selectors are made to take long.
 */
#ifndef ALQ_DAEMON_STANDALONE_PLACE_H
#define ALQ_DAEMON_STANDALONE_PLACE_H

#include <jansson.h>

#include "base/err.h"
#include "daemon/domain.h"
#include "daemon/standalone/claims.h"

/*
 * Puts status.allocation into the object of a claim. classes: DeviceClasses that came with it.
 * ALQ_EINVAL: the claim or a class is wrong; ALQ_EBUSY: there is no such GPU with so much left;
 * ALQ_ENOMEM, ALQ_EIO.
 */
int alq_place(const struct alq_locals *locals, const struct alq_gpu_list *gpus, json_t *classes,
              json_t *object, struct alq_err *err);

#endif
