/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVML child's side of a sample. Calls NVML, so it may hang or crash with it.
 */
#ifndef ALQ_DAEMON_NVML_CHILD_SAMPLE_H
#define ALQ_DAEMON_NVML_CHILD_SAMPLE_H

#include "daemon/nvml/child.h"
#include "daemon/nvml/sample.h"

/* Finds the functions in libnvidia-ml (a handle of dlopen); what a driver lacks stays unknown. */
void alq_child_sample_init(void *library);

/* Reads all GPUs but those to skip; one failing call costs its own figure. -1 when out of memory,
 * or the parent is gone. */
int alq_child_sample(const struct child *c, struct alq_sample *sample);

#endif
