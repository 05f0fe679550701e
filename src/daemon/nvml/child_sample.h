/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVML child's side of a sample. Calls NVML, so it may hang or crash with it.
 */
#ifndef ALQ_DAEMON_NVML_CHILD_SAMPLE_H
#define ALQ_DAEMON_NVML_CHILD_SAMPLE_H

#include "daemon/nvml/sample.h"

/* Finds the functions in libnvidia-ml (a handle of dlopen); what a driver lacks stays unknown. */
void alq_child_sample_init(void *library);

/* Reads all GPUs; one failing call costs its own figure. -1 when out of memory. */
int alq_child_sample(struct alq_sample *sample);

#endif
