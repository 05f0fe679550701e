/* SPDX-License-Identifier: Apache-2.0 */
/* The NVML child's way from GPU to GPU, for samples and the use. Calls NVML, so it may hang. */
#include "base/file.h"
#include "daemon/nvml/child.h"

uint32_t child_gpu_count(void)
{
    unsigned int count = 0;
    if (nvml.nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS)
        return 0;
    return count < ALQ_NVML_GPUS_MAX ? count : ALQ_NVML_GPUS_MAX;
}

int child_visit(const struct child *c, uint32_t index, nvmlDevice_t *device,
                char uuid[ALQ_UUID_BYTES])
{
    if (c->skipped[index])
        return 0;
    if (child_send(alq_str_printf("@%u", index)))
        return -1;
    return nvml.nvmlDeviceGetHandleByIndex_v2(index, device) == NVML_SUCCESS &&
           nvml.nvmlDeviceGetUUID(*device, uuid, ALQ_UUID_BYTES) == NVML_SUCCESS;
}
