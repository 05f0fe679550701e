/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control page: what simctl asked for and every client obeys without a round trip. One memfd
 * per simgpud, mapped by both stand-in libraries. simgpud writes it; clients write only the
 * counters that say so. A rule is filled before the bytes of `armed` that lead to it are set, and
 * those are cleared before it is used again.
 */
#ifndef SIM_COMMON_CONTROL_H
#define SIM_COMMON_CONTROL_H

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

#include "common/layout.h"

#define SIM_FAULT_RULES 64u
#define SIM_FAULT_TEXT 64u
#define SIM_GROUP_BYTES 128u

enum sim_library { SIM_LIBRARY_CUDA, SIM_LIBRARY_NVML, SIM_LIBRARIES };

enum sim_condition {
    SIM_DEVICE_OK,
    SIM_DEVICE_LOST,    /* fallen off the bus: listed, answers nothing */
    SIM_DEVICE_REMOVED, /* no longer listed; who had it sees it as lost */
};

struct sim_control_device {
    _Atomic uint32_t condition; /* enum sim_condition */
    _Atomic uint32_t epoch;     /* contexts made in an earlier one fail ... */
    _Atomic uint32_t code;      /* ... with this CUresult */
    uint32_t reserved[13];
};

/* One injected fault: calls of the marked entry points, by the callers named, from the first-th on.
 */
struct sim_fault_rule {
    uint64_t entries[SIM_LIBRARIES]
                    [SIM_MAX_ENTRIES / 64]; /* bits by index in the profile's lists */
    uint64_t delay_ns;                      /* before the call, or before the result */
    uint64_t first, times; /* which matching calls, counted from 1; times 0: all from first on */
    uint32_t has_result;   /* the call is not made; it returns: */
    int32_t result;        /* CUresult or nvmlReturn_t */
    uint32_t pid;          /* as simgpud sees it; 0: any */
    uint32_t has_group;
    char group[SIM_GROUP_BYTES];
    char caller[SIM_FAULT_TEXT]; /* part of the file name of the calling object; "": any */
    char own[SIM_FAULT_TEXT];    /* likewise, and the call must be its own (fault.h) */
    _Atomic uint64_t calls;      /* clients: matching ones so far */
    _Atomic uint64_t fired;      /* clients: how many of them the rule acted on */
};

struct sim_control {
    uint32_t version;
    uint32_t reserved0;
    uint64_t identity; /* another one for each simgpud */
    uint32_t reserved[12];
    struct sim_control_device device[SIM_MAX_DEVICES];
    _Atomic uint8_t armed[SIM_LIBRARIES][SIM_MAX_ENTRIES]; /* non-zero: some rule marks the entry */
    _Atomic uint32_t nvml_unsupported[SIM_MAX_ENTRIES];    /* clients: calls answered so */
    struct sim_fault_rule rule[SIM_FAULT_RULES];
};

static_assert(sizeof(struct sim_control_device) == 64, "line");
static_assert(SIM_MAX_ENTRIES % 64 == 0, "bits");

#endif
