/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVML child's side of the use (use.h). Calls NVML, so it may hang or crash with it.
 */
#ifndef ALQ_DAEMON_NVML_CHILD_USE_H
#define ALQ_DAEMON_NVML_CHILD_USE_H

#include "daemon/nvml/child.h"
#include "daemon/nvml/use.h"

/* Reads all GPUs but those to skip; use is empty before. -1 when out of memory, or the parent is
 * gone. */
int alq_child_use(struct child *c, struct alq_use *use);

/* Fills gpu's processes, none before, with their means over NVML's samples newer than *seen_us, and
 * sets that to the newest there is; none when nothing ran, or NVML does not tell. -1: out of
 * memory. */
int child_read_use(nvmlDevice_t device, uint64_t *seen_us, struct alq_use_gpu *gpu);

#endif
