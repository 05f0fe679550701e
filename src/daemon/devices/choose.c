/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs are offered, see choose.h. Pure. */
#include "daemon/devices/choose.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "daemon/nvml/protocol.h"

#define MIB (1024 * 1024)

int alq_choose_matches(const char *pattern, const struct alq_gpu *gpu)
{
    char address[32];
    if (!fnmatch(pattern, gpu->uuid, FNM_CASEFOLD) ||
        !fnmatch(pattern, gpu->product_name, FNM_CASEFOLD))
        return 1;
    if (!gpu->pci_bus_id[0])
        return 0;
    alq_nvml_pci_address(pattern, address, sizeof(address));
    return !fnmatch(*address ? address : pattern, gpu->pci_bus_id, FNM_CASEFOLD) ||
           (!strncmp(gpu->pci_bus_id, "0000:", 5) &&
            !fnmatch(pattern, gpu->pci_bus_id + 5, FNM_CASEFOLD));
}

static const char *find(char *const *patterns, const struct alq_gpu *gpu)
{
    for (; patterns && *patterns; patterns++) {
        if (alq_choose_matches(*patterns, gpu))
            return *patterns;
    }
    return NULL;
}

/* Returns whether the GPU is offered; else says why not. */
static int judge(const struct alq_config *cfg, struct alq_gpu *gpu, char *reason, size_t size)
{
    const char *excluded = find(cfg->devices_exclude, gpu);
    uint64_t *bytes = &gpu->memory_promisable_bytes;
    if (excluded) {
        snprintf(reason, size, "--devices-exclude has \"%.100s\"", excluded);
        return 0;
    }
    if (cfg->devices_include && cfg->devices_include[0] && !find(cfg->devices_include, gpu)) {
        snprintf(reason, size, "nothing in --devices-include matches it");
        return 0;
    }
    if (!gpu->memory_total_bytes)
        gpu->memory_total_bytes = *bytes = cfg->unified_memory_bytes;
    if (!gpu->memory_total_bytes) {
        snprintf(reason, size,
                 "it has no memory of its own and NVML tells none; say with --unified-memory how "
                 "much of the machine's may be promised on it");
        return 0;
    }
    *bytes = *bytes > cfg->reserve_bytes ? (*bytes - cfg->reserve_bytes) / MIB * MIB : 0;
    /* The API server wants a step between the least and the most that can be asked for. */
    if (*bytes < 2 * MIB) {
        snprintf(reason, size, "no memory is left to promise; --reserve is too large for it");
        return 0;
    }
    return 1;
}

void alq_choose(const struct alq_config *cfg, struct alq_gpu_list *list,
                struct alq_left_out *left_out, size_t *left_out_count, size_t max)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct alq_gpu *gpu = &list->gpus[i];
        struct alq_left_out out = {.index = gpu->index};
        if (judge(cfg, gpu, out.reason, sizeof(out.reason))) {
            if (kept != i)
                list->gpus[kept] = *gpu;
            kept++;
        } else if (*left_out_count < max) {
            memcpy(out.uuid, gpu->uuid, sizeof(out.uuid));
            left_out[(*left_out_count)++] = out;
        }
    }
    list->count = kept;
}
