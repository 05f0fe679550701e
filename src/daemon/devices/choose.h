/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of a machine's GPUs are offered, and how much memory of each. Pure; any thread.
 */
#ifndef ALQ_DAEMON_DEVICES_CHOOSE_H
#define ALQ_DAEMON_DEVICES_CHOOSE_H

#include "daemon/config.h"
#include "daemon/domain.h"

/*
 * Whether pattern names the GPU: its UUID, its PCI address ("0000:65:00.0", with NVML's longer
 * domain, or "65:00.0" in domain 0) or its product name; * and ? are wildcards, letters have no
 * case.
 */
int alq_choose_matches(const char *pattern, const struct alq_gpu *gpu);

/*
 * Takes the GPUs out of the list that are not ours (--devices-include, --devices-exclude), or whose
 * memory cannot be promised, and puts them to left_out, which has room for max; sets what can be
 * promised of the others: less --reserve, rounded down to Mi, and --unified-memory for GPUs that
 * have none of their own.
 */
void alq_choose(const struct alq_config *cfg, struct alq_gpu_list *list,
                struct alq_left_out *left_out, size_t *left_out_count, size_t max);

#endif
