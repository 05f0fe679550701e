/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start and end of NVML, the connection, and the calls about the system: versions, error texts,
 * entry points without an implementation.
 */
#include "nvml/nvml.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/entries.h"
#include "client/fault.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_connection connection = {.fd = -1};
static struct nvmlDevice_st devices[SIM_MAX_DEVICES];
static unsigned int references;
static pid_t owner; /* a fork child has to initialise for itself */

static const struct {
    const char *driver, *nvml;
    int cuda;
} versions[SIM_PROFILES] = {
    [SIM_PROFILE_535] = {"535.261.03", "12.535.261.03", 12020},
    [SIM_PROFILE_550] = {"550.163.01", "12.550.163.01", 12040},
    [SIM_PROFILE_13_0] = {"580.65.06", "13.580.65.06", 13000},
};

static nvmlReturn_t open_locked(void)
{
    int rc;

    if (references && owner != getpid()) {
        sim_disconnect(&connection);
        references = 0;
    }
    if (references) {
        references++;
        return NVML_SUCCESS;
    }
    rc = sim_connect(&connection, SIM_KIND_NVML);
    if (rc != 0)
        return rc == -EPROTO   ? NVML_ERROR_LIB_RM_VERSION_MISMATCH
               : rc == -ENOMEM ? NVML_ERROR_MEMORY
               : rc == -EACCES ? NVML_ERROR_NO_PERMISSION
               : rc == -EBUSY  ? NVML_ERROR_INSUFFICIENT_RESOURCES
                               : NVML_ERROR_DRIVER_NOT_LOADED;
    connection.control = sim_control_adopt(connection.control, connection.pid);
    for (uint32_t i = 0; i < connection.device_count; i++) {
        if (connection.device[i].profile != (uint32_t)nvml_profile) {
            sim_disconnect(&connection);
            return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
        }
        devices[i].info = connection.device[i];
    }
    owner = getpid();
    references = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t rc;

    NEED(!(flags & ~(unsigned int)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH)),
         NVML_ERROR_INVALID_ARGUMENT);
    pthread_mutex_lock(&lock);
    rc = open_locked();
    pthread_mutex_unlock(&lock);
    return rc;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t rc = NVML_SUCCESS;

    pthread_mutex_lock(&lock);
    if (!references || owner != getpid())
        rc = NVML_ERROR_UNINITIALIZED;
    else if (--references == 0)
        sim_disconnect(&connection);
    pthread_mutex_unlock(&lock);
    return rc;
}

nvmlReturn_t nvml_ready(void)
{
    return references && owner == getpid() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

uint32_t nvml_count(void)
{
    return connection.device_count;
}

struct nvmlDevice_st *nvml_at(uint32_t position)
{
    return &devices[position];
}

nvmlReturn_t nvml_check(nvmlDevice_t device)
{
    TRY(nvml_ready());
    NEED(device >= devices && device < devices + connection.device_count,
         NVML_ERROR_INVALID_ARGUMENT);
    NEED(atomic_load_explicit(&connection.control->device[device->info.index].condition,
                              memory_order_acquire) == SIM_DEVICE_OK,
         NVML_ERROR_GPU_IS_LOST);
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_ask(uint32_t type, nvmlDevice_t device, uint64_t since_us, void *answer,
                      uint32_t max)
{
    struct sim_ask_device ask = {
        .header = {type, sizeof(ask)}, .index = device->info.index, .since_us = since_us};
    int rc;

    pthread_mutex_lock(&lock);
    rc = references ? sim_call(&connection, &ask, sizeof(ask), answer, max) : -ENOTCONN;
    pthread_mutex_unlock(&lock);
    /* The simulated kernel module went away under us. */
    return rc < 0 ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

nvmlReturn_t nvml_state(nvmlDevice_t device, struct sim_device_state *state)
{
    return nvml_ask(SIM_DEVICE, device, 0, state, sizeof(*state));
}

nvmlReturn_t nvml_text(char *to, unsigned int size, const char *text)
{
    NEED(to, NVML_ERROR_INVALID_ARGUMENT);
    NEED(strlen(text) < size, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(to, text);
    return NVML_SUCCESS;
}

int sim_unsupported(unsigned int index)
{
    nvmlReturn_t ready = nvml_ready();
    if (ready != NVML_SUCCESS)
        return (int)ready;
    atomic_fetch_add_explicit(&connection.control->nvml_unsupported[index], 1,
                              memory_order_relaxed);
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    TRY(nvml_ready());
    return nvml_text(version, length, versions[nvml_profile].driver);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    return nvml_text(version, length, versions[nvml_profile].nvml);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    NEED(version, NVML_ERROR_INVALID_ARGUMENT);
    *version = versions[nvml_profile].cuda;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[64];
    size_t n;
    FILE *f;

    TRY(nvml_ready());
    NEED(name && length, NVML_ERROR_INVALID_ARGUMENT);
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    f = fopen(path, "re");
    NEED(f, NVML_ERROR_NOT_FOUND);
    n = fread(name, 1, length - 1, f);
    fclose(f);
    name[n] = '\0'; /* the arguments follow the first NUL, and are not the name */
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NO_PERMISSION:
        return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
        return "Timeout";
    case NVML_ERROR_LIBRARY_NOT_FOUND:
        return "NVML Shared Library Not Found";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "Driver/library version mismatch";
    case NVML_ERROR_MEMORY:
        return "Insufficient Memory";
    case NVML_ERROR_NO_DATA:
        return "No data";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    default:
        return "Unknown Error";
    }
}
