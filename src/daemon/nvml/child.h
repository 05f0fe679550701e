/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the NVML child (child.c): the driver's functions that it uses, and what its parts
 * share. One thread; every call may hang for ever. Nothing of the daemon's may be used here but
 * plain functions: the child links libc and jansson alone.
 */
#ifndef ALQ_DAEMON_NVML_CHILD_H
#define ALQ_DAEMON_NVML_CHILD_H

#include <sys/stat.h>

#include "aliquot/nvml_abi.h"
#include "daemon/nvml/protocol.h"

/* The functions used: name, whether a driver without it is too old for us. */
#define NVML_FUNCTIONS(X)                                                                          \
    X(nvmlInit_v2, 1)                                                                              \
    X(nvmlErrorString, 0)                                                                          \
    X(nvmlSystemGetDriverVersion, 1)                                                               \
    X(nvmlSystemGetCudaDriverVersion, 0)                                                           \
    X(nvmlSystemGetCudaDriverVersion_v2, 0)                                                        \
    X(nvmlDeviceGetCount_v2, 1)                                                                    \
    X(nvmlDeviceGetHandleByIndex_v2, 1)                                                            \
    X(nvmlDeviceGetUUID, 1)                                                                        \
    X(nvmlDeviceGetMinorNumber, 1)                                                                 \
    X(nvmlDeviceGetName, 1)                                                                        \
    X(nvmlDeviceGetBrand, 0)                                                                       \
    X(nvmlDeviceGetCudaComputeCapability, 1)                                                       \
    X(nvmlDeviceGetPciInfo_v3, 1)                                                                  \
    X(nvmlDeviceGetMemoryInfo, 1)                                                                  \
    X(nvmlDeviceGetMemoryInfo_v2, 0)                                                               \
    X(nvmlDeviceGetMigMode, 0)                                                                     \
    X(nvmlDeviceGetFieldValues, 0)                                                                 \
    X(nvmlDeviceGetProcessUtilization, 0)                                                          \
    X(nvmlDeviceGetSupportedEventTypes, 0)                                                         \
    X(nvmlDeviceRegisterEvents, 0)                                                                 \
    X(nvmlEventSetCreate, 0)                                                                       \
    X(nvmlEventSetWait, 0)                                                                         \
    X(nvmlEventSetWait_v2, 0)

struct child_nvml {
#define MEMBER(name, is_needed) __typeof__(&name) name;
    NVML_FUNCTIONS(MEMBER)
#undef MEMBER
};
extern struct child_nvml nvml;

struct child {
    const char *dev_root;
    char *library; /* path of libnvidia-ml on the host */
    struct stat library_stat;
    char *machine; /* which GPUs the system shows, when the library was loaded (child_machine.c) */
    int is_stale;  /* a GPU or the driver went away: only a new process may see it come back */
    unsigned char skipped[ALQ_NVML_GPUS_MAX]; /* by index: NVML hangs on it */
    nvmlEventSet_t set;                       /* NULL: not to be had */
    struct { /* by index; handle NULL: its events are not registered */
        nvmlDevice_t handle;
        char uuid[ALQ_UUID_BYTES];
    } watched[ALQ_NVML_GPUS_MAX];
    uint64_t use_seen_us[ALQ_NVML_GPUS_MAX]; /* by index: the newest stamp known, 0: none yet */
    struct alq_nvml_reading reading;
    struct alq_nvml_events events;
};

/* Says why there is no reading; returns code. */
int child_give_up(struct child *c, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
const char *child_error_text(nvmlReturn_t status);
/* The status of a call says that its GPU or the driver is gone. */
int child_is_lost(nvmlReturn_t status);
/* Whole lines only; -1 when the parent is gone. Takes line, which it frees; NULL is an error. */
int child_send(char *line);

/* How many GPUs NVML has, at most ALQ_NVML_GPUS_MAX; 0 when it does not tell. */
uint32_t child_gpu_count(void);
/* Goes to a GPU, and tells the parent so. 0: it is to be let be, or does not answer. -1: the parent
 * is gone. */
int child_visit(const struct child *c, uint32_t index, nvmlDevice_t *device,
                char uuid[ALQ_UUID_BYTES]);

/* Fills c->reading. */
int child_read(struct child *c);

/* Asks for the events of a GPU, once. */
void child_watch(struct child *c, uint32_t index, nvmlDevice_t device, const char *uuid);
/* Fills c->events with what has come since the last time; does not wait. */
void child_collect(struct child *c);

/* What the system shows without NVML: the GPUs there are, and which load of the kernel module this
 * is. malloc'ed, or NULL when out of memory; "" unknown. */
char *child_machine(const char *dev_root);
void child_module_load(char *text, size_t size);

#endif
