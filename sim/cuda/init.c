/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuInit, versions and the devices a process sees. What is set here never changes afterwards, so
 * that other files read it without a lock once driver_ready().
 */
#include "cuda/driver.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/fault.h"

_Thread_local struct thread thread_state;
pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
struct sim_connection driver_connection = {.fd = -1};
struct device driver_devices[SIM_MAX_DEVICES];
int driver_device_count;
const unsigned char *driver_alive;

static const int cuda_versions[SIM_PROFILES] = {12020, 12040, 13000};

CUresult cuDriverGetVersion(int *version)
{
    NEED(version, CUDA_ERROR_INVALID_VALUE);
    *version = cuda_versions[driver_profile];
    return CUDA_SUCCESS;
}

static bool goes_before(const struct sim_device_info *a, const struct sim_device_info *b,
                        bool is_by_bus)
{
    if (!is_by_bus)
        return a->sms > b->sms;
    if (a->pci_domain != b->pci_domain)
        return a->pci_domain < b->pci_domain;
    return a->pci_bus != b->pci_bus ? a->pci_bus < b->pci_bus : a->pci_device < b->pci_device;
}

/* CUDA_DEVICE_ORDER: by PCI address, or (the default) the fastest first, which here is the one with
 * the most multiprocessors. */
static void arrange(const struct sim_connection *c, uint32_t *all)
{
    const char *order = getenv("CUDA_DEVICE_ORDER");
    bool is_by_bus = order && strcmp(order, "PCI_BUS_ID") == 0;

    for (uint32_t i = 0; i < c->device_count; i++) {
        uint32_t at = i;

        for (; at && goes_before(&c->device[i], &c->device[all[at - 1]], is_by_bus); at--)
            all[at] = all[at - 1];
        all[at] = i;
    }
}

/* CUDA_VISIBLE_DEVICES: indices or UUID prefixes, up to the first that names no device (a MIG
 * instance never does: there are none). Returns how many of order[] it filled. */
static uint32_t visible(const struct sim_connection *c, uint32_t *order)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    uint32_t all[SIM_MAX_DEVICES], count = 0;

    arrange(c, all);
    if (!list) {
        memcpy(order, all, c->device_count * sizeof(*order));
        return c->device_count;
    }
    while (*list && count < SIM_MAX_DEVICES) {
        size_t len = strcspn(list, ",");
        uint32_t found = c->device_count, matches = 0;

        while (len && isspace((unsigned char)*list)) {
            list++;
            len--;
        }
        if (isdigit((unsigned char)*list)) {
            unsigned long n = strtoul(list, NULL, 10);

            found = n < c->device_count ? all[n] : c->device_count;
        } else if (len >= 4 && strncmp(list, "GPU-", 4) == 0) {
            for (uint32_t i = 0; i < c->device_count; i++) {
                if (strncasecmp(c->device[i].uuid, list, len) == 0) {
                    found = i;
                    matches++;
                }
            }
            if (matches != 1)
                break;
        }
        if (found == c->device_count)
            break;
        for (uint32_t i = 0; i < count; i++) {
            if (order[i] == found)
                return 0; /* a device named twice: the driver then shows none */
        }
        order[count++] = found;
        list += len;
        list += *list == ',';
    }
    return count;
}

/* A device that is lost, or cut into MIG instances of which there are none, is not CUDA's to see.
 */
static void keep_usable(struct sim_connection *c)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < c->device_count; i++) {
        const struct sim_control_device *d = &c->control->device[c->device[i].index];

        if (atomic_load(&d->condition) == SIM_DEVICE_OK && !c->device[i].mig)
            c->device[count++] = c->device[i];
    }
    c->device_count = count;
}

static void open_device(struct device *d, int ordinal, const struct sim_device_info *info)
{
    struct sim_connection *c = &driver_connection;
    uint32_t i = info->index;

    d->ordinal = ordinal;
    d->info = *info;
    d->sm = sim_sm_of(info->cc_major, info->cc_minor);
    d->shared = &c->node->device[i];
    d->control = &c->control->device[i];
    d->ledger = (struct sim_ledger){
        .account = &c->client->device[i].account,
        .device = &c->node->device[i],
        .group = &c->group->device[i],
        .device_ack = &c->node->device_ack[i],
        .group_ack = &c->node->group_ack[i],
        .slot = c->slot,
    };
    pthread_mutex_init(&d->memory_lock, NULL);
}

static CUresult init_locked(void)
{
    static bool was_initialised;
    uint32_t order[SIM_MAX_DEVICES], count;
    unsigned char *alive;
    int rc;

    if (was_initialised) /* and a forked child stays uninitialised for good */
        return driver_ready() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    rc = sim_connect(&driver_connection, SIM_KIND_CUDA);
    if (rc != 0)
        return rc == -EPROTO   ? CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
               : rc == -EBUSY  ? CUDA_ERROR_OPERATING_SYSTEM
               : rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                               : CUDA_ERROR_NO_DEVICE;
    driver_connection.control = sim_control_adopt(driver_connection.control, driver_connection.pid);
    keep_usable(&driver_connection);
    count = visible(&driver_connection, order);
    if (!count) {
        sim_disconnect(&driver_connection);
        return CUDA_ERROR_NO_DEVICE;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (driver_connection.device[order[i]].profile != (uint32_t)driver_profile) {
            sim_disconnect(&driver_connection);
            return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
        }
        open_device(&driver_devices[i], (int)i, &driver_connection.device[order[i]]);
    }
    driver_device_count = (int)count;
    alive = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (alive == MAP_FAILED || madvise(alive, 4096, MADV_WIPEONFORK) != 0) {
        sim_disconnect(&driver_connection);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *alive = 1;
    driver_alive = alive;
    was_initialised = true;
    return CUDA_SUCCESS;
}

/*
 * The tool that CUDA_INJECTION64_PATH names (a profiler): loaded and called by the first cuInit
 * that succeeds, before that returns. It calls the driver itself, so no lock is held. One that
 * cannot be loaded leaves the program as it is.
 */
static void inject(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (!path || !*path || atomic_flag_test_and_set(&done))
        return;
    void *tool = dlopen(path, RTLD_NOW);
    int (*start)(void) = tool ? (int (*)(void))dlsym(tool, "InitializeInjection") : NULL;
    if (start)
        start();
}

CUresult cuInit(unsigned int flags)
{
    CUresult rc;

    NEED(flags == 0, CUDA_ERROR_INVALID_VALUE);
    pthread_mutex_lock(&driver_lock);
    rc = init_locked();
    pthread_mutex_unlock(&driver_lock);
    if (rc == CUDA_SUCCESS)
        inject();
    return rc;
}

CUresult device_get(CUdevice ordinal, struct device **device)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(ordinal >= 0 && ordinal < driver_device_count, CUDA_ERROR_INVALID_DEVICE);
    *device = &driver_devices[ordinal];
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(count, CUDA_ERROR_INVALID_VALUE);
    *count = driver_device_count;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    struct device *d;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(device, CUDA_ERROR_INVALID_VALUE);
    TRY(device_get(ordinal, &d));
    *device = d->ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(name && len > 0, CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)len, "%s", d->info.name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(uuid, CUDA_ERROR_INVALID_VALUE);
    memcpy(uuid->bytes, d->info.uuid_bytes, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    return cuDeviceGetUuid(uuid, dev);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(bytes, CUDA_ERROR_INVALID_VALUE);
    *bytes = d->info.total_bytes - d->info.reserved_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
    size_t all;

    NEED(bytes, CUDA_ERROR_INVALID_VALUE);
    TRY(cuDeviceTotalMem_v2(&all, dev));
    *bytes = all > UINT32_MAX ? UINT32_MAX : (unsigned int)all;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
    struct device *d;
    int n;

    TRY(device_get(dev, &d));
    NEED(id && len > 0, CUDA_ERROR_INVALID_VALUE);
    n = snprintf(id, (size_t)len, "%04X:%02X:%02X.0", d->info.pci_domain, d->info.pci_bus,
                 d->info.pci_device);
    return n < len ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *id)
{
    unsigned int part[4] = {0, 0, 0, 0};
    int used = 0;

    NEED(driver_ready(), CUDA_ERROR_NOT_INITIALIZED);
    NEED(dev && id, CUDA_ERROR_INVALID_VALUE);
    /* domain:bus:device.function, or without the function, or without domain and function */
    if (sscanf(id, "%x:%x:%x.%x%n", &part[0], &part[1], &part[2], &part[3], &used) != 4 &&
        sscanf(id, "%x:%x:%x%n", &part[0], &part[1], &part[2], &used) != 3) {
        part[0] = 0;
        if (sscanf(id, "%x:%x%n", &part[1], &part[2], &used) != 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (int i = 0; i < driver_device_count && !id[used]; i++) {
        const struct sim_device_info *info = &driver_devices[i].info;

        if (info->pci_domain == part[0] && info->pci_bus == part[1] &&
            info->pci_device == part[2] && part[3] == 0) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(major && minor, CUDA_ERROR_INVALID_VALUE);
    *major = (int)d->info.cc_major;
    *minor = (int)d->info.cc_minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
    struct device *d;

    TRY(device_get(dev, &d));
    NEED(prop, CUDA_ERROR_INVALID_VALUE);
    *prop = (CUdevprop){
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {2147483647, 65535, 65535},
        .sharedMemPerBlock = 49152,
        .totalConstantMemory = 65536,
        .SIMDWidth = 32,
        .memPitch = 2147483647,
        .regsPerBlock = 65536,
        .clockRate = 1980000,
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}
