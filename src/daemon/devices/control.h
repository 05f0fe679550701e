/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator does to the GPUs, on the admin socket (docs/health.md): letting go of the driver
 * for a while, and saying that a GPU is well again. Loop thread only.
 */
#ifndef ALQ_DAEMON_DEVICES_CONTROL_H
#define ALQ_DAEMON_DEVICES_CONTROL_H

#include "daemon/admin/admin.h"
#include "daemon/devices/devices.h"
#include "daemon/nvml/nvml.h"

/* Both outlive the server. */
struct alq_devices_control {
    struct alq_devices *devices;
    struct alq_nvml *nvml;
};

/* Registers the paths and the findings. control outlives admin. ALQ_ENOMEM. */
int alq_devices_control_open(struct alq_devices_control *control, struct alq_admin *admin,
                             struct alq_err *err);

#endif
