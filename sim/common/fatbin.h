/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The container that nvcc puts PTX and cubins of several architectures in. Its format is not
 * published; what is read here was taken from what nvcc 13.0 writes. Takes any bytes.
 */
#ifndef SIM_COMMON_FATBIN_H
#define SIM_COMMON_FATBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_FATBIN_MAGIC 0xba55ed50u
#define SIM_FATBIN_HEADER_BYTES 16u
#define SIM_FATBIN_WRAPPER_MAGIC                                                                   \
    0x466243b1u /* a wrapper: magic, version, pointer to the container */

enum sim_fatbin_kind { SIM_FATBIN_PTX = 1, SIM_FATBIN_CUBIN = 2 };

struct sim_fatbin_entry {
    enum sim_fatbin_kind kind;
    uint32_t cc; /* major * 10 + minor */
    bool is_compressed;
    size_t offset, bytes; /* of the code, from the container's start */
};

/* The whole size of the container that starts with these bytes, as its header says; 0 when they are
 * not one. */
uint64_t sim_fatbin_bytes(const void *bytes, size_t size);

/*
 * The entry a driver takes for a device: the newest cubin of the device's major that is not above
 * its minor, else the newest PTX that is not above the device. 0, -EINVAL when the container is
 * malformed, -ENOENT when it has nothing for the device.
 */
int sim_fatbin_choose(const void *bytes, size_t size, uint32_t cc, struct sim_fatbin_entry *entry);

#endif
