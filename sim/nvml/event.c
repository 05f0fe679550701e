/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event sets: each is a connection of its own on which simgpud sends what is watched, so that a
 * waiter needs no thread and holds up nobody. A device that is lost while it is watched makes
 * waiting GPU_IS_LOST, once what was raised before has been read.
 */
#include "nvml/nvml.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#define EVENT_TYPES                                                                                \
    ((unsigned long long)(nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError |        \
                          nvmlEventTypeXidCriticalError))

#define KEPT_MAX 32 /* events that came while an answer was awaited; further ones are lost */

struct nvmlEventSet_st {
    pthread_mutex_t lock; /* around each reading of the connection */
    struct sim_connection connection;
    uint32_t watched; /* bits: places of devices */
    unsigned int kept_count;
    struct sim_event kept[KEPT_MAX];
};

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    TRY(nvml_check(device));
    NEED(types, NVML_ERROR_INVALID_ARGUMENT);
    *types = EVENT_TYPES;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
    TRY(nvml_ready());
    NEED(set, NVML_ERROR_INVALID_ARGUMENT);
    *set = calloc(1, sizeof(**set));
    NEED(*set, NVML_ERROR_MEMORY);
    pthread_mutex_init(&(*set)->lock, NULL);
    (*set)->connection.fd = -1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    TRY(nvml_ready());
    NEED(set, NVML_ERROR_INVALID_ARGUMENT);
    sim_disconnect(&set->connection);
    free(set);
    return NVML_SUCCESS;
}

static nvmlReturn_t connect_locked(nvmlEventSet_t set)
{
    int rc = set->connection.fd >= 0 ? 0 : sim_connect(&set->connection, SIM_KIND_NVML);

    if (rc == 0 && set->connection.control) {
        munmap(set->connection.control, sizeof(*set->connection.control));
        set->connection.control = NULL; /* nvmlInit mapped it already */
    }
    return rc == 0 ? NVML_SUCCESS : rc == -ENOMEM ? NVML_ERROR_MEMORY : NVML_ERROR_GPU_IS_LOST;
}

/* The answer comes among the events of what was watched before. */
static nvmlReturn_t watch_locked(nvmlEventSet_t set, uint32_t index, uint64_t types)
{
    struct sim_watch watch = {.header = {SIM_WATCH, sizeof(watch)}, .index = index, .types = types};
    union {
        struct sim_answer answer;
        struct sim_event event;
    } m;
    ssize_t n;

    NEED(send(set->connection.fd, &watch, sizeof(watch), MSG_NOSIGNAL) == (ssize_t)sizeof(watch),
         NVML_ERROR_GPU_IS_LOST);
    for (;;) {
        n = recv(set->connection.fd, &m, sizeof(m), 0);
        if (n < 0 && errno == EINTR)
            continue;
        NEED(n >= (ssize_t)sizeof(m.answer), NVML_ERROR_GPU_IS_LOST);
        if (m.answer.header.type == SIM_WATCH)
            return m.answer.status == SIM_OK ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
        if (m.event.type && set->kept_count < KEPT_MAX)
            set->kept[set->kept_count++] = m.event;
    }
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set)
{
    nvmlReturn_t rc;

    TRY(nvml_check(device));
    NEED(set, NVML_ERROR_INVALID_ARGUMENT);
    NEED(!(types & ~EVENT_TYPES), NVML_ERROR_NOT_SUPPORTED);
    pthread_mutex_lock(&set->lock);
    rc = connect_locked(set);
    if (rc == NVML_SUCCESS)
        rc = watch_locked(set, device->info.index, types);
    if (rc == NVML_SUCCESS)
        set->watched |= 1u << device->info.index;
    pthread_mutex_unlock(&set->lock);
    return rc;
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static nvmlReturn_t check_watched(nvmlEventSet_t set)
{
    for (uint32_t i = 0; i < nvml_count(); i++) {
        if (set->watched >> nvml_at(i)->info.index & 1)
            TRY(nvml_check(nvml_at(i)));
    }
    return NVML_SUCCESS;
}

/* The next message: 1 when it is an event, 0 when there is none yet, -1 when simgpud went away. */
static int read_event(nvmlEventSet_t set, struct sim_event *event)
{
    ssize_t n = 0;
    int rc = 0;

    pthread_mutex_lock(&set->lock);
    if (set->kept_count) {
        *event = set->kept[0];
        memmove(set->kept, set->kept + 1, --set->kept_count * sizeof(set->kept[0]));
        rc = 1;
    } else if (set->connection.fd >= 0) {
        do
            n = recv(set->connection.fd, event, sizeof(*event), MSG_DONTWAIT);
        while (n == (ssize_t)sizeof(*event) && !event->type); /* only a condition that changed */
        rc = n == (ssize_t)sizeof(*event)                   ? 1
             : n < 0 && (errno == EAGAIN || errno == EINTR) ? 0
                                                            : -1;
    }
    pthread_mutex_unlock(&set->lock);
    return rc;
}

/* One event, or TIMEOUT when none came in time, or GPU_IS_LOST. */
static nvmlReturn_t next_event(nvmlEventSet_t set, struct sim_event *event, int64_t timeout_ms)
{
    int64_t end = now_ms() + timeout_ms, left = timeout_ms;

    for (;;) {
        struct pollfd p = {.fd = set->connection.fd, .events = POLLIN};
        int rc = read_event(set, event);
        nvmlReturn_t health = rc ? NVML_SUCCESS : check_watched(set);

        if (health != NVML_SUCCESS)
            rc = read_event(set, event); /* what was raised before the loss was sent before it */
        if (rc)
            return rc > 0 ? NVML_SUCCESS : NVML_ERROR_GPU_IS_LOST;
        TRY(health);
        if (left <= 0)
            return NVML_ERROR_TIMEOUT;
        poll(&p, 1, left > INT32_MAX ? INT32_MAX : (int)left);
        left = end - now_ms();
    }
}

static nvmlDevice_t device_of(uint32_t index)
{
    for (uint32_t i = 0; i < nvml_count(); i++) {
        if (nvml_at(i)->info.index == index)
            return nvml_at(i);
    }
    return NULL;
}

static nvmlReturn_t wait_event(nvmlEventSet_t set, nvmlEventData_t *data, size_t bytes,
                               unsigned int timeout_ms)
{
    nvmlEventData_t all = {.gpuInstanceId = NVML_NO_INSTANCE_ID,
                           .computeInstanceId = NVML_NO_INSTANCE_ID};
    struct sim_event event;

    TRY(nvml_ready());
    NEED(set && data, NVML_ERROR_INVALID_ARGUMENT);
    TRY(next_event(set, &event, timeout_ms));
    all.device = device_of(event.index);
    all.eventType = event.type;
    all.eventData = event.data;
    memcpy(data, &all, bytes);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    return wait_event(set, data, sizeof(*data), timeout_ms);
}

/* The structure of its time ended before the instances. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms)
{
    return wait_event(set, data, offsetof(nvmlEventData_t, gpuInstanceId), timeout_ms);
}
