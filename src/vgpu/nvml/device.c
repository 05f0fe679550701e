/* SPDX-License-Identifier: Apache-2.0 */
#include "vgpu/nvml/device.h"

#include "vgpu/driver.h"
#include "vgpu/memory/export.h"
#include "vgpu/memory/pool.h"
#include "vgpu/text.h"

/* The place of a UUID in NVML's order; 0 when NVML does not say. */
static uint32_t place_of(const char *uuid)
{
    unsigned int count = 0;

    if (!alq_real(ALQ_NVML_nvmlDeviceGetCount_v2) ||
        !alq_real(ALQ_NVML_nvmlDeviceGetHandleByIndex_v2) ||
        ALQ_CALL_NVML(nvmlDeviceGetCount_v2, &count) != NVML_SUCCESS)
        return 0;
    for (unsigned int i = 0; i < count; i++) {
        nvmlDevice_t device;
        char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";
        if (ALQ_CALL_NVML(nvmlDeviceGetHandleByIndex_v2, i, &device) == NVML_SUCCESS &&
            ALQ_CALL_NVML(nvmlDeviceGetUUID, device, text, sizeof(text)) == NVML_SUCCESS &&
            alq_text_is_uuid(text, uuid))
            return i;
    }
    return 0;
}

bool alq_nvml_shares_of(nvmlDevice_t device, struct alq_nvml_shares *out)
{
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE] = "";

    if (alq_core_mode() != ALQ_MODE_LIMITED || !alq_real(ALQ_NVML_nvmlDeviceGetUUID) ||
        ALQ_CALL_NVML(nvmlDeviceGetUUID, device, uuid, sizeof(uuid)) != NVML_SUCCESS)
        return false;
    alq_core_renew();
    out->count = alq_shares_of_uuid(uuid, alq_core_is_env() ? place_of(uuid) : 0, out->share);
    return out->count != 0;
}

void alq_nvml_room(const struct alq_nvml_shares *s, struct alq_room *out)
{
    struct alq_dev *dev;

    alq_pool_synced();
    for (uint32_t i = 0; (dev = alq_dev_at(i)); i++)
        alq_export_settle(dev);
    alq_room_of(s->share, s->count, out);
}

nvmlReturn_t alq_nvml_absent(uint32_t index)
{
    return alq_real_is_loaded(index) ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_ERROR_UNINITIALIZED;
}
