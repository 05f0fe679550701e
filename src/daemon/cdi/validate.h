/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A strict reader of CDI specs (reference/dra.md §5.1): what it accepts, podman and containerd
 * accept too. Everything the daemon writes passes through it first. Pure functions; any thread.
 */
#ifndef ALQ_DAEMON_CDI_VALIDATE_H
#define ALQ_DAEMON_CDI_VALIDATE_H

#include <jansson.h>

#include "base/err.h"

/*
 * ALQ_EINVAL with the path of the first mistake: an unknown field, a wrong type, a vendor, class or
 * device name that is malformed or (vendor, class) a single character (containerd and podman panic
 * on those), a device that stands twice, an edit that is empty, a relative path, two mounts on one
 * path or two values of one variable in one edit, a cdiVersion above or below the lowest that the
 * content needs.
 */
int alq_cdi_validate(const json_t *spec, struct alq_err *err);

/* The lowest version that allows the content of spec, whatever its cdiVersion says: "0.3.0", ...
 * Static text. */
const char *alq_cdi_lowest_version(const json_t *spec);

#endif
