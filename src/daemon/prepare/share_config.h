/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShareConfig, what a user or a DeviceClass may tune in a claim's opaque parameters (DESIGN.md,
 * contract 1). Strict: an unknown field, kind or value is an error, never a silent default. Pure.
 */
#ifndef ALQ_DAEMON_PREPARE_SHARE_CONFIG_H
#define ALQ_DAEMON_PREPARE_SHARE_CONFIG_H

#include <jansson.h>

#include "base/err.h"
#include "daemon/domain.h"

#define ALQ_SHARE_CONFIG_API_VERSION "config.aliquot.dev/v1alpha1"

/* Lays the fields that parameters names over *tuning. ALQ_EINVAL, ALQ_ERANGE: what is wrong. */
int alq_share_config_apply(const json_t *parameters, struct alq_share_tuning *tuning,
                           struct alq_err *err);

/*
 * What a claim's configuration says about one result: all entries of
 * status.allocation.devices.config (config, may be NULL) for our driver that name the result's
 * request ("gpu", or "gpu/small" for a subrequest; none named: all), those of the class first, then
 * those of the claim, field by field.
 */
int alq_share_config_resolve(const json_t *config, const char *driver, const char *request,
                             struct alq_share_tuning *tuning, struct alq_err *err);

#endif
