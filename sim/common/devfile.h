/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device file: JSON that describes the simulated machine (sim/README.md lists the keys).
 * Decoding is strict: an unknown key, a wrong type or a value out of range is an error that names
 * the file, the key and what to write instead. Missing optional keys get values that go together
 * (PCI addresses, UUIDs and serials from the position, costs from the size). No state.
 */
#ifndef SIM_COMMON_DEVFILE_H
#define SIM_COMMON_DEVFILE_H

#include <jansson.h>
#include <stddef.h>

#include "base/err.h"
#include "common/wire.h"

struct sim_machine {
    uint32_t device_count;
    enum sim_profile profile; /* of all devices: a machine has one driver */
    uint32_t absent;          /* bits: places below device_count whose device was removed */
    struct sim_device_info device[SIM_MAX_DEVICES];
    struct sim_kernel_rule rule[SIM_KERNEL_RULES];
};

/* Facts of a driver profile. Borrowed constants; profile must be one of the three. */
struct sim_profile_facts {
    const char *name;           /* as the device file says it: "550" */
    const char *driver_version; /* "550.163.01" */
    int cuda_version;           /* 12040 */
};

const struct sim_profile_facts *sim_profile_facts(enum sim_profile profile);

/* Parses text[0..len); what names the source in errors. ALQ_EINVAL, ALQ_ERANGE, ALQ_ENOMEM. */
int sim_machine_parse(const char *text, size_t len, const char *what, struct sim_machine *machine,
                      struct alq_err *err);

/* Puts one more device, described as in the file, at a place that is absent or the next (place <=
 * device_count < SIM_MAX_DEVICES). On failure the machine is as it was. */
int sim_machine_place(struct sim_machine *machine, json_t *description, uint32_t place,
                      struct alq_err *err);

/* Reads and parses a file of at most 1 MiB; also the errors of alq_file_read. */
int sim_machine_read(const char *path, struct sim_machine *machine, struct alq_err *err);

#endif
