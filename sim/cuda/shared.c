/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory as this process holds it (memory.h): the calls to simgpud, one at a time, and their
 * failures as CUDA results.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cuda/memory.h"

static pthread_mutex_t wire_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult ask(const struct sim_ask_object *request, int send_fd,
                    struct sim_object_answer *answer, int *hold, int *file)
{
    struct sim_ask_object r = *request;
    int rc;

    r.header.bytes = sizeof(r);
    pthread_mutex_lock(&wire_lock);
    rc = sim_call_object(&driver_connection, &r, send_fd, answer, hold, file);
    pthread_mutex_unlock(&wire_lock);
    return rc == 0         ? CUDA_SUCCESS
           : rc == -ENOENT ? CUDA_ERROR_INVALID_HANDLE
           : rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
           : rc == -EPROTO ? CUDA_ERROR_OPERATING_SYSTEM
                           : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

/* Asks for a holder's descriptor and the memory; without both, the process has no room for more. */
static CUresult ask_hold(const struct sim_ask_object *request, int send_fd,
                         struct sim_object_answer *answer, struct shared *shared)
{
    int hold, file;
    CUresult rc = ask(request, send_fd, answer, &hold, &file);

    if (rc == CUDA_SUCCESS && (hold < 0 || file < 0)) {
        if (hold >= 0)
            close(hold);
        rc = CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (rc == CUDA_SUCCESS)
        *shared = (struct shared){answer->id, hold, file};
    return rc;
}

CUresult shared_make(struct device *d, enum object_kind kind, uint64_t charge, uint64_t bytes,
                     const void *meta, size_t meta_bytes, struct shared *shared)
{
    struct sim_ask_object request = {
        .header.type = SIM_SHARE,
        .device = d->info.index,
        .kind = kind,
        .file_bytes = bytes,
    };
    struct sim_object_answer answer;
    CUresult rc;

    if (meta_bytes)
        memcpy(request.meta, meta, meta_bytes);
    TRY(ask_hold(&request, -1, &answer, shared));
    /* Bytes move once the object is really held: one that nobody holds takes its bytes along. */
    rc = charge ? shared_move(shared, (int64_t)charge) : CUDA_SUCCESS;
    if (rc != CUDA_SUCCESS)
        shared_drop(shared);
    return rc;
}

CUresult shared_join(int fd, uint64_t id, struct sim_object_answer *what, struct shared *shared)
{
    struct sim_ask_object request = {.header.type = id ? SIM_OPEN : SIM_IMPORT, .id = id};

    NEED(id || fd >= 0, CUDA_ERROR_INVALID_VALUE);
    return ask_hold(&request, id ? -1 : fd, what, shared);
}

CUresult shared_token(const struct shared *shared, int *fd)
{
    struct sim_object_answer answer;
    int file;

    TRY(ask(&(struct sim_ask_object){.header.type = SIM_TOKEN, .id = shared->id}, -1, &answer, fd,
            &file));
    return *fd >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult shared_move(const struct shared *shared, int64_t bytes)
{
    struct sim_object_answer answer;
    int hold, file;

    return ask(&(struct sim_ask_object){.header.type = SIM_MOVE, .id = shared->id, .bytes = bytes},
               -1, &answer, &hold, &file);
}

void shared_drop(struct shared *shared)
{
    struct sim_object_answer answer;
    int hold, file;

    close(shared->hold);
    close(shared->file);
    (void)ask(&(struct sim_ask_object){.header.type = SIM_RELEASE, .id = shared->id}, -1, &answer,
              &hold, &file);
    *shared = (struct shared){0};
}

struct device *shared_device(const struct sim_object_answer *what)
{
    for (int i = 0; i < driver_device_count; i++) {
        if (driver_devices[i].info.index == what->device)
            return &driver_devices[i];
    }
    return NULL;
}
