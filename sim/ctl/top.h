/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live view: devices, groups and processes, 80 columns, once per interval. On a terminal each
 * picture replaces the last; otherwise they follow one another.
 */
#ifndef SIM_CTL_TOP_H
#define SIM_CTL_TOP_H

#include <stdbool.h>

#include "ctl/request.h"

/* Shows count pictures (0: without end), or as_json one JSON object a line. */
int sim_top_run(const struct sim_connection *connection, double interval_s, long count,
                bool as_json, struct alq_err *err);

#endif
