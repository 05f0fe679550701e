/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the stand-in libnvidia-ml: its connection, which every query goes through, and its device
 * handles. One lock around the connection. NVML keeps nothing that a device file does not say.
 */
#ifndef SIM_NVML_NVML_H
#define SIM_NVML_NVML_H

#include <stddef.h>
#include <stdint.h>

/* Entry points are visible from outside, everything else in the library is not. */
#pragma GCC visibility push(default)
#include "aliquot/nvml_abi.h"
#pragma GCC visibility pop
#include "client/client.h"

struct nvmlDevice_st {
    struct sim_device_info info;
};

extern const enum sim_profile nvml_profile;

/* A figure nobody's decision rests on. */
#define NVML_POWER_IDLE_MW 70000u

/* The model has no memory traffic; a part of the kernels' time stands for it. */
static inline unsigned int nvml_memory_pct(unsigned int gpu_pct)
{
    return gpu_pct / 4;
}

/* Number of devices and the device at a position; valid while initialised. */
uint32_t nvml_count(void);
struct nvmlDevice_st *nvml_at(uint32_t position);

/* NVML_SUCCESS when initialised and the handle is one of ours, of a device that is there. */
nvmlReturn_t nvml_check(nvmlDevice_t device);
nvmlReturn_t nvml_ready(void);

/* One round trip about a device; answer has room for max bytes. */
nvmlReturn_t nvml_ask(uint32_t type, nvmlDevice_t device, uint64_t since_us, void *answer,
                      uint32_t max);
nvmlReturn_t nvml_state(nvmlDevice_t device, struct sim_device_state *state);

/* Copies text with its NUL; NVML_ERROR_INSUFFICIENT_SIZE when it does not fit. */
nvmlReturn_t nvml_text(char *to, unsigned int size, const char *text);

#define NEED(condition, error)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return (error);                                                                        \
    } while (0)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        nvmlReturn_t try_result_ = (call);                                                         \
        if (try_result_ != NVML_SUCCESS)                                                           \
            return try_result_;                                                                    \
    } while (0)

#endif
